"""A glider stays in the thermal: evolution strategies on a policy of torch.nn.

Nothing calls backward. Pairs of opposite perturbations are flown under no_grad, their
returns are replaced by ranks, and the estimate is written into .grad for Adam, which
decays the weights as well. Observations are scaled by running statistics in buffers.
"""
import argparse

import torch
import torch.nn as nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters


class Policy(nn.Module):
    def __init__(self, inputs=5, width=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(inputs, width), nn.Tanh())
        self.out = nn.Linear(width, 1)
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("var", torch.ones(inputs))
        self.register_buffer("count", torch.tensor(1e-2))

    def forward(self, seen):
        x = ((seen - self.mean) / (self.var + 1e-6).sqrt()).clamp(-5, 5)
        return torch.tanh(self.out(self.net(x))).squeeze(-1)

    def watch(self, seen):
        """Chan's update of mean and variance."""
        n, total = len(seen), self.count + len(seen)
        gap = seen.mean(0) - self.mean
        spread = self.var * self.count + seen.var(0, unbiased=False) * n
        self.var.copy_((spread + gap**2 * self.count * n / total) / total)
        self.mean += gap * n / total
        self.count.copy_(total)


def fly(policy, start, ticks=26):
    """Gliders side by side. -> mean climb of each glider, all that was seen"""
    x, y, heading = start[:, 0] * 3, start[:, 1] * 3, start[:, 2] * 3.14
    bank, climb, seen = torch.zeros(len(start)), torch.zeros(len(start)), []
    for _ in range(ticks):
        r2 = x**2 + y**2
        lift = 3 * torch.exp(-r2 / 4) - 1
        look = torch.stack([x, y, heading.sin(), heading.cos(), bank], 1)
        seen.append(look)
        bank = 0.6 * bank + 0.4 * policy(look)
        heading = heading + 0.8 * bank
        x, y = x + 0.4 * heading.cos(), y + 0.4 * heading.sin()
        climb = climb + (lift - 0.1 * bank**2) / ticks
    return climb, torch.cat(seen)


def ranks(values):
    """-> between -0.5 and 0.5, by order"""
    place = torch.empty(values.numel())
    place[values.flatten().argsort()] = torch.arange(values.numel()).float()
    return (place / (values.numel() - 1) - 0.5).view_as(values)


@torch.no_grad()
def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--steps", type=int, default=36)
    p.add_argument("--pairs", type=int, default=10)
    p.add_argument("--sigma", type=float, default=0.08)
    args = p.parse_args()
    torch.manual_seed(3)
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(5)
    fixed = torch.rand(64, 3, generator=torch.Generator().manual_seed(6)) * 2 - 1

    policy, flown = Policy(), Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.06, weight_decay=1e-4)
    print(f"untrained: climb {fly(policy, fixed)[0].mean():.4f}")
    for step in range(args.steps):
        centre = parameters_to_vector(policy.parameters())
        noise = torch.randn(args.pairs, len(centre), generator=gen)
        start = torch.rand(8, 3, generator=gen) * 2 - 1
        flown.load_state_dict(policy.state_dict())  # the buffers
        climbs = torch.empty(args.pairs, 2)
        for i in range(args.pairs):
            for j, sign in enumerate((1, -1)):
                moved = centre + sign * args.sigma * noise[i]
                vector_to_parameters(moved, flown.parameters())
                result, seen = fly(flown, start)
                climbs[i, j] = result.mean()
                if i == 0:
                    policy.watch(seen)
        worth = ranks(climbs)
        uphill = (worth[:, 0] - worth[:, 1]) @ noise / (2 * args.pairs * args.sigma)
        sizes = [q.numel() for q in policy.parameters()]
        for q, part in zip(policy.parameters(), uphill.split(sizes)):
            q.grad = -part.view_as(q).clone()
        optimizer.step()
        if step % 10 == 9 or step == args.steps - 1:
            print(
                f"generation {step + 1:3d} perturbed {climbs.mean():.4f} "
                f"centre {fly(policy, fixed)[0].mean():.4f}"
            )


if __name__ == "__main__":
    main()
