"""What needs TLS of the roles matrix of test_s66_roles.py: certificates instead of tokens, and join tokens. What becomes of
open calls when a certificate ends, and the verbs of trainctl. The coordinator is on a host of its own (tests/hosts.py);
gRPC's stock client comes to it by a relay."""
import base64
import contextlib
import json
import signal
import ssl
import subprocess
import time

import grpc
import pytest

import hosts as net
from support import BIN, SPEC, Cluster, Token, audit, under_limit, until
from test_s66_caps import Eve, reason_of
from test_s66_join import request_of
from test_s66_roles import (ADMIN, JOB, JOIN, LADDER, NEEDS, NODE, OPEN, REASONS, ROLES, STATES, ask, call, code_of, ends_with,
                            give, judge, methods_of, revoke)

Code = grpc.StatusCode
HOLDERS = [*LADDER, "node"]  # of certificates
# garbled: its signature is broken. unknown: of the CA, which nobody gave, and with a role in its name.
REFUSED_IN_THE_HANDSHAKE = ["expired", "revoked", "foreign", "garbled"]
CERTIFICATE_STATES = ["good", *REFUSED_IN_THE_HANDSHAKE, "unknown"]
# used up: by a node that joined, and then revoked.
JOIN_REASONS = {**REASONS, "used": "TOKEN_USED", "used up": "TOKEN_USED"}
JOIN_STATES = ["good", *JOIN_REASONS]


@pytest.fixture(scope="module")
def beyond(tmp_path_factory, stubs):
    """A coordinator alone on its host. It gave its first nodes certificates of three seconds."""
    cluster, network = Cluster(tmp_path_factory.mktemp("certificates"), stubs), None
    try:
        network = net.Network()
        coordinator, = net.Hosts(network, cluster).start(options=["--node-certificate-s", 3])
        yield coordinator
    finally:
        cluster.close()
        if network:
            network.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("keys")


class Shown:
    """A certificate with its key, as files, and the id by which it is listed."""

    def __init__(self, folder, name, pem, key, id_="", of=None):
        self.pem, self.key, self.id, self.of = folder / f"{name}.pem", key, id_, of
        self.pem.write_text(pem)

    def channel(self, daemon):
        """To the coordinator, without a token."""
        ca = (daemon.state_dir / "tls/ca.pem").read_bytes()
        made = grpc.ssl_channel_credentials(ca, self.key.read_bytes(), self.pem.read_bytes())
        return grpc.secure_channel(daemon.host.network.way_to(daemon.address), made,
                                   [("grpc.ssl_target_name_override", daemon.host.address)])

    def serial(self):
        return subprocess.run(["openssl", "x509", "-in", self.pem, "-noout", "-serial"], check=True, capture_output=True,
                              text=True).stdout.strip().split("=")[1]


def certify(daemon, folder, role, name, expires_s=0):
    m = daemon.cluster.stubs.admin
    request, key = request_of(folder, name)
    made = daemon.stub("Admin").CreateToken(m.CreateTokenRequest(
        role=m.Token.Role.Value(role.upper()), request=request, expires_in_s=expires_s), timeout=20)
    assert made.token.name == name and made.token.serial and not made.text
    return Shown(folder, name, made.certificate, key, made.token.id)


def join_token(daemon, name=""):
    """(text, id) of a new one. The text without the CA's fingerprint, which is for the node."""
    m = daemon.cluster.stubs.admin
    made = daemon.stub("NodeAdmin").CreateJoinToken(m.CreateJoinTokenRequest(name=name), timeout=20)
    return made.text.split(".")[0], made.token.id


def join(daemon, folder, name, text=None):
    """The certificate of a node that joins."""
    m = daemon.cluster.stubs.node
    request, key = request_of(folder, f"n-{name}")
    with daemon.dial() as channel:
        answer = daemon.cluster.stubs.node_grpc.NodeServiceStub(channel).Join(
            m.JoinRequest(node_id=f"n-{name}", name=name, request=request), timeout=20,
            metadata=[("authorization", "Bearer " + (text or join_token(daemon, name)[0]))])
    return Shown(folder, f"n-{name}", answer.certificate, key, f"n-{name}")


