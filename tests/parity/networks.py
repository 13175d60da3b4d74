"""The networks of tests/problems.py in torch, with their samples and first weights, all in fp64."""
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

sys.path.append(str(Path(__file__).resolve().parents[1]))
import problems  # noqa: E402
from problems import BLOCKS, CONTEXT, HEADS, ROWS, TEXTS, THETA, WIDTH  # noqa: E402


def mlp(w, x):
    return F.linear(F.relu(F.linear(x.flatten(1), w["fc1.weight"], w["fc1.bias"])), w["fc2.weight"], w["fc2.bias"])


def convnet(w, x):
    h = F.max_pool2d(F.relu(F.conv2d(x[:, None], w["conv1.weight"], w["conv1.bias"], padding=1)), 2)
    h = F.max_pool2d(F.relu(F.conv2d(h, w["conv2.weight"], w["conv2.bias"], padding=1)), 3)
    return F.linear(h.flatten(1), w["fc1.weight"], w["fc1.bias"])


def gpt(w, x):
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


def llama(w, x):
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


MODELS = {"mlp": mlp, "convnet": convnet, "gpt": gpt, "llama": llama}


def samples(job):
    if job in TEXTS:
        tokens = torch.from_numpy(problems.tokens().astype(np.int64))
        rows = torch.arange(ROWS)[:, None] * CONTEXT + torch.arange(CONTEXT + 1)
        return tokens[rows][:, :-1], tokens[rows][:, 1:]
    x, y = problems.images() if job == "mlp" else problems.images(6, 7)
    return torch.from_numpy(x).double() / 255, torch.from_numpy(y).long()


def first_weights(job):
    return {k: torch.from_numpy(v).double().requires_grad_() for k, v in problems.first_weights(job).items()}
