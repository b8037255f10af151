"""Fine-tune a little causal LM on made-up dialogues of very different length, with gradient accumulation."""
import argparse
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

VOCAB = ["<pad>", "<bos>", "<eos>"] + [f"w{i}" for i in range(61)]
PAD, BOS, EOS, IGNORE = 0, 1, 2, -100


class Dialogues(Dataset):
    """A question (not trained on) and its answer; most answers are short, some are long."""

    def __init__(self, n, seed):
        rng = random.Random(seed)
        self.items = []
        for _ in range(n):
            topic = rng.randrange(3, 33)
            question = [BOS] + [
                topic + rng.randrange(8) for _ in range(rng.randint(3, 6))
            ]
            length = rng.randint(2, 4) if rng.random() < 0.6 else rng.randint(25, 40)
            word, answer = topic, []
            for _ in range(length):
                word = 3 + (word * 5 + topic + rng.choice([0, 0, 0, 1])) % 61
                answer.append(word)
            self.items.append((question, answer + [EOS]))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        q, a = self.items[i]
        return torch.tensor(q + a), torch.tensor([IGNORE] * len(q) + a)


def collate(batch):
    ids = pad_sequence([b[0] for b in batch], batch_first=True, padding_value=PAD)
    labels = pad_sequence([b[1] for b in batch], batch_first=True, padding_value=IGNORE)
    return {"input_ids": ids, "labels": labels}


class CausalLM(nn.Module):
    def __init__(self, dim=48, heads=4, layers=2, max_len=64):
        super().__init__()
        self.tok = nn.Embedding(len(VOCAB), dim)
        self.pos = nn.Embedding(max_len, dim)
        layer = nn.TransformerEncoderLayer(
            dim, heads, 4 * dim, dropout=0.0, batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(dim, len(VOCAB))

    def forward(self, input_ids):
        T = input_ids.size(1)
        mask = torch.triu(torch.full((T, T), float("-inf")), 1)
        x = self.tok(input_ids) + self.pos(torch.arange(T))
        return self.head(self.blocks(x, mask=mask))


def shifted_loss(logits, labels, reduction):
    return F.cross_entropy(
        logits[:, :-1].reshape(-1, logits.size(-1)),
        labels[:, 1:].reshape(-1),
        ignore_index=IGNORE,
        reduction=reduction,
    )


class Trainer:
    def __init__(self, model, dataset, args):
        self.model, self.args = model, args
        self.loader = DataLoader(
            dataset,
            batch_size=args.per_device_batch_size,
            shuffle=True,
            collate_fn=collate,
            drop_last=True,
            generator=torch.Generator().manual_seed(args.seed),
        )
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
        self.gaps = []

    def micro_batches(self):
        while True:
            yield from self.loader

    def compute_loss(self, batch, answer_tokens):
        logits = self.model(batch["input_ids"])
        if self.args.fixed:
            return shifted_loss(logits, batch["labels"], "sum") / answer_tokens
        return shifted_loss(logits, batch["labels"], "mean") / self.args.accumulation

    def train(self):
        stream = self.micro_batches()
        for step in range(self.args.steps):
            group = [next(stream) for _ in range(self.args.accumulation)]
            answer_tokens = sum(
                int((b["labels"][:, 1:] != IGNORE).sum()) for b in group
            )
            total = 0.0
            self.optimizer.zero_grad()
            for batch in group:
                loss = self.compute_loss(batch, answer_tokens)
                loss.backward()
                total += loss.item()
            if self.args.prove and step % 5 == 0:
                self.compare(group, answer_tokens)
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            if step % 25 == 0 or step == self.args.steps - 1:
                print({"step": step, "loss": round(total, 4)})

    def compare(self, group, answer_tokens):
        # gradient of the same samples as one big batch
        have = torch.cat([p.grad.flatten() for p in self.model.parameters()])
        whole = (
            sum(
                shifted_loss(self.model(b["input_ids"]), b["labels"], "sum")
                for b in group
            )
            / answer_tokens
        )
        want = torch.cat(
            [
                g.flatten()
                for g in torch.autograd.grad(whole, list(self.model.parameters()))
            ]
        )
        self.gaps.append(((have - want).norm() / want.norm()).item())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=150)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    p.add_argument("--per_device_batch_size", type=int, default=2)
    p.add_argument("--accumulation", type=int, default=4)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--seed", type=int, default=3)
    args = p.parse_args()
    torch.manual_seed(args.seed)
    trainer = Trainer(CausalLM(), Dialogues(600, seed=11), args)
    trainer.train()

    held_out = collate([Dialogues(100, seed=12)[i] for i in range(100)])
    with torch.no_grad():
        print(
            "eval loss per token:",
            round(
                shifted_loss(
                    trainer.model(held_out["input_ids"]), held_out["labels"], "mean"
                ).item(),
                4,
            ),
        )
    if args.prove:
        gap = sum(trainer.gaps) / len(trainer.gaps)
        print(f"mean relative distance to the big-batch gradient: {gap:.2e}")
        print("fault shows:", "yes" if gap > 0.01 else "no")


if __name__ == "__main__":
    main()
