"""Compress an intent classifier: large teacher -> small student.

usage: python intent_distillation.py [--steps 200] [--temperature 3] [--alpha 0.7]

The utterances are synthetic token sequences. Teacher: two-layer transformer,
student: averaged embeddings + small MLP. Student objective as in Hinton et al.:
    alpha * T^2 * KL(teacher || student) + (1 - alpha) * CE
"""
import argparse
import dataclasses

import torch
from torch import Tensor, nn
from torch.nn import functional as F

N_INTENTS = 12
VOCAB = 150
LENGTH = 14


@dataclasses.dataclass
class TrainState:
    step: int = 0
    best_acc: float = 0.0
    best_weights: dict = dataclasses.field(default_factory=dict)


def sample_utterances(n: int, gen: torch.Generator, noise: float = 0.12):
    """Every intent has ten typical tokens; four of them are shared with its neighbour."""
    y = torch.randint(0, N_INTENTS, (n,), generator=gen)
    x = torch.randint(0, VOCAB, (n, LENGTH), generator=gen)
    typical = y[:, None] * 6 + torch.randint(0, 10, (n, LENGTH), generator=gen)
    use = torch.rand(n, LENGTH, generator=gen) < 0.3
    x = torch.where(use, typical, x)
    flip = torch.rand(n, generator=gen) < noise
    label = torch.where(flip, (y + 1) % N_INTENTS, y)
    return x, label


class Teacher(nn.Module):
    def __init__(self, d: int = 48):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, d)
        layer = nn.TransformerEncoderLayer(d, 4, 96, dropout=0.1, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(d, N_INTENTS)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.enc(self.emb(x)).mean(1))


class Student(nn.Module):
    def __init__(self, d: int = 16):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, d)
        self.mlp = nn.Sequential(nn.Linear(d, 24), nn.GELU(), nn.Linear(24, N_INTENTS))

    def forward(self, x: Tensor) -> Tensor:
        return self.mlp(self.emb(x).mean(1))


class DistillationLoss(nn.Module):
    def __init__(self, temperature: float, alpha: float, fixed: bool):
        super().__init__()
        self.t = temperature
        self.alpha = alpha
        self.fixed = fixed

    def soft_term(self, student_logits: Tensor, teacher_logits: Tensor) -> Tensor:
        student = F.softmax(student_logits / self.t, dim=-1)
        teacher = F.softmax(teacher_logits / self.t, dim=-1)
        if self.fixed:
            student = F.log_softmax(student_logits / self.t, dim=-1)
        return F.kl_div(student, teacher, reduction="batchmean") * self.t**2

    def forward(
        self, student_logits: Tensor, teacher_logits: Tensor, labels: Tensor
    ) -> Tensor:
        soft = self.soft_term(student_logits, teacher_logits)
        hard = F.cross_entropy(student_logits, labels)
        return self.alpha * soft + (1 - self.alpha) * hard


def accuracy(net: nn.Module, x: Tensor, y: Tensor) -> float:
    net.eval()
    with torch.no_grad():
        acc = (net(x).argmax(-1) == y).float().mean().item()
    net.train()
    return acc


def fit_teacher(x: Tensor, y: Tensor, steps: int, gen: torch.Generator) -> Teacher:
    teacher = Teacher()
    opt = torch.optim.AdamW(teacher.parameters(), lr=3e-3)
    for _ in range(steps):
        idx = torch.randint(0, len(x), (48,), generator=gen)
        loss = F.cross_entropy(teacher(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    teacher.eval()
    return teacher.requires_grad_(False)


def distill(teacher: Teacher, train_xy, dev_xy, args, gen) -> tuple:
    student = Student()
    criterion = DistillationLoss(args.temperature, args.alpha, args.fixed)
    opt = torch.optim.AdamW(student.parameters(), lr=args.lr)
    sched = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.1, total_iters=args.steps)
    state = TrainState()
    x, y = train_xy
    while state.step < args.steps:
        idx = torch.randint(0, len(x), (args.batch_size,), generator=gen)
        with torch.no_grad():
            teacher_logits = teacher(x[idx])
        loss = criterion(student(x[idx]), teacher_logits, y[idx])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        state.step += 1
        if state.step % 40 == 0 or state.step == args.steps:
            acc = accuracy(student, *dev_xy)
            print(f"  step {state.step:4d}  loss {loss.item():8.4f}  dev acc {acc:.3f}")
            if acc > state.best_acc:
                state.best_acc = acc
                state.best_weights = {
                    k: v.clone() for k, v in student.state_dict().items()
                }
    student.load_state_dict(state.best_weights)
    return student, criterion, state


def main() -> None:
    ap = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--batch-size", type=int, default=64)
    ap.add_argument("--temperature", type=float, default=3.0)
    ap.add_argument("--alpha", type=float, default=0.7)
    ap.add_argument("--lr", type=float, default=1e-2)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(31)
    gen = torch.Generator().manual_seed(31)
    train_xy = sample_utterances(2000, gen)
    dev_xy = sample_utterances(600, gen, noise=0.0)

    teacher = fit_teacher(*train_xy, steps=90, gen=gen)
    print(f"teacher dev acc {accuracy(teacher, *dev_xy):.3f}")
    student, criterion, state = distill(teacher, train_xy, dev_xy, args, gen)
    print(f"student best dev acc {state.best_acc:.3f}")

    if args.prove:
        with torch.no_grad():
            logits = teacher(dev_xy[0][:64])
            at_optimum = criterion.soft_term(logits, logits).item()
        print("fault shows:", "yes" if abs(at_optimum) > 1e-3 else "no")


if __name__ == "__main__":
    main()
