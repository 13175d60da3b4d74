"""`trainctl init`, and then what the README that it wrote says: with an installed traind and nothing else, and with a
tree that was built and not installed."""
import os
import re
import shutil
import signal
import subprocess

import pytest

import support
from support import BIN, until

OK, USAGE, CONFLICT = 0, 2, 7
FILES = {"README.md", "job.yaml", "mynet.c", "mydata.c", "points.csv", "Makefile"}
# Without what a make above this one says.
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS", "CFLAGS", "TRAIND_", "PKG_CONFIG"))}


@pytest.fixture(scope="module")
def prefix(build, tmp_path_factory):
    where = tmp_path_factory.mktemp("installed")
    subprocess.run(["make", "install-built", f"B={support.BUILD}", f"PREFIX={where}"], cwd=support.ROOT, env=CLEAN,
                   check=True, capture_output=True, timeout=300)
    return where


def env_of(where, tmp_path):
    """No traind but the one in where/bin, and no pkg-config's own directories: one may be installed here."""
    (tmp_path / "state").mkdir(mode=0o700)
    return CLEAN | {"PATH": f"{where}/bin:{os.environ['PATH']}", "XDG_STATE_HOME": str(tmp_path / "state"),
                    "PKG_CONFIG_LIBDIR": str(tmp_path), "CFLAGS": "-O2 -Wall -Wextra -Wpedantic -Wshadow -Werror"}


@pytest.fixture
def env(prefix, tmp_path):
    return env_of(prefix, tmp_path)


@pytest.fixture(scope="module")
def copied(build, tmp_path_factory):
    """What a tree has after make, elsewhere: below a folder with a blank in its name."""
    tree = tmp_path_factory.mktemp("copied") / "a tree"
    shutil.copytree(support.ROOT / "include", tree / "include")
    for folder in ("bin", "lib"):
        shutil.copytree(support.BUILD / folder, tree / "build" / folder)
    return tree / "build"


@pytest.fixture(params=["installed", "tree", "copied"])
def any_env(request, tmp_path):
    where = {"installed": "prefix", "tree": "build", "copied": "copied"}[request.param]
    return env_of(request.getfixturevalue(where), tmp_path)


def ctl(env, *args, check=None, cwd=None):
    ran = subprocess.run(["trainctl", *map(str, args)], env=env, cwd=cwd, capture_output=True, text=True, timeout=120)
    assert check is None or ran.returncode == check, ran.stdout + ran.stderr
    return ran


def blocks(readme):
    """The commands that a README shows, block by block."""
    return [b.strip().splitlines() for b in re.findall(r"```sh\n(.*?)```", readme.read_text(), re.S)]


