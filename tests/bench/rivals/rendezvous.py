"""The first collective of ranks that meet by torchrun's c10d rendezvous: when each had done it, by the time of day.

    torchrun --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint HOST:PORT rendezvous.py
"""
import json
import os
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = torch.ones(1)
dist.all_reduce(x)
done = time.time()
assert x.item() == dist.get_world_size()
os.write(1, (json.dumps({"done_s": done}) + "\n").encode())  # at once: the ranks of a host share its pipe
dist.destroy_process_group()
