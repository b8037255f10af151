"""Kinds of roofs from small height maps, few of them labelled: noisy student in three
rounds. The first teacher learns from labelled maps alone; it then labels the others in
eval mode, the surest of each kind are kept, and a fresh and wider student
learns from both sets with dropout and stochastic depth; it is the next teacher.

    python noisy_student_roofs.py --steps 240
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    TensorDataset,
    WeightedRandomSampler,
)

KINDS, SIDE = 4, 16


def roofs(count, seed):
    """Flat, gabled, hipped and shed roofs, seen from above with noise."""
    g = torch.Generator().manual_seed(seed)
    grid = torch.linspace(-1, 1, SIDE)
    y, x = grid[:, None].expand(SIDE, SIDE), grid[None, :].expand(SIDE, SIDE)
    kind = torch.randint(0, KINDS, (count,), generator=g)
    angle = 6.2832 * torch.rand(count, 1, 1, generator=g)
    u = torch.cos(angle) * x + torch.sin(angle) * y
    v = -torch.sin(angle) * x + torch.cos(angle) * y
    steep = 0.6 + 0.8 * torch.rand(count, 1, 1, generator=g)
    shapes = torch.stack(
        [0 * u, -u.abs(), -torch.maximum(u.abs(), v.abs()), 0.5 * u], dim=0
    )
    maps = steep * shapes[kind, torch.arange(count)]
    maps = maps + 0.35 * torch.randn(maps.shape, generator=g)
    return maps.unsqueeze(1), kind


class Block(nn.Module):
    def __init__(self, width, survive):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.survive = survive

    def forward(self, x):
        branch = self.conv2(F.relu(self.norm(self.conv1(x))))
        if self.training and self.survive < 1.0:
            keep = (torch.rand(len(x), 1, 1, 1) < self.survive).float()
            branch = branch * keep / self.survive
        return x + branch


class RoofNet(nn.Module):
    def __init__(self, width, survive=1.0, drop=0.0):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(Block(width, survive), Block(width, survive))
        self.drop = nn.Dropout(drop)
        self.head = nn.Linear(width * 4, KINDS)

    def forward(self, x):
        x = F.relu(self.blocks(self.stem(x)))
        return self.head(self.drop(F.adaptive_avg_pool2d(x, 2).flatten(1)))


@torch.inference_mode()
def probabilities(model, maps):
    model.eval()
    return torch.cat([model(part).softmax(1) for part in maps.split(128)])


def pseudo_labels(teacher, maps, per_kind):
    """The surest maps of each kind with the teacher's soft answers."""
    # A clone made outside inference mode may take part in training.
    soft = probabilities(teacher, maps).clone()
    sure, kind = soft.max(1)
    rows = []
    for k in range(KINDS):
        own = torch.nonzero(kind == k).squeeze(1)
        rows.append(own[sure[own].argsort(descending=True)[:per_kind]])
    rows = torch.cat(rows)
    return TensorDataset(maps[rows], soft[rows]), rows


def turn(maps):
    maps = torch.rot90(maps, int(torch.randint(0, 4, ())), dims=(2, 3))
    return maps + 0.1 * torch.randn_like(maps)


def train(model, dataset, weights, steps, lr, name):
    """Draws with replacement, so that labelled maps keep their share of each batch."""
    sampler = WeightedRandomSampler(weights, num_samples=steps * 32)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=lr, momentum=0.9, weight_decay=5e-4, nesterov=True
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    model.train()
    for step, (maps, target) in enumerate(DataLoader(dataset, 32, sampler=sampler)):
        loss = F.cross_entropy(model(turn(maps)), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 5 == 0:
            print(f"{name} step {step} loss {loss.item():.6f}", flush=True)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=240, help="of all rounds")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=40)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    maps, kind = roofs(20, seed=1)
    others, hidden = roofs(1600, seed=2)
    test_maps, test_kind = roofs(400, seed=3)
    labelled = TensorDataset(maps, F.one_hot(kind, KINDS).float())
    each = max(1, args.steps // 3)

    def report(model, name):
        guess = probabilities(model, test_maps).argmax(1)
        print(f"{name} test accuracy {(guess == test_kind).float().mean():.4f}")

    teacher = RoofNet(12)
    train(teacher, labelled, torch.ones(len(maps)), each, args.lr, "teacher")
    report(teacher, "teacher")
    for number, per_kind in enumerate([150, 300], start=1):
        pseudo, rows = pseudo_labels(teacher, others, per_kind)
        agree = (pseudo.tensors[1].argmax(1) == hidden[rows]).float().mean()
        print(f"{len(rows)} maps added, {agree:.4f} of them rightly", flush=True)
        student = RoofNet(12 + 4 * number, survive=0.8, drop=0.2)
        both = ConcatDataset([labelled, pseudo])
        # A quarter of each batch has true labels.
        weights = torch.cat(
            [
                torch.full((len(labelled),), 0.25 / len(labelled)),
                torch.full((len(pseudo),), 0.75 / max(1, len(pseudo))),
            ]
        )
        train(student, both, weights, each, args.lr, f"student {number}")
        report(student, f"student {number}")
        teacher = student


if __name__ == "__main__":
    main()
