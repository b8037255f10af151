"""One network judges the wear of tools on three lathes that come one after another, by
elastic weight consolidation. After each lathe a separate pass estimates the Fisher
information from single samples, with labels drawn from the network itself; a small
penalty keeps important weights near where they were. Each lathe has a fresh optimizer.

    python lathes_ewc.py --steps 180
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES, INPUTS = 4, 24


class WearNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(INPUTS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        return self.head(self.body(x))


def lathe(number, count, seed):
    """Each lathe shows the classes in eight sensors of its own; those of the others
    carry only noise."""
    means = torch.Generator().manual_seed(50 + number)
    centres = 1.5 * torch.randn(CLASSES, INPUTS // 3, generator=means)
    g = torch.Generator().manual_seed(1000 * number + seed)
    y = torch.randint(0, CLASSES, (count,), generator=g)
    x = 0.3 * torch.randn(count, INPUTS, generator=g)
    here = slice(number * INPUTS // 3, (number + 1) * INPUTS // 3)
    x[:, here] = centres[y] + 0.9 * torch.randn(count, INPUTS // 3, generator=g)
    return TensorDataset(x, y)


class Consolidation:
    """Sum of quadratic penalties, one anchor for all tasks so far (online EWC)."""

    def __init__(self, model, strength):
        self.model, self.strength = model, strength
        self.fisher, self.anchor = None, None

    def penalty(self):
        if self.fisher is None:
            return torch.zeros(())
        parts = [
            (f * (p - a).square()).sum()
            for f, p, a in zip(self.fisher, self.model.parameters(), self.anchor)
        ]
        return 0.5 * self.strength * torch.stack(parts).sum()

    def consolidate(self, data, samples=200):
        self.model.eval()
        parameters = list(self.model.parameters())
        squares = [torch.zeros_like(p) for p in parameters]
        for row in torch.randperm(len(data))[:samples].tolist():
            logits = self.model(data[row][0].unsqueeze(0))
            label = torch.distributions.Categorical(logits=logits.detach()).sample()
            self.model.zero_grad()
            nn.functional.cross_entropy(logits, label).backward()
            for square, p in zip(squares, parameters):
                square += p.grad.square() / samples
        # What this pass left behind is no one's gradient.
        self.model.zero_grad(set_to_none=True)
        old = self.fisher or [torch.zeros_like(p) for p in parameters]
        self.fisher = [o + s for o, s in zip(old, squares)]
        self.anchor = [p.detach().clone() for p in parameters]
        self.model.train()


@torch.no_grad()
def accuracies(model, tests):
    model.eval()
    result = []
    for test in tests:
        x, y = test.tensors
        result.append((model(x).argmax(1) == y).float().mean().item())
    model.train()
    return result


def learn(model, data, consolidation, steps, first_step, lr):
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    loader = DataLoader(data, batch_size=32, shuffle=True, drop_last=True)
    done = 0
    while done < steps:
        for x, y in loader:
            task = nn.functional.cross_entropy(model(x), y)
            penalty = consolidation.penalty()
            loss = task + penalty
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if done % 5 == 0:
                print(
                    f"step {first_step + done} loss {task.item():.6f} "
                    f"penalty {penalty.item():.6f}",
                    flush=True,
                )
            done += 1
            if done == steps:
                break


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=180, help="of all lathes")
    parser.add_argument("--strength", type=float, default=300.0)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=19)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    model = WearNet()
    consolidation = Consolidation(model, args.strength)
    tests = [lathe(k, 300, seed=2) for k in range(3)]
    each = max(1, args.steps // 3)
    for number in range(3):
        data = lathe(number, 640, seed=1)
        learn(model, data, consolidation, each, number * each, args.lr)
        consolidation.consolidate(data)
        scores = " ".join(f"{a:.3f}" for a in accuracies(model, tests))
        print(f"after lathe {number}: accuracy {scores}", flush=True)


if __name__ == "__main__":
    main()
