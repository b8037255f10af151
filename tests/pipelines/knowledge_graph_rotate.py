# RotatE link prediction with self-adversarial negatives; filtered ranking on both sides.
import argparse
import collections
import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F


def build_graph(n_entities, seed):
    """Relations on a ring of entities (successor, jump, antipode, ...), partly observed, plus some noise."""
    rnd = random.Random(seed)
    shifts = [1, 7, 20, n_entities // 2, -3]
    triples = set()
    for r, s in enumerate(shifts):
        for h in range(n_entities):
            if rnd.random() < 0.85:
                triples.add((h, r, (h + s) % n_entities))
    for _ in range(20):
        triples.add(
            (
                rnd.randrange(n_entities),
                rnd.randrange(len(shifts)),
                rnd.randrange(n_entities),
            )
        )
    triples = sorted(triples)
    rnd.shuffle(triples)
    degree = collections.Counter(e for h, _, t in triples for e in (h, t))
    held, train = [], []
    # an entity has to keep enough training edges to be placed at all
    for h, r, t in triples:
        if len(held) < 200 and degree[h] > 5 and degree[t] > 5:
            held.append((h, r, t))
            degree[h] -= 1
            degree[t] -= 1
        else:
            train.append((h, r, t))
    return train, held[:100], held[100:], len(shifts)


class RotatE(nn.Module):
    def __init__(self, n_entities, n_relations, dim=48, gamma=9.0):
        super().__init__()
        self.gamma = gamma
        spread = (gamma + 2.0) / dim
        self.entity = nn.Parameter(
            torch.empty(n_entities, dim, 2).uniform_(-spread, spread)
        )
        self.phase = nn.Parameter(
            torch.empty(n_relations, dim).uniform_(-math.pi, math.pi)
        )

    @staticmethod
    def rotate(e, phase):
        cos, sin = phase.cos(), phase.sin()
        re, im = e.unbind(-1)
        return torch.stack([re * cos - im * sin, re * sin + im * cos], -1)

    def distance(self, a, b):
        return ((a - b).pow(2).sum(-1) + 1e-9).sqrt().sum(-1)

    def forward(self, h, r, t):
        """Scores; h or t may carry an extra axis of candidates: (B, K) against r of (B,)."""
        phase = self.phase[r]
        h, t = self.entity[h], self.entity[t]
        if h.dim() == 4:  # corrupted heads: rotate the tail back instead
            return self.gamma - self.distance(h, self.rotate(t, -phase).unsqueeze(1))
        rotated = self.rotate(h, phase)
        if t.dim() == 4:
            rotated = rotated.unsqueeze(1)
        return self.gamma - self.distance(rotated, t)


class NegativeSampler:
    def __init__(self, train, n_entities, k, gen):
        self.n, self.k, self.gen = n_entities, k, gen
        self.known = {
            "tail": collections.defaultdict(set),
            "head": collections.defaultdict(set),
        }
        for h, r, t in train:
            self.known["tail"][h, r].add(t)
            self.known["head"][t, r].add(h)

    def __call__(self, batch, side):
        neg = torch.randint(self.n, (len(batch), self.k), generator=self.gen)
        anchor = 0 if side == "tail" else 2
        keep = torch.ones_like(neg, dtype=torch.bool)
        for i, row in enumerate(batch.tolist()):
            true = self.known[side][row[anchor], row[1]]
            keep[i] = torch.tensor([e not in true for e in neg[i].tolist()])
        return neg, keep


def self_adversarial_loss(pos, neg, keep, temperature=1.0):
    weight = torch.softmax((neg.detach() * temperature).masked_fill(~keep, -1e9), dim=1)
    negative = -(weight * F.logsigmoid(-neg)).sum(1).mean()
    positive = -F.logsigmoid(pos).mean()
    return 0.5 * (positive + negative)


@torch.no_grad()
def filtered_ranking(model, triples, every_true, n_entities):
    model.eval()
    everything = torch.arange(n_entities)
    ranks = []
    for h, r, t in triples:
        th, tr, tt = torch.tensor([h]), torch.tensor([r]), torch.tensor([t])
        for side, gold in (("tail", t), ("head", h)):
            if side == "tail":
                scores = model(th, tr, everything[None])[0]
                others = [
                    e
                    for e in range(n_entities)
                    if e != gold and (h, r, e) in every_true
                ]
            else:
                scores = model(everything[None], tr, tt)[0]
                others = [
                    e
                    for e in range(n_entities)
                    if e != gold and (e, r, t) in every_true
                ]
            scores[others] = -float("inf")
            ranks.append(int((scores > scores[gold]).sum()) + 1)
    ranks = torch.tensor(ranks, dtype=torch.float)
    return (1 / ranks).mean().item(), (ranks <= 10).float().mean().item()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=360)
    cli.add_argument("--batch", type=int, default=128)
    cli.add_argument("--negatives", type=int, default=32)
    cli.add_argument("--seed", type=int, default=29)
    a = cli.parse_args()
    torch.manual_seed(a.seed)
    gen = torch.Generator().manual_seed(a.seed)

    n_entities = 120
    train, valid, test, n_relations = build_graph(n_entities, a.seed)
    every_true = set(train) | set(valid) | set(test)
    data = torch.tensor(train)
    model = RotatE(n_entities, n_relations)
    sampler = NegativeSampler(train, n_entities, a.negatives, gen)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    print(len(train), "training triples,", len(valid), "validation,", len(test), "test")

    best_mrr, best_weights = -1.0, None
    step = 0
    while step < a.steps:
        for idx in torch.randperm(len(data), generator=gen).split(a.batch):
            model.train()
            batch = data[idx]
            h, r, t = batch.unbind(1)
            side = "tail" if step % 2 == 0 else "head"
            neg, keep = sampler(batch, side)
            neg_score = model(h, r, neg) if side == "tail" else model(neg, r, t)
            loss = self_adversarial_loss(model(h, r, t), neg_score, keep)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == int(0.7 * a.steps):
                for group in optimizer.param_groups:
                    group["lr"] *= 0.2
            if step % 60 == 0 or step == a.steps:
                mrr, hits = filtered_ranking(model, valid, every_true, n_entities)
                print(
                    f"step {step:4d} loss {loss.item():.4f} valid MRR {mrr:.3f} hits@10 {hits:.3f}"
                )
                if mrr > best_mrr:
                    best_mrr, best_weights = mrr, {
                        k: v.clone() for k, v in model.state_dict().items()
                    }
            if step == a.steps:
                break
    model.load_state_dict(best_weights)
    print(
        "test MRR %.3f hits@10 %.3f"
        % filtered_ranking(model, test, every_true, n_entities)
    )


if __name__ == "__main__":
    main()