def signed(folder, tls, file, like, serial, subject):
    """A certificate by the CA of a folder, for the key of a good one."""
    request = subprocess.run(["openssl", "req", "-new", "-key", like.key, "-subj", subject], check=True, capture_output=True)
    (folder / "client.ext").write_text("extendedKeyUsage=clientAuth\n")
    made = subprocess.run(["openssl", "x509", "-req", "-CA", tls / "ca.pem", "-CAkey", tls / "ca.key", "-set_serial", serial,
                           "-days", "2", "-extfile", folder / "client.ext"],
                          check=True, input=request.stdout, capture_output=True)
    return Shown(folder, file, made.stdout.decode(), like.key, of=like.pem.stem)


def foreign(folder, role, like):
    """Of another CA, with the name and the serial number of a good one."""
    other = folder / "other"
    subprocess.run([BIN / "traind", "init", "--state-dir", other], check=True, stdout=subprocess.DEVNULL)
    return signed(folder, other / "tls", f"foreign-{role}", like, "0x" + like.serial(), f"/CN={like.pem.stem}")


def garbled(folder, role, like):
    """A good one but for the last bit of its signature."""
    text = like.pem.read_text().split("-----")
    der = bytearray(base64.b64decode(text[2]))
    der[-1] ^= 1
    return Shown(folder, f"garbled-{role}", ssl.DER_cert_to_PEM_cert(bytes(der)), like.key, of=like.pem.stem)


@pytest.fixture(scope="module")
def certificates(beyond, folder):
    """By (role, kind). A node's were given when it joined."""
    shown = {("node", "expired"): join(beyond, folder, "expired")}
    until("the node's certificate is over", lambda: "certificate expired node=n-expired" in beyond.log.read_text(), 20)
    beyond.args[beyond.args.index("--node-certificate-s") + 1] = "3600"
    beyond.restart()
    admin, m = beyond.stub("NodeAdmin"), beyond.cluster.stubs.admin
    for role in LADDER:
        shown[role, "expired"] = certify(beyond, folder, role, f"expired-{role}", expires_s=1)
        shown[role, "revoked"] = certify(beyond, folder, role, f"revoked-{role}")
        revoke(beyond, shown[role, "revoked"].id)
        shown[role, "good"] = certify(beyond, folder, role, f"good-{role}")
    shown["node", "revoked"], shown["node", "good"] = (join(beyond, folder, x) for x in ("revoked", "good"))
    admin.RevokeNode(m.RevokeNodeRequest(node="revoked"), timeout=20)
    for number, role in enumerate(HOLDERS):
        good = shown[role, "good"]
        shown[role, "foreign"], shown[role, "garbled"] = foreign(folder, role, good), garbled(folder, role, good)
        subject = f"/O={role}/OU={role}/CN={good.pem.stem}"
        shown[role, "unknown"] = signed(folder, beyond.state_dir / "tls", f"unknown-{role}", good, str(4711 + number), subject)
    late = [f"token expired token={shown[role, 'expired'].id}" for role in LADDER]
    until("the certificates of people are over", lambda: all(x in beyond.log.read_text() for x in late), 20)
    return shown


@pytest.fixture(scope="module")
def join_tokens(beyond, folder):
    """By state: the text of a join token."""
    texts = {state: join_token(beyond) for state in ("good", "revoked", "used", "used up")}
    revoke(beyond, texts["revoked"][1])
    for state in ("used", "used up"):
        join(beyond, folder, state.replace(" ", "-"), texts[state][0])
    revoke(beyond, texts["used up"][1])
    texts = {state: text for state, (text, _) in texts.items()}
    texts["garbled"] = texts["good"][:-1] + ("0" if texts["good"][-1] != "0" else "1")
    other = net.HostDaemon(beyond.cluster, beyond.host.network.host("other"), ["--role", "coordinator"])
    there = other.host.address
    subprocess.run([BIN / "traind", "init", "--state-dir", other.state_dir, "--host", there], check=True,
                   stdout=subprocess.DEVNULL)
    other.args += ["--listen", f"{there}:0"]
    texts["foreign"] = other.start().ctl("node", "token", check=0).stdout.split(".")[0]
    other.kill(signal.SIGTERM)
    beyond.args += ["--join-token-s", "1"]
    beyond.restart()
    texts["expired"], token_id = join_token(beyond)
    until("it has expired", lambda: f"token expired token={token_id}" in beyond.log.read_text(), 20)
    del beyond.args[-2:]
    beyond.restart()
    return texts


