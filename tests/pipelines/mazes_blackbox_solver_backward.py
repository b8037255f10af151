"""Learn terrain costs of small mazes from shortest paths only.

A convolutional net predicts one cost per tile, an exact (non-differentiable) dynamic program turns
the costs into a path, and the loss is the Hamming distance between that path and the path that was
recorded.  The gradient through the solver is the one of "Differentiation of
blackbox combinatorial solvers": the backward pass calls the solver once more, on costs that were
moved along the incoming gradient.  Where the second path equals the first one, that gradient is
exactly zero, which is expected and not a dead network.
"""
import argparse

import numpy as np
import torch
from torch import nn

GRID, TILE = 7, 4
TERRAIN = np.array(
    [0.8, 1.7, 4.1, 6.3, 9.2], dtype=np.float32
)  # moss, sand, gravel, bog, rock
MOVES = ((0, 1), (1, 0), (1, 1))  # east, south, south-east


def solve_paths(costs):
    """costs [B, G, G] -> 0/1 indicator of the cheapest monotone path from corner to corner."""
    b, g, _ = costs.shape
    total = np.full((b, g, g), np.inf, dtype=np.float64)
    came = np.zeros((b, g, g), dtype=np.int64)
    total[:, 0, 0] = costs[:, 0, 0]
    for i in range(g):
        for j in range(g):
            if i == j == 0:
                continue
            options = np.full((b, len(MOVES)), np.inf)
            for k, (di, dj) in enumerate(MOVES):
                if i >= di and j >= dj:
                    options[:, k] = total[:, i - di, j - dj]
            came[:, i, j] = options.argmin(1)
            total[:, i, j] = options.min(1) + costs[:, i, j]
    path = np.zeros((b, g, g), dtype=np.float32)
    rows, i, j = np.arange(b), np.full(b, g - 1), np.full(b, g - 1)
    steps = np.array(MOVES)
    for _ in range(2 * g - 1):
        path[rows, i, j] = 1.0
        at_start = (i == 0) & (j == 0)
        move = steps[came[rows, i, j]] * ~at_start[:, None]
        i, j = i - move[:, 0], j - move[:, 1]
    return path


class BlackboxPath(torch.autograd.Function):
    @staticmethod
    def forward(ctx, costs, lam):
        path = torch.from_numpy(solve_paths(costs.detach().numpy()))
        ctx.save_for_backward(costs, path)
        ctx.lam = lam
        return path

    @staticmethod
    def backward(ctx, grad_path):
        costs, path = ctx.saved_tensors
        # The perturbed costs stay positive, as the solver needs no negative cells to be well posed.
        moved = (costs + ctx.lam * grad_path).clamp_min(1e-3)
        other = torch.from_numpy(solve_paths(moved.numpy()))
        return -(path - other) / ctx.lam, None


def make_mazes(n, rng):
    colours = np.array(
        [
            [0.2, 0.7, 0.2],
            [0.9, 0.8, 0.5],
            [0.6, 0.6, 0.6],
            [0.3, 0.25, 0.1],
            [0.35, 0.3, 0.4],
        ],
        dtype=np.float32,
    )
    kinds = rng.choice(5, size=(n, GRID, GRID), p=[0.25, 0.2, 0.2, 0.2, 0.15])
    image = colours[kinds].transpose(0, 3, 1, 2).repeat(TILE, 2).repeat(TILE, 3)
    image = image + 0.08 * rng.standard_normal(image.shape).astype(np.float32)
    costs = TERRAIN[kinds]
    return (
        torch.from_numpy(image),
        torch.from_numpy(costs),
        torch.from_numpy(solve_paths(costs)),
    )


class CostNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, width, TILE, stride=TILE),
            nn.GroupNorm(4, width),
            nn.ReLU(),
            nn.Conv2d(width, width, 1),
            nn.ReLU(),
            nn.Conv2d(width, 1, 1),
        )

    def forward(self, image):
        # Only the order of path totals matters to the solver: an offset keeps costs off zero.
        return nn.functional.softplus(self.body(image)).squeeze(1) + 0.05


def hamming(path, target):
    return (path * (1 - target) + (1 - path) * target).sum((1, 2)).mean()


@torch.no_grad()
def excess_cost(net, image, costs, target):
    """True cost of the chosen path relative to the optimum: ties do not count against us."""
    net.eval()
    chosen = torch.from_numpy(solve_paths(net(image).numpy()))
    net.train()
    best, got = (costs * target).sum((1, 2)), (costs * chosen).sum((1, 2))
    assert (got >= best - 1e-3).all(), "no path can be cheaper than the optimum"
    return (got / best - 1).mean().item(), (got <= best + 1e-3).float().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=220)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--lam", type=float, default=30.0)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--seed", type=int, default=4)
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    train, held = make_mazes(800, rng), make_mazes(200, rng)
    assert (train[2].sum((1, 2)) >= GRID).all() and (
        train[2].sum((1, 2)) <= 2 * GRID - 1
    ).all()

    net = CostNet()
    opt = torch.optim.Adam(net.parameters(), lr=args.lr)
    before, _ = excess_cost(net, *held)
    print(f"untrained: excess cost {before:.3f}")

    order, cursor, losses, silent = torch.randperm(800), 0, [], 0
    for step in range(1, args.steps + 1):
        if cursor + args.batch > 800:
            order, cursor = torch.randperm(800), 0
        pick = order[cursor : cursor + args.batch]
        cursor += args.batch
        costs = net(train[0][pick])
        costs.retain_grad()
        loss = hamming(BlackboxPath.apply(costs, args.lam), train[2][pick])
        opt.zero_grad()
        loss.backward()
        # Mazes already solved are silent on purpose: count them as a progress signal.
        silent += (costs.grad.abs().sum((1, 2)) == 0).sum().item()
        opt.step()
        losses.append(loss.item())
        if step % 40 == 0:
            excess, exact = excess_cost(net, *held)
            print(
                f"step {step:4d} hamming {np.mean(losses[-40:]):.3f} excess {excess:.4f} "
                f"optimal {exact:.2f} silent mazes {silent / (40 * args.batch):.2f}"
            )
            silent = 0

    after, exact = excess_cost(net, *held)
    print(
        f"held-out: excess cost {before:.3f} -> {after:.4f}, optimal paths {exact:.2%}"
    )
    if args.steps >= 200:
        assert np.mean(losses[-20:]) < 0.5 * np.mean(losses[:10])
        assert after < 0.25 * before and exact > 0.6


if __name__ == "__main__":
    main()
