"""
Language model on dialogue turns of very different lengths.

Micro-batches are bucketed by length to save padding, several of them form one
optimizer step.
"""
import argparse
import json

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD, BOS, EOS = 0, 1, 2
VOCAB = 80
IGNORE = -100


class DialogueCorpus:
    """Short answers ('yes of course') and long monologues from a made-up word chain."""

    def __init__(self, n_turns, seed):
        g = torch.Generator().manual_seed(seed)
        chain_gen = torch.Generator().manual_seed(99)
        self.chain = torch.softmax(
            3.0 * torch.randn(VOCAB, VOCAB, generator=chain_gen), dim=-1
        )
        short = self.chain.roll(11, dims=1)
        self.turns = []
        for i in range(n_turns):
            is_short = bool(torch.rand(1, generator=g) < 0.6)
            length = (
                int(torch.randint(3, 7, (1,), generator=g))
                if is_short
                else int(torch.randint(25, 45, (1,), generator=g))
            )
            table = short if is_short else self.chain
            word = int(torch.randint(3, VOCAB, (1,), generator=g))
            words = [BOS]
            for _ in range(length):
                words.append(word)
                word = max(3, int(torch.multinomial(table[word], 1, generator=g)))
            words.append(EOS)
            self.turns.append(words)

    def buckets(self, micro_batch, generator):
        """length-sorted micro-batches in random order"""
        order = sorted(range(len(self.turns)), key=lambda i: len(self.turns[i]))
        chunks = [order[i : i + micro_batch] for i in range(0, len(order), micro_batch)]
        for c in torch.randperm(len(chunks), generator=generator).tolist():
            yield self.pad([self.turns[i] for i in chunks[c]])

    @staticmethod
    def pad(turns):
        longest = max(len(t) for t in turns)
        x = torch.full((len(turns), longest - 1), PAD)
        y = torch.full((len(turns), longest - 1), IGNORE)
        for r, t in enumerate(turns):
            x[r, : len(t) - 1] = torch.tensor(t[:-1])
            y[r, : len(t) - 1] = torch.tensor(t[1:])
        return x, y


class LSTMLanguageModel(nn.Module):
    def __init__(self, emb=40, hidden=64):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, emb, padding_idx=PAD)
        self.lstm = nn.LSTM(emb, hidden, batch_first=True)
        self.out = nn.Linear(hidden, VOCAB)

    def forward(self, x):
        h, _ = self.lstm(self.embed(x))
        return self.out(h)


def token_loss(model, x, y, reduction="mean"):
    logits = model(x)
    return F.cross_entropy(
        logits.reshape(-1, VOCAB),
        y.reshape(-1),
        ignore_index=IGNORE,
        reduction=reduction,
    )


class Trainer:
    def __init__(self, model, corpus, dev, args):
        self.model, self.corpus, self.dev, self.args = model, corpus, dev, args
        self.optim = torch.optim.AdamW(model.parameters(), lr=args.lr)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(
            self.optim, T_max=args.steps
        )
        self.gen = torch.Generator().manual_seed(17)
        self.stream = self._endless()

    def _endless(self):
        while True:
            yield from self.corpus.buckets(self.args.micro_batch, self.gen)

    def update(self):
        micro = [next(self.stream) for _ in range(self.args.accum)]
        n_tokens = sum((y != IGNORE).sum() for _, y in micro)
        self.optim.zero_grad()
        total = 0.0
        for x, y in micro:
            loss = token_loss(self.model, x, y) / self.args.accum
            if self.args.fixed:
                loss = token_loss(self.model, x, y, reduction="sum") / n_tokens
            loss.backward()
            total += loss.item()
        if self.args.prove and not hasattr(self, "gap"):
            self.gap = self.gradient_gap(micro, n_tokens)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optim.step()
        self.sched.step()
        return total

    def gradient_gap(self, micro, n_tokens):
        params = list(self.model.parameters())
        whole = sum(token_loss(self.model, x, y, "sum") for x, y in micro) / n_tokens
        ref = torch.autograd.grad(whole, params)
        num = sum((p.grad - r).pow(2).sum() for p, r in zip(params, ref)).sqrt()
        return (num / sum(r.pow(2).sum() for r in ref).sqrt()).item()

    @torch.no_grad()
    def dev_nll(self):
        self.model.eval()
        s, n = 0.0, 0
        for x, y in self.dev.buckets(32, torch.Generator().manual_seed(0)):
            s += token_loss(self.model, x, y, "sum").item()
            n += int((y != IGNORE).sum())
        self.model.train()
        return s / n

    def fit(self):
        for step in range(1, self.args.steps + 1):
            loss = self.update()
            if step % 25 == 0 or step == self.args.steps:
                print(
                    json.dumps(
                        {
                            "step": step,
                            "loss": round(loss, 4),
                            "dev_nll": round(self.dev_nll(), 4),
                            "lr": round(self.sched.get_last_lr()[0], 6),
                        }
                    )
                )


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=100)
    p.add_argument("--accum", type=int, default=4)
    p.add_argument("--micro-batch", type=int, default=12)
    p.add_argument("--lr", type=float, default=5e-3)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    return p.parse_args()


if __name__ == "__main__":
    args = parse()
    torch.set_num_threads(1)
    torch.manual_seed(2024)
    trainer = Trainer(
        LSTMLanguageModel(), DialogueCorpus(900, 1), DialogueCorpus(150, 2), args
    )
    trainer.fit()
    if args.prove:
        print("fault shows:", "yes" if trainer.gap > 0.01 else "no")
