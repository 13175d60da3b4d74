"""Run by test_transformers.py under a Python that has torch and transformers.

    hugging_face.py logits DIR ROWS.npy OUT.npy   what the model in DIR says behind each row of tokens
    hugging_face.py make DIR MAX_SHARD_SIZE       saves a small GPT-2 with random weights
"""
import sys

import torch
import transformers

SIZES = dict(n_layer=2, n_head=2, n_embd=32, n_positions=16, vocab_size=256)


def logits(directory, rows, out):
    import numpy as np
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    with torch.no_grad():
        found = model(torch.from_numpy(np.load(rows)).long()).logits[:, -1]
    np.save(out, found.numpy())


def make(directory, max_shard_size):
    torch.manual_seed(4)
    config = transformers.GPT2Config(**SIZES, initializer_range=0.2, bos_token_id=None, eos_token_id=None)
    transformers.GPT2LMHeadModel(config).save_pretrained(directory, max_shard_size=max_shard_size)


if __name__ == "__main__":
    {"logits": logits, "make": make}[sys.argv[1]](*sys.argv[2:])
