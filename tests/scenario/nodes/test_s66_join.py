"""How a machine joins over a network that nobody trusts, and leaves: join tokens, certificates, their renewal and their
end. The network is a namespace of the test's own, as in test_s66_tls.py, whose fixtures these are."""
import json
import queue
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time

import grpc
import pytest

from fake_node import OLDER_BUILD, FakeNode
from support import BIN, SPEC, audit, until
from test_s66_tls import HOST, context_of, init, network, start, tls  # noqa: F401 (fixtures)

NODE, ADMIN = "traind.v1.NodeService/", "traind.v1.NodeAdminService/"

# One unary call as a stranger's client makes it: stubs, address, CA, token or -, certificate or -, key, method, fields.
CALL = """
import json
import os
import sys
import grpc
stubs, address, ca, token, certificate, key, method, fields = sys.argv[1:]
sys.path.insert(0, stubs)
from traind.v1 import node_pb2, node_pb2_grpc
read = lambda path: None if path == "-" else open(path, "rb").read()
made = grpc.ssl_channel_credentials(read(ca), read(key), read(certificate))
if token != "-":
    made = grpc.composite_channel_credentials(made, grpc.access_token_call_credentials(token))
request = getattr(node_pb2, method + "Request")(**json.loads(fields))
channel = grpc.secure_channel(address, made)
try:
    answer = getattr(node_pb2_grpc.NodeServiceStub(channel), method)(request, timeout=10)
    said = {"code": "OK", "certificate": answer.certificate}
except grpc.RpcError as e:
    said = {"code": e.code().name, "text": e.details()}
print(json.dumps(said), flush=True)
os._exit(0)  # closing a channel hangs now and then, in gRPC's own code
"""


@pytest.fixture
def caller(stubs):
    """call(coordinator, method, token=, certificate=(pem, key), **fields): {"code": ..., ...}."""
    import os

    folder = os.path.dirname(os.path.dirname(os.path.dirname(stubs.job.__file__)))

    def call(coordinator, method, token="-", certificate=("-", "-"), **fields):
        done = subprocess.run([sys.executable, "-c", CALL, folder, coordinator.address,
                               tls(coordinator.state_dir, "ca.pem"), token, *certificate, method, json.dumps(fields)],
                              capture_output=True, text=True, timeout=30)
        assert done.returncode == 0 and done.stdout, done.stderr
        return json.loads(done.stdout)

    return call


def request_of(folder, name):
    """(request, key file), made by openssl, as a stranger would."""
    key = folder / f"{name}.key"
    subprocess.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key], check=True)
    made = subprocess.run(["openssl", "req", "-new", "-key", key, "-subj", f"/CN={name}"], check=True,
                          capture_output=True, text=True)
    return made.stdout, key


@pytest.fixture
def coordinate(start, cluster):
    def made(*args, name="c"):
        init(cluster.folder / name, "--host", HOST)
        return start(name, "--role", "coordinator", "--listen", f"{HOST}:0", *args)

    return made


def ctl(daemon, *args, check=0, stdin=None):
    done = daemon.ctl(*args, "--state-dir", daemon.state_dir)
    assert done.returncode == check, done.stderr + daemon.tail()
    return done


def token_of(coordinator, folder, *args, name="join-token"):
    text = ctl(coordinator, "node", "token", *args).stdout.strip()
    file = folder / name
    file.write_text(text + "\n")
    file.chmod(0o600)
    return file


def nodes(coordinator):
    return {n["name"]: n for n in json.loads(ctl(coordinator, "node", "list", "-o", "json").stdout).get("nodes", [])}


def ready(coordinator, name):
    return until(f"{name} is ready", lambda: nodes(coordinator).get(name, {}).get("state") == "READY", 20)


def audited(coordinator, least=1, **wanted):
    """Lines of the audit log, once so many are there."""
    found = lambda: audit(coordinator, **wanted)
    until(f"{least} lines say {wanted}", lambda: len(found()) >= least)
    return found()


