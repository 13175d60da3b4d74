"""Help that fits a terminal and has examples, and words that shells complete: in the shells themselves."""
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import time

import pytest

from support import BIN, SPEC

ROOT = pathlib.Path(__file__).resolve().parents[3]
MAIN = subprocess.run([BIN / "trainctl", "--help"], capture_output=True, text=True).stdout
VERBS = re.findall(r"^  ([a-z]+(?: [a-z]+)*)  +\S", MAIN[:MAIN.index("\nENVIRONMENT")], re.M)


def said(*words):
    return subprocess.run([BIN / "trainctl", *words], check=True, capture_output=True, text=True).stdout


def test_the_list_of_verbs_is_80_columns_wide_and_names_the_environment():
    assert len(VERBS) > 25 and "completion" in VERBS
    assert max(map(len, MAIN.splitlines())) <= 80
    read = set(re.findall(r'getenv\("(TRAIND_\w+)"\)', "".join(p.read_text() for p in (ROOT / "client").rglob("*.c"))))
    read |= set(re.findall(r'is_set\([^,]*, "(TRAIND_\w+)"\)', (ROOT / "client/session/config.c").read_text()))
    assert len(read) >= 6 and all(f"  {name} " in MAIN for name in read), read


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_fits_a_terminal_and_has_examples(verb):
    text = said(*verb.split(), "--help")
    lines = text.splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 80, (len(lines), max(lines, key=len))
    examples = text.partition("\nEXAMPLES\n")[2].splitlines()
    assert examples and any(line.startswith("  ") and f"trainctl {verb}" in line for line in examples), text


def test_flags_of_the_examples_are_flags_of_their_verbs():
    for verb in VERBS:
        text = said(*verb.split(), "--help")
        flags, _, examples = text.partition("\nEXAMPLES\n")
        used = re.findall(r"(?<!\S)(--?[a-zA-Z][a-z-]*)", re.sub(r"\|.*|'[^']*'", "", examples))
        assert all(re.search(rf"(?<!\S){flag}(?=[ ,=\n])", flags) for flag in used), (verb, used)


def test_manual_pages_have_the_examples_and_the_environment(build, tmp_path):
    subprocess.run([sys.executable, ROOT / "docs/man.py", build, tmp_path], check=True)
    client, daemon = ((tmp_path / page).read_text().replace("\\-", "-") for page in ("trainctl.1", "traind.8"))
    assert client.count("\nExamples:\n") == len(VERBS) and "TRAIND_TOKEN_FILE" in client and "traind --role node" in daemon
    assert "SS checkpoint download JOB [CHECKPOINT]" in client


CONNECTION = ["--address", "--token-file", "--ca", "--cert", "--key", "--state-dir", "--timeout"]


def test_flags_of_every_verb_are_shown_once(build, tmp_path):
    assert all(len(re.findall(rf"^  {flag}=", MAIN, re.M)) == 1 for flag in CONNECTION)
    shown = {verb: {flag for flag in CONNECTION if re.search(rf"^ +{flag}=", said(*verb.split(), "--help"), re.M)} for verb in VERBS}
    assert {v: flags for v, flags in shown.items() if flags} == {
        "context add": {"--address", "--token-file", "--ca", "--cert", "--key"}, "token request": {"--key"},
        "node drain": {"--timeout"}}
    assert "in `trainctl --help`" in said("list", "--help") and "--output=FORMAT" in said("list", "--help")
    subprocess.run([sys.executable, ROOT / "docs/man.py", build, tmp_path], check=True)
    page = (tmp_path / "trainctl.1").read_text().replace("\\-", "-")
    assert page.count("--token-file=FILE") == 2 and page.index(".SH OPTIONS") > page.index("SS watch JOB")
    ran = subprocess.run([BIN / "trainctl", "list", "--state-dir", tmp_path / "none"], capture_output=True, text=True)
    assert str(tmp_path / "none") in ran.stderr, "it is still taken"


