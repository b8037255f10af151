"""
Compress a wide sentence classifier into a narrow one (distillation).

Stage 1 trains the wide model for a third of the steps, stage 2 trains the
narrow model on its soft targets plus the labels.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, SEQ, CLASSES = 300, 16, 6


def make_corpus(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, CLASSES, (n,), generator=g)
    tok = torch.randint(60, VOCAB, (n, SEQ), generator=g)
    # a few emotion words, ten per class, sprinkled in the sentence
    for _ in range(3):
        where = torch.randint(0, SEQ, (n,), generator=g)
        cls = torch.where(
            torch.rand(n, generator=g) < 0.75,
            y,
            torch.randint(0, CLASSES, (n,), generator=g),
        )
        tok[torch.arange(n), where] = cls * 10 + torch.randint(0, 10, (n,), generator=g)
    return tok, y


class TextCNN(nn.Module):
    def __init__(self, emb, channels, drop):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, emb)
        self.conv = nn.Conv1d(emb, channels, 3, padding=1)
        self.bn = nn.BatchNorm1d(channels)
        self.drop = nn.Dropout(drop)
        self.fc = nn.Linear(channels, CLASSES)

    def forward(self, tok):
        x = self.conv(self.emb(tok).transpose(1, 2))
        x = F.relu(self.bn(x)).amax(2)
        return self.fc(self.drop(x))


class Distiller:
    def __init__(self, teacher, student, T=3.0, alpha=0.7):
        self.teacher, self.student = teacher, student
        self.T, self.alpha = T, alpha

    def loss(self, tok, y):
        with torch.no_grad():
            t_logit = self.teacher(tok)
        s_logit = self.student(tok)
        soft = (
            F.kl_div(
                F.log_softmax(s_logit / self.T, 1),
                F.softmax(t_logit / self.T, 1),
                reduction="batchmean",
            )
            * self.T**2
        )
        hard = F.cross_entropy(s_logit, y)
        return self.alpha * soft + (1 - self.alpha) * hard


def score(model, tok, y):
    was = model.training
    model.eval()
    with torch.no_grad():
        acc = (model(tok).argmax(1) == y).float().mean().item()
    model.train(was)
    return acc


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=180)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(17)
    tok, y = make_corpus(3000, 1)
    vtok, vy = make_corpus(800, 2)
    g = torch.Generator().manual_seed(17)

    def batch():
        i = torch.randint(0, len(tok), (args.batch,), generator=g)
        return tok[i], y[i]

    # ---- stage 1
    teacher = TextCNN(64, 128, drop=0.5)
    opt = torch.optim.Adam(teacher.parameters(), lr=4e-3)
    first = args.steps // 3
    for step in range(first):
        x, t = batch()
        loss = F.cross_entropy(teacher(x), t)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"teacher: valid acc {score(teacher, vtok, vy):.3f}")

    # ---- stage 2
    teacher.requires_grad_(False)
    if args.fixed:
        teacher.eval()
    student = TextCNN(16, 32, drop=0.1)
    before = teacher.bn.running_mean.clone()
    kd = Distiller(teacher, student)
    opt = torch.optim.Adam(student.parameters(), lr=5e-3)
    for step in range(first, args.steps):
        x, t = batch()
        loss = kd.loss(x, t)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if (step + 1) % 40 == 0:
            print(
                f"step {step + 1}: kd loss {loss.item():.4f} valid acc {score(student, vtok, vy):.3f}"
            )
    print(f"student: valid acc {score(student, vtok, vy):.3f}")

    if args.prove:
        with torch.no_grad():
            differ = (teacher(vtok[:64]) - teacher(vtok[:64])).abs().max().item()
        drift = (teacher.bn.running_mean - before).abs().max().item()
        print("fault shows:", "yes" if differ > 1e-3 and drift > 0 else "no")


if __name__ == "__main__":
    main()
