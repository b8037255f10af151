import argparse
import copy
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

# Leaf disease classification, 5 classes, small CNN.
# Pictures are drawn on the fly: green leaf + spots whose form depends on the class.


@dataclass
class Config:
    steps: int = 150
    batch_size: int = 32
    val_batch_size: int = 16
    lr: float = 2e-3
    weight_decay: float = 1e-2
    dropout: float = 0.4
    eval_every: int = 30
    seed: int = 3


class LeafDataset(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, 5, (n,), generator=g)
        yy, xx = torch.meshgrid(
            torch.linspace(-1, 1, 24), torch.linspace(-1, 1, 24), indexing="ij"
        )
        pictures = []
        for k in self.labels.tolist():
            leaf = ((xx / 0.9) ** 2 + (yy / 0.7) ** 2 < 1).float()
            img = torch.stack([0.2 * leaf, 0.6 * leaf, 0.15 * leaf])
            for _ in range(k + 2):
                cx, cy = (torch.rand(2, generator=g) * 1.2 - 0.6).tolist()
                radius = 0.10 + 0.03 * k
                spot = ((xx - cx) ** 2 + (yy - cy) ** 2 < radius**2).float()
                img[0] += spot * (0.2 + 0.1 * k)
                img[1] -= spot * 0.3
            img += 0.15 * torch.randn(img.shape, generator=g)
            pictures.append(img)
        self.pictures = torch.stack(pictures)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.pictures[i], self.labels[i]


def conv_block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
    )


class LeafNet(nn.Module):
    def __init__(self, n_classes=5, dropout=0.4):
        super().__init__()
        self.features = nn.Sequential(
            conv_block(3, 16),
            nn.MaxPool2d(2),
            conv_block(16, 32),
            nn.MaxPool2d(2),
            conv_block(32, 48),
        )
        self.classifier = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(48, 32),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(32, n_classes),
        )

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


class Trainer:
    def __init__(self, cfg, args):
        self.cfg = cfg
        self.args = args
        torch.manual_seed(cfg.seed)
        self.model = LeafNet(dropout=cfg.dropout)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay
        )
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, cfg.lr * 2, total_steps=cfg.steps + 1
        )
        self.train_loader = DataLoader(
            LeafDataset(640, 1), batch_size=cfg.batch_size, shuffle=True, drop_last=True
        )
        self.val_loader = DataLoader(LeafDataset(240, 2), batch_size=cfg.val_batch_size)
        self.step = 0
        self.best = 0.0
        self.best_state = None
        self.stats_moved = 0.0

    def train(self):
        losses = []
        while self.step < self.cfg.steps:
            for x, y in self.train_loader:
                self.model.train()
                self.optimizer.zero_grad(set_to_none=True)
                loss = F.cross_entropy(self.model(x), y, label_smoothing=0.05)
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
                self.optimizer.step()
                self.scheduler.step()
                self.step += 1
                losses.append(loss.item())
                if self.step % self.cfg.eval_every == 0 or self.step == self.cfg.steps:
                    before = self.model.features[0][1].running_mean.clone()
                    val_loss, acc = self.validate()
                    moved = (
                        (self.model.features[0][1].running_mean - before)
                        .abs()
                        .max()
                        .item()
                    )
                    self.stats_moved = max(self.stats_moved, moved)
                    print(
                        f"[{self.step:4d}] train {sum(losses) / len(losses):.4f} val {val_loss:.4f} acc {acc:.3f}"
                    )
                    losses = []
                    if acc > self.best:
                        self.best = acc
                        self.best_state = copy.deepcopy(self.model.state_dict())
                if self.step >= self.cfg.steps:
                    break

    def validate(self):
        if self.args.fixed:
            self.model.eval()
        total, correct, n = 0.0, 0, 0
        with torch.no_grad():
            for x, y in self.val_loader:
                logits = self.model(x)
                total += F.cross_entropy(logits, y, reduction="sum").item()
                correct += (logits.argmax(1) == y).sum().item()
                n += len(y)
        return total / n, correct / n


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=150)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    cfg = Config(steps=args.steps)
    trainer = Trainer(cfg, args)
    trainer.train()
    print(f"best validation accuracy {trainer.best:.3f}")

    if args.prove:
        # validate twice on the same weights: the numbers ought to agree
        a, _ = trainer.validate()
        b, _ = trainer.validate()
        print(
            f"validation twice: {a:.5f} {b:.5f}, running mean moved by {trainer.stats_moved:.5f}"
        )
        print(
            "fault shows:",
            "yes" if abs(a - b) > 1e-6 and trainer.stats_moved > 0 else "no",
        )


if __name__ == "__main__":
    main()
