"""Jobs in lists and while they are waited for: whose they are, what they wait behind, states to wait for, numbers."""
import re

from fake_node import refused
from support import LONG, SPEC, until

OK, FAILED, USAGE, NOT_FOUND, TIMEOUT, CONFLICT = 0, 1, 2, 3, 6, 7


# ---- list ----------------------------------------------------------------------------------------
def listed(daemon, *flags):
    return daemon.ctl("list", "-o", "name", *flags, check=OK).stdout.split()


def test_list_shows_and_chooses_owner_and_name(daemon, tmp_path):
    token = tmp_path / "alice"
    text = daemon.ctl("token", "create", "--role", "submitter", "--name", "alice", check=OK).stdout.split()[-1]
    token.write_text(text)
    spec = tmp_path / "spec.yaml"
    spec.write_text(LONG)
    hers = daemon.ctl("submit", spec, "--token-file", token, "-o", "name", check=OK).stdout.strip()
    ours = [daemon.submit(LONG), daemon.submit(LONG, "name=other")]
    assert listed(daemon, "--owner", "alice") == [hers]
    assert listed(daemon, "--name", "long") == [ours[0], hers] and listed(daemon, "--name", "lon") == []
    assert listed(daemon, "--owner", "alice", "--name", "other") == []
    head, *rows = daemon.ctl("list", check=OK).stdout.splitlines()
    assert head.split()[:4] == ["ID", "NAME", "OWNER", "STATE"]
    owner = {row.split()[0]: row.split()[2] for row in rows}
    assert owner[hers] == "alice" and owner[ours[0]] == daemon.job(ours[0]).owner


def test_labels_are_shown_chosen_by_and_kept_over_a_restart(daemon, tmp_path):
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC + "labels: {team: vision, run: a7}\n")
    both = daemon.ctl("submit", spec, "-o", "name", check=OK).stdout.strip()
    other = daemon.ctl("submit", spec, "--set", "labels.run=a8", "--set", 'labels.note=""', "-o", "name", check=OK).stdout.strip()
    none = daemon.submit(SPEC)
    text = daemon.submit(SPEC, "labels={team: text}")
    m = daemon.cluster.stubs.job
    for _ in ("before", "after a restart"):
        assert listed(daemon, "--label", "team=vision") == [other, both]
        assert listed(daemon, "--label", "team") == [text, other, both]
        assert listed(daemon, "--label", "team=vision", "--label", "run=a7") == [both]
        assert listed(daemon, "--label", "note=") == [other] and listed(daemon, "--label", "note=x") == []
        assert listed(daemon, "--label", "team=vision", "--name", "nobody") == []
        pages, token = [], ""
        while token is not None:
            page = daemon.stub("Job").ListJobs(m.ListJobsRequest(page_size=1, page_token=token, labels=["team"]), timeout=20)
            pages += [list(j.id for j in page.jobs)]
            token = page.next_page_token or None
        assert [j for page in pages for j in page] == [text, other, both] and max(map(len, pages)) == 1
        assert dict(daemon.job(both).labels) == {"run": "a7", "team": "vision"} and not daemon.job(none).labels
        assert daemon.ctl_json("list", "--label", "run=a8")["jobs"][0]["labels"] == {"note": "", "run": "a8", "team": "vision"}
        daemon.finish(both)
        daemon.finish(other)
        daemon.restart()
    head, *rows = daemon.ctl("list", "-o", "wide", check=OK).stdout.splitlines()
    assert head.split()[-1] == "LABELS" and [row.split()[-1] for row in rows if row.startswith(both)] == ["run=a7,team=vision"]
    assert "LABELS" not in daemon.ctl("list", check=OK).stdout
    assert re.search(r"^labels +run=a7,team=vision$", daemon.ctl("describe", both, check=OK).stdout, re.M)
    assert "team: vision" in daemon.ctl("spec", both, check=OK).stdout
    again = daemon.ctl("retry", both, "-o", "name", check=OK).stdout.strip()
    assert dict(daemon.job(again).labels) == {"run": "a7", "team": "vision"}
    assert re.search(r"labels.run +a7 +a8", daemon.ctl("compare", both, other, check=OK).stdout)


def test_what_is_no_label_is_refused_with_the_rule(daemon):
    m = daemon.cluster.stubs.job
    said = daemon.ctl("list", "--label", "team=a b", check=USAGE).stderr
    assert "begin and end with a letter or digit" in said, said
    for labels in (["team=a b"], ["/x"], ["k"] * 33):
        refused("INVALID_ARGUMENT", lambda: daemon.stub("Job").ListJobs(m.ListJobsRequest(labels=labels), timeout=20),
                "LABEL_INVALID")
    said = daemon.ctl("submit", "-", "--set", "labels.team=a/b", stdin=SPEC, check=USAGE).stderr
    assert "labels.team" in said and "begin and end with a letter or digit" in said, said


