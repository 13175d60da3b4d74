"""A file of data or weights that is damaged in its middle: the plan and the job end with class `data` and name the file,
the place in it and what to do; nothing is tried again. (Arrays: test_s07_arrays; rows of a CSV file: test_s78_init.)"""
import gzip
import json
import os
import re
import struct

import numpy as np
import pytest
from safetensors.numpy import save_file

from support import BUSY, spec_file

JOB_FAILED = 1
SPEC = """
model: {model}
data: {data}
optimizer: {{name: sgd, lr: 0.1}}
trainer: {{max_steps: 2}}
restart: {{max: 3, backoff: [0]}}
{more}
"""
MLP, GPT = "{{name: mlp, layers: [{}, 10]}}", "{name: gpt, n_layer: 1, n_head: 2, n_embd: 16}"
TEXT = b"".join(b"line %d of a text that is not the same everywhere\n" % i for i in range(900))
ROWS = "block_size: 16, batch_size: 8"


def idx(folder):
    for kind, n in (("train", 64), ("t10k", 32)):
        images = struct.pack(">IIII", 0x803, n, 28, 28) + bytes(i % 251 for i in range(n * 784))
        (folder / f"{kind}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
        (folder / f"{kind}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, n) + bytes(i % 10 for i in range(n)))
    return MLP.format(784), f"{{name: idx, path: {folder}, batch_size: 8}}", ""


def text(folder):
    for name in "ab":
        (folder / f"{name}.txt.gz").write_bytes(gzip.compress(TEXT))
    return GPT, f"{{name: text, path: {folder}, {ROWS}}}", ""


def tokens(folder):
    head = struct.pack("<3i", 20240520, 1, len(TEXT)).ljust(1024, b"\0")
    (folder / "t.bin").write_bytes(head + np.frombuffer(TEXT, np.uint8).astype("<u2").tobytes())
    return GPT, f"{{name: tokens, train: [{folder}/t.bin], val: [], vocab_size: 128, {ROWS}}}", ""


def npy(folder):
    np.save(folder / "x.npy", np.ones((64, 16), "<f4"))
    np.save(folder / "y.npy", np.arange(64) % 10)
    return MLP.format(16), f"{{name: npy, x: {folder}/x.npy, y: {folder}/y.npy, batch_size: 8}}", ""


def weights(folder):
    """In two shards with an index, as Hugging Face writes large ones."""
    shards = {"one": {"fc1.weight": np.full((10, 16), 0.5, "f4")}, "two": {"fc1.bias": np.full(10, 0.25, "f4")}}
    for name, tensors in shards.items():
        save_file(tensors, folder / f"{name}.safetensors")
    where = {tensor: f"{name}.safetensors" for name, tensors in shards.items() for tensor in tensors}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}, indent=1))
    return MLP.format(16), "{name: synthetic, features: 16, classes: 10, samples: 64, batch_size: 8}", f"init_from: {folder}"


def flip(at, n=1):
    """Bytes from a place on, or from a share of the file."""
    def change(data):
        first = at % len(data) if isinstance(at, int) else int(at * len(data))
        return data[:first] + bytes(b ^ 0x55 for b in data[first:first + n]) + data[first + n:]
    return change


def cut(share):
    return lambda data: data[:int(share * len(data))]


def swap(old, new):
    assert len(old) == len(new)
    return lambda data: data.replace(old, new, 1)