def refused_to_join(cluster, name, *args):
    """What traind says when it does not become a node."""
    done = subprocess.run([BIN / "traind", "node", "--state-dir", cluster.folder / name, "--name", name,
                           *map(str, args)], env=cluster.env(), capture_output=True, text=True, timeout=40)
    assert done.returncode in (1, 2), done.stderr
    return done.stderr


def serial_of(node):
    return subprocess.run(["openssl", "x509", "-in", tls(node.state_dir, "node.pem"), "-noout", "-serial"], check=True,
                          capture_output=True, text=True).stdout.strip().split("=")[1]


def test_node_joins_trains_and_starts_again_without_a_token(coordinate, start, cluster, tmp_path):
    c = coordinate()
    file = token_of(c, cluster.folder, "--name", "far")
    node = start("n", "node", "--join", c.address, "--token-file", file, "--slots", 1, "--name", "far")
    ready(c, "far")
    assert {p.name: p.stat().st_mode & 0o777 for p in (node.state_dir / "tls").iterdir()} == dict.fromkeys(
        ("ca.pem", "coordinator", "node.key", "node.pem"), 0o600)
    assert not (node.state_dir / "token").exists()
    shown = nodes(c)["far"]
    assert shown["address"].startswith(HOST + ":") and shown["certificate_end_time"]
    audited(c, method=ADMIN + "CreateJoinToken", code="OK", name="owner")
    joined, = audited(c, method=NODE + "Join", code="OK")
    assert (joined["object"], joined["role"], joined["name"]) == (shown["id"], "join", "far")
    assert "USED" in ctl(c, "token", "list").stdout
    (tmp_path / "spec.yaml").write_text(SPEC)
    ctl(c, "submit", tmp_path / "spec.yaml", "--set", "checkpoint.store=stream", "--follow")
    node.kill()
    file.unlink()
    node.args = ["node", "--slots", "1", "--name", "far"]  # neither --join nor a token
    node.start()
    ready(c, "far")
    audited(c, 2, method=NODE + "Session", name=shown["id"], object=shown["id"], role="node")
    job = ctl(c, "submit", tmp_path / "spec.yaml", "-o", "name").stdout.strip()
    ctl(c, "wait", job)
    for job in ctl(c, "list", "-o", "name").stdout.split():
        ctl(c, "delete", job)
    until("its files are gone", lambda: not node.attempts())


@pytest.mark.alone
def test_certificate_is_renewed_without_a_restart(coordinate, start, cluster):
    c = coordinate("--node-certificate-s", 5)  # of whole seconds: 4 at least, and the node renews after 3.3
    node = start("n", "--role", "node", "--join", c.address, "--token-file", token_of(c, cluster.folder), "--name", "n")
    ready(c, "n")
    first, began = serial_of(node), time.monotonic()
    until("it has another certificate", lambda: serial_of(node) != first, 15)
    second = serial_of(node)
    until("and the next", lambda: serial_of(node) not in (first, second), 15)
    assert 5 < time.monotonic() - began < 12
    audited(c, 2, method=NODE + "Renew", code="OK")
    assert ready(c, "n") and not audit(c, method=NODE + "Session", code="UNAUTHENTICATED")
    assert not c.lines("certificate expired")


def test_certificate_that_ended_is_renewed_within_the_grace_and_not_after(coordinate, start, cluster, caller):
    c = coordinate("--node-certificate-s", 3, "--renew-grace-s", 600)
    node = start("n", "node", "--join", c.address, "--token-file", token_of(c, cluster.folder), "--name", "n")
    ready(c, "n")
    node.kill()
    cert, key = (tls(node.state_dir, x) for x in ("node.pem", "node.key"))
    until("its certificate is over", lambda: c.lines("certificate expired"), 10)
    gone = caller(c, "Renew", certificate=(cert, key), request="none")  # let in, and refused for its request only
    assert gone["code"] == "INVALID_ARGUMENT", gone
    ended = serial_of(node)
    node.start()
    ready(c, "n")
    assert serial_of(node) != ended
    node.kill()
    c.kill()
    c.args[c.args.index("--renew-grace-s") + 1] = "1"
    c.start()
    failed = c.counter("handshakes_failed")

    def refused():
        caller(c, "Renew", certificate=(cert, key), request="none")
        return c.counter("handshakes_failed") > failed

    until("it is refused after the grace", refused, 20)
    assert c.lines("has expired on")


