"""Small training problems, whose numbers are in tests/golden/parity.json and losses.json (tests/tools/make_golden.py
asks torch for them). All are in fp64, with given first weights, 12 optimizer steps:
  mlp      24 images of 2 x 2 pixels, 3 classes, 4-5-3
  convnet  24 images of 6 x 7 pixels, 3 classes: conv 2, relu, pool 2, conv 3, relu, pool 3, linear
  gpt      24 rows of 7 tokens of 11, 2 blocks of 2 heads, width 8; norms and biases do not decay
  llama    the same rows, 2 blocks of 2 heads and 1 of keys, width 8, inside 12; norms do not decay
An epoch has 6 batches of 4, so a window of 4 batches ends short, with 2, at the end of each epoch. Of the losses,
labels and tokens that are ignored lie unevenly in the batches; at least one counts in each.
"""
import math

import numpy as np

ROWS, BATCH, STEPS = 24, 4, 12
SHAPES = {"fc1.weight": (5, 4), "fc1.bias": (5,), "fc2.weight": (3, 5), "fc2.bias": (3,)}
COSINE = {"warmup_steps": 3, "total_steps": 10, "min_lr": 0.001}

# name: (optimizer as in a spec, schedule, clip, window)
SGD, ADAM, ADAMW = ({"name": n, "lr": lr, "weight_decay": 0.0} for n, lr in
                    (("sgd", 0.1), ("adam", 0.02), ("adamw", 0.02)))
LION = {"name": "lion", "lr": 0.005, "weight_decay": 0.1}
ADAFACTOR = {"name": "adafactor", "lr": 0.05, "weight_decay": 0.1}
MUON = {"name": "muon", "lr": 0.02, "weight_decay": 0.1, "adamw_weight_decay": 0.0}
NESTEROV = SGD | {"momentum": 0.9, "nesterov": True}
CASES = {
    "sgd": (SGD, None, 0, 1),
    "sgd decay": (SGD | {"weight_decay": 0.1}, None, 0, 1),
    "momentum": (SGD | {"momentum": 0.9}, None, 0, 1),
    "momentum dampened": (SGD | {"momentum": 0.9, "dampening": 0.5}, None, 0, 1),
    "nesterov": (NESTEROV, None, 0, 1),
    "nesterov decay": (NESTEROV | {"weight_decay": 0.1}, None, 0, 1),
    "adam": (ADAM, None, 0, 1),
    "adam decay": (ADAM | {"weight_decay": 0.1}, None, 0, 1),
    "adamw decay": (ADAMW | {"weight_decay": 0.1}, None, 0, 1),
    "adamw betas": (ADAMW | {"betas": [0.8, 0.95], "eps": 1e-3}, None, 0, 1),
    "sgd cosine": (SGD, COSINE, 0, 1),
    "momentum clip": (SGD | {"momentum": 0.9}, None, 0.2, 1),
    "sgd windows": (SGD, None, 0, 4),
    "nesterov all": (NESTEROV | {"weight_decay": 0.01}, COSINE, 0.2, 4),
    "lion": (LION, None, 0, 1),
    "lion all": (LION | {"betas": [0.8, 0.95]}, COSINE, 0.2, 4),
    "adafactor": (ADAFACTOR | {"eps1": 1e-6}, None, 0, 1),
    "adafactor all": (ADAFACTOR | {"d": 2.0, "beta2_decay": -0.5, "eps1": 1e-4, "eps2": 0.1}, COSINE, 0.2, 4),
    "muon": (MUON, None, 0, 1),
    "muon all": (MUON | {"nesterov": False, "adjust_lr_fn": "match_rms_adamw"}, COSINE, 0.2, 4),
    "adamw all": (ADAMW | {"weight_decay": 0.1}, COSINE, 0.2, 4),
}

SHAPES_OF = {"mlp": SHAPES, "convnet": {
    "conv1.weight": (2, 1, 3, 3), "conv1.bias": (2,), "conv2.weight": (3, 2, 3, 3), "conv2.bias": (3,),
    "fc1.weight": (3, 3), "fc1.bias": (3,)}}
TOKENS, WIDTH, CONTEXT, HEADS, BLOCKS = 11, 8, 7, 2, 2
SHAPES_OF["gpt"] = {"transformer.wte.weight": (TOKENS, WIDTH), "transformer.wpe.weight": (CONTEXT, WIDTH)}
for block in range(BLOCKS):
    for part, shape in (("ln_1", (WIDTH,)), ("attn.c_attn", (WIDTH, 3 * WIDTH)), ("attn.c_proj", (WIDTH, WIDTH)),
                        ("ln_2", (WIDTH,)), ("mlp.c_fc", (WIDTH, 4 * WIDTH)), ("mlp.c_proj", (4 * WIDTH, WIDTH))):
        SHAPES_OF["gpt"] |= {f"transformer.h.{block}.{part}.weight": shape,
                             f"transformer.h.{block}.{part}.bias": shape[-1:]}
