"""What a job left on its node when it ended: logs that are read wait for a node that sends them, and answers say what is
still to come."""
import threading

from fake_node import FakeNode, record, run_one
from support import until

OUT, ERR = 3, 4


def text_of(answers):
    return b"".join(a.data for a in answers)


def awaited(answer):
    return [(a.node, a.away, a.bytes) for a in answer.awaited]


def test_logs_are_whole_when_they_are_read_before_their_last_bytes_have_come(coordinator):
    node, job, attempt = run_one(coordinator)
    attempt.segment(OUT, 0, 0, b"begin ")
    attempt.acked(OUT, 0, 6)
    attempt.end(out=10)
    coordinator.wait_state(job, "SUCCEEDED")
    answers, request = [], coordinator.cluster.stubs.log.ReadLogsRequest(job=job, rank=-1)
    stream = coordinator.stub("Log").ReadLogs(request, timeout=30)
    reader = threading.Thread(target=lambda: [answers.append(a) for a in stream])
    reader.start()
    until("the first bytes are read", lambda: text_of(answers) == b"begin " or not reader.is_alive())
    assert reader.is_alive()
    attempt.segment(OUT, 0, 6, b"end\n")
    reader.join(20)
    assert text_of(answers) == b"begin end\n"
    assert not any(a.awaited for a in answers)
    node.close()


def test_logs_say_what_is_to_come_when_their_node_is_away(coordinator):
    node, job, attempt = run_one(coordinator)
    attempt.segment(OUT, 0, 0, b"begin\n")
    attempt.acked(OUT, 0, 6)
    attempt.end(out=10, err=7)
    coordinator.wait_state(job, "SUCCEEDED")
    node.close()
    until("the node is away", lambda: not coordinator.nodes("READY"))
    *_, last = answers = coordinator.logs(job)
    assert text_of(answers) == b"begin\n"
    assert awaited(last) == [("fake", True, 11)]
    assert awaited(coordinator.logs(job, rank=0, err_only=True)[-1]) == [("fake", True, 7)]
    said = coordinator.ctl("logs", job, check=0)
    assert (said.stdout, said.stderr) == ("[rank 0] begin\n",
                                          "trainctl: node fake has yet to send 11 bytes of its logs; it is not connected\n")
    node = FakeNode(coordinator, held=[node.m.AttemptHeld(id=attempt.id, launcher_major=1)])
    attempt.node = node
    attempt.segment(OUT, 0, 6, b"end\n")
    attempt.segment(ERR, 0, 0, b"failed\n")
    node.get("forget")
    answers = coordinator.logs(job)
    assert text_of(answers) == b"begin\nend\nfailed\n"
    assert not any(a.awaited for a in answers)
    node.close()


def test_metrics_say_what_is_to_come_when_their_node_is_away(coordinator):
    node, job, attempt = run_one(coordinator)
    points = record("train_loss_step", 1, 2.0, 1) + record("train_loss_step", 2, 1.0, 1)
    attempt.segment(2, 0, 0, points[:64])
    attempt.acked(2, 0, 64)
    attempt.end(metrics=128)
    node.close()
    coordinator.wait_state(job, "SUCCEEDED")  # it waits for points, but not for ever
    said = coordinator.ctl("metrics", job, "train_loss_step", check=0)
    assert said.stderr == "trainctl: node fake has yet to send 1 point; it is not connected\n"
    node = FakeNode(coordinator, held=[node.m.AttemptHeld(id=attempt.id, launcher_major=1)])
    attempt.node = node
    attempt.segment(2, 0, 64, points[64:])
    node.get("forget")
    assert [(p.step, p.value) for p in coordinator.points(job)] == [(1, 2.0), (2, 1.0)]
    assert coordinator.ctl("metrics", job, "train_loss_step", check=0).stderr == ""
    node.close()
