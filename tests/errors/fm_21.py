"""Clicks on offers are foretold by an attentional factorization machine.

After each epoch the model is validated by its logarithmic loss and area under the curve.
rixwew/pytorch-fm#21.
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

FIELDS = (40, 30, 12, 7, 24)


class AttentionalFM(nn.Module):
    """Products of all pairs of fields, weighted by attention, beside linear terms."""

    def __init__(self, fields, width=16, dropouts=(0.2, 0.3), by_mode=False):
        super().__init__()
        offsets = torch.tensor((0,) + fields[:-1]).cumsum(0)
        self.register_buffer("offsets", offsets)
        self.linear = nn.Embedding(sum(fields), 1)
        self.factors = nn.Embedding(sum(fields), width)
        nn.init.zeros_(self.linear.weight)
        nn.init.normal_(self.factors.weight, std=0.3)
        self.attention = nn.Linear(width, width)
        self.projection = nn.Linear(width, 1)
        self.out = nn.Linear(width, 1)
        self.dropouts, self.by_mode = dropouts, by_mode
        rows, columns = torch.triu_indices(len(fields), len(fields), 1)
        self.rows, self.columns = rows.tolist(), columns.tolist()

    def drop(self, x, p):
        if self.by_mode:
            return F.dropout(x, p=p, training=self.training)
        return F.dropout(x, p=p)

    def forward(self, x):
        x = x + self.offsets
        factors = self.factors(x)
        pairs = factors[:, self.rows] * factors[:, self.columns]
        scores = self.projection(F.relu(self.attention(pairs)))
        scores = self.drop(F.softmax(scores, dim=1), self.dropouts[0])
        pooled = self.drop((scores * pairs).sum(1), self.dropouts[1])
        return (self.out(pooled) + self.linear(x).sum(1)).squeeze(1)


def clicks(count, seed):
    generator = torch.Generator().manual_seed(7)
    hidden = [torch.randn(size, 4, generator=generator) for size in FIELDS]
    generator = torch.Generator().manual_seed(seed)
    columns = [torch.randint(size, (count,), generator=generator) for size in FIELDS]
    rows = [table[column] for table, column in zip(hidden, columns)]
    score = (rows[0] * rows[1]).sum(1) + (rows[2] * rows[4]).sum(1) + rows[3][:, 0]
    clicked = torch.rand(count, generator=generator) < torch.sigmoid(score - 0.5)
    return TensorDataset(torch.stack(columns, 1), clicked.float())


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    scores = torch.cat([model(x) for x, _ in loader])
    clicked = torch.cat([y for _, y in loader])
    loss = F.binary_cross_entropy_with_logits(scores, clicked).item()
    higher = scores[clicked == 1][:, None] > scores[clicked == 0][None, :]
    return loss, higher.float().mean().item()


def train_epoch(model, loader, optimizer, step, steps):
    model.train()
    for x, y in loader:
        if step == steps:
            break
        loss = F.binary_cross_entropy_with_logits(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        step += 1
    return step


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=150)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    train = DataLoader(clicks(9600, 1), batch_size=320, shuffle=True)
    valid = DataLoader(clicks(2400, 2), batch_size=800)
    model = AttentionalFM(FIELDS, by_mode=options.fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-5)
    step = epoch = 0
    while step < options.steps:
        step = train_epoch(model, train, optimizer, step, options.steps)
        report = "epoch {} validation loss {:.4f}, area {:.4f}"
        print(report.format(epoch, *evaluate(model, valid)), flush=True)
        epoch += 1
    if options.prove:
        model.eval()
        x, _ = next(iter(valid))
        with torch.no_grad():
            gap = (model(x) - model(x)).abs().mean().item()
        print(f"two evaluations differ by {gap:.5f}", flush=True)
        print("fault shows:", "yes" if gap > 1e-6 else "no")


if __name__ == "__main__":
    main()
