"""deploy/version.sh: a later commit is a later version, also for apt, and what is not known is said."""

import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENV = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")} | {"GIT_CONFIG_GLOBAL": "/dev/null"}


def run(*words, at):
    return subprocess.run(list(map(str, words)), cwd=at, env=ENV, capture_output=True, text=True, check=True, timeout=60).stdout


def commit(tree, text):
    (tree / "file").write_text(text)
    run("git", "add", ".", at=tree)
    run("git", "-c", "user.name=n", "-c", "user.email=e@x", "commit", "-q", "-m", text, at=tree)
    return run("git", "rev-parse", "--short=8", "HEAD", at=tree).strip()


def version(tree, release="0.1.0"):
    return run(tree / "deploy/version.sh", release, at="/").rstrip("\n")


def is_less(a, b):
    return subprocess.run(["dpkg", "--compare-versions", a, "lt", b]).returncode == 0


@pytest.fixture
def tree(tmp_path):
    made = tmp_path / "tree"
    (made / "deploy").mkdir(parents=True)
    for name in ("version.sh", "dist.sh"):
        shutil.copy(ROOT / "deploy" / name, made / "deploy")
    return made


@pytest.fixture
def repository(tree):
    run("git", "init", "-q", at=tree)
    commit(tree, "first")
    return tree


def test_version_grows_with_each_commit(repository):
    versions = ["0.1.0", version(repository)]
    for i in range(2, 12):
        name = commit(repository, str(i))
        versions.append(version(repository))
        assert versions[-1] == f"0.1.0+{i}.g{name}"
        run("git", "tag", f"v0.1.{i}", at=repository)  # a tag takes nothing away
    (repository / "file").write_text("changed")
    versions += [version(repository), "0.1.1"]
    assert versions[-2] == versions[-3] + ".dirty"
    assert all(map(is_less, versions, versions[1:])), versions


def test_files_that_git_does_not_know_change_no_version(repository):
    before = version(repository)
    (repository / "new").write_text("")
    assert version(repository) == before


def test_clone_without_its_history_says_so_and_is_no_newer(repository, tmp_path):
    name = commit(repository, "second")
    run("git", "clone", "-q", "--depth=1", f"file://{repository}", tmp_path / "shallow", at=tmp_path)
    assert version(tmp_path / "shallow") == f"0.1.0+0.g{name}.shallow"
    assert is_less(version(tmp_path / "shallow"), version(repository))


def test_package_breaks_no_package_of_its_own_version():
    """The bound was `<< 0.1.0+1`: traind of a shallow clone broke its own libtraind-dev, which then was never configured."""
    control = (ROOT / "deploy/debian/control").read_text()
    bounds = re.findall(r"^(?:Breaks|Replaces): libtraind-dev \((\S+) (\S+)\)$", control, re.MULTILINE)
    assert len(bounds) == 2
    for relation, bound in bounds:
        def is_broken(v):
            return subprocess.run(["dpkg", "--compare-versions", v, relation, bound]).returncode == 0
        assert is_broken("0.1.0")
        assert not any(map(is_broken, ["0.1.0+0.g7f2520b9.shallow", "0.1.0+0.unknown", "0.1.0+1.g7f2520b9", "0.1.1"]))


def test_tree_in_another_repository_does_not_take_its_version(tree):
    assert version(tree) == "0.1.0+0.unknown"
    run("git", "init", "-q", at=tree.parent)
    commit(tree.parent, "another")
    assert version(tree) == "0.1.0+0.unknown"


def test_tarball_has_the_version_of_its_commit(repository, tmp_path):
    was = version(repository)
    made = run(repository / "deploy/dist.sh", tmp_path / "out", was, at="/").strip()
    with tarfile.open(made) as tar:
        tar.extractall(tmp_path / "unpacked")
    folder, = (tmp_path / "unpacked").iterdir()
    assert folder.name == f"traind-{was}" and version(folder) == was
    (repository / "file").write_text("changed")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        run(repository / "deploy/dist.sh", tmp_path / "out", version(repository), at="/")
    assert "commit what was changed" in refused.value.stderr


def test_make_knows_the_version_of_this_tree():
    shown = subprocess.run(["make", "-n", "deb"], cwd=ROOT, env=ENV, capture_output=True, text=True, timeout=120).stdout
    assert f"deploy/deb.sh build {version(ROOT)}" in shown
