"""The Python that has torch and transformers, which is not the one that runs pytest: TORCH names it, or
`make rivals` makes it."""
import os
import pathlib
import subprocess

import pytest

import support

HERE = pathlib.Path(__file__).parent
PYTHON = os.environ.get("TORCH") or str(pathlib.Path(support.BUILD) / "venv-rivals/bin/python")
PROBE = "import importlib.util, sys; sys.exit(not importlib.util.find_spec(sys.argv[1]))"


@pytest.fixture(scope="session")
def rival(full):
    """rival(package, script): a function that runs the script of this folder and gives what it printed."""
    def runner(package, script):
        if not os.path.exists(PYTHON) or subprocess.run([PYTHON, "-c", PROBE, package], timeout=60).returncode:
            pytest.skip(f"no Python package {package} ({PYTHON}; TORCH names another)")

        def run(*args):
            ran = subprocess.run([PYTHON, HERE / script, *map(str, args)], capture_output=True, text=True,
                                 timeout=300)
            assert ran.returncode == 0, ran.stderr
            return ran.stdout
        return run
    return runner
