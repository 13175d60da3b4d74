"""What runs in the Python that has torch and transformers, which is not the one that runs pytest."""
import json
import os
import pathlib
import select
import subprocess

import pytest

import support

HERE = pathlib.Path(__file__).parent
PROBE = "import importlib.util, sys; sys.exit(not importlib.util.find_spec(sys.argv[1]))"


def need(package):
    probe = [support.RIVAL, "-c", PROBE, package]
    if not os.path.exists(support.RIVAL) or subprocess.run(probe, timeout=60).returncode:
        pytest.skip(f"no Python package {package} ({support.RIVAL}; TORCH names another)")


@pytest.fixture(scope="session")
def rival(full):
    """rival(package, script): a function that runs the script of this folder and gives what it printed."""
    def runner(package, script):
        need(package)

        def run(*args):
            ran = subprocess.run([support.RIVAL, HERE / script, *map(str, args)], capture_output=True, text=True,
                                 timeout=300)
            assert ran.returncode == 0, ran.stderr
            return ran.stdout
        return run
    return runner


class Server:
    """The script of this folder as one process, `SCRIPT serve`: it imports its packages once, which takes seconds."""

    def __init__(self, script):
        self.process = subprocess.Popen([support.RIVAL, HERE / script, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, bufsize=1)

    def __call__(self, *args):
        """Returns when it has done what the words say; what fails there fails here."""
        print(json.dumps([str(a) for a in args]), file=self.process.stdin, flush=True)
        readable, _, _ = select.select([self.process.stdout], [], [], 300)
        assert readable, f"no answer to {args} within 300 s"
        line = self.process.stdout.readline()
        assert line, f"it ended at {args}"
        assert not json.loads(line), json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def rival_server(full):
    """rival_server(package, script): a Server."""
    servers = []

    def start(package, script):
        need(package)
        servers.append(Server(script))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
