#!/usr/bin/env python3
"""Writes tests/golden/parity.json: what torch says of small training problems, case by case.

Run it once with real torch in a throw-away virtual environment; the file is committed, so tests
need no torch (tests/scenario/engine/test_s06_parity.py reads the problems from here). All are in fp64, with
given first weights, 12 optimizer steps:
  mlp      24 images of 2 x 2 pixels, 3 classes, 4-5-3
  convnet  24 images of 6 x 7 pixels, 3 classes: conv 2, relu, pool 2, conv 3, relu, pool 3, linear
  gpt      24 rows of 7 tokens of 11, 2 blocks of 2 heads, width 8; norms and biases do not decay
  llama    the same rows, 2 blocks of 2 heads and 1 of keys, width 8, inside 12; norms do not decay
An epoch has 6 batches of 4, so a window of 4 batches ends short, with 2, at the end of each epoch.
Last weights of all but the mlp are the bytes of fp32 little-endian values, in base64.
"""
import base64
import json
import math
import re
import sys
from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "parity.json"
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


def rate(step, lr, cosine):
    if not cosine:
        return lr
    warmup, falling = cosine["warmup_steps"], cosine["total_steps"] - cosine["warmup_steps"]
    if step < warmup:
        return lr * (step + 1) / warmup
    done = min(step - warmup, falling) / falling
    return cosine["min_lr"] + (lr - cosine["min_lr"]) * 0.5 * (1 + math.cos(math.pi * done))


