"""Reptile: weights from which the tide of any harbour is learnt in eight steps.

The inner optimizer is made anew for each harbour and works on a deep copy; the outer step
has no optimizer at all: the weights move towards the mean of what the copies became. The
outer rate falls to zero. The validation adapts copies, too, in training mode.
"""
import argparse
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class TideNet(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(5, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()
        )
        self.head = nn.Linear(width, 1)

    def forward(self, hour):
        turn = 2 * math.pi * hour / 12.4
        features = [turn.sin(), turn.cos(), (2 * turn).sin(), (2 * turn).cos()]
        x = torch.stack(features + [hour / 24], -1)
        return self.head(self.body(x)).squeeze(-1)


class Harbour:
    """A main tide and an overtide whose lag belongs to the place."""

    def __init__(self, gen):
        a = torch.rand(4, generator=gen)
        self.height, self.lag = 1.0 + 2.0 * a[0], 2 * math.pi * a[1]
        self.over, self.level = 0.3 * a[2], 0.5 * a[3]
        self.gen = gen

    def sample(self, n):
        hour = 24 * torch.rand(n, generator=self.gen)
        turn = 2 * math.pi * hour / 12.4 + self.lag
        sea = self.level + self.height * turn.cos() + self.over * (2 * turn).cos()
        return hour, sea + 0.03 * torch.randn(n, generator=self.gen)


def adapt(model, harbour, steps=8, lr=0.02):
    """-> a copy that has learnt the harbour, and its last loss"""
    learner = copy.deepcopy(model)
    optimizer = torch.optim.SGD(learner.parameters(), lr=lr, momentum=0.5)
    hour, sea = harbour.sample(40)
    for k in range(steps):
        pick = torch.arange(10 * (k % 4), 10 * (k % 4) + 10)
        loss = F.mse_loss(learner(hour[pick]), sea[pick])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return learner, loss.item()


def validate(model, count=8):
    gen = torch.Generator().manual_seed(77)
    before = after = 0.0
    for _ in range(count):
        harbour = Harbour(gen)
        learner, _ = adapt(model, harbour)
        hour, sea = harbour.sample(100)
        with torch.no_grad():
            before += F.mse_loss(model(hour), sea).item() / count
            after += F.mse_loss(learner(hour), sea).item() / count
    return before, after


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--steps", type=int, default=120, help="outer steps")
    p.add_argument("--harbours", type=int, default=3, help="of one outer step")
    args = p.parse_args()
    torch.manual_seed(12)
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(1)
    model = TideNet()
    print("untrained: before %.4f after %.4f" % validate(model))
    for step in range(args.steps):
        rate = 0.8 * (1 - step / args.steps)
        learners, losses = zip(
            *(adapt(model, Harbour(gen)) for _ in range(args.harbours))
        )
        with torch.no_grad():
            for p, *others in zip(
                model.parameters(), *(l.parameters() for l in learners)
            ):
                p.lerp_(torch.stack(others).mean(0), rate)
        if step % 20 == 19 or step == args.steps - 1:
            before, after = validate(model)
            print(
                f"outer {step + 1:3d} rate {rate:.3f} inner {sum(losses) / len(losses):.4f}"
                f" valid before {before:.4f} after {after:.4f}"
            )


if __name__ == "__main__":
    main()
