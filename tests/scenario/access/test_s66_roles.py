"""Who may what: every method that the server knows, as every role, with every kind of credential; whose job it is; what
becomes of open calls when a token ends; and what the audit log has of it.

Certificates and join tokens, which need TLS, go through the same matrix in test_s66_certificates.py. The methods come from
the running server's reflection. One that NEEDS does not name fails the test: say there which role it needs, beside the row
of the method table. A role that no credential here has fails in the other file."""
import contextlib
import json
import sqlite3
import time

import grpc
import pytest
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from fake_node import FakeNode
from support import LONG, SPEC, Token, audit, until

Code = grpc.StatusCode
RAW = dict(request_serializer=lambda b: b, response_deserializer=lambda b: b)
LADDER = ["viewer", "submitter", "operator", "admin"]
ROLES = [*LADDER, "node"]  # of tokens that an admin gives out
REASONS = {"expired": "TOKEN_EXPIRED", "revoked": "TOKEN_REVOKED", "garbled": "TOKEN_WRONG", "foreign": "TOKEN_WRONG"}
STATES = ["good", *REASONS]
OPEN, ANY = "open", "any"  # no credential; any good one
JOIN = "join"  # of a join token, which no other role has
READER = "reader"  # a viewer, or a node, for attempts that it holds
CHECKPOINT = "traind.v1.CheckpointService/"
JOB, NODE, ADMIN = "traind.v1.JobService/", "traind.v1.NodeService/", "traind.v1.AdminService/"
NEEDS = {
    JOB + "CreateJob": "submitter", JOB + "CancelJob": "submitter", JOB + "PauseJob": "submitter",
    JOB + "SaveJob": "submitter", JOB + "ResumeJob": "submitter", JOB + "DeleteJob": "submitter", JOB + "PlanJob": "submitter",
    JOB + "ValidateJob": "viewer", JOB + "GetJob": "viewer", JOB + "ListJobs": "viewer", JOB + "WatchJob": "viewer",
    "traind.v1.CheckpointService/ListCheckpoints": "viewer", "traind.v1.LogService/ReadLogs": "viewer",
    CHECKPOINT + "GetCheckpoint": READER, CHECKPOINT + "ReadShard": READER,
    "traind.v1.MetricService/QueryMetrics": "viewer", "traind.v1.NodeAdminService/ListNodes": "viewer",
    "traind.v1.NodeAdminService/ListPlugins": "viewer", ADMIN + "GetClusterInfo": "viewer",
    "traind.v1.NodeAdminService/CreateJoinToken": "operator", "traind.v1.NodeAdminService/RevokeNode": "operator",
    **{"traind.v1.NodeAdminService/" + verb: "operator" for verb in ("CordonNode", "UncordonNode", "DrainNode")},
    **{"traind.v1.NodeAdminService/" + verb: "operator" for verb in ("LabelNode", "DisableDevice", "EnableDevice")},
    ADMIN + "CreateToken": "admin", ADMIN + "ListTokens": "admin", ADMIN + "RevokeToken": "admin",
    NODE + "Session": "node", NODE + "PutLog": "node", NODE + "PutShard": "node",
    NODE + "Join": JOIN, NODE + "Renew": "node",
    "grpc.health.v1.Health/Check": OPEN, "grpc.health.v1.Health/Watch": OPEN, "grpc.health.v1.Health/List": ANY,
    "grpc.reflection.v1.ServerReflection/ServerReflectionInfo": ANY,
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": ANY,
}


def allows(role, needed):
    if needed in (OPEN, ANY):
        return True
    if needed == READER:
        return role != JOIN
    if {"node", JOIN} & {role, needed}:
        return role == needed
    return LADDER.index(role) >= LADDER.index(needed)


def channel_of(daemon, token):
    return grpc.intercept_channel(grpc.insecure_channel(daemon.address), Token(token))


def admin_of(daemon):
    return daemon.stub("Admin"), daemon.cluster.stubs.admin


def give(daemon, role, name="", expires_s=0):
    """(text, id) of a new token."""
    stub, m = admin_of(daemon)
    made = stub.CreateToken(m.CreateTokenRequest(role=m.Token.Role.Value(role.upper()), name=name,
                                                 expires_in_s=expires_s), timeout=20)
    assert made.text.startswith(f"td_{made.token.id}_") and len(made.text) == 80
    return made.text, made.token.id


