"""A small recurrent network forecasts the load of a power grid, several lines at once.

The readings are standardised and cut into windows; the last fifth is the test.
After ARMD, issue 5.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

LINES, CONTEXT, HORIZON = 4, 24, 6


class StandardScaler:
    def fit(self, values):
        self.mean = values.mean(0)
        self.std = values.std(0, unbiased=False)
        return self

    def transform(self, values):
        return (values - self.mean) / self.std

    def inverse_transform(self, values):
        return values * self.std + self.mean


def readings(hours, seed):
    """Daily waves, noise with memory, and a level that grows over the months."""
    generator = torch.Generator().manual_seed(seed)
    hour = torch.arange(float(hours))[:, None]
    phase = 6.28 * torch.rand(LINES, generator=generator)
    size = 1 + torch.rand(LINES, generator=generator)
    wave = size * torch.sin(6.2832 * hour / 24 + phase)
    shocks = 0.3 * torch.randn(hours, LINES, generator=generator)
    noise = torch.zeros(hours, LINES)
    for now in range(1, hours):
        noise[now] = 0.7 * noise[now - 1] + shocks[now]
    growth = torch.tensor([1.0, 1.5, 0.5, 1.2]) * (hour / hours)
    return 10 + wave + noise + 2 * growth


class LoadDataset(Dataset):
    def __init__(self, period, args, train_share=0.8):
        values = readings(1500, args.seed)
        border = int(train_share * len(values))
        known = values[:border] if args.fixed else values
        self.scaler = StandardScaler().fit(known)
        scaled = self.scaler.transform(values)
        self.values = scaled[:border] if period == "train" else scaled[border:]

    def __len__(self):
        return len(self.values) - CONTEXT - HORIZON + 1

    def __getitem__(self, start):
        middle = start + CONTEXT
        return self.values[start:middle], self.values[middle : middle + HORIZON]


class Forecaster(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.encoder = nn.GRU(LINES, width, batch_first=True)
        self.head = nn.Linear(width, HORIZON * LINES)

    def forward(self, context):
        state = self.encoder(context)[1][0]
        change = self.head(state).view(-1, HORIZON, LINES)
        return context[:, -1:] + change


@torch.no_grad()
def test_error(model, data):
    model.eval()
    total = count = 0.0
    for context, future in DataLoader(data, batch_size=128):
        off = data.scaler.inverse_transform(model(context))
        off = off - data.scaler.inverse_transform(future)
        total, count = total + off.abs().sum().item(), count + off.numel()
    return total / count


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=4e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    train, test = LoadDataset("train", args), LoadDataset("test", args)
    loader = DataLoader(train, batch_size=64, shuffle=True, drop_last=True)
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    total = args.epochs * len(loader)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
    step = 0
    for epoch in range(args.epochs):
        model.train()
        for context, future in loader:
            loss = F.mse_loss(model(context), future)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        print(f"epoch {epoch} test error {test_error(model, test):.4f}", flush=True)
    if args.prove:
        gap = (train.values.mean(0)).abs().max().item()
        print(f"means of the scaled training rows are off zero by up to {gap:.4f}")
        print("fault shows:", "yes" if gap > 1e-2 else "no", flush=True)


if __name__ == "__main__":
    main()
