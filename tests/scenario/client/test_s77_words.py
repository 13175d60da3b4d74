"""Words that people read: an error of trainctl says what a person can do, and names no method of gRPC."""
import json
import subprocess

import pytest

from support import BIN, BUILD

METHODS = ("Service", "ListJobs", "GetJob", "CreateJob", "CancelJob", "ListNodes", "GetCheckpoint", "traind.v1")


@pytest.fixture
def other_version(tmp_path):
    """A server that knows few of the methods that a coordinator has."""
    server = subprocess.Popen([BUILD / "tests" / "scenario" / "rpc_server"], stdout=subprocess.PIPE, text=True)
    address = server.stdout.readline().strip()
    (tmp_path / "token").write_text("secret")
    yield lambda *args: subprocess.run(
        [BIN / "trainctl", *args, "--address", address, "--token-file", str(tmp_path / "token")], capture_output=True,
        text=True, timeout=60)
    server.terminate()
    server.communicate(timeout=10)


def names_none(text):
    assert text.startswith("trainctl: ") and not [m for m in METHODS if m in text], text


@pytest.mark.parametrize("verb", [["list"], ["node", "list"], ["cancel", "j-0123456789ab"], ["cluster", "info"],
                                  ["logs", "j-0123456789ab"], ["metrics", "j-0123456789ab"]])
def test_a_coordinator_of_another_version_was_blamed_by_the_name_of_a_method(other_version, verb):
    ran = other_version(*verb)
    names_none(ran.stderr)
    assert ran.returncode == 1 and "is of another version" in ran.stderr, ran


def test_a_role_that_does_not_suffice_was_refused_by_the_name_of_a_method(daemon, tmp_path):
    token = daemon.ctl("token", "create", "--role", "viewer", "--name", "eve", "-o", "json", check=0).stdout
    (tmp_path / "viewer").write_text(json.loads(token)["text"])
    ran = daemon.ctl("cancel", "j-0123456789ab", "--token-file", tmp_path / "viewer", check=4)
    names_none(ran.stderr)
    assert "needs the role submitter" in ran.stderr


@pytest.mark.parametrize("verb", [["checkpoint", "download", "JOB", "nonsense"], ["checkpoint", "download", "JOB", "a9/step-9"],
                                  ["metrics", "JOB", "--from", "5", "--to", "2"], ["logs", "JOB", "--offset", "3"],
                                  ["describe", "nobody"], ["resume", "JOB"], ["token", "revoke", "t-none"]])
def test_errors_of_arguments_name_no_method(daemon, verb):
    job = daemon.submit()
    daemon.finish(job)
    ran = daemon.ctl(*[job if word == "JOB" else word for word in verb])
    assert ran.returncode != 0
    names_none(ran.stderr)
