"""Debian's packages: what is in them, and what their scripts do when one is upgraded, removed or purged."""
import os
import re
import shutil
import subprocess

import pytest

import support
from marks import full_only
from test_s79_install import files, installed, make  # noqa: F401 (installed is a fixture)

SCRIPTS = support.ROOT / "deploy/debian"


def run_script(name, verb, bin_dir=None, root=""):
    """A maintainer script as dpkg runs it, where there is no systemd. It looks for programs in bin_dir."""
    text = (SCRIPTS / f"traind.{name}").read_text().replace("#DEBHELPER#", "").replace("/usr/bin/", f"{bin_dir}/")
    return subprocess.run(["sh", "-c", text, name, verb], check=True, capture_output=True, text=True, timeout=200,
                          env={**os.environ, "DPKG_ROOT": str(root)}).stderr


@full_only
def test_ranks_of_a_node_outlived_the_package(cluster, installed):
    coordinator = cluster.start("--role", "coordinator", "--allow", "all")
    node = cluster.make("--role", "node", "--coordinator", coordinator.address, "--slots", 2, "--token-file",
                        coordinator.state_dir / "token", "--name", "packaged", name="packaged")
    node.bin = installed / "opt/tr/bin"
    node.start()
    job = coordinator.submit(support.BUSY, "trainer.devices=2")
    coordinator.wait_step(job, 20)
    ranks = node.workers(job)
    assert len(ranks) == 2
    said = run_script("prerm", "upgrade", node.bin)
    assert said == "" and node.process.poll() is None and node.workers(job) == ranks, "an upgrade leaves them alone"
    said = run_script("prerm", "remove", node.bin)
    assert "traind is running" in said and "traind-launcher is running" in said
    assert node.process.wait(5) == 0 and not any(os.path.exists(f"/proc/{pid}") for pid in ranks)
    assert coordinator.process.poll() is None, "another program of that name, from another folder"
    saved = max(int(step) for step in re.findall(r"step-(\d+)'", str(support.below(node.state_dir, "step-*"))))
    node.start()
    coordinator.wait_step(job, saved + 20)
    again = [p.step for p in coordinator.points(job) if p.attempt == 2]
    assert min(again) == saved + 1, "a reinstalled node goes on from what was saved"


def test_purge_kept_state_without_a_word(tmp_path):
    made = ["run/traind/socket", "run/traind-node/socket", "etc/default/traind", "etc/default/traind-node",
            "var/lib/traind/state.db", "var/lib/traind-node/node-id", "etc/default/other"]
    for name in made:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    assert run_script("postrm", "remove", root=tmp_path) == "" and files(tmp_path) == set(made)
    said = run_script("postrm", "purge", root=tmp_path)
    assert files(tmp_path) == {"etc/default/other", "var/lib/traind/state.db", "var/lib/traind-node/node-id"}
    assert not list((tmp_path / "run").iterdir())
    for name in ("traind", "traind-node"):
        assert re.search(rf"kept: {tmp_path}/var/lib/{name} \(\S+\) .* tokens.*rm -r {tmp_path}/var/lib/{name}$", said, re.M), said


@full_only
def test_packages_have_what_is_installed_and_make_the_user(installed, tmp_path):
    for program in ("dpkg-buildpackage", "dh"):
        if not shutil.which(program):
            pytest.skip(f"no packaging tools here: {program}")
    make("deb", "", "")
    version = subprocess.check_output([support.BIN / "trainctl", "version", "-o", "name"], text=True).strip()
    debs = {p.name.split("_")[0]: p for p in (support.BUILD / "deb").glob("*.deb")}
    assert {"traind", "trainctl", "libtraind-dev"} <= set(debs)
    for name in ("traind", "trainctl", "libtraind-dev"):
        subprocess.run(["dpkg-deb", "-x", debs[name], tmp_path], check=True)
    assert all(version in p.name for p in debs.values()), debs
    listed = subprocess.run(["dpkg-deb", "-c", debs["traind"]], check=True, capture_output=True, text=True).stdout
    assert " ./usr/share/traind/examples/synthetic.yaml\n" in listed, "an example is there without libtraind-dev"
    found = {os.path.basename(name).removesuffix(".gz") for name in files(tmp_path)}
    wanted = {os.path.basename(name) for name in files(installed)} - {"installed"}
    assert wanted <= found, wanted - found
    subprocess.run(["dpkg-deb", "-e", debs["traind"], tmp_path / "control"], check=True)
    scripts = {name: (tmp_path / "control" / name).read_text() for name in ("postinst", "prerm")}
    assert scripts["prerm"].index("deb-systemd-invoke stop") < scripts["prerm"].index("end traind-launcher 90"), "units first"
    assert "sysusers" in scripts["postinst"] and "_dh_action=restart" in scripts["postinst"]
    for unit_name in ("traind.service", "traind-node.service"):
        assert f"deb-systemd-invoke $_dh_action '{unit_name}'" in scripts["postinst"], "an upgrade restarts what runs"
        assert f"deb-systemd-invoke stop '{unit_name}'" in scripts["prerm"], "a removal stops it"
    assert "ldconfig" in (tmp_path / "control/triggers").read_text()
