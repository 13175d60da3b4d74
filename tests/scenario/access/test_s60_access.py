"""Strangers and nonsense: nobody without the token learns or changes anything, and no bytes bring the
daemon down."""
import os
import random
import socket
import subprocess

import grpc
import pytest
from google.protobuf import descriptor_pool

from support import BIN, SPEC, below, until

FULL = bool(os.environ.get("TD_FULL"))
RAW = dict(request_serializer=lambda b: b, response_deserializer=lambda b: b)
FILES = ("job", "node", "metric", "log", "checkpoint", "admin")
Code = grpc.StatusCode


@pytest.fixture(scope="module")
def methods(stubs):
    """Every method of traind.v1, from the descriptors of the generated stubs."""
    found = []
    for file in FILES:
        for service in getattr(stubs, file).DESCRIPTOR.services_by_name.values():
            found += service.methods
    assert len(found) >= 18
    return found


def path_of(method):
    return f"/{method.containing_service.full_name}/{method.name}"


def call(channel, method, body, metadata=(), timeout=10):
    """Sends one message of raw bytes whatever the method's kind: (code, details, number of answers)."""
    kind = ("stream" if method.client_streaming else "unary") + "_" + (
        "stream" if method.server_streaming else "unary")
    invoke = getattr(channel, kind)(path_of(method), **RAW)
    try:
        answer = invoke(iter([body]) if method.client_streaming else body, metadata=metadata, timeout=timeout)
        n = 0
        for _ in answer if method.server_streaming else [answer]:
            n += 1
        return Code.OK, "", n
    except grpc.RpcError as e:
        return e.code(), e.details(), 0


def bearer(daemon):
    return [("authorization", f"Bearer {daemon.token}")]


@pytest.fixture
def plain(daemon):
    with grpc.insecure_channel(daemon.address) as channel:
        yield channel


def alive_and_unchanged(daemon, jobs=()):
    assert daemon.process.poll() is None, daemon.tail()
    listed = daemon.stub("Job").ListJobs(daemon.cluster.stubs.job.ListJobsRequest(), timeout=20).jobs
    assert sorted(j.id for j in listed) == sorted(jobs)


def test_every_method_needs_the_token(daemon, plain, methods):
    wrong = ["Bearer wrong", daemon.token, f"Bearer {daemon.token}x", f"Bearer {daemon.token[:-1]}", "Bearer ",
             f"Basic {daemon.token}"]
    body = daemon.cluster.stubs.job.CreateJobRequest(spec=SPEC).SerializeToString()
    for method in methods:
        for metadata in [()] + [[("authorization", w)] for w in wrong]:
            code, details, _ = call(plain, method, body, metadata)
            assert code == Code.UNAUTHENTICATED, (path_of(method), metadata, code, details)
            # Most people have no access to the state directory.
            assert "`trainctl token create`" in details and "the owner's (the file `token`" in details, details
    alive_and_unchanged(daemon)


def test_health_is_open_and_reflection_names_every_method(daemon, plain, methods):
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

    health = health_pb2_grpc.HealthStub(plain)
    serving = health_pb2.HealthCheckResponse.SERVING
    assert health.Check(health_pb2.HealthCheckRequest(), timeout=10).status == serving
    assert next(health.Watch(health_pb2.HealthCheckRequest(), timeout=10)).status == serving
    with pytest.raises(grpc.RpcError) as error:
        ProtoReflectionDescriptorDatabase(plain).get_services()
    assert error.value.code() == Code.UNAUTHENTICATED
    from support import Token

    database = ProtoReflectionDescriptorDatabase(grpc.intercept_channel(plain, Token(daemon.token)))
    pool = descriptor_pool.DescriptorPool(database)
    for method in methods:
        assert method.containing_service.full_name in database.get_services()
        found = pool.FindServiceByName(method.containing_service.full_name).methods_by_name[method.name]
        assert found.input_type.full_name == method.input_type.full_name


