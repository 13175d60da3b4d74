"""An unmodified script of PyTorch Lightning: a line fitted by DDP, which it finds by torchrun's variables, nothing of traind's.

usage: lightning_fit.py RANKS STEPS OUT
"""
import os
import sys

import lightning.pytorch as pl
import torch

RANKS, STEPS, OUT = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]


class Line(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, at):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layer(x), y)
        self.log("train_loss", loss)
        return loss

    def on_train_batch_end(self, outputs, batch, at):
        if self.global_rank == 0:
            print(f"step={self.global_step} of {STEPS} loss={outputs['loss'].item():.6f}", flush=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


pl.seed_everything(1)
x = torch.linspace(-1, 1, 8 * RANKS * STEPS).unsqueeze(1)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, 3 * x + 1), batch_size=8)
trainer = pl.Trainer(accelerator="cpu", devices=RANKS, strategy="ddp", max_steps=STEPS, enable_progress_bar=False,
                     enable_model_summary=False, logger=False, enable_checkpointing=False, default_root_dir=OUT)
trainer.fit(Line(), data)
print("found", trainer.global_rank, trainer.world_size, os.environ["CUDA_VISIBLE_DEVICES"])
