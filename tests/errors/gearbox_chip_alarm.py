# Alarm for chipped teeth in gearboxes of a paper mill.
#
# Vibration windows of 128 samples; a chipped tooth gives a small knock once per turn.
# Few windows have it, and they come in runs because a chipped box stays chipped until the
# next stop of the mill.
import argparse
import os
import tempfile
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SAMPLES = 128


def vibration(rng, chipped):
    t = np.arange(SAMPLES)
    turn = rng.uniform(20, 30)
    wave = np.zeros(SAMPLES)
    for harmonic in (3, 5, 8):
        phase = rng.uniform(0, 2 * np.pi)
        wave += rng.uniform(0.2, 0.7) * np.sin(
            2 * np.pi * harmonic * t / turn / 2 + phase
        )
    wave += rng.normal(0, 0.5, SAMPLES)
    if chipped:
        first = rng.uniform(0, turn)
        for centre in np.arange(first, SAMPLES, turn):
            strength = rng.uniform(0.6, 2.2)
            knock = np.exp(-np.abs(t - centre) / 2.0) * np.cos(2.2 * (t - centre))
            wave += strength * knock
    elif rng.random() < 0.15:
        centre = rng.uniform(0, SAMPLES)
        wave += rng.uniform(1, 2) * np.exp(-np.abs(t - centre) / 3.0)
    return wave


def mill_log(boxes, per_box, seed, chipped_boxes):
    """Windows of several gearboxes one after the other, runs of chipped windows."""
    rng = np.random.default_rng(seed)
    waves, labels = [], []
    for box in range(boxes):
        label = np.zeros(per_box)
        if box in chipped_boxes:
            run = chipped_boxes[box]
            start = rng.integers(0, per_box - run + 1)
            label[start : start + run] = 1
        waves += [vibration(rng, flag) for flag in label]
        labels.append(label)
    x = torch.tensor(np.stack(waves), dtype=torch.float32)
    return x.unsqueeze(1), torch.tensor(np.concatenate(labels), dtype=torch.float32)


class KnockNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.stem = nn.Conv1d(1, width, 9, padding=4)
        self.bn1 = nn.BatchNorm1d(width)
        self.conv = nn.Conv1d(width, width, 7, padding=3, groups=4)
        self.bn2 = nn.BatchNorm1d(width)
        self.join = nn.Conv1d(width, 2 * width, 5, padding=2)
        self.dropout = nn.Dropout(0.2)
        self.alarm = nn.Linear(4 * width, 1)

    def forward(self, x):
        h = F.max_pool1d(F.relu(self.bn1(self.stem(x))), 2)
        h = F.max_pool1d(F.relu(self.bn2(self.conv(h))), 2)
        h = F.relu(self.join(h))
        h = torch.cat([h.mean(-1), h.amax(-1)], dim=1)
        return self.alarm(self.dropout(h)).squeeze(1)


def counts(logits, labels):
    alarm, chip = logits > 0, labels > 0.5
    tp, fp, fn = (alarm & chip).sum(), (alarm & ~chip).sum(), (~alarm & chip).sum()
    return torch.stack([tp, fp, fn]).float()


def f1_of(table):
    """F1 from rows of (tp, fp, fn)."""
    tp, fp, fn = table.unbind(1)
    return (2 * tp / (2 * tp + fp + fn).clamp(min=1)).mean().item()


@torch.no_grad()
def validate(model, x, y, pos_weight, args):
    model.eval()
    rows, loss = [], 0.0
    for xb, yb in zip(x.split(args.eval_batch), y.split(args.eval_batch)):
        logits = model(xb)
        loss += F.binary_cross_entropy_with_logits(
            logits, yb, pos_weight=pos_weight, reduction="sum"
        ).item()
        rows.append(counts(logits, yb))
    table = torch.stack(rows)
    if args.fixed:
        table = table.sum(0, keepdim=True)
    return SimpleNamespace(loss=loss / len(y), f1=f1_of(table))


class Selection:
    """What the counts over the whole validation log would have selected."""

    def __init__(self):
        self.used, self.whole = [], []

    @torch.no_grad()
    def note(self, model, x, y, value):
        model.eval()
        self.used.append(value)
        self.whole.append(f1_of(counts(model(x), y)[None]))

    def report(self):
        used, whole = int(np.argmax(self.used)), int(np.argmax(self.whole))
        gap = max(abs(a - b) for a, b in zip(self.used, self.whole))
        print("used ", " ".join(f"{v:.3f}" for v in self.used))
        print("whole", " ".join(f"{v:.3f}" for v in self.whole))
        lost = self.whole[whole] - self.whole[used]
        print(f"chosen {used}, by whole log {whole}, F1 lost {lost:.3f}")
        print("fault shows:", "yes" if gap > 1e-4 and used != whole else "no")


def train_epoch(model, x, y, optimizer, scheduler, pos_weight, args, generator):
    model.train()
    total = 0.0
    for rows in torch.randperm(len(y), generator=generator).split(args.batch):
        shift = torch.randint(0, SAMPLES, (1,), generator=generator).item()
        logits = model(x[rows].roll(shift, dims=-1))
        loss = F.binary_cross_entropy_with_logits(
            logits, y[rows], pos_weight=pos_weight
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        total += loss.item() * len(rows)
    return total / len(y)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=60)
    parser.add_argument("--eval-batch", type=int, default=40)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--seed", type=int, default=81)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)

    x, y = mill_log(24, 60, 82, {b: 14 for b in (1, 4, 9, 13, 18, 22)})
    vx, vy = mill_log(16, 40, 83, {2: 26, 5: 1, 7: 2, 10: 1, 12: 2, 15: 1})
    scale = x.std()
    x, vx = x / scale, vx / scale
    pos_weight = ((1 - y).sum() / y.sum()).sqrt()
    print(f"{int(y.sum())} of {len(y)} training windows chipped")

    model = KnockNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)
    per_epoch = -(-len(y) // args.batch)
    scheduler = torch.optim.lr_scheduler.LinearLR(
        optimizer, 1.0, 0.05, total_iters=args.epochs * per_epoch
    )
    selection = Selection() if args.prove else None
    best = -1.0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "knock_net.pt")
        for epoch in range(args.epochs):
            loss = train_epoch(
                model, x, y, optimizer, scheduler, pos_weight, args, generator
            )
            result = validate(model, vx, vy, pos_weight, args)
            if selection:
                selection.note(model, vx, vy, result.f1)
            star = ""
            if result.f1 > best:
                best, star = result.f1, "*"
                state = {"model": model.state_dict(), "epoch": epoch, "f1": best}
                torch.save(state, path)
            print(
                f"{epoch:2d} train {loss:.4f} valid {result.loss:.4f} f1 {result.f1:.3f}{star}"
            )
        kept = torch.load(path)
        print(f"alarm model from epoch {kept['epoch']}, f1 {kept['f1']:.3f}")
    if selection:
        selection.report()


if __name__ == "__main__":
    main()