def revoke(daemon, token_id):
    stub, m = admin_of(daemon)
    return stub.RevokeToken(m.RevokeTokenRequest(id=token_id), timeout=20)


def methods_of(daemon):
    """Every method that the server knows, by its full path, with its descriptor: from reflection."""
    with grpc.intercept_channel(daemon.dial(), Token(daemon.token)) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        pool, found = descriptor_pool.DescriptorPool(database), {}
        for service in database.get_services():
            described = pool.FindServiceByName(service)
            found |= {f"{service}/{m.name}": m for m in described.methods}
    return found


def ask(channel, path, method, text=None, message=None):
    """One message, an empty one unless it is given, whatever the method's kind: how it was refused. None: it was not. A
    stream that begins is ended by us: it was let in."""
    kind = ("stream" if method.client_streaming else "unary") + "_" + ("stream" if method.server_streaming else "unary")
    metadata = [] if text is None else [("authorization", f"Bearer {text}")]
    message = message or message_factory.GetMessageClass(method.input_type)().SerializeToString()
    try:
        answer = getattr(channel, kind)("/" + path, **RAW)(
            iter([message]) if method.client_streaming else message, metadata=metadata, timeout=10)
        if method.server_streaming:
            for _ in answer:
                answer.cancel()
                break
        return None
    except grpc.RpcError as e:
        return e


def call(channel, path, method, text=None):
    refused = ask(channel, path, method, text)
    return refused.code() if refused else Code.OK


def judge(path, role, refused, unless=None):
    """It went as the role may, or, `unless` it is good, its credential was refused for that reason."""
    code = refused.code() if refused else Code.OK
    packed = dict(refused.trailing_metadata() or ()).get("grpc-status-details-bin", b"") if refused else b""
    if NEEDS[path] != OPEN and unless:
        assert code == Code.UNAUTHENTICATED and unless.encode() in packed, (path, role, unless, refused)
    elif allows(role, NEEDS[path]):
        assert code not in (Code.UNAUTHENTICATED, Code.PERMISSION_DENIED, Code.UNIMPLEMENTED, Code.UNAVAILABLE,
                            Code.DEADLINE_EXCEEDED, Code.INTERNAL, Code.UNKNOWN), (path, role, refused)
    else:
        assert code == Code.PERMISSION_DENIED and b"ROLE_NEEDED" in packed, (path, role, refused)


@pytest.fixture(scope="module")
def world(tmp_path_factory, stubs):
    """A coordinator without a node, and another one, whose tokens are foreign here."""
    from support import Cluster

    made = Cluster(tmp_path_factory.mktemp("roles"), stubs)
    here, there = (made.start("--role", "coordinator", name=n) for n in ("here", "there"))
    yield here, there
    made.close()


@pytest.fixture(scope="module")
def credentials(world):
    """By (role, kind): the text of a token."""
    here, there = world
    texts = {}
    for role in ROLES:
        texts[role, "good"] = good = give(here, role)[0]
        texts[role, "expired"] = give(here, role, expires_s=1)[0]
        texts[role, "revoked"], token_id = give(here, role)
        revoke(here, token_id)
        texts[role, "foreign"] = give(there, role)[0]
        texts[role, "garbled"] = good[:-1] + ("0" if good[-1] != "0" else "1")
    check = "/" + ADMIN + "GetClusterInfo"

    def all_expired():
        for role in ROLES:
            with channel_of(here, texts[role, "expired"]) as channel, pytest.raises(grpc.RpcError) as error:
                channel.unary_unary(check, **RAW)(b"", timeout=10)
            if error.value.code() != Code.UNAUTHENTICATED:
                return False
        return True

    def expired():
        with contextlib.suppress(pytest.fail.Exception):
            return all_expired()

    until("the tokens have expired", expired, 20)
    return texts


def test_every_method_of_the_server_says_which_role_it_needs(world):
    assert set(methods_of(world[0])) ^ set(NEEDS) == set()


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("role", ROLES)
def test_every_method_as_every_role(world, credentials, role, state):
    with grpc.insecure_channel(world[0].address) as channel:
        for path, method in methods_of(world[0]).items():
            judge(path, role, ask(channel, path, method, credentials[role, state]), REASONS.get(state))


