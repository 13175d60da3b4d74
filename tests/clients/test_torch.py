"""torch reads what traind wrote: the weights of a checkpoint give the same test accuracy."""
import json

from support import ROOT


def test_torch_reproduces_the_test_accuracy(daemon, tmp_path, rival):
    accuracy_of = rival("torch", "torch_mlp.py")
    spec = (ROOT / "examples/fashion-mnist.yaml").read_text()
    job = daemon.submit(spec, "trainer.max_epochs=1")
    done = daemon.wait_state(job, "SUCCEEDED", deadline_s=300)
    daemon.ctl("checkpoint", "download", job, "-O", tmp_path / "newest", check=0)
    assert json.loads((tmp_path / "newest/manifest.json").read_text())["format"] == 1
    accuracy = float(accuracy_of(tmp_path / "newest/model.safetensors"))
    assert abs(accuracy - done.metrics["test_accuracy"]) <= 2e-4, "at most two samples of 10000 may tip over"
