# Next-hour demand at bike sharing stations from recent history and calendar.
import argparse
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

HIST = 24
CHANNELS = 3


def synth(n=1800, seed=11):
    g = torch.Generator().manual_seed(seed)
    hour = torch.randint(0, 24, (n,), generator=g).float()
    weekday = torch.randint(0, 7, (n,), generator=g).float()
    temp = torch.randn(n, generator=g)
    level = torch.randn(n, 1, generator=g)
    slope = 0.6 * torch.randn(n, 1, generator=g)
    t = torch.linspace(-1, 0, HIST)[None]
    demand = level + slope * t + 0.15 * torch.randn(n, HIST, generator=g)
    docks = 0.5 * demand + 0.2 * torch.randn(n, HIST, generator=g)
    rain = (torch.rand(n, HIST, generator=g) < 0.1).float()
    history = torch.stack([demand, docks, rain], dim=2)
    calendar = torch.stack(
        [
            torch.sin(hour * math.pi / 12),
            torch.cos(hour * math.pi / 12),
            (weekday >= 5).float(),
            temp,
        ],
        dim=1,
    )
    target = (
        1.2 * calendar[:, 0]
        - 0.5 * calendar[:, 2]
        + 0.6 * temp
        + 0.9 * level[:, 0]
        + 0.5 * slope[:, 0]
        - 0.3 * rain[:, -3:].sum(1)
        + 0.1 * torch.randn(n, generator=g)
    )
    return history, calendar, target


class DemandNet(nn.Module):
    def __init__(self, hidden=32, permute_input=False):
        super().__init__()
        self.permute_input = permute_input
        self.rnn = nn.GRU(CHANNELS, hidden)
        self.calendar = nn.Sequential(nn.Linear(4, 32), nn.ReLU())
        self.out = nn.Sequential(
            nn.Linear(hidden + 32, 32), nn.ReLU(), nn.Linear(32, 1)
        )

    def forward(self, history, calendar):
        b, t, c = history.shape
        if self.permute_input:
            seq = history.transpose(0, 1)
        else:
            seq = history.reshape(t, b, c)
        _, h = self.rnn(seq)
        return self.out(torch.cat([h[-1], self.calendar(calendar)], dim=1)).squeeze(-1)


def run_eval(model, loader):
    model.eval()
    err, n = 0.0, 0
    with torch.no_grad():
        for h, c, y in loader:
            err += (model(h, c) - y).abs().sum().item()
            n += len(y)
    model.train()
    return err / n


def row_influence(model, h, c):
    model.eval()
    with torch.no_grad():
        before = model(h, c)
        h2 = h.clone()
        h2[0] += 2.0
        after = model(h2, c)
    moved = (after - before).abs() > 1e-6
    model.train()
    return moved[0].item(), int(moved[1:].sum())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=8)
    p.add_argument("--batch", type=int, default=60)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    args = p.parse_args()

    torch.manual_seed(args.seed)
    data = TensorDataset(*synth())
    train, val = random_split(
        data, [1500, 300], generator=torch.Generator().manual_seed(3)
    )
    train_dl = DataLoader(train, batch_size=args.batch, shuffle=True, drop_last=True)
    val_dl = DataLoader(val, batch_size=args.batch)

    net = DemandNet(permute_input=args.fixed)
    optim = torch.optim.AdamW(net.parameters(), lr=args.lr, weight_decay=1e-4)
    crit = nn.SmoothL1Loss()

    for epoch in range(args.epochs):
        running = 0.0
        for h, c, y in train_dl:
            optim.zero_grad(set_to_none=True)
            loss = crit(net(h, c), y)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            optim.step()
            running += loss.item()
        print(
            f"[{epoch + 1}/{args.epochs}] train loss {running / len(train_dl):.4f}  "
            f"val MAE {run_eval(net, val_dl):.4f}"
        )

    if args.prove:
        h, c, _ = next(iter(val_dl))
        own, others = row_influence(net, h, c)
        print(
            f"history of row 0 changed: own forecast moved {own}, "
            f"other forecasts moved {others} of {len(h) - 1}"
        )
        print("fault shows:", "yes" if others > 0 else "no")


if __name__ == "__main__":
    main()