@pytest.mark.alone
def test_node_that_is_revoked_is_cut_at_once(coordinate, start, cluster):
    c = coordinate()
    node = start("n", "node", "--join", c.address, "--token-file", token_of(c, cluster.folder), "--name", "n")
    ready(c, "n")
    id_, since = nodes(c)["n"]["id"], time.monotonic()
    assert f"{id_} of 'n' REVOKED" in ctl(c, "node", "revoke", "n").stdout
    audited(c, method=NODE + "Session", reason="CERTIFICATE_REVOKED")  # its session has ended
    assert time.monotonic() - since < 1
    assert nodes(c)["n"]["state"] == "REVOKED" and "REVOKED" in ctl(c, "node", "list").stdout
    audited(c, method=ADMIN + "RevokeNode", object=id_, code="OK")
    failed = c.counter("handshakes_failed")
    with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
        dial_as(c, tls(node.state_dir, "node.pem"), tls(node.state_dir, "node.key"))
    until("it is counted", lambda: c.counter("handshakes_failed") > failed)
    assert c.lines("was revoked (serial")
    c.listened = c.address
    c.kill()
    c.start()  # it is refused after a restart, too
    with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
        dial_as(c, tls(node.state_dir, "node.pem"), tls(node.state_dir, "node.key"))
    node.kill()
    assert f"has joined {c.address}" in refused_to_join(cluster, "n", "--join", f"{HOST}:1")
    ctl(c, "node", "revoke", "nobody", check=3)
    for path in (node.state_dir / "tls").iterdir():
        path.unlink()
    node.args = ["node", "--join", c.address, "--token-file", str(token_of(c, cluster.folder)), "--name", "n"]
    node.start()  # with another token it is the same node again
    ready(c, "n")
    assert nodes(c)["n"]["id"] == id_


def dial_as(daemon, certificate, key):
    context = context_of(tls(daemon.state_dir, "ca.pem"), certificate, key)
    host, port = daemon.address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=10) as plain:
        with context.wrap_socket(plain, server_hostname=HOST) as secure:
            secure.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
            assert secure.recv(9), "closed"


def test_join_token_is_refused_with_its_reason(coordinate, start, cluster, caller, tmp_path):
    c, there = coordinate(), coordinate(name="there")
    file = token_of(c, cluster.folder)
    start("n", "node", "--join", c.address, "--token-file", file, "--name", "n")
    ready(c, "n")
    assert "was used already" in refused_to_join(cluster, "m", "--join", c.address, "--token-file", file)
    audited(c, method=NODE + "Join", code="UNAUTHENTICATED", reason="TOKEN_USED")
    brief = coordinate("--join-token-s", 1, name="brief")
    late = token_of(brief, cluster.folder, name="late")
    until("it has expired", lambda: "EXPIRED" in ctl(brief, "token", "list").stdout)
    assert "has expired" in refused_to_join(cluster, "m", "--join", brief.address, "--token-file", late)
    audited(brief, method=NODE + "Join", code="UNAUTHENTICATED", reason="TOKEN_EXPIRED")
    foreign = token_of(there, cluster.folder, name="foreign")
    before = len(audit(c, method=NODE + "Join"))
    said = refused_to_join(cluster, "m", "--join", c.address, "--token-file", foreign)
    assert "of another cluster" in said and "nothing was sent" in said
    assert len(audit(c, method=NODE + "Join")) == before  # it was not shown
    bearer = foreign.read_text().split(".")[0]
    request, _ = request_of(tmp_path, "n-0123456789ab")
    answer = caller(c, "Join", token=bearer, node_id="n-0123456789ab", name="m", request=request)
    assert answer["code"] == "UNAUTHENTICATED", answer
    audited(c, method=NODE + "Join", reason="TOKEN_WRONG")
    plain = ctl(c, "token", "create", "--role", "node", "--name", "x").stdout.strip()
    answer = caller(c, "Join", token=plain, node_id="n-0123456789ab", name="m", request=request)
    assert answer["code"] == "PERMISSION_DENIED" and "role join" in answer["text"], answer
    assert "holds no join token" in refused_to_join(cluster, "m", "--join", c.address, "--token-file",
                                                    c.state_dir / "token")


