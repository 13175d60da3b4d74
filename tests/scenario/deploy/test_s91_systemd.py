"""The units under a real systemd: PID 1 of namespaces whose /usr is this machine's and whose other folders are a tmpfs.
All of it, mounts included, ends with the process that holds it. What is typed there is what README.md and
docs/cluster.md say. Jobs are real ones: what oneDNN generates, ranks that share memory, programs of a user.
"""
import contextlib
import json
import os
import re
import shutil
import sqlite3
import subprocess

import pytest

from hosts import child_of
from support import BUILD, BUSY, ROOT, SPEC, until
from test_s79_install import make

# $1: the empty folder that becomes the root, $2: what was installed, $3: name of its group below the root of cgroup v2
BOOT = """
mount -t tmpfs run /run && mkdir /run/cg && mount -t cgroup2 none /run/cg
mkdir "/run/cg/$3"
echo $$ > "/run/cg/$3/cgroup.procs"
umount -R -l /sys/fs/cgroup
mount --move /run/cg /sys/fs/cgroup
mount -t tmpfs root "$1"
cd "$1"
mkdir -p dev etc/default home opt proc root run srv sys usr var
for d in bin sbin lib lib32 lib64 libx32; do [ ! -L "/$d" ] || ln -s "usr/$d" "$d"; done
for f in alternatives ld.so.cache ld.so.conf ld.so.conf.d login.defs nsswitch.conf pam.d security ssl; do
    [ ! -e "/etc/$f" ] || cp -a "/etc/$f" etc/
done
cp -L /etc/os-release etc/
echo 0123456789abcdef0123456789abcdef > etc/machine-id
UNIFIED_CGROUP_HIERARCHY=1 exec systemd-nspawn --boot --quiet --register=no --keep-unit --private-network \\
    --console=pipe --bind-ro=/usr --bind-ro="$2":/usr/local -D "$1"
"""
UNGROUP = 'mount -t cgroup2 none "$1" && { [ ! -e "$1/$2" ] || find "$1/$2" -depth -type d -exec rmdir {} +; }'
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CONVNET = "/usr/local/share/traind/examples/fashion-mnist-convnet.yaml"


class Machine:
    """What systemd runs on. `run` is a shell of root there."""

    def __init__(self, folder):
        self.root, self.log, self.group = folder / "root", folder / "log", f"traind-test-{os.getpid()}"
        self.root.mkdir()
        make("install", folder / "installed", "/usr/local")
        with open(self.log, "wb") as log:
            self.holder = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                 "sh", "-euc", BOOT, "sh", self.root, folder / "installed/usr/local", self.group],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def is_up(self):
        assert self.holder.poll() is None, f"systemd has ended: {self.log.read_text(errors='replace')}"
        nspawn = child_of(self.holder.pid)
        self.init = nspawn and child_of(nspawn)
        return self.init and self.shell("systemctl is-system-running").stdout.strip() == "running"

    def shell(self, script, user="root", stdin=None, timeout=60):
        """A process there. `user` may not exist yet where it is root."""
        words = ["nsenter", "-t", self.init, "-m", "-u", "-i", "-n", "-p", "-C", "env", "-i", f"PATH={PATH}",
                 "LANG=C.UTF-8", f"HOME={'/root' if user == 'root' else '/home/' + user}"]
        if user != "root":
            words += ["setpriv", "--reuid", user, "--regid", user, "--init-groups"]
        return subprocess.run([*map(str, words), "sh", "-euc", f"cd $HOME\n{script}"], input=stdin, capture_output=True,
                              text=True, timeout=timeout)

    def run(self, script, check=0, **how):
        done = self.shell(script, **how)
        assert done.returncode == check, f"exit {done.returncode} of:\n{script}\n{done.stdout}{done.stderr}\n{self.journal()}"
        return done.stdout

    def journal(self, *options):
        return self.shell(f"journalctl --no-pager -o cat -n 60 {' '.join(options)}").stdout

    def show(self, name, unit="traind"):
        return self.run(f"systemctl show -P {name} {unit}").strip()

    def submit(self, spec, *overrides, name="spec.yaml"):
        if "\n" in spec:
            self.run(f"cat > {name}", stdin=spec)
            spec = name
        sets = " ".join(f"--set {o}" for o in overrides)
        return self.run(f"trainctl submit {spec} {sets} -o name").strip()

    def job(self, job):
        return json.loads(self.run(f"trainctl describe {job} -o json"))

    def finish(self, job, state="SUCCEEDED"):
        """Waits for a job's end: what is known of it then."""
        until(f"{job} has ended", lambda: self.job(job)["state"] in ("SUCCEEDED", "FAILED", "CANCELLED"), 60)
        found = self.job(job)
        assert found["state"] == state, f"{found}\n{self.journal()}"
        return found

    def wait_step(self, job, step):
        until(f"{job} reaches step {step}", lambda: self.job(job)["global_step"] >= step, 60)

    def workers(self):
        return self.shell("pgrep traind-worker").stdout.split()

    def close(self):
        """The kernel kills with the first process of the namespace all others."""
        os.kill(child_of(self.holder.pid) or self.holder.pid, 9)
        self.holder.wait(20)
        ungroup = ["unshare", "--mount", "sh", "-euc", UNGROUP, "sh", self.root, self.group]
        until("the cgroups are gone", lambda: subprocess.run(ungroup, capture_output=True).returncode == 0)


