"""Forecasts the moisture of bricks after a kiln from the settings and from the curve
of its temperature. Lightning with what comes in the box: a data module, validation
after each epoch, the best checkpoint kept, early stopping, gradients accumulated over
two batches and clipped, and a rate that is warmed up and then decays step by step.

    python lightning_kiln.py --steps 120
"""

import argparse
import math
import tempfile
import warnings

import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split
from torchmetrics import MeanAbsoluteError

HOURS, SETTINGS = 48, 6


def firings(count, generator):
    """Settings of a kiln, the curve measured in it, and what moisture remained."""
    settings = torch.rand(count, SETTINGS, generator=generator)
    hour = torch.arange(HOURS) / HOURS
    peak = 0.5 + settings[:, :1]
    curve = peak * torch.exp(-((hour - 0.4 - 0.3 * settings[:, 1:2]) ** 2) * 20)
    curve += 0.05 * torch.randn(count, HOURS, generator=generator)
    heat = curve.clamp(min=0.3).mean(1)
    moisture = torch.exp(-3 * heat) * (1 + settings[:, 2]) + 0.3 * settings[:, 3] ** 2
    moisture += 0.01 * torch.randn(count, generator=generator)
    return settings, curve, (moisture - 0.5) / 0.2


class KilnData(L.LightningDataModule):
    def __init__(self, firings_count=1600, batch_size=20, seed=5):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage):
        generator = torch.Generator().manual_seed(self.hparams.seed)
        everything = TensorDataset(*firings(self.hparams.firings_count, generator))
        self.train, self.valid = random_split(everything, [0.8, 0.2], generator)

    def train_dataloader(self):
        return DataLoader(self.train, self.hparams.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.valid, 160)


class KilnModel(L.LightningModule):
    def __init__(self, width=48, lr=4e-3, warmup=8, total=120):
        super().__init__()
        self.save_hyperparameters()
        self.curve = nn.Sequential(
            nn.Conv1d(1, 16, 5, stride=2),
            nn.GELU(),
            nn.Conv1d(16, 16, 5, stride=2),
            nn.GELU(),
            nn.AdaptiveAvgPool1d(4),
            nn.Flatten(),
        )
        self.head = nn.Sequential(
            nn.Linear(64 + SETTINGS, width),
            nn.GELU(),
            nn.Dropout(0.05),
            nn.Linear(width, 1),
        )
        self.mae = MeanAbsoluteError()

    def forward(self, settings, curve):
        seen = self.curve(curve.unsqueeze(1))
        return self.head(torch.cat([seen, settings], 1)).squeeze(1)

    def training_step(self, batch, batch_idx):
        settings, curve, moisture = batch
        loss = nn.functional.huber_loss(self(settings, curve), moisture)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        settings, curve, moisture = batch
        guess = self(settings, curve)
        self.mae(guess, moisture)
        self.log("val_loss", nn.functional.huber_loss(guess, moisture))
        self.log("val_mae", self.mae)

    def on_validation_epoch_end(self):
        seen = self.trainer.callback_metrics
        if "train_loss" in seen:
            parts = (f"{k} {seen[k]:.4f}" for k in ("train_loss", "val_loss"))
            print(f"step {self.global_step}", *parts, flush=True)

    def rate(self, step):
        warmup, total = self.hparams.warmup, self.hparams.total
        if step < warmup:
            return (step + 1) / warmup
        done = min(1.0, (step - warmup) / max(1, total - warmup))
        return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done))

    def configure_optimizers(self):
        decayed = [p for p in self.parameters() if p.ndim > 1]
        rest = [p for p in self.parameters() if p.ndim <= 1]
        groups = [{"params": decayed, "weight_decay": 0.01}]
        groups.append({"params": rest, "weight_decay": 0.0})
        optimizer = torch.optim.AdamW(groups, lr=self.hparams.lr)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, self.rate)
        schedule = {"scheduler": scheduler, "interval": "step"}
        return {"optimizer": optimizer, "lr_scheduler": schedule}


def main(args, folder):
    L.seed_everything(args.seed, verbose=False)
    data, model = KilnData(), KilnModel(total=args.steps)
    best = ModelCheckpoint(folder, monitor="val_loss", save_last=True)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=args.steps,
        max_epochs=-1,
        accumulate_grad_batches=2,
        gradient_clip_val=1.0,
        callbacks=[best, EarlyStopping("val_loss", patience=6)],
        log_every_n_steps=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(model, data)
    if best.best_model_path:
        model = KilnModel.load_from_checkpoint(best.best_model_path)
        scores = trainer.validate(model, data, verbose=False)[0]
        print(f"best: val_loss {scores['val_loss']:.4f} mae {scores['val_mae']:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--seed", type=int, default=11)
    warnings.filterwarnings("ignore", ".*num_workers.*")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        main(parser.parse_args(), temporary)
