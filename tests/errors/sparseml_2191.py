"""A small network learns sounds of birds from a wide, fixed teacher and from labels.

The teacher was fitted in closed form on random features; the student is distilled
inside a wrapper that holds both. neuralmagic/sparseml#2191.
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 6


class Teacher(nn.Module):
    def __init__(self, inputs=40, width=384):
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.norm = nn.BatchNorm1d(width)
        self.dropout = nn.Dropout(0.4)
        self.head = nn.Linear(width, CLASSES)

    def features(self, x):
        return self.dropout(F.relu(self.norm(self.first(x))))

    def forward(self, x):
        return self.head(self.features(x))


@torch.no_grad()
def fitted_teacher(x, y):
    """Random features with their statistics, and a head by ridge regression."""
    teacher = Teacher()
    values = teacher.first(x)
    teacher.norm.running_mean.copy_(values.mean(0))
    teacher.norm.running_var.copy_(values.var(0))
    teacher.eval()
    rows = torch.cat([teacher.features(x), torch.ones(len(x), 1)], 1)
    wanted = 6.0 * F.one_hot(y, CLASSES).float() - 1.0
    gram = rows.T @ rows + 20.0 * torch.eye(rows.shape[1])
    weights = torch.linalg.solve(gram, rows.T @ wanted)
    teacher.head.weight.copy_(weights[:-1].T)
    teacher.head.bias.copy_(weights[-1])
    return teacher.requires_grad_(False)


class Distilled(nn.Module):
    """The student; in training also its loss against the teacher."""

    def __init__(self, student, teacher, keep_teacher, temperature=2.0, hardness=0.8):
        super().__init__()
        self.student, self.teacher = student, teacher
        self.keep_teacher = keep_teacher
        self.temperature, self.hardness = temperature, hardness

    def train(self, mode=True):
        super().train(mode)
        if self.keep_teacher:
            self.teacher.eval()
        return self

    def forward(self, x, y=None):
        logits = self.student(x)
        if y is None:
            return logits
        with torch.no_grad():
            soft = F.log_softmax(self.teacher(x) / self.temperature, 1)
        own = F.log_softmax(logits / self.temperature, 1)
        close = F.kl_div(own, soft, reduction="batchmean", log_target=True)
        close = close * self.temperature**2
        return self.hardness * close + (1 - self.hardness) * F.cross_entropy(logits, y)


def sounds(count, seed):
    generator = torch.Generator().manual_seed(5)
    songs = torch.randn(CLASSES, 2, 40, generator=generator)
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(CLASSES, (count,), generator=generator)
    kind = torch.randint(2, (count,), generator=generator)
    loud = 0.5 + torch.rand(count, 1, generator=generator)
    noise = 1.3 * torch.randn(count, 40, generator=generator)
    return loud * songs[y, kind] + noise + 0.3, y


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    return right / len(loader.dataset)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=150)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    teacher = fitted_teacher(*sounds(3000, 1))
    loader = DataLoader(TensorDataset(*sounds(1280, 3)), batch_size=32, shuffle=True)
    valid = DataLoader(TensorDataset(*sounds(600, 2)), batch_size=200)
    print(f"teacher's accuracy {accuracy(teacher, valid):.4f}", flush=True)
    student = nn.Sequential(nn.Linear(40, 32), nn.ReLU(), nn.Linear(32, CLASSES))
    model = Distilled(student, teacher, keep_teacher=options.fixed)
    optimizer = torch.optim.AdamW(student.parameters(), lr=4e-3)
    mean = teacher.norm.running_mean.clone()
    step = 0
    while step < options.steps:
        model.train()
        for x, y in loader:
            if step == options.steps:
                break
            loss = model(x, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        print(f"validation accuracy {accuracy(model, valid):.4f}", flush=True)
    if options.prove:
        drift = (teacher.norm.running_mean - mean).abs().mean().item()
        print(f"the teacher's statistics moved by {drift:.6f}", flush=True)
        print("fault shows:", "yes" if drift > 0 else "no")


if __name__ == "__main__":
    main()
