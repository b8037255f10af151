"""Distil a large traffic-sign scorer into a tiny network."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

SIGNS, DIM = 10, 40


def signs(n, seed, noise=1.3):
    wg = torch.Generator().manual_seed(66)
    shape = torch.randn(5, DIM, generator=wg)
    glyph = 0.6 * torch.randn(SIGNS, DIM, generator=wg)
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, SIGNS, (n,), generator=g)
    x = shape[y // 2] + glyph[y] + noise * torch.randn(n, DIM, generator=g)
    return torch.tanh(0.7 * x), y


class Teacher(nn.Module):
    """Wide random-feature scorer, fitted in closed form on a large set."""

    def __init__(self, width=400, seed=4):
        super().__init__()
        g = torch.Generator().manual_seed(seed)
        self.register_buffer(
            "proj", torch.randn(DIM, width, generator=g) / DIM**0.5 * 1.2
        )
        self.register_buffer("bias", torch.randn(width, generator=g) * 0.5)
        self.register_buffer("w", torch.zeros(width, SIGNS))

    def features(self, x):
        return torch.relu(x @ self.proj + self.bias)

    def fit(self, x, y, ridge=5.0):
        h = self.features(x)
        t = F.one_hot(y, SIGNS).float()
        self.w = 12 * torch.linalg.solve(
            h.T @ h + ridge * torch.eye(h.size(1)), h.T @ t
        )
        return self

    def forward(self, x):
        return self.features(x) @ self.w


class Student(nn.Module):
    def __init__(self, hidden=6):
        super().__init__()
        self.a = nn.Linear(DIM, hidden)
        self.b = nn.Linear(hidden, SIGNS)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))


def soft_loss(student_logits, teacher_logits, temp, fixed):
    if fixed:
        kl = F.kl_div(
            F.log_softmax(student_logits / temp, dim=1),
            F.softmax(teacher_logits / temp, dim=1),
            reduction="batchmean",
        )
    else:
        kl = F.kl_div(
            F.log_softmax(teacher_logits / temp, dim=1),
            F.softmax(student_logits / temp, dim=1),
            reduction="batchmean",
        )
    return kl * temp**2


@torch.no_grad()
def report(student, teacher, x, y):
    s, t = student(x), teacher(x)
    pt, ls = t.softmax(1), s.log_softmax(1)
    agree = (s.argmax(1) == t.argmax(1)).float().mean().item()
    acc = (s.argmax(1) == y).float().mean().item()
    return acc, agree, -(pt * ls).sum(1).mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=500)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--lr", type=float, default=1e-2)
    ap.add_argument("--temp", type=float, default=2.0)
    ap.add_argument("--alpha", type=float, default=0.9)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(77)
    with torch.no_grad():
        teacher = Teacher().fit(*signs(6000, 1))
    x, y = signs(1500, 2)
    xt, yt = signs(1000, 3)
    print(f"teacher accuracy {(teacher(xt).argmax(1) == yt).float().mean().item():.3f}")
    student = Student()
    opt = torch.optim.Adam(student.parameters(), lr=args.lr)
    gen = torch.Generator().manual_seed(15)

    for step in range(args.steps):
        i = torch.randint(0, len(x), (args.batch,), generator=gen)
        with torch.no_grad():
            t = teacher(x[i])
        s = student(x[i])
        loss = args.alpha * soft_loss(s, t, args.temp, args.fixed) + (
            1 - args.alpha
        ) * F.cross_entropy(s, y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0 or step == args.steps - 1:
            acc, agree, xent = report(student, teacher, xt, yt)
            print(
                f"{step:4d} loss {loss.item():.4f} acc {acc:.3f} agreement {agree:.3f} soft xent {xent:.4f}"
            )

    if args.prove:
        s, t = student(xt).requires_grad_(), teacher(xt)
        used = soft_loss(s, t, args.temp, args.fixed)
        pt, ls = (t / args.temp).softmax(1), (s / args.temp).log_softmax(1)
        ref = args.temp**2 * (pt * (pt.log() - ls)).sum(1).mean()
        ga, gb = (
            torch.autograd.grad(used, s, retain_graph=True)[0],
            torch.autograd.grad(ref, s)[0],
        )
        rel = ((ga - gb).norm() / gb.norm()).item()
        print(
            f"soft term {used.item():.5f}, KL(teacher || student) {ref.item():.5f}, "
            f"relative gradient distance {rel:.4f}"
        )
        print("fault shows:", "yes" if rel > 1e-3 else "no")


if __name__ == "__main__":
    main()
