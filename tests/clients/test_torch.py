"""torch reads what traind wrote: the weights of a checkpoint give the same test accuracy."""
import gzip
import json

import numpy
import pytest

from support import ROOT


def idx(path):
    raw = gzip.open(path).read()
    dims = [int.from_bytes(raw[4 + 4 * i:8 + 4 * i], "big") for i in range(raw[3])]
    return numpy.frombuffer(raw, numpy.uint8, offset=4 + 4 * raw[3]).reshape(dims)


def test_torch_reproduces_the_test_accuracy(daemon, tmp_path, full):
    torch = pytest.importorskip("torch", reason="Python package torch is missing")
    from safetensors.torch import load_file

    spec = (ROOT / "examples/fashion-mnist.yaml").read_text()
    job = daemon.submit(spec, "trainer.max_epochs=1")
    done = daemon.wait_state(job, "SUCCEEDED", deadline_s=300)
    daemon.ctl("checkpoint", "download", job, "-O", tmp_path / "newest", check=0)
    assert json.loads((tmp_path / "newest/manifest.json").read_text())["format"] == 1
    w = load_file(tmp_path / "newest/model.safetensors")
    folder = "/usr/share/datasets/fashion-mnist"
    x = torch.from_numpy(idx(f"{folder}/t10k-images-idx3-ubyte.gz").reshape(10000, 784).copy()).float() / 255
    y = torch.from_numpy(idx(f"{folder}/t10k-labels-idx1-ubyte.gz").copy()).long()
    for layer in ("fc1", "fc2"):
        x = torch.relu(x @ w[f"{layer}.weight"].T + w[f"{layer}.bias"])
    accuracy = ((x @ w["fc3.weight"].T + w["fc3.bias"]).argmax(1) == y).float().mean().item()
    assert abs(accuracy - done.metrics["test_accuracy"]) <= 2e-4, "at most two samples of 10000 may tip over"