def shell(line, env, cwd):
    ran = subprocess.run(["sh", "-c", line], env=env, cwd=cwd, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, f"{line}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


def accuracy(text):
    return float(re.search(r"test_accuracy +([0-9.]+)", text)[1])


def test_what_the_readme_says_works_as_written(any_env, tmp_path):
    env = any_env
    home = tmp_path / "my job's home"
    said = ctl(env, "init", home, check=OK).stdout
    assert {p.name for p in home.iterdir()} == FILES and "make && trainctl run job.yaml" in said
    by_hand, (daemon,), (submit,) = blocks(home / "README.md")
    shown = "".join(shell(line, env, home) for line in by_hand)
    assert accuracy(shown) > 0.9
    name = re.search(r"^name: (\S+)", (home / "job.yaml").read_text(), re.M)[1]
    assert (home / name / "checkpoints").is_dir() and f"folder `{name}`" in (home / "README.md").read_text()
    assert f"init {name}`" not in (support.ROOT / "docs/cheat-sheet.md").read_text(), "a folder within one of its name"
    log = open(tmp_path / "traind.log", "wb")
    # The README's own line; a test has no fixed port, and the shell is to become the daemon.
    process = subprocess.Popen(["sh", "-c", f"exec {daemon} --listen 127.0.0.1:0"], env=env, cwd=home, stdout=log, stderr=log)
    try:
        until("the daemon listens", lambda: list((tmp_path / "state").rglob("address")))
        until("a node is there", lambda: "READY" in ctl(env, "node", "list").stdout)
        assert accuracy(shell(submit, env, home)) > 0.9
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        log.close()
    assert "`make`" in (home / "README.md").read_text()


def test_comments_of_the_job_are_defaults(env, tmp_path):
    """Each line that is commented out can be put in."""
    ctl(env, "init", tmp_path / "job", check=OK)
    shell("make", env, tmp_path / "job")
    text = (tmp_path / "job/job.yaml").read_text()
    lines = re.findall(r"^# (\w+: \S.*)$", text, re.M)
    assert len(lines) == 5
    for line in lines:
        key = line.split(":")[0]
        assert key in ("lr_scheduler", "precision", "gradient_clip_val", "monitor", "mode"), line
        indent = "" if key == "lr_scheduler" else "  "
        (tmp_path / "job/other.yaml").write_text(text.replace(f"# {line}", indent + line.split("#")[0]))
        ran = ctl(env, "run", "other.yaml", "--set", "trainer.max_epochs=1", "--set", f"name={key}", cwd=tmp_path / "job")
        assert ran.returncode == 0, f"{line}\n{ran.stderr}"


def test_nothing_is_overwritten_without_force(env, tmp_path):
    home = tmp_path / "job"
    home.mkdir()
    (home / "mynet.c").write_text("mine")
    refused = ctl(env, "init", ".", cwd=home, check=CONFLICT).stderr
    assert "mynet.c already" in refused and "--force" in refused
    assert [p.name for p in home.iterdir()] == ["mynet.c"] and (home / "mynet.c").read_text() == "mine"
    names = ctl(env, "init", "--force", "-o", "name", cwd=home, check=OK).stdout.split()
    assert set(names) == {str(home / name) for name in FILES}
    assert "mynet_record" in (home / "mynet.c").read_text()
    shutil.rmtree(home)
    home.write_text("a file")
    assert str(home) in ctl(env, "init", home).stderr
    ctl(env, "init", tmp_path / "a:b", check=USAGE)


GOOD = "1,2,0\n" * 5
DAMAGED_CSV = {
    "1,2,0\n1,x,1\n": "line 2: expected numbers", "1,2,0\n1,2,3,0\n": "line 2: another number of columns",
    "1,2,0\n1,2,0.5\n": "line 2: a class is 0, 1, 2", "1,2,0\n": "line 2: the file ends with fewer than 5", "": "fewer than 5",
    "a,b\n" + "1," * 70000 + "1\n": "line 2: the line is too long",
    GOOD + "1,nan,0\n" + GOOD: "line 6: expected numbers", GOOD + "1,-inf,0\n": "line 6: expected numbers",
    GOOD + "1,1e300,0\n": "line 6: expected numbers", GOOD + "1,2,nan\n": "line 6: expected numbers",
    GOOD + "1,2,-1\n": "line 6: a class is", GOOD + "1,2,3000000000\n": "line 6: a class is",
    GOOD + "\0" * 6 + GOOD: "line 6: the line is too long, or has a byte 0", GOOD + "1,2,0\0\0\0\n" + GOOD: "line 6: the line",
    GOOD + "1,\udcff\udcfe,0\n": "line 6: expected numbers", "1,x,0\n" + GOOD: "line 1: expected numbers",
    GOOD + "1,2": "line 6: another number", None: "cannot open"}


@pytest.fixture(scope="module")
def own_job(prefix, tmp_path_factory):
    home, env = tmp_path_factory.mktemp("own") / "job", CLEAN | {"PATH": f"{prefix}/bin:{os.environ['PATH']}"}
    ctl(env, "init", home, check=OK)
    shell("make", env, home)
    return home


@pytest.mark.parametrize("text", DAMAGED_CSV, ids=lambda text: DAMAGED_CSV[text].replace(" ", "-"))
def test_data_that_is_damaged_is_named_with_its_line(cluster, own_job, text):
    own_job.joinpath("points.csv").unlink(missing_ok=True)
    if text is not None:
        own_job.joinpath("points.csv").write_bytes(text.encode(errors="surrogateescape"))
    said = cluster.start(f"--plugin-dirs={own_job}").ctl("submit", "--follow", own_job / "job.yaml", check=1).stderr
    assert "FAILED: data: open dataset 'mydata' (" in said and DAMAGED_CSV[text] in said and "points.csv" in said, said


def test_make_says_what_it_looked_for_when_there_is_no_traind(env, tmp_path):
    ctl(env, "init", tmp_path / "job", check=OK)
    text = (tmp_path / "job/Makefile").read_text()
    (tmp_path / "job/Makefile").write_text(re.sub(r":/[^\"]*/lib/pkgconfig", ":/nowhere", text))
    ran = subprocess.run(["make"], env=env, cwd=tmp_path / "job", capture_output=True, text=True, timeout=60)
    assert ran.returncode and "pkg-config finds no traind: see the first lines of Makefile" in ran.stderr, ran.stderr


def test_init_needs_no_daemon_and_no_installation(build, tmp_path):
    ran = subprocess.run([BIN / "trainctl", "init", tmp_path / "job"], env={"PATH": "/usr/bin"}, capture_output=True, text=True)
    assert ran.returncode == OK, ran.stderr