def test_owners_token_may_everything_and_no_token_nothing(world):
    with grpc.insecure_channel(world[0].address) as channel:
        for path, method in methods_of(world[0]).items():
            code = call(channel, path, method, world[0].token)
            assert code not in (Code.UNAUTHENTICATED, Code.PERMISSION_DENIED), (path, code)
            if NEEDS[path] != OPEN:
                for text in (None, "", "td_", "td_" + 77 * "0", 5000 * "x", world[0].token[:-1]):
                    assert call(channel, path, method, text) == Code.UNAUTHENTICATED, (path, text)


def test_refusal_names_the_role_that_is_needed_and_the_one_held(world, credentials):
    with channel_of(world[0], credentials["viewer", "good"]) as channel, pytest.raises(grpc.RpcError) as error:
        channel.unary_unary("/" + JOB + "CreateJob", **RAW)(b"", timeout=10)
    packed = dict(error.value.trailing_metadata())["grpc-status-details-bin"]
    assert "role submitter" in error.value.details() and "role viewer" in error.value.details()
    assert b"ROLE_NEEDED" in packed and b"role_needed" in packed and b"role_held" in packed


# ---- whose job it is -----------------------------------------------------------------------------
class Person:
    """A client with a token of its own."""

    def __init__(self, daemon, role, name):
        self.m = daemon.cluster.stubs.job
        self.text, self.id = give(daemon, role, name)
        self.stub = daemon.cluster.stubs.job_grpc.JobServiceStub(channel_of(daemon, self.text))

    def submit(self, request_id=""):
        return self.stub.CreateJob(self.m.CreateJobRequest(spec=SPEC, request_id=request_id), timeout=20)

    def steer(self, verb, job):
        return getattr(self.stub, verb + "Job")(getattr(self.m, verb + "JobRequest")(id=job), timeout=20)


def code_of(action, *args):
    with pytest.raises(grpc.RpcError) as error:
        action(*args)
    return error.value.code()


VERBS = ["Pause", "Resume", "Save", "Cancel", "Delete"]


def test_submitter_changes_jobs_of_its_own_name_only(coordinator):
    alice, bob = Person(coordinator, "submitter", "alice"), Person(coordinator, "submitter", "bob")
    job, of_the_owner = alice.submit(), coordinator.submit()
    assert (job.owner, job.owner_token) == ("alice", alice.id)
    assert coordinator.job(of_the_owner).owner == "owner"
    for verb in VERBS:
        assert code_of(bob.steer, verb, job.id) == Code.PERMISSION_DENIED, verb
        assert code_of(bob.steer, verb, of_the_owner) == Code.PERMISSION_DENIED, verb
        assert code_of(bob.steer, verb, "j-000000000000") == Code.NOT_FOUND, verb
    assert "alice (token" in coordinator.ctl("describe", job.id, check=0).stdout
    coordinator.kill()  # whose it is outlives the daemon
    coordinator.start()
    again = Person(coordinator, "submitter", "alice")  # another token of that name, and the old one's jobs
    again.steer("Pause", job.id)
    again.steer("Resume", job.id)
    operator = Person(coordinator, "operator", "olga")
    for which in (job.id, of_the_owner):
        operator.steer("Pause", which)
        operator.steer("Delete", which)


def test_request_id_of_another_is_refused(coordinator):
    alice, bob = Person(coordinator, "submitter", "alice"), Person(coordinator, "submitter", "bob")
    job = alice.submit("one")
    assert alice.submit("one").id == job.id
    assert code_of(bob.submit, "one") == Code.INVALID_ARGUMENT


# ---- nodes ---------------------------------------------------------------------------------------
class AsNode:
    """A daemon as FakeNode wants it, with a token of its own."""

    def __init__(self, daemon, text):
        self.cluster, self.daemon, self.text = daemon.cluster, daemon, text

    def stub(self, service):
        channel = channel_of(self.daemon, self.text)
        return getattr(self.cluster.stubs, service.lower() + "_grpc").NodeServiceStub(channel)


