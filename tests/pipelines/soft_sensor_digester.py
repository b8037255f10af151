"""A soft sensor: the gas of a digester, which the laboratory measures late, from cheap
sensors up to and including the same hour (causal conv1d). So a window's last hour is
the target's hour; the gas itself is no input. Hours are split in time with a gap as
long as the window, scales are those of the training hours; windows overlap.

    python soft_sensor_digester.py --epochs 5
"""

import argparse
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WINDOW = 32


def plant(hours, seed):
    """Sensors (hours, 3) and the gas, which follows feed and heat with a delay."""
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(hours)
    feed = (
        1
        + 0.5 * torch.sin(t * 2 * math.pi / 24)
        + 0.2 * torch.randn(hours, generator=g)
    )
    heat = (
        37
        + 2 * torch.sin(t * 2 * math.pi / 170)
        + 0.3 * torch.randn(hours, generator=g)
    )
    acid = torch.randn(hours, generator=g).cumsum(0) * 0.02 + 7
    store, gas = 1.0, []
    for hour in range(hours):
        made = 0.12 * store * math.exp(0.1 * (heat[hour].item() - 37))
        store = store + 0.12 * feed[hour].item() - made
        gas.append(made)
    gas = torch.tensor(gas) * 10 + 0.02 * torch.randn(hours, generator=g)
    return torch.stack([feed, heat, acid], dim=1), gas


class Windows(Dataset):
    """Hours [first, last): the sensors up to the hour, and the gas of the hour."""

    def __init__(self, sensors, gas, first, last):
        self.sensors, self.gas = sensors[first:last], gas[first:last]

    def __len__(self):
        return len(self.gas) - WINDOW + 1

    def __getitem__(self, i):
        return self.sensors[i : i + WINDOW], self.gas[i + WINDOW - 1]


class CausalNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv1d(width if level else 3, width, 3, dilation=2**level)
            for level in range(4)
        )
        self.head = nn.Linear(width, 1)

    def forward(self, sensors):
        x = sensors.transpose(1, 2)
        for level, conv in enumerate(self.convs):
            x = torch.relu(conv(nn.functional.pad(x, (2 * 2**level, 0))))
        return self.head(x[:, :, -1]).squeeze(1)


@torch.no_grad()
def error(model, loader, spread):
    model.eval()
    total = sum(((model(x) - y) ** 2).sum().item() for x, y in loader)
    model.train()
    return spread * math.sqrt(total / len(loader.dataset))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    sensors, gas = plant(3600, seed=1)
    cut = 2600
    x_mean, x_std = sensors[:cut].mean(0), sensors[:cut].std(0)
    y_mean, y_std = gas[:cut].mean(), gas[:cut].std()
    sensors, gas = (sensors - x_mean) / x_std, (gas - y_mean) / y_std
    train = Windows(sensors, gas, 0, cut)
    val = Windows(sensors, gas, cut + WINDOW, 3100)
    test = Windows(sensors, gas, 3100 + WINDOW, 3600)
    loader = DataLoader(train, batch_size=64, shuffle=True, drop_last=True)
    val, test = DataLoader(val, batch_size=256), DataLoader(test, batch_size=256)
    model = CausalNet()
    optimizer = torch.optim.NAdam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.7)
    step, spread = 0, y_std.item()
    for epoch in range(args.epochs):
        for x, y in loader:
            loss = nn.functional.huber_loss(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.6f}", flush=True)
            step += 1
        scheduler.step()
        print(f"epoch {epoch} error {error(model, val, spread):.4f}", flush=True)
    print(f"test error {error(model, test, spread):.4f}, deviation {spread:.4f}")


if __name__ == "__main__":
    main()
