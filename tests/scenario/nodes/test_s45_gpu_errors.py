"""Cards that break: the double of the NVIDIA driver reports errors (XIDs) of GPUs. Which of them exclude a card, what is
shown of it and what the job on it is told, that no restart brings it back, and that an operator does."""
import json
import re
import signal
import sys

from gpu_nodes import GIB, Driver, gpu_node, gpus, listed, until_listed
from support import ROOT, until
from test_s45_gpus import coordinator  # noqa: F401 (a fixture)

OK, USAGE, NOT_FOUND, CONFLICT = 0, 2, 3, 7
LOST = "XID 79 (the GPU has fallen off the bus: the machine cannot reach it)"


def excluded(coordinator, name):
    found = listed(coordinator, name)
    return {x.uuid: x for x in found.exclusions} if found else None


def until_excluded(coordinator, name, *uuids):
    until(f"{uuids} of {name} are excluded, no others", lambda: set(excluded(coordinator, name) or {}) == set(uuids))


def test_card_that_breaks_is_excluded_until_an_operator_enables_it(cluster, coordinator, tmp_path):  # noqa: F811
    driver = Driver(tmp_path, "one")
    driver.says(*gpus("a", 2))
    node = gpu_node(cluster, coordinator, driver, "one")
    until_listed(coordinator, "one", lambda l: len(l.gpus) == 2)
    driver.adds("xid GPU-a0 13", "xid GPU-a1 79", "xid GPU-a0 63")
    until_listed(coordinator, "one", lambda l: len(l.errors) == 3)
    until_excluded(coordinator, "one", "GPU-a1")
    before = excluded(coordinator, "one")["GPU-a1"]
    assert (before.reason, before.by, before.xid) == (LOST, "", 79) and before.time
    assert f'GPU is excluded node=one uuid=GPU-a1 why="{LOST}"' in coordinator.log.read_text()
    # what people see
    assert "2 NVIDIA H100 80GB HBM3 (1 excluded)" in coordinator.ctl("node", "list", check=OK).stdout
    wide = coordinator.ctl("node", "list", "-o", "wide", check=OK).stdout.splitlines()
    assert next(line for line in wide if "GPU-a1" in line).rstrip().endswith(f"excluded since {before.time}: {LOST}")
    assert next(line for line in wide if "GPU-a0" in line).rstrip().endswith("ok")
    shown = coordinator.ctl("node", "show", "one", check=OK).stdout
    assert f"gpu 1 health       excluded since {before.time}: {LOST}" in shown.splitlines(), shown
    assert re.search(r"^gpu 0 error        XID 13 at \S+: a kernel of the program broke a rule", shown, re.M), shown
    assert coordinator.ctl_json("node", "show", "one")["gpus"]["exclusions"][0]["uuid"] == "GPU-a1"
    # a broken card stays broken
    for daemon in (coordinator, node, coordinator):
        daemon.restart(signal.SIGKILL)
    until_listed(coordinator, "one", lambda l: len(l.gpus) == 2)
    assert dict(excluded(coordinator, "one")) == {"GPU-a1": before}
    said = coordinator.ctl("node", "device", "enable", "one", "GPU-a1", check=OK).stdout
    assert said == "GPU-a1 of one is not excluded: ranks get it\n"
    assert not excluded(coordinator, "one")
    coordinator.restart()
    until_listed(coordinator, "one", lambda l: len(l.gpus) == 2)
    assert not excluded(coordinator, "one"), "what was said before it was enabled is over"
    assert "gpu 1 health       ok" in coordinator.ctl("node", "show", "one", check=OK).stdout


