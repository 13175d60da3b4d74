"""Labels of nodes: a job that asks for some runs on such nodes alone, waits for one, or is refused with the nearest."""
import re

import pytest

from fake_node import FakeNode, refused
from support import LONG, SPEC, until

OK, FAILED, USAGE, NOT_FOUND = 0, 1, 2, 3
WANTS = "resources.labels={gpu: h100}"


@pytest.fixture
def three(cluster):
    """Coordinator, nodes A and B with 2 slots each."""
    coordinator = cluster.start("--role", "coordinator", "--heartbeat-ms", "200", "--lease-ms", "1000",
                                "--lost-after-ms", "1000", name="c")
    a, b = cluster.node(coordinator, 2, "a"), cluster.node(coordinator, 2, "b")
    until("both are ready", lambda: len(coordinator.nodes("READY")) == 2)
    return coordinator, a, b


def place(coordinator, job):
    names = {n.id: n.name for n in coordinator.nodes()}
    return [names.get(n, n) for n in coordinator.job(job).nodes]


def labels(coordinator):
    return {n.name: dict(n.labels) for n in coordinator.nodes()}


def test_job_runs_where_its_labels_are_also_after_restarts(three):
    c, a, b = three
    refused("FAILED_PRECONDITION", lambda: c.submit(SPEC, WANTS), "UNSATISFIABLE", "no known node has gpu=h100")
    assert "gpu=a100" in c.ctl("node", "label", "a", "gpu=a100", "room=b2", check=OK).stdout
    said = c.ctl("submit", "-", "--set", WANTS, stdin=SPEC, check=FAILED).stderr
    assert "node a has gpu=a100" in said and "trainctl node label NODE gpu=h100" in said, said
    assert "b gpu=h100" in c.ctl("node", "label", "b", "gpu=h100", check=OK).stdout
    said = c.ctl("submit", "-", "--dry-run", "--set", "resources.labels.gpu=l4", stdin=SPEC, check=FAILED).stderr
    assert "node a has gpu=a100" in said and "node b has gpu=h100" in said, said  # in the order of their ids
    jobs = [c.submit(LONG, WANTS, "trainer.devices=2")]
    c.wait_state(jobs[0], "RUNNING")
    assert place(c, jobs[0]) == ["b"]
    jobs.append(c.submit(LONG, WANTS))
    until("it waits for b, though a is idle", lambda: c.job(jobs[1]).reason.code == "WAITING_FOR_SLOTS")
    assert "on node b" in c.job(jobs[1]).reason.text
    c.ctl("cancel", jobs[0], check=OK)
    c.wait_state(jobs[1], "RUNNING")
    assert place(c, jobs[1]) == ["b"]
    c.ctl("cancel", jobs[1], check=OK)
    c.wait_state(jobs[1], "CANCELLED")
    c.restart()
    b.restart()
    until("both are ready", lambda: len(c.nodes("READY")) == 2)
    assert labels(c) == {"a": {"gpu": "a100", "room": "b2"}, "b": {"gpu": "h100"}}
    done = c.submit(SPEC, WANTS)
    c.finish(done)
    assert "runs on node a" not in c.ctl("describe", done, check=OK).stdout


def test_job_waits_for_a_label_and_starts_when_a_node_gets_it(three):
    c, a, b = three
    c.ctl("node", "label", "a", "gpu=h100", check=OK)
    first = c.submit(LONG, WANTS, "trainer.devices=2")
    c.wait_state(first, "RUNNING")
    second = c.submit(LONG, WANTS)
    c.ctl("node", "label", "a", "gpu-", check=OK)
    text = "there is no connected node with the label gpu=h100"
    until("none has it", lambda: c.job(second).reason.text == text)
    assert c.state(first) == "RUNNING" and place(c, first) == ["a"]  # what runs goes on
    c.ctl("node", "label", "b", "gpu=h100", check=OK)
    c.wait_state(second, "RUNNING")
    assert place(c, second) == ["b"]


def test_labels_are_shown_and_what_is_none_is_refused(three):
    c, a, b = three
    assert "b has no labels" in c.ctl("node", "label", "b", check=OK).stdout
    c.ctl("node", "label", "b", "gpu=h100", "room=b2", "spare=", check=OK)
    c.ctl("node", "label", "b", "spare-", "room=c3", check=OK)
    assert c.ctl("node", "label", "b", check=OK).stdout == "b gpu=h100,room=c3\n"
    assert c.ctl_json("node", "label", "b")["labels"] == {"gpu": "h100", "room": "c3"}
    head, *rows = c.ctl("node", "list", "-o", "wide", check=OK).stdout.splitlines()
    assert head.split()[-1] == "LABELS" and [r.split()[-1] for r in rows if re.search(r" b +READY", r)] == ["gpu=h100,room=c3"]
    assert re.search(r"^labels +gpu=h100,room=c3$", c.ctl("node", "show", "b", check=OK).stdout, re.M)
    assert [n["labels"] for n in c.ctl_json("node", "list")["nodes"] if n["name"] == "b"] == [{"gpu": "h100", "room": "c3"}]
    for change in ("gpu", "gp u=1", "gpu=/x", "=1"):
        said = c.ctl("node", "label", "b", "ok=1", change, check=USAGE).stderr
        assert f"'{change}'" in said and "begin and end with a letter or digit" in said, said
    assert labels(c)["b"] == {"gpu": "h100", "room": "c3"}
    assert c.ctl("node", "label", "nobody", "a=b", check=NOT_FOUND).stderr
    assert c.ctl("node", "label", "nobody", check=NOT_FOUND).stderr
    many = [f"k{i}=v" for i in range(40)]
    assert "at most 32 are taken" in c.ctl("node", "label", "b", *many, check=FAILED).stderr
    m = c.cluster.stubs.admin
    refused("INVALID_ARGUMENT", lambda: c.stub("NodeAdmin").LabelNode(m.LabelNodeRequest(node="b", changes=["a=b"] * 1000),
                                                                       timeout=20), "LABEL_INVALID")


def test_of_two_nodes_of_one_name_the_connected_one_is_shown(coordinator):
    """As of a machine that was installed again. Changes took the connected one, and show wanted an id."""
    for id_ in ("n-old", "n-new"):
        node = FakeNode(coordinator, build={"node_id": id_, "name": "gpu"})
        coordinator.ctl("node", "label", "gpu", f"made={id_}", check=OK)
        assert coordinator.ctl_json("node", "show", "gpu")["id"] == id_
        assert coordinator.ctl("node", "label", "gpu", check=OK).stdout == f"gpu made={id_}\n"
        node.out.put(None)
        until("it has gone", lambda: not coordinator.nodes("READY"))
    said = coordinator.ctl("node", "show", "gpu", check=USAGE).stderr
    assert "2 nodes are called 'gpu'; give the id of one: " in said and "n-old" in said and "n-new" in said, said
    assert coordinator.ctl_json("node", "show", "n-old")["labels"] == {"made": "n-old"}
