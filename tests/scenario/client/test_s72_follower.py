"""`logs -f` beside a daemon that goes away: a LogService that ends its streams as asked, and a clock that jumps."""
import concurrent.futures
import contextlib
import os
import subprocess
import types

import grpc
import pytest

from support import BIN

OK, JOB_FAILED, UNAVAILABLE = 0, 1, 5
LOST_AFTER_S = 30

# CLOCK_BOOTTIME is ahead by a second for each byte of a file.
CLOCK = """
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *out) {
    struct stat ahead;
    int failed = (int)syscall(SYS_clock_gettime, id, out);
    if (!failed && id == CLOCK_BOOTTIME && stat(getenv("CLOCK_AHEAD"), &ahead) == 0) out->tv_sec += ahead.st_size;
    return failed;
}
"""

JOB = "j-0123456789ab"


@pytest.fixture
def rig(stubs, tmp_path):
    """Serves GetJob from `job` and each ReadLogs from the next of `rounds`, functions of (request, context)."""
    rig = types.SimpleNamespace(log=stubs.log, job=stubs.job.Job(id=JOB, attempt=1), get_job=None, rounds=[], asked=[])
    (tmp_path / "clock.c").write_text(CLOCK)
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-o", tmp_path / "clock.so", tmp_path / "clock.c"], check=True)
    (tmp_path / "token").write_text("trd_" + "0" * 64)
    (tmp_path / "ahead").touch()

    class Jobs(stubs.job_grpc.JobServiceServicer):
        def GetJob(self, request, context):
            if rig.get_job:
                rig.get_job(context)
            return rig.job

    class Logs(stubs.log_grpc.LogServiceServicer):
        def ReadLogs(self, request, context):
            rig.asked.append(request)
            yield from rig.rounds.pop(0)(request, context)

    def jump():
        with open(tmp_path / "ahead", "a") as ahead:
            ahead.write("s" * (LOST_AFTER_S + 1))

    def follow(*args):
        env = {k: v for k, v in os.environ.items() if not k.startswith("TRAIND_") and "proxy" not in k.lower()}
        env.update(LD_PRELOAD=str(tmp_path / "clock.so"), CLOCK_AHEAD=str(tmp_path / "ahead"))
        verb = ["logs", JOB, *args, "--address", f"127.0.0.1:{port}", "--token-file", tmp_path / "token"]
        return subprocess.run([BIN / "trainctl", *verb], env=env, capture_output=True, text=True, timeout=60)

    rig.jump, rig.follow = jump, follow
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    stubs.job_grpc.add_JobServiceServicer_to_server(Jobs(), server)
    stubs.log_grpc.add_LogServiceServicer_to_server(Logs(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with contextlib.closing(types.SimpleNamespace(close=lambda: server.stop(None).wait())):
        yield rig


def go_away(context):
    context.abort(grpc.StatusCode.UNAVAILABLE, "gone")


def test_follower_outlives_restarts_when_the_ranks_were_silent_for_long(rig):
    def silent(request, context):
        rig.jump()
        go_away(context)
        yield

    def speak(request, context):
        yield rig.log.ReadLogsResponse(attempt=1, data=b"at last\n")

    rig.rounds = [silent, silent, speak]
    ran = rig.follow("-f")
    assert (ran.returncode, ran.stdout) == (OK, "[rank 0] at last\n"), ran.stderr


def test_follower_gives_up_when_the_daemon_stays_away(rig):
    def leave(request, context):
        rig.get_job = stay_away
        go_away(context)
        yield

    def stay_away(context):
        rig.jump()
        go_away(context)

    rig.rounds = [leave]
    ran = rig.follow("-f", "--reconnect", f"{LOST_AFTER_S}s")
    assert ran.returncode == UNAVAILABLE and "gone" in ran.stderr and len(rig.asked) == 1
    assert "gave up after 30 s (--reconnect); the job goes on without the daemon" in ran.stderr


@pytest.mark.parametrize("newest", [0, 2])
def test_follower_skips_no_attempt_when_others_began_while_the_daemon_was_away(rig, newest):
    def silent(request, context):
        rig.job.attempt = newest + 2
        go_away(context)
        yield

    rig.job.attempt = newest
    rig.rounds = [silent, lambda request, context: ()]
    ran = rig.follow("-f", "--rank", "0", "--out-only", "--offset", "7")
    assert ran.returncode == OK, ran.stderr
    assert [(r.attempt, r.later, r.offset) for r in rig.asked] == [(newest, True, 7), (newest or 1, True, 7)]


def test_open_line_is_ended_when_reading_fails(rig):
    def half(request, context):
        yield rig.log.ReadLogsResponse(attempt=1, data=b"half a li")
        context.abort(grpc.StatusCode.DATA_LOSS, "its end is gone")

    rig.rounds = [half]
    ran = rig.follow()
    assert (ran.returncode, ran.stdout) == (JOB_FAILED, "[rank 0] half a li\n") and "its end is gone" in ran.stderr