def failed_handshakes(daemon):
    info = daemon.stub("Admin").GetClusterInfo(daemon.cluster.stubs.admin.GetClusterInfoRequest(), timeout=20)
    return info.counters["handshakes_failed"]


def every_call(daemon, shown):
    """How every method of the server was refused, by its path. None: it was not."""
    known = methods_of(daemon)
    with shown.channel(daemon) as channel:
        return {path: ask(channel, path, method) for path, method in known.items()}


def codes(answers):
    return {path: refused.code() if refused else Code.OK for path, refused in answers.items()}


def test_no_credential_of_the_coordinator_is_without_cells(beyond, folder):
    """What it gives out, and what can become of that, is what the tests here and in the other file go over."""
    m, create = beyond.cluster.stubs.admin, beyond.stub("Admin").CreateToken
    words = lambda enum: {word.lower() for word, number in enum.items() if number}

    def is_given(role, request):
        try:
            create(m.CreateTokenRequest(role=role.upper(), request=request), timeout=20)
        except grpc.RpcError as e:
            assert e.code() == Code.INVALID_ARGUMENT and "role" in e.details(), e
            return False
        return True

    request, _ = request_of(folder, "whoever")
    assert {role for role in words(m.Token.Role) if is_given(role, "")} == set(ROLES)
    assert {role for role in words(m.Token.Role) if is_given(role, request)} == set(HOLDERS) - {"node"}  # which joins
    assert words(m.Token.Role) == {*ROLES, *HOLDERS, JOIN}
    ends = words(m.Token.State) - {"valid"}
    assert ends == ends & set(JOIN_STATES) and ends - {"used"} <= set(STATES) & set(CERTIFICATE_STATES)


@pytest.mark.parametrize("state", JOIN_STATES)
def test_every_method_with_a_join_token(beyond, folder, join_tokens, state):
    m = beyond.cluster.stubs.node
    request, _ = request_of(folder, "n-another")  # a token that was used is one machine's, which may say the same again
    whole = m.JoinRequest(node_id="n-another", name="another", request=request).SerializeToString()
    with beyond.dial() as channel:
        for path, method in methods_of(beyond).items():
            message = whole if path == NODE + "Join" and state != "good" else None
            judge(path, JOIN, ask(channel, path, method, join_tokens[state], message), JOIN_REASONS.get(state))
    admin = beyond.cluster.stubs.admin
    listed = {t.id: t.state for t in beyond.stub("Admin").ListTokens(admin.ListTokensRequest(), timeout=20).tokens}
    assert listed[join_tokens["good"].split("_")[1]] == admin.Token.VALID  # none of these has spent it


@pytest.mark.parametrize("role", HOLDERS)
def test_every_method_with_a_good_certificate_of_every_role(beyond, certificates, role):
    for path, refused in every_call(beyond, certificates[role, "good"]).items():
        judge(path, role, refused)


@pytest.mark.parametrize("role", HOLDERS)
def test_certificate_of_the_ca_is_nobodys_when_it_was_not_given(beyond, certificates, role):
    """Roles are not in certificates: what its name says of a role is worth nothing."""
    for path, refused in every_call(beyond, certificates[role, "unknown"]).items():
        judge(path, role, refused, "CERTIFICATE_UNKNOWN")


@pytest.mark.parametrize("state", REFUSED_IN_THE_HANDSHAKE)
@pytest.mark.parametrize("role", HOLDERS)
def test_handshake_is_refused_and_counted_when_the_certificate_is_not_good(beyond, certificates, role, state):
    excused = (role, state) == ("node", "expired")  # it is let in to renew, and for nothing else
    before = failed_handshakes(beyond)
    for path, code in codes(every_call(beyond, certificates[role, state])).items():
        if excused:
            open_to_it = NEEDS[path] == OPEN or path == NODE + "Renew"
            assert (code == Code.UNAUTHENTICATED) != open_to_it and code != Code.UNAVAILABLE, (path, code)
        else:
            assert code == Code.UNAVAILABLE, (path, role, state, code)
    assert (failed_handshakes(beyond) > before) != excused


def test_token_is_judged_when_a_certificate_is_shown_too(beyond, certificates, join_tokens):
    known = methods_of(beyond)
    with certificates["admin", "good"].channel(beyond) as channel:
        for path, method in known.items():
            judge(path, JOIN, ask(channel, path, method, join_tokens["good"]))
            judge(path, "admin", ask(channel, path, method, join_tokens["revoked"]), "TOKEN_REVOKED")


