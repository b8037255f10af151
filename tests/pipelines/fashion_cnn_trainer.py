"""Small CNN on 28x28 grey clothing-like pictures, with a reusable Trainer."""
import argparse
import copy
import math
import os
import random
import tempfile
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    steps: int = 220
    batch_size: int = 32
    lr: float = 2e-3
    min_lr_ratio: float = 0.02
    warmup: int = 20
    weight_decay: float = 0.05
    clip: float = 1.0
    label_smoothing: float = 0.05
    eval_every: int = 55
    seed: int = 1337


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def make_pictures(n_per_class, prototypes, rng):
    xs, ys = [], []
    for label, proto in enumerate(prototypes):
        for _ in range(n_per_class):
            dy, dx = rng.integers(-2, 3, size=2)
            img = np.roll(proto, (dy, dx), axis=(0, 1)) * rng.uniform(0.6, 1.2)
            img = img + rng.normal(0, 0.35, size=img.shape)
            xs.append(np.clip(img, 0, 1.5))
            ys.append(label)
    order = rng.permutation(len(ys))
    return np.stack(xs)[order].astype(np.float32), np.array(ys)[order]


class PictureSet(Dataset):
    def __init__(self, images, labels, mean, std, augment=False):
        self.x = torch.from_numpy((images - mean) / std).unsqueeze(1).float()
        self.y = torch.from_numpy(labels).long()
        self.augment = augment

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        img = self.x[i]
        if self.augment:
            padded = F.pad(img, (2, 2, 2, 2), value=img.min().item())
            top, left = torch.randint(0, 5, (2,)).tolist()
            img = padded[:, top : top + 28, left : left + 28]
        return img, self.y[i]


class Net(nn.Module):
    def __init__(self, n_classes=10):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 48, 3, padding=1, bias=False),
            nn.BatchNorm2d(48),
            nn.ReLU(),
        )
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(48, n_classes)

    def forward(self, x):
        x = self.features(x).mean(dim=(2, 3))
        return self.head(self.dropout(x))


class Trainer:
    def __init__(self, cfg, model, train_loader, val_loader, workdir):
        self.cfg, self.model = cfg, model
        self.train_loader, self.val_loader = train_loader, val_loader
        self.best_path = os.path.join(workdir, "best.pt")
        decay = [p for p in model.parameters() if p.ndim >= 2]
        no_decay = [p for p in model.parameters() if p.ndim < 2]
        self.optimizer = torch.optim.AdamW(
            [
                {"params": decay, "weight_decay": cfg.weight_decay},
                {"params": no_decay, "weight_decay": 0.0},
            ],
            lr=cfg.lr,
        )
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, self._lr_factor
        )
        self.criterion = nn.CrossEntropyLoss(label_smoothing=cfg.label_smoothing)
        self.step, self.epoch, self.best_acc = 0, 0, -1.0

    def _lr_factor(self, step):
        if step < self.cfg.warmup:
            return (step + 1) / self.cfg.warmup
        t = (step - self.cfg.warmup) / max(1, self.cfg.steps - self.cfg.warmup)
        floor = self.cfg.min_lr_ratio
        return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(t, 1.0)))

    def train_step(self, images, labels):
        logits = self.model(images)
        loss = self.criterion(logits, labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.clip)
        self.optimizer.step()
        self.scheduler.step()
        return loss.item(), norm.item()

    @torch.no_grad()
    def evaluate(self, loader):
        was_training = self.model.training
        self.model.eval()
        total, correct, loss_sum = 0, 0, 0.0
        for images, labels in loader:
            logits = self.model(images)
            loss_sum += F.cross_entropy(logits, labels, reduction="sum").item()
            correct += (logits.argmax(1) == labels).sum().item()
            total += labels.numel()
        self.model.train(was_training)
        return loss_sum / total, correct / total

    def fit(self):
        self.model.train()
        while self.step < self.cfg.steps:
            self.epoch += 1
            for images, labels in self.train_loader:
                loss, norm = self.train_step(images, labels)
                self.step += 1
                if self.step % 20 == 0:
                    lr = self.scheduler.get_last_lr()[0]
                    print(
                        f"epoch {self.epoch} step {self.step} loss {loss:.4f} gnorm {norm:.2f} lr {lr:.2e}"
                    )
                if self.step % self.cfg.eval_every == 0 or self.step == self.cfg.steps:
                    val_loss, val_acc = self.evaluate(self.val_loader)
                    print(f"  val loss {val_loss:.4f} acc {val_acc:.3f}")
                    if val_acc > self.best_acc:
                        self.best_acc = val_acc
                        torch.save(self.model.state_dict(), self.best_path)
                if self.step >= self.cfg.steps:
                    break


def overfit_one_batch(model, batch, n=15):
    """Quick check on a throw-away copy that the network can fit one batch."""
    probe = copy.deepcopy(model)
    probe.train()
    opt = torch.optim.Adam(probe.parameters(), lr=5e-3)
    images, labels = batch
    losses = []
    for _ in range(n):
        opt.zero_grad()
        loss = F.cross_entropy(probe(images), labels)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    print(
        f"sanity: one batch from {losses[0]:.3f} to {losses[-1]:.3f} (ln 10 = {math.log(10):.3f})"
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=Config.steps)
    args = parser.parse_args()
    cfg = Config(steps=args.steps)
    set_seed(cfg.seed)

    rng = np.random.default_rng(cfg.seed)
    prototypes = [
        np.kron(rng.uniform(0, 1, (7, 7)), np.ones((4, 4))) for _ in range(10)
    ]
    train_x, train_y = make_pictures(160, prototypes, rng)
    val_x, val_y = make_pictures(30, prototypes, rng)
    test_x, test_y = make_pictures(30, prototypes, rng)
    mean, std = train_x.mean(), train_x.std()

    train_loader = DataLoader(
        PictureSet(train_x, train_y, mean, std, augment=True),
        batch_size=cfg.batch_size,
        shuffle=True,
    )
    val_loader = DataLoader(PictureSet(val_x, val_y, mean, std), batch_size=128)
    test_loader = DataLoader(PictureSet(test_x, test_y, mean, std), batch_size=128)

    model = Net()
    overfit_one_batch(model, next(iter(train_loader)))
    with tempfile.TemporaryDirectory() as workdir:
        trainer = Trainer(cfg, model, train_loader, val_loader, workdir)
        trainer.fit()
        model.load_state_dict(torch.load(trainer.best_path, weights_only=True))
        test_loss, test_acc = trainer.evaluate(test_loader)
    print(
        f"best val acc {trainer.best_acc:.3f} | test loss {test_loss:.4f} acc {test_acc:.3f}"
    )


if __name__ == "__main__":
    main()
