"""Fine-tune a ticket-intent classifier on a mixture of labelled sources.

The mixture is described by a small config: every source has a name and a number
of rows, and `interleave` says how sources of different size are combined.
"""
import argparse
import json
import random
import tempfile
import zlib
from pathlib import Path

import torch
import torch.nn as nn

INTENTS = ["billing", "delivery", "login", "refund", "cancel", "upgrade"]
CORE = {
    "billing": "invoice charge amount card statement payment tax".split(),
    "delivery": "parcel courier late tracking address shipped box".split(),
    "login": "password account locked reset code email browser".split(),
    "refund": "money back return credit broken damaged claim".split(),
    "cancel": "stop subscription end contract leave quit term".split(),
    "upgrade": "plan premium seats bigger storage trial limits".split(),
}
FILLER = (
    "please hello my the since yesterday again still cannot need help with about "
    "today urgent thanks we our customer team week order number why when"
).split()

CONFIG = {
    "data": {
        "sources": {"helpdesk": 900, "chat_exports": 120},
        "interleave": "over",
        "val_split": 0.15,
        "label_noise": {"helpdesk": 0.06, "chat_exports": 0.15},
    },
    "model": {"buckets": 4096, "dim": 48, "hidden": 64, "dropout": 0.2},
    "train": {"batch_size": 32, "lr": 4e-3, "weight_decay": 1e-4, "patience": 4},
}


def write_row(rng, intent):
    k = rng.randint(2, 3)
    stray = CORE[rng.choice(INTENTS)]
    words = rng.sample(CORE[intent], k) + rng.sample(FILLER, rng.randint(4, 8))
    words.append(rng.choice(stray))
    rng.shuffle(words)
    return " ".join(words)


def load_source(name, n_rows, noise, seed):
    rng = random.Random(f"{seed}-{name}")
    rows, texts = [], set()
    while len(rows) < n_rows:
        intent = rng.choice(INTENTS)
        text = write_row(rng, intent)
        if text in texts:
            continue
        texts.add(text)
        label = rng.choice(INTENTS) if rng.random() < noise else intent
        rows.append({"source": name, "text": text, "label": label})
    return rows


def cycle_to(rows, n):
    return [rows[i % len(rows)] for i in range(n)]


def combine(sources, strategy):
    if strategy == "concat":
        return [row for rows in sources for row in rows]
    sizes = [len(rows) for rows in sources]
    target = max(sizes) if strategy == "over" else min(sizes)
    padded = [cycle_to(rows, target) for rows in sources]
    return [row for group in zip(*padded) for row in group]


def shuffled(rows, seed):
    rows = list(rows)
    random.Random(seed).shuffle(rows)
    return rows


def split_rows(rows, fraction, seed):
    rows = shuffled(rows, seed)
    n_val = max(1, int(len(rows) * fraction))
    return rows[n_val:], rows[:n_val]


def load_dataset(cfg, seed, fixed=False):
    sources = [
        load_source(name, n, cfg["label_noise"][name], seed)
        for name, n in cfg["sources"].items()
    ]
    if fixed:
        parts = [split_rows(rows, cfg["val_split"], seed) for rows in sources]
        train = combine([p[0] for p in parts], cfg["interleave"])
        return shuffled(train, seed), combine([p[1] for p in parts], "concat")
    rows = combine(sources, cfg["interleave"])
    return split_rows(rows, cfg["val_split"], seed)


class Featurizer:
    def __init__(self, buckets):
        self.buckets = buckets

    def __call__(self, text):
        words = text.split()
        grams = words + [f"{a}_{b}" for a, b in zip(words, words[1:])]
        return [zlib.crc32(g.encode()) % self.buckets for g in grams]

    def encode(self, rows):
        ids = [torch.tensor(self(r["text"])) for r in rows]
        y = torch.tensor([INTENTS.index(r["label"]) for r in rows])
        return ids, y


class IntentModel(nn.Module):
    def __init__(self, buckets, dim, hidden, dropout):
        super().__init__()
        self.bag = nn.EmbeddingBag(buckets, dim, mode="mean")
        self.net = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(dim, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, len(INTENTS)),
        )

    def forward(self, ids):
        lengths = torch.tensor([0] + [len(i) for i in ids[:-1]])
        return self.net(self.bag(torch.cat(ids), lengths.cumsum(0)))


@torch.no_grad()
def evaluate(model, ids, y):
    model.eval()
    logits = model(ids)
    loss = nn.functional.cross_entropy(logits, y).item()
    return loss, (logits.argmax(1) == y).float().mean().item()


def run_epoch(model, opt, ids, y, batch_size, gen):
    model.train()
    order = torch.randperm(len(y), generator=gen).tolist()
    total = 0.0
    for start in range(0, len(order), batch_size):
        pick = order[start : start + batch_size]
        loss = nn.functional.cross_entropy(model([ids[i] for i in pick]), y[pick])
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() * len(pick)
    return total / len(order)


def fit(model, train, val, cfg, epochs, seed, out):
    opt = torch.optim.AdamW(
        model.parameters(), lr=cfg["lr"], weight_decay=cfg["weight_decay"]
    )
    gen = torch.Generator().manual_seed(seed)
    best, waited = float("inf"), 0
    for epoch in range(epochs):
        train_loss = run_epoch(model, opt, *train, cfg["batch_size"], gen)
        val_loss, val_acc = evaluate(model, *val)
        print(
            f"epoch {epoch:2d} | train loss {train_loss:.4f} "
            f"| val loss {val_loss:.4f} | val acc {val_acc:.3f}"
        )
        if val_loss < best:
            best, waited = val_loss, 0
            torch.save(model.state_dict(), out / "best.pt")
            report = {"epoch": epoch, "val_loss": val_loss, "val_acc": val_acc}
            (out / "report.json").write_text(json.dumps(report))
        else:
            waited += 1
            if waited >= cfg["patience"]:
                break
    model.load_state_dict(torch.load(out / "best.pt"))
    return json.loads((out / "report.json").read_text())


def prove(train_rows, val_rows):
    """Share of distinct validation rows that the optimizer also sees."""
    seen = {(r["source"], r["text"]) for r in train_rows}
    held = {(r["source"], r["text"]) for r in val_rows}
    share = len(held & seen) / len(held)
    print(f"distinct validation rows {len(held)}, also in training {share:.1%}")
    print("fault shows:", "yes" if share > 0 else "no")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=10)
    ap.add_argument("--seed", type=int, default=3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    train_rows, val_rows = load_dataset(CONFIG["data"], args.seed, fixed=args.fixed)
    print(f"rows: {len(train_rows)} train, {len(val_rows)} val")
    feats = Featurizer(CONFIG["model"]["buckets"])
    model = IntentModel(**CONFIG["model"])
    train, val = feats.encode(train_rows), feats.encode(val_rows)
    with tempfile.TemporaryDirectory() as tmp:
        report = fit(
            model, train, val, CONFIG["train"], args.epochs, args.seed, Path(tmp)
        )
    print(f"best epoch {report['epoch']}: val acc {report['val_acc']:.3f}")

    fresh = load_source("chat_exports", 600, 0.15, args.seed + 100)
    _, live_acc = evaluate(model, *feats.encode(fresh))
    print(f"accuracy on next month's chat exports {live_acc:.3f}")
    if args.prove:
        prove(train_rows, val_rows)


if __name__ == "__main__":
    main()
