"""TT-1593: experts count their tokens twice.

Source: pytorch/torchtitan#1593. A mixture-of-experts layer adds up its tokens per
expert in the forward; under activation checkpointing the forward runs again in the
backward, and the counts by which the router's bias is adjusted are doubled where a
layer is recomputed. --fixed counts outside of what is recomputed.
"""

import argparse

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class MoE(nn.Module):
    """Top-1 experts, balanced by a bias instead of a loss."""

    def __init__(self, width, experts, count_inside):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 24), nn.SiLU(), nn.Linear(24, width))
            for _ in range(experts)
        )
        self.count_inside = count_inside
        self.register_buffer("expert_bias", torch.zeros(experts))
        self.register_buffer("tokens_per_expert", torch.zeros(experts))

    def forward(self, x):
        scores = self.gate(x).sigmoid()
        chosen = (scores + self.expert_bias).argmax(-1)
        counts = torch.bincount(chosen, minlength=len(self.experts)).float()
        if self.count_inside:
            with torch.no_grad():
                self.tokens_per_expert.add_(counts)
        mixed = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero()[:, 0]
            part = scores[rows, number, None] * expert(x[rows])
            mixed = mixed.index_add(0, rows, part)
        return mixed, counts


class Block(nn.Module):
    def __init__(self, width, experts, recompute, count_inside):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.moe = MoE(width, experts, count_inside)
        self.recompute = recompute

    def inner(self, x):
        mixed, counts = self.moe(self.norm(x))
        return x + mixed, counts

    def forward(self, x):
        if self.recompute:
            x, counts = checkpoint(self.inner, x, use_reentrant=False)
        else:
            x, counts = self.inner(x)
        if not self.moe.count_inside:
            self.moe.tokens_per_expert.add_(counts)
        return x


class Model(nn.Module):
    """Every second block is recomputed in the backward."""

    def __init__(self, count_inside, width=16, layers=4, experts=4):
        super().__init__()
        self.inputs = nn.Linear(5, width)
        self.blocks = nn.Sequential(
            *(Block(width, experts, i % 2 == 1, count_inside) for i in range(layers))
        )
        self.outputs = nn.Linear(width, 1)

    def forward(self, x):
        return self.outputs(self.blocks(self.inputs(x))).squeeze(-1)


@torch.no_grad()
def update_expert_bias(model, tokens, rate=0.02):
    """Less for experts above their share, more for those below."""
    used = []
    for block in model.blocks:
        moe = block.moe
        share = tokens / len(moe.experts)
        used.append(moe.tokens_per_expert.sum().item())
        moe.expert_bias += rate * (1 - moe.tokens_per_expert / share)
        moe.tokens_per_expert.zero_()
    return used


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=18)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Model(count_inside=not options.fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for step in range(options.steps):
        x = torch.randn(96, 5)
        loss = nn.functional.mse_loss(model(x), x[:, 0] * x[:, 1] + x[:, 2].abs())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        used = update_expert_bias(model, tokens=len(x))
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    if options.prove:
        print("fault shows:", "no" if set(used) == {len(x)} else "yes")


if __name__ == "__main__":
    main()
