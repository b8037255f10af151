"""A denoiser of height profiles learns to listen to a control (ControlNet fashion).
First the denoiser alone is trained. Then it is frozen, a copy of its encoder gets the
control, and joins it by convolutions that start at zero: at first only those at its exits
have a gradient, and the answer is that of the denoiser alone. Only the branch is saved.

    python control_branch_contours.py --steps 200
"""

import argparse
import copy
import io

import torch
from torch import nn
import torch.nn.functional as F

LENGTH = 48


class Stage(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.conv = nn.Conv1d(inputs, width, 5, padding=2)
        self.norm = nn.GroupNorm(4, width)
        self.level = nn.Linear(1, width)

    def forward(self, hidden, level):
        hidden = self.norm(self.conv(hidden)) + self.level(level)[..., None]
        return F.silu(hidden)


class Denoiser(nn.Module):
    def __init__(self, width=24, depth=3):
        super().__init__()
        self.encoder = nn.ModuleList(
            Stage(1 if i == 0 else width, width) for i in range(depth)
        )
        self.decoder = nn.ModuleList(Stage(width, width) for _ in range(depth))
        self.out = nn.Conv1d(width, 1, 1)

    def forward(self, noisy, level, extra=None):
        kept, hidden = [], noisy
        for number, stage in enumerate(self.encoder):
            hidden = stage(hidden, level)
            kept.append(hidden if extra is None else hidden + extra[number])
        hidden = kept[-1]
        for stage, skip in zip(self.decoder, reversed(kept)):
            hidden = stage(hidden + skip, level)
        return self.out(hidden)


def zero_conv(inputs, outputs):
    conv = nn.Conv1d(inputs, outputs, 1)
    nn.init.zeros_(conv.weight)
    nn.init.zeros_(conv.bias)
    return conv


class ControlBranch(nn.Module):
    def __init__(self, base, width=24):
        super().__init__()
        self.encoder = copy.deepcopy(base.encoder)
        self.enter = zero_conv(1, width)
        self.leave = nn.ModuleList(zero_conv(width, width) for _ in self.encoder)

    def forward(self, noisy, level, control):
        hidden, extra = noisy, []
        for number, stage in enumerate(self.encoder):
            hidden = stage(hidden, level)
            if number == 0:
                hidden = hidden + self.enter(control)
            extra.append(self.leave[number](hidden))
        return extra


def contours(count, rng):
    """Smooth profiles; the control marks where they are above zero."""
    waves = torch.arange(1, 5).float()
    place = torch.linspace(0, 6.2832, LENGTH)
    size = torch.randn(count, 4, generator=rng) / waves**0.5
    phase = 6.2832 * torch.rand(count, 4, generator=rng)
    curve = torch.sin(waves[:, None] * place + phase[..., None]) * size[..., None]
    profile = 0.6 * curve.sum(1, keepdim=True)
    return profile, (profile > 0).float() - 0.5


def batch(count, rng):
    profile, control = contours(count, rng)
    level = 0.3 + 0.7 * torch.rand(count, 1, generator=rng)
    noise = torch.randn(profile.shape, generator=rng)
    return profile, control, level, profile + 1.5 * level[..., None] * noise


def train(parameters, predict, steps, start, rng):
    optimizer = torch.optim.AdamW(parameters, lr=4e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in range(start, start + steps):
        profile, control, level, noisy = batch(32, rng)
        loss = F.mse_loss(predict(noisy, level, control), profile)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


@torch.no_grad()
def error(predict, seed):
    profile, control, level, noisy = batch(400, torch.Generator().manual_seed(seed))
    return F.mse_loss(predict(noisy, level, control), profile).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=400, help="of both parts together")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = torch.Generator().manual_seed(args.seed)
    base, half = Denoiser(), max(1, args.steps // 2)

    def alone(noisy, level, control):
        return base(noisy, level)

    train(base.parameters(), alone, half, 0, rng)
    base.requires_grad_(False)
    branch = ControlBranch(base)
    branch.requires_grad_(True)

    def controlled(noisy, level, control):
        return base(noisy, level, branch(noisy, level, control))

    before = error(alone, args.seed + 1)
    assert error(controlled, args.seed + 1) == before
    print(f"denoiser alone {before:.4f}", flush=True)
    train(branch.parameters(), controlled, half, half, rng)
    print(f"with control {error(controlled, args.seed + 1):.4f}")
    file = io.BytesIO()
    torch.save(branch.state_dict(), file)
    file.seek(0)
    branch = ControlBranch(base)
    branch.load_state_dict(torch.load(file))
    print(f"loaded {error(controlled, args.seed + 1):.4f}")
    assert error(alone, args.seed + 1) == before


if __name__ == "__main__":
    main()
