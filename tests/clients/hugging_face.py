"""Run by test_transformers.py under a Python that has torch and transformers.

    hugging_face.py logits DIR ROWS.npy OUT.npy   what the model in DIR says after each row of tokens
    hugging_face.py make NAME DIR MAX_SHARD_SIZE  saves a small GPT-2 or Llama with random weights
    hugging_face.py train DIR ROWS.npy OUT.npy    loss and gradient norm of the model in DIR, step by step,
                                                  ROWS being (steps, batch, tokens + 1), by SGD at RATE
    hugging_face.py serve                         does these, as JSON lists of words on stdin ask for it
"""
import json
import sys
import traceback

import torch
import transformers

OTHERS = dict(vocab_size=256, initializer_range=0.2, bos_token_id=None, eos_token_id=None)
LLAMA = dict(OTHERS, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             max_position_embeddings=16, rms_norm_eps=1e-5)
MODELS = {
    "gpt": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_layer=2, n_head=2, n_embd=32, n_positions=16, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **OTHERS)),
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(
        num_key_value_heads=2, rope_theta=500.0, **LLAMA)),
    "llama tied": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(
        tie_word_embeddings=True, **LLAMA)),
    "llama wide": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(
        head_dim=12, num_key_value_heads=2, **LLAMA)),
    "llama linear": lambda: stretched(rope_type="linear", factor=3.0),
    "llama dynamic": lambda: stretched(rope_type="dynamic", factor=3.0),
    # One angle is left, one is blended, two are stretched.
    "llama 3": lambda: stretched(rope_type="llama3", factor=8.0, low_freq_factor=0.3, high_freq_factor=1.0,
                                 original_max_position_embeddings=8, rope_theta=50.0),
}


def stretched(**rope):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        rope_parameters={"rope_theta": 10000.0, **rope}, **LLAMA))


RATE = 0.3


def logits(directory, rows, out):
    import numpy as np
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    with torch.no_grad():
        found = model(torch.from_numpy(np.load(rows)).long()).logits[:, -1]
    np.save(out, found.numpy())


def make(name, directory, max_shard_size):
    torch.manual_seed(4)
    MODELS[name]().save_pretrained(directory, max_shard_size=max_shard_size)


def train(directory, rows, out):
    import numpy as np
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    found = []
    for batch in torch.from_numpy(np.load(rows)).long():
        logits = model(batch[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        found.append((loss.item(), torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf")).item()))
        optimizer.step()
        optimizer.zero_grad()
    np.save(out, np.array(found))


def serve():
    """A request a line, a list of words as above; of each what failed, as a line, or an empty text."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # what libraries print is no answer
    for line in sys.stdin:
        verb, *args = json.loads(line)
        failed = ""
        try:
            VERBS[verb](*args)
        except Exception:
            failed = traceback.format_exc()
        print(json.dumps(failed), file=answers, flush=True)


VERBS = {"logits": logits, "make": make, "train": train, "serve": serve}
if __name__ == "__main__":
    VERBS[sys.argv[1]](*sys.argv[2:])
