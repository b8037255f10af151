"""
Knowledge distillation for a defect inspection camera.

1. teacher: wider residual-ish net, trained on rare-defect data with a WeightedRandomSampler
2. student: depthwise-separable net, trained with hard labels + softened teacher outputs
   + a feature hint (through a 1x1 adapter that is thrown away afterwards)
The student is also trained alone for comparison, from the same initial weights.
"""
import argparse
import copy
import io

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

CLASSES = ("good", "scratch", "hole", "stain")
FREQ = torch.tensor([0.70, 0.12, 0.10, 0.08])


def make_parts(n, freq, seed, size=24):
    g = torch.Generator().manual_seed(seed)
    y = torch.multinomial(freq, n, replacement=True, generator=g)
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    stripes = torch.sin(xx * 0.9)[None] * torch.rand(n, 1, 1, generator=g) * 0.3
    img = 0.5 + stripes + 0.12 * torch.randn(n, size, size, generator=g)
    c = torch.randint(6, size - 6, (n, 2), generator=g)
    angle = torch.rand(n, generator=g) * 3.1416
    dy, dx = yy[None] - c[:, 0, None, None], xx[None] - c[:, 1, None, None]
    along = dx * angle.cos()[:, None, None] + dy * angle.sin()[:, None, None]
    across = -dx * angle.sin()[:, None, None] + dy * angle.cos()[:, None, None]
    scratch = ((along.abs() < 7) & (across.abs() < 0.9)).float()
    dist2 = (dx**2 + dy**2).float()
    hole = (dist2 < 6).float()
    stain = torch.exp(-dist2 / 18.0)
    img = img - 0.35 * scratch * (y == 1)[:, None, None]
    img = img - 0.45 * hole * (y == 2)[:, None, None]
    img = img - 0.40 * stain * (y == 3)[:, None, None]
    return TensorDataset(((img - 0.5) / 0.25)[:, None], y)


class Teacher(nn.Module):
    width = 32

    def __init__(self):
        super().__init__()
        w = self.width
        self.a = nn.Sequential(
            nn.Conv2d(1, w // 2, 3, 2, 1, bias=False), nn.BatchNorm2d(w // 2), nn.ReLU()
        )
        self.b = nn.Sequential(
            nn.Conv2d(w // 2, w, 3, 1, 1, bias=False), nn.BatchNorm2d(w), nn.ReLU()
        )
        self.c = nn.Sequential(
            nn.Conv2d(w, w, 3, 1, 1, bias=False), nn.BatchNorm2d(w), nn.ReLU()
        )
        self.fc = nn.Sequential(nn.Dropout(0.2), nn.Linear(w, len(CLASSES)))

    def forward(self, x):
        h = F.max_pool2d(self.b(self.a(x)), 2)
        h = h + self.c(h)
        return self.fc(h.amax(dim=(2, 3))), h


class Student(nn.Module):
    width = 16

    def __init__(self):
        super().__init__()
        w = self.width
        self.stem = nn.Sequential(
            nn.Conv2d(1, w, 3, 2, 1, bias=False), nn.BatchNorm2d(w), nn.ReLU()
        )
        self.dw = nn.Sequential(
            nn.Conv2d(w, w, 3, 2, 1, groups=w, bias=False),
            nn.Conv2d(w, w, 1, bias=False),
            nn.BatchNorm2d(w),
            nn.ReLU(),
        )
        self.fc = nn.Linear(w, len(CLASSES))

    def forward(self, x):
        h = self.dw(self.stem(x))
        return self.fc(h.amax(dim=(2, 3))), h


def balanced_accuracy(net, loader):
    net.eval()
    hit, cnt = torch.zeros(len(CLASSES)), torch.zeros(len(CLASSES))
    with torch.no_grad():
        for x, y in loader:
            ok = net(x)[0].argmax(1) == y
            hit += torch.bincount(y[ok], minlength=len(CLASSES))
            cnt += torch.bincount(y, minlength=len(CLASSES))
    return (hit / cnt.clamp(min=1)).mean().item()


def kd_loss(student_logits, teacher_logits, T):
    return (
        F.kl_div(
            F.log_softmax(student_logits / T, dim=1),
            F.log_softmax(teacher_logits / T, dim=1),
            reduction="batchmean",
            log_target=True,
        )
        * T
        * T
    )


def endless(loader):
    while True:
        yield from loader


def train_teacher(loader, val, steps):
    net = Teacher()
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.MultiStepLR(
        opt, milestones=[int(steps * 0.6), int(steps * 0.85)], gamma=0.2
    )
    data = endless(loader)
    for i in range(1, steps + 1):
        net.train()
        x, y = next(data)
        loss = F.cross_entropy(net(x)[0], y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if i % 30 == 0 or i == steps:
            print(
                f"teacher {i:4d} loss {loss.item():.3f} balanced acc {balanced_accuracy(net, val):.3f}"
            )
    return net


def train_student(
    student, loader, val, steps, teacher=None, T=2.0, alpha=0.5, hint=0.05
):
    params = list(student.parameters())
    adapter = None
    if teacher is not None:
        adapter = nn.Conv2d(Student.width, Teacher.width, 1)
        params += list(adapter.parameters())
    opt = torch.optim.NAdam(params, lr=8e-3)
    data = endless(loader)
    name = "alone" if teacher is None else "distilled"
    for i in range(1, steps + 1):
        student.train()
        x, y = next(data)
        logits, feat = student(x)
        loss = F.cross_entropy(logits, y)
        if teacher is not None:
            with torch.no_grad():
                t_logits, t_feat = teacher(x)
            loss = (1 - alpha) * loss + alpha * kd_loss(logits, t_logits, T)
            loss = loss + hint * F.mse_loss(adapter(feat), t_feat)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(params, 5.0)
        opt.step()
        if i % 40 == 0 or i == steps:
            print(
                f"{name:9s} {i:4d} loss {loss.item():.3f} balanced acc {balanced_accuracy(student, val):.3f}"
            )
    return balanced_accuracy(student, val)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument(
        "--steps",
        type=int,
        default=110,
        help="of each student; the teacher takes half as many again",
    )
    ap.add_argument("--seed", type=int, default=6)
    args = ap.parse_args()
    torch.manual_seed(args.seed)

    train_set = make_parts(2000, FREQ, seed=1)
    val_set = make_parts(600, torch.ones(4) / 4, seed=2)
    labels = train_set.tensors[1]
    weights = (1.0 / torch.bincount(labels, minlength=4).float())[labels]
    sampler = WeightedRandomSampler(
        weights.double(), num_samples=len(labels), replacement=True
    )
    train_loader = DataLoader(train_set, batch_size=50, sampler=sampler)
    val_loader = DataLoader(val_set, batch_size=200)
    print("training counts", torch.bincount(labels).tolist())

    trained = train_teacher(train_loader, val_loader, max(1, args.steps * 3 // 2))
    buffer = io.BytesIO()
    torch.save(trained.state_dict(), buffer)
    buffer.seek(0)
    teacher = Teacher()
    teacher.load_state_dict(torch.load(buffer, weights_only=True))
    teacher.requires_grad_(False).eval()

    start = Student()
    alone = train_student(copy.deepcopy(start), train_loader, val_loader, args.steps)
    distilled = train_student(
        copy.deepcopy(start), train_loader, val_loader, args.steps, teacher=teacher
    )
    print(
        f"teacher {balanced_accuracy(teacher, val_loader):.3f} student alone {alone:.3f} distilled {distilled:.3f}"
    )
