"""Kinds of wood knots by the forward-forward algorithm: no gradient crosses a layer.

Each layer has a loss and an optimizer of its own: the goodness of pictures that carry
their right label is to be high, that of pictures with a wrong one low. One batch so calls
backward four times, on graphs that have nothing in common. Classes are found by trying
all labels. The layer losses begin near ln 2; the layers start learning one after another.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

KINDS, SIZE = 5, 12


def knots(n, gen):
    kind = torch.randint(KINDS, (n,), generator=gen)
    grid = torch.linspace(-1, 1, SIZE)
    centre = 0.3 * torch.randn(n, 2, 1, 1, generator=gen)
    dx, dy = grid[None, None, :] - centre[:, 0], grid[None, :, None] - centre[:, 1]
    r = (dx**2 * (1 + 0.5 * (kind == 1)[:, None, None]) + dy**2).sqrt()
    rings = torch.cos((5 + 3 * kind)[:, None, None] * r)
    return (rings + 0.4 * torch.randn(n, SIZE, SIZE, generator=gen)).flatten(1), kind


def marked(x, kind):
    """The label in front of the picture, as strong as the picture."""
    return torch.cat([5.0 * F.one_hot(kind, KINDS), x], 1)


class Layer(nn.Module):
    def __init__(self, inputs, width, threshold=1.5, lr=2e-3):
        super().__init__()
        self.linear = nn.Linear(inputs, width)
        self.threshold = threshold
        self.optimizer = torch.optim.Adam(self.linear.parameters(), lr=lr)

    def forward(self, x):
        x = x / (x.norm(dim=1, keepdim=True) + 1e-4) * x.size(1) ** 0.5
        return F.relu(self.linear(x))

    def learn(self, right, wrong):
        a, b = self(right), self(wrong)
        good = torch.cat([a.square().mean(1), -b.square().mean(1)])
        bar = torch.cat([torch.ones(len(a)), -torch.ones(len(b))]) * self.threshold
        loss = F.softplus(bar - good).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return a.detach(), b.detach(), loss.item()


class Stack(nn.ModuleList):
    @torch.no_grad()
    def classify(self, x):
        goodness = []
        for k in range(KINDS):
            h, total = marked(x, torch.full((len(x),), k)), 0.0
            for i, layer in enumerate(self):
                h = layer(h)
                if i:  # the first layer sees the label itself
                    total = total + h.square().mean(1)
            goodness.append(total)
        return torch.stack(goodness, 1).argmax(1)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--steps", type=int, default=240)
    args = p.parse_args()
    torch.manual_seed(14)
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(1)
    x, kind = knots(3000, gen)
    vx, vkind = knots(400, gen)
    net = Stack([Layer(SIZE * SIZE + KINDS, 128), Layer(128, 128), Layer(128, 128)])
    for step in range(args.steps):
        pick = torch.randint(len(x), (96,), generator=gen)
        other = (kind[pick] + torch.randint(1, KINDS, (96,), generator=gen)) % KINDS
        right, wrong, losses = marked(x[pick], kind[pick]), marked(x[pick], other), []
        for layer in net:
            right, wrong, loss = layer.learn(right, wrong)
            losses.append(f"{loss:.4f}")
        if step % 40 == 39 or step == args.steps - 1:
            accuracy = (net.classify(vx) == vkind).float().mean()
            print(f"step {step + 1:3d} losses", *losses, f"valid {accuracy:.3f}")


if __name__ == "__main__":
    main()
