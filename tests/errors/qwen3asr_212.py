"""Supervised fine-tuning of a small speech-to-text decoder.

Every sample is "<bos> <lang> frame frame ... <sep>" followed by the transcript.
The processor pads on the left, as for generation.
"""
import argparse
import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD, BOS, SEP, EOS = 0, 1, 2, 3
LANGS = [4, 5, 6]
FRAME0, N_FRAMES = 8, 24
CHAR0, N_CHARS = 32, 24
VOCAB = CHAR0 + N_CHARS
IGNORE = -100


def build_corpus(n, seed):
    rng = random.Random(seed)
    tables = {}
    for k, lang in enumerate(LANGS):
        order = list(range(N_CHARS))
        random.Random(100 + k).shuffle(order)
        tables[lang] = order
    corpus = []
    for _ in range(n):
        lang = rng.choice(LANGS)
        frames = [rng.randrange(N_FRAMES) for _ in range(rng.randint(2, 9))]
        prefix = [BOS, lang] + [FRAME0 + f for f in frames] + [SEP]
        answer = [CHAR0 + tables[lang][f] for f in frames] + [EOS]
        corpus.append({"prefix": prefix, "answer": answer})
    return corpus


class Processor:
    """Turns a list of texts into left-padded tensors."""

    def __call__(self, sequences):
        width = max(len(s) for s in sequences)
        ids = torch.full((len(sequences), width), PAD)
        mask = torch.zeros(len(sequences), width, dtype=torch.long)
        for i, s in enumerate(sequences):
            ids[i, width - len(s) :] = torch.tensor(s)
            mask[i, width - len(s) :] = 1
        return {"input_ids": ids, "attention_mask": mask}


class SFTCollator:
    def __init__(self, processor, by_token_index=False):
        self.processor = processor
        self.by_token_index = by_token_index

    def __call__(self, rows):
        batch = self.processor([r["prefix"] + r["answer"] for r in rows])
        prefix_length = torch.tensor([len(r["prefix"]) for r in rows])
        labels = batch["input_ids"].clone()
        labels[batch["attention_mask"] == 0] = IGNORE
        if self.by_token_index:
            index = batch["attention_mask"].cumsum(1) - 1
            labels[index < prefix_length[:, None]] = IGNORE
        else:
            for i, n in enumerate(prefix_length.tolist()):
                labels[i, :n] = IGNORE
        batch["labels"] = labels
        return batch


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim)
        )

    def forward(self, x, allowed):
        b, t, d = x.shape
        q, k, v = (
            self.qkv(self.ln1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        att = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        x = x + self.proj(att.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.ln2(x))


class Decoder(nn.Module):
    def __init__(self, dim=64, heads=4, layers=2, max_len=32):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, dim)
        self.pos = nn.Embedding(max_len, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, VOCAB, bias=False)

    def forward(self, input_ids, attention_mask, labels=None):
        t = input_ids.shape[1]
        position = (attention_mask.cumsum(1) - 1).clamp(min=0)
        causal = torch.ones(t, t).tril().bool()
        allowed = (causal & attention_mask[:, None, :].bool()) | torch.eye(t).bool()
        x = self.tok(input_ids) + self.pos(position)
        for block in self.blocks:
            x = block(x, allowed[:, None])
        logits = self.head(self.norm(x))
        if labels is None:
            return logits
        loss = F.cross_entropy(
            logits[:, :-1].reshape(-1, VOCAB),
            labels[:, 1:].reshape(-1),
            ignore_index=IGNORE,
        )
        return loss, logits


@torch.no_grad()
def token_accuracy(model, rows, processor):
    model.eval()
    hit = total = 0
    for row in rows:
        batch = processor([row["prefix"] + row["answer"]])
        pred = model(**batch)[0, len(row["prefix"]) - 1 : -1].argmax(-1).tolist()
        hit += sum(p == a for p, a in zip(pred, row["answer"]))
        total += len(row["answer"])
    model.train()
    return hit / total


def prefix_targets(rows, batch):
    """How many targets of the batch lie in front of the transcript."""
    width = batch["labels"].shape[1]
    count = 0
    for i, row in enumerate(rows):
        start = width - len(row["answer"])
        count += int((batch["labels"][i, :start] != IGNORE).sum())
    return count, int((batch["labels"] != IGNORE).sum())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=260)
    ap.add_argument("--batch-size", type=int, default=24)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    train, test = build_corpus(2000, seed=1), build_corpus(100, seed=2)
    processor = Processor()
    collate = SFTCollator(processor, by_token_index=args.fixed)
    model = Decoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    warmup = 20
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda s: min(1.0, (s + 1) / warmup)
        * 0.5
        * (1 + math.cos(math.pi * min(1.0, s / args.steps))),
    )
    sampler = random.Random(args.seed)

    seen_prefix = seen_total = 0
    for step in range(args.steps):
        rows = sampler.sample(train, args.batch_size)
        batch = collate(rows)
        loss, _ = model(**batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        a, b = prefix_targets(rows, batch)
        seen_prefix, seen_total = seen_prefix + a, seen_total + b
        if step % 40 == 0 or step == args.steps - 1:
            print(
                f"step {step:4d}  loss {loss.item():.4f}  lr {schedule.get_last_lr()[0]:.2e}"
            )

    print(f"test token accuracy {token_accuracy(model, test, processor):.3f}")
    if args.prove:
        print(f"targets outside the transcript: {seen_prefix} of {seen_total}")
        print("fault shows:", "yes" if seen_prefix > 0 else "no")


if __name__ == "__main__":
    main()
