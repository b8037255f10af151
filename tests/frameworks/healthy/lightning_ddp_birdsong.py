"""Tells the songs of birds apart (recurrent over pitch contours) on two ranks:
Lightning's DDP strategy over gloo on the CPU, which starts the second rank itself.
Metrics are reduced over the ranks, the sampler is Lightning's own, and a test on one
sampler a rank closes the run.

    python lightning_ddp_birdsong.py --steps 60
"""

import argparse
import logging
import tempfile
import warnings

import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import MulticlassAccuracy

SPECIES, STEPS = 5, 30


class Songs(Dataset):
    """A contour of pitch and loudness each; a species has its trill and its glide."""

    def __init__(self, count, seed):
        rng = torch.Generator().manual_seed(seed)
        self.species = torch.randint(SPECIES, (count,), generator=rng)
        time = torch.linspace(0, 1, STEPS)
        phase, level = torch.rand(2, count, 1, generator=rng)
        kind = self.species.unsqueeze(1).float()
        trill = torch.sin(2 * torch.pi * ((2 + 1.5 * kind) * time + phase))
        glide = (kind % 2 - 0.5) * time
        pitch = level + glide + 0.4 * trill
        pitch += 0.25 * torch.randn(pitch.shape, generator=rng)
        loud = (time - 0.5).abs().expand(count, STEPS) + 0.1 * kind.remainder(3)
        loud = loud + 0.2 * torch.randn(loud.shape, generator=rng)
        self.songs = torch.stack([pitch, loud], 2)

    def __len__(self):
        return len(self.songs)

    def __getitem__(self, index):
        return self.songs[index], self.species[index]


class SongNet(L.LightningModule):
    def __init__(self, hidden=40, max_lr=0.01):
        super().__init__()
        self.save_hyperparameters()
        self.norm = nn.BatchNorm1d(2)
        self.gru = nn.GRU(2, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Sequential(nn.Dropout(0.1), nn.Linear(2 * hidden, SPECIES))
        self.accuracy = MulticlassAccuracy(SPECIES)

    def forward(self, songs):
        songs = self.norm(songs.transpose(1, 2)).transpose(1, 2)
        return self.out(self.gru(songs)[0].mean(1))

    def training_step(self, batch, batch_idx):
        songs, species = batch
        loss = nn.functional.cross_entropy(self(songs), species)
        self.log("train_loss", loss, sync_dist=True, on_step=False, on_epoch=True)
        return loss

    def evaluate(self, batch, name):
        songs, species = batch
        scores = self(songs)
        self.accuracy(scores, species)
        loss = nn.functional.cross_entropy(scores, species)
        self.log(f"{name}_loss", loss, sync_dist=True)
        self.log(f"{name}_accuracy", self.accuracy)

    def validation_step(self, batch, batch_idx):
        self.evaluate(batch, "val")

    def test_step(self, batch, batch_idx):
        self.evaluate(batch, "test")

    def on_train_epoch_end(self):
        seen = self.trainer.callback_metrics
        names = [n for n in ("train_loss", "val_loss", "val_accuracy") if n in seen]
        if self.trainer.is_global_zero:
            parts = [f"{name} {seen[name].item():.4f}" for name in names]
            print(f"step {self.global_step}", *parts, flush=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3, weight_decay=0.02)
        total = self.trainer.estimated_stepping_batches
        scheduler = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, self.hparams.max_lr, total_steps=total
        )
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


def main(args, folder):
    L.seed_everything(args.seed, verbose=False)
    train = DataLoader(Songs(640, 1), 32, shuffle=True, drop_last=True)
    valid, test = DataLoader(Songs(192, 2), 48), DataLoader(Songs(192, 3), 48)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=2,
        strategy=DDPStrategy(process_group_backend="gloo"),
        max_steps=args.steps,
        max_epochs=-1,
        gradient_clip_val=2.0,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    model = SongNet()
    trainer.fit(model, train, valid)
    scores = trainer.test(model, test, verbose=False)[0]
    if trainer.is_global_zero:
        print(" ".join(f"{name} {value:.4f}" for name, value in scores.items()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=21)
    for text in (
        ".*num_workers.*",
        ".*distributed settings.*",
        ".*DistributedSampler.*",
    ):
        warnings.filterwarnings("ignore", text)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        main(parser.parse_args(), temporary)
