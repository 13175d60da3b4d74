"""The test accelerator far, as a plugin of a test: a directory that may be loaded from, and what a spec says of it."""
import pytest

import support

FAR = support.BUILD / "tests/plugins/accelerator-far.so"


def far(**knobs):
    return {"name": "plugin", "accelerator": "far", "knobs": knobs}


@pytest.fixture
def mine(build, tmp_path):
    """A directory with the plugin that nobody else may write."""
    folder = tmp_path / "mine"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    (folder / FAR.name).write_bytes(FAR.read_bytes())
    (folder / FAR.name).chmod(0o644)
    return folder


def args_of(mine):
    """What a launcher tells a rank of a job on far."""
    return lambda rank: ["--plugin-dirs", mine, "--device", f"far-{rank}"]
