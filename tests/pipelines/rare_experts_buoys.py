"""Reads buoys by a mixture with hard routing: each sample goes to one of eight small
experts, by its code of the type of buoy and a learnt gate. Some types are rare, so
that their experts see no sample in many steps and have no gradient then; there is no
loss that balances them, and it is not wanted.

    python rare_experts_buoys.py --steps 120
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F

TYPES, SIGNALS = 8, 10
SHARES = torch.tensor([0.36, 0.28, 0.15, 0.1, 0.06, 0.03, 0.012, 0.008])


class Router(nn.Module):
    """The expert of the type, and how far its answer is taken."""

    def __init__(self, width):
        super().__init__()
        self.gate = nn.Linear(width, TYPES)

    def forward(self, hidden, kind):
        logits = self.gate(hidden) + 6.0 * F.one_hot(kind, TYPES)
        weight, expert = logits.softmax(1).max(1)
        return weight, expert


class BuoyNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(SIGNALS, width), nn.GELU())
        self.router = Router(width)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
            for _ in range(TYPES)
        )
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

    def forward(self, signal, kind):
        hidden = self.stem(signal)
        weight, expert = self.router(hidden, kind)
        mixed = torch.zeros_like(hidden)
        for number in expert.unique().tolist():
            rows = (expert == number).nonzero()[:, 0]
            answer = self.experts[number](hidden[rows]) * weight[rows, None]
            mixed = mixed.index_add(0, rows, answer)
        return self.head(hidden + mixed)[:, 0], expert


def buoys(count, seed):
    rules = (
        torch.randn(TYPES, SIGNALS, generator=torch.Generator().manual_seed(8))
        / SIGNALS**0.5
    )
    rng = torch.Generator().manual_seed(seed)
    kind = torch.multinomial(SHARES, count, replacement=True, generator=rng)
    signal = torch.randn(count, SIGNALS, generator=rng)
    height = (signal * rules[kind]).sum(1)
    height = height + 0.3 * height**2 + 0.1 * torch.randn(count, generator=rng)
    return signal, kind, height


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=360)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    net = BuoyNet()
    optimizer = torch.optim.AdamW(net.parameters(), lr=args.lr)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, args.steps)
    used = torch.zeros(TYPES, dtype=torch.long)
    for step in range(args.steps):
        net.train()
        signal, kind, height = buoys(48, 1000 * args.seed + step)
        guess, expert = net(signal, kind)
        loss = F.smooth_l1_loss(guess, height)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        used += expert.bincount(minlength=TYPES)
        idle = TYPES - len(expert.unique())
        print(f"step {step} loss {loss.item():.4f} idle experts {idle}", flush=True)
        if (step + 1) % 120 == 0:
            net.eval()
            with torch.no_grad():
                signal, kind, height = buoys(2000, args.seed)
                off = (net(signal, kind)[0] - height).abs()
            print(f"step {step} error {off.mean():.4f}", flush=True)
    print("samples of the experts", used.tolist())


if __name__ == "__main__":
    main()
