# Keyword spotting: train a teacher on log spectrograms, then distill it to a tiny student
# that would fit on the microcontroller.
import argparse
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

WORDS = ["up", "down", "left", "right", "stop", "go"]
RATE, LENGTH = 2000, 2000


def synth(label, g):
    """every word is a pair of gliding formants"""
    f0 = [(200, 400), (400, 200), (300, 300), (250, 600), (600, 350), (150, 150)][label]
    f1 = [(700, 700), (700, 500), (850, 600), (600, 850), (800, 800), (500, 900)][label]
    t = torch.arange(LENGTH) / RATE
    pitch = 1 + 0.08 * torch.randn(1, generator=g)
    wav = torch.zeros(LENGTH)
    for (a, b), amp in ((f0, 1.0), (f1, 0.6)):
        freq = (a + (b - a) * t) * pitch
        wav += amp * torch.sin(2 * math.pi * torch.cumsum(freq, 0) / RATE)
    start = 0.1 + 0.3 * torch.rand(1, generator=g)
    envelope = torch.sigmoid((t - start) * 40) * torch.sigmoid((start + 0.5 - t) * 40)
    return wav * envelope + 1.2 * torch.randn(LENGTH, generator=g)


class SpeechSet(Dataset):
    window = torch.hann_window(128)

    def __init__(self, n, seed, spec_augment=False):
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, len(WORDS), (n,), generator=g)
        waves = torch.stack([synth(l, g) for l in self.labels.tolist()])
        spec = torch.stft(
            waves, n_fft=128, hop_length=64, window=self.window, return_complex=True
        ).abs()
        self.feats = torch.log(spec[:, :64].pow(2) + 1e-3)  # n x 64 x 32
        self.spec_augment = spec_augment

    def normalize(self, mean, std):
        self.feats = (self.feats - mean) / std

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        x = self.feats[i].unsqueeze(0)
        if self.spec_augment:
            x = x.clone()
            f = int(torch.randint(0, 56, (1,)))
            x[:, f : f + int(torch.randint(0, 8, (1,)))] = 0
            t = int(torch.randint(0, 28, (1,)))
            x[:, :, t : t + int(torch.randint(0, 4, (1,)))] = 0
        return x, self.labels[i]


class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.cnn = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d((4, 2)),
            nn.Conv2d(16, 32, 3, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d((4, 1)),
        )
        self.gru = nn.GRU(32 * 4, 48, batch_first=True, bidirectional=True)
        self.attn = nn.Linear(96, 1)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(96, len(WORDS))

    def forward(self, x):
        h = self.cnn(x).flatten(1, 2).transpose(1, 2)  # B x T x C
        h, _ = self.gru(h)
        w = torch.softmax(self.attn(h), dim=1)
        return self.out(self.drop((w * h).sum(1)))


class Student(nn.Module):
    def __init__(self, c=12):
        super().__init__()

        def dw(cin, cout, stride):
            return [
                nn.Conv2d(cin, cin, 3, stride, 1, groups=cin, bias=False),
                nn.BatchNorm2d(cin),
                nn.ReLU(),
                nn.Conv2d(cin, cout, 1, bias=False),
                nn.BatchNorm2d(cout),
                nn.ReLU(),
            ]

        self.net = nn.Sequential(
            nn.Conv2d(1, c, (8, 4), (4, 2), (2, 1), bias=False),
            nn.BatchNorm2d(c),
            nn.ReLU(),
            *dw(c, c * 2, 1),
            *dw(c * 2, c * 2, 2),
            nn.AdaptiveAvgPool2d((4, 4)),
            nn.Flatten(),
            nn.Linear(c * 2 * 16, len(WORDS)),
        )

    def forward(self, x):
        return self.net(x)


def accuracy(model, loader):
    was_training = model.training
    model.eval()
    hits = n = 0
    with torch.inference_mode():
        for x, y in loader:
            hits += int((model(x).argmax(-1) == y).sum())
            n += y.numel()
    model.train(was_training)
    return hits / n


def kd_loss(student_logits, teacher_logits, y, T, alpha):
    soft = (
        F.kl_div(
            F.log_softmax(student_logits / T, -1),
            F.log_softmax(teacher_logits / T, -1),
            reduction="batchmean",
            log_target=True,
        )
        * T
        * T
    )
    return alpha * soft + (1 - alpha) * F.cross_entropy(student_logits, y)


def fit(model, loader, valid_loader, steps, lr, loss_fn, name):
    opt = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=1e-2)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=steps)
    model.train()
    step, t0, ema = 0, time.time(), None
    while step < steps:
        for x, y in loader:
            loss = loss_fn(model, x, y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            sched.step()
            step += 1
            ema = loss.item() if ema is None else 0.9 * ema + 0.1 * loss.item()
            if step % 40 == 0 or step == steps:
                print(
                    f"{name} {step}/{steps} loss {ema:.4f} valid {accuracy(model, valid_loader):.3f} "
                    f"[{time.time() - t0:.1f}s]"
                )
            if step == steps:
                break
    return model


def main():
    p = argparse.ArgumentParser()
    p.add_argument(
        "--steps",
        type=int,
        default=120,
        help="optimizer steps of each of the two trainings",
    )
    p.add_argument("--temperature", type=float, default=3.0)
    p.add_argument("--alpha", type=float, default=0.7)
    p.add_argument("--seed", type=int, default=8)
    a = p.parse_args()
    torch.manual_seed(a.seed)

    train, valid, test = (
        SpeechSet(640, 1, spec_augment=True),
        SpeechSet(200, 2),
        SpeechSet(300, 3),
    )
    mean, std = train.feats.mean(), train.feats.std()
    for s in (train, valid, test):
        s.normalize(mean, std)
    train_loader = DataLoader(train, batch_size=40, shuffle=True)
    valid_loader, test_loader = DataLoader(valid, batch_size=100), DataLoader(
        test, batch_size=100
    )

    teacher = fit(
        Teacher(),
        train_loader,
        valid_loader,
        a.steps,
        3e-3,
        lambda m, x, y: F.cross_entropy(m(x), y),
        "teacher",
    )
    teacher.eval()
    for q in teacher.parameters():
        q.requires_grad_(False)

    def distill(m, x, y):
        with torch.no_grad():
            t = teacher(x)
        return kd_loss(m(x), t, y, a.temperature, a.alpha)

    student = fit(
        Student(), train_loader, valid_loader, a.steps, 5e-3, distill, "student"
    )
    for name, m in (("teacher", teacher), ("student", student)):
        print(
            f"{name}: {sum(q.numel() for q in m.parameters())} params, test acc {accuracy(m, test_loader):.3f}"
        )


if __name__ == "__main__":
    main()
