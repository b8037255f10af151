"""Transformer over the event log of an assembly line.

Every product leaves a log of 16 station codes. The class says what quality
control does with it: 0 pass, 1 re-inspect (painted in the first half of the
log), 2 scrap (too many retries), 3 manual (re-inspect and many retries).
"""
import argparse
import math
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

PAINT, RETRY = 1, 2
VOCAB, LENGTH = 14, 16


def event_logs(n, seed):
    g = torch.Generator().manual_seed(seed)
    logs = torch.randint(3, VOCAB, (n, LENGTH), generator=g)
    order = torch.rand(n, LENGTH, generator=g).argsort(1)
    rows = torch.arange(n)
    many = torch.rand(n, generator=g) < 0.5
    counts = torch.where(
        many,
        torch.randint(4, 7, (n,), generator=g),
        torch.randint(0, 3, (n,), generator=g),
    )
    for k in range(6):
        hit = counts > k
        logs[rows[hit], order[hit, 1 + k]] = RETRY
    logs[rows, order[:, 0]] = PAINT
    early_paint = order[:, 0] < LENGTH // 2
    return logs, early_paint.long() + 2 * many.long()


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, dropout=0.1, max_len=512, fixed=False):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.fixed = fixed
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(
            torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model)
        )
        pe = torch.zeros(max_len, 1, d_model)
        pe[:, 0, 0::2] = torch.sin(position * div_term)
        pe[:, 0, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe)

    def forward(self, x):
        if self.fixed:
            x = x + self.pe[: x.size(1)].transpose(0, 1)
        else:
            x = x + self.pe[: x.size(0)]
        return self.dropout(x)


class LogClassifier(nn.Module):
    def __init__(self, d_model=32, heads=4, layers=2, classes=4, fixed=False):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, d_model)
        nn.init.normal_(self.embed.weight, std=0.5)
        self.pos = PositionalEncoding(d_model, fixed=fixed)
        layer = nn.TransformerEncoderLayer(
            d_model, heads, dim_feedforward=64, dropout=0.1, batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.classify = nn.Linear(d_model, classes)

    def forward(self, tokens):
        h = self.pos(self.embed(tokens))
        h = self.encoder(h)
        return self.classify(h.amax(dim=1))


def evaluate(model, loader):
    model.eval()
    good = n = 0
    with torch.no_grad():
        for tokens, label in loader:
            good += (model(tokens).argmax(-1) == label).sum().item()
            n += label.numel()
    return good / n


def train_epoch(model, loader, optimizer, scheduler, criterion):
    model.train()
    running = 0.0
    for tokens, label in loader:
        optimizer.zero_grad()
        loss = criterion(model(tokens), label)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        running += loss.item()
    return running / len(loader)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    args = p.parse_args()

    torch.manual_seed(17)
    train_loader = DataLoader(
        TensorDataset(*event_logs(1600, 1)), args.batch_size, shuffle=True
    )
    test_loader = DataLoader(TensorDataset(*event_logs(480, 2)), args.batch_size)

    model = LogClassifier(fixed=args.fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    total = args.epochs * len(train_loader)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=args.lr, total_steps=total
    )
    criterion = nn.CrossEntropyLoss()

    for epoch in range(1, args.epochs + 1):
        loss = train_epoch(model, train_loader, optimizer, scheduler, criterion)
        acc = evaluate(model, test_loader)
        print(f"epoch {epoch:2d}  loss {loss:.4f}  test accuracy {acc:.3f}")

    if args.prove:
        model.eval()
        tokens, _ = event_logs(32, 3)
        with torch.no_grad():
            together = model(tokens)
            alone = torch.cat([model(t.unsqueeze(0)) for t in tokens])
            flipped = model(tokens.flip(1))
        by_batch = (together - alone).abs().max().item()
        by_order = (model(tokens[:1]) - flipped[:1]).abs().max().item()
        print(
            f"logits alone vs in a batch: {by_batch:.5f}; log vs its reverse: {by_order:.5f}"
        )
        print("fault shows:", "yes" if by_batch > 1e-3 else "no")


if __name__ == "__main__":
    main()