def test_node_token_is_no_node_of_another_name(coordinator):
    one, two = give(coordinator, "node", "rack-1")[0], give(coordinator, "node", "rack-2")[0]
    FakeNode(AsNode(coordinator, one), name="n1")
    assert code_of(lambda: FakeNode(AsNode(coordinator, two), name="n1")) == Code.PERMISSION_DENIED
    FakeNode(AsNode(coordinator, two), name="n2")
    FakeNode(AsNode(coordinator, give(coordinator, "node", "rack-1")[0]), name="n1")  # a new token of that name
    coordinator.kill()
    coordinator.start()
    assert code_of(lambda: FakeNode(AsNode(coordinator, two), name="n1")) == Code.PERMISSION_DENIED


def test_node_reads_checkpoints_of_its_own_attempts_alone(coordinator, tmp_path):
    m, texts = coordinator.cluster.stubs.checkpoint, {}

    def node(name):
        texts[name] = give(coordinator, "node", name)[0]
        (tmp_path / name).write_text(texts[name] + "\n")
        (tmp_path / name).chmod(0o600)
        return coordinator.cluster.start("--role", "node", "--coordinator", coordinator.address, "--slots", 1, "--name", name,
                                         "--token-file", tmp_path / name)

    def read(name, job):
        with channel_of(coordinator, texts[name]) as channel:
            stub = coordinator.cluster.stubs.checkpoint_grpc.CheckpointServiceStub(channel)
            found = stub.GetCheckpoint(m.GetCheckpointRequest(job=job), timeout=20)
            return b"".join(x.data for x in stub.ReadShard(m.ReadShardRequest(job=job, path=found.path, file="manifest.json"),
                                                           timeout=20))

    node("one")
    job = coordinator.submit(LONG, "checkpoint.store=stream", "checkpoint.save_top_k=-1")  # none is removed meanwhile
    until("a checkpoint is here", lambda: [c for c in coordinator.checkpoints(job) if c.state == m.Checkpoint.COMMITTED])
    assert b"step" in read("one", job)
    coordinator.steer("Pause", job)
    coordinator.wait_state(job, "PAUSED")
    assert code_of(read, "one", job) == Code.PERMISSION_DENIED  # it holds nothing any more
    other = coordinator.submit(LONG)
    coordinator.wait_state(other, "RUNNING")
    assert code_of(read, "one", job) == Code.PERMISSION_DENIED  # an attempt of another job
    node("two")
    coordinator.steer("Resume", job)
    step = coordinator.job(job).global_step
    resumed = coordinator.wait_step(job, step + 10)  # another node read what the first one had streamed
    assert list(resumed.nodes) == ["two"]
    assert b"step" in read("two", job)
    assert code_of(read, "one", job) == Code.PERMISSION_DENIED


def test_node_of_the_owner_is_taken_over_by_a_token_when_it_is_not_in_use(coordinator):
    text = give(coordinator, "node", "rack-1")[0]
    held = FakeNode(coordinator, name="n1")
    assert code_of(lambda: FakeNode(AsNode(coordinator, text), name="n1")) == Code.PERMISSION_DENIED
    held.session.cancel()

    def taken():
        with contextlib.suppress(grpc.RpcError):
            return FakeNode(AsNode(coordinator, text), name="n1")

    until("the node is free", taken, 20)


def test_node_may_touch_only_attempts_leased_to_it(coordinator):
    one = FakeNode(AsNode(coordinator, give(coordinator, "node", "rack-1")[0]), name="n1")
    two_text = give(coordinator, "node", "rack-2")[0]
    job = coordinator.submit()
    assigned = one.get("assign")
    two = FakeNode(AsNode(coordinator, two_text), name="n2")
    node = coordinator.cluster.stubs.node
    kind = node.Segment.Kind.OUT
    chunk = node.LogChunk(id=assigned.id, rank=0, kind=kind, offset=0, data=b"x", key=two.registered.key)
    assert code_of(lambda: two.stub.PutLog(iter([chunk]), timeout=10)) == Code.PERMISSION_DENIED
    chunk.key = ""  # nodes of older builds show none: not with a token of their own
    assert code_of(lambda: two.stub.PutLog(iter([chunk]), timeout=10)) == Code.PERMISSION_DENIED
    chunk.key = one.registered.key
    assert one.stub.PutLog(iter([chunk]), timeout=10).offset == 1
    coordinator.steer("Cancel", job)


