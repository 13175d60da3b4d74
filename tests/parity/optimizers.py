"""Optimizers for the oracle besides the rival's own: torch's Adafactor, torch's Muon with AdamW for the
rest, and Lion, which torch does not have, from its paper (Chen et al. 2023, "Symbolic Discovery of
Optimization Algorithms", algorithm 2). kind_of(name) is called as the rival calls torch.optim.AdamW.

torch's Muon iterates Newton-Schulz in bf16 whatever the weights are; rounding alone then moves its
weights by a percent, and no bound could tell an error from it. So the oracle's Muon is torch's with
the iteration in the type of the weights (`exact`), which is what traind does; torch's own is compared
within what torch in fp32 and torch in fp64 differ by.
"""
import torch
from torch.optim import _muon

AdamW = torch.optim.AdamW  # the rival sees ours in its place


class Lion(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in (q for q in group["params"] if q.grad is not None):
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                update = (m * b1 + p.grad * (1 - b1)).sign()
                p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * update)
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


class Several:
    """Optimizers that step together, with all their groups in one list."""

    def __init__(self, *parts):
        self.parts = parts
        self.param_groups = [g for p in parts for g in p.param_groups]

    def step(self):
        for p in self.parts:
            p.step()

    def zero_grad(self):
        for p in self.parts:
            p.zero_grad()


def params_of(groups):
    return [p for g in groups for p in g["params"]]


def with_decay(groups, decay):
    """The rival's groups with ours: the first decays; the second, norms and biases of a gpt, does not."""
    return [dict(g, weight_decay=decay if i == 0 else 0.0) for i, g in enumerate(groups)]


def exact(grad, ns_coefficients, ns_steps, eps):
    """torch's _zeropower_via_newtonschulz, line for line but for the cast to bf16."""
    a, b, c = ns_coefficients
    x = grad.T if grad.size(0) > grad.size(1) else grad
    x = x / x.norm().clamp(min=eps)
    for _ in range(ns_steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if grad.size(0) > grad.size(1) else x


def muon(weight_decay, newton_schulz, **knobs):
    """Hidden matrices, all but the last of an mlp unless they are named, by Muon; the rest by AdamW without decay."""
    def make(groups, lr, betas, eps, hidden=None):  # the rival sets one rate for all
        params = params_of(groups)
        hidden = hidden or [p for p in params if p.dim() == 2][:-1]
        rest = [p for p in params if all(p is not h for h in hidden)]
        if newton_schulz:
            _muon._zeropower_via_newtonschulz = newton_schulz
        return Several(torch.optim.Muon(hidden, lr, weight_decay, **knobs),
                       AdamW(rest, lr, betas, eps, weight_decay=0.0))
    return make


def kind_of(spec):
    """spec: the optimizer section of a job, with `torch: true` for torch's Muon as it is."""
    knobs = {k: v for k, v in spec.items() if k not in ("name", "lr", "weight_decay", "torch")}
    decay = spec.get("weight_decay", 0.0)
    if spec["name"] == "muon":
        return muon(decay, None if spec.get("torch") else exact,
                    **{k: v for k, v in knobs.items() if not k.startswith("adamw_")})
    if spec["name"] == "lion":
        defaults = dict(weight_decay=decay, betas=spec.get("betas", (0.9, 0.99)))
        return lambda groups, lr, betas, eps: Lion(with_decay(groups, decay), defaults | {"lr": lr})
    eps = (knobs.pop("eps1", None), knobs.pop("eps2", 1e-3))
    return lambda groups, lr, **_: torch.optim.Adafactor(with_decay(groups, decay), lr, eps=eps, **knobs)
