"""A small GAN on Fashion-MNIST, as examples/plugins/gan.c: two perceptrons that train in turns, Adam for each, u8 data
in RAM. Steps are optimizer steps, of which a batch makes two.

    python gan.py
    python gan.py --cat      # the discriminator sees real and generated images as one batch
"""
import argparse, time
import torch
import torch.nn as nn
import torch.nn.functional as F
import common as c

p = argparse.ArgumentParser()
p.add_argument("--data", default=c.FASHION)
p.add_argument("--batch", type=int, default=128)
p.add_argument("--latent", type=int, default=64)
p.add_argument("--hidden", type=int, default=128)
p.add_argument("--window", type=int, default=468, help="steps a figure")
p.add_argument("--steps", type=int, default=1872)
p.add_argument("--no-test", action="store_true", help="taken for the sake of the other scripts; there is no test")
p.add_argument("--cat", action="store_true")
c.add_flags(p)
a = p.parse_args()
c.setup(a)

x8, _ = c.fashion(a.data, "train")
gen = nn.Sequential(nn.Linear(a.latent, a.hidden), nn.ReLU(), nn.Linear(a.hidden, 784), nn.Sigmoid())
disc = nn.Sequential(nn.Linear(784, a.hidden), nn.LeakyReLU(0.2), nn.Linear(a.hidden, 1))
run_gen, run_disc = c.wrap(gen, a, 1), c.wrap(disc, a, 1)
kind = {} if a.adam == "default" else {a.adam: True}
opt_gen = torch.optim.Adam(gen.parameters(), lr=4e-4, betas=(0.5, 0.999), **kind)
opt_disc = torch.optim.Adam(disc.parameters(), lr=2e-4, betas=(0.5, 0.999), **kind)
real, fake = torch.ones(a.batch, 1), torch.zeros(a.batch, 1)
both = torch.cat([real, fake])


def bce(logits, wanted):
    return F.binary_cross_entropy_with_logits(logits.float(), wanted)


def noise():
    return torch.empty(a.batch, a.latent).bernoulli_(0.5).mul_(2).sub_(1)


def step_disc(x):
    with c.autocast(a.precision):
        with torch.no_grad():
            made = run_gen(noise())
        if a.cat:
            loss = 2 * bce(run_disc(torch.cat([x, made])), both)
        else:
            loss = bce(run_disc(x), real) + bce(run_disc(made), fake)
    loss.backward()
    opt_disc.step()
    opt_disc.zero_grad(set_to_none=True)
    return loss


def step_gen():
    disc.requires_grad_(False)  # a constant of this step
    with c.autocast(a.precision):
        loss = bce(run_disc(run_gen(noise())), real)
    loss.backward()
    opt_gen.step()
    opt_gen.zero_grad(set_to_none=True)
    disc.requires_grad_(True)
    return loss


per_epoch = len(x8) // a.batch
shuffle = torch.Generator().manual_seed(a.seed)
figures, steps, since = [], 0, 0
start = time.perf_counter()
while steps < a.steps:
    if steps // 2 % per_epoch == 0:
        order = torch.randperm(len(x8), generator=shuffle)
    i = steps // 2 % per_epoch
    xb = x8.index_select(0, order[i * a.batch:(i + 1) * a.batch]).to(torch.float32).mul_(1 / 255)
    losses = step_disc(xb).item(), step_gen().item()
    steps += 2
    if steps - since >= a.window:
        now = time.perf_counter()
        figures.append((steps - since) // 2 * a.batch / (now - start))
        start, since = now, steps
mode = (a.compile and "compile:" + a.compile or "eager") + (" cat" if a.cat else "") + " " + a.adam
c.emit("gan", a, mode, figures[1:] or figures, "samples/s", batch=a.batch, loss_disc=round(losses[0], 4),
       loss_gen=round(losses[1], 4))