def test_node_daemon_with_a_node_token_trains_until_it_is_revoked(cluster, coordinator, tmp_path):
    text, token_id = give(coordinator, "node", "rack-1")
    file = tmp_path / "node-token"
    file.write_text(text + "\n")
    file.chmod(0o600)
    node = cluster.node(coordinator, 2, "rack-1", "--token-file", file)
    job = coordinator.submit(SPEC, "checkpoint.store=stream")
    coordinator.finish(job)
    assert coordinator.checkpoints(job) and coordinator.weights(job) and node.process.poll() is None
    revoke(coordinator, token_id)
    until("its session has ended", lambda: audit(coordinator, method=NODE + "Session", code="UNAUTHENTICATED"))
    waits = coordinator.submit()
    until("no node is left", lambda: coordinator.job(waits).reason.code == "NO_NODES")
    file.write_text(give(coordinator, "node", "rack-1")[0] + "\n")
    node.kill()
    node.start()
    coordinator.finish(waits)


# ---- the end of a token --------------------------------------------------------------------------
def ends_with(stream, since):
    """The code with which a stream ends, and after how many seconds."""
    try:
        for _ in stream:
            pass
        return Code.OK, time.monotonic() - since[0]
    except grpc.RpcError as e:
        return e.code(), time.monotonic() - since[0]


@pytest.mark.alone
def test_open_calls_of_a_token_end_when_it_is_revoked_or_expires(coordinator):
    job = coordinator.submit()
    m = coordinator.cluster.stubs.job
    watcher, kept = Person(coordinator, "viewer", "w"), Person(coordinator, "viewer", "k")
    stream = watcher.stub.WatchJob(m.WatchJobRequest(id=job), timeout=60)
    other = kept.stub.WatchJob(m.WatchJobRequest(id=job), timeout=60)
    assert next(stream).job.id == next(other).job.id == job
    text, node_token = give(coordinator, "node", "rack-1")
    node = FakeNode(AsNode(coordinator, text), name="n1")
    for token_id, of in ((watcher.id, stream), (node_token, node.session)):
        since = [time.monotonic()]
        revoke(coordinator, token_id)
        code, s = ends_with(of, since)
        assert code == Code.UNAUTHENTICATED and s < 1, (code, s)
    assert code_of(watcher.steer, "Get", job) == Code.UNAUTHENTICATED
    text, _ = give(coordinator, "viewer", "short", expires_s=1)
    created = time.monotonic()
    stub = coordinator.cluster.stubs.job_grpc.JobServiceStub(channel_of(coordinator, text))
    code, s = ends_with(stub.WatchJob(m.WatchJobRequest(id=job), timeout=60), [created])
    assert code == Code.UNAUTHENTICATED and 0.5 < s < 2, (code, s)
    coordinator.steer("Cancel", job)
    assert [r.job.State.Name(r.job.state) for r in other][-1] == "CANCELLED"  # the other's token is valid


def test_token_can_be_revoked_while_the_disk_refuses(coordinator):
    person = Person(coordinator, "submitter", "alice")
    job = person.submit().id
    disk = sqlite3.connect(coordinator.state_dir / "state.db", isolation_level=None)
    disk.execute("BEGIN IMMEDIATE")  # each commit fails from now on
    assert code_of(revoke, coordinator, person.id) == Code.UNAVAILABLE
    assert code_of(person.steer, "Get", job) == Code.UNAUTHENTICATED
    disk.execute("ROLLBACK")
    disk.close()

    def revoked():
        with contextlib.suppress(grpc.RpcError):
            return revoke(coordinator, person.id)

    until("the disk is written again", revoked, 20)
    coordinator.kill()
    coordinator.start()
    assert [x["state"] for x in coordinator.ctl_json("token", "list")["tokens"]] == ["REVOKED"]


