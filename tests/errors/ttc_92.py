"""Sorts short descriptions of businesses, with an attention query for each label.

After InseeFrLab/torchTextClassifiers, pull request 92.
"""

import argparse
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    vocab: int = 300
    num_classes: int = 12
    max_len: int = 20
    min_words: int = 5
    max_words: int = 15
    dim: int = 40
    heads: int = 4
    n_train: int = 1440
    n_val: int = 480
    batch_size: int = 48
    epochs: int = 5
    lr: float = 4e-3
    seed: int = 13


class Activities(Dataset):
    """Names of activities: a few words typical of the class among common ones."""

    def __init__(self, n, cfg, seed):
        rng = np.random.default_rng(seed)
        topical = np.random.default_rng(4).permutation(np.arange(1, cfg.vocab))
        topical = topical[: cfg.num_classes * 8].reshape(cfg.num_classes, 8)
        self.y = torch.from_numpy(rng.integers(0, cfg.num_classes, n))
        self.ids = torch.zeros(n, cfg.max_len, dtype=torch.long)
        for i in range(n):
            length = rng.integers(cfg.min_words, cfg.max_words + 1)
            words = rng.integers(1, cfg.vocab, length)
            where = rng.choice(length, 3, replace=False)
            words[where] = rng.choice(topical[self.y[i]], 3)
            self.ids[i, :length] = torch.from_numpy(words)
        self.mask = (self.ids != 0).long()

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.ids[i], self.mask[i], self.y[i]


def padding_rule(attention_mask):
    return (attention_mask == 0)[:, None, None, :]


def token_rule(attention_mask):
    return (attention_mask != 0)[:, None, None, :]


class LabelAttention(nn.Module):
    def __init__(self, cfg, rule):
        super().__init__()
        self.heads = cfg.heads
        self.labels = nn.Parameter(0.5 * torch.randn(cfg.num_classes, cfg.dim))
        self.q, self.k, self.v = (nn.Linear(cfg.dim, cfg.dim) for _ in range(3))
        self.o = nn.Linear(cfg.dim, cfg.dim)
        self.rule = rule

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def forward(self, tokens, attention_mask):
        q = self.split(self.q(self.labels)).expand(len(tokens), -1, -1, -1)
        k, v = self.split(self.k(tokens)), self.split(self.v(tokens))
        out = F.scaled_dot_product_attention(
            q, k, v, attn_mask=self.rule(attention_mask)
        )
        return self.o(out.transpose(1, 2).flatten(2))


class TextClassifier(nn.Module):
    def __init__(self, cfg, rule):
        super().__init__()
        self.emb = nn.Embedding(cfg.vocab, cfg.dim, padding_idx=0)
        self.pos = nn.Parameter(0.1 * torch.randn(cfg.max_len, cfg.dim))
        self.block = nn.TransformerEncoderLayer(
            cfg.dim, cfg.heads, 2 * cfg.dim, 0.1, batch_first=True, norm_first=True
        )
        self.label_attention = LabelAttention(cfg, rule)
        self.norm = nn.LayerNorm(cfg.dim)
        self.score = nn.Linear(cfg.dim, 1)

    def forward(self, ids, attention_mask):
        x = self.emb(ids) + self.pos
        x = self.block(x, src_key_padding_mask=attention_mask == 0)
        per_label = self.label_attention(x, attention_mask)
        return self.score(self.norm(per_label))[..., 0]


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    loss = correct = 0.0
    for ids, mask, y in loader:
        logits = model(ids, mask)
        loss += F.cross_entropy(logits, y, reduction="sum").item()
        correct += (logits.argmax(1) == y).sum().item()
    return loss / len(loader.dataset), correct / len(loader.dataset)


def train(cfg, rule):
    torch.manual_seed(cfg.seed)
    loader = DataLoader(
        Activities(cfg.n_train, cfg, 1), cfg.batch_size, shuffle=True, drop_last=True
    )
    val_loader = DataLoader(Activities(cfg.n_val, cfg, 2), 160)
    model = TextClassifier(cfg, rule)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.OneCycleLR(
        opt, cfg.lr, total_steps=cfg.epochs * len(loader), pct_start=0.15
    )
    for epoch in range(cfg.epochs):
        model.train()
        running = 0.0
        for ids, mask, y in loader:
            opt.zero_grad()
            loss = F.cross_entropy(model(ids, mask), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            running += loss.item()
        val_loss, acc = evaluate(model, val_loader)
        mean = running / len(loader)
        print(
            f"epoch {epoch} train {mean:.4f} val {val_loss:.4f} acc {acc:.3f}",
            flush=True,
        )
    return model


@torch.no_grad()
def change_by_padding(model, cfg):
    """How far other vectors at the padding change what the labels read."""
    model.eval()
    mask = Activities(32, cfg, 3).mask
    x, other = torch.randn(2, *mask.shape, cfg.dim)
    changed = torch.where(mask[..., None] == 0, other, x)
    read = model.label_attention
    return (read(x, mask) - read(changed, mask)).abs().max().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=Config.seed)
    parser.add_argument("--epochs", type=int, default=Config.epochs)
    parser.add_argument("--lr", type=float, default=Config.lr)
    args = parser.parse_args()
    torch.set_num_threads(1)
    cfg = Config(seed=args.seed, epochs=args.epochs, lr=args.lr)
    model = train(cfg, token_rule if args.fixed else padding_rule)
    if args.prove:
        change = change_by_padding(model, cfg)
        print(f"other vectors at the padding change what labels read by {change:.4f}")
        print("fault shows:", "yes" if change > 1e-4 else "no", flush=True)


if __name__ == "__main__":
    main()
