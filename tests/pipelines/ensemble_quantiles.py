"""An ensemble of eight nets forecasts quantiles of the wait in a clinic, all trained at once.

vmap over stacked parameters, gradients by torch.func.grad, AdamW on the stacks; each member
draws its own bootstrap. Pinball loss on three quantiles that cannot cross.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad_and_value, stack_module_state, vmap

MEMBERS, QUANTILES = 8, torch.tensor([0.1, 0.5, 0.9])


class Forecaster(nn.Module):
    def __init__(self, inputs=6, width=48):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(inputs, width),
            nn.Mish(),
            nn.LayerNorm(width),
            nn.Linear(width, width),
            nn.Mish(),
        )
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        low, mid, high = self.head(self.body(x)).unbind(-1)
        return torch.stack([mid - F.softplus(low), mid, mid + F.softplus(high)], -1)


def pinball(guess, y):
    gap = y.unsqueeze(-1) - guess
    return torch.maximum(QUANTILES * gap, (QUANTILES - 1) * gap).mean()


def clinic(n, gen):
    """Minutes of waiting; their spread grows with the queue, so that the quantiles fan out."""
    hour, queue = torch.rand(n, generator=gen), torch.rand(n, generator=gen)
    doctors = torch.randint(1, 5, (n,), generator=gen).float()
    x = torch.stack(
        [
            hour,
            queue,
            doctors / 4,
            torch.sin(6.28 * hour),
            torch.cos(6.28 * hour),
            torch.rand(n, generator=gen),
        ],
        1,
    )
    mean = 2 * queue + torch.sin(6.28 * hour) - 0.4 * doctors
    return x, mean + (0.2 + queue) * 0.6 * torch.randn(n, generator=gen)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=60)
    args = p.parse_args()
    torch.manual_seed(31)
    gen = torch.Generator().manual_seed(31)
    x, y = clinic(3000, gen)
    vx, vy = clinic(800, gen)
    mean, std = x.mean(0), x.std(0)
    x, vx = (x - mean) / std, (vx - mean) / std

    members = [Forecaster() for _ in range(MEMBERS)]
    params, buffers = stack_module_state(members)
    skeleton = Forecaster().to("meta")

    def loss_of_one(params, buffers, x, y):
        return pinball(functional_call(skeleton, (params, buffers), (x,)), y)

    def forecast_of_one(params, buffers, x):
        return functional_call(skeleton, (params, buffers), (x,))

    step_all = vmap(grad_and_value(loss_of_one))
    forecast_all = vmap(forecast_of_one, in_dims=(0, 0, None))

    # Rows drawn with replacement, other ones for each member; shuffled by the draw itself.
    bootstrap = torch.randint(0, len(x), (MEMBERS, len(x)))
    opt = torch.optim.AdamW(params.values(), lr=6e-3, weight_decay=1e-3)
    sched = torch.optim.lr_scheduler.CyclicLR(
        opt,
        base_lr=1e-3,
        max_lr=6e-3,
        step_size_up=10,
        mode="triangular2",
        cycle_momentum=False,
    )
    at = size = 96
    for step in range(args.steps):
        if at + size > len(x):
            bootstrap = torch.stack([row[torch.randperm(len(x))] for row in bootstrap])
            at = 0
        rows = bootstrap[:, at : at + size]
        at += size
        grads, losses = step_all(params, buffers, x[rows], y[rows])
        for name, q in params.items():
            q.grad = grads[name].detach()
        opt.step()
        sched.step()
        if step % 10 == 0 or step == args.steps - 1:
            print(
                f"step {step:3d} losses {losses.min().item():.4f} to {losses.max().item():.4f}"
            )

    with torch.no_grad():
        guess = forecast_all(params, buffers, vx).mean(0)
    inside = ((vy >= guess[:, 0]) & (vy <= guess[:, 2])).float().mean().item()
    print(
        f"ensemble: pinball {pinball(guess, vy).item():.4f}, 80 % band holds {inside:.3f}"
    )


if __name__ == "__main__":
    main()
