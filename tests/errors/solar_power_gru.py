# Solar power of single plants: from 6 past readings (power, irradiance, temperature)
# predict the next reading. The training windows come from 40 plants and are shuffled.
import argparse
import math

import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

LOOKBACK = 6


class PlantSeries(Dataset):
    """One plant = one dataset of sliding windows."""

    def __init__(self, plant_id, hours=24 * 6):
        g = torch.Generator().manual_seed(1000 + plant_id)
        t = torch.arange(hours).float()
        peak = 0.6 + 0.8 * torch.rand(1, generator=g)
        tilt = 0.15 * torch.randn(1, generator=g)
        elevation = torch.clamp(torch.sin(math.pi * ((t % 24) - 6 + tilt) / 12), min=0)
        cloud = torch.zeros(hours)
        noise = torch.randn(hours, generator=g)
        for i in range(1, hours):
            cloud[i] = 0.9 * cloud[i - 1] + 0.35 * noise[i]
        clear = torch.sigmoid(1.0 - 1.5 * cloud)
        irradiance = elevation * clear
        temp = (
            12
            + 9 * torch.sin(2 * math.pi * (t - 9) / 24)
            + 2 * clear
            + torch.randn(hours, generator=g)
        )
        power = peak * irradiance * (1 - 0.004 * (temp - 20)) + 0.02 * torch.randn(
            hours, generator=g
        )
        x = torch.stack(
            [
                power,
                irradiance + 0.03 * torch.randn(hours, generator=g),
                (temp - 12) / 10,
            ],
            1,
        )
        clock = torch.stack(
            [torch.sin(2 * math.pi * t / 24), torch.cos(2 * math.pi * t / 24)], 1
        )
        self.x = torch.cat([x, clock], 1)

    def __len__(self):
        return len(self.x) - LOOKBACK

    def __getitem__(self, i):
        return self.x[i : i + LOOKBACK], self.x[i + LOOKBACK, 0]


class PowerGRU(nn.Module):
    def __init__(self, n_in=5, hidden=40, layers=2):
        super().__init__()
        self.gru = nn.GRU(n_in, hidden, layers, batch_first=True, dropout=0.1)
        self.fc = nn.Linear(hidden, 1)

    def forward(self, x, h=None):
        out, h = self.gru(x, h)
        return self.fc(out[:, -1]).squeeze(-1), h

    def init_hidden(self, batch_size):
        w = next(self.parameters())
        return w.new_zeros(self.gru.num_layers, batch_size, self.gru.hidden_size)


def train_epoch(net, loader, opt, loss_fn, state, args, starts):
    net.train()
    h = net.init_hidden(loader.batch_size)
    total, count = 0.0, 0
    for x, y in loader:
        if args.fixed:
            h = net.init_hidden(x.size(0))
        starts.append(h.abs().max().item())
        opt.zero_grad()
        h = h.detach()
        pred, h = net(x, h)
        loss = loss_fn(pred, y)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        total += loss.item()
        count += 1
        state["step"] += 1
        if state["step"] >= args.steps:
            break
    return total / count


def validate(net, loader):
    net.eval()
    se, n = 0.0, 0
    with torch.no_grad():
        for x, y in loader:
            pred, _ = net(x, net.init_hidden(x.size(0)))
            se += (pred - y).pow(2).sum().item()
            n += len(y)
    return math.sqrt(se / n)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(56)

    train_set = ConcatDataset([PlantSeries(k) for k in range(32)])
    val_set = ConcatDataset([PlantSeries(k) for k in range(32, 40)])
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, drop_last=True)
    val_loader = DataLoader(val_set, 256)
    print(f"{len(train_set)} training windows, {len(val_set)} validation windows")

    net = PowerGRU()
    opt = torch.optim.Adam(net.parameters(), lr=args.lr)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)
    loss_fn = nn.MSELoss()
    state, starts, epoch = {"step": 0}, [], 0
    best = (float("inf"), 0)
    while state["step"] < args.steps:
        loss = train_epoch(net, train_loader, opt, loss_fn, state, args, starts)
        sched.step()
        epoch += 1
        rmse = validate(net, val_loader)
        best = min(best, (rmse, epoch))
        print(
            f"Epoch {epoch}: train loss {loss:.5f}  val rmse {rmse:.4f}  (step {state['step']})"
        )
    print(f"best rmse {best[0]:.4f} in epoch {best[1]}")

    if args.prove:
        carried = sum(s > 0 for s in starts)
        print(
            f"training batches that began with a state from another batch: {carried} of {len(starts)}"
        )
        print("fault shows:", "yes" if carried else "no")


if __name__ == "__main__":
    main()
