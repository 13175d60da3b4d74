"""An unmodified script of Hugging Face's Trainer: a tiny GPT-2 from its config, numbers as data, nothing of traind's.

usage: hf_trainer.py STEPS SECONDS_A_STEP OUT
"""
import os
import sys
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

STEPS, PAUSE, OUT = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, at):
        ids = torch.arange(at, at + 16) % 50
        return {"input_ids": ids, "labels": ids}


class Slow(TrainerCallback):
    """Training as long as a real one's, at little cost."""

    def on_step_begin(self, args, state, control, **more):
        time.sleep(PAUSE)


torch.manual_seed(1)
model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=16, n_positions=16, vocab_size=50))
args = TrainingArguments(output_dir=OUT, max_steps=STEPS, logging_steps=2, per_device_train_batch_size=4, use_cpu=True,
                         save_strategy="no", disable_tqdm=True)
trainer = Trainer(model=model, args=args, train_dataset=Numbers(), callbacks=[Slow()])
done = trainer.train()
print("losses", [(row["step"], row["loss"]) for row in trainer.state.log_history if "loss" in row])
print("train_loss", done.training_loss)
print("found", args.process_index, args.world_size, os.environ["CUDA_VISIBLE_DEVICES"])