def test_tokens_outlive_a_restart_and_the_disk_has_no_secret(coordinator):
    text, token_id = give(coordinator, "operator", "olga", expires_s=3600)
    gone, gone_id = give(coordinator, "operator", "olga")
    revoke(coordinator, gone_id)
    job = coordinator.submit()
    coordinator.kill()
    for path in coordinator.state_dir.rglob("*"):
        assert not path.is_file() or text[-64:].encode() not in path.read_bytes(), path
    coordinator.start()
    ask = lambda t: coordinator.cluster.stubs.job_grpc.JobServiceStub(channel_of(coordinator, t)).GetJob(
        coordinator.cluster.stubs.job.GetJobRequest(id=job), timeout=20)
    assert ask(text).id == job and code_of(ask, gone) == Code.UNAUTHENTICATED
    listed = {t["id"]: t for t in coordinator.ctl_json("token", "list")["tokens"]}
    assert (listed[token_id]["state"], listed[gone_id]["state"]) == ("VALID", "REVOKED")
    assert listed[token_id]["last_use_time"] and listed[token_id]["expire_time"] and not listed[gone_id]["expire_time"]


# ---- the audit log -------------------------------------------------------------------------------
def test_audit_log_names_who_did_what(coordinator):
    alice, bob = Person(coordinator, "submitter", "alice"), Person(coordinator, "submitter", "bob")
    job = alice.submit().id
    assert code_of(bob.steer, "Cancel", job) == Code.PERMISSION_DENIED
    alice.steer("Cancel", job)
    bob.steer("Get", job)  # reads are not in it
    revoke(coordinator, bob.id)
    until("lines are written", lambda: audit(coordinator, method=ADMIN + "RevokeToken"))
    who = dict(token=alice.id, name="alice", role="submitter")
    assert audit(coordinator, method=JOB + "CreateJob", object=job, code="OK", **who)
    assert audit(coordinator, method=JOB + "CancelJob", object=job, code="OK", **who)
    denied, = audit(coordinator, code="PERMISSION_DENIED")
    assert (denied["name"], denied["object"], denied["reason"]) == ("bob", job, "NOT_THE_OWNER")
    assert denied["source"].startswith("127.0.0.1:") and denied["time"].endswith("Z")
    assert audit(coordinator, method=ADMIN + "CreateToken", object=bob.id, name="owner", role="admin")
    assert audit(coordinator, method=ADMIN + "RevokeToken", object=bob.id, name="owner")
    assert not audit(coordinator, method=JOB + "GetJob")
    assert (coordinator.state_dir / "audit.log").stat().st_mode & 0o777 == 0o600
    before = (coordinator.state_dir / "audit.log").read_bytes()
    coordinator.kill()
    coordinator.start()
    give(coordinator, "viewer")
    until("it goes on", lambda: len(audit(coordinator)) > len(before.splitlines()))
    assert (coordinator.state_dir / "audit.log").read_bytes().startswith(before)


def test_line_of_a_change_is_there_when_the_change_is(coordinator):
    log = coordinator.state_dir / "audit.log"
    job = coordinator.submit()
    until("the first line is written", lambda: audit(coordinator, object=job))
    log.rename(log.with_suffix(".kept"))
    log.mkdir()  # from now on no line can be written there
    later = [coordinator.submit() for _ in range(20)]
    token_id = give(coordinator, "viewer", "vera")[1]
    coordinator.kill()
    log.rmdir()
    log.with_suffix(".kept").rename(log)
    coordinator.start()
    until("the lines are there", lambda: audit(coordinator, object=token_id))
    created = [x["object"] for x in audit(coordinator, method=JOB + "CreateJob", code="OK")]
    assert created == [job, *later]
    numbers = [x["n"] for x in audit(coordinator) if "n" in x]
    assert numbers == sorted(set(numbers))
    coordinator.kill()
    coordinator.start()
    last = coordinator.submit()
    until("it goes on", lambda: audit(coordinator, object=last))
    again = [x["n"] for x in audit(coordinator) if "n" in x]
    assert again[:len(numbers)] == numbers and again == sorted(set(again))  # none a second time


def test_flood_of_refused_calls_is_counted(coordinator):
    n = 400
    with grpc.insecure_channel(coordinator.address) as channel:
        ask = channel.unary_unary("/" + JOB + "CancelJob", **RAW)
        began = time.monotonic()
        calls = [ask.future(b"", metadata=[("authorization", f"Bearer wrong{i}")], timeout=30) for i in range(n)]
        assert {c.code() for c in calls} == {Code.UNAUTHENTICATED}
        took = time.monotonic() - began

    def all_told():
        told = audit(coordinator)
        one_by_one = sum(x.get("code") == "UNAUTHENTICATED" for x in told)
        more = sum(x.get("refused_more", 0) for x in told)
        return (one_by_one, more) if one_by_one + more == n else None

    one_by_one, more = until("every call is written or counted", all_told)
    assert 100 <= one_by_one <= 100 + 10 * (took + 1) and more
    assert "wrong1" not in (coordinator.state_dir / "audit.log").read_text()


