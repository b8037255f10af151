"""Knowledge distillation: a wide teacher, then the same small student with and without it."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR


def make_blobs(n, prototypes, gen):
    """Pictures 3x20x20: sum of a class texture and a weaker one of another class."""
    k = len(prototypes)
    y = torch.randint(k, (n,), generator=gen)
    distractor = torch.randint(k, (n,), generator=gen)
    a = 0.8 + 0.4 * torch.rand(n, 1, 1, 1, generator=gen)
    b = 0.9 * torch.rand(n, 1, 1, 1, generator=gen)
    x = a * prototypes[y] + b * prototypes[distractor]
    shift = torch.randint(-2, 3, (n, 2), generator=gen).tolist()
    x = torch.stack([torch.roll(img, s, dims=(1, 2)) for img, s in zip(x, shift)])
    return x + 1.5 * torch.randn(x.shape, generator=gen), y


def conv_bn(i, o, stride=1):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, stride, 1, bias=False),
        nn.BatchNorm2d(o),
        nn.ReLU(inplace=True),
    )


class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a = conv_bn(c, c)
        self.b = nn.Sequential(nn.Conv2d(c, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c))

    def forward(self, x):
        return F.relu(x + self.b(self.a(x)))


def teacher_net(classes):
    return nn.Sequential(
        conv_bn(3, 24, 2),
        Residual(24),
        conv_bn(24, 48, 2),
        Residual(48),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(48, classes),
    )


def student_net(classes):
    return nn.Sequential(
        conv_bn(3, 12, 2),
        conv_bn(12, 24, 2),
        conv_bn(24, 32),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, classes),
    )


class Lion(torch.optim.Optimizer):
    """Sign of an interpolated momentum, decoupled weight decay (Chen et al. 2023)."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(
            params, {"lr": lr, "betas": betas, "weight_decay": weight_decay}
        )

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["m"] = torch.zeros_like(p)
                m = state["m"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                update = m.mul(b1).add(p.grad, alpha=1 - b1).sign()
                p.add_(update, alpha=-group["lr"])
                m.mul_(b2).add_(p.grad, alpha=1 - b2)
        return loss


def kd_loss(student_logits, teacher_logits, y, T, alpha):
    soft = (
        F.kl_div(
            F.log_softmax(student_logits / T, dim=1),
            F.log_softmax(teacher_logits / T, dim=1),
            reduction="batchmean",
            log_target=True,
        )
        * T
        * T
    )
    return alpha * soft + (1 - alpha) * F.cross_entropy(student_logits, y)


@torch.no_grad()
def accuracy(net, loader):
    net.eval()
    good = sum((net(x).argmax(1) == y).sum().item() for x, y in loader)
    return good / len(loader.dataset)


def forever(loader):
    while True:
        yield from loader


def train_teacher(net, loader, steps):
    opt = torch.optim.SGD(
        net.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-4
    )
    sched = OneCycleLR(opt, max_lr=0.1, total_steps=steps)
    net.train()
    for i, (x, y) in zip(range(1, steps + 1), forever(loader)):
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if i % 40 == 0:
            print(f"teacher {i} loss {loss.item():.4f}")


def train_student(net, loader, steps, teacher=None, T=2.0, alpha=0.7):
    decay = [p for p in net.parameters() if p.ndim > 1]
    plain = [p for p in net.parameters() if p.ndim <= 1]
    opt = Lion([{"params": decay, "weight_decay": 0.1}, {"params": plain}], lr=6e-3)
    sched = CosineAnnealingLR(opt, T_max=steps, eta_min=2e-5)
    tag = "plain" if teacher is None else "distilled"
    if teacher is not None:
        teacher.eval()
    net.train()
    for i, (x, y) in zip(range(1, steps + 1), forever(loader)):
        logits = net(x)
        if teacher is None:
            loss = F.cross_entropy(logits, y)
        else:
            with torch.no_grad():
                teacher_logits = teacher(x)
            loss = kd_loss(logits, teacher_logits, y, T, alpha)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if i % 40 == 0:
            print(f"student ({tag}) {i} loss {loss.item():.4f}")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument(
        "--steps",
        type=int,
        default=120,
        help="optimizer steps of each of the three trainings",
    )
    ap.add_argument("--temperature", type=float, default=2.0)
    args = ap.parse_args()

    gen = torch.Generator().manual_seed(21)
    classes = 8
    prototypes = F.interpolate(
        torch.randn(classes, 3, 5, 5, generator=gen), size=20, mode="bilinear"
    )
    train_x, train_y = make_blobs(800, prototypes, gen)
    test_x, test_y = make_blobs(600, prototypes, gen)
    mean, std = train_x.mean((0, 2, 3), keepdim=True), train_x.std(
        (0, 2, 3), keepdim=True
    )
    train_ds = TensorDataset((train_x - mean) / std, train_y)
    test_loader = DataLoader(
        TensorDataset((test_x - mean) / std, test_y), batch_size=200
    )

    torch.manual_seed(21)
    teacher = teacher_net(classes)
    train_teacher(
        teacher, DataLoader(train_ds, batch_size=40, shuffle=True), args.steps
    )
    print(f"teacher test accuracy {accuracy(teacher, test_loader):.3f}")

    results = {}
    for name, helper in (("plain", None), ("distilled", teacher)):
        torch.manual_seed(22)  # same start and same order of batches
        student = student_net(classes)
        loader = DataLoader(train_ds, batch_size=40, shuffle=True)
        train_student(student, loader, args.steps, helper, T=args.temperature)
        results[name] = accuracy(student, test_loader)
    print(
        "student test accuracy " + ", ".join(f"{k} {v:.3f}" for k, v in results.items())
    )


if __name__ == "__main__":
    main()