def test_join_is_said_again_when_its_answer_was_lost(coordinate, caller, cluster, tmp_path):
    c = coordinate()
    bearer = token_of(c, cluster.folder).read_text().split(".")[0]
    me = "n-0123456789ab"
    mine, key = request_of(tmp_path, me)
    (tmp_path / "theirs").mkdir()
    theirs, _ = request_of(tmp_path / "theirs", me)  # another key
    other, _ = request_of(tmp_path, "n-ba9876543210")

    def join(**fields):
        answer = caller(c, "Join", token=bearer, **{"node_id": me, "name": "n", "request": mine, **fields})
        return answer["code"], answer.get("certificate") or answer["text"]

    def judged(text):
        pem = tmp_path / "judged.pem"
        pem.write_text(text)
        return caller(c, "Renew", certificate=(pem, key), request="none")["code"]  # INVALID_ARGUMENT: it was let in

    (code, first), (again, second) = join(), join()
    assert code == again == "OK" and first != second
    # The first is revoked: the call is refused, or the handshake already.
    assert judged(first) in ("UNAUTHENTICATED", "UNAVAILABLE") and judged(second) == "INVALID_ARGUMENT"
    for fields in ({"request": theirs}, {"name": "m"}, {"node_id": "n-ba9876543210", "request": other}):
        code, text = join(**fields)
        assert code == "UNAUTHENTICATED" and "was used already" in text, (fields, text)
    assert len(audited(c, 3, method=NODE + "Join", code="UNAUTHENTICATED", reason="TOKEN_USED")) == 3
    c.kill()
    c.start()  # whose it is outlives the daemon
    assert join()[0] == "OK"
    ctl(c, "node", "revoke", "n")
    assert join()[0] == "UNAUTHENTICATED"


def test_node_joins_with_the_same_token_when_its_disk_failed_first(coordinate, start, cluster):
    c = coordinate()
    file = token_of(c, cluster.folder)
    blocked = tls(cluster.folder / "n", "node.pem")
    assert "holds no join token" in refused_to_join(cluster, "n", "--join", c.address, "--token-file", c.state_dir / "token")
    blocked.mkdir(parents=True)  # the directory of its state is there now
    (blocked / "full").touch()
    assert "node.pem" in refused_to_join(cluster, "n", "--join", c.address, "--token-file", file)
    assert audited(c, method=NODE + "Join", code="OK") and "USED" in ctl(c, "token", "list").stdout
    (blocked / "full").unlink()
    blocked.rmdir()
    start("n", "node", "--join", c.address, "--token-file", file, "--name", "n")
    ready(c, "n")


def test_id_of_a_node_and_name_of_a_node_token_never_meet(coordinate, caller, cluster, tmp_path):
    """Whoever had a join token read the checkpoints of jobs on nodes of a shared token, by its name as an id."""
    c = coordinate()
    ctl(c, "token", "create", "--role", "node", "--name", "gpu-nodes")
    bearer = token_of(c, cluster.folder).read_text().split(".")[0]
    join = lambda node_id: caller(c, "Join", token=bearer, node_id=node_id, name="m",
                                  request=request_of(tmp_path, node_id)[0])
    answer = join("gpu-nodes")
    assert answer["code"] == "ALREADY_EXISTS" and "name of a node token" in answer["text"], answer
    assert join("n-0123456789ab")["code"] == "OK"  # the token was not spent
    said = ctl(c, "token", "create", "--role", "node", "--name", "n-0123456789ab", check=7).stderr
    assert "the id of a node that joined" in said
    ctl(c, "token", "create", "--role", "viewer", "--name", "n-0123456789ab")


