"""What `make install` puts where, that `make uninstall` takes exactly that, and units that a real job fits into."""
import os
import re
import shutil
import subprocess
import sys

import pytest

import support

CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS", "CFLAGS", "CPPFLAGS"))}


def make(target, root, prefix="/usr"):
    build = os.path.relpath(support.BUILD, support.ROOT)  # another name of the folder would build all of it again
    done = subprocess.run(["make", target, f"B={build}", f"DESTDIR={root}", f"PREFIX={prefix}"], cwd=support.ROOT,
                          env=CLEAN, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def files(root):
    return {str(p.relative_to(root)) for p in root.rglob("*") if not p.is_dir()}


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    make("install", root, "/opt/tr")
    return root


def test_everything_is_there(installed):
    found = files(installed / "opt/tr")
    assert files(installed) == {f"opt/tr/{name}" for name in found}
    assert {"bin/traind", "bin/trainctl", "bin/traind-run", "lib/libtraind.so", "lib/traind/accelerator-cpu.so",
            "include/traind/module.h", "lib/pkgconfig/traind.pc", "lib/systemd/system/traind.service",
            "lib/systemd/system/traind-node.service", "lib/sysusers.d/traind.conf", "share/man/man1/trainctl.1",
            "share/man/man5/traind-job.5", "share/man/man8/traind.8", "share/traind/examples/fashion-mnist.yaml",
            "share/traind/examples/plugins/Makefile", "share/traind/proto/traind/v1/job.proto",
            "share/bash-completion/completions/trainctl", "share/zsh/site-functions/_trainctl",
            "share/fish/vendor_completions.d/trainctl.fish"} <= found
    written = (installed / "opt/tr/share/traind/installed").read_text().splitlines()
    assert set(written) | {"share/traind/installed"} == found and len(written) == len(set(written))
    texts = [installed / "opt/tr" / name for name in found if name.startswith(("lib/systemd", "lib/pkgconfig"))]
    assert len(texts) == 3 and all("/opt/tr" in p.read_text() and "@" not in re.sub("@system", "", p.read_text()) for p in texts)
    assert str(installed) not in "".join(p.read_text() for p in texts)


def test_uninstall_takes_exactly_what_install_put(tmp_path):
    others = ["usr/lib/traind/module-own.so", "usr/bin/other", "usr/share/traind/notes", "usr/include/traind/own.h"]
    for name in others:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("of somebody else")
    make("install", tmp_path)
    make("install", tmp_path)  # over itself
    assert len(files(tmp_path)) > 60
    make("uninstall", tmp_path)
    assert files(tmp_path) == set(others)
    make("uninstall", tmp_path)
    for name in others:
        (tmp_path / name).unlink()
    make("install", tmp_path)
    make("uninstall", tmp_path)
    left = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*traind*")}
    assert left <= {os.path.dirname(name) for name in others}, left


def test_installed_protos_make_a_client_and_programs_train(installed, tmp_path):
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", "-I", installed / "opt/tr/share/traind/proto",
                    f"--python_out={tmp_path}", "traind/v1/job.proto"], check=True, capture_output=True)
    assert (tmp_path / "traind/v1/job_pb2.py").exists()
    spec = support.spec_file(tmp_path, support.SPEC)
    subprocess.run([installed / "opt/tr/bin/trainctl", "run", spec, "-O", tmp_path / "out", "--set", "trainer.max_steps=3"],
                   check=True, capture_output=True, timeout=120)
    assert list((tmp_path / "out").glob("**/step-3"))


# ---- units ----------------------------------------------------------------------------------------
def unit(installed, name):
    return installed / "opt/tr/lib/systemd/system" / name


@pytest.mark.parametrize("name", ["traind.service", "traind-node.service"])
def test_units_are_hardened(installed, name):
    text = unit(installed, name).read_text()
    assert "ExecStart=/opt/tr/bin/traind" in text and "User=traind" in text and "StateDirectory=traind" in text
    assert not re.search(r"^MemoryDenyWriteExecute", text, re.M), "kernels are made while ranks run"
    assert not re.search(r"^OOMScoreAdjust", text, re.M), "ranks inherit it: others would be killed for memory that they take"
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze here")
    ran = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=40", unit(installed, name)],
                         capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-400:] + ran.stderr


def allowed_calls(group, seen=()):
    text = subprocess.run(["systemd-analyze", "syscall-filter", group], check=True, capture_output=True, text=True).stdout
    names = set(re.findall(r"^ +(@?[a-z0-9_-]+)$", text, re.M)) - set(seen)
    return set().union(*[allowed_calls(n, names) if n[0] == "@" else {n} for n in names], set())


def test_a_job_makes_no_system_call_that_the_unit_refuses(cluster, installed, tmp_path):
    if not shutil.which("systemd-analyze") or not shutil.which("strace"):
        pytest.skip("no systemd-analyze here, or no strace")
    groups = re.search(r"^SystemCallFilter=(\S+)$", unit(installed, "traind.service").read_text(), re.M)[1]
    daemon, trace = cluster.make("--slots", "2"), tmp_path / "calls"
    daemon.popen = lambda command, **how: subprocess.Popen(
        ["strace", "-D", "-f", "-qq", "-c", "-o", trace, *map(str, command)], **how)
    daemon.start()
    daemon.finish(daemon.submit(support.SPEC, "trainer.devices=2", "trainer.max_steps=20"), deadline_s=200)
    support.until("its directory is gone", lambda: not daemon.attempts())
    daemon.kill(15)
    support.until("strace has written", lambda: trace.exists() and "total" in trace.read_text())
    made = {line.split()[-1] for line in trace.read_text().splitlines()[2:] if line.split() and line.split()[0][0].isdigit()}
    made -= {"total"}
    assert {"mmap", "clone", "pidfd_open"} & made and "epoll_wait" in made, made
    assert made - allowed_calls(groups) == set()
