"""Run by test_torch.py under a Python that has torch: the accuracy of the mlp in a checkpoint on the
10000 test images of Fashion-MNIST.

    torch_mlp.py MODEL.safetensors
"""
import gzip
import sys

import numpy
import torch
from safetensors.torch import load_file

FOLDER = "/usr/share/datasets/fashion-mnist"


def idx(name):
    raw = gzip.open(f"{FOLDER}/{name}").read()
    dims = [int.from_bytes(raw[4 + 4 * i:8 + 4 * i], "big") for i in range(raw[3])]
    return torch.from_numpy(numpy.frombuffer(raw, numpy.uint8, offset=4 + 4 * raw[3]).reshape(dims).copy())


def main(weights):
    w = load_file(weights)
    x = idx("t10k-images-idx3-ubyte.gz").reshape(10000, 784).float() / 255
    y = idx("t10k-labels-idx1-ubyte.gz").long()
    for layer in ("fc1", "fc2"):
        x = torch.relu(x @ w[f"{layer}.weight"].T + w[f"{layer}.bias"])
    print(((x @ w["fc3.weight"].T + w["fc3.bias"]).argmax(1) == y).float().mean().item())


if __name__ == "__main__":
    main(sys.argv[1])