SHAPES_OF["gpt"] |= {"transformer.ln_f.weight": (WIDTH,), "transformer.ln_f.bias": (WIDTH,)}
INNER, GROUPS, THETA = 12, 1, 500.0
SHAPES_OF["llama"] = {"model.embed_tokens.weight": (TOKENS, WIDTH)}
for block in range(BLOCKS):
    keys = GROUPS * WIDTH // HEADS
    for part, shape in (("input_layernorm", (WIDTH,)), ("self_attn.q_proj", (WIDTH, WIDTH)),
                        ("self_attn.k_proj", (keys, WIDTH)), ("self_attn.v_proj", (keys, WIDTH)),
                        ("self_attn.o_proj", (WIDTH, WIDTH)), ("post_attention_layernorm", (WIDTH,)),
                        ("mlp.gate_proj", (INNER, WIDTH)), ("mlp.up_proj", (INNER, WIDTH)),
                        ("mlp.down_proj", (WIDTH, INNER))):
        SHAPES_OF["llama"][f"model.layers.{block}.{part}.weight"] = shape
SHAPES_OF["llama"] |= {"model.norm.weight": (WIDTH,), "lm_head.weight": (TOKENS, WIDTH)}
TEXTS = ("gpt", "llama")  # read tokens
# Of these, as "convnet sgd". The bias of a gpt's keys has no gradient but what rounding makes,
# which adam would blow up, were its eps not above that.
MORE = {f"{job} {case}": (job, *CASES[case]) for job in ("convnet", *TEXTS)
        for case in ("sgd", "nesterov all", "adamw betas", "adamw all")}
MORE["gpt muon"] = ("gpt", MUON | {"adamw_eps": 1e-3}, None, 0, 1)
MORE["llama muon"] = ("llama", MUON, None, 0, 1)
MORE["gpt adamw all"] = ("gpt", CASES["adamw all"][0] | {"eps": 1e-3}, *CASES["adamw all"][1:])


def images(height=2, width=2):
    """Pixels (24, height, width) and labels (24), both u8."""
    r, c = np.arange(ROWS)[:, None], np.arange(height * width)[None, :]
    return ((r * 31 + c * 57 + r * c * 13) % 256).astype(np.uint8).reshape(ROWS, height, width), \
        ((np.arange(ROWS) * 5 + np.arange(ROWS) ** 2) % 3).astype(np.uint8)


def tokens():
    """A text of u16: row i is tokens 7i to 7i+7, its targets are one further."""
    at = np.arange(ROWS * CONTEXT + 1)
    return ((at * 5 + at * at * 3) % TOKENS).astype(np.uint16)


def first_weights(job="mlp"):
    out, at = {}, 0
    for name, shape in SHAPES_OF[job].items():
        n = math.prod(shape)
        values = (((np.arange(at, at + n) * 7919) % 101 - 50) / 64).astype(np.float32).reshape(shape)
        norm = "norm" in name or ".ln_" in name and name.endswith("weight")
        out[name] = 1 + values / 8 if norm else values / 2 if job in TEXTS else values
        at += n
    return out


# ---- losses -------------------------------------------------------------------------------------------
LOSS_OPTIMIZER = {"name": "sgd", "lr": 0.1, "momentum": 0.9}
CE = {"name": "cross_entropy"}
WEIGHTS = [0.5, 2.0, 1.0]
# name: (job, loss as in a spec, kind of y); of mlps and gpts
LOSSES = {
    "mse": ("mlp", {"name": "mse"}, "targets"),
    "bce": ("mlp", {"name": "bce"}, "sides"),
    "smoothing": ("mlp", CE | {"label_smoothing": 0.2}, "labels"),
    "weights": ("mlp", CE | {"class_weights": WEIGHTS}, "labels"),
    "ignored": ("mlp", CE | {"ignore_index": -100}, "some labels"),
    "all options": ("mlp", CE | {"label_smoothing": 0.1, "class_weights": WEIGHTS, "ignore_index": -100}, "some labels"),
    "gpt": ("gpt", CE | {"label_smoothing": 0.1, "ignore_index": 4}, None),
    "gpt weights": ("gpt", CE | {"class_weights": [0.5 + i / 4 for i in range(TOKENS)], "ignore_index": 0}, None),
}


def arrays(kind):
    """x (24, 4) and y as they are saved."""
    pixels, labels = images()
    x = (pixels.reshape(ROWS, -1) / 255).astype("f4")
    row, column = np.arange(ROWS)[:, None], np.arange(3)[None, :]
    targets = (((row * 7 + column * 11 + row * column * 3) % 17 - 8) / 4).astype("f4")
    if kind == "targets":
        return x, targets
    if kind == "sides":
        return x, (targets > 0).astype("f4")
    y = labels.astype("i8")
    if kind == "some labels":
        y[[0, 1, 2, 5, 9, 10, 13, 22]] = -100
    return x, y
