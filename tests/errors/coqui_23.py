"""Acoustic model: phoneme sequences to mel frames, with a small generic trainer."""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

PHONES, MELS, T = 30, 20, 16


def build_corpus(n, seed):
    g = torch.Generator().manual_seed(seed)
    tg = torch.Generator().manual_seed(77)
    spectra = torch.randn(PHONES, MELS, generator=tg)
    coart = 0.5 * torch.randn(PHONES, MELS, generator=tg)
    phones = torch.randint(0, PHONES, (n, T), generator=g)
    before = torch.roll(phones, 1, dims=1)
    mel = (
        spectra[phones]
        + coart[before] * torch.tanh(spectra[phones])
        + 0.15 * torch.randn(n, T, MELS, generator=g)
    )
    return TensorDataset(phones, mel)


class AcousticModel(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.emb = nn.Embedding(PHONES, width)
        self.conv = nn.Conv1d(width, width, 3, padding=1)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.post = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, MELS)
        )

    def forward(self, phones):
        x = self.emb(phones)
        x = x + torch.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)
        return self.post(self.rnn(x)[0])

    def get_criterion(self):
        return lambda pred, mel: F.l1_loss(pred, mel) + 0.5 * F.mse_loss(pred, mel)


class Trainer:
    def __init__(self, config, model, train_set, eval_set):
        self.config = config
        self.model = model
        self.criterion = model.get_criterion()
        self.train_loader = DataLoader(
            train_set,
            config.batch_size,
            shuffle=True,
            drop_last=True,
            generator=torch.Generator().manual_seed(5),
        )
        self.eval_loader = DataLoader(eval_set, 128)
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=config.lr, weight_decay=1e-2
        )
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(
            self.optimizer, gamma=config.gamma
        )
        self.use_amp = config.mixed_precision
        self.scaler = (
            torch.amp.GradScaler("cpu", init_scale=2.0**10) if self.use_amp else None
        )
        self.optimizer_stepped = False
        self.total_steps = 0
        self.lr_of_epoch = []

    def optimize(self, loss):
        """One backward pass and one update."""
        self.optimizer.zero_grad()
        stepped = False
        if self.use_amp:
            scale_before = self.scaler.get_scale()
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.optimizer)
            grad_norm = nn.utils.clip_grad_norm_(
                self.model.parameters(), self.config.grad_clip
            )
            self.scaler.step(self.optimizer)
            self.scaler.update()
            if self.config.fixed:
                stepped = self.scaler.get_scale() >= scale_before
        else:
            loss.backward()
            grad_norm = nn.utils.clip_grad_norm_(
                self.model.parameters(), self.config.grad_clip
            )
            self.optimizer.step()
            stepped = True
        return grad_norm.item(), stepped

    def train_step(self, batch):
        phones, mel = batch
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.use_amp):
            pred = self.model(phones)
        loss = self.criterion(pred.float(), mel)
        grad_norm, stepped = self.optimize(loss)
        self.optimizer_stepped = self.optimizer_stepped or stepped
        self.total_steps += 1
        return loss.item(), grad_norm

    def train_epoch(self, epoch):
        self.model.train()
        self.optimizer_stepped = False
        self.lr_of_epoch.append(self.optimizer.param_groups[0]["lr"])
        losses = []
        for batch in self.train_loader:
            loss, grad_norm = self.train_step(batch)
            losses.append(loss)
            if not self.config.scheduler_after_epoch and self.optimizer_stepped:
                self.scheduler.step()
        if self.config.scheduler_after_epoch and self.optimizer_stepped:
            self.scheduler.step()
        return sum(losses) / len(losses), grad_norm

    @torch.no_grad()
    def eval_epoch(self):
        self.model.eval()
        err = [F.l1_loss(self.model(p), m).item() for p, m in self.eval_loader]
        return sum(err) / len(err)

    def fit(self):
        for epoch in range(self.config.epochs):
            train_loss, grad_norm = self.train_epoch(epoch)
            if epoch % 2 == 0 or epoch == self.config.epochs - 1:
                print(
                    f" > EPOCH {epoch}/{self.config.epochs}  step {self.total_steps}  loss {train_loss:.4f}  "
                    f"grad_norm {grad_norm:.3f}  eval_l1 {self.eval_epoch():.4f}"
                )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=12)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--lr", type=float, default=3e-2)
    ap.add_argument("--gamma", type=float, default=0.75)
    ap.add_argument("--grad-clip", type=float, default=5.0)
    ap.add_argument(
        "--mixed-precision", action=argparse.BooleanOptionalAction, default=True
    )
    ap.add_argument(
        "--scheduler-after-epoch", action=argparse.BooleanOptionalAction, default=True
    )
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    config = ap.parse_args()

    torch.manual_seed(8)
    trainer = Trainer(
        config, AcousticModel(), build_corpus(512, 1), build_corpus(256, 2)
    )
    trainer.fit()

    if config.prove:
        wanted = [config.lr * config.gamma**e for e in range(config.epochs)]
        print(
            "learning rate by epoch, used  :",
            " ".join(f"{v:.2e}" for v in trainer.lr_of_epoch),
        )
        print("learning rate by epoch, wanted:", " ".join(f"{v:.2e}" for v in wanted))
        off = max(abs(math.log(a / b)) for a, b in zip(trainer.lr_of_epoch, wanted))
        print("fault shows:", "yes" if off > 1e-6 else "no")


if __name__ == "__main__":
    main()
