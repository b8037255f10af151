import argparse
import math

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

# ---------------------------------------------------------------- data
VOCAB, TOPICS, WORDS_PER_TOPIC = 400, 40, 8


class Corpus:
    """Each topic has its own words; a query and its passage share a topic,
    and a hard negative shares only the neighbouring topic's words."""

    def __init__(self, seed):
        self.rng = np.random.RandomState(seed)
        perm = self.rng.permutation(np.arange(1, VOCAB))
        self.query_words = perm[: TOPICS * 4].reshape(TOPICS, 4)
        self.doc_words = perm[TOPICS * 4 : TOPICS * 4 + TOPICS * 5].reshape(TOPICS, 5)

    def _mix(self, table, topic, other, length):
        own = self.rng.choice(table[topic], size=length)
        noise = self.rng.choice(table[other], size=length)
        take = self.rng.rand(length) < 0.75
        return np.where(take, own, noise)

    def query(self, topic):
        return self._mix(self.query_words, topic, self.rng.randint(TOPICS), 5)

    def passage(self, topic):
        return self._mix(self.doc_words, topic, self.rng.randint(TOPICS), 8)

    def group(self, n_neg):
        topic = self.rng.randint(TOPICS)
        wrong = [
            (topic + 1 + self.rng.randint(TOPICS - 1)) % TOPICS for _ in range(n_neg)
        ]
        return [self.query(topic), self.passage(topic)] + [
            self.passage(w) for w in wrong
        ]


def collate(groups):
    """Flattens groups of [anchor, positive, negatives...] into one padded matrix."""
    flat = [s for g in groups for s in g]
    width = max(len(s) for s in flat)
    ids = torch.zeros(len(flat), width, dtype=torch.long)
    for i, s in enumerate(flat):
        ids[i, : len(s)] = torch.as_tensor(s)
    return ids, [len(g) for g in groups]


# ---------------------------------------------------------------- model
class Encoder(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim, padding_idx=0)
        self.ff = nn.Sequential(
            nn.LayerNorm(dim),
            nn.Linear(dim, 2 * dim),
            nn.GELU(),
            nn.Linear(2 * dim, dim),
        )

    def forward(self, ids):
        mask = (ids != 0).unsqueeze(-1).float()
        h = self.emb(ids)
        h = h + self.ff(h)
        pooled = (h * mask).sum(1) / mask.sum(1)
        return F.normalize(pooled, dim=-1)


# ---------------------------------------------------------------- loss
class InfoNCE(nn.Module):
    def __init__(self, hard_negatives, temperature, seed, fixed):
        super().__init__()
        self.hard_negatives = hard_negatives
        self.temperature = temperature
        self.rng = np.random.RandomState(seed)
        self.first = 2 if fixed else 1

    def split(self, embeddings, sizes):
        """Cuts the flat matrix into groups, each with exactly `hard_negatives` negatives."""
        out = []
        for group in torch.split(embeddings, sizes):
            count = group.shape[0] - 2
            want = self.hard_negatives
            if count > want:
                group = group[: 2 + want]
            elif count < want:
                picks = (
                    self.rng.choice(count, size=want - count, replace=True) + self.first
                )
                group = torch.cat([group, group[torch.as_tensor(picks)]], dim=0)
            out.append(group)
        return torch.stack(out)

    def forward(self, embeddings, sizes):
        groups = self.split(embeddings, sizes)
        anchor, cands = groups[:, 0], groups[:, 1:]
        logits = torch.einsum("bd,bkd->bk", anchor, cands) / self.temperature
        target = torch.zeros(len(groups), dtype=torch.long)
        return F.cross_entropy(logits, target), groups


@torch.no_grad()
def retrieval_eval(model, corpus, n=8):
    model.eval()
    topics = np.repeat(np.arange(TOPICS), n)
    q, _ = collate([[corpus.query(t)] for t in topics])
    d, _ = collate([[corpus.passage(t)] for t in range(TOPICS)])
    sims = model(q) @ model(d).T
    rank = (sims > sims.gather(1, torch.as_tensor(topics)[:, None])).sum(1)
    model.train()
    pos = sims.gather(1, torch.as_tensor(topics)[:, None]).mean().item()
    return (
        (rank == 0).float().mean().item(),
        (1.0 / (rank + 1)).float().mean().item(),
        pos,
    )


def train(args):
    torch.manual_seed(args.seed)
    corpus, held_out = Corpus(args.seed), Corpus(args.seed)
    held_out.rng = np.random.RandomState(args.seed + 1)
    model = Encoder()
    criterion = InfoNCE(args.hard_negatives, args.temperature, args.seed, args.fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda s: min(1.0, (s + 1) / 10)
        * 0.5
        * (1 + math.cos(math.pi * min(1.0, s / args.steps))),
    )

    same = slots = 0
    for step in range(args.steps):
        groups = [
            corpus.group(n_neg=int(corpus.rng.randint(1, 4)))
            for _ in range(args.batch_size)
        ]
        ids, sizes = collate(groups)
        loss, table = criterion(model(ids), sizes)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
        with torch.no_grad():
            equal = (table[:, 2:] == table[:, 1:2]).all(-1)
            same += int(equal.sum())
            slots += equal.numel()
        if step % 25 == 0 or step == args.steps - 1:
            r1, mrr, pos = retrieval_eval(model, held_out)
            print(
                f"[{step:03d}] loss={loss.item():.4f} recall@1={r1:.3f} mrr={mrr:.3f} pos_sim={pos:.3f}"
            )
    return model, held_out, same, slots


def main():
    p = argparse.ArgumentParser("bi-encoder with hard negatives")
    p.add_argument("--steps", type=int, default=150)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--hard-negatives", type=int, default=5)
    p.add_argument("--temperature", type=float, default=0.05)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--seed", type=int, default=11)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    args = p.parse_args()
    model, held_out, same, slots = train(args)
    r1, mrr, pos = retrieval_eval(model, held_out, n=20)
    print(f"final: recall@1={r1:.3f} mrr={mrr:.3f}")
    if args.prove:
        print(f"candidate rows equal to the first candidate: {same} of {slots}")
        print("fault shows:", "yes" if same > 0 else "no")


if __name__ == "__main__":
    main()