@pytest.mark.parametrize("role, kind", [("admin", "expired"), ("admin", "revoked"), ("admin", "foreign"), ("node", "revoked"),
                                        ("node", "foreign")])
def test_line_says_why_when_a_handshake_is_refused(beyond, certificates, role, kind):
    beyond.restart()  # one line every few seconds says how many there were: this is the first
    shown, seen = certificates[role, kind], len(beyond.log.read_text())
    before = failed_handshakes(beyond)
    assert set(codes(every_call(beyond, shown)).values()) == {Code.UNAVAILABLE}
    assert failed_handshakes(beyond) > before
    name = shown.of or shown.pem.stem
    why = {"expired": "has expired on 20", "revoked": f"was revoked (serial {shown.serial()})",
           "foreign": "was issued by another CA", "garbled": "was issued by another CA"}[kind]
    said = until("a line says so", lambda: [x for x in beyond.log.read_text()[seen:].splitlines() if "connection refused" in x])
    assert len(said) == 1 and f"the certificate of '{name}' {why}" in said[0], said


def test_open_connection_is_refused_every_method_when_its_certificate_has_ended(beyond, folder):
    known = methods_of(beyond)
    gone, late = certify(beyond, folder, "admin", "gone"), certify(beyond, folder, "admin", "late", expires_s=3)
    listing = "/" + ADMIN + "ListTokens"
    raw = dict(request_serializer=lambda b: b, response_deserializer=lambda b: b)
    with gone.channel(beyond) as first, late.channel(beyond) as second:
        for channel in (first, second):
            channel.unary_unary(listing, **raw)(b"", timeout=10)
        revoke(beyond, gone.id)
        until("the other has expired", lambda: f"token expired token={late.id}" in beyond.log.read_text(), 20)
        for channel, reason in ((first, b"CERTIFICATE_REVOKED"), (second, b"CERTIFICATE_EXPIRED")):
            for path, method in known.items():
                code = call(channel, path, method)
                assert (code == Code.UNAUTHENTICATED) == (NEEDS[path] != OPEN), (path, reason, code)
            with pytest.raises(grpc.RpcError) as error:
                channel.unary_unary(listing, **raw)(b"", timeout=10)
            assert reason in dict(error.value.trailing_metadata())["grpc-status-details-bin"]


@contextlib.contextmanager
def few_descriptors(daemon, folder):
    """Restarted so that 32 numbers are all it has for connections; afterwards again as it was."""
    before, daemon.bin = daemon.bin, under_limit(folder / "bin", "-n 128")
    try:
        daemon.restart()
        yield
    finally:
        daemon.bin = before
        daemon.restart()


def test_connection_never_has_the_identity_of_the_one_that_had_its_number_before(beyond, folder, tmp_path):
    admin, viewer = certify(beyond, folder, "admin", "before"), certify(beyond, folder, "viewer", "after")
    listing = lambda channel: channel.unary_unary("/" + ADMIN + "ListTokens", request_serializer=lambda b: b,
                                                  response_deserializer=lambda b: b)
    with few_descriptors(beyond, tmp_path):
        for i in range(100):
            with admin.channel(beyond) as channel:
                listing(channel)(b"", timeout=20)
                for _ in range(i % 4):
                    listing(channel).future(b"", timeout=20)  # it ends with the connection, read or not
            with viewer.channel(beyond) as channel:
                assert code_of(listing(channel), b"") == Code.PERMISSION_DENIED, i
            with beyond.dial() as channel:
                assert code_of(listing(channel), b"") == Code.UNAUTHENTICATED, i


def test_streams_end_within_a_second_when_a_certificate_ends(beyond, folder):
    job, m = beyond.submit(), beyond.cluster.stubs.job
    watch = lambda shown, channel: beyond.cluster.stubs.job_grpc.JobServiceStub(channel).WatchJob(
        m.WatchJobRequest(id=job), timeout=60)
    gone, kept = certify(beyond, folder, "viewer", "watcher"), certify(beyond, folder, "viewer", "keeper")
    with gone.channel(beyond) as first, kept.channel(beyond) as second:
        stream, other = watch(gone, first), watch(kept, second)
        assert next(stream).job.id == next(other).job.id == job
        since = [time.monotonic()]
        revoke(beyond, gone.id)
        code, s = ends_with(stream, since)
        assert code == Code.UNAUTHENTICATED and s < 1, (code, s)
        short = certify(beyond, folder, "viewer", "short", expires_s=2)
        created = time.monotonic()
        with short.channel(beyond) as third:
            code, s = ends_with(watch(short, third), [created])
        assert code == Code.UNAUTHENTICATED and 0.5 < s < 4, (code, s)
        beyond.steer("Cancel", job)
        assert [r.job.State.Name(r.job.state) for r in other][-1] == "CANCELLED"


