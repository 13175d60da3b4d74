"""What is printed where nobody can read it: closed pipes, full disks, closed descriptors."""
import pathlib
import re
import subprocess

import pytest

from support import BIN, SPEC, spec_file, until

OK, USAGE, NOT_FOUND, NOT_PRINTED = 0, 2, 3, 8


def test_output_into_a_closed_pipe_ends_quietly(daemon):
    job = daemon.submit(SPEC)
    daemon.finish(job)
    env = dict(daemon.env, TRAIND_STATE_DIR=str(daemon.state_dir))
    ran = subprocess.run(f"{BIN}/trainctl metrics {job} train_loss_step | head -1", shell=True, env=env, timeout=30,
                         capture_output=True, text=True)
    assert ran.stdout.startswith("NAME") and ran.stderr == ""


@pytest.mark.parametrize("command", ["trainctl version", "trainctl list", "trainctl list -o name", "traind --dump-spec",
                                     "traind --dump-events", "traind --dump-languages"])
def test_output_that_cannot_be_written_is_an_error(daemon, command):
    daemon.submit(SPEC)
    env = dict(daemon.env, TRAIND_STATE_DIR=str(daemon.state_dir))
    ran = subprocess.run(f"{BIN}/{command} > /dev/full", shell=True, env=env, timeout=30, capture_output=True, text=True)
    expected = NOT_PRINTED if command.startswith("trainctl") else 1
    assert ran.returncode == expected and "write 'stdout'" in ran.stderr


@pytest.mark.parametrize("to", ["> /dev/full", ">&-", "<&- >&-"])
def test_a_submission_that_cannot_be_printed_is_told_from_one_that_failed(daemon, tmp_path, to):
    """`trainctl submit >&-` once submitted and ended with 5, as if nobody had been there: a script submitted again."""
    env = dict(daemon.env, TRAIND_STATE_DIR=str(daemon.state_dir))
    spec = spec_file(tmp_path, SPEC)
    made = set()
    for form in ("table", "json", "name"):
        ran = subprocess.run(f"{BIN}/trainctl submit {spec} -o {form} {to}", shell=True, env=env, timeout=30,
                             stderr=subprocess.PIPE, text=True)
        assert ran.returncode == NOT_PRINTED and "done, but the answer cannot be printed" in ran.stderr
        made.add(re.search("submitted: (j-[0-9a-f]+)", ran.stderr)[1])
    assert made == set(daemon.ctl("list", "-o", "name", check=OK).stdout.split()) and len(made) == 3
    ran = subprocess.run(f"{BIN}/trainctl submit {spec} --set nonsense=1 {to}", shell=True, env=env, timeout=30)
    assert ran.returncode == USAGE


def test_code_of_what_was_not_done_goes_before_that_of_what_was_not_printed(daemon):
    """`trainctl cancel A B >/dev/full` once ended with 8, "it was done", though there is no B."""
    env = dict(daemon.env, TRAIND_STATE_DIR=str(daemon.state_dir))
    job, missing = daemon.submit(SPEC), "j-" + "0" * 12
    for jobs, code in (([job, missing], NOT_FOUND), ([missing, job], NOT_FOUND), ([job], NOT_PRINTED)):
        ran = subprocess.run(f"{BIN}/trainctl cancel {' '.join(jobs)} -o jsonl > /dev/full", shell=True, env=env, timeout=30)
        assert ran.returncode == code, jobs


def test_closed_descriptors_are_no_file_of_traind(cluster, tmp_path):
    """Log lines of `traind 2>&-` once went into <state>/lock, and what `trainctl run` printed into <name>/lock."""
    state = tmp_path / "closed"
    ran = subprocess.Popen(["sh", "-c", f"exec {BIN}/traind --state-dir {state} --listen 127.0.0.1:0 <&- >&- 2>&-"])
    try:
        until("an address", lambda: (state / "address").exists())
        fds = [pathlib.Path(f"/proc/{ran.pid}/fd/{n}").readlink() for n in range(3)]
        assert fds == [pathlib.Path("/dev/null")] * 3
        assert re.fullmatch(r"pid \d+ \(.*\)\n", (state / "lock").read_text())
    finally:
        ran.terminate()
        ran.wait(30)
    spec = spec_file(tmp_path, SPEC)
    subprocess.run(f"{BIN}/trainctl run {spec} -O {tmp_path}/ran <&- >&- 2>&-", shell=True, timeout=60)
    assert re.fullmatch(r"pid \d+ \(.*\)\n", (tmp_path / "ran/lock").read_text())
