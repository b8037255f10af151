"""Forecasts tomorrow's bread of a bakery: three quantiles by a dilated net over the
last weeks. Windows are taken in the order of days and never shuffled, the same in each
epoch, as the newest days shall weigh most at the end; each batch is a stretch of time,
so its loss goes up and down with the season. The last 120 days are held out.

    python ordered_bakery_quantiles.py --epochs 2
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PAST, QUANTILES = 28, (0.1, 0.5, 0.9)


def sales(days, rng):
    day = torch.arange(days).float()
    week = torch.tensor([0.0, -0.4, -0.3, -0.2, 0.1, 0.9, 0.7])[torch.arange(days) % 7]
    year = 0.5 * torch.sin(6.2832 * day / 365)
    feast = (torch.rand(days, generator=rng) < 0.03).float()
    swing = 0.15 + 0.15 * (year > 0)
    noise = torch.randn(days, generator=rng) * swing
    level = 0.02 * torch.randn(days, generator=rng).cumsum(0)
    return 3 + week + year + level + 1.5 * feast + noise, feast


class Windows(Dataset):
    """The days before, whether tomorrow is a feast, its weekday, and its sales."""

    def __init__(self, bread, feast, first, last):
        self.bread, self.feast = bread, feast
        self.days = range(max(first, PAST), last)

    def __len__(self):
        return len(self.days)

    def __getitem__(self, index):
        day = self.days[index]
        past = torch.stack([self.bread[day - PAST : day], self.feast[day - PAST : day]])
        return past, self.feast[day], day % 7, self.bread[day]


class BakeryNet(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv1d(2 if i == 0 else width, width, 3, dilation=2**i)
            for i in range(3)
        )
        self.weekday = nn.Embedding(7, 4)
        self.head = nn.Linear(width + 5, len(QUANTILES))

    def forward(self, past, feast, weekday):
        level = past[:, :1].mean(2)
        hidden = torch.cat([past[:, :1] - level[..., None], past[:, 1:]], 1)
        for conv in self.convs:
            hidden = torch.relu(conv(hidden))
        known = [hidden[..., -1], self.weekday(weekday), feast[:, None]]
        low, *gaps = self.head(torch.cat(known, 1)).split(1, 1)
        steps = [low] + [nn.functional.softplus(gap) for gap in gaps]
        return level + torch.cat(steps, 1).cumsum(1)


def pinball(guess, truth):
    share = torch.tensor(QUANTILES)
    off = truth[:, None] - guess
    return torch.maximum(share * off, (share - 1) * off).mean()


@torch.no_grad()
def evaluate(net, loader):
    net.eval()
    losses, inside = [], []
    for past, feast, weekday, truth in loader:
        guess = net(past, feast, weekday)
        losses.append(pinball(guess, truth) * len(truth))
        inside.append((guess[:, 0] <= truth) & (truth <= guess[:, 2]))
    inside = torch.cat(inside).float()
    return (sum(losses) / len(inside)).item(), inside.mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=4e-3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    bread, feast = sales(1280, torch.Generator().manual_seed(args.seed))
    border = len(bread) - 120
    past = Windows(bread, feast, 0, border)
    loader = DataLoader(past, batch_size=32, shuffle=False)
    future = DataLoader(Windows(bread, feast, border, len(bread)), batch_size=60)
    net = BakeryNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=args.lr)
    step = 0
    for epoch in range(args.epochs):
        net.train()
        for window, special, weekday, truth in loader:
            loss = pinball(net(window, special, weekday), truth)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        loss, inside = evaluate(net, future)
        print(f"epoch {epoch} held out {loss:.4f} inside {inside:.3f}", flush=True)


if __name__ == "__main__":
    main()
