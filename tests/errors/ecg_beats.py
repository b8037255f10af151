"""ECG beat classification (normal / PVC / atrial / bundle block) with early stopping."""
import argparse
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def gaussian(t, centre, width):
    return np.exp(-(((t - centre) / width) ** 2))


def synth_beats(n, seed, noise=0.35):
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 1, 96)
    beats, kinds = [], rng.choice(4, size=n, p=[0.4, 0.2, 0.2, 0.2])
    for k in kinds:
        shift = rng.normal(0, 0.02)
        p = 0.15 * gaussian(t, 0.25 + shift, 0.04)
        qrs = 1.0 * gaussian(t, 0.45 + shift, 0.02) - 0.3 * gaussian(
            t, 0.49 + shift, 0.02
        )
        wave = 0.3 * gaussian(t, 0.7 + shift, 0.07)
        if k == 1:
            p, qrs = 0 * p, 1.1 * gaussian(t, 0.44 + shift, 0.05) - 0.3 * gaussian(
                t, 0.53 + shift, 0.05
            )
        elif k == 2:
            p = -0.2 * gaussian(t, 0.30 + shift, 0.03)
        elif k == 3:
            qrs = 0.7 * gaussian(t, 0.43 + shift, 0.02) + 0.7 * gaussian(
                t, 0.50 + shift, 0.02
            )
        gain = rng.uniform(0.7, 1.3)
        drift = 0.2 * np.sin(2 * np.pi * (t * rng.uniform(0.2, 0.6) + rng.uniform()))
        beats.append(
            gain * (p + qrs + wave) + drift + rng.normal(0, noise * 0.3, t.size)
        )
    return torch.tensor(np.array(beats), dtype=torch.float32)[:, None], torch.tensor(
        kinds
    )


class BeatNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv1d(1, 16, 7, padding=3)
        self.b1 = nn.BatchNorm1d(16)
        self.c2 = nn.Conv1d(16, 32, 5, padding=2)
        self.b2 = nn.BatchNorm1d(32)
        self.rnn = nn.GRU(32, 24, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(48, 4)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x):
        x = F.max_pool1d(F.relu(self.b1(self.c1(x))), 2)
        x = F.max_pool1d(F.relu(self.b2(self.c2(x))), 2)
        h, _ = self.rnn(x.transpose(1, 2))
        return self.fc(self.dropout(h.mean(1)))


class EarlyStopping:
    """Keeps the best weights on disk, says stop after `patience` checks without progress."""

    def __init__(self, path, patience=6, min_delta=0.0, mode="max"):
        self.path, self.patience, self.min_delta, self.mode = (
            path,
            patience,
            min_delta,
            mode,
        )
        self.best = None
        self.best_step = 0
        self.waiting = 0
        self.stop = False

    def better(self, value):
        if self.best is None:
            return True
        if self.mode == "max":
            return value > self.best + self.min_delta
        return value < self.best - self.min_delta

    def __call__(self, value, model, step):
        if self.better(value):
            self.best, self.best_step, self.waiting = value, step, 0
            torch.save(model.state_dict(), self.path)
        else:
            self.waiting += 1
            self.stop = self.waiting >= self.patience


def evaluate(model, loader):
    model.eval()
    loss, hits, n = 0.0, 0, 0
    with torch.no_grad():
        for x, y in loader:
            logits = model(x)
            loss += F.cross_entropy(logits, y, reduction="sum").item()
            hits += (logits.argmax(1) == y).sum().item()
            n += len(y)
    return loss / n, hits / n


def train(args, folder):
    torch.manual_seed(args.seed)
    train_loader = DataLoader(
        TensorDataset(*synth_beats(1200, 1)), batch_size=args.batch_size, shuffle=True
    )
    val_loader = DataLoader(TensorDataset(*synth_beats(300, 2)), batch_size=150)
    test_loader = DataLoader(TensorDataset(*synth_beats(400, 3)), batch_size=200)
    model = BeatNet()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=args.lr)
    stopper = EarlyStopping(os.path.join(folder, "best.pt"), patience=args.patience)
    if args.fixed:
        stopper.mode = "min"

    step, checks = 0, []
    while step < args.steps and not stopper.stop:
        for x, y in train_loader:
            model.train()
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            step += 1
            if step % args.check_every == 0 or step == args.steps:
                val_loss, val_acc = evaluate(model, val_loader)
                stopper(val_loss, model, step)
                checks.append((step, val_loss))
                print(
                    f"{step:4d} train {loss.item():.4f} val {val_loss:.4f} acc {val_acc:.3f} "
                    f"waiting {stopper.waiting}/{stopper.patience}"
                )
            if stopper.stop or step >= args.steps:
                break
    if stopper.stop:
        print(f"early stop at step {step}")
    model.load_state_dict(torch.load(stopper.path))
    test_loss, test_acc = evaluate(model, test_loader)
    print(
        f"restored weights of step {stopper.best_step}, test loss {test_loss:.4f} acc {test_acc:.3f}"
    )
    return stopper, checks


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=150)
    ap.add_argument("--batch-size", type=int, default=40)
    ap.add_argument("--lr", type=float, default=8e-4)
    ap.add_argument("--patience", type=int, default=10)
    ap.add_argument("--check-every", type=int, default=15)
    ap.add_argument("--seed", type=int, default=31)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stopper, checks = train(args, folder)
    if args.prove:
        lowest = min(checks, key=lambda c: c[1])
        print(
            f"lowest validation loss {lowest[1]:.4f} at step {lowest[0]}, kept step {stopper.best_step}"
        )
        print("fault shows:", "yes" if stopper.best_step != lowest[0] else "no")
