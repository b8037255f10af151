"""A tree of species in a Poincare ball: an optimizer of its own scales gradients by the
metric and follows geodesics, with a slow start; relatives are told from strangers.

    python poincare_taxonomy.py
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F

LIMIT = 1 - 1e-5


class RiemannianSGD(torch.optim.Optimizer):
    """Gradient descent on the ball, by the exponential map."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @staticmethod
    def add(x, y):
        """Moebius addition."""
        xy = (x * y).sum(-1, keepdim=True)
        xx, yy = x.square().sum(-1, keepdim=True), y.square().sum(-1, keepdim=True)
        above = (1 + 2 * xy + yy) * x + (1 - xx) * y
        return above / (1 + 2 * xy + xx * yy)

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for point in group["params"]:
                if point.grad is None:
                    continue
                scale = (1 - point.square().sum(-1, keepdim=True)) / 2
                direction = -group["lr"] * scale.square() * point.grad
                length = direction.norm(dim=-1, keepdim=True).clamp_min(1e-12)
                move = torch.tanh(length / (2 * scale)) * direction / length
                moved = self.add(point, move)
                norm = moved.norm(dim=-1, keepdim=True).clamp_min(1e-12)
                point.copy_(torch.where(norm > LIMIT, moved / norm * LIMIT, moved))
        return loss


class Ball(nn.Module):
    def __init__(self, species, size=3):
        super().__init__()
        start = torch.empty(species, size, dtype=torch.double).uniform_(-1e-2, 1e-2)
        self.places = nn.Parameter(start)

    def distance(self, first, second):
        x, y = self.places[first], self.places[second]
        apart = (x - y).square().sum(-1)
        room = (1 - x.square().sum(-1)) * (1 - y.square().sum(-1))
        inside = 1 + 2 * apart / room
        return torch.acosh(inside.clamp_min(1 + 1e-9))


def taxonomy(branches, depth):
    """Parents of a full tree, and for each node the set of its relatives."""
    parent, layer = {0: None}, [0]
    for _ in range(depth):
        following = []
        for node in layer:
            for _ in range(branches):
                child = len(parent)
                parent[child] = node
                following.append(child)
        layer = following
    pairs = []
    for node in parent:
        above = parent[node]
        while above is not None:
            pairs.append((node, above))
            above = parent[above]
    related = torch.eye(len(parent), dtype=torch.bool)
    for node, above in pairs:
        related[node, above] = related[above, node] = True
    return torch.tensor(pairs), related


def strangers(rows, related, count, generator):
    """For each row, nodes that are neither above nor below it."""
    chance = (~related[rows]).double()
    return torch.multinomial(chance, count, replacement=True, generator=generator)


@torch.no_grad()
def mean_rank(ball, pairs, related):
    """Where the true relative stands among the strangers; 1 is best."""
    everyone = torch.arange(len(related))
    ranks = []
    for node, above in pairs.tolist():
        distance = ball.distance(torch.full_like(everyone, node), everyone)
        closer = (distance < distance[above]) & ~related[node]
        ranks.append(1 + closer.sum().item())
    return sum(ranks) / len(ranks)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--lr", type=float, default=0.5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    pairs, related = taxonomy(branches=3, depth=4)
    ball = Ball(len(related))
    optimizer = RiemannianSGD(ball.parameters(), lr=args.lr)
    print(f"mean rank by chance {mean_rank(ball, pairs, related):.2f}")
    step = 0
    for epoch in range(args.epochs):
        rate = args.lr / 10 if epoch < 5 else args.lr
        optimizer.param_groups[0]["lr"] = rate
        order = torch.randperm(len(pairs), generator=generator)
        for rows in order.split(64):
            node, above = pairs[rows].T
            other = strangers(node, related, 10, generator)
            near = ball.distance(node, above)[:, None]
            far = ball.distance(node[:, None].expand_as(other), other)
            logits = -torch.cat([near, far], 1)
            target = torch.zeros(len(rows), dtype=torch.long)
            loss = F.cross_entropy(logits, target, reduction="sum")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item() / len(rows):.4f}", flush=True)
            step += 1
        if epoch % 10 == 9:
            rank = mean_rank(ball, pairs, related)
            radius = ball.places.detach().norm(dim=1)
            print(f"epoch {epoch} mean rank {rank:.2f} radius {radius.mean():.3f}")


if __name__ == "__main__":
    main()
