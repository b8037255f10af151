"""Depth of a scene from a pair of stereo rows, under bfloat16 autocast (the scaler is
there for machines with float16, and disabled here). Gradients are accumulated over
four batches; the smaller group left over at an epoch's end is stepped as well.

    python bf16_autocast_depth.py --steps 24
"""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

MAX_SHIFT = 6


def stereo_rows(count, width, seed):
    """Random rows, and the same rows seen with a disparity that varies slowly."""
    g = torch.Generator().manual_seed(seed)
    left = torch.randn(count, 1, width, generator=g)
    left = F.avg_pool1d(left, 3, stride=1, padding=1) * 1.7
    knots = MAX_SHIFT * torch.rand(count, 1, 5, generator=g)
    disparity = F.interpolate(knots, width, mode="linear", align_corners=True)
    source = (torch.arange(width) + disparity).clamp(max=width - 1)
    low = source.floor().long().clamp(max=width - 2)
    part = source - low
    right = left.gather(2, low) * (1 - part) + left.gather(2, low + 1) * part
    return left, right, disparity


class CostVolumeNet(nn.Module):
    """Compares features of one row with those of the other at each shift, and takes
    the soft arg-max of the match."""

    def __init__(self, channels=16):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(1, channels, 5, padding=2),
            nn.PReLU(),
            nn.Conv1d(channels, channels, 3, padding=1),
        )
        self.aggregate = nn.Sequential(
            nn.Conv1d(MAX_SHIFT + 1, 24, 5, padding=2),
            nn.PReLU(),
            nn.Conv1d(24, MAX_SHIFT + 1, 5, padding=2),
        )

    def forward(self, left, right):
        f, g = self.features(left), self.features(right)
        costs = []
        for shift in range(MAX_SHIFT + 1):
            moved = F.pad(f[..., shift:], (0, shift))
            costs.append((moved * g).mean(dim=1))
        costs = torch.stack(costs, dim=1)
        match = (costs + self.aggregate(costs)).float().softmax(dim=1)
        shifts = torch.arange(MAX_SHIFT + 1, dtype=match.dtype)
        return torch.einsum("bsw,s->bw", match, shifts).unsqueeze(1)


def epoch_groups(loader, size):
    """The batches of one pass, in lists of `size`; the last list may be shorter."""
    group = []
    for batch in loader:
        group.append(batch)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=24, help="optimizer steps")
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=8e-3)
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(64)

    train = TensorDataset(*stereo_rows(144, 48, seed=1))  # eighteen batches
    loader = DataLoader(train, args.batch_size, shuffle=True)
    val = stereo_rows(64, 48, seed=2)
    model = CostVolumeNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scaler = torch.amp.GradScaler("cpu", enabled=False)

    def autocast():
        return torch.autocast(
            "cpu", dtype=torch.bfloat16, enabled=args.precision == "bf16"
        )

    step = epoch = 0
    while step < args.steps:
        model.train()
        for group in epoch_groups(loader, args.accumulate):
            if step == args.steps:
                break
            optimizer.zero_grad(set_to_none=True)
            shown = 0.0
            for left, right, disparity in group:
                with autocast():
                    loss = F.smooth_l1_loss(model(left, right), disparity)
                    loss = loss / len(group)
                scaler.scale(loss).backward()
                shown += loss.item()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            scaler.step(optimizer)
            scaler.update()
            step += 1
            if step % 3 == 0:
                print(f"step {step} of {len(group)} loss {shown:.6f}", flush=True)
        model.eval()
        with torch.no_grad(), autocast():
            off = (model(*val[:2]) - val[2]).abs().mean().item()
        print(f"epoch {epoch} mean error {off:.4f} pixels", flush=True)
        epoch += 1


if __name__ == "__main__":
    main()
