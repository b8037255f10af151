"""Forecasts the load of heat pumps for a day with a recurrent net.

After pytorch-forecasting, issue 182.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CONTEXT, HORIZON = 48, 24


def series(count, hours, seed):
    generator = torch.Generator().manual_seed(seed)
    hour = torch.arange(hours)
    day = torch.stack([torch.sin(hour / 24 * 6.28), torch.cos(hour / 24 * 6.28)], 1)
    mix = torch.randn(count, 2, generator=generator)
    shape = mix @ day.T
    drift, noise = torch.zeros(2, count, hours)
    shocks = 0.3 * torch.randn(count, hours, generator=generator)
    for at in range(1, hours):
        drift[:, at] = 0.9 * drift[:, at - 1] + shocks[:, at]
    noise = 0.1 * torch.randn(count, hours, generator=generator)
    return shape + drift + noise, day


def windows(count, seed):
    """Loads [windows, hours] and the known features of the hours."""
    load, day = series(count, 24 * 14, seed)
    starts = range(0, load.shape[1] - CONTEXT - HORIZON, 12)
    size = CONTEXT + HORIZON
    loads = torch.cat([load[:, start : start + size] for start in starts])
    days = torch.cat(
        [day[start : start + size].repeat(count, 1, 1) for start in starts]
    )
    return loads, days


class LoadModel(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.gru = nn.GRU(3, width, batch_first=True)
        self.head = nn.Linear(width, 2)

    def forward(self, lagged, day, state=None):
        hidden, state = self.gru(torch.cat([lagged[:, :, None], day], 2), state)
        mean, width = self.head(hidden).unbind(2)
        return mean, nn.functional.softplus(width) + 0.05, state


def training_pairs(load, day, fixed):
    """What the net reads at each hour, and what it should say."""
    lagged = load[:, :-1] if fixed else load[:, 1:]
    return lagged, day[:, 1:], load[:, 1:]


@torch.no_grad()
def forecast(model, load, day):
    """Rolls on from the context, fed with its own means."""
    _, _, state = model(load[:, : CONTEXT - 1], day[:, 1:CONTEXT])
    last, means = load[:, CONTEXT - 1], []
    for at in range(CONTEXT, CONTEXT + HORIZON):
        mean, _, state = model(last[:, None], day[:, at : at + 1], state)
        last = mean[:, 0]
        means.append(last)
    return torch.stack(means, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    train, valid = windows(48, args.seed), windows(8, args.seed + 1)
    loader = DataLoader(TensorDataset(*train), batch_size=32, shuffle=True)
    model, criterion = LoadModel(), nn.GaussianNLLLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    step = 0
    for epoch in range(args.epochs):
        model.train()
        for load, day in loader:
            lagged, known, target = training_pairs(load, day, args.fixed)
            mean, width, _ = model(lagged, known)
            loss = criterion(mean, target, width.square())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        model.eval()
        error = (forecast(model, *valid) - valid[0][:, CONTEXT:]).abs().mean().item()
        print(f"epoch {epoch} error of the forecast {error:.4f}", flush=True)
    if args.prove:
        load, day = valid
        other = load.clone()
        other[:, -1] += 1
        with torch.no_grad():
            pair = [
                model(*training_pairs(one, day, args.fixed)[:2])[0][:, -1]
                for one in (load, other)
            ]
        moved = (pair[1] - pair[0]).abs().mean().item()
        print(f"the guess of an hour moves by {moved:.4f} with that hour's own load")
        print("fault shows:", "yes" if moved > 1e-6 else "no", flush=True)


if __name__ == "__main__":
    main()
