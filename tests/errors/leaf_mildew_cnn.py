# leaf disease classifier, cleaned up from my kaggle notebook
import argparse
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset


@dataclass
class CFG:
    seed: int = 7
    n_train: int = 1600
    n_valid: int = 320
    size: int = 24
    n_classes: int = 4
    bs: int = 32
    lr: float = 2e-3
    wd: float = 1e-4
    valid_every: int = 20


class LeafDataset(Dataset):
    """Green-ish pictures with spots / stripes / rings depending on the class."""

    def __init__(self, n, cfg, seed, augment=False, brightness=0.0):
        g = torch.Generator().manual_seed(seed)
        s = cfg.size
        yy, xx = torch.meshgrid(torch.arange(s), torch.arange(s), indexing="ij")
        self.labels = torch.randint(0, cfg.n_classes, (n,), generator=g)
        imgs = 0.25 * torch.randn(n, 3, s, s, generator=g)
        imgs[:, 1] += 0.6
        for i in range(n):
            c = self.labels[i].item()
            cy, cx = (torch.rand(2, generator=g) * (s - 8) + 4).tolist()
            r = ((yy - cy) ** 2 + (xx - cx) ** 2).float().sqrt()
            if c == 1:
                imgs[i, 0] += 0.9 * (r < 3.5).float()
            elif c == 2:
                imgs[i, 0] += 0.9 * ((r > 3.5) & (r < 5.0)).float()
            elif c == 3:
                imgs[i, 0] += 0.7 * (((xx - int(cx)).abs() < 2)).float()
        self.imgs = imgs + brightness
        self.augment = augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        img = self.imgs[i]
        if self.augment and torch.rand(1).item() < 0.5:
            img = img.flip(-1)
        return img, self.labels[i]


def conv_bn(c_in, c_out, stride=1):
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(c_out),
        nn.ReLU(inplace=True),
    )


class LeafNet(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        self.features = nn.Sequential(
            conv_bn(3, 16), conv_bn(16, 32, 2), conv_bn(32, 32), conv_bn(32, 64, 2)
        )
        self.drop = nn.Dropout(0.4)
        self.fc = nn.Linear(64, n_classes)

    def forward(self, x):
        x = self.features(x).mean(dim=(2, 3))
        return self.fc(self.drop(x))


class Trainer:
    def __init__(self, model, cfg, args):
        self.model, self.cfg, self.args = model, cfg, args
        self.opt = optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=cfg.wd)
        self.sched = optim.lr_scheduler.OneCycleLR(
            self.opt, max_lr=cfg.lr, total_steps=args.steps
        )
        self.best = 0.0
        self.step = 0
        self.history = []

    def train_step(self, x, y):
        self.model.train()
        self.opt.zero_grad()
        loss = F.cross_entropy(self.model(x), y, label_smoothing=0.05)
        loss.backward()
        self.opt.step()
        self.sched.step()
        self.step += 1
        return loss.item()

    @torch.no_grad()
    def validate(self, loader):
        if self.args.fixed:
            self.model.eval()
        loss, correct, n = 0.0, 0, 0
        for x, y in loader:
            out = self.model(x)
            loss += F.cross_entropy(out, y, reduction="sum").item()
            correct += (out.argmax(1) == y).sum().item()
            n += len(y)
        return loss / n, correct / n

    def fit(self, train_loader, valid_loader):
        losses = []
        while self.step < self.args.steps:
            for x, y in train_loader:
                losses.append(self.train_step(x, y))
                if self.step % self.cfg.valid_every == 0:
                    vl, va = self.validate(valid_loader)
                    self.best = max(self.best, va)
                    self.history.append((self.step, vl, va))
                    print(
                        f"[{self.step:4d}] train {sum(losses) / len(losses):.4f} | valid {vl:.4f} acc {va:.3f}"
                    )
                    losses = []
                if self.step >= self.args.steps:
                    return


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=160)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    cfg = CFG()
    torch.manual_seed(cfg.seed)

    train_ds = LeafDataset(cfg.n_train, cfg, seed=1, augment=True)
    # the validation pictures come from another camera, slightly brighter
    valid_ds = LeafDataset(cfg.n_valid, cfg, seed=2, brightness=0.15)
    train_loader = DataLoader(train_ds, batch_size=cfg.bs, shuffle=True, drop_last=True)
    valid_loader = DataLoader(valid_ds, batch_size=cfg.bs * 2)

    model = LeafNet(cfg.n_classes)
    trainer = Trainer(model, cfg, args)
    trainer.fit(train_loader, valid_loader)
    print(f"best valid acc {trainer.best:.3f}")

    if args.prove:
        seen = model.features[0][1].num_batches_tracked.item()
        before = trainer.validate(valid_loader)
        again = trainer.validate(valid_loader)
        print(
            "batches seen by the first norm layer:", seen, "train steps:", trainer.step
        )
        print("two validations in a row:", before, again)
        print(
            "fault shows:", "yes" if before != again or seen != trainer.step else "no"
        )


if __name__ == "__main__":
    main()
