"""Intent recognition for a voice assistant: a bidirectional LSTM teacher is trained first, then a
small bag-of-embeddings student learns from its soft outputs (and from the labels)."""
import argparse
import random
from collections import Counter

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader

TEMPLATES = {
    "alarm": [
        "wake me at {t}",
        "set an alarm for {t}",
        "please ring the bell at {t} {d}",
    ],
    "weather": [
        "will it rain {d}",
        "what is the weather in {c} {d}",
        "is it cold in {c} at {t}",
    ],
    "music": ["play some {g}", "i want to hear {g} music", "put on {g} at {t} please"],
    "travel": [
        "book a train to {c}",
        "how do i get to {c} {d}",
        "find me a seat to {c} at {t}",
    ],
    "cancel": [
        "stop the alarm for {t}",
        "do not play {g}",
        "cancel the train to {c} {d}",
    ],
}
SLOTS = {
    "t": ["six", "seven", "half past eight", "noon", "midnight"],
    "d": ["today", "tomorrow", "on monday", "on friday", "next week"],
    "c": ["berlin", "rome", "paris", "oslo", "madrid", "the city"],
    "g": ["jazz", "rock", "folk", "classical", "dance"],
}
FILLERS = ["hey", "um", "well", "ok", "so", "please", "now"]
PAD, UNK = 0, 1
INTENTS = sorted(TEMPLATES)


def utterance(rng):
    intent = rng.choice(INTENTS)
    words = (
        rng.choice(TEMPLATES[intent])
        .format(**{k: rng.choice(v) for k, v in SLOTS.items()})
        .split()
    )
    for _ in range(rng.randint(0, 3)):
        words.insert(rng.randint(0, len(words)), rng.choice(FILLERS))
    words = [w for w in words if rng.random() > 0.12] or words[
        :1
    ]  # the recogniser loses words
    return words, INTENTS.index(intent)


def build_vocab(samples, min_count=2):
    counts = Counter(w for words, _ in samples for w in words)
    return {
        w: i + 2
        for i, w in enumerate(sorted(w for w, c in counts.items() if c >= min_count))
    }


class Collate:
    def __init__(self, vocab):
        self.vocab = vocab

    def __call__(self, batch):
        ids = [
            torch.tensor([self.vocab.get(w, UNK) for w in words]) for words, _ in batch
        ]
        lengths = torch.tensor([len(i) for i in ids])
        return (
            pad_sequence(ids, batch_first=True, padding_value=PAD),
            lengths,
            torch.tensor([y for _, y in batch]),
        )


class Teacher(nn.Module):
    def __init__(self, vocab_size, emb=32, hid=48):
        super().__init__()
        self.emb = nn.Embedding(vocab_size, emb, padding_idx=PAD)
        self.lstm = nn.LSTM(emb, hid, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(0.3)
        self.out = nn.Linear(2 * hid, len(INTENTS))

    def forward(self, ids, lengths):
        x = pack_padded_sequence(
            self.drop(self.emb(ids)), lengths, batch_first=True, enforce_sorted=False
        )
        _, (h, _) = self.lstm(x)
        return self.out(self.drop(torch.cat([h[-2], h[-1]], dim=1)))


class Student(nn.Module):
    """Mean over the bigram features of the sentence."""

    def __init__(self, vocab_size, emb=16):
        super().__init__()
        self.emb = nn.Embedding(vocab_size, emb, padding_idx=PAD)
        self.conv = nn.Conv1d(emb, 24, 2)
        self.out = nn.Linear(24, len(INTENTS))

    def forward(self, ids, lengths):
        ids = F.pad(ids, (0, 1), value=PAD)  # so that one word is enough for the kernel
        x = self.conv(self.emb(ids).transpose(1, 2)).relu()
        mask = torch.arange(x.size(2))[None, :] < lengths[:, None]
        x = (x * mask[:, None]).sum(2) / lengths[:, None]
        return self.out(x)


def hard_loss(logits, batch):
    return F.cross_entropy(logits, batch[2])


class DistillLoss:
    def __init__(self, teacher, temperature, alpha):
        self.teacher, self.T, self.alpha = teacher.eval(), temperature, alpha
        for p in teacher.parameters():
            p.requires_grad_(False)

    def __call__(self, logits, batch):
        with torch.no_grad():
            t = self.teacher(batch[0], batch[1])
        soft = (
            F.kl_div(
                F.log_softmax(logits / self.T, 1),
                F.log_softmax(t / self.T, 1),
                reduction="batchmean",
                log_target=True,
            )
            * self.T**2
        )
        return self.alpha * soft + (1 - self.alpha) * F.cross_entropy(logits, batch[2])


def accuracy(model, loader):
    model.eval()
    right = n = 0
    with torch.no_grad():
        for ids, lengths, y in loader:
            right += (model(ids, lengths).argmax(1) == y).sum().item()
            n += y.numel()
    return right / n


def fit(name, model, loss_fn, train, valid, epochs, lr):
    opt = torch.optim.RAdam(model.parameters(), lr=lr)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.85)
    for epoch in range(epochs):
        model.train()
        losses = []
        for batch in train:
            model.zero_grad()
            loss = loss_fn(model(batch[0], batch[1]), batch)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            losses.append(loss.detach())
        sched.step()
        print(
            f"{name} epoch {epoch}: loss {torch.stack(losses).mean():.3f} valid acc {accuracy(model, valid):.3f}"
        )
    return model


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--temperature", type=float, default=3.0)
    ap.add_argument("--alpha", type=float, default=0.7)
    ap.add_argument("--seed", type=int, default=12)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)

    samples = [utterance(rng) for _ in range(1500)]
    seen = {" ".join(w) for w, _ in samples[:1100]}
    train_s = samples[:1100]
    rest = [
        s for s in samples[1100:] if " ".join(s[0]) not in seen
    ]  # no sentence in two parts
    valid_s, test_s = rest[: len(rest) // 2], rest[len(rest) // 2 :]
    vocab = build_vocab(train_s)
    size = len(vocab) + 2
    collate = Collate(vocab)
    train = DataLoader(train_s, batch_size=40, shuffle=True, collate_fn=collate)
    valid, test = (
        DataLoader(s, batch_size=128, collate_fn=collate) for s in (valid_s, test_s)
    )
    print(f"{len(train_s)}/{len(valid_s)}/{len(test_s)} utterances, vocabulary {size}")

    teacher = fit("teacher", Teacher(size), hard_loss, train, valid, args.epochs, 5e-3)
    student = fit(
        "student",
        Student(size),
        DistillLoss(teacher, args.temperature, args.alpha),
        train,
        valid,
        args.epochs,
        1e-2,
    )
    for name, m in (("teacher", teacher), ("student", student)):
        print(
            f"{name}: {sum(p.numel() for p in m.parameters())} weights, test acc {accuracy(m, test):.3f}"
        )
