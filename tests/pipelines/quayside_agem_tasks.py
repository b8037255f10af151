"""Container damage at five terminals that are surveyed one after the other.

Each terminal is seen once, in order, and its images are not kept apart from a small
memory. Averaged gradient episodic memory (Chaudhry et al., 2019): where the gradient of
the current terminal would raise the loss on the memory, it is projected so that it does
not; the optimizer sees the projected gradient only.
"""

import argparse
import os
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

TERMINALS, DAMAGES, FEATURES = 5, 4, 32


class Terminal:
    """Damage signatures are common, sensors of each terminal mix them differently."""

    def __init__(self, index, seed):
        shared = np.random.default_rng([seed, 100])
        self.signatures = shared.normal(0, 1.0, (DAMAGES, 2, FEATURES))
        self.rng = np.random.default_rng([seed, index])
        rotation, _ = np.linalg.qr(self.rng.normal(size=(FEATURES, FEATURES)))
        share = 0.85
        self.mix = (1 - share) * np.eye(FEATURES) + share * rotation

    def survey(self, count):
        damage = self.rng.integers(0, DAMAGES, count)
        variant = self.rng.integers(0, 2, count)
        signal = self.signatures[damage, variant]
        signal = signal + self.rng.normal(0, 0.8, signal.shape)
        x = torch.tensor(signal @ self.mix.T, dtype=torch.float32)
        return x, torch.tensor(damage)


class SurveyNet(nn.Module):
    """One trunk, one readout per terminal."""

    def __init__(self, hidden=96):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(FEATURES, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        )
        self.heads = nn.ModuleList(nn.Linear(hidden, DAMAGES) for _ in range(TERMINALS))

    def forward(self, x, terminal):
        hidden = self.trunk(x)
        everything = torch.stack([head(hidden) for head in self.heads], dim=1)
        return everything[torch.arange(len(x)), terminal]


class Memory:
    """The same number of surveys per finished terminal, chosen at random."""

    def __init__(self, per_terminal, generator):
        self.per_terminal, self.generator = per_terminal, generator
        self.x, self.damage, self.terminal = [], [], []

    def __len__(self):
        return sum(len(x) for x in self.x)

    def keep(self, x, damage, terminal):
        rows = torch.randperm(len(x), generator=self.generator)[: self.per_terminal]
        self.x.append(x[rows])
        self.damage.append(damage[rows])
        self.terminal.append(torch.full((len(rows),), terminal))

    def sample(self, count):
        rows = torch.randperm(len(self), generator=self.generator)[:count]
        return (
            torch.cat(self.x)[rows],
            torch.cat(self.damage)[rows],
            torch.cat(self.terminal)[rows],
        )


def flat_gradient(model):
    parts = []
    for p in model.parameters():
        grad = torch.zeros_like(p) if p.grad is None else p.grad
        parts.append(grad.flatten())
    return torch.cat(parts)


def load_gradient(model, flat):
    sizes = [p.numel() for p in model.parameters()]
    for p, part in zip(model.parameters(), flat.split(sizes)):
        p.grad = part.view_as(p).clone()


def reference_gradient(model, optimizer, memory, count):
    x, damage, terminal = memory.sample(count)
    optimizer.zero_grad()
    F.cross_entropy(model(x, terminal), damage).backward()
    reference = flat_gradient(model)
    optimizer.zero_grad()
    return reference


def learn_terminal(model, optimizer, memory, index, data, args):
    """One pass over the surveys of a terminal."""
    x, damage = data
    here = torch.full((len(x),), index)
    total, turned, steps = 0.0, 0, 0
    model.train()
    for rows in torch.randperm(len(x)).split(args.batch):
        reference = None
        if len(memory):
            reference = reference_gradient(model, optimizer, memory, args.sample)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x[rows], here[rows]), damage[rows])
        loss.backward()
        if reference is not None:
            grad = flat_gradient(model)
            overlap = grad @ reference
            if overlap < 0:
                grad = grad - overlap / reference.square().sum() * reference
                load_gradient(model, grad)
                turned += 1
        optimizer.step()
        total += loss.item() * len(rows)
        steps += 1
    return total / len(x), turned / steps


@torch.no_grad()
def accuracies(model, held):
    model.eval()
    values = []
    for index, (x, damage) in enumerate(held):
        guess = model(x, torch.full((len(x),), index)).argmax(dim=1)
        values.append((guess == damage).float().mean().item())
    return values


def run(args):
    torch.manual_seed(args.seed)
    terminals = [Terminal(index, args.seed) for index in range(TERMINALS)]
    surveys = [terminal.survey(args.surveys) for terminal in terminals]
    held = [terminal.survey(400) for terminal in terminals]
    model = SurveyNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    memory = Memory(args.memory, torch.Generator().manual_seed(args.seed + 1))
    matrix = np.zeros((TERMINALS, TERMINALS))
    for index, data in enumerate(surveys):
        loss, turned = learn_terminal(model, optimizer, memory, index, data, args)
        memory.keep(*data, index)
        matrix[index] = accuracies(model, held)
        row = " ".join(f"{value:.3f}" for value in matrix[index, : index + 1])
        print(f"terminal {index}: loss {loss:.4f} turned {turned:4.0%} accuracy {row}")
    return model, matrix


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--surveys", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--memory", type=int, default=60)
    parser.add_argument("--sample", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()
    model, matrix = run(args)
    final = matrix[-1]
    lost = np.diag(matrix)[:-1] - final[:-1]
    print(f"mean accuracy {final.mean():.3f}, mean forgetting {lost.mean():.3f}")
    with tempfile.TemporaryDirectory() as folder:
        torch.save(model.state_dict(), os.path.join(folder, "survey.pt"))
        np.savetxt(
            os.path.join(folder, "matrix.csv"), matrix, delimiter=",", fmt="%.4f"
        )


if __name__ == "__main__":
    main()