def test_joined_node_is_refused_under_the_name_of_another(coordinate, start, cluster):
    """Also of one that does not speak now: jobs and people know it by its name."""
    c = coordinate("--renew-grace-s", 3600)
    made = [start(n, "node", "--join", c.address, "--token-file", token_of(c, cluster.folder, name=f"token-{n}"), "--name", n)
            for n in ("n1", "n2")]
    ready(c, "n1"), ready(c, "n2")
    for node in made:
        node.kill()
    made[1].args[made[1].args.index("--name") + 1] = "n1"
    made[1].start(wait=False)
    until("it is refused", lambda: "has this name" in made[1].tail())
    assert "trainctl node revoke" in made[1].tail() and nodes(c)["n1"]["state"] != "READY"
    made[1].kill()
    made[0].start()
    ready(c, "n1")


def test_request_for_another_node_is_refused(coordinate, start, cluster, caller, tmp_path):
    c = coordinate()
    start("n", "node", "--join", c.address, "--token-file", token_of(c, cluster.folder), "--name", "n")
    ready(c, "n")
    first = nodes(c)["n"]
    me, other = "n-0123456789ab", "n-ba9876543210"
    bearer = token_of(c, cluster.folder, "--name", "m").read_text().split(".")[0]
    wrong, _ = request_of(tmp_path, other)
    mine, key = request_of(tmp_path, me)
    theirs, _ = request_of(tmp_path, first["id"])

    def join(code, word, **fields):
        answer = caller(c, "Join", token=bearer, **fields)
        assert answer["code"] == code and re.search(word, answer["text"]), answer

    join("PERMISSION_DENIED", other, node_id=me, name="m", request=wrong)
    join("PERMISSION_DENIED", "for the node 'm'", node_id=me, name="x", request=mine)
    join("ALREADY_EXISTS", first["id"], node_id=first["id"], name="m", request=theirs)
    join("INVALID_ARGUMENT", "request", node_id=me, name="m", request="none")
    join("INVALID_ARGUMENT", "node_id", node_id="a b", name="m", request=mine)
    bearer_of_m, bearer = bearer, token_of(c, cluster.folder).read_text().split(".")[0]
    join("ALREADY_EXISTS", first["id"], node_id=me, name="n", request=mine)  # and no token was spent by all of these
    answer = caller(c, "Join", token=bearer_of_m, node_id=me, name="m", request=mine)
    assert answer["code"] == "OK", answer
    certificate = tmp_path / "me.pem"
    certificate.write_text(answer["certificate"])
    renewed = caller(c, "Renew", certificate=(certificate, key), request=wrong)
    assert renewed["code"] == "PERMISSION_DENIED" and other in renewed["text"], renewed
    assert len(audited(c, 3, code="PERMISSION_DENIED", reason="NAME_DIFFERS")) == 3
    assert len(audit(c, code="ALREADY_EXISTS", reason="NODE_EXISTS")) == 2  # which were before it
    # Two certificates of it are good: the newest, and the one by which that was asked for.
    second = caller(c, "Renew", certificate=(certificate, key), request=mine)
    assert caller(c, "Renew", certificate=(certificate, key), request=mine)["code"] == "OK"
    (tmp_path / "second.pem").write_text(second["certificate"])
    lost = caller(c, "Renew", certificate=(tmp_path / "second.pem", key), request=mine)
    assert lost["code"] == "UNAUTHENTICATED" and "newer" in lost["text"], lost


# ---- who registers -------------------------------------------------------------------------------
def register(daemon, **more):
    """The answer to a Register, or how the session ended."""
    m = daemon.cluster.stubs.node
    fields = dict(boot_id="boot", version="9.9.9", launcher_major=1, cores=1, slots=1, memory_bytes=1 << 30)
    out = queue.Queue()
    session = daemon.stub("Node").Session(iter(out.get, None), timeout=30)
    out.put(m.NodeMessage(register=m.Register(**{**fields, **more})))
    try:
        return next(session).registered, (out, session)
    except grpc.RpcError as e:
        return e, (out, session)


def test_second_node_of_a_name_is_refused_while_the_first_speaks(coordinator):
    first, hold = register(coordinator, node_id="n-1", name="rack")
    assert first.key
    second, _ = register(coordinator, node_id="n-2", name="rack")
    assert second.code() == grpc.StatusCode.ALREADY_EXISTS
    assert "n-1" in second.details() and "127.0.0.1:" in second.details(), second.details()
    again, hold_again = register(coordinator, node_id="n-1", name="rack", boot_id="boot2")  # it comes back, rebooted
    assert again.key != first.key
    hold[0].put(None)
    hold_again[0].put(None)

    def taken():
        answer, (out, _) = register(coordinator, node_id="n-2", name="rack")
        out.put(None)
        return not isinstance(answer, grpc.RpcError)

    until("the name is free when the first has gone", taken, 20)
    audited(coordinator, method=NODE + "Session", reason="NODE_EXISTS")


