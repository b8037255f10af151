"""
Compress the intent classifier of a voice control: a wide teacher is trained first,
then a small student learns from the annotations and from the teacher's soft labels.
"""
from argparse import ArgumentParser

import torch
import torch.nn as nn
import torch.nn.functional as F

N_INTENTS, VOCAB, LENGTH = 8, 120, 12


def utterances(n, seed):
    g = torch.Generator().manual_seed(seed)
    table = torch.Generator().manual_seed(99)
    topic = torch.rand(N_INTENTS, VOCAB, generator=table) ** 5
    y = torch.randint(N_INTENTS, (n,), generator=g)
    mixture = topic[y] / topic[y].sum(1, keepdim=True) * 0.75 + 0.25 / VOCAB
    x = torch.multinomial(mixture, LENGTH, replacement=True, generator=g)
    # annotators disagree now and then
    noisy = torch.rand(n, generator=g) < 0.30
    label = torch.where(noisy, torch.randint(N_INTENTS, (n,), generator=g), y)
    return x, label, y


class BagNet(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.emb = nn.EmbeddingBag(VOCAB, dim, mode="mean")
        self.ff = nn.Sequential(
            nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, N_INTENTS)
        )

    def forward(self, x):
        return self.ff(self.emb(x))


class SoftLabelLoss(nn.Module):
    def __init__(self, alpha, temperature, fixed):
        super().__init__()
        self.alpha, self.t = alpha, temperature
        self.fixed = fixed
        self.kl = nn.KLDivLoss(reduction="batchmean")

    def soft(self, student, teacher):
        target = F.softmax(teacher / self.t, dim=1)
        if self.fixed:
            return self.kl(F.log_softmax(student / self.t, dim=1), target) * self.t**2
        return self.kl(F.softmax(student / self.t, dim=1), target) * self.t**2

    def forward(self, student, teacher, label):
        hard = F.cross_entropy(student, label)
        return (1 - self.alpha) * hard + self.alpha * self.soft(student, teacher)


def batches(n, size, gen):
    while True:
        order = torch.randperm(n, generator=gen)
        for k in range(0, n - size + 1, size):
            yield order[k : k + size]


def fit_teacher(x, y, steps):
    net = BagNet(64, 128)
    opt = torch.optim.AdamW(net.parameters(), lr=5e-3, weight_decay=1e-2)
    it = batches(len(y), 128, torch.Generator().manual_seed(1))
    for _ in range(steps):
        idx = next(it)
        loss = F.cross_entropy(net(x[idx]), y[idx], label_smoothing=0.05)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return net.eval().requires_grad_(False)


@torch.no_grad()
def report(name, net, x, clean):
    acc = (net(x).argmax(1) == clean).float().mean().item()
    print(f"{name}: accuracy on clean test intents {acc:.3f}")
    return acc


def true_divergence(student, teacher, t):
    p = (teacher / t).softmax(1)
    q = (student / t).softmax(1)
    return (p * (p / q).log()).sum(1).mean() * t**2


def cli():
    ap = ArgumentParser()
    ap.add_argument("--steps", type=int, default=160)
    ap.add_argument("--alpha", type=float, default=0.35)
    ap.add_argument("--temperature", type=float, default=1.0)
    ap.add_argument("--lr", type=float, default=6e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    return ap.parse_args()


def main():
    args = cli()
    torch.manual_seed(17)
    big_x, big_y, _ = utterances(6000, seed=2)
    x, y, _ = utterances(1000, seed=3)
    tx, _, t_clean = utterances(1500, seed=4)

    teacher = fit_teacher(big_x, big_y, steps=150)
    report("teacher", teacher, tx, t_clean)

    student = BagNet(12, 16)
    criterion = SoftLabelLoss(args.alpha, args.temperature, args.fixed)
    opt = torch.optim.Adam(student.parameters(), lr=args.lr)
    it = batches(len(y), 64, torch.Generator().manual_seed(5))
    gap = 0.0
    for step in range(args.steps):
        idx = next(it)
        with torch.no_grad():
            guide = teacher(x[idx])
        logits = student(x[idx])
        loss = criterion(logits, guide, y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if args.prove:
            with torch.no_grad():
                want = true_divergence(logits, guide, args.temperature)
                gap = max(gap, (criterion.soft(logits, guide) - want).abs().item())
        if step % 20 == 0 or step + 1 == args.steps:
            print(f"step {step:3d} loss {loss.item():.4f}")
    report("student", student, tx, t_clean)

    if args.prove:
        print(f"largest distance to the divergence from its definition: {gap:.5f}")
        print(f"fault shows: {'yes' if gap > 1e-3 else 'no'}")


if __name__ == "__main__":
    main()