def answer_of(channel, method, body, metadata):
    """Streams that stay open with a message that means something are cut by us; that is an answer, too."""
    stays = method.name in ("Session",)
    code, details, _ = call(channel, method, body, metadata, timeout=1 if stays else 10)
    return code, details


FINE = {Code.OK, Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.FAILED_PRECONDITION, Code.OUT_OF_RANGE}


def test_random_bytes_get_an_answer_on_every_method(daemon, plain, methods):
    rng = random.Random(7)
    for method in methods:
        for i in range(200 if FULL else 12):
            body = rng.randbytes(rng.choice([1, 2, 5, 20, 200, 5000]))
            code, details = answer_of(plain, method, body, bearer(daemon))
            assert code in FINE, (path_of(method), body[:40], code, details)
    alive_and_unchanged(daemon)


def mutants(rng, body, n):
    for _ in range(n):
        b = bytearray(body)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(b)) if b else 0
            how = rng.randrange(4)
            if how == 0 and b:
                b[at] ^= 1 << rng.randrange(8)
            elif how == 1:
                b[at:at] = rng.randbytes(rng.randint(1, 6))
            elif how == 2:
                del b[at:at + rng.randint(1, 6)]
            else:
                b = b[:at]
        yield bytes(b)


def hostile_fill(message, depth=0):
    """Every field set to something unpleasant that decodes."""
    for field in message.DESCRIPTOR.fields:
        many = field.label == field.LABEL_REPEATED
        if field.message_type is not None:
            if field.message_type.GetOptions().map_entry or depth > 3:
                continue
            target = getattr(message, field.name)
            hostile_fill(target.add() if many else target, depth + 1)
            if not many:
                target.SetInParent()
            continue
        value = {field.CPPTYPE_STRING: "../../../etc/passwd" if field.type == field.TYPE_STRING else b"\0" * 70,
                 field.CPPTYPE_BOOL: True, field.CPPTYPE_DOUBLE: float("nan"), field.CPPTYPE_FLOAT: float("inf"),
                 field.CPPTYPE_ENUM: 1, field.CPPTYPE_INT32: -2**31, field.CPPTYPE_INT64: -2**63,
                 field.CPPTYPE_UINT32: 2**32 - 1, field.CPPTYPE_UINT64: 2**64 - 1}[field.cpp_type]
        if many:
            getattr(message, field.name).append(value)
        elif field.containing_oneof is None or depth == 0:
            setattr(message, field.name, value)
    return message


def each_oneof(kind):
    """The message filled, once for each member of its oneof (or once)."""
    from google.protobuf import message_factory

    make = message_factory.GetMessageClass(kind)
    members = [f for o in kind.oneofs for f in o.fields]
    if not members:
        return [hostile_fill(make())]
    made = []
    for member in members:
        m = make()
        hostile_fill(getattr(m, member.name))
        getattr(m, member.name).SetInParent()
        made.append(m)
    return made


def test_hostile_messages_get_an_answer_on_every_method(daemon, plain, methods, tmp_path):
    rng = random.Random(9)
    job = daemon.submit(SPEC)
    daemon.finish(job)
    for method in methods:
        for m in each_oneof(method.input_type):
            for name in ("job", "id"):
                if hasattr(m, name) and isinstance(getattr(m, name), str):
                    setattr(m, name, job)
            if method.name in ("CancelJob", "PauseJob", "ResumeJob", "DeleteJob"):
                continue  # these would mean it
            body = m.SerializeToString()
            for b in [body, *mutants(rng, body, 100 if FULL else 3)]:
                code, details = answer_of(plain, method, b, bearer(daemon))
                assert code in FINE | {Code.DEADLINE_EXCEEDED, Code.CANCELLED, Code.ABORTED,
                                       Code.RESOURCE_EXHAUSTED}, (path_of(method), code, details)
    alive_and_unchanged(daemon, [job])
    assert daemon.state(job) == "SUCCEEDED"
    inside = {p.name for p in daemon.state_dir.iterdir()}
    assert not below(tmp_path, "passwd*") and "passwd" not in inside
    again = daemon.submit(SPEC, "trainer.max_steps=2")
    daemon.finish(again)