def test_certificate_and_token_of_one_name_are_one_person(beyond, folder):
    m = beyond.cluster.stubs.job
    alice, bob = (certify(beyond, folder, "submitter", x) for x in ("alice", "bob"))
    stub_of = lambda channel: beyond.cluster.stubs.job_grpc.JobServiceStub(channel)
    with alice.channel(beyond) as hers, bob.channel(beyond) as his:
        job = stub_of(hers).CreateJob(m.CreateJobRequest(spec=SPEC), timeout=20)
        assert (job.owner, job.owner_token) == ("alice", alice.id)
        assert code_of(stub_of(his).CancelJob, m.CancelJobRequest(id=job.id)) == Code.PERMISSION_DENIED
        admin = beyond.cluster.stubs.admin
        text = beyond.stub("Admin").CreateToken(admin.CreateTokenRequest(role=admin.Token.SUBMITTER, name="alice"),
                                                timeout=20).text
        with beyond.dial() as plain:  # another day, by a token
            stub_of(plain).CancelJob(m.CancelJobRequest(id=job.id), timeout=20,
                                     metadata=[("authorization", f"Bearer {text}")])
    until("lines are written", lambda: audit(beyond, method=JOB + "CancelJob", code="OK", object=job.id))
    assert audit(beyond, method=JOB + "CreateJob", token=alice.id, name="alice", role="submitter", code="OK")
    assert audit(beyond, method=JOB + "CancelJob", token=bob.id, name="bob", code="PERMISSION_DENIED")


def test_request_that_cannot_be_signed_is_refused(beyond, folder):
    m, create = beyond.cluster.stubs.admin, beyond.stub("Admin").CreateToken
    request, key = request_of(folder, "carol")
    rsa = subprocess.run(["openssl", "req", "-new", "-newkey", "rsa:2048", "-nodes", "-keyout", folder / "rsa.key", "-subj",
                          "/CN=carol"], check=True, capture_output=True, text=True).stdout
    nobody = subprocess.run(["openssl", "req", "-new", "-key", key, "-subj", "/O=x"], check=True, capture_output=True,
                            text=True).stdout
    for fields, word in (({"request": "nonsense"}, "request"), ({"request": rsa}, "P-256"),
                         ({"request": request, "name": "mallory"}, "'carol'"), ({"request": nobody}, "whose"),
                         ({"request": request, "role": m.Token.NODE}, "node token"),
                         ({"request": request, "expires_in_s": 1 << 60}, "100 years"),
                         ({"request": request_of(folder, "owner")[0]}, "owner")):
        with pytest.raises(grpc.RpcError) as error:
            create(m.CreateTokenRequest(**{"role": m.Token.VIEWER, **fields}), timeout=20)
        assert error.value.code() == Code.INVALID_ARGUMENT and word in error.value.details(), (fields, error.value)
    assert not [t for t in beyond.stub("Admin").ListTokens(m.ListTokensRequest(), timeout=20).tokens if t.name == "carol"]


def test_certificates_outlive_a_restart(beyond, folder):
    good, gone = certify(beyond, folder, "viewer", "stays"), certify(beyond, folder, "viewer", "goes")
    revoke(beyond, gone.id)
    beyond.restart()
    ask = lambda shown, channel: channel.unary_unary("/" + JOB + "ListJobs", request_serializer=lambda b: b,
                                                     response_deserializer=lambda b: b)(b"", timeout=10)
    with good.channel(beyond) as channel:
        ask(good, channel)
    with gone.channel(beyond) as channel:
        assert code_of(ask, gone, channel) == Code.UNAVAILABLE
    m = beyond.cluster.stubs.admin
    listed = {t.id: t for t in beyond.stub("Admin").ListTokens(m.ListTokensRequest(), timeout=20).tokens}
    assert (listed[good.id].state, listed[gone.id].state) == (m.Token.VALID, m.Token.REVOKED)
    assert listed[good.id].serial == good.serial() and listed[good.id].last_use_time and listed[good.id].expire_time


