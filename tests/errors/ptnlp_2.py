"""Classifies log lines by a recurrent encoder with attention over its states.

After PyTorch-NLP, issue 2.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

TOKENS, LENGTH, KINDS = 60, 18, 5


class Attention(nn.Module):
    """A mean of the context, weighted by how well it fits a query."""

    def __init__(self, width, dim):
        super().__init__()
        self.project = nn.Linear(width, width, bias=False)
        self.softmax = nn.Softmax(dim=dim)

    def forward(self, query, context):
        scores = torch.einsum("bd,btd->bt", self.project(query), context)
        weights = self.softmax(scores / context.shape[2] ** 0.5)
        return torch.einsum("bt,btd->bd", weights, context)


class LogClassifier(nn.Module):
    def __init__(self, dim, width=40):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, width)
        self.encoder = nn.GRU(width, width // 2, batch_first=True, bidirectional=True)
        self.attention = Attention(width, dim)
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU())
        self.out = nn.Linear(width, KINDS)

    def forward(self, line):
        context, last = self.encoder(self.embedding(line))
        query = last.transpose(0, 1).flatten(1)
        found = self.attention(query, context)
        return self.out(self.head(torch.cat([query, found], 1)))


def lines(count, seed):
    """The kind is that of the token behind the marker 0, shifted by the first token."""
    generator = torch.Generator().manual_seed(seed)
    line = torch.randint(1, TOKENS, (count, LENGTH), generator=generator)
    place = torch.randint(1, LENGTH - 1, (count,), generator=generator)
    rows = torch.arange(count)
    line[rows, place] = 0
    kind = (line[rows, place + 1] + 2 * (line[:, 0] % 2)) % KINDS
    return TensorDataset(line, kind)


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    right = [(model(line).argmax(1) == kind).float() for line, kind in loader]
    return torch.cat(right).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=6e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    train, valid = lines(3072, args.seed), lines(512, args.seed + 1)
    loader = DataLoader(train, batch_size=64, shuffle=True)
    valid_loader = DataLoader(valid, batch_size=64)
    model = LogClassifier(dim=-1 if args.fixed else 0)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    step = 0
    for epoch in range(args.epochs):
        model.train()
        for line, kind in loader:
            loss = F.cross_entropy(model(line), kind)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        print(f"epoch {epoch} accuracy {accuracy(model, valid_loader):.4f}", flush=True)
    if args.prove:
        model.eval()
        line = valid.tensors[0][:64]
        with torch.no_grad():
            alone = torch.cat([model(one[None]) for one in line])
            gap = (model(line) - alone).abs().max().item()
        print(f"a line alone and in a batch are apart by up to {gap:.6f}")
        print("fault shows:", "yes" if gap > 1e-3 else "no", flush=True)


if __name__ == "__main__":
    main()