@pytest.mark.parametrize("path, file", [
    ("a1/step-96", "../../../token"), ("../../..", "token"), ("a1/step-96/../../../..", "token"),
    ("/etc", "passwd"), ("a1/step-96", "/etc/passwd"), ("", "..")])
def test_no_path_leads_out_of_a_checkpoint(daemon, path, file):
    job = daemon.submit(SPEC)
    daemon.finish(job)
    m = daemon.cluster.stubs.checkpoint
    with pytest.raises(grpc.RpcError) as error:
        list(daemon.stub("Checkpoint").ReadShard(m.ReadShardRequest(job=job, path=path, file=file), timeout=10))
    assert error.value.code() in (Code.NOT_FOUND, Code.INVALID_ARGUMENT)


def test_unknown_methods_and_oversize_messages(daemon, plain, methods):
    for name in ("/traind.v1.JobService/Nothing", "/traind.v2.JobService/GetJob", "/x"):
        with pytest.raises(grpc.RpcError) as error:
            plain.unary_unary(name, **RAW)(b"", metadata=bearer(daemon), timeout=10)
        assert error.value.code() == Code.UNIMPLEMENTED
    big = b"\x0a" + b"\x80\x80\x80\x20" + b"x" * (64 << 20)
    for method in methods:
        code, details, _ = call(plain, method, big, bearer(daemon), timeout=20)
        assert code == Code.RESOURCE_EXHAUSTED, (path_of(method), code, details)
    alive_and_unchanged(daemon)


def test_spec_above_its_limit_is_refused_on_the_wire(daemon):
    with pytest.raises(grpc.RpcError) as error:
        daemon.submit(SPEC + "#" * (1 << 20))
    assert error.value.code() == Code.RESOURCE_EXHAUSTED
    assert "1 MiB" in error.value.details() or "1048576" in error.value.details()


BAD_SPECS = {
    "unknown key": (SPEC.replace("devices: 1", "devcies: 1"), ["trainer.devcies", "did you mean", "devices", "line 9"]),
    "two errors at once": (SPEC.replace("devices: 1", "devcies: 1").replace("batch_size: 16", "batch_size: -3"),
                           ["devcies", "batch_size", "-3"]),
    "wrong type": (SPEC.replace("max_epochs: 3", "max_epochs: [3]"), ["trainer.max_epochs", "line 9"]),
    "out of range": (SPEC.replace("seed_everything: 1", "seed_everything: 99999999999"), ["seed_everything"]),
    "negative": (SPEC.replace("samples: 512", "samples: -512"), ["data.samples", "-512"]),
    "nan": (SPEC.replace("lr: 0.01", "lr: .nan"), ["optimizer.lr"]),
    "infinite": (SPEC.replace("lr: 0.01", "lr: .inf"), ["optimizer.lr"]),
    "tabs": (SPEC + "\ttrainer: {}\n", ["line 11", "tab"]),
    "empty": ("", ["empty"]),
    "only a comment": ("# nothing\n", ["empty"]),
    "a list": ("- 1\n- 2\n", ["map"]),
    "aliases bomb": ("a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(12)), ["anchor"]),
    "deep nesting": ("a: " + "[" * 20000 + "]" * 20000, []),
    "repeated key": (SPEC + "name: again\n", ["name"]),
    "binary": ("\x01\x02\x7f\x00spec", []),
    "unknown model": (SPEC.replace("name: mlp", "name: mpl"), ["model.name", "mlp"]),
    "num_nodes": (SPEC.replace("devices: 1", "devices: 1, num_nodes: 1025"), ["num_nodes"]),
    "several documents": (SPEC + "---\nname: b\n", ["document"]),
    "override without a value": (SPEC, None),
}


def details_of(error):
    packed = dict(error.value.trailing_metadata()).get("grpc-status-details-bin", b"")
    return error.value.details() + packed.decode(errors="replace")


@pytest.mark.parametrize("what", BAD_SPECS)
def test_bad_spec_names_path_and_line_on_the_wire_and_in_trainctl(daemon, what):
    text, words = BAD_SPECS[what]
    overrides = ["trainer.devcies=2"] if words is None else []
    words = ["devcies", "devices"] if words is None else words
    with pytest.raises(grpc.RpcError) as error:
        daemon.submit(text, *overrides)
    assert error.value.code() == Code.INVALID_ARGUMENT, error.value.details()
    for word in words:
        assert word in details_of(error), details_of(error)
    if "\0" not in text:
        sets = [x for o in overrides for x in ("--set", o)]
        said = daemon.ctl("submit", "-", *sets, stdin=text, check=2).stderr
        for word in words:
            assert word in said, said
        assert "call id" in said
    alive_and_unchanged(daemon)


def refused(*args, env=None):
    done = subprocess.run([BIN / "traind", *map(str, args)], capture_output=True, text=True, timeout=20, env=env)
    assert done.returncode != 0, done.stderr
    return done.returncode, done.stderr


def test_second_traind_on_a_state_directory_is_refused(daemon):
    code, said = refused("--state-dir", daemon.state_dir, env=daemon.env)
    assert code == 1 and str(daemon.process.pid) in said and str(daemon.state_dir) in said
    daemon.finish(daemon.submit())


def test_occupied_port_is_refused_naming_the_holder(daemon, tmp_path):
    code, said = refused("--state-dir", tmp_path / "other", "--listen", daemon.address, env=daemon.env)
    assert code == 1 and daemon.address in said and str(daemon.process.pid) in said
    assert not (tmp_path / "other/address").exists()


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "localhost.example:0"])
def test_address_that_is_not_loopback_is_refused(cluster, tmp_path, address):
    code, said = refused("--state-dir", tmp_path / "s", "--listen", address, env=cluster.env())
    assert code in (1, 2) and "loopback" in said


