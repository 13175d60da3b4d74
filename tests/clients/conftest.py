"""What runs in the Python that has torch and transformers, which is not the one that runs pytest."""
import os
import pathlib
import subprocess

import pytest

import support

HERE = pathlib.Path(__file__).parent
PROBE = "import importlib.util, sys; sys.exit(not importlib.util.find_spec(sys.argv[1]))"


@pytest.fixture(scope="session")
def rival(full):
    """rival(package, script): a function that runs the script of this folder and gives what it printed."""
    def runner(package, script):
        probe = [support.RIVAL, "-c", PROBE, package]
        if not os.path.exists(support.RIVAL) or subprocess.run(probe, timeout=60).returncode:
            pytest.skip(f"no Python package {package} ({support.RIVAL}; TORCH names another)")

        def run(*args):
            ran = subprocess.run([support.RIVAL, HERE / script, *map(str, args)], capture_output=True, text=True,
                                 timeout=300)
            assert ran.returncode == 0, ran.stderr
            return ran.stdout
        return run
    return runner