# ---- trainctl ------------------------------------------------------------------------------------
def test_token_verbs(coordinator):
    made = coordinator.ctl("token", "create", "--role", "viewer", "--name", "vera", "--expires", "30d", check=0)
    text = made.stdout.strip()
    assert text.startswith("td_") and len(text) == 80 and "vera" in made.stderr and text not in made.stderr
    token_id = text[3:15]
    shown = coordinator.ctl("token", "list", check=0).stdout
    assert token_id in shown and "VIEWER" in shown and "VALID" in shown and text[-20:] not in shown
    env = {"TRAIND_ADDRESS": coordinator.address, "TRAIND_TOKEN_FILE": str(coordinator.state_dir / "vera")}
    (coordinator.state_dir / "vera").write_text(text + "\n")
    assert coordinator.ctl("list", env=env).returncode == 0
    refused = coordinator.ctl("token", "list", env=env, check=4)
    assert "role admin" in refused.stderr and "role viewer" in refused.stderr
    assert "REVOKED" in coordinator.ctl("token", "revoke", token_id, check=0).stdout
    assert "revoked" in coordinator.ctl("list", env=env, check=4).stderr
    coordinator.ctl("token", "revoke", "0" * 12, check=3)
    for args, word in ((["--role", "king"], "king"), ([], "--role"), (["--role", "viewer", "--expires", "soon"], "soon"),
                       (["--role", "viewer", "--name", "a b"], "name"), (["--role", "viewer", "--name", "owner"], "owner")):
        assert word in coordinator.ctl("token", "create", *args, check=2).stderr, args


def test_context_verbs(coordinator, tmp_path):
    config = tmp_path / "config"
    env = {"XDG_CONFIG_HOME": str(config), "TRAIND_STATE_DIR": "", "XDG_STATE_HOME": str(tmp_path / "none"),
           "HOME": str(tmp_path)}
    ctl = lambda *args, **more: coordinator.ctl(*args, env=env, **more)
    token = tmp_path / "t"
    token.write_text(coordinator.token + "\n")
    ca = tmp_path / "ca.pem"
    ca.write_text("none\n")
    ctl("context", "add", "prod", "--address", coordinator.address, "--token-file", token, check=0)
    ctl("context", "add", "bad", "--address", "127.0.0.1:1", "--token-file", "-", "--ca", ca, stdin="td_x\n",
        check=0)
    file = config / "traind/contexts.json"
    assert file.stat().st_mode & 0o777 == 0o600
    ctl("list", check=5)  # none is in use: there is no daemon in the default state directory
    ctl("context", "use", "prod", check=0)
    assert coordinator.address in ctl("cluster", "info", check=0).stdout
    shown = ctl("context", "list", check=0).stdout
    assert "prod" in shown and str(ca) in shown and coordinator.token not in shown
    listed = json.loads(ctl("context", "list", "-o", "json", check=0).stdout)["contexts"]
    assert [(c["name"], c["current"]) for c in listed] == [("prod", True), ("bad", False)]
    assert ctl("context", "list", "-o", "name", check=0).stdout.split() == ["prod", "bad"]
    assert all(json.loads(x) for x in ctl("context", "list", "-o", "jsonl", check=0).stdout.splitlines())
    assert "prod" in ctl("context", "use", "nobody", check=3).stderr
    ctl("context", "use", "bad", check=0)
    assert "context bad" in ctl("list", "--timeout", "5", check=5).stderr
    ctl("list", "--address", coordinator.address, "--token-file", token, check=0)  # flags win
    ctl("list", "--state-dir", coordinator.state_dir, check=0)
    file.chmod(0o644)
    assert "644" in ctl("list", check=7).stderr
    file.chmod(0o600)
    ctl("context", "use", "-", check=0)
    ctl("list", check=5)