@pytest.mark.parametrize("args, words", [
    (["--listen", "nonsense"], ["HOST:PORT"]), (["--listen", "127.0.0.1:99999"], ["99999"]),
    (["--role", "king"], ["all, coordinator or node"]), (["--role", "node"], ["--coordinator"]),
    (["--slots", "-1"], ["--slots"]), (["--nothing"], ["nothing"]), (["extra"], ["extra"]),
    (["--log-level", "loud"], ["loud"]),
    (["--name", 128 * "n"], ["name", "127"]), (["--name", "\udcff"], ["name", "UTF-8"])])
def test_wrong_usage_says_what_is_right(cluster, tmp_path, args, words):
    code, said = refused("--state-dir", tmp_path / "s", *args, env=cluster.env())
    assert code in (1, 2)
    for word in words:
        assert word in said, said


def test_runtime_directory_whose_path_does_not_fit_is_refused(cluster, tmp_path):
    env = cluster.env()
    del env["TRAIND_RUNTIME_DIR"]
    env["XDG_RUNTIME_DIR"] = str(tmp_path / "/".join([100 * "r"] * 6))
    code, said = refused("--state-dir", tmp_path / "s", env=env)
    assert code == 2 and "longer than 511 bytes" in said and not (tmp_path / (100 * "r")).exists()


def test_token_that_others_can_read_is_refused(cluster, daemon):
    path = daemon.state_dir / "token"
    assert path.stat().st_mode & 0o777 == 0o600
    daemon.kill()
    path.chmod(0o644)
    code, said = refused("--state-dir", daemon.state_dir, env=daemon.env)
    assert code == 1 and "644" in said and str(path) in said
    path.chmod(0o600)
    path.write_text("short\n")
    assert "16" in refused("--state-dir", daemon.state_dir, env=daemon.env)[1]


def modes(folder):
    return {p: p.lstat().st_mode & 0o777 for p in [folder, *below(folder)]}


@pytest.fixture
def umask():
    """That of most shells; the daemons of the test inherit it."""
    before = os.umask(0o022)
    yield 0o022
    os.umask(before)


