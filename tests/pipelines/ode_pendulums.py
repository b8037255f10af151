"""A neural ODE learns the motion of damped pendulums; Runge-Kutta of fourth order by hand.

An IterableDataset simulates for ever in two workers, each with a seed of its own; the horizon
of the loss grows; the learnt damping has a rate of its own. Adagrad, gradients by value clipped.
"""
import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

DT = 0.1


def rk4(f, y, dt):
    k1 = f(y)
    k2 = f(y + dt / 2 * k1)
    k3 = f(y + dt / 2 * k2)
    k4 = f(y + dt * k3)
    return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def pendulum(y):
    angle, speed = y.unbind(-1)
    return torch.stack([speed, -2.0 * angle.sin() - 0.25 * speed], -1)


def integrate(f, y, steps, dt=DT):
    path = [y]
    for _ in range(steps):
        y = rk4(f, y, dt)
        path.append(y)
    return torch.stack(path, 1)


class Pendulums(IterableDataset):
    def __init__(self, length, seed, count=None):
        self.length, self.seed, self.count = length, seed, count

    def __iter__(self):
        info = get_worker_info()
        g = torch.Generator().manual_seed(self.seed + (info.id if info else 0))
        made = 0
        while self.count is None or made < self.count:
            start = torch.randn(2, generator=g) * torch.tensor([1.2, 1.0])
            fine = integrate(pendulum, start.unsqueeze(0), self.length * 2, DT / 2)[
                0, ::2
            ]
            yield fine[0], fine + 0.01 * torch.randn(fine.shape, generator=g)
            made += 1


class Motion(nn.Module):
    """The change of the angle is known to be the speed; the acceleration is learnt."""

    def __init__(self, width=64):
        super().__init__()
        self.force = nn.Sequential(
            nn.Linear(2, width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, 1),
        )
        self.log_damping = nn.Parameter(torch.tensor(-1.0))

    def forward(self, y):
        angle, speed = y[..., :1], y[..., 1:]
        force = self.force(torch.cat([angle.sin(), angle.cos()], -1))
        return torch.cat([speed, force - self.log_damping.exp() * speed], -1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=50)
    args = p.parse_args()
    torch.manual_seed(19)
    loader = DataLoader(Pendulums(20, seed=1000), batch_size=32, num_workers=2)
    valid = list(DataLoader(Pendulums(40, seed=5000, count=64), batch_size=64))[0]
    model = Motion()
    opt = torch.optim.Adagrad(
        [
            {"params": model.force.parameters(), "lr": 0.03},
            {"params": [model.log_damping], "lr": 0.08},
        ]
    )
    stream = iter(loader)
    for step in range(args.steps):
        horizon = 5 + 15 * step // max(args.steps - 1, 1)
        start, path = next(stream)
        opt.zero_grad()
        guess = integrate(model, start, horizon)[:, 1:]
        loss = nn.functional.smooth_l1_loss(guess, path[:, 1 : horizon + 1], beta=0.5)
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 1.0)
        opt.step()
        if step % 5 == 0 or step == args.steps - 1:
            with torch.no_grad():
                far = (integrate(model, valid[0], 40) - valid[1]).abs().mean().item()
            print(
                f"step {step:3d} horizon {horizon} loss {loss.item():.5f} "
                f"damping {model.log_damping.exp().item():.3f} error over 40 {far:.4f}"
            )


if __name__ == "__main__":
    main()
