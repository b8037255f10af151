"""Readmission risk from sequences of clinic visits (codes + days since last visit), self-attention model."""
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

N_CODES = 40
MAX_VISITS = 24


class VisitDataset(Dataset):
    """Each patient: 3..20 visits, every visit has a code 1..N_CODES and a gap in days."""

    risky = np.array([3, 7, 12, 19, 28])
    calming = np.array([5, 22, 33])

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.items = []
        for _ in range(n):
            length = int(rng.integers(3, 21))
            codes = rng.integers(1, N_CODES + 1, length)
            gaps = rng.gamma(2.0, 20.0, length)
            boost = rng.random(length) < rng.choice([0.02, 0.3])
            codes[boost] = rng.choice(self.risky, boost.sum())
            score = (
                1.3 * np.isin(codes, self.risky).sum()
                - 0.9 * np.isin(codes, self.calming).sum()
            )
            score += (
                0.8 * ((codes == 7).any() and (codes == 28).any())
                - 0.03 * (gaps.mean() - 40)
                - 1.8
            )
            y = rng.random() < 1 / (1 + np.exp(-1.5 * score))
            self.items.append((codes, gaps, float(y)))
        self.labels = np.array([it[2] for it in self.items])

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        codes, gaps, y = self.items[i]
        c = torch.zeros(MAX_VISITS, dtype=torch.long)
        g = torch.zeros(MAX_VISITS)
        c[: len(codes)] = torch.from_numpy(codes)
        g[: len(gaps)] = torch.from_numpy(np.log1p(gaps)).float() / 4
        return c, g, torch.tensor(y, dtype=torch.float32)


class Block(nn.Module):
    def __init__(self, dim, heads, p):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, dropout=p, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 2 * dim), nn.GELU(), nn.Dropout(p), nn.Linear(2 * dim, dim)
        )

    def forward(self, x, mask):
        h = self.ln1(x)
        h, w = self.attn(h, h, h, key_padding_mask=mask)
        x = x + h
        return x + self.mlp(self.ln2(x)), w


class RiskModel(nn.Module):
    def __init__(self, dim=32, heads=4, depth=2, p=0.1, fixed=False):
        super().__init__()
        self.code = nn.Embedding(N_CODES + 1, dim, padding_idx=0)
        self.gap = nn.Linear(1, dim)
        self.pos = nn.Parameter(0.02 * torch.randn(1, MAX_VISITS, dim))
        self.blocks = nn.ModuleList([Block(dim, heads, p) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.query = nn.Linear(dim, 1)
        self.head = nn.Linear(dim, 1)
        self.fixed = fixed

    def forward(self, codes, gaps, return_attention=False):
        real = codes > 0
        mask = real
        if self.fixed:
            mask = ~real
        x = self.code(codes) + self.gap(gaps.unsqueeze(-1)) + self.pos
        for block in self.blocks:
            x, w = block(x, mask)
        x = self.norm(x)
        score = self.query(x).squeeze(-1).masked_fill(~real, float("-inf"))
        pooled = (score.softmax(1).unsqueeze(-1) * x).sum(1)
        out = self.head(pooled).squeeze(-1)
        return (out, w) if return_attention else out


def auroc(score, label):
    pos, neg = score[label == 1], score[label == 0]
    d = pos[:, None] - neg[None, :]
    return ((d > 0).float().mean() + 0.5 * (d == 0).float().mean()).item()


def evaluate(model, loader):
    model.eval()
    s, y = [], []
    with torch.no_grad():
        for c, g, t in loader:
            s.append(model(c, g))
            y.append(t)
    s, y = torch.cat(s), torch.cat(y)
    return F.binary_cross_entropy_with_logits(s, y).item(), auroc(s, y)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=180)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(321)

    train_set, val_set = VisitDataset(1800, 1), VisitDataset(500, 2)
    rate = train_set.labels.mean()
    weights = np.where(train_set.labels == 1, 0.5 / rate, 0.5 / (1 - rate))
    sampler = WeightedRandomSampler(weights, len(train_set))
    train_loader = DataLoader(train_set, batch_size=40, sampler=sampler)
    val_loader = DataLoader(val_set, batch_size=125)
    print(f"positives in train: {rate:.3f}")

    model = RiskModel(fixed=args.fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    step = 0
    while step < args.steps:
        model.train()
        total = 0.0
        for k, (c, g, y) in enumerate(train_loader):
            loss = F.binary_cross_entropy_with_logits(model(c, g), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            step += 1
            if step >= args.steps:
                break
        vl, va = evaluate(model, val_loader)
        print(f"step {step:4d} train {total / (k + 1):.4f} val {vl:.4f} auroc {va:.4f}")

    if args.prove:
        model.eval()
        c, g, _ = next(iter(val_loader))
        _, w = model(c, g, return_attention=True)
        on_empty = (w * (c == 0)[:, None, :].float()).sum(-1)[c > 0].mean().item()
        print(
            f"share of the attention of the visits that lands on empty slots: {on_empty:.4f}"
        )
        print("fault shows:", "yes" if on_empty > 0.5 else "no")