@pytest.fixture(scope="module")
def machine(full, tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("no systemd-nspawn: it needs root")
    if not shutil.which("systemd-nspawn"):
        pytest.skip("no systemd-nspawn: apt-get install systemd-container")
    folder = tmp_path_factory.mktemp("systemd")
    probe = subprocess.run(["unshare", "--mount", "--pid", "--fork", "mount", "-t", "cgroup2", "none", folder],
                           capture_output=True, text=True)
    if probe.returncode != 0:
        pytest.skip(f"no systemd-nspawn: namespaces or cgroup v2 are missing: {probe.stderr.strip()}")
    made = Machine(folder)
    try:
        until("systemd runs", made.is_up, 30)
        yield made
    finally:
        made.close()
        shutil.rmtree(folder)


@pytest.fixture
def service(machine):
    """traind.service as somebody has it who has just installed it: by README.md's own commands, the job included."""
    block, = re.findall(r"```\n(systemd-sysusers .*?)```", (ROOT / "README.md").read_text(), re.S)
    machine.run(block)
    yield machine
    forget(machine)


def forget(machine):
    machine.run("systemctl disable --now traind traind-node\n"
                "systemctl kill -s KILL traind traind-node || true\nsystemctl reset-failed\n"
                "rm -rf /var/lib/traind* /run/traind* /etc/default/traind* /etc/systemd/system/traind*.d\n"
                "systemctl daemon-reload")


def test_service_runs_as_its_user_with_private_folders(service):
    assert service.run("systemctl is-active traind; systemctl is-enabled traind").split() == ["active", "enabled"]
    assert service.run("stat -c '%U:%G %a' /var/lib/traind /run/traind").split() == ["traind:traind", "700"] * 2
    assert service.run(f"ps -o user= -p {service.show('MainPID')}").strip() == "traind"
    assert service.run("trainctl list --state SUCCEEDED -o name")
    service.run("systemctl stop traind")
    assert service.show("Result") == "success" and service.run("ls -A /run/traind /dev/shm").split() == ["/dev/shm:", "/run/traind:"]
    assert service.journal("-u traind -p warning") == ""
    assert "Start one with `systemctl start traind`, or name one" in service.shell("trainctl list").stderr
    assert "or one of your own with `traind &`" in service.shell("trainctl list --state-dir /var/lib/own").stderr


def test_trainings_run_in_the_service_and_not_without_generated_code(service):
    service.finish(service.submit(SPEC, "trainer.devices=2"))
    net = (CONVNET, "trainer.max_steps=2", "trainer.limit_val_batches=1", "trainer.limit_test_batches=1")
    service.finish(service.submit(*net))
    service.run("mkdir /etc/systemd/system/traind.service.d\n"
                "printf '[Service]\\nMemoryDenyWriteExecute=yes\\n' > /etc/systemd/system/traind.service.d/deny.conf\n"
                "systemctl daemon-reload && systemctl restart traind")
    failed = service.finish(service.submit(*net, "restart.max=0"), "FAILED")
    assert failed["failure"]["class"] == "device" and "oneDNN" in failed["failure"]["message"], failed


def test_jobs_go_on_over_restart_kill_stop_and_pause(service):
    job = service.submit(BUSY, "trainer.devices=2")
    service.wait_step(job, 60)
    service.run("systemctl restart traind")
    service.wait_step(job, service.job(job)["global_step"] + 20)
    assert service.job(job)["attempt"] == 2, "a restart stops ranks with a checkpoint, from which the next attempt goes on"
    ranks, daemon = service.workers(), service.show("MainPID")
    assert len(ranks) == 2
    service.run("systemctl kill -s KILL --kill-whom=main traind")
    until("systemd has started it again", lambda: service.show("ActiveState") == "active" and service.show("MainPID") != daemon)
    service.wait_step(job, service.job(job)["global_step"] + 20)
    assert service.job(job)["attempt"] == 2 and service.workers() == ranks, "its ranks are adopted"
    service.run(f"trainctl pause {job}")
    until("it is paused", lambda: service.job(job)["state"] == "PAUSED")
    at = service.job(job)["global_step"]
    service.run(f"systemctl stop traind && systemctl start traind && trainctl resume {job}")
    service.wait_step(job, at + 20)
    assert service.job(job)["attempt"] == 3
    service.run("systemctl stop traind")
    assert service.workers() == [] and service.show("Result") == "success"


def test_another_user_keeps_a_context_over_restarts(service):
    service.run("useradd -m alice")
    assert "may not be looked into" in service.shell("trainctl list --state-dir /var/lib/traind", user="alice").stderr
    token = service.run("trainctl token create --role submitter --name alice -o name")
    command, = re.findall(r"^(trainctl context add here .*?) +#", (ROOT / "docs/access.md").read_text(), re.M)
    service.run(f"{command}\ntrainctl context use here", user="alice", stdin=token)
    service.run("systemctl restart traind")
    assert json.loads(service.run("trainctl list -o jsonl", user="alice").split("\n")[0])["owner"] == "owner"


def test_a_program_writes_to_its_folder_and_temporary_places_alone(service):
    tried = ["own", "/tmp/own", "/var/tmp/own", "/dev/shm/own", "/var/lib/own", "/home/own", "/usr/own"]
    job = service.submit("kind: command\nname: touch\ntrainer: {devices: 1}\n"
                         f"command: [sh, -c, 'for f in {' '.join(tried)}; do touch $f && rm $f && echo wrote $f; done; true']\n")
    service.finish(job)
    wrote = re.findall(r"wrote (\S+)", service.run(f"trainctl logs {job}"))
    assert wrote == ["own", "/tmp/own", "/var/tmp/own", "/dev/shm/own"]


def test_it_comes_up_once_what_was_in_its_way_is_gone(service):
    """systemd gives up for good after five starts in ten seconds: a unit that restarts at once uses these up."""
    pause, window = (re.fullmatch(r"(\d+)s", service.show(n)) for n in ("RestartUSec", "StartLimitIntervalUSec"))
    assert pause and int(pause[1]) * int(service.show("StartLimitBurst")) > int(window[1])
    service.run("systemctl stop traind")
    service.run("chmod 644 /var/lib/traind/token")
    assert service.shell("systemctl start traind").returncode != 0
    until("it was tried again", lambda: int(service.show("NRestarts")) >= 1)
    until("it waits to be tried again", lambda: service.show("SubState") == "auto-restart")
    service.run("chmod 600 /var/lib/traind/token")
    until("it runs", lambda: service.show("ActiveState") == "active", 10)
    assert "traind ends: the token" in service.journal("-u traind -p err")
    assert "traind ends" in service.journal("-u traind") and "info ready" not in service.journal("-u traind -p warning")


def test_state_of_a_newer_traind_is_not_tried_again(service, tmp_path):
    """It was tried every three seconds, for ever."""
    service.run("systemctl stop traind")
    state = f"/proc/{service.init}/root/var/lib/traind/state.db"  # SQLite would follow that link
    shutil.copyfile(state, tmp_path / "state.db")
    with contextlib.closing(sqlite3.connect(tmp_path / "state.db")) as db, db:
        db.execute("INSERT INTO schema VALUES (999, '', '9.9.9')")
    shutil.copyfile(tmp_path / "state.db", state)
    assert service.shell("systemctl start traind").returncode != 0
    until("it has failed", lambda: service.show("ActiveState") == "failed")
    assert service.show("NRestarts") == "0" and service.show("ExecMainStatus") == "3"
    shown = service.shell("systemctl status --no-pager traind").stdout
    assert re.search(r"Status: \"ended: .*state.db was written by traind 9.9.9 and has schema version 999", shown), shown


def test_coordinator_and_node_are_services_of_one_machine(machine):
    blocks = dict(re.findall(r"```sh unit=(\S+)\n(.*?)```", (ROOT / "docs/cluster.md").read_text(), re.S))
    machine.run("systemd-sysusers && systemctl daemon-reload && ip address add 10.9.0.1/32 dev lo")
    try:
        machine.run(blocks["traind"])
        machine.run("traind init --host 10.9.0.1")  # another certificate, for a daemon that runs
        assert machine.run("find /var/lib/traind ! -user traind") == ""
        machine.run(blocks["traind-node"])
        until("the node is there", lambda: '"READY"' in machine.run("trainctl node list -o json"))
        assert machine.run("stat -c '%U %a' /var/lib/traind-node /run/traind-node").split() == ["traind", "700"] * 2
        job = machine.submit(BUSY, "trainer.devices=2")
        machine.wait_step(job, 10)
        ranks = machine.workers()
        machine.run("systemctl restart traind && systemctl stop traind-node")
        assert len(ranks) == 2 and machine.workers() == ranks
        machine.run("systemctl start traind-node")
        machine.wait_step(job, machine.job(job)["global_step"] + 20)
        assert machine.job(job)["attempt"] == 1 and machine.workers() == ranks
        removal = (ROOT / "deploy/debian/traind.prerm").read_text().replace("/usr/bin/", "/usr/local/bin/")
        stop = "[ $1 != remove ] || deb-systemd-invoke stop traind-node.service traind.service"
        removal = removal.replace("#DEBHELPER#", stop)  # as debhelper does
        machine.run("sh -s upgrade", stdin=removal)
        assert machine.workers() == ranks
        machine.run("sh -s remove", stdin=removal)
        assert machine.workers() == [] and machine.shell("pgrep traind").stdout == ""
        machine.run("systemctl start traind traind-node")
        until("it goes on from what was saved", lambda: machine.job(job)["attempt"] == 2)
        machine.run(f"trainctl cancel {job}")
        machine.finish(job, "CANCELLED")
    finally:
        forget(machine)
