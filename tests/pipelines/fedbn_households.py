"""Federated forecasts of what households draw from the grid: FedAvg with a proximal term.

Households differ in scale and habit and in how much they have recorded. Weights are averaged
by the number of days; BatchNorm stays at home with each (FedBN). A client is started from the
server's weights and a fresh optimizer every time; after the first round only some take part.
"""
import argparse
from collections import ChainMap

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

PAST, AHEAD = 24, 6


def household(seed, days):
    """-> pairs of 24 hours and the 6 hours after them, in kW"""
    gen = torch.Generator().manual_seed(seed)
    scale, morning, evening = (
        torch.rand(3, generator=gen) * torch.tensor([4.0, 2.0, 3.0])
    ).tolist()
    t = torch.arange(24 * (days + 2)).float()
    hour, mood = t % 24, 1 + 0.3 * torch.randn(
        days + 2, generator=gen
    ).repeat_interleave(24)
    load = (
        0.3
        + torch.exp(-((hour - 6 - morning) ** 2) / 3)
        + 1.6 * torch.exp(-((hour - 18 - evening) ** 2) / 6)
    )
    load = (0.5 + scale) * (load * mood + 0.1 * torch.rand(len(t), generator=gen))
    starts = 24 * torch.arange(days) + torch.randint(0, 24, (days,), generator=gen)
    rows = load[starts[:, None] + torch.arange(PAST + AHEAD)]
    return rows[:, :PAST], rows[:, PAST:]


class Client:
    def __init__(self, seed, days):
        x, y = household(seed, days)
        cut = days * 3 // 4  # the last quarter is for validation
        # each household is put on a scale of its own, from its training part
        mean, std = x[:cut].mean(), x[:cut].std()
        x, y = (x - mean) / std, (y - mean) / std
        self.days, self.valid = cut, (x[cut:], y[cut:])
        self.loader = DataLoader(
            TensorDataset(x[:cut], y[:cut]),
            batch_size=12,
            shuffle=True,
            generator=torch.Generator().manual_seed(seed),
        )
        self.norms = None  # state of its BatchNorm layers, once it has any


def forecaster():
    return nn.Sequential(
        nn.Linear(PAST, 48),
        nn.BatchNorm1d(48),
        nn.ReLU(),
        nn.Linear(48, 48),
        nn.BatchNorm1d(48),
        nn.ReLU(),
        nn.Linear(48, AHEAD),
    )


def is_norm(key):
    return key.split(".")[0] in ("1", "4")


def parts(model):
    """-> what is shared, what stays at home; copies"""
    state = {k: v.detach().clone() for k, v in model.state_dict().items()}
    return (
        {k: v for k, v in state.items() if not is_norm(k)},
        {k: v for k, v in state.items() if is_norm(k)},
    )


def assemble(model, shared, norms):
    model.load_state_dict(dict(ChainMap(norms, shared)))


def train_at_home(model, client, shared, epochs, mu, lr, losses):
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for _ in range(epochs):
        for x, y in client.loader:
            fit = F.smooth_l1_loss(model(x), y)
            away = sum(
                (p - shared[k]).square().sum()
                for k, p in model.named_parameters()
                if k in shared
            )
            optimizer.zero_grad()
            (fit + mu / 2 * away).backward()
            optimizer.step()
            losses.append(fit.item())


def main():
    p = argparse.ArgumentParser()
    p.add_argument(
        "--steps",
        type=int,
        default=200,
        help="local steps of all clients together, at least",
    )
    p.add_argument("--local-epochs", type=int, default=2)
    p.add_argument("--mu", type=float, default=0.01)
    args = p.parse_args()
    torch.manual_seed(77)
    torch.set_num_threads(1)
    clients = [
        Client(seed, days) for seed, days in enumerate([32, 48, 64, 64, 96, 128])
    ]
    lottery = torch.Generator().manual_seed(6)

    model = forecaster()  # one body, in which server and clients take turns
    shared, fresh_norms = parts(model)
    losses, round_ = [], 0
    while len(losses) < args.steps:
        everyone = torch.randperm(len(clients), generator=lottery).tolist()
        chosen = everyone if round_ == 0 else everyone[:3]
        lr = 0.03 * 0.9**round_
        before, total = len(losses), sum(clients[c].days for c in chosen)
        mean = {k: torch.zeros_like(v) for k, v in shared.items()}
        for c in chosen:
            client = clients[c]
            assemble(model, shared, client.norms or fresh_norms)
            train_at_home(model, client, shared, args.local_epochs, args.mu, lr, losses)
            trained, client.norms = parts(model)
            for k in mean:
                mean[k].add_(trained[k], alpha=client.days / total)
        shared = mean
        round_ += 1

        model.eval()
        errors = []
        for client in clients:
            assemble(model, shared, client.norms)
            x, y = client.valid
            with torch.no_grad():
                errors.append((model(x) - y).abs().mean().item())
        took = losses[before:]
        print(
            f"round {round_:2d} clients {sorted(chosen)} steps {len(took):3d} loss {sum(took) / len(took):.4f} "
            f"valid {sum(errors) / len(errors):.4f} worst {max(errors):.4f}"
        )


if __name__ == "__main__":
    main()
