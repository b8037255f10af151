"""Click-through-rate model on a streamed click log."""
import argparse
from collections import Counter

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

N_USERS, N_ADS, N_HOURS = 300, 60, 24


def make_log(n, seed, world_seed=5):
    world = np.random.default_rng(world_seed)
    user_taste = world.normal(size=(N_USERS, 4))
    ad_style = world.normal(size=(N_ADS, 4))
    hour_bias = np.sin(np.arange(N_HOURS) / N_HOURS * 2 * np.pi)
    rng = np.random.default_rng(seed)
    user = rng.integers(0, N_USERS, n)
    ad = rng.integers(0, N_ADS, n)
    hour = rng.integers(0, N_HOURS, n)
    score = (user_taste[user] * ad_style[ad]).sum(1) + hour_bias[hour] - 0.5
    click = rng.random(n) < 1 / (1 + np.exp(-score))
    return np.stack([user, ad, hour], 1).astype(np.int64), click.astype(np.float32)


class ClickLog(IterableDataset):
    """Reads the log record by record, as from a file."""

    def __init__(self, feats, clicks, by_worker=False):
        self.feats = feats
        self.clicks = clicks
        self.by_worker = by_worker

    def __iter__(self):
        first, stride = 0, 1
        info = get_worker_info()
        if self.by_worker and info is not None:
            first, stride = info.id, info.num_workers
        for i in range(first, len(self.clicks), stride):
            yield i, torch.from_numpy(self.feats[i]), self.clicks[i]


class CTRNet(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.user = nn.Embedding(N_USERS, dim)
        self.ad = nn.Embedding(N_ADS, dim)
        self.hour = nn.Embedding(N_HOURS, dim)
        self.top = nn.Sequential(nn.Linear(4 * dim, 48), nn.ReLU(), nn.Linear(48, 1))

    def forward(self, f):
        u, a, h = self.user(f[:, 0]), self.ad(f[:, 1]), self.hour(f[:, 2])
        return self.top(torch.cat([u, a, h, u * a], dim=1)).squeeze(1)


@torch.no_grad()
def evaluate(model, feats, clicks):
    model.eval()
    logits = model(torch.from_numpy(feats))
    y = torch.from_numpy(clicks)
    loss = nn.functional.binary_cross_entropy_with_logits(logits, y).item()
    acc = ((logits > 0).float() == y).float().mean().item()
    model.train()
    return loss, acc


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--batch-size", type=int, default=64)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--lr", type=float, default=4e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(0)

    feats, clicks = make_log(5000, seed=1)
    val_feats, val_clicks = make_log(2000, seed=2)
    loader = DataLoader(
        ClickLog(feats, clicks, by_worker=args.fixed),
        batch_size=args.batch_size,
        num_workers=args.workers,
    )

    model = CTRNet()
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    bce = nn.BCEWithLogitsLoss()
    print(
        f"{len(clicks)} records, {sum(p.numel() for p in model.parameters())} parameters"
    )

    step = 0
    reads = Counter()
    for epoch in range(args.epochs):
        total, seen = 0.0, 0
        for idx, f, y in loader:
            loss = bce(model(f), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() * len(y)
            seen += len(y)
            if epoch == 0:
                reads.update(idx.tolist())
            if step % 40 == 0:
                print(f"step {step:4d} loss {loss.item():.4f}")
            step += 1
        vl, va = evaluate(model, val_feats, val_clicks)
        print(f"epoch {epoch} train {total / seen:.4f} val {vl:.4f} acc {va:.3f}")

    if args.prove:
        per_record = sum(reads.values()) / len(clicks)
        print(
            f"first epoch: {sum(reads.values())} reads of {len(clicks)} records, "
            f"{per_record:.2f} each, at most {max(reads.values())}"
        )
        print("fault shows:", "yes" if max(reads.values()) > 1 else "no")


if __name__ == "__main__":
    main()
