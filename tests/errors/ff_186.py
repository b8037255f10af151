"""FF-186: one autocast around all updates, which go on with the first weights.

Source: https://github.com/X-GenGroup/Flow-Factory/pull/186. Within an autocast region
the casts of float32 weights are kept, also when an optimizer has changed the weights
since. optimize() opens the region once for all of its updates: the matrices of the
forward are those of the first one. --fixed opens a region for each forward.
"""

import argparse
import contextlib
import copy

import torch
from torch import nn


def autocast():
    return torch.autocast("cpu", dtype=torch.bfloat16)


class Velocity(nn.Module):
    """v(x, t) of a flow that makes points of noise; t enters as a shift and a gain."""

    def __init__(self, width=48):
        super().__init__()
        self.embed_t = nn.Embedding(16, 2 * width)
        nn.init.normal_(self.embed_t.weight, std=0.2)
        self.into = nn.Linear(2, width)
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, width)
        self.out = nn.Linear(width, 2)

    def forward(self, x, t):
        gain, shift = self.embed_t((t * 15).long()).chunk(2, dim=-1)
        h = torch.tanh(self.into(x)) * (1 + gain) + shift
        return self.out(torch.tanh(self.inner(self.norm(h))))


@torch.no_grad()
def rollout(flow, count, substeps=8):
    x = torch.randn(count, 2)
    for i in range(substeps):
        t = torch.full((count,), i / substeps)
        with autocast():
            velocity = flow(x, t)
        x = x + velocity.float() / substeps
    return x


def reward(points):
    """Points should lie on the circle with radius two."""
    return -(points.norm(dim=1) - 2).abs()


class AdvantageWeightedTrainer:
    def __init__(self, per_forward, prove, inner_updates=6):
        self.flow = Velocity()
        self.optimizer = torch.optim.Adam(self.flow.parameters(), lr=1e-2)
        self.per_forward = per_forward
        self.inner_updates = inner_updates
        self.prove, self.stale = prove, 0.0
        self.step = 0

    def matching_loss(self, points, weight):
        noise = torch.randn_like(points)
        t = torch.rand(len(points))
        x = noise + t[:, None] * (points - noise)
        inside = autocast() if self.per_forward else contextlib.nullcontext()
        with inside:
            velocity = self.flow(x, t)
            if self.prove:
                # Another module has casts of its own.
                with torch.no_grad():
                    now = copy.deepcopy(self.flow)(x, t)
                self.stale = max(self.stale, (now - velocity).abs().max().item())
        error = (velocity.float() - (points - noise)).square().mean(dim=1)
        return (weight * error).mean()

    def optimize(self, points, advantage, until):
        weight = torch.exp(advantage.clamp(-2, 2))
        outside = contextlib.nullcontext() if self.per_forward else autocast()
        with outside:
            for rows in torch.randperm(len(points)).chunk(self.inner_updates):
                if self.step == until:
                    return
                loss = self.matching_loss(points[rows], weight[rows])
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                print(f"step {self.step} awm-loss {loss.item():.4f}", flush=True)
                self.step += 1

    def fit(self, steps):
        while self.step < steps:
            points = rollout(self.flow, 192)
            rewards = reward(points)
            print(f"reward {rewards.mean().item():+.4f}", flush=True)
            advantage = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
            self.optimize(points, advantage, steps)


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=18)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    args = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(17)
    trainer = AdvantageWeightedTrainer(args.fixed, args.prove)
    trainer.fit(args.steps)
    if args.prove:
        print("fault shows:", "yes" if trainer.stale > 0 else "no")