def test_verbs_for_all_take_labels_in_place_of_names(daemon):
    sweep = [daemon.submit(LONG, "labels={sweep: a}", f"name=n{i % 2}") for i in range(3)]
    other = daemon.submit(LONG, "labels={sweep: b}", "name=n0")
    assert "--label needs --all" in daemon.ctl("cancel", "n0", "--label", "sweep=a", check=USAGE).stderr
    assert "JOB... is missing" in daemon.ctl("cancel", "--all", check=USAGE).stderr
    daemon.ctl("cancel", "--all", "--label", "sweep=c", check=NOT_FOUND)
    daemon.ctl("cancel", other, "--all", "--label", "sweep=a", check=NOT_FOUND)
    assert set(daemon.ctl("pause", "n0", "--all", "--label", "sweep=a", "-o", "name", check=OK).stdout.split()) == {sweep[0], sweep[2]}
    assert set(daemon.ctl("cancel", "--all", "--label", "sweep=a", "-o", "name", check=OK).stdout.split()) == set(sweep)
    for job in sweep:
        daemon.wait_state(job, "CANCELLED")
    assert daemon.state(other) != "CANCELLED"


def test_waiting_job_names_the_one_that_it_waits_behind(daemon):
    first = daemon.submit(LONG, "trainer.devices=2", "name=first")
    daemon.wait_step(first, 1)
    second = daemon.submit(LONG, "name=second")
    until("it says so", lambda: f"job {first} (first) runs there" in daemon.job(second).reason.text)
    assert list(daemon.job(second).reason.blockers) == [first]
    assert f"job {first} (first) runs there" in daemon.ctl("list", check=OK).stdout


# ---- waiting -------------------------------------------------------------------------------------
def test_wait_for_a_state_ends_there_and_fails_where_the_job_ends_elsewhere(daemon):
    job = daemon.submit(LONG)
    assert f"{job} RUNNING" in daemon.ctl("wait", job, "--for", "running", check=OK).stdout
    assert f"{job} PAUSED" in daemon.ctl("pause", job, "--wait", check=OK).stdout
    assert daemon.state(job) == "PAUSED"
    daemon.ctl("wait", job, "--for", "paused,running", "-o", "name", check=OK)
    said = daemon.ctl("wait", job, "--timeout", "1", check=TIMEOUT).stderr
    assert f"{job} is paused" in said and f"trainctl resume {job}" in said
    daemon.ctl("cancel", job, check=OK)
    daemon.ctl("wait", job, "--for", "cancelled", check=OK)
    daemon.ctl("wait", job, "--for", "paused", check=FAILED)
    assert "'busy' is no job state" in daemon.ctl("wait", job, "--for", "busy", check=USAGE).stderr


def test_pause_that_waits_fails_where_the_job_has_ended_meanwhile(daemon):
    job = daemon.submit(SPEC)
    daemon.finish(job)
    daemon.ctl("pause", job, "--wait", check=CONFLICT)


def test_cancel_all_is_no_failure_where_nothing_is_left(daemon):
    jobs = [daemon.submit(LONG) for _ in range(2)]
    assert set(daemon.ctl("cancel", "long", "--all", "-o", "name", check=OK).stdout.split()) == set(jobs)
    for job in jobs:
        daemon.wait_state(job, "CANCELLED")
    done = daemon.submit(SPEC, "name=long")
    daemon.finish(done)
    for verb in ("cancel", "pause", "resume"):
        ran = daemon.ctl(verb, "long", "--all", check=OK)
        assert f"job {done} is SUCCEEDED" in ran.stderr, verb
    daemon.ctl("cancel", done, check=CONFLICT)
    daemon.ctl("cancel", "nobody", "--all", check=NOT_FOUND)


# ---- checkpoints ---------------------------------------------------------------------------------
def test_download_takes_last_and_best(daemon, tmp_path):
    job = daemon.submit(SPEC, "checkpoint={every_n_epochs: 1, save_top_k: -1, monitor: val_loss, mode: max}", "stages=[fit]")
    last = daemon.finish(job).checkpoint
    best = max(daemon.checkpoints(job), key=lambda c: c.metrics["val_loss"]).path
    assert best != last, "else this says nothing"
    for word, path in (("last", last), ("best", best)):
        said = daemon.ctl("checkpoint", "download", job, word, "-O", tmp_path / word, check=OK).stdout
        assert said.startswith(f"{path} of {job}"), word
    assert "last, best, or one like" in daemon.ctl("checkpoint", "download", job, "newest", check=USAGE).stderr


# ---- numbers -------------------------------------------------------------------------------------
def test_numbers_of_lines_have_four_digits(daemon):
    job = daemon.submit(SPEC, "optimizer.lr=0.001", "trainer.max_steps=40")
    daemon.finish(job)
    texts = [daemon.ctl(*args, check=OK).stdout for args in
             (["describe", job], ["metrics", job], ["metrics", job, "train_loss_step"], ["list"], ["wait", job],
              ["compare", job, job], ["checkpoint", "list", job])]
    for text in texts:
        assert not re.search(r"\d\.\d{7,}(?!\S*Z)", text), text
    assert re.search(r"^lr\S* .* 0\.001 ", texts[1], re.M), texts[1]