def test_machine_of_a_copied_disk_is_refused_and_the_first_keeps_its_session(coordinate, start, cluster):
    """Both have one boot and one address, as containers do. The copy gets the session once: it might be the same daemon,
    started again. The first asks for it back, and by that both live."""
    c = coordinate()
    first = start("n", "node", "--join", c.address, "--token-file", token_of(c, cluster.folder), "--name", "n")
    ready(c, "n")
    first.kill()
    shutil.copytree(first.state_dir, cluster.folder / "copy")
    first.start()
    ready(c, "n")
    copy = start("copy", "node", "--name", "n")
    id_ = nodes(c)["n"]["id"]
    refusal = f"node {id_} ('n') has this id and speaks from {HOST}:"
    until("the copy is told", lambda: copy.lines(refusal))
    audited(c, method=NODE + "Session", object=id_, reason="NODE_EXISTS")
    until("the first is back", lambda: len(first.lines("registered node=")) == 3)
    told = len(audit(c, method=NODE + "Session", reason="NODE_EXISTS"))
    until("the copy asks again, twice", lambda: len(audit(c, method=NODE + "Session", reason="NODE_EXISTS")) > told + 1)
    assert nodes(c)["n"]["state"] == "READY" and len(first.lines("registered node=")) == 3
    assert len(copy.lines("registered node=")) == 1, copy.tail()
    copy.kill()
    first.restart()
    until("it is in at once", lambda: len(first.lines("registered node=")) == 4, 8)  # a lease has 10 s
    first.kill()
    copy.start()
    until("the copy is the only one", lambda: len(copy.lines("registered node=")) == 2)


def test_node_of_another_version_is_refused_with_both_and_listed(coordinator):
    error, _ = register(coordinator, node_id="n-1", name="old", launcher_major=99)
    assert error.code() == grpc.StatusCode.FAILED_PRECONDITION
    own = coordinator.ctl_json("cluster", "info")["version"]
    for said in ("traind 9.9.9", f"traind {own}", "launchers speak version 99"):
        assert said in error.details(), error.details()
    audited(coordinator, method=NODE + "Session", reason="ABI_MISMATCH")
    row = nodes(coordinator)["old"]
    assert row["state"] == "INCOMPATIBLE" and row["state_reason"] in error.details() and row["version"] == "9.9.9", row
    shown = coordinator.ctl("node", "list").stdout
    assert "INCOMPATIBLE" in shown and "old gets no jobs: this node is traind 9.9.9" in shown, shown


@pytest.mark.parametrize("build, said", [({"plan_language": "feed"}, "ranks read plans of another form (feed)"),
                                         (OLDER_BUILD, "traind 0.0.9, an older build")])
def test_node_that_reads_other_plans_gets_no_jobs_and_both_are_told(coordinator, build, said):
    """It would fail each of them by a key that it does not know."""
    node = FakeNode(coordinator, name="old", slots=8, build=build)
    assert said in node.registered.unfit and "install one release on both" in node.registered.unfit
    row = nodes(coordinator)["old"]
    assert row["state"] == "INCOMPATIBLE" and row["state_reason"] == node.registered.unfit, row
    job = coordinator.submit(SPEC)
    until("the job says why", lambda: "old is traind" in coordinator.job(job).reason.text)
    new = FakeNode(coordinator, name="new")
    attempt = new.attempt()
    attempt.begin()
    attempt.end()
    assert coordinator.finish(job).attempt == 1
    assert not [kind for kind, _ in node.kept if kind in ("plan_request", "assign")], node.kept


def test_no_node_joins_where_there_is_no_tls(cluster):
    c = cluster.start("--role", "coordinator")
    assert "no TLS" in ctl(c, "node", "token", check=7).stderr
