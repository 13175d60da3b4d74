"""trainctl as a person and a script use it: every verb in every form, exit codes, a terminal, Ctrl-C."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import grpc
import pytest

from support import BIN, LONG, ROOT, SPEC, spec_file, until, with_worker
from terminals import on_terminal

OK, JOB_FAILED, USAGE, NOT_FOUND, DENIED, UNAVAILABLE, TIMEOUT, CONFLICT = range(8)


@pytest.fixture
def done(daemon):
    """A daemon with one job that has succeeded."""
    job = daemon.submit(SPEC, "trainer.devices=2")
    daemon.finish(job)
    return daemon, job


# What each reading verb must show of the job `small` with id JOB.
READS = {
    "list": (["list"], "small"),
    "describe": (["describe", "JOB"], "SUCCEEDED"),
    "spec": (["spec", "JOB"], "small"),
    "metrics": (["metrics", "JOB"], "train_loss_step"),
    "checkpoint list": (["checkpoint", "list", "JOB"], "step-48"),
    "node list": (["node", "list"], "READY"),
    "node show": (["node", "show", "NODE"], "READY"),
    "plugins": (["plugins"], "single_device"),
    "cluster info": (["cluster", "info"], "127.0.0.1"),
    "watch": (["watch", "JOB"], "SUCCEEDED"),
    "wait": (["wait", "JOB"], "SUCCEEDED"),
    "version": (["version"], "0."),
}


# Verbs with tests of their own: they change something, or what they print has a form of its own.
WRITES = ("completion", "submit", "plan", "run", "cancel", "pause", "resume", "delete", "logs", "checkpoint download",
          "checkpoint create",  # test_s83_checkpoint_create.py
         
          "token create", "token list", "token request", "token revoke", "node token", "node revoke", "node label",
          "node cordon", "node uncordon", "node drain",  # test_s53_cordon.py
          "node device disable", "node device enable",  # test_s45_gpu_errors.py
          "context add", "context list", "context use",  # test_s66_roles.py
          "retry", "clone", "compare",  # test_s77_again.py
          "init",  # test_s78_init.py
          "top",  # test_s79_top.py
          "completion")  # test_s78_help.py


@pytest.mark.parametrize("form", ["table", "json", "jsonl", "name"])
def test_every_reading_verb_in_every_form(done, form):
    daemon, job = done
    for verb, (args, word) in READS.items():
        out = daemon.ctl(*[{"JOB": job, "NODE": daemon.node_name}.get(a, a) for a in args], "-o", form, check=OK).stdout
        assert out.endswith("\n"), verb
        if form == "json":
            json.loads(out)
        elif form == "jsonl":
            for line in out.splitlines():
                json.loads(line)
        elif form == "name":
            assert all(" " not in line and line for line in out.splitlines()), (verb, out)
        if form != "name":
            assert word in out, (verb, out)


def test_json_is_proto3_json_with_the_names_outside_programs_rely_on(done):
    daemon, job = done
    shown = daemon.ctl_json("describe", job)
    assert (shown["state"], shown["global_step"], shown["attempt"], shown["restarts"]) == ("SUCCEEDED", 48, 1, 0)
    assert {"train_loss_step", "val_loss", "val_accuracy", "test_accuracy"} <= shown["metrics"].keys()
    assert shown["nodes"] == [] and isinstance(shown["notes"], list) and shown["spec"]["trainer"]["devices"] == 2
    assert "spec_json" not in shown, "a value that is JSON is JSON, not text within text"
    assert daemon.ctl_json("cluster", "info")["address"] == daemon.address
    listed = daemon.ctl_json("list")["jobs"]
    short, wide = (daemon.ctl("list", "-o", form, check=OK).stdout.splitlines() for form in ("table", "wide"))
    assert "AGE" in short[0] and re.search(r"  \d+[sm]( |$)", short[1]) and listed[0]["create_time"] not in short[1]
    assert "CREATED" in wide[0] and listed[0]["create_time"] in wide[1]
    assert [j["id"] for j in listed] == [job] and listed[0]["state"] == "SUCCEEDED"
    from google.protobuf import json_format

    for verb, message in ((["describe", job], daemon.cluster.stubs.job.Job),
                          (["metrics", job], daemon.cluster.stubs.metric.QueryMetricsResponse),
                          (["checkpoint", "list", job], daemon.cluster.stubs.checkpoint.ListCheckpointsResponse),
                          (["plugins"], daemon.cluster.stubs.admin.ListPluginsResponse),
                          (["node", "list"], daemon.cluster.stubs.admin.ListNodesResponse)):
        json_format.Parse(daemon.ctl(*verb, "-o", "json", check=OK).stdout, message(),
                          ignore_unknown_fields=verb[0] == "describe")  # its "spec" is a value


def test_submit_with_overrides_dry_run_and_standard_input(daemon, tmp_path):
    spec = spec_file(tmp_path)
    shown = json.loads(daemon.ctl("submit", spec, "--set", "trainer.devices=2", "--dry-run", "-o", "json", check=OK).stdout)
    assert shown["trainer"]["devices"] == 2 and shown["restart"]["max"] == 3
    assert daemon.ctl_json("list")["jobs"] == []
    job = daemon.ctl("submit", spec, "--set", "trainer.max_steps=7", "--set", "name=other", "-o", "name", check=OK).stdout.strip()
    assert re.fullmatch(r"j-[0-9a-f]{12}", job)
    assert daemon.ctl("wait", job, "--timeout", "60", check=OK).stdout.startswith(f"{job} SUCCEEDED: step 7")
    assert daemon.ctl_json("describe", "other")["id"] == job, "a name that one job bears is as good as its id"
    out = daemon.ctl("submit", "-", stdin=SPEC, check=OK).stdout
    assert "follow it with `trainctl wait j-" in out
    same = ["submit", spec, "--request-id", "00000000-0000-4000-8000-000000000009", "-o", "name"]
    assert daemon.ctl(*same, check=OK).stdout == daemon.ctl(*same, check=OK).stdout


def test_json_specs_are_taken(daemon, tmp_path):
    canonical = daemon.ctl("submit", spec_file(tmp_path), "--dry-run", "-o", "json", check=OK).stdout
    job = daemon.ctl("submit", "-", "-o", "name", stdin=canonical, check=OK).stdout.strip()
    daemon.finish(job)


def test_follow_prints_plain_lines_and_the_result(daemon, tmp_path):
    ran = daemon.ctl("submit", spec_file(tmp_path), "--follow", check=OK)
    assert "\x1b" not in ran.stdout + ran.stderr and "\r" not in ran.stderr
    assert "RUNNING" in ran.stderr and "submitted j-" in ran.stderr
    assert "SUCCEEDED: step 96, attempt 1" in ran.stdout and "test_accuracy" in ran.stdout


def epoch_lines(daemon, job):
    """One line an epoch, made of the points that `metrics` answers."""
    last = {}
    for name in ("train_loss_epoch", "train_accuracy_epoch", "val_loss", "val_accuracy"):
        for series in json.loads(daemon.ctl("metrics", job, name, "-o", "json", check=OK).stdout)["series"]:
            assert series["dropped"] == 0, "a count, hence a number"
            for point in series["points"]:
                last.setdefault(point["epoch"], {})[name] = point["value"]
    return [f"epoch {epoch}: " + ", ".join(f"{name} {value:.4g}" for name, value in values.items())
            for epoch, values in sorted(last.items())]


@pytest.mark.parametrize("epochs", [1, 2, 40])
def test_follow_has_a_line_for_each_epoch_with_its_own_numbers(daemon, tmp_path, epochs):
    few_points = ["--set", f"trainer.max_epochs={epochs}", "--set", "trainer.log_every_n_steps=16"]
    ran = daemon.ctl("submit", spec_file(tmp_path), *few_points, "--follow", check=OK)
    said = [line for line in ran.stderr.splitlines() if line.startswith("epoch ")]
    assert len(said) == epochs and said == epoch_lines(daemon, ran.stdout.split()[0])


def test_epoch_that_the_last_step_cut_has_a_line_too(daemon, tmp_path):
    ran = daemon.ctl("submit", spec_file(tmp_path), "--set", "trainer.max_steps=60", "--follow", check=OK)
    said = [line for line in ran.stderr.splitlines() if line.startswith("epoch ")]
    assert len(said) == 2 and said == epoch_lines(daemon, ran.stdout.split()[0])


def test_watch_exits_as_the_job_ended(daemon, tmp_path):
    job = daemon.submit(LONG)
    daemon.ctl("cancel", job, check=OK)
    assert "CANCELLED" in daemon.ctl("watch", job, check=JOB_FAILED).stdout.splitlines()[-1]


def test_failed_job_is_exit_1_with_class_and_message(daemon, tmp_path):
    bad = LONG.replace("{name: adamw, lr: 0.001, weight_decay: 0.01}", "{name: sgd, lr: 1000000}")
    ran = daemon.ctl("submit", spec_file(tmp_path, bad), "--follow", check=JOB_FAILED)
    assert "FAILED" in ran.stdout and "numeric" in ran.stdout
    job = daemon.ctl("list", "-o", "name", check=OK).stdout.strip()
    assert daemon.ctl("wait", job, check=JOB_FAILED)
    assert "class numeric" in daemon.ctl("describe", job, check=OK).stdout
    assert daemon.ctl("list", "--state", "FAILED", "-o", "name", check=OK).stdout.strip() == job
    assert daemon.ctl("list", "--state", "QUEUED", "-o", "name", check=OK).stdout == ""
    assert daemon.ctl("list", "--state", "queued,Failed", "-o", "name", check=OK).stdout.strip() == job


def test_manual_pages_know_every_setting_verb_and_key(build, tmp_path):
    subprocess.run([sys.executable, ROOT / "docs/man.py", build, tmp_path], check=True)
    daemon, client, job = ((tmp_path / page).read_text().replace("\\-", "-")
                           for page in ("traind.8", "trainctl.1", "traind-job.5"))
    settings = subprocess.run([BIN / "traind", "--dump-config"], check=True, capture_output=True, text=True).stdout
    flags = re.findall(r"^([a-z][a-z_-]+)", settings, re.M)
    assert len(flags) > 10 and all(f"\\fB--{flag.replace('_', '-')}=" in daemon for flag in flags), flags
    verbs = re.findall(r"^  ([a-z]+(?: [a-z]+)*)", subprocess.run([BIN / "trainctl", "--help"], capture_output=True, text=True).stdout, re.M)
    assert len(verbs) > 12 and all(f".SS {verb}" in client for verb in verbs), verbs
    assert "--dry-run" in client and "7 conflict" in client
    keys = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/job-spec.md").read_text(), re.M)
    assert len(keys) > 80 and all(f".TP\n\\fB{key}\\fR\n" in job for key in keys)
    assert ".nf\nmodel:\n  name: convnet\n  layers:\n    - {name: conv," in job
    assert not re.search(r"`|\|---", job), "markdown is left in it"


def test_steering_verbs_and_their_conflicts(daemon, tmp_path):
    job = daemon.ctl("submit", spec_file(tmp_path, LONG), "-o", "name", check=OK).stdout.strip()
    daemon.wait_step(job, 5)
    assert daemon.ctl("pause", job, check=OK).stdout.split() in ([job, "PAUSING"], [job, "PAUSED"])
    daemon.wait_state(job, "PAUSED")
    daemon.ctl("resume", job, check=OK)
    refused = daemon.ctl("resume", job, check=CONFLICT).stderr
    assert "call id" in refused
    daemon.wait_step(job, daemon.job(job).global_step + 5)
    daemon.ctl("cancel", job, "--reason", "enough of it", check=OK)
    ended = daemon.wait_state(job, "CANCELLED")
    assert (ended.reason.code, ended.reason.text) == ("CANCELLED", "cancelled: enough of it")
    daemon.ctl("pause", job, check=CONFLICT)
    daemon.ctl("wait", job, check=JOB_FAILED)


@pytest.mark.parametrize("args, code, words", [
    (["describe", "j-000000000000"], NOT_FOUND, ["j-000000000000", "trainctl list"]),
    (["watch", "nobody"], NOT_FOUND, ["nobody"]),
    (["wait", "nobody"], NOT_FOUND, ["nobody"]),
    (["logs", "nobody"], NOT_FOUND, ["nobody"]),
    (["metrics", "nobody"], NOT_FOUND, ["nobody"]),
    (["checkpoint", "list", "nobody"], NOT_FOUND, ["nobody"]),
    (["checkpoint", "download", "nobody"], NOT_FOUND, ["nobody"]),
    (["cancel", "nobody"], NOT_FOUND, ["nobody"]),
    (["submti", "x"], USAGE, ["did you mean 'submit'"]),
    (["checkpoint"], USAGE, ["trainctl --help"]),
    ([], USAGE, ["usage"]),
    (["describe"], USAGE, ["JOB"]),
    (["describe", "a", "b"], USAGE, ["b"]),
    (["list", "-o", "xml"], USAGE, ["json"]),
    (["list", "--state", "BUSY"], USAGE, ["'BUSY'", "queued"]),
    (["list", "--state", "queued,,failed"], USAGE, ["--state '' is no"]),
    (["help", "submti"], USAGE, ["did you mean 'submit'"]),
    (["submit", "/nowhere.yaml"], USAGE, ["/nowhere.yaml", "No such file"]),
    (["submit", "/"], USAGE, ["not a file"]),
    (["submit", "-", "--set", "devices"], USAGE, ["KEY=VALUE"]),
    (["plan", ROOT / "examples/synthetic.yaml", "-O", "/nowhere/plan.json"], USAGE, ["/nowhere/plan.json", "-O"]),
    (["wait", "x", "--timeout", "-1"], USAGE, ["--timeout"]),
    (["logs", "x", "--offset", "5"], USAGE, ["--rank"]),
    (["logs", "x", "--rank", "one"], USAGE, ["--rank"]),
])
def test_errors_have_their_exit_code_and_say_what_to_do(daemon, args, code, words):
    said = daemon.ctl(*args, check=code, stdin="").stderr
    for word in words:
        assert word in said, said
    if code == NOT_FOUND:
        assert "call id" in said


def test_jobs_are_found_by_name_and_by_the_beginning_of_an_id(daemon, tmp_path):
    first, second = (daemon.ctl("submit", spec_file(tmp_path, LONG), "-o", "name", check=OK).stdout.strip() for _ in range(2))
    other = daemon.ctl("submit", spec_file(tmp_path, LONG.replace("name: long", "name: other")), "-o", "name", check=OK).stdout.strip()
    shown = daemon.ctl("describe", "long", "-o", "json", check=OK)
    assert json.loads(shown.stdout)["id"] == second and f"2 jobs are called 'long'; this is the newest, {second}" in shown.stderr
    assert json.loads(daemon.ctl("describe", "other", "-o", "json", check=OK).stdout)["id"] == other
    # j-0 ... j-f: as long as it has to be to mean one of them
    size = next(n for n in range(3, 15) if len({j[:n] for j in (first, second, other)}) == 3)
    assert json.loads(daemon.ctl("describe", first[:size], "-o", "json", check=OK).stdout)["id"] == first
    for refused in (daemon.ctl("pause", "long", check=USAGE), daemon.ctl("describe", "j-", check=USAGE)):
        assert first in refused.stderr and second in refused.stderr
    assert daemon.state(first) not in ("PAUSING", "PAUSED")
    refused = daemon.ctl("cancel", "long", check=USAGE).stderr
    assert "--all" in refused and len(re.findall(r"^  j-\S+  long  [A-Z]+  \d+[sm] old$", refused, re.M)) == 2, refused
    cancelled = daemon.ctl("cancel", "long", other, "--all", "-o", "jsonl", check=OK).stdout.splitlines()
    assert {json.loads(line)["id"] for line in cancelled} == {first, second, other}
    assert "jsonl" in daemon.ctl("wait", first, other, "-o", "json", check=USAGE).stderr
    daemon.ctl("wait", first, second, other, check=JOB_FAILED)
    gone = daemon.ctl("delete", first, "j-000000000000", second, check=NOT_FOUND)
    assert f"{first} deleted" in gone.stdout and f"{second} deleted" in gone.stdout and "j-000000000000" in gone.stderr


def test_spec_files_that_are_none_are_refused_before_they_travel(daemon, tmp_path):
    big, binary = tmp_path / "big.yaml", tmp_path / "binary.yaml"
    big.write_text(SPEC + "#" * (1 << 20))
    binary.write_bytes(b"\x7fELF\0\0\xff")
    assert "1 MiB" in daemon.ctl("submit", big, check=USAGE).stderr
    assert "not text" in daemon.ctl("submit", binary, check=USAGE).stderr
    assert "1 MiB" in daemon.ctl("submit", "-", stdin=big.read_text(), check=USAGE).stderr


def test_no_daemon_says_how_to_start_one(cluster, tmp_path):
    d = cluster.make()
    said = d.ctl("list", check=UNAVAILABLE).stderr
    assert "traind &" in said and str(d.state_dir) in said
    d.start()
    address = d.address
    d.kill()
    for verb in (["list"], ["wait", "j-000000000000"], ["logs", "j-000000000000"]):
        said = d.ctl(*verb, "--address", address, check=UNAVAILABLE).stderr
        assert address in said and "traind &" in said, (verb, said)


def test_daemon_that_is_silent_is_distinguished_from_one_that_is_not_there(daemon):
    daemon.ctl("list", check=OK)
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        said = daemon.ctl("list", "--timeout", "1", check=TIMEOUT).stderr
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    assert "has not answered within 1 s" in said and daemon.address in said and "log" in said, said


def test_wrong_token_is_exit_4(daemon, tmp_path):
    token = tmp_path / "token"
    token.write_text("trd_" + "0" * 64)
    assert "token" in daemon.ctl("list", "--token-file", token, check=DENIED).stderr
    assert daemon.ctl("list", env={"TRAIND_TOKEN_FILE": str(token)}, check=DENIED)
    daemon.ctl("list", "--token-file", tmp_path / "nowhere", check=DENIED)


# Each verb that asks a coordinator, with arguments that it takes.
ASKS = [["cancel", "J"], ["checkpoint", "create", "J"], ["checkpoint", "download", "J"], ["checkpoint", "list", "J"], ["clone", "J"],
        ["cluster", "info"], ["compare", "J", "K"], ["delete", "J"], ["describe", "J"], ["list"], ["logs", "J"], ["metrics", "J"],
        ["node", "label", "N", "a=b"], ["node", "list"], ["node", "revoke", "N"], ["node", "token", "--name", "n"], ["pause", "J"], ["plan", "SPEC"], ["plugins"],
        ["resume", "J"], ["retry", "J"], ["spec", "J"], ["submit", "SPEC"], ["token", "create", "--role", "viewer"],
        ["token", "list"], ["token", "revoke", "0123456789ab"], ["top", "--once"], ["wait", "J"], ["watch", "J"]]


def test_every_verb_without_a_token_is_exit_4_and_names_it(daemon, tmp_path):
    (tmp_path / "empty").touch()
    spec = str(spec_file(tmp_path))
    for token in ("nowhere", "empty", "."):  # no file, no text, a directory
        for verb in ASKS:
            ran = daemon.ctl(*[spec if a == "SPEC" else a for a in verb], "--token-file", tmp_path / token)
            assert ran.returncode == DENIED and "token" in ran.stderr, (verb, token, ran)


def test_address_and_token_come_from_flags_or_environment(daemon):
    token = str(daemon.state_dir / "token")
    daemon.ctl("list", "--address", daemon.address, "--token-file", token, check=OK, env={"TRAIND_STATE_DIR": "/nowhere"})
    daemon.ctl("list", check=OK, env={"TRAIND_STATE_DIR": "/nowhere", "TRAIND_ADDRESS": daemon.address, "TRAIND_TOKEN_FILE": token})
    daemon.ctl("list", "--state-dir", daemon.state_dir, check=OK, env={"TRAIND_STATE_DIR": "/nowhere"})


def test_loss_of_a_list_says_whether_it_is_of_an_epoch_or_of_a_step(daemon):
    loss = lambda job: next(line for line in daemon.ctl("list", check=OK).stdout.splitlines() if job in line)
    done, first_epoch = daemon.submit(SPEC), daemon.submit(LONG, "data.knobs.samples=65536", "data.batch_size=1")
    assert f" {daemon.finish(done).metrics['train_loss_epoch']:.4g} epoch " in loss(done)
    daemon.wait_step(first_epoch, 1)
    daemon.steer("Pause", first_epoch)
    assert f" {daemon.wait_state(first_epoch, 'PAUSED').metrics['train_loss_step']:.4g} step " in loss(first_epoch)


def test_wait_gives_up_after_its_timeout(daemon):
    job = daemon.submit(LONG)
    for verb in (["wait"], ["watch"], ["logs", "-f"]):
        assert "--timeout (0.3 s)" in daemon.ctl(*verb, job, "--timeout", "0.3", check=TIMEOUT).stderr
    daemon.wait_step(job, 1)


def test_metrics_by_name_and_steps(done):
    daemon, job = done
    rows = daemon.ctl("metrics", job, "train_loss_step", "--from", "10", "--to", "12", check=OK).stdout.splitlines()[1:]
    assert [row.split()[:2] for row in rows] == [["train_loss_step", str(s)] for s in (10, 11, 12)]
    assert all(row.split()[5] == "2" for row in rows)
    shown = daemon.ctl_json("metrics", job, "val_loss")
    assert [s["name"] for s in shown["series"]] == ["val_loss"]
    ran = daemon.ctl("metrics", job, "train_loss_step", "--from", "90000", check=OK)
    assert f"no points of 'train_loss_step' here; `trainctl metrics {job}`" in ran.stderr


@pytest.mark.parametrize("more", [[], ["--plot"], ["--follow"], ["-o", "csv"], ["--points", "5"]])
def test_name_that_no_metric_has_is_refused_with_those_that_there_are(done, more):
    daemon, job = done
    ran = daemon.ctl("metrics", job, "train_loss_step", "tain_loss", *more, check=NOT_FOUND)
    assert f"job {job} has no metric 'tain_loss'; it has " in ran.stderr
    names = daemon.ctl("metrics", job, "-o", "name", check=OK).stdout.split()
    assert ran.stderr.split("it has ")[1].splitlines()[0].split(", ") == names and "val_loss" in names
    assert "--follow" in more or not ran.stdout


def test_checkpoint_download_checks_digests_and_refuses_damage(done, tmp_path):
    daemon, job = done
    out = tmp_path / "copy"
    daemon.ctl("checkpoint", "download", job, "-O", out, check=OK)
    manifest = json.loads((out / "manifest.json").read_text())
    assert {f["name"] for f in manifest["files"]} < {p.name for p in out.iterdir()}
    listed = daemon.ctl_json("checkpoint", "list", job)["checkpoints"]
    older = listed[-1]["path"]
    daemon.ctl("checkpoint", "download", job, older, "-O", tmp_path / "older", check=OK)
    assert json.loads((tmp_path / "older/manifest.json").read_text())["step"] == int(older.split("-")[-1])
    # what is there and the same is kept; what is another's is not replaced unasked
    (out / "model.safetensors").write_bytes(b"mine")
    refused = daemon.ctl("checkpoint", "download", job, "-O", out, check=CONFLICT).stderr
    assert f"'{out}' has another model.safetensors, and nothing was written; --force replaces" in refused
    assert (out / "model.safetensors").read_bytes() == b"mine"
    kept = (out / "manifest.json").stat().st_ino
    daemon.ctl("checkpoint", "download", job, "-O", out, "--force", check=OK)
    assert (out / "model.safetensors").read_bytes() != b"mine" and (out / "manifest.json").stat().st_ino == kept
    daemon.ctl("checkpoint", "download", job, "-O", out, check=OK)
    deep = tmp_path / "/".join([200 * "d"] * 4)
    daemon.ctl("checkpoint", "download", job, "-O", deep, check=OK)
    assert sorted(p.name for p in deep.iterdir()) == sorted(p.name for p in out.iterdir())
    victim = next(p for p in daemon.state_dir.rglob("model.safetensors") if f"{job}/{listed[0]['path']}" in str(p))
    data = bytearray(victim.read_bytes())
    data[-1] ^= 1
    victim.write_bytes(data)
    said = daemon.ctl("checkpoint", "download", job, "-O", tmp_path / "bad", check=JOB_FAILED).stderr
    assert "digest" in said and "model.safetensors" in said
    assert not list((tmp_path / "bad").glob("model*"))


def test_logs_follow_until_the_job_has_ended(daemon):
    job = daemon.submit(LONG, "trainer.max_steps=100")
    followed = daemon.ctl("logs", job, "-f", check=OK).stdout
    assert daemon.state(job) == "SUCCEEDED"
    assert daemon.ctl("logs", job, check=OK).stdout == followed
    daemon.ctl("logs", job, "--rank", "0", "--err-only", check=OK)
    daemon.ctl("logs", job, "--attempt", "7", check=NOT_FOUND)


def start_follow(daemon, job, **more):
    env = dict(daemon.env, TRAIND_STATE_DIR=str(daemon.state_dir), **more.pop("env", {}))
    return subprocess.Popen([BIN / "trainctl", "wait", job, "--follow"], env=env, **more)


def test_logs_of_ranks_that_printed_nothing_say_so(daemon):
    blocker, job = daemon.submit(LONG, "trainer.devices=2"), daemon.submit(LONG, "trainer.devices=2")
    ran = daemon.ctl("logs", job, check=OK)  # it waits: no rank of it has begun
    assert ran.stdout == "" and "have printed nothing in the newest attempt" in ran.stderr
    for each in (job, blocker):
        daemon.steer("Cancel", each)
        daemon.wait_state(each, "CANCELLED")


def test_ctrl_c_leaves_the_job_running(daemon):
    job = daemon.submit(LONG)
    follower = start_follow(daemon, job, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert follower.stderr.readline(), "it follows"
    follower.send_signal(signal.SIGINT)
    said = follower.communicate(timeout=10)[1].decode()
    assert follower.returncode in (-signal.SIGINT, 130)
    assert f"{job} goes on" in said and f"trainctl cancel {job}" in said, said
    at = daemon.wait_step(job, 1).global_step
    daemon.wait_step(job, at + 5)


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM])
def test_follow_survives_a_restart_of_the_daemon(daemon, sig):
    job = daemon.submit(LONG, "trainer.max_steps=500")
    follower = start_follow(daemon, job, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    daemon.wait_step(job, 10)
    daemon.restart(sig)
    out, err = follower.communicate(timeout=60)
    assert follower.returncode == 0, err
    assert "SUCCEEDED: step 500" in out


def followed(daemon, job, columns=160, **env):
    env = {"TERM": "xterm", "NO_COLOR": "", **env}
    return on_terminal(daemon, "wait", job, "--follow", columns=columns, raw=False, **env).decode()


def test_terminal_shows_a_bar_and_colors_unless_asked_not_to(daemon):
    seen = followed(daemon, daemon.submit(LONG, "trainer.max_steps=400"))
    bars = re.findall(r"epoch (\d+) \[(=*>? *)\] step (\d+)/400 loss ([\d.]+) \S+ samples/s ETA \S+", seen)
    assert bars, seen
    steps = [int(b[2]) for b in bars]
    assert steps == sorted(steps) and all(len(b[1]) == 24 for b in bars)
    assert "\x1b[32mSUCCEEDED" in seen
    plain = followed(daemon, daemon.submit(LONG, "trainer.max_steps=200"), 60, NO_COLOR="1")
    bars = [line for line in plain.replace("\x1b[K", "").split("\r") if not re.match(r"\s*epoch \d+:", line)]
    assert max(len(line) for line in bars) < 60 + len("\n")
    assert "\x1b[3" not in plain and "\x1b[1m" not in plain and "SUCCEEDED" in plain


def test_help_lists_every_verb_and_each_verb_its_flags(daemon):
    usage = daemon.ctl("--help", check=OK).stdout
    verbs = set(re.findall(r"^  ([a-z]+(?: [a-z]+)*)", usage, re.M))
    assert verbs == {*READS, *WRITES}, "a verb that only reads has a row of READS, any other is one of WRITES"
    for verb in verbs:
        shown = daemon.ctl(*verb.split(), "--help", check=OK).stdout
        assert daemon.ctl("help", *verb.split(), check=OK).stdout == daemon.ctl(*verb.split(), "-h", check=OK).stdout == shown
        assert "--output" in shown, verb
    assert "Exit codes" in usage


@pytest.mark.parametrize("args, words", [
    (["sumbit", "x"], "there is no verb 'sumbit', did you mean 'submit'? `trainctl --help`"),
    (["xyzzy"], "there is no verb 'xyzzy'; `trainctl --help`"),
    (["-o", "json", "list"], "the verb comes first, then flags such as '-o'"),
    (["checkpoint"], "the verb 'checkpoint' has a second word: 'checkpoint create', 'checkpoint download', 'checkpoint list'"),
    (["node", "lsit"], "there is no verb 'node lsit', but 'node cordon', 'node device disable', 'node device enable', 'node drain'"),
    (["node", "device"], "the verb 'node device' has a third word: 'node device disable', 'node device enable'; `trainctl --help`"),
    (["node", "device", "x"], "there is no verb 'node device x', but 'node device disable', 'node device enable'; `trainctl")])
def test_what_is_no_verb_is_distinguished(args, words):
    ran = subprocess.run([BIN / "trainctl", *args], capture_output=True, text=True, timeout=30)
    assert ran.returncode == USAGE and words in ran.stderr, ran.stderr


def test_version_is_a_verb_and_a_flag():
    verb, flag, short = (subprocess.check_output([BIN / "trainctl", word], text=True) for word in ("version", "--version", "-V"))
    assert verb == flag == short and verb.startswith("trainctl 0.")
    daemon = [subprocess.check_output([BIN / "traind", word], text=True) for word in ("--version", "-V")]
    assert daemon[0] == daemon[1] and daemon[0].startswith("traind 0.")


def test_metrics_of_a_long_job_are_all_shown(daemon):
    """A series of 6,000 steps once began at 2,001, and some others had no points at all."""
    steps = 6000
    job = daemon.submit(LONG.replace("[128, 512, 512, 8]", "[128, 32, 8]"), f"trainer.max_steps={steps}")
    daemon.finish(job)
    shown = daemon.ctl_json("metrics", job)
    assert shown["next_page_token"] == "" and shown["more_names"] == []
    whole = [s["name"] for s in shown["series"] if [p["step"] for p in s["points"]] == list(range(1, steps + 1))]
    assert "train_loss_step" in whole and len(whole) * steps > 24000, "more than one answer holds"
    rows = daemon.ctl("metrics", job, "train_loss_step", check=OK).stdout.splitlines()[1:]
    assert [int(row.split()[1]) for row in rows] == list(range(1, steps + 1))
    last = [row.split()[:2] for row in daemon.ctl("metrics", job, check=OK).stdout.splitlines()[1:]]
    assert ["train_loss_step", str(steps)] in last and len(last) == len(shown["series"])

    losses = {p["step"]: p["value"] for s in shown["series"] if s["name"] == "train_loss_step" for p in s["points"]}
    rows = [row.split() for row in daemon.ctl("metrics", job, "train_loss_step", "--points", "6", check=OK).stdout.splitlines()[1:]]
    assert [int(row[1]) for row in rows] == [1000 * i for i in range(1, 7)] and {row[7] for row in rows} == {"1000"}
    mean, least, largest = map(float, rows[3][4:7])
    part = [losses[step] for step in range(3001, 4001)]
    expected = min(part), max(part), sum(part) / 1000
    assert (least, largest, mean) == pytest.approx(expected, rel=1e-3), "four digits of each"


@pytest.mark.parametrize("more, text", [
    ({"page_token": "j12"}, "page_token"), ({"page_token": "m1x"}, "page_token"),
    ({"page_token": "m7", "picture_points": 3}, "a picture has no pages"),
    ({"picture_points": 24001}, "at most 24000"), ({"from_step": 9, "to_step": 3}, "from_step"),
    ({"names": ["x" * 64]}, "longer than a metric's name")])
def test_metrics_question_that_makes_no_sense_is_refused(done, more, text):
    daemon, job = done
    with pytest.raises(grpc.RpcError) as failed:
        daemon.stub("Metric").QueryMetrics(daemon.cluster.stubs.metric.QueryMetricsRequest(job=job, **more), timeout=20)
    assert failed.value.code() == grpc.StatusCode.INVALID_ARGUMENT and text in failed.value.details()


def test_list_of_many_pages_is_one_value(cluster):
    daemon = cluster.start("--role", "coordinator")
    stubs, service = cluster.stubs.job, daemon.stub("Job")
    made = [service.CreateJob(stubs.CreateJobRequest(spec=SPEC)).id for _ in range(1002)]
    listed = daemon.ctl_json("list")
    assert [job["id"] for job in listed["jobs"]] == made[::-1] and listed["next_page_token"] == ""
    assert daemon.ctl("list", "-o", "name", check=OK).stdout.split() == made[::-1]
    assert len(daemon.ctl("list", check=OK).stdout.splitlines()) == 1 + len(made)


def test_example_specs_are_valid(daemon):
    for example in (pathlib.Path(__file__).resolve().parents[3] / "examples").glob("*.yaml"):
        assert "\nrestart:\n  max: " in daemon.ctl("submit", example, "--dry-run", check=OK).stdout


HOSTILE = "\x1b]0;owned\x07 \x9b31m"  # a title of the window; CSI as U+009B, and below as a raw byte
CONTROL = rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]"


def bytes_on_terminal(daemon, *args):
    return on_terminal(daemon, *args, exits=(0, 1), NO_COLOR="1")


def test_half_a_character_of_one_rank_was_shown_in_the_line_of_another(cluster, tmp_path):
    daemon = cluster.make("--slots", "2")
    printed = f"{tmp_path}/printed-"  # the first that ends takes the other along
    both = f": > {printed}$$; until [ $(ls {printed}* | wc -l) = 2 ] || [ $SECONDS -gt 20 ]; do :; done"
    daemon.bin = with_worker(tmp_path / "bin", f"printf 'half \\303'; {both}; exit 3")
    daemon.start()
    job = daemon.submit(SPEC, "trainer.devices=2", "restart.max=0")
    daemon.wait_state(job, "FAILED")
    shown = bytes_on_terminal(daemon, "logs", job, "--out-only")
    assert sorted(shown.splitlines()) == [b"[rank 0] half \\xc3", b"[rank 1] half \\xc3"], shown


def test_control_characters_do_not_reach_the_terminal(cluster, tmp_path):
    daemon = cluster.make("--slots", "2")
    said = "Größe\t" + HOSTILE + "\n"
    raw = said.encode() + b"\x9b raw\n"
    (tmp_path / "said").write_bytes(raw)
    daemon.bin = with_worker(tmp_path / "bin", f"cat {tmp_path}/said {tmp_path}/said >&2; cat {tmp_path}/said; exit 3")
    daemon.start()
    job = daemon.submit(SPEC, "restart.max=0")
    daemon.wait_state(job, "FAILED")
    out = ("--rank", "0", "--out-only")
    shown = bytes_on_terminal(daemon, "logs", job, *out)
    assert shown == "Größe\t\\x1b]0;owned\\x07 \\xc2\\x9b31m\n\\x9b raw\n".encode()
    piped = subprocess.run([BIN / "trainctl", "logs", job, *out], capture_output=True, check=True,
                           env={**daemon.env, "TRAIND_STATE_DIR": str(daemon.state_dir)}).stdout
    assert piped == raw  # a pipe or a file gets the bytes
    cancelled = daemon.submit(SPEC, "trainer.devices=2", "restart.max=0")
    daemon.stub("Job").CancelJob(daemon.cluster.stubs.job.CancelJobRequest(id=cancelled, reason=HOSTILE), timeout=10)
    daemon.wait_state(cancelled, "CANCELLED", "FAILED")
    for args in (["describe", cancelled], ["describe", job], ["list"], ["wait", cancelled], ["wait", cancelled, "--follow"], ["watch", cancelled], ["logs", job], ["describe", "\x1b[31m"]):
        seen = bytes_on_terminal(daemon, *args) if args[-1] != "\x1b[31m" else daemon.ctl(*args).stderr.encode()
        assert not re.search(CONTROL, seen), (args, seen)
        seen.decode()
    assert b"\\x1b]0;owned" in bytes_on_terminal(daemon, "list", "-o", "wide")  # which cuts no reason


def test_control_characters_of_a_node_name_do_not_reach_the_terminal(cluster):
    daemon = cluster.start("--role", "coordinator")
    cluster.make("--role", "node", "--coordinator", daemon.address, "--slots", "1", "--name", HOSTILE, "--token-file",
                 daemon.state_dir / "token", name="hostile").start()
    until("it is ready", lambda: [n.name for n in daemon.nodes("READY")] == [HOSTILE])
    for args in (["node", "list"], ["cluster", "info"]):
        seen = bytes_on_terminal(daemon, *args)
        assert not re.search(CONTROL, seen), (args, seen)
        seen = bytes_on_terminal(daemon, *args, "-o", "json")
        assert not re.search(CONTROL, seen), (args, seen)
        json.loads(seen)
    assert b"\\x1b]0;owned\\x07 \\xc2\\x9b31m" in bytes_on_terminal(daemon, "node", "list", "-o", "wide")
    seen = bytes_on_terminal(daemon, "node", "list", "-o", "json")
    assert b"\\u001b]0;owned\\u0007 \\u009b31m" in seen and json.loads(seen)["nodes"][0]["name"] == HOSTILE, seen
