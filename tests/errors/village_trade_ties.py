"""Dialect of villages from market goods and from who trades with whom.

The register lists every trade tie of two villages once.  A two-layer graph network mixes
the goods of a village with those of its partners; one village in six has a known dialect.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Register:
    """Villages, their goods, their dialects and the trade ties between them."""

    def __init__(self, villages=900, dialects=5, goods=30, seed=0):
        rng = np.random.default_rng(seed + 31)
        self.dialects = dialects
        label = rng.integers(0, dialects, villages)
        taste = rng.normal(0, 1, (dialects, goods))
        offered = 0.35 * taste[label] + rng.normal(0, 1, (villages, goods))
        first, second = np.triu_indices(villages, 1)
        same = label[first] == label[second]
        chance = np.where(same, 0.020, 0.0025)
        kept = rng.random(len(first)) < chance
        self.ties = torch.tensor(np.stack([first[kept], second[kept]]))
        self.goods = torch.tensor(offered, dtype=torch.float32)
        self.label = torch.tensor(label)
        roles = torch.tensor(rng.permutation(villages))
        self.train = roles[: villages // 6]
        self.valid = roles[villages // 6 : villages // 3]
        self.test = roles[villages // 3 :]

    def __len__(self):
        return len(self.label)


def propagation(ties, villages, both_ways):
    """Sparse matrix that averages over a village and its partners."""
    loops = torch.arange(villages).expand(2, villages)
    edges = [ties, loops]
    if both_ways:
        edges.append(ties.flip(0))
    source, target = torch.cat(edges, 1)
    degree = torch.bincount(target, minlength=villages).float()
    weight = 1.0 / degree[target]
    index = torch.stack([target, source])
    size = (villages, villages)
    matrix = torch.sparse_coo_tensor(index, weight, size, check_invariants=True)
    return matrix.coalesce()


class GraphLayer(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.own = nn.Linear(inputs, outputs)
        self.partners = nn.Linear(inputs, outputs, bias=False)

    def forward(self, h, matrix):
        return self.own(h) + self.partners(torch.sparse.mm(matrix, h))


class DialectNet(nn.Module):
    def __init__(self, goods, hidden, dialects, dropout):
        super().__init__()
        self.one = GraphLayer(goods, hidden)
        self.two = GraphLayer(hidden, dialects)
        self.dropout = nn.Dropout(dropout)

    def forward(self, goods, matrix):
        h = F.relu(self.one(self.dropout(goods), matrix))
        return self.two(self.dropout(h), matrix)


def hit_rate(logits, label, rows):
    return (logits[rows].argmax(1) == label[rows]).float().mean().item()


def train(args, register, folder):
    matrix = propagation(register.ties, len(register), both_ways=args.fixed)
    model = DialectNet(
        register.goods.shape[1], args.hidden, register.dialects, args.dropout
    )
    optimizer = torch.optim.Adam(
        model.parameters(), lr=args.lr, weight_decay=args.weight_decay
    )
    keep = Path(folder) / "dialects.pt"
    best, waited = 0.0, 0
    for epoch in range(args.epochs):
        model.train()
        optimizer.zero_grad()
        logits = model(register.goods, matrix)
        loss = F.cross_entropy(logits[register.train], register.label[register.train])
        loss.backward()
        optimizer.step()

        model.eval()
        with torch.no_grad():
            logits = model(register.goods, matrix)
        valid = hit_rate(logits, register.label, register.valid)
        if valid > best:
            best, waited = valid, 0
            torch.save(model.state_dict(), keep)
        else:
            waited += 1
        if epoch % 10 == 9:
            valid_loss = F.cross_entropy(
                logits[register.valid], register.label[register.valid]
            )
            print(
                f"epoch {epoch + 1:3d} loss {loss:.4f} valid loss {valid_loss:.4f} "
                f"valid accuracy {valid:.3f}"
            )
        if waited > args.patience:
            break
    model.load_state_dict(torch.load(keep))
    model.eval()
    with torch.no_grad():
        logits = model(register.goods, matrix)
    return best, logits


def describe(register, logits):
    print(f"test accuracy {hit_rate(logits, register.label, register.test):.3f}")
    guess = logits[register.test].argmax(1)
    for dialect in range(register.dialects):
        mine = register.label[register.test] == dialect
        share = (guess[mine] == dialect).float().mean()
        print(f"  dialect {dialect}: {int(mine.sum()):3d} villages, {share:.3f} right")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--dropout", type=float, default=0.4)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--weight-decay", type=float, default=1e-3)
    parser.add_argument("--patience", type=int, default=80)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    register = Register(seed=args.seed)
    print(f"{len(register)} villages, {register.ties.shape[1]} ties")
    with tempfile.TemporaryDirectory() as folder:
        best, logits = train(args, register, folder)
    print(f"best valid accuracy {best:.3f}")
    describe(register, logits)


if __name__ == "__main__":
    main()
