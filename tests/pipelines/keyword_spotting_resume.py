"""
Keyword spotting on raw waveforms (made up), with checkpoints.

The first call of run() is cut off half way, as a pre-empted job would be;
the second one picks up the last checkpoint and finishes.
"""
import argparse
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

RATE, SECONDS, WORDS = 2000, 0.5, 6


def waveforms(n, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(int(RATE * SECONDS)) / RATE
    y = rng.integers(0, WORDS, n)
    x = np.zeros((n, len(t)), dtype=np.float32)
    onsets = rng.uniform(0.0, 0.15, n)
    for i in range(n):
        pitch = 110 * (1 + 0.1 * rng.normal())
        first, second = [(2, 5), (5, 2), (3, 7), (7, 3), (4, 4), (2, 7)][y[i]]
        u = t - onsets[i]
        gate1 = ((u > 0) & (u < 0.14)).astype(float)
        gate2 = ((u > 0.17) & (u < 0.32)).astype(float)
        voice = gate1 * np.sin(2 * np.pi * pitch * first * u) + gate2 * np.sin(
            2 * np.pi * pitch * second * u
        )
        x[i] = rng.uniform(0.3, 1.0) * voice + 0.15 * rng.normal(size=len(t))
    return torch.from_numpy(x).unsqueeze(1), torch.from_numpy(y)


class M5Small(nn.Module):
    def __init__(self, n_out=WORDS, ch=24):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv1d(1, ch, 64, stride=8),
            nn.GroupNorm(4, ch),
            nn.ReLU(),
            nn.MaxPool1d(2),
        )
        self.mid = nn.Sequential(
            nn.Conv1d(ch, 2 * ch, 5),
            nn.GroupNorm(4, 2 * ch),
            nn.ReLU(),
            nn.MaxPool1d(2),
        )
        self.last = nn.Sequential(
            nn.Conv1d(2 * ch, 2 * ch, 7), nn.GroupNorm(4, 2 * ch), nn.ReLU()
        )
        self.fc = nn.Linear(4 * ch, n_out)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        x = self.last(self.mid(self.stem(x)))
        x = torch.cat([x.mean(-1), x.amax(-1)], dim=1)
        return self.fc(self.drop(x))


def mixup(x, y, alpha=0.2):
    lam = float(np.random.beta(alpha, alpha))
    perm = torch.randperm(len(x))
    return lam * x + (1 - lam) * x[perm], y, y[perm], lam


def random_shift(x, limit=100):
    """Shift every clip by its own amount, zeros at the ends."""
    length = x.shape[-1]
    padded = F.pad(x, (limit, limit))
    starts = torch.randint(0, 2 * limit + 1, (len(x),)).tolist()
    return torch.stack([c[:, s : s + length] for c, s in zip(padded, starts)])


def save_checkpoint(path, **objects):
    state = {
        k: (v.state_dict() if hasattr(v, "state_dict") else v)
        for k, v in objects.items()
    }
    state["torch_rng"] = torch.get_rng_state()
    state["numpy_rng"] = np.random.get_state()
    tmp = path + ".tmp"
    torch.save(state, tmp)
    os.replace(tmp, path)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    loss = correct = n = 0
    for x, y in loader:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(x)
        logits = logits.float()
        loss += F.cross_entropy(logits, y, reduction="sum").item()
        correct += (logits.argmax(1) == y).sum().item()
        n += len(y)
    return loss / n, correct / n


def make_scheduler(optimizer, total):
    warm = max(1, total // 10)
    return torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        milestones=[warm],
        schedulers=[
            torch.optim.lr_scheduler.LinearLR(
                optimizer, start_factor=0.1, total_iters=warm
            ),
            torch.optim.lr_scheduler.CosineAnnealingLR(
                optimizer, T_max=max(1, total - warm)
            ),
        ],
    )


def load_checkpoint(path, model, optimizer, scheduler):
    ckpt = torch.load(path, weights_only=False)
    model.load_state_dict(ckpt["model"])
    optimizer.load_state_dict(ckpt["optimizer"])
    scheduler.load_state_dict(ckpt["scheduler"])
    torch.set_rng_state(ckpt["torch_rng"])
    np.random.set_state(ckpt["numpy_rng"])
    print(
        f"resumed from epoch {ckpt['epoch']} (step {ckpt['step']}, lr {scheduler.get_last_lr()[0]:.2e})"
    )
    return ckpt["epoch"] + 1, ckpt["best_acc"], ckpt["step"]


def train_epoch(model, loader, optimizer, scheduler):
    model.train()
    total_loss, n = 0.0, 0
    for x, y in loader:
        x, ya, yb, lam = mixup(random_shift(x), y)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(x)
            loss = lam * F.cross_entropy(logits, ya) + (1 - lam) * F.cross_entropy(
                logits, yb
            )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 3.0)
        optimizer.step()
        scheduler.step()
        total_loss += loss.item() * len(y)
        n += len(y)
    return total_loss / n


def run(args, ckpt_path, train_ds, val_ds, stop_after=None):
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    order = torch.Generator()
    train_loader = DataLoader(
        train_ds, batch_size=args.batch_size, shuffle=True, generator=order
    )
    val_loader = DataLoader(val_ds, batch_size=128)

    model = M5Small()
    optimizer = torch.optim.RMSprop(
        model.parameters(), lr=args.lr, momentum=0.9, alpha=0.95, weight_decay=1e-5
    )
    scheduler = make_scheduler(optimizer, args.epochs * len(train_loader))
    first_epoch, best_acc, step = 0, 0.0, 0

    if os.path.exists(ckpt_path):
        first_epoch, best_acc, step = load_checkpoint(
            ckpt_path, model, optimizer, scheduler
        )

    for epoch in range(first_epoch, args.epochs):
        order.manual_seed(args.seed * 1000 + epoch)
        train_loss = train_epoch(model, train_loader, optimizer, scheduler)
        step += len(train_loader)
        val_loss, val_acc = evaluate(model, val_loader)
        best_acc = max(best_acc, val_acc)
        print(
            f"epoch {epoch} step {step} train {train_loss:.4f} val {val_loss:.4f} acc {val_acc:.3f} "
            f"lr {scheduler.get_last_lr()[0]:.2e}"
        )
        save_checkpoint(
            ckpt_path,
            model=model,
            optimizer=optimizer,
            scheduler=scheduler,
            epoch=epoch,
            step=step,
            best_acc=best_acc,
        )
        if stop_after is not None and epoch + 1 >= stop_after:
            print("job ends here")
            return best_acc
    return best_acc


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--lr", type=float, default=5e-4)
    ap.add_argument("--seed", type=int, default=12)
    args = ap.parse_args()
    train_ds = TensorDataset(*waveforms(960, seed=1))
    val_ds = TensorDataset(*waveforms(240, seed=2))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "last.pt")
        run(args, path, train_ds, val_ds, stop_after=max(1, args.epochs // 2))
        best = run(args, path, train_ds, val_ds)
    print(f"best validation accuracy {best:.3f}")
