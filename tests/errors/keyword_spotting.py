"""Small keyword spotting model on synthetic tones. 1-D convolutions over the raw wave."""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

SAMPLE_RATE = 2000
CLIP = 500
KEYWORDS = ["up", "down", "left", "right", "stop", "go"]


def make_clip(label, g):
    t = torch.arange(CLIP) / SAMPLE_RATE
    base = 60 + 35 * label
    f0 = base * (1 + 0.06 * torch.randn(1, generator=g))
    f1 = f0 * (1.5 + 0.1 * label)
    onset = torch.rand(1, generator=g) * 0.1
    env = torch.sigmoid((t - onset) * 200) * torch.exp(-6 * (t - onset).clamp(min=0))
    wave = torch.sin(2 * math.pi * f0 * t) + 0.5 * torch.sin(2 * math.pi * f1 * t)
    return env * wave + 0.45 * torch.randn(CLIP, generator=g)


def make_set(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, len(KEYWORDS), (n,), generator=g)
    x = torch.stack([make_clip(int(c), g) for c in y])
    return TensorDataset(x.unsqueeze(1), y)


class ConvBlock(nn.Module):
    def __init__(self, cin, cout, k, stride):
        super().__init__()
        self.conv = nn.Conv1d(cin, cout, k, stride=stride, padding=k // 2, bias=False)
        self.bn = nn.BatchNorm1d(cout)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))


class M5(nn.Module):
    def __init__(self, n_classes, width=16):
        super().__init__()
        self.body = nn.Sequential(
            ConvBlock(1, width, 41, 4),
            ConvBlock(width, width, 5, 2),
            ConvBlock(width, 2 * width, 5, 2),
            ConvBlock(2 * width, 2 * width, 3, 2),
        )
        self.fc = nn.Linear(2 * width, n_classes)

    def forward(self, x):
        return self.fc(self.body(x).mean(-1))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = total = 0
    loss_sum = 0.0
    for x, y in loader:
        out = model(x)
        loss_sum += F.cross_entropy(out, y, reduction="sum").item()
        right += (out.argmax(1) == y).sum().item()
        total += y.numel()
    return loss_sum / total, right / total


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=240)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--lr", type=float, default=0.02)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(7)
    train_loader = DataLoader(
        make_set(640, 1), batch_size=args.batch_size, shuffle=True, drop_last=True
    )
    valid_loader = DataLoader(make_set(240, 2), batch_size=120)

    model = M5(len(KEYWORDS))
    optimizer = torch.optim.SGD(
        model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4
    )
    # divide the rate by ten every 5 epochs
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.1)

    rates = []
    step = epoch = 0
    while step < args.steps:
        model.train()
        running = seen = 0
        for i, (wave, label) in enumerate(train_loader):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(wave), label)
            loss.backward()
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            if args.fixed:
                if i + 1 == len(train_loader):
                    scheduler.step()
            else:
                scheduler.step()
            running += loss.item() * label.numel()
            seen += label.numel()
            step += 1
            if step >= args.steps:
                break
        vl, va = evaluate(model, valid_loader)
        print(
            f"epoch {epoch:2d}  step {step:4d}  train {running / seen:.4f}  valid {vl:.4f}  acc {va:.3f}"
        )
        epoch += 1

    if args.prove:
        per_epoch = len(train_loader)
        wanted = [args.lr * 0.1 ** ((s // per_epoch) // 5) for s in range(len(rates))]
        off = [
            s for s in range(len(rates)) if abs(rates[s] - wanted[s]) > 1e-3 * wanted[s]
        ]
        print(
            f"# rate differs from the epoch schedule in {len(off)} steps, first {off[:1]}, last rate {rates[-1]:.2e}"
        )
        print("fault shows:", "yes" if off else "no")


if __name__ == "__main__":
    main()