LABELS, IMAGES, INDEX = "t10k-labels-idx1-ubyte", "train-images-idx3-ubyte.gz", "model.safetensors.index.json"
NAN, HALF = struct.pack("<f", np.nan), struct.pack("<f", 0.5)
DAMAGES = {
    "images-flipped": (idx, IMAGES, flip(0.5, 8), ["at offset "]),
    "images-crc": (idx, IMAGES, flip(-6), ["incorrect data check at offset "]),
    "images-cut": (idx, IMAGES, cut(0.5), ["the file ends inside its gzip data at offset "]),
    "labels-flipped": (idx, LABELS, flip(20), ["offset 20: label, at most: expected 9, found 87", "data.classes says"]),
    "labels-cut": (idx, LABELS, cut(0.5), ["offset 20: the file is cut short; its length: expected 40, found 20"]),
    "text-flipped": (text, "b.txt.gz", flip(0.5, 8), ["at offset "]),
    "text-crc": (text, "b.txt.gz", flip(-6), ["incorrect data check at offset "]),
    "text-cut": (text, "b.txt.gz", cut(0.5), ["the file ends inside its gzip data at offset "]),
    "tokens-flipped": (tokens, "t.bin", flip(2001), ["token 488 is not in the vocabulary", "offset 2000: token id", "found 21"]),
    "tokens-cut": (tokens, "t.bin", cut(0.5), ["offset 8: bytes of a file with "]),
    "array-cut": (npy, "x.npy", cut(0.5), ["offset 128: bytes of the elements", "expected 4096, found 1984"]),
    "array-type": (npy, "x.npy", swap(b"'<f4'", b"'<q4'"), ["type of the elements", "found '<q4'"]),
    "array-nan": (npy, "x.npy", swap(struct.pack("<f", 1) * 99, struct.pack("<f", 1) * 98 + NAN),
                  ["sample 6 is no number", f"offset {128 + 98 * 4}: element", "found nan"]),
    "weights-cut": (weights, "one.safetensors", cut(0.5), ["tensor 'fc1.weight'", "past the end: the file is cut short"]),
    "weights-type": (weights, "one.safetensors", swap(b'"F32"', b'"Q32"'), ["tensor 'fc1.weight'", "unknown dtype"]),
    "weights-utf8": (weights, "two.safetensors", swap(b"bias", b"b\xffas"), ["JSON line 1 column ", "decode byte 0xff"]),
    "weights-nan": (weights, "one.safetensors", swap(HALF * 21, HALF * 20 + NAN),
                    [": element 20 of tensor 'fc1.weight' is nan", "' offset "]),
    "index-utf8": (weights, INDEX, swap(b"two.safe", b"two.\xffafe"), ["JSON line 4 column ", "decode byte 0xff"]),
    "index-cut": (weights, INDEX, cut(0.7), ["JSON line "]),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_job_ends_with_class_data_and_names_the_place_when_a_file_is_damaged(daemon, tmp_path, what):
    make, name, change, words = DAMAGES[what]
    folder = tmp_path / "files"
    folder.mkdir()
    model, data, more = make(folder)
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(change(whole))
    assert (folder / name).read_bytes() != whole
    spec = spec_file(tmp_path, SPEC.format(model=model, data=data, more=more))
    said = daemon.ctl("submit", "--follow", spec, check=JOB_FAILED).stderr
    job = daemon.ctl_json("list")["jobs"][0]["id"]
    failed = daemon.job(job)
    assert getattr(failed.failure, "class") == "data" and failed.restarts == 0 and failed.attempt <= 1, failed
    advice = "(copy its files again)" if make is weights else "(mend the file, or copy it again)"
    for part in [advice, str(folder / name), *words]:
        assert part in failed.failure.message and part in said, said
    if what != "weights-nan":  # a plan reads no weights
        assert failed.failure.message in daemon.ctl("plan", spec, check=JOB_FAILED).stderr
    (folder / name).write_bytes(whole)
    daemon.ctl("submit", "--follow", spec, check=0)


@pytest.mark.parametrize("ranks", [1, 2])
def test_job_ends_with_class_data_when_its_file_is_cut_short_while_it_trains(daemon, tmp_path, ranks):
    np.save(tmp_path / "x.npy", np.ones((8192, 128), "<f4"))
    np.save(tmp_path / "y.npy", np.arange(8192) % 8)
    spec = re.sub("data: {name: synthetic.*classes: 8", f"data: {{name: npy, x: {tmp_path}/x.npy, y: {tmp_path}/y.npy", BUSY)
    job = daemon.submit(spec, f"trainer.devices={ranks}")
    daemon.wait_step(job, 5)
    os.truncate(tmp_path / "x.npy", 5000)
    failed = daemon.wait_state(job, "FAILED")
    assert getattr(failed.failure, "class") == "data" and failed.restarts == 0 and failed.attempt == 1, failed
    said = re.search(rf"rank . could not read '{tmp_path}/x.npy' offset (\d+) any more: .*; copy it again", failed.failure.message)
    assert said and int(said[1]) >= 5000 and "SIGBUS" in failed.failure.last_words, failed.failure
