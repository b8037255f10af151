"""Semi-supervised classification of noisy waveforms with a mean teacher. A small
labelled loader is cycled beside the unlabelled one; the teacher is a moving average
of the student, sees its own noise and gives the targets of the consistency loss.

    python mean_teacher.py --steps 150
"""

import argparse
import copy
import itertools
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

CLASSES = ("sine", "square", "saw", "burst")
LENGTH = 64


class Waveforms(Dataset):
    def __init__(self, count, seed, labelled=True):
        g = torch.Generator().manual_seed(seed)
        self.labelled = labelled
        self.targets = torch.randint(0, len(CLASSES), (count,), generator=g)
        t = torch.linspace(0, 1, LENGTH)
        freq = 2 + 3 * torch.rand(count, 1, generator=g)
        phase = torch.rand(count, 1, generator=g)
        cycles = freq * t + phase
        shapes = torch.stack(
            [
                torch.sin(2 * math.pi * cycles),
                torch.sign(torch.sin(2 * math.pi * cycles)),
                2 * (cycles % 1.0) - 1,
                torch.sin(8 * math.pi * cycles) * torch.exp(-8 * (t - phase) ** 2),
            ],
            dim=1,
        )
        self.signals = shapes[torch.arange(count), self.targets].unsqueeze(1)
        self.signals += 0.25 * torch.randn(self.signals.shape, generator=g)

    def __len__(self):
        return len(self.signals)

    def __getitem__(self, index):
        signal = self.signals[index]
        return (signal, self.targets[index]) if self.labelled else signal


def make_net():
    def stage(cin, cout):
        conv = nn.Conv1d(cin, cout, 5, stride=2, padding=2, bias=False)
        return nn.Sequential(conv, nn.BatchNorm1d(cout), nn.LeakyReLU(0.1))

    return nn.Sequential(
        stage(1, 16),
        stage(16, 32),
        stage(32, 32),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(32, len(CLASSES)),
    )


def forever(loader):
    while True:
        yield from loader


def augment(x):
    x = torch.roll(x, int(torch.randint(0, LENGTH, ())), dims=-1)
    scale = 0.8 + 0.4 * torch.rand(len(x), 1, 1)
    return x * scale + 0.1 * torch.randn_like(x)


@torch.no_grad()
def update_teacher(student, teacher, alpha):
    for theirs, mine in zip(teacher.parameters(), student.parameters()):
        theirs.mul_(alpha).add_(mine, alpha=1 - alpha)


def rampup(step, length):
    phase = 1.0 - min(step / length, 1.0)
    return math.exp(-5.0 * phase * phase)


@torch.no_grad()
def accuracy(net, loader):
    net.eval()
    hits = sum((net(x).argmax(1) == y).sum().item() for x, y in loader)
    net.train()
    return hits / len(loader.dataset)


def run(args):
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    labelled = DataLoader(Waveforms(96, 1), 16, shuffle=True)
    unlabelled = DataLoader(Waveforms(2064, 2, labelled=False), 48, shuffle=True)
    test = DataLoader(Waveforms(512, 3), batch_size=128)

    student = make_net()
    teacher = copy.deepcopy(student)
    teacher.requires_grad_(False)
    optimizer = torch.optim.SGD(
        student.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4
    )

    pairs = itertools.islice(zip(forever(labelled), forever(unlabelled)), args.steps)
    for step, ((x, y), u) in enumerate(pairs):
        both = torch.cat([x, u])
        shifted = augment(both)
        logits = student(shifted)
        with torch.no_grad():
            target = teacher(augment(both)).softmax(1)
        supervised = F.cross_entropy(logits[: len(x)], y)
        consistency = F.mse_loss(logits.softmax(1), target)
        loss = supervised + args.weight * rampup(step, 80) * consistency

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        update_teacher(student, teacher, min(1 - 1 / (step + 1), 0.97))
        if step % 15 == 0 or step == args.steps - 1:
            print(
                f"step {step:4d} loss {loss.item():.6f} "
                f"(class {supervised.item():.4f}, cons {consistency.item():.5f})",
                flush=True,
            )
    print(
        f"student {accuracy(student, test):.3f} teacher {accuracy(teacher, test):.3f}"
    )


if __name__ == "__main__":
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--steps", type=int, default=150)
    cli.add_argument("--weight", type=float, default=4.0)
    cli.add_argument("--seed", type=int, default=5)
    run(cli.parse_args())
