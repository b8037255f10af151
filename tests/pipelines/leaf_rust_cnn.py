"""Leaf disease classification (small CNN), cleaned up from my notebook."""
import argparse
import copy
import math
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def make_leaves(n, rng):
    """Green-ish 24x24 pictures; the disease decides the colour and size of the spots."""
    xs = np.zeros((n, 3, 24, 24), dtype=np.float32)
    ys = rng.integers(0, 4, size=n)
    yy, xx = np.mgrid[0:24, 0:24]
    for i, c in enumerate(ys):
        img = np.stack([np.full((24, 24), v) for v in (0.2, 0.55, 0.15)])
        img += rng.normal(0, 0.12, img.shape)
        if c > 0:
            colour = [(0.7, 0.5, 0.1), (0.1, 0.1, 0.1), (0.9, 0.9, 0.8)][c - 1]
            for _ in range(rng.integers(2, 5)):
                cy, cx = rng.uniform(3, 21, 2)
                spot = ((yy - cy) ** 2 + (xx - cx) ** 2) < rng.uniform(2, 7)
                for ch in range(3):
                    img[ch][spot] = 0.5 * img[ch][spot] + 0.5 * colour[ch]
        xs[i] = img
    return torch.from_numpy(xs), torch.from_numpy(ys).long()


class ConvBlock(nn.Sequential):
    def __init__(self, cin, cout, stride):
        super().__init__(
            nn.Conv2d(cin, cout, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(cout),
            nn.ReLU(inplace=True),
        )


class LeafNet(nn.Module):
    def __init__(self, n_classes=4, width=12):
        super().__init__()
        self.stem = ConvBlock(3, width, 1)
        self.body = nn.Sequential(
            ConvBlock(width, 2 * width, 2),
            ConvBlock(2 * width, 2 * width, 1),
            ConvBlock(2 * width, 4 * width, 2),
        )
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(4 * width, n_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out")

    def forward(self, x):
        x = self.body(self.stem(x))
        return self.fc(self.drop(x.mean(dim=(2, 3))))


def augment(x):
    # one flip decision per picture
    flip = torch.rand(x.size(0)) < 0.5
    x = torch.where(flip[:, None, None, None], x.flip(-1), x)
    return x + 0.02 * torch.randn_like(x)


@torch.no_grad()
def evaluate(model, loader):
    was_training = model.training
    model.eval()
    loss, correct, n = 0.0, 0, 0
    for x, y in loader:
        logits = model(x)
        loss += F.cross_entropy(logits, y, reduction="sum").item()
        correct += (logits.argmax(1) == y).sum().item()
        n += y.numel()
    model.train(was_training)
    return loss / n, correct / n


def make_loaders(args):
    rng = np.random.default_rng(args.seed)
    x_tr, y_tr = make_leaves(1024, rng)
    x_va, y_va = make_leaves(256, rng)
    x_te, y_te = make_leaves(256, rng)
    # channel statistics of the training pictures only
    mean = x_tr.mean(dim=(0, 2, 3), keepdim=True)
    std = x_tr.std(dim=(0, 2, 3), keepdim=True)
    x_tr, x_va, x_te = [(x - mean) / std for x in (x_tr, x_va, x_te)]

    train_loader = DataLoader(
        TensorDataset(x_tr, y_tr),
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
    )
    val_loader = DataLoader(TensorDataset(x_va, y_va), batch_size=128)
    test_loader = DataLoader(TensorDataset(x_te, y_te), batch_size=128)
    return train_loader, val_loader, test_loader


def make_optimizer(model, args, steps_per_epoch):
    decay = [p for p in model.parameters() if p.ndim > 1]
    no_decay = [p for p in model.parameters() if p.ndim <= 1]
    opt = torch.optim.SGD(
        [
            {"params": decay, "weight_decay": 5e-4},
            {"params": no_decay, "weight_decay": 0.0},
        ],
        lr=args.lr,
        momentum=0.9,
        nesterov=True,
    )
    total = args.epochs * steps_per_epoch
    warmup = min(steps_per_epoch, max(1, total // 5))

    def lr_factor(step):
        if step < warmup:
            return (step + 1) / warmup
        t = (step - warmup) / max(1, total - warmup)
        return 0.5 * (1 + math.cos(math.pi * t))

    sched = torch.optim.lr_scheduler.LambdaLR(opt, lr_factor)
    return opt, sched


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--lr", type=float, default=0.1)
    ap.add_argument("--batch-size", type=int, default=64)
    ap.add_argument("--seed", type=int, default=42)
    args = ap.parse_args()
    seed_everything(args.seed)

    train_loader, val_loader, test_loader = make_loaders(args)

    model = LeafNet()
    opt, sched = make_optimizer(model, args, len(train_loader))
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)

    # untrained net should be near log(4)
    l0, a0 = evaluate(model, val_loader)
    print(
        f"before training: val loss {l0:.3f} acc {a0:.3f} (log 4 = {math.log(4):.3f})"
    )

    best_acc, best_state = -1.0, None
    for epoch in range(args.epochs):
        model.train()
        running, seen = 0.0, 0
        for x, y in train_loader:
            opt.zero_grad(set_to_none=True)
            loss = criterion(model(augment(x)), y)
            loss.backward()
            opt.step()
            sched.step()
            running += loss.item() * y.size(0)
            seen += y.size(0)
        val_loss, val_acc = evaluate(model, val_loader)
        print(
            f"epoch {epoch:2d}  train {running / seen:.4f}  val {val_loss:.4f}  acc {val_acc:.3f}  lr {sched.get_last_lr()[0]:.4f}"
        )
        if val_acc > best_acc:
            best_acc, best_state = val_acc, copy.deepcopy(model.state_dict())

    model.load_state_dict(best_state)
    test_loss, test_acc = evaluate(model, test_loader)
    print(
        f"best val acc {best_acc:.3f}, test loss {test_loss:.4f}, test acc {test_acc:.3f}"
    )


if __name__ == "__main__":
    main()
