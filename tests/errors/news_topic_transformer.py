"""Topic classification of short news headlines with a small transformer encoder.

Usage: python news_topic_transformer.py --steps 200
"""
import argparse
import math
import random
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

TOPICS = {
    "sports": "match goal team coach season league player score final cup win defeat injury transfer".split(),
    "business": "market shares profit bank trade stocks merger price investor quarter revenue deal euro growth".split(),
    "science": "study researchers planet cells species climate telescope genome vaccine energy particle ocean fossil robot".split(),
    "politics": "minister election parliament vote law party president coalition budget reform debate treaty senate campaign".split(),
}
COMMON = "the a of in on after new says over for with first and as to from more than by at".split()
PAD, UNK = 0, 1


@dataclass
class Config:
    steps: int = 200
    batch_size: int = 64
    lr: float = 1e-3
    dim: int = 64
    heads: int = 4
    layers: int = 2
    max_len: int = 14
    dropout: float = 0.1
    seed: int = 13


def generate(n, rng):
    names = list(TOPICS)
    rows = []
    for _ in range(n):
        y = rng.randrange(len(names))
        words = []
        for _ in range(rng.randint(6, 14)):
            r = rng.random()
            if r < 0.28:
                words.append(rng.choice(TOPICS[names[y]]))
            elif r < 0.42:
                words.append(rng.choice(TOPICS[rng.choice(names)]))
            else:
                words.append(rng.choice(COMMON))
        rows.append((" ".join(words), y))
    return rows


class Vocab:
    def __init__(self, texts):
        words = sorted({w for t in texts for w in t.split()})
        self.stoi = {w: i + 2 for i, w in enumerate(words)}

    def __len__(self):
        return len(self.stoi) + 2

    def encode(self, text, max_len):
        ids = [self.stoi.get(w, UNK) for w in text.split()][:max_len]
        return ids + [PAD] * (max_len - len(ids))


class NewsDataset(Dataset):
    def __init__(self, rows, vocab, max_len):
        self.x = torch.tensor([vocab.encode(t, max_len) for t, _ in rows])
        self.y = torch.tensor([y for _, y in rows])

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class TopicTransformer(nn.Module):
    def __init__(self, vocab_size, n_classes, cfg, fixed=False):
        super().__init__()
        self.fixed = fixed
        self.emb = nn.Embedding(vocab_size, cfg.dim, padding_idx=PAD)
        pos = torch.arange(cfg.max_len).unsqueeze(1)
        div = torch.exp(torch.arange(0, cfg.dim, 2) * (-math.log(10000.0) / cfg.dim))
        pe = torch.zeros(cfg.max_len, cfg.dim)
        pe[:, 0::2], pe[:, 1::2] = torch.sin(pos * div), torch.cos(pos * div)
        self.register_buffer("pe", pe)
        layer = nn.TransformerEncoderLayer(
            cfg.dim, cfg.heads, cfg.dim * 2, cfg.dropout, batch_first=True
        )
        self.encoder = nn.TransformerEncoder(
            layer, cfg.layers, enable_nested_tensor=False
        )
        self.head = nn.Linear(cfg.dim, n_classes)

    def forward(self, x):
        mask = x == PAD
        h = self.emb(x) * math.sqrt(self.emb.embedding_dim) + self.pe[: x.size(1)]
        h = self.encoder(h, src_key_padding_mask=mask)
        keep = (~mask).unsqueeze(-1).float()
        h = (h * keep).sum(1) / keep.sum(1)
        out = self.head(h)
        if self.fixed:
            return out
        return F.softmax(out, dim=-1)


def run_epoch(model, loader, criterion, optimizer, state, cfg):
    model.train()
    for x, y in loader:
        if state["step"] >= cfg.steps:
            return
        loss = criterion(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        state["step"] += 1
        state["loss"] = 0.95 * state["loss"] + 0.05 * loss.item()


@torch.no_grad()
def test(model, loader, criterion):
    model.eval()
    loss, hits, n = 0.0, 0, 0
    for x, y in loader:
        out = model(x)
        loss += criterion(out, y).item() * len(y)
        hits += (out.argmax(-1) == y).sum().item()
        n += len(y)
    return loss / n, hits / n


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=Config.steps)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    a = ap.parse_args()
    cfg = Config(steps=a.steps)
    random.seed(cfg.seed)
    torch.manual_seed(cfg.seed)

    rng = random.Random(cfg.seed)
    train_rows, test_rows = generate(2560, rng), generate(600, rng)
    vocab = Vocab([t for t, _ in train_rows])
    train_loader = DataLoader(
        NewsDataset(train_rows, vocab, cfg.max_len), cfg.batch_size, shuffle=True
    )
    test_loader = DataLoader(NewsDataset(test_rows, vocab, cfg.max_len), 128)

    model = TopicTransformer(len(vocab), len(TOPICS), cfg, fixed=a.fixed)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.01)

    state = {"step": 0, "loss": math.log(len(TOPICS))}
    epoch = 0
    while state["step"] < cfg.steps:
        run_epoch(model, train_loader, criterion, optimizer, state, cfg)
        test_loss, acc = test(model, test_loader, criterion)
        epoch += 1
        print(
            f"epoch {epoch} | step {state['step']} | train loss {state['loss']:.4f} | test loss {test_loss:.4f} | acc {acc:.4f}"
        )

    if a.prove:
        x, _ = next(iter(test_loader))
        with torch.no_grad():
            sums = model(x).sum(-1)
        _, _ = test(model, test_loader, criterion)
        print(
            f"row sums of what the criterion receives: {sums.min().item():.4f} .. {sums.max().item():.4f}"
        )
        print(
            "fault shows:",
            "yes" if torch.allclose(sums, torch.ones_like(sums), atol=1e-4) else "no",
        )


if __name__ == "__main__":
    main()
