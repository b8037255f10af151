"""Sorts ores by a linear support vector machine on random features, in the manner of
Pegasos: rate 1 / (lambda t), weights kept in a ball, averaged over the second half.
The hinge loss of a batch is exactly zero more and more often, and so is its gradient;
only the shrinking by lambda goes on then. The random features are buffers.

    python hinge_pegasos_ores.py --steps 200
"""

import argparse

import torch
from torch import nn

MEASURES, FEATURES = 6, 200


class RandomFeatures(nn.Module):
    """Cosines of random directions, which stand for a Gaussian kernel."""

    def __init__(self, scale=0.6):
        super().__init__()
        self.register_buffer("directions", scale * torch.randn(MEASURES, FEATURES))
        self.register_buffer("phases", 6.2832 * torch.rand(FEATURES))

    def forward(self, rows):
        return (rows @ self.directions + self.phases).cos() * (2 / FEATURES) ** 0.5


class OreSorter(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = RandomFeatures()
        self.score = nn.Linear(FEATURES, 1)
        nn.init.zeros_(self.score.weight)
        nn.init.zeros_(self.score.bias)

    def forward(self, rows):
        return self.score(self.features(rows))[:, 0]


def ores(count, rng):
    """Two kinds, rich inside a shell and poor outside, with a gap between them."""
    kind = (torch.rand(count, generator=rng) < 0.5).float() * 2 - 1
    rows = torch.randn(count, MEASURES, generator=rng)
    radius = torch.where(kind > 0, 1.2, 2.2) + 0.5 * torch.rand(count, generator=rng)
    return rows / rows.norm(dim=1, keepdim=True) * radius[:, None], kind


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--shrink", type=float, default=1e-3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = torch.Generator().manual_seed(args.seed)
    rows, kind = ores(1200, rng)
    test_rows, test_kind = ores(600, rng)
    net = OreSorter()
    # weight decay w -= rate * lambda * w, as the objective has it, but for the bias
    optimizer = torch.optim.SGD(
        [
            {"params": [net.score.weight], "weight_decay": args.shrink},
            {"params": [net.score.bias], "weight_decay": 0.0},
        ],
        lr=1.0,
    )
    averaged = torch.optim.swa_utils.AveragedModel(net)
    zeros = 0
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = 1 / (args.shrink * (step + 40))
        pick = torch.randint(len(rows), (16,), generator=rng)
        hinge = (1 - kind[pick] * net(rows[pick])).clamp_min(0)
        loss = hinge.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            norm = net.score.weight.norm()
            net.score.weight *= (args.shrink**-0.5 / norm.clamp_min(1e-9)).clamp_max(
                1
            )
        if step >= args.steps // 2:
            averaged.update_parameters(net)
        zeros += loss.item() == 0
        print(f"step {step} loss {loss.item():.4f} outside {(hinge == 0).sum()}")
        if (step + 1) % 100 == 0:
            judge = averaged if step >= args.steps // 2 else net
            with torch.no_grad():
                right = (judge(test_rows) * test_kind > 0).float().mean()
            print(f"step {step} accuracy {right:.4f}, {zeros} losses of zero so far")


if __name__ == "__main__":
    main()