def windows(length):
    """Batches of each optimizer step: a window never crosses the end of an epoch."""
    while True:
        for at in range(0, ROWS // BATCH, length):
            yield range(at, min(at + length, ROWS // BATCH))


def mlp(F, w, x):
    return F.linear(F.relu(F.linear(x.flatten(1), w["fc1.weight"], w["fc1.bias"])), w["fc2.weight"], w["fc2.bias"])


def convnet(F, w, x):
    h = F.max_pool2d(F.relu(F.conv2d(x[:, None], w["conv1.weight"], w["conv1.bias"], padding=1)), 2)
    h = F.max_pool2d(F.relu(F.conv2d(h, w["conv2.weight"], w["conv2.bias"], padding=1)), 3)
    return F.linear(h.flatten(1), w["fc1.weight"], w["fc1.bias"])


def gpt(F, w, x):
    def layer(name, h):
        return h @ w[name + ".weight"] + w[name + ".bias"]

    def norm(name, h):
        return F.layer_norm(h, (WIDTH,), w[name + ".weight"], w[name + ".bias"])

    b, t = x.shape
    h = w["transformer.wte.weight"][x] + w["transformer.wpe.weight"][:t]
    for i in range(BLOCKS):
        at = f"transformer.h.{i}."
        q, k, v = (y.view(b, t, HEADS, -1).transpose(1, 2)
                   for y in layer(at + "attn.c_attn", norm(at + "ln_1", h)).split(WIDTH, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, WIDTH)
        h = h + layer(at + "attn.c_proj", y)
        h = h + layer(at + "mlp.c_proj", F.gelu(layer(at + "mlp.c_fc", norm(at + "ln_2", h)), approximate="tanh"))
    return norm("transformer.ln_f", h) @ w["transformer.wte.weight"].T


def llama(F, w, x):
    def layer(name, h):
        return F.linear(h, w[name + ".weight"])

    def norm(name, h):
        return F.rms_norm(h, (WIDTH,), w[name + ".weight"], 1e-6)

    def heads(name, h):
        return layer(name, h).view(b, t, -1, WIDTH // HEADS).transpose(1, 2)

    def turned(y):
        """As Hugging Face does it: number i of a head goes with number i + half."""
        half = y.shape[-1] // 2
        angle = x.new_tensor(range(t)).double()[:, None] * THETA ** -(x.new_tensor(range(half)).double() / half)
        first, second = y[..., :half], y[..., half:]
        return F.pad(first * angle.cos() - second * angle.sin(), (0, half)) + \
            F.pad(second * angle.cos() + first * angle.sin(), (half, 0))

    b, t = x.shape
    h = w["model.embed_tokens.weight"][x]
    for i in range(BLOCKS):
        at = f"model.layers.{i}."
        y = norm(at + "input_layernorm", h)
        q, k, v = (heads(at + f"self_attn.{p}_proj", y) for p in "qkv")
        y = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True, enable_gqa=True)
        h = h + layer(at + "self_attn.o_proj", y.transpose(1, 2).reshape(b, t, WIDTH))
        y = norm(at + "post_attention_layernorm", h)
        h = h + layer(at + "mlp.down_proj", F.silu(layer(at + "mlp.gate_proj", y)) * layer(at + "mlp.up_proj", y))
    return layer("lm_head", norm("model.norm", h))


def samples(torch, job):
    if job in TEXTS:
        text = torch.from_numpy(tokens().astype(np.int64))
        rows = torch.arange(ROWS)[:, None] * CONTEXT + torch.arange(CONTEXT + 1)
        return text[rows][:, :-1], text[rows][:, 1:]
    x, y = images() if job == "mlp" else images(6, 7)
    return torch.from_numpy(x).double() / 255, torch.from_numpy(y).long()


def run(torch, job, optimizer, cosine, clip, window):
    F = torch.nn.functional
    x, y = samples(torch, job)
    model = {"mlp": mlp, "convnet": convnet, "gpt": gpt, "llama": llama}[job]
    w = {k: torch.from_numpy(v).double().requires_grad_() for k, v in first_weights(job).items()}
    # torch's Muon asks for (out, in), and GPT-2 stores (in, out).
    turned = [k for k in w if job == "gpt" and optimizer["name"] == "muon" and "c_" in k and k.endswith("weight")]
    w |= {k: w[k].detach().T.contiguous().requires_grad_() for k in turned}

    def stored():
        return {k: v.T if k in turned else v for k, v in w.items()}

    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    plain = [v for v in w.values() if job in TEXTS and v.dim() == 1]
    groups = [{"params": [v for v in w.values() if all(v is not p for p in plain)]}]
    groups += [{"params": plain, "weight_decay": 0.0}] if plain else []
    if optimizer["name"] in kind:
        opt = kind[optimizer["name"]](groups, **{k: v for k, v in optimizer.items() if k != "name"})
    else:
        sys.path.append(str(GOLDEN.parents[1] / "parity"))
        from optimizers import kind_of
        hidden = [v for k, v in w.items() if v.dim() == 2 and not re.search("wte|wpe|embed|lm_head|fc2", k)]
        more = {"hidden": hidden} if optimizer["name"] == "muon" else {}
        opt = kind_of(optimizer)(groups, optimizer["lr"], betas=(0.9, 0.999),
                                 eps=optimizer.get("adamw_eps", 1e-8), **more)
    losses, norms, each = [], [], windows(window)
    for step in range(STEPS):
        batches, total = next(each), 0.0
        for b in batches:
            rows = slice(b * BATCH, (b + 1) * BATCH)
            loss = F.cross_entropy(model(F, stored(), x[rows]).flatten(0, -2), y[rows].flatten()) / len(batches)
            loss.backward()
            total += loss.item()
        norms.append(torch.nn.utils.clip_grad_norm_(w.values(), clip or math.inf).item())
        losses.append(total)
        for group in opt.param_groups:
            group["lr"] = rate(step, optimizer["lr"], cosine)
        opt.step()
        opt.zero_grad()
    if job == "mlp":
        last = {k: [round(z, 9) for z in v.detach().flatten().tolist()] for k, v in w.items()}
    else:
        last = {k: base64.b64encode(v.detach().numpy().astype("<f4").tobytes()).decode() for k, v in stored().items()}
    return {"loss": [round(z, 9) for z in losses], "grad_norm": [round(z, 9) for z in norms], "last": last}


def main():
    import torch

    lines = [f"{json.dumps(name)}: {json.dumps(run(torch, 'mlp', *case))}" for name, case in CASES.items()]
    lines += [f"{json.dumps(name)}: {json.dumps(run(torch, *case))}" for name, case in MORE.items()]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"wrote {GOLDEN} with torch {torch.__version__}", file=sys.stderr)


if __name__ == "__main__":
    main()