def test_state_directory_that_others_could_read_is_closed_and_said(cluster, umask):
    daemon = cluster.start("--slots", "2")  # the harness made its directory, with mode 0755
    state = daemon.state_dir
    assert f"mode repaired path={state} was=0755 now=0700" in daemon.tail(100)
    job = daemon.submit()
    daemon.finish(job)
    wrong = {str(p): oct(m) for p, m in modes(state).items() if m & 0o077}
    assert not wrong, wrong
    assert {"state.db", "metrics.db", "lock", "token", "address", "checkpoints"} <= {p.name for p in state.iterdir()}
    daemon.kill()
    for name, mode in ((".", 0o755), ("state.db", 0o644), ("metrics.db", 0o640), ("checkpoints", 0o755)):
        (state / name).chmod(mode)
    daemon.start()
    assert not {p: oct(m) for p, m in modes(state).items() if m & 0o077}
    for name, mode in (("state.db", "0644"), ("metrics.db", "0640"), ("checkpoints", "0755")):
        assert f"mode repaired path={state}/{name} was={mode}" in daemon.tail(100)
    assert daemon.state(job) == "SUCCEEDED"


def test_what_a_job_writes_elsewhere_has_the_umask_of_the_daemons_start(cluster, tmp_path, umask):
    daemon = cluster.start("--slots", "2")
    job = daemon.submit(SPEC, f"checkpoint.dir={tmp_path / 'mine'}", "stages=[fit, predict]")
    daemon.finish(job)
    found = modes(tmp_path / "mine")
    assert {p.name for p in found} >= {"mine", job, "a1", "manifest.json", "model.safetensors", "predictions.npy"}, found
    wrong = {str(p): oct(m) for p, m in found.items() if m != (0o755 if p.is_dir() else 0o644)}
    assert not wrong, wrong
    output = tmp_path / "classes.npy"
    daemon.finish(daemon.submit(SPEC, "stages=[fit, predict]", "predict.output=" + str(output)))
    assert modes(output)[output] == 0o644
    assert (daemon.state_dir / "checkpoints").stat().st_mode & 0o777 == 0o700


def test_directory_of_others_is_not_taken_for_a_state_directory(cluster, tmp_path, umask):
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    (home / "thesis.tex").write_text("")
    code, said = refused("--state-dir", home, env=cluster.env())
    assert code == 1 and "thesis.tex" in said and "755" in said and str(home) in said
    assert modes(home) == {home: 0o755, home / "thesis.tex": 0o644}
    home.chmod(0o700)
    cluster.make(name="home").start()  # whoever closed it means it
    if os.geteuid() == 0:
        os.chown(home, 65534, 65534)
        cluster.daemons[-1].kill()
        assert "uid 65534" in refused("--state-dir", home, env=cluster.env())[1]


def test_second_daemon_of_a_state_directory_is_refused_with_the_holder(daemon):
    code, said = refused("--state-dir", daemon.state_dir, env=daemon.env)
    assert code == 1 and "is in use" in said and f"held by pid {daemon.process.pid}" in said
    assert daemon.nodes("READY"), "the first one goes on"


def test_state_directory_that_cannot_be_used_is_refused(cluster, tmp_path):
    (tmp_path / "file").write_text("")
    code, said = refused("--state-dir", tmp_path / "file", env=cluster.env())
    assert code == 1 and str(tmp_path / "file") in said
    (tmp_path / "odd/lock").mkdir(parents=True)
    code, said = refused("--state-dir", tmp_path / "odd", env=cluster.env())
    assert code == 1 and "cannot be used" in said and "in use" not in said.replace("cannot be used", "")
    (tmp_path / "s").mkdir()
    (tmp_path / "s/state.db").write_bytes(b"this is not a database, but long enough to look at" * 100)
    code, said = refused("--state-dir", tmp_path / "s", env=cluster.env())
    assert code == 3 and "state.db" in said


def test_listener_that_never_speaks_does_not_stop_the_others(daemon):
    host, port = daemon.address.rsplit(":", 1)
    silent = [socket.create_connection((host, int(port))) for _ in range(50)]
    silent[0].sendall(b"GET / HTTP/1.1\r\n\r\n")
    daemon.finish(daemon.submit())
    for s in silent:
        s.close()
