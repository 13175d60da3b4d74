"""PyTorch DDP over gloo as torchrun starts it: nothing here knows traind. Each rank fits a line, and rank 0 keeps the
newest state in its working directory, from which a run that follows begins: others need not see that directory, for
they may be on other hosts. Usage: ddp.py STEPS"""
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS, STATE = int(sys.argv[1]), "state.pt"


def main():
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    plain, begin = torch.nn.Linear(8, 1), torch.zeros(1, dtype=torch.int64)
    if rank == 0 and os.path.exists(STATE):  # a run before this one was cut off
        kept = torch.load(STATE, weights_only=True)
        plain.load_state_dict(kept["model"])
        begin[0] = kept["step"]
    dist.broadcast(begin, 0)
    first = int(begin)
    model = DDP(plain)  # which begins with the weights of rank 0 everywhere
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    print(f"rank {rank} of {world} begins after step {first}, pid {os.getpid()}", flush=True)
    wanted = torch.arange(8, dtype=torch.float32)
    for step in range(first + 1, STEPS + 1):
        draw = torch.Generator().manual_seed(step * world + rank)
        x = torch.randn(32, 8, generator=draw)
        loss = (model(x).squeeze(1) - x @ wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            torch.save({"model": model.module.state_dict(), "step": step}, STATE + ".new")
            os.replace(STATE + ".new", STATE)
        time.sleep(0.005)
    if rank == 0:
        print(f"done: step {STEPS}, loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


main()
