"""Decides whether to stop a press before it jams (MLP). A needless stop is dear and a
jam is cheap to clear, so the frequent class has the larger weight in the loss. Errors
are weighted by their costs; the threshold is set by the costs on the validation rows.

    python costs_press_alarms.py --epochs 12
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

STOP_COST, JAM_COST = 6.0, 1.5


def cycles(count, seed):
    """Eight readings of each cycle of the press; about an eighth ends in a jam."""
    g = torch.Generator().manual_seed(seed)
    readings = torch.randn(count, 8, generator=g)
    strain = 1.6 * readings[:, 0] + readings[:, 1] * readings[:, 2] - 2.8
    jam = torch.rand(count, generator=g) < torch.sigmoid(2 * strain)
    return readings, jam.float()


def cost(stops, jams):
    """The mean cost of a cycle: of needless stops, and of jams that were let happen."""
    needless = (stops & ~jams.bool()).float()
    missed = (~stops & jams.bool()).float()
    return (STOP_COST * needless + JAM_COST * missed).mean().item()


def best_threshold(scores, jams):
    grid = torch.linspace(0.02, 1.0, 50)
    costs = [cost(scores > threshold, jams) for threshold in grid]
    return grid[min(range(len(grid)), key=costs.__getitem__)].item()


class Net(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(8, width),
            nn.LayerNorm(width),
            nn.SiLU(),
            nn.Dropout(0.1),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, 1),
        )

    def forward(self, x):
        return self.layers(x).squeeze(1)


@torch.no_grad()
def scores_of(model, readings):
    model.eval()
    scores = model(readings).sigmoid()
    model.train()
    return scores


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    x, y = cycles(4000, 1)
    val, test = cycles(1500, 2), cycles(1500, 3)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    steps = args.epochs * (len(x) // args.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, steps)
    weights = torch.tensor([STOP_COST, JAM_COST])
    weights = weights / weights.mean()
    for epoch in range(args.epochs):
        total = 0.0
        for rows in torch.randperm(len(x)).split(args.batch):
            if len(rows) < args.batch:
                continue
            target = y[rows]
            losses = F.binary_cross_entropy_with_logits(
                model(x[rows]), target, reduction="none"
            )
            loss = (weights[target.long()] * losses).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        scores = scores_of(model, val[0])
        threshold = best_threshold(scores, val[1])
        print(
            f"epoch {epoch} loss {total / (len(x) // args.batch):.6f} "
            f"threshold {threshold:.2f} cost {cost(scores > threshold, val[1]):.4f}",
            flush=True,
        )
    stops = scores_of(model, test[0]) > threshold
    never = cost(torch.zeros_like(stops), test[1])
    print(f"test cost {cost(stops, test[1]):.4f}, without stops {never:.4f}")


if __name__ == "__main__":
    main()