def test_operator_takes_a_card_out_and_what_is_wrong_is_refused(cluster, coordinator, tmp_path):  # noqa: F811
    driver = Driver(tmp_path, "one")
    driver.says(*gpus("a", 2), f"mig GPU-a1 MIG-1 NVIDIA_H100_MIG {40 * GIB}")
    gpu_node(cluster, coordinator, driver, "one")
    until_listed(coordinator, "one", lambda l: len(l.gpus) == 2)
    ctl = lambda verb, *args, check: coordinator.ctl("node", "device", verb, *args, check=check)
    for verb in ("enable", "disable"):
        assert "no node has the id or the name 'two'" in ctl(verb, "two", "GPU-a0", check=NOT_FOUND).stderr
        assert "node one has no GPU whose uuid is, or begins with, 'GPU-b'" in ctl(verb, "one", "GPU-b", check=NOT_FOUND).stderr
        assert "give more of one: GPU-a0, GPU-a1" in ctl(verb, "one", "GPU", check=CONFLICT).stderr
        assert "is missing" in ctl(verb, "one", check=USAGE).stderr
    assert "may have 200" in ctl("disable", "one", "GPU-a0", "--reason", "x" * 201, check=None).stderr
    assert ctl("enable", "one", "GPU-a0", check=OK).stdout == "GPU-a0 of one is not excluded: ranks get it\n"
    said = ctl("disable", "one", "GPU-a1", "--reason", "a fan is loud", check=OK).stdout
    assert said == "GPU-a1 of one is excluded: no rank gets it; what runs on it goes on\n"
    x = excluded(coordinator, "one")["GPU-a1"]
    assert (x.reason, x.by, x.xid) == ("a fan is loud", "owner", 0)
    shown = coordinator.ctl("node", "show", "one", check=OK).stdout
    assert f"gpu 1/0 health     excluded by owner since {x.time}: a fan is loud" in shown.splitlines(), "the instances of it, too"
    assert "enable that one" in ctl("enable", "one", "MIG-1", check=CONFLICT).stderr
    assert ctl("enable", "one", "GPU-a1", "-o", "name", check=OK).stdout == next(n.id for n in coordinator.nodes()) + "\n"
    assert not excluded(coordinator, "one")
    half = coordinator.ctl("node", "device", check=USAGE).stderr
    assert "the verb 'node device' has a third word: 'node device disable', 'node device enable'" in half


def test_job_on_a_card_that_breaks_goes_on_on_another(cluster, coordinator, tmp_path):  # noqa: F811
    driver, flag = Driver(tmp_path, "one"), tmp_path / "flag"
    driver.says(*gpus("a", 2))
    gpu_node(cluster, coordinator, driver, "one", slots=4)
    until_listed(coordinator, "one", lambda l: len(l.gpus) == 2)
    # it ends with an error of its own once its card is gone, and ends well on the other one
    does = f'[ "$CUDA_VISIBLE_DEVICES" = GPU-a1 ] && exit 0; until [ -e {flag} ]; do sleep 0.05; done; exit 3'
    job = coordinator.submit(json.dumps({"kind": "command", "name": "one", "command": ["sh", "-c", does], "trainer": {"devices": 1},
                                         "resources": {"gpus_per_rank": 1}, "restart": {"max": 1, "backoff": [0]}}))
    coordinator.wait_state(job, "RUNNING")
    driver.adds("xid GPU-a0 48")
    note = until("its job is told", lambda: next((n for n in coordinator.job(job).notes if "XID 48" in n), None))
    assert "GPU GPU-a0 of node one reports XID 48" in note and "`trainctl node device enable one GPU-a0`" in note
    assert coordinator.state(job) == "RUNNING", "what runs on it goes on"
    flag.touch()
    coordinator.finish(job)  # on GPU-a1
    ended = coordinator.job(job)
    assert getattr(ended.failure, "class") == "device" and "reported XID 48" in ended.failure.message, ended.failure
    assert "exit code 3" in ended.failure.message and ended.restarts == 1
    # no job gets it, and the reason of one that waits says why
    both = coordinator.submit(json.dumps({"kind": "command", "name": "both", "command": ["true"], "trainer": {"devices": 1},
                                          "resources": {"gpus_per_rank": 2}}))
    until("it waits", lambda: "excluded: XID 48" in coordinator.job(both).reason.text)
    coordinator.ctl("node", "device", "enable", "one", "GPU-a0", check=OK)
    coordinator.finish(both)


def test_page_for_people_has_each_error_of_the_table():
    rows = re.findall(r"^TD_XID\((\d+), +(\w+), +\"(.*)\"\)$", (ROOT / "lib/attempt/xids.def").read_text(), re.M)
    words = {"EXCLUDES": "excluded", "RESET": "reset", "USER": "`user_code`", "NOTED": "noted"}
    page = (ROOT / "docs/gpus.md").read_text()
    listed_rows = re.findall(r"^\| (\d+) \| (\S+) \| (.*) \|$", page, re.M)
    assert listed_rows == [(number, words[effect], meaning) for number, effect, meaning in rows]


def test_memory_of_a_gpu_that_ran_out_has_its_class(cluster):
    daemon = cluster.start("--slots", "1")
    say = "import sys; print({!r}, file=sys.stderr); sys.exit(1)"
    for text, cls in (("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "out_of_memory"),
                      ("RuntimeError: CUDA error: device-side assert triggered", "user_code"),
                      ("RuntimeError: CUDA error: an illegal memory access was encountered", "user_code"),
                      ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus. class: device", "user_code")):
        job = daemon.submit(json.dumps({"kind": "command", "name": "m", "command": [sys.executable, "-c", say.format(text)],
                                        "restart": {"max": 0}}))
        ended = daemon.wait_state(job, "FAILED")
        assert getattr(ended.failure, "class") == cls, ended.failure