# ---- completion -----------------------------------------------------------------------------------
def words(daemon, *line):
    out = daemon.ctl("completion", "words", "--", *line, check=0)
    assert not out.stderr
    return [row.split("\t")[0] for row in out.stdout.splitlines()]


@pytest.fixture
def jobs(coordinator):
    """Jobs that wait for a node."""
    found = [coordinator.submit(SPEC.replace("small", name)) for name in ("mnist-a", "mnist-b", "mnist-b", "other")]
    return coordinator, found


@pytest.mark.parametrize("line, wanted", [
    ([""], {"cancel", "checkpoint", "submit", "node"}), (["su"], {"submit"}), (["cancel"], {"cancel"}),
    (["node", "d"], {"device", "drain"}), (["node", "device", ""], {"disable", "enable"}), (["node", "device", "e"], {"enable"}),
    (["checkpoint", ""], {"list", "download", "create"}), (["checkpoint", "d"], {"download"}), (["submit", "--dr"], {"--dry-run"}), (["submit", "--dry"], {"--dry-run"}),
    (["list", "-o", "js"], {"json", "jsonl"}), (["list", "--output", "=", "n"], {"name"}),
    (["list", "--output=ta"], {"--output=table"}), (["list", "--state", "queued,pau"], {"queued,paused", "queued,pausing"}),
    (["token", "create", "--role", "v"], {"viewer"}), (["completion", ""], {"bash", "zsh", "fish"}),
    (["list", "--state=pau"], {"--state=paused", "--state=pausing"}), (["wait", "j", "--for", "runn"], {"running"}),
    (["wait", "j", "--for=queued,fa"], {"--for=queued,failed"}), (["list", "--state", "=", "queu"], {"queued"}),
    (["submit", "f", "--set", "trainer.accumulate_g"], {"trainer.accumulate_grad_batches="}),
    (["submit", "f", "--set=trainer.accumulate_g"], {"--set=trainer.accumulate_grad_batches="}),
    (["submit", "f", "--set", "=", "trainer.accumulate_g"], {"trainer.accumulate_grad_batches="}),
    (["submit", "f", "--set", "optimizer.weight"], {"optimizer.weight_decay="}),
    (["submit", "f", "--set", "loggers"], {"loggers=", "loggers_in.tensorboard="}), (["submit", "f", "--set", "run."], set()),
    (["submit", "f", "--set", "trainer.precision=bf"], {"trainer.precision=bf16-mixed", "trainer.precision=bf16-true"}),
    (["submit", "f", "--set=trainer.precision=bf16-m"], {"--set=trainer.precision=bf16-mixed"}),
    (["submit", "f", "--set", "trainer.precision", "=", "bf16-m"], {"bf16-mixed"}),
    (["submit", "f", "--set", "trainer.deterministic", "="], {"true", "false"}),
    (["submit", "f", "--set", "a", "=", "1", "--set", "trainer.recompute", "=", "se"], {"selective"}),
    (["submit", "f", "--set", "a=1", "--set", "optimizer=adam"], {"optimizer=adam", "optimizer=adamw"}),
    (["clone", "j", "--set", "optimizer.name=li"], {"optimizer.name=lion"}), (["submit", "--set", "x=", "--dry"], {"--dry-run"}),
    (["nonsense", "x"], set()), (["submit", ""], set()), (["cancel", "--reason", ""], set()),
    (["list", "--resume"], set())])
def test_words_of_the_tables(daemon, line, wanted):
    found = words(daemon, *line)
    assert set(found) == wanted if line != [""] else wanted <= set(found), found
    assert len(found) == len(set(found))


