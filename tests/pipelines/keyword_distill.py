# Keyword spotting: a small student learns from a bigger teacher (log spectrogram input)
import argparse
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

RATE, LENGTH, WORDS = 4000, 2048, ["yes", "no", "up", "down", "noise"]
WINDOW = torch.hann_window(256)


class Clips(Dataset):
    """every clip is made from its own seed; the augmentation uses the worker's torch generator"""

    def __init__(self, first_id, labels, augment):
        self.first_id, self.labels, self.augment = first_id, labels, augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        word = int(self.labels[i])
        rng = np.random.default_rng(self.first_id + i)
        t = np.arange(LENGTH) / RATE
        pitch = rng.uniform(250, 450)
        glide = {0: 1.6, 1: 0.0, 2: 3.2, 3: -1.2, 4: 0.0}[word]
        freq = pitch * (1 + glide * t)
        wave = np.zeros(LENGTH)
        if word != 4:
            phase = 2 * np.pi * np.cumsum(freq) / RATE
            wave = np.sin(phase) + 0.5 * np.sin(2 * phase)
            wave *= np.exp(-(((t - rng.uniform(0.2, 0.3)) / 0.13) ** 2))
        wave = torch.from_numpy(wave + rng.normal(0, 0.35, LENGTH)).float()
        if self.augment:
            wave = torch.roll(wave, int(torch.randint(-200, 201, ())))
            wave = wave * (0.7 + 0.6 * torch.rand(()))
        spec = torch.stft(wave, 256, 64, window=WINDOW, return_complex=True).abs()
        return torch.log(spec[:64, :32] + 1e-2).unsqueeze(0), word


def seed_worker(worker_id):
    s = torch.initial_seed() % 2**32
    np.random.seed(s)
    random.seed(s)


class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        chans = [1, 16, 32, 48]
        self.convs = nn.ModuleList(
            nn.Conv2d(a, b, 3, stride=2, padding=1) for a, b in zip(chans, chans[1:])
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(c) for c in chans[1:])
        self.drop, self.fc = nn.Dropout(0.2), nn.Linear(48, len(WORDS))

    def forward(self, x):
        for conv, norm in zip(self.convs, self.norms):
            x = F.relu(norm(conv(x)))
        return self.fc(self.drop(x.mean((2, 3))))


class Student(nn.Module):
    """depthwise separable, about a tenth of the weights"""

    def __init__(self, c=12):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, c, 5, stride=4, padding=2, bias=False),
            nn.BatchNorm2d(c),
            nn.ReLU(),
            nn.Conv2d(c, c, 3, padding=1, groups=c, bias=False),
            nn.Conv2d(c, 2 * c, 1, bias=False),
            nn.BatchNorm2d(2 * c),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(2 * c, len(WORDS)),
        )

    def forward(self, x):
        return self.net(x)


def kd_loss(student_logits, teacher_logits, target, T, alpha):
    soft = (
        F.kl_div(
            F.log_softmax(student_logits / T, 1),
            F.log_softmax(teacher_logits / T, 1),
            reduction="batchmean",
            log_target=True,
        )
        * T
        * T
    )
    return alpha * soft + (1 - alpha) * F.cross_entropy(student_logits, target)


@torch.no_grad()
def test(model, loader):
    model.eval()
    confusion = torch.zeros(len(WORDS), len(WORDS), dtype=torch.long)
    for x, y in loader:
        for t, p in zip(y, model(x).argmax(1)):
            confusion[t, p] += 1
    recall = confusion.diag() / confusion.sum(1).clamp(min=1)
    return recall.mean().item(), confusion


def fit(name, model, loader, val_loader, epochs, lr, loss_of):
    opt = torch.optim.Adam(model.parameters(), lr=lr)
    sched = torch.optim.lr_scheduler.StepLR(
        opt, step_size=max(1, epochs // 2), gamma=0.3
    )
    for epoch in range(epochs):
        model.train()
        run, n = 0.0, 0
        for x, y in loader:
            loss = loss_of(model, x, y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            run, n = run + loss.item() * len(y), n + len(y)
        sched.step()
        print(
            f"{name} epoch {epoch}: loss {run / n:.4f}, balanced val acc {test(model, val_loader)[0]:.3f}",
            flush=True,
        )


def make_loaders(args):
    rng = np.random.default_rng(args.seed)
    # most clips are background, as in the recordings
    train_y = rng.choice(5, 800, p=[0.15, 0.15, 0.1, 0.1, 0.5])
    val_y = rng.choice(5, 250, p=[0.15, 0.15, 0.1, 0.1, 0.5])
    per_clip = 1.0 / np.bincount(train_y, minlength=5)[train_y]
    g = torch.Generator().manual_seed(args.seed)
    sampler = WeightedRandomSampler(
        torch.from_numpy(per_clip), num_samples=len(train_y), generator=g
    )
    train_loader = DataLoader(
        Clips(0, train_y, True),
        32,
        sampler=sampler,
        num_workers=args.workers,
        worker_init_fn=seed_worker,
        generator=g,
        persistent_workers=args.workers > 0,
    )
    val_loader = DataLoader(Clips(10_000_000, val_y, False), 125)
    return train_loader, val_loader


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=5)
    ap.add_argument("--student-epochs", type=int, default=8)
    ap.add_argument("--workers", type=int, default=1)
    ap.add_argument("--T", type=float, default=3.0)
    ap.add_argument("--alpha", type=float, default=0.7)
    ap.add_argument("--seed", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    train_loader, val_loader = make_loaders(args)

    teacher = Teacher()
    fit(
        "teacher",
        teacher,
        train_loader,
        val_loader,
        args.epochs,
        3e-3,
        lambda m, x, y: F.cross_entropy(m(x), y),
    )
    teacher.eval().requires_grad_(False)

    def student_loss(m, x, y):
        with torch.no_grad():
            t = teacher(x)
        return kd_loss(m(x), t, y, args.T, args.alpha)

    student = Student()
    fit(
        "student",
        student,
        train_loader,
        val_loader,
        args.student_epochs,
        1e-2,
        student_loss,
    )
    acc, confusion = test(student, val_loader)
    n = [sum(p.numel() for p in m.parameters()) for m in (teacher, student)]
    print(
        f"teacher {n[0]} weights, student {n[1]} weights, student balanced accuracy {acc:.3f}"
    )
    print(confusion)


if __name__ == "__main__":
    main()
