"""Clocks that are wrong, by a day or by minutes, when a node joins and while it works. The network is a namespace of the
test's own, as in test_s66_tls.py, whose fixtures these are; test_s66_join.py has the verbs."""
import datetime
import json
import re
import subprocess
import time

import pytest

from marks import full_only
from support import BIN, BUSY, audit, until, with_worker
from test_s66_join import NODE, ctl, nodes, ready, token_of
from test_s66_tls import HOST, Beyond, Clock, init, network, start, tls  # noqa: F401 (fixtures)

DAY = 86400
LEASE = ["--lease-ms", 1000, "--heartbeat-ms", 200, "--node-certificate-s", 3600]


@pytest.fixture
def clock(tmp_path):
    return Clock(tmp_path)


@pytest.fixture
def aged(start, cluster, clock):
    """A coordinator whose CA and certificate were made days ago."""
    def made(days, *args):
        clock.set(-days * DAY)
        subprocess.run([BIN / "traind", "init", "--state-dir", cluster.folder / "c", "--host", HOST], check=True,
                       capture_output=True, env=clock.env(cluster.env()))
        clock.set(0)
        return start("c", "--role", "coordinator", "--listen", f"{HOST}:0", *LEASE, *args)

    return made


@pytest.mark.parametrize("off_s, days, words", [(DAY, 0, "'n-[^']*' has expired on"),
                                                (-DAY, 0, "'coordinator' is not valid before"),
                                                (-DAY, 2, "'n-[^']*' is not valid before")])
def test_machine_whose_clock_is_a_day_off_joins_when_it_is_set(aged, cluster, clock, start, off_s, days, words):
    c = aged(days)
    file = token_of(c, cluster.folder)
    clock.set(off_s)
    done = subprocess.run([BIN / "traind", "node", "--state-dir", cluster.folder / "n", "--name", "n", "--join",
                           c.address, "--token-file", file], env=clock.env(cluster.env()), capture_output=True, text=True,
                          timeout=40)
    assert done.returncode == 1
    assert re.search(words, done.stderr) and "the clock here says" in done.stderr and "set the clock" in done.stderr, done.stderr
    start("n", "node", "--join", c.address, "--token-file", file, "--name", "n")
    ready(c, "n")
    assert len(nodes(c)) == 1


class Working:
    """A node that has joined, by a clock of its own, with a job that trains there."""

    def __init__(self, c, cluster, clock, tmp_path, *more):
        self.c, self.clock, spec = c, clock, tmp_path / "spec.yaml"
        args = ["node", "--join", c.address, "--token-file", str(token_of(c, cluster.folder)), "--name", "n", "--slots", "1"]
        self.node = Beyond(cluster, cluster.folder / "n", args, clock.env(cluster.env()))
        cluster.daemons.append(self.node)
        # Launchers have the daemon's environment, ranks little of it.
        self.node.bin = with_worker(tmp_path / "bin", f'LD_PRELOAD={clock.shim} exec {BIN}/traind-worker "$@"')
        self.node.start()
        ready(c, "n")
        spec.write_text(BUSY)
        self.job = ctl(c, "submit", spec, "-o", "name", "--set", "checkpoint.store=stream", *more).stdout.strip()
        self.goes_on()

    def described(self):
        return json.loads(ctl(self.c, "describe", self.job, "-o", "json").stdout)

    def goes_on(self):
        """In its first attempt."""
        shown = [self.described()]

        def trains():
            shown.append(self.described())
            return shown[-1]["global_step"] > shown[0]["global_step"] and shown[-1]["state"] == "RUNNING"

        until("it trains", trains)
        assert shown[-1]["attempt"] == 1

    def delete(self):
        ctl(self.c, "delete", self.job)
        until("its files are gone", lambda: not self.node.attempts())


def seconds_of(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


@pytest.mark.parametrize("off_s", [DAY, -DAY])
def test_job_runs_to_its_end_when_the_clock_is_set_a_day_off_meanwhile(aged, cluster, clock, tmp_path, off_s):
    began = time.time()
    w = Working(aged(0, "--lost-after-ms", 1000), cluster, clock, tmp_path, "--set", "trainer.max_steps=600")
    clock.set(off_s)
    ctl(w.c, "wait", w.job)
    shown, ended = w.described(), time.time()
    assert (shown["state"], shown["attempt"], shown["global_step"]) == ("SUCCEEDED", 1, 600)
    assert w.c.counter("registrations") == 1 and w.c.counter("attempts_lost") == 0 and nodes(w.c)["n"]["state"] == "READY"
    times = [seconds_of(shown[k]) for k in ("create_time", "start_time", "end_time")]
    assert began - 1 < times[0] <= times[1] <= times[2] < ended + 1  # the coordinator's
    points = json.loads(ctl(w.c, "metrics", w.job, "train_loss_step", "-o", "json").stdout)["series"][0]["points"]
    told = [seconds_of(p["time"]) for p in points]  # the node's
    right = [t for t in told if abs(t - began) < DAY / 2]
    wrong = [t - off_s for t in told[len(right):]]
    assert right and wrong and times[1] - 1 < right[0] and wrong == sorted(wrong) and wrong[-1] < times[2] + 1
    w.delete()


@full_only
def test_lost_connection_is_made_again_after_the_clock_was_set_back(aged, cluster, clock, tmp_path):
    """What gRPC waits for must not take longer by what the clock was set back."""
    c = aged(0)
    clock.set(600)
    w = Working(c, cluster, clock, tmp_path)
    w.c.listened = w.c.address
    clock.set(0)
    began = time.monotonic()
    until("gRPC's next timer is due", lambda: time.monotonic() - began > 6)
    w.c.kill()
    until("the node has tried in vain", lambda: "Connection refused" in w.node.tail(200))
    w.c.start()
    until("it is back", lambda: nodes(w.c).get("n", {}).get("state") == "READY", 20)
    w.goes_on()
    ctl(w.c, "cancel", w.job)
    ctl(w.c, "wait", w.job, check=1)
    w.delete()


@pytest.mark.parametrize("off_s, days", [(DAY, 0), pytest.param(-DAY, 2, marks=full_only), (-DAY, 0)])
def test_node_dials_again_by_a_clock_that_is_a_day_off(aged, cluster, clock, tmp_path, off_s, days):
    """The other end's certificate is judged by that clock: the coordinator's own is valid for years, but not before it
    was made. The ranks do not notice."""
    w = Working(aged(days), cluster, clock, tmp_path)
    w.c.listened = w.c.address
    for daemon in (w.c, w.node):
        clock.set(off_s)
        w.goes_on()
        seen = len(w.node.log.read_text())
        daemon.restart()
        if off_s < 0 and not days:
            until("a line says so", lambda: "be valid by the clock here" in w.node.log.read_text()[seen:])
            assert nodes(w.c)["n"]["state"] != "READY"
            clock.set(0)
        ready(w.c, "n")
        w.goes_on()
    # What a day ahead is over in the eyes of a daemon that starts is renewed, once.
    renewals = int(off_s > 0)
    until("it has renewed", lambda: len(audit(w.c, method=NODE + "Renew", code="OK")) == renewals)
    began = time.monotonic()
    until("two leases have passed", lambda: time.monotonic() - began > 2)
    assert nodes(w.c)["n"]["state"] == "READY" and len(audit(w.c, method=NODE + "Renew")) == renewals
    ctl(w.c, "cancel", w.job)
    ctl(w.c, "wait", w.job, check=1)
    w.delete()
