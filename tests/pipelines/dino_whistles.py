"""Self-distillation without labels (DINO) on whistled signals: short and long crops, a teacher
that follows, targets evened out over the prototypes by Sinkhorn. Scored by nearest neighbours on the teacher.
"""
import argparse
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import weight_norm

KINDS = ["up", "down", "trill", "two tones", "warble"]
LONG, SHORT, N_SHORT = 96, 48, 3


def whistles(n, gen):
    kind = torch.randint(0, len(KINDS), (n,), generator=gen)
    t = torch.linspace(0, 1, 128)
    base = 0.13 + 0.1 * torch.rand(n, 1, generator=gen)
    shapes = torch.stack(
        [
            0.12 * (t - 0.5),
            -0.12 * (t - 0.5),
            0.08 * torch.sign(torch.sin(2 * math.pi * 9 * t)),
            0.0 * t,
            0.06 * torch.sin(2 * math.pi * 4 * t),
        ]
    )[kind]
    phase = 2 * math.pi * ((base + shapes).cumsum(1) + torch.rand(n, 1, generator=gen))
    x = torch.sin(phase) + (kind == 3)[:, None] * torch.sin(1.9 * phase)
    return x + 0.5 * torch.randn(n, 128, generator=gen), kind


def crop(x, width):
    """Another place, loudness and noise for every row."""
    start = torch.randint(0, x.size(1) - width + 1, (len(x), 1))
    cut = x.gather(1, start + torch.arange(width))
    return (
        cut * (0.7 + 0.6 * torch.rand(len(x), 1)) + 0.3 * torch.randn_like(cut)
    ).unsqueeze(1)


class Encoder(nn.Sequential):
    """Ends in a mean over time: any length will do."""

    def __init__(self, width=48):
        super().__init__(
            nn.Conv1d(1, width, 9, stride=2, padding=4),
            nn.GroupNorm(8, width),
            nn.GELU(),
            nn.Conv1d(width, width, 7, stride=2, padding=3),
            nn.GroupNorm(8, width),
            nn.GELU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2),
            nn.GELU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
        )


class Head(nn.Module):
    def __init__(self, width=48, prototypes=32):
        super().__init__()
        # never in eval mode, hence no running statistics
        self.mlp = nn.Sequential(
            nn.Linear(width, 64, bias=False),
            nn.BatchNorm1d(64, track_running_stats=False),
            nn.GELU(),
            nn.Linear(64, 24),
        )
        self.last = weight_norm(nn.Linear(24, prototypes, bias=False))
        # prototypes stay of length one: only their direction is learnt
        self.last.parametrizations.weight.original0.data.fill_(1.0)
        self.last.parametrizations.weight.original0.requires_grad_(False)

    def forward(self, h):
        return self.last(F.normalize(self.mlp(h), dim=-1))


def sinkhorn(logits, rounds=3):
    """Each row a distribution, each prototype asked for about equally often."""
    q = (logits - logits.max()).exp()
    for _ in range(rounds):
        q = q / q.sum(0, keepdim=True)
        q = q / q.sum(1, keepdim=True)
    return q


def cosine(start, end, step, total):
    return end + 0.5 * (start - end) * (1 + math.cos(math.pi * step / total))


@torch.no_grad()
def neighbours(encoder, bank, test, k=9):
    encoder.eval()
    keys, queries = (
        F.normalize(encoder(x.unsqueeze(1)), dim=-1) for x in (bank[0], test[0])
    )
    encoder.train()
    sim, idx = (queries @ keys.T).topk(k, dim=1)
    votes = torch.zeros(len(queries), len(KINDS)).scatter_add_(
        1, bank[1][idx], (sim / 0.07).exp()
    )
    return (votes.argmax(1) == test[1]).float().mean().item()


def self_distillation(targets, said):
    """Each view of the student predicts every target but its own."""
    pairs = [
        -(t * F.log_softmax(s / 0.1, dim=-1)).sum(-1).mean()
        for i, t in enumerate(targets)
        for j, s in enumerate(said)
        if i != j
    ]
    return sum(pairs) / len(pairs)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=80)
    p.add_argument("--batch", type=int, default=48)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument(
        "--freeze-last", type=int, default=8, help="steps without the prototypes"
    )
    args = p.parse_args()
    torch.manual_seed(31)
    torch.set_num_threads(1)
    train, kinds = whistles(960, torch.Generator().manual_seed(1))
    test = whistles(200, torch.Generator().manual_seed(2))

    student = nn.Sequential(Encoder(), Head())
    teacher = copy.deepcopy(student).requires_grad_(False)
    decay = [q for q in student.parameters() if q.requires_grad and q.ndim > 1]
    plain = [q for q in student.parameters() if q.requires_grad and q.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [dict(params=decay), dict(params=plain, weight_decay=0.0)], lr=args.lr
    )

    order = torch.empty(0, dtype=torch.long)
    for step in range(args.steps):
        if len(order) < args.batch:
            order = torch.randperm(len(train))
        pick, order = order[: args.batch], order[args.batch :]
        warm = min(1.0, (step + 1) / 10)
        for g in optimizer.param_groups:
            g["lr"] = args.lr * warm * cosine(1.0, 0.05, step, args.steps)
        optimizer.param_groups[0]["weight_decay"] = cosine(0.04, 0.4, step, args.steps)

        long = [crop(train[pick], LONG) for _ in range(2)]
        short = [crop(train[pick], SHORT) for _ in range(N_SHORT)]
        with torch.no_grad():
            targets = sinkhorn(teacher(torch.cat(long)) / 0.06).chunk(2)
        # one pass for each length
        said = student(torch.cat(long)).chunk(2) + student(torch.cat(short)).chunk(
            N_SHORT
        )
        loss = self_distillation(targets, said)

        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(student.parameters(), 3.0)
        if step < args.freeze_last:
            for q in student[1].last.parameters():
                q.grad = None
        optimizer.step()
        with torch.no_grad():
            m = cosine(0.95, 1.0, step, args.steps)
            for a, b in zip(teacher.parameters(), student.parameters()):
                a.lerp_(b, 1 - m)
        if step % 10 == 9 or step == args.steps - 1:
            sure = torch.special.entr(torch.cat(targets)).sum(-1).mean()
            print(
                f"step {step + 1:3d} loss {loss.item():.4f} entropy of a target {sure.item():.3f} "
                f"neighbours {neighbours(teacher[0], (train, kinds), test):.3f}"
            )


if __name__ == "__main__":
    main()
