"""Distil a larger recurrent language model into a small one with a per-token KL.

The teacher is a fixed mixture model of the corpus language, scored once and cached
next to the token ids, the way one would cache log-probabilities of a big model.
"""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

IGNORE = -100
VOCAB = 24
BOS, PAD = 0, 1


class Language:
    """Second-order token process; next-token log-probabilities are known."""

    def __init__(self, seed=4):
        g = torch.Generator().manual_seed(seed)
        logits = 1.6 * torch.randn(VOCAB, VOCAB, generator=g).unsqueeze(
            0
        ) + torch.randn(VOCAB, VOCAB, VOCAB, generator=g)
        logits[..., :2] = -1e4
        self.logp = F.log_softmax(logits, -1)

    def sample(self, n, max_len, seed):
        g = torch.Generator().manual_seed(seed)
        ids = torch.full((n, max_len), PAD)
        ids[:, 0] = BOS
        prev, cur = torch.zeros(n, dtype=torch.long), ids[:, 0]
        for t in range(1, max_len):
            nxt = torch.multinomial(self.logp[prev, cur].exp(), 1, generator=g).squeeze(
                1
            )
            ids[:, t] = nxt
            prev, cur = cur, nxt
        lengths = torch.randint(max_len // 2, max_len + 1, (n,), generator=g)
        ids[torch.arange(max_len)[None] >= lengths[:, None]] = PAD
        return ids

    def score(self, ids):
        prev = torch.cat([torch.zeros(len(ids), 1, dtype=torch.long), ids[:, :-1]], 1)
        return self.logp[prev, ids]


class CachedTeacher(Dataset):
    """Token ids with the log-probabilities of the teacher."""

    def __init__(self, language, n, max_len, seed):
        self.ids = language.sample(n, max_len, seed)
        self.teacher = language.score(self.ids)[:, :-1]

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i], self.teacher[i]


class Student(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, VOCAB)

    def forward(self, ids):
        return self.head(self.rnn(self.emb(ids))[0])


class PerTokenDistillation(nn.Module):
    def __init__(self, kd_weight, shifted_cache):
        super().__init__()
        self.kd_weight = kd_weight
        self.shifted_cache = shifted_cache

    def shift_and_mask(self, ids, logits, teacher):
        labels = ids[:, 1:].masked_fill(ids[:, 1:] == PAD, IGNORE)
        logits = logits[:, :-1]
        if not self.shifted_cache:
            teacher = teacher[:, 1:]
        n = min(logits.size(1), teacher.size(1))
        labels, logits, teacher = labels[:, :n], logits[:, :n], teacher[:, :n]
        keep = labels != IGNORE
        return labels[keep], logits[keep], teacher[keep]

    def forward(self, ids, logits, teacher):
        labels, logits, teacher = self.shift_and_mask(ids, logits, teacher)
        ce = F.cross_entropy(logits, labels)
        kd = F.kl_div(
            F.log_softmax(logits, -1), teacher, log_target=True, reduction="batchmean"
        )
        return (1 - self.kd_weight) * ce + self.kd_weight * kd, ce.detach(), kd.detach()


@torch.no_grad()
def evaluate(model, language, ids):
    model.eval()
    logits, labels = model(ids)[:, :-1], ids[:, 1:]
    keep = labels != PAD
    ce = F.cross_entropy(logits[keep], labels[keep])
    floor = F.nll_loss(language.score(ids)[:, :-1][keep], labels[keep])
    model.train()
    return ce.item(), floor.item()


def misfit(language, objective, ids, logits, teacher):
    """Largest gap between the teacher rows in the KL and the rows of the language."""
    labels, _, used = objective.shift_and_mask(ids, logits, teacher)
    rows = language.score(ids)[:, :-1][
        :, : teacher.size(1) if objective.shifted_cache else teacher.size(1) - 1
    ]
    expect = rows[ids[:, 1 : 1 + rows.size(1)] != PAD]
    return (used.exp() - expect.exp()).abs().max().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=140)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--max-len", type=int, default=24)
    ap.add_argument("--lr", type=float, default=8e-3)
    ap.add_argument("--kd-weight", type=float, default=0.7)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(0)
    language = Language()
    data = CachedTeacher(language, 1024, args.max_len, seed=1)
    heldout = language.sample(256, args.max_len, seed=2)
    loader = DataLoader(
        data,
        args.batch_size,
        shuffle=True,
        drop_last=True,
        generator=torch.Generator().manual_seed(3),
    )
    student = Student()
    objective = PerTokenDistillation(args.kd_weight, shifted_cache=args.fixed)
    optimizer = torch.optim.AdamW(student.parameters(), lr=args.lr, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, args.lr, total_steps=args.steps
    )

    step, gap, begin = 0, 0.0, time.time()
    while step < args.steps:
        for ids, teacher in loader:
            logits = student(ids)
            loss, ce, kd = objective(ids, logits, teacher)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(student.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            if args.prove:
                gap = max(gap, misfit(language, objective, ids, logits, teacher))
            if step % 20 == 0:
                print(
                    f"[{step:4d}] loss {loss.item():.4f}  ce {ce.item():.4f}  kd {kd.item():.4f}"
                )
            step += 1
            if step == args.steps:
                break

    ce, floor = evaluate(student, language, heldout)
    print(
        f"held-out cross-entropy {ce:.4f} (language entropy {floor:.4f}), {time.time() - begin:.1f}s"
    )
    if args.prove:
        print(f"largest gap between used and expected teacher probabilities: {gap:.4f}")
        print("fault shows:", "yes" if gap > 1e-5 else "no")


if __name__ == "__main__":
    main()