def test_jobs_come_from_the_server_that_the_line_names(jobs, tmp_path):
    coordinator, ids = jobs
    assert set(words(coordinator, "cancel", "")) == {"mnist-a", "mnist-b", "other"}
    assert words(coordinator, "describe", "o") == ["other"]
    assert set(words(coordinator, "wait", "other", "j-")) == set(ids)
    assert words(coordinator, "describe", "other", "") == []
    elsewhere = {"TRAIND_STATE_DIR": str(tmp_path / "none")}
    ask = lambda *flags: coordinator.ctl("completion", "words", "--", "cancel", *flags, "oth", env=elsewhere, check=0)
    assert ask().stdout == ask().stderr == "" and "other" in ask("--state-dir", coordinator.state_dir).stdout


def test_checkpoints_are_words_of_a_download(daemon):
    job = daemon.submit()
    daemon.finish(job)
    assert words(daemon, "checkpoint", "download", job, "") == [c.path for c in daemon.checkpoints(job)]


def type_tab(daemon, shell, typed, wanted, tmp_path):
    """What a shell on a terminal shows after a tab, until all that is wanted is there."""
    env = {**daemon.env, "TRAIND_STATE_DIR": str(daemon.state_dir), "PATH": f"{BIN}:{os.environ['PATH']}", "TERM": "xterm",
           "HOME": str(tmp_path), "PS1": "$ ", "COLUMNS": "80", "LC_ALL": "C.UTF-8", "XDG_CONFIG_HOME": str(tmp_path / "config")}
    commands = {"bash": [shell, "--norc", "-i"], "zsh": [shell, "-f", "-i"], "fish": [shell, "--no-config", "-i"]}
    ready = {"bash": "source <(trainctl completion bash); bind 'set show-all-if-ambiguous on'; bind 'set enable-bracketed-paste off'",
             "zsh": "autoload -U compinit; compinit -u -D; source <(trainctl completion zsh)",
             "fish": "trainctl completion fish | source"}
    pid, fd = pty.fork()
    if pid == 0:
        os.execvpe(commands[shell][0], commands[shell], env)
    seen, asked, deadline = "", 0, time.monotonic() + 40
    try:
        os.write(fd, f"{ready[shell]}; echo RE''ADY\r".encode())
        while not all(word in seen.partition("READY")[2] for word in wanted):
            assert time.monotonic() < deadline, seen
            if select.select([fd], [], [], 0.2)[0]:
                seen += os.read(fd, 65536).decode(errors="replace")
                if "\x1b[c" in seen or "\x1b[0c" in seen:  # fish asks what terminal it is
                    os.write(fd, b"\x1b[?62;c")
                    seen = seen.replace("\x1b[c", "").replace("\x1b[0c", "")
            elif asked == 0 and "READY" in seen:
                asked = 1
                os.write(fd, typed.encode())
            elif asked == 1:
                asked = 2
                os.write(fd, b"\t")
    finally:
        os.kill(pid, 9)
        os.close(fd)
        os.waitpid(pid, 0)
    return seen


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("typed, wanted", [
    ("trainctl cancel mnist\t", ["mnist-a", "mnist-b"]), ("trainctl describe oth\t", ["describe other"]),
    ("trainctl checkpoint \t", ["create", "download", "list"]), ("trainctl submit --dry\t", ["--dry-run"]),
    ("trainctl submit spec-of\t", ["spec-of-mine.yaml"]), ("trainctl submit a --set trainer.accumulate_g\t", ["rad_batches="]),
    ("trainctl submit a --set trainer.precision=bf16-m\t", ["bf16-mixed"]), ("trainctl wait a --for runn\t", ["running"])])
def test_shells_complete(jobs, shell, typed, wanted, tmp_path, monkeypatch):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "spec-of-mine.yaml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    type_tab(jobs[0], shell, typed, wanted, tmp_path)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_taken_by_their_shells(shell, tmp_path):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(said("completion", shell))
    subprocess.run([shell, "-n", tmp_path / "script"], check=True)


def test_completion_of_an_unknown_shell_is_refused():
    ran = subprocess.run([BIN / "trainctl", "completion", "tcsh"], capture_output=True, text=True)
    assert ran.returncode == 2 and "bash, zsh or fish, not 'tcsh'" in ran.stderr
