"""torch.multiprocessing.spawn of 2 ranks, to both of them in their function, and to the end of their first step, of
an mlp in DistributedDataParallel over gloo: one JSON line, milliseconds of each try.

    python spawn_start.py [--tries 5]
"""
import argparse
import json
import tempfile
import time


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def first_step(rank, folder):
    import torch
    import torch.distributed

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    layers = [torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(),
              torch.nn.Linear(512, 10)]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    x, y = torch.rand(128, 784), torch.randint(0, 10, (128,))
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


def enter(rank, folder):
    entered = now_ns()
    first_step(rank, folder)
    with open(f"{folder}/{rank}", "w") as f:
        json.dump([entered, now_ns()], f)


def main():
    import torch.multiprocessing

    p = argparse.ArgumentParser()
    p.add_argument("--tries", type=int, default=5)
    figures = []
    for _ in range(p.parse_args().tries):
        with tempfile.TemporaryDirectory() as folder:
            start = now_ns()
            torch.multiprocessing.spawn(enter, args=(folder,), nprocs=2)
            times = [json.load(open(f"{folder}/{r}")) for r in range(2)]
            figures.append([(max(of) - start) / 1e6 for of in zip(*times)])
    ms, step_ms = zip(*figures)
    print(json.dumps({"ms": [round(f, 3) for f in ms], "step_ms": [round(f, 3) for f in step_ms]}))


if __name__ == "__main__":
    main()