def test_certificate_and_token_of_one_name_share_what_the_role_may_open(beyond, folder):
    job, shown = beyond.submit(), certify(beyond, folder, "viewer", "eve")
    text, _ = give(beyond, "viewer", "eve")
    by_certificate, by_token = ([f(beyond) for _ in range(2)] for f in (
        shown.channel, lambda d: grpc.intercept_channel(d.dial(), Token(text))))
    channels = [*by_certificate, *by_token]
    by_certificate, by_token = (Eve(beyond.cluster.stubs, iter(c).__next__, job) for c in (by_certificate, by_token))
    n, refused = by_certificate.open(by_certificate.watch)
    assert (n, reason_of(refused)) == (64, "LIMIT_WATCHES"), refused
    n, refused = by_token.open(by_token.watch)
    assert (n, reason_of(refused)) == (0, "LIMIT_WATCHES"), refused
    revoke(beyond, shown.id)
    by_certificate.ended_with("CERTIFICATE_REVOKED")
    assert next(by_token.watch(channels[-1])).job.id == job
    for c in channels:
        c.close()
    beyond.steer("Cancel", job)


# ---- trainctl ------------------------------------------------------------------------------------
def test_person_asks_for_a_certificate_and_uses_it_in_a_context(beyond, folder, tmp_path):
    env = {"XDG_CONFIG_HOME": str(tmp_path), "TRAIND_STATE_DIR": "", "XDG_STATE_HOME": str(tmp_path / "none")}
    ctl = lambda *args, **more: beyond.ctl(*args, env=env, **more)
    key, pem, ca = tmp_path / "erika.key", tmp_path / "erika.pem", beyond.state_dir / "tls/ca.pem"
    csr = tmp_path / "erika.csr"
    csr.write_text(ctl("token", "request", "--key", key, "--name", "erika", check=0).stdout)
    assert key.stat().st_mode & 0o777 == 0o600 and "PRIVATE" not in csr.read_text()
    again = ctl("token", "request", "--key", key, "--name", "erika", check=0).stdout
    assert again.startswith("-----BEGIN CERTIFICATE REQUEST")  # the key that is there
    made = beyond.ctl("token", "create", "--role", "submitter", "--csr", csr, "--expires", "30d", check=0)
    pem.write_text(made.stdout)
    assert made.stdout.startswith("-----BEGIN CERTIFICATE-----") and "certificate" in made.stderr and "'erika'" in made.stderr
    there = ["--address", beyond.address, "--ca", ca]
    shown = ["--cert", pem, "--key", key]
    ctl("context", "add", "prod", *there, *shown, check=0)
    ctl("context", "use", "prod", check=0)
    assert str(pem) in ctl("context", "list", check=0).stdout
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC)
    job = ctl("submit", spec, "-o", "name", check=0).stdout.strip()
    assert "erika (token" in ctl("describe", job, check=0).stdout
    assert "role admin" in ctl("token", "list", check=4).stderr
    ctl("list", *there, *shown, check=0)  # by flags
    assert beyond.ctl("list", env=dict(env, TRAIND_ADDRESS=beyond.address, TRAIND_CA=str(ca), TRAIND_CERT=str(pem),
                                       TRAIND_KEY=str(key))).returncode == 0
    listed = [t for t in json.loads(beyond.ctl("token", "list", "-o", "json", check=0).stdout)["tokens"] if t["name"] == "erika"]
    assert listed[0]["serial"] and listed[0]["state"] == "VALID" and listed[0]["last_use_time"]
    assert "certificate" in beyond.ctl("token", "list", check=0).stdout
    for args, word in (([*there, "--cert", pem], "--key"), (["--address", "127.0.0.1:1", *shown], "no TLS"),
                       ([*there, "--cert", tmp_path / "none", "--key", key], "none")):
        assert word in ctl("list", *args, "--timeout", "5").stderr, args
    assert "--key" in ctl("context", "add", "x", *there, "--cert", pem, check=2).stderr
    beyond.steer("Cancel", job)
    beyond.ctl("token", "revoke", listed[0]["id"], check=0)
    refused = ctl("list", "--timeout", "5", check=5)
    assert "revoked" in refused.stderr and str(pem) in refused.stderr, refused.stderr
