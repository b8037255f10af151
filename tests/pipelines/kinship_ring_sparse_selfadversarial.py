"""Who sits where in a monastery: links of a knowledge graph, RotatE.

Sparse gradients and SparseAdam for entities, Adam for relations; rows that were touched
are projected in place after the step. Weights of negatives are a detached softmax
(self-adversarial); negatives that are facts of the training are masked, ranks leave out
all facts. Heads and tails are replaced in turn, with a loader each over the same facts.
"""

from __future__ import annotations

import argparse
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

ROWS, SEATS = 16, 16
SHIFTS = [(1, 0), (0, 1), (2, 0), (0, 5), (3, 2), (15, 13)]
N_ENT, N_REL = ROWS * SEATS, len(SHIFTS)


def facts() -> Tensor:
    out = []
    for r, (dr, ds) in enumerate(SHIFTS):
        for row in range(ROWS):
            for seat in range(SEATS):
                tail = (row + dr) % ROWS * SEATS + (seat + ds) % SEATS
                out.append((row * SEATS + seat, r, tail))
    return torch.tensor(out)


class RotatE(nn.Module):
    def __init__(self, dim: int, margin: float, gen: torch.Generator) -> None:
        super().__init__()
        self.dim, self.margin = dim, margin
        self.entity = nn.Embedding(N_ENT, 2 * dim, sparse=True)
        self.phase = nn.Embedding(N_REL, dim)
        with torch.no_grad():
            self.entity.weight.uniform_(-0.7, 0.7, generator=gen)
            self.phase.weight.uniform_(-math.pi, math.pi, generator=gen)

    def rotate(self, e: Tensor, r: Tensor, sign: int) -> Tensor:
        re, im = e.chunk(2, -1)
        c, s = torch.cos(r), sign * torch.sin(r)
        return torch.cat([re * c - im * s, re * s + im * c], -1)

    def score(self, h: Tensor, r: Tensor, t: Tensor, corrupt: str) -> Tensor:
        """Indices; the corrupted side has a last dimension more, of candidates."""
        ph = self.phase(r)
        if corrupt == "tail":
            a, b = self.rotate(self.entity(h), ph, +1).unsqueeze(-2), self.entity(t)
        else:  # a rotation is undone exactly by its conjugate
            a, b = self.rotate(self.entity(t), ph, -1).unsqueeze(-2), self.entity(h)
        diff = torch.stack((a - b).chunk(2, -1))
        return self.margin - (diff.square().sum(0) + 1e-9).sqrt().sum(-1)

    @torch.no_grad()
    def project(self, touched: Tensor) -> None:
        """Moduli of the complex coordinates of rows just updated are 1 at most."""
        w = self.entity.weight[touched]
        re, im = w.chunk(2, -1)
        shrink = torch.hypot(re, im).clamp(min=1.0)
        self.entity.weight[touched] = torch.cat([re / shrink, im / shrink], -1)


class Trainer:
    def __init__(self, train: Tensor, everything: Tensor, seed: int = 5) -> None:
        self.gen = torch.Generator().manual_seed(seed)
        self.model = RotatE(dim=12, margin=5.0, gen=self.gen)
        self.opts: list[torch.optim.Optimizer] = [
            torch.optim.SparseAdam([self.model.entity.weight], lr=0.05),
            torch.optim.Adam([self.model.phase.weight], lr=0.03),
        ]
        self.scheds = [
            torch.optim.lr_scheduler.LambdaLR(o, lambda s: 1.0 if s < 140 else 0.4)
            for o in self.opts
        ]
        # training may know the training facts only; the protocol's filter knows all
        self.known_train = self.table(train)
        self.known_all = self.table(everything)
        # the two corruptions take turns, each with its own order of the same facts
        self.loaders = {
            side: DataLoader(
                TensorDataset(train),
                batch_size=80,
                shuffle=True,
                generator=torch.Generator().manual_seed(seed + k),
            )
            for k, side in enumerate(("head", "tail"))
        }

    @staticmethod
    def table(f: Tensor) -> Tensor:
        t = torch.zeros(N_REL, N_ENT, N_ENT, dtype=torch.bool)
        t[f[:, 1], f[:, 0], f[:, 2]] = True
        return t

    def loss(self, batch: Tensor, side: str, n_neg: int = 24, temperature: float = 1.0):
        h, r, t = batch.unbind(1)
        # one set of candidates for the whole batch, so few rows are touched
        neg = torch.randint(N_ENT, (n_neg,), generator=self.gen).expand(len(batch), -1)
        if side == "tail":
            pos_s = self.model.score(h, r, t[:, None], side)
            neg_s = self.model.score(h, r, neg, side)
            false_neg = self.known_train[r[:, None], h[:, None], neg]
        else:
            pos_s = self.model.score(h[:, None], r, t, side)
            neg_s = self.model.score(neg, r, t, side)
            false_neg = self.known_train[r[:, None], neg, t[:, None]]
        neg_s = neg_s.masked_fill(
            false_neg, -1e4
        )  # weight 0 and log-sigmoid of +1e4 = 0
        # harder negatives weigh more; the weights are not optimised
        weight = (neg_s * temperature).softmax(-1).detach()
        apart = (weight * F.logsigmoid(-neg_s)).sum(-1).mean()
        value = -0.5 * (F.logsigmoid(pos_s).mean() + apart)
        return value, torch.cat([h, t, neg[0]]).unique()

    def forever(self, side: str):
        while True:
            for (batch,) in self.loaders[side]:
                yield batch

    def fit(self, steps: int) -> None:
        streams = {side: self.forever(side) for side in self.loaders}
        history = []
        for step in range(steps):
            side = ("head", "tail")[step % 2]
            value, touched = self.loss(next(streams[side]), side)
            for o in self.opts:
                o.zero_grad()
            value.backward()
            for o, s in zip(self.opts, self.scheds):
                o.step()
                s.step()
            self.model.project(touched)
            history.append(value.item())
            if step % 25 == 24:
                mean = sum(history[-20:]) / 20
                print(
                    f"step {step + 1:3d}  loss {mean:.4f}  rows touched {len(touched)}"
                )

    @torch.no_grad()
    def rank(self, f: Tensor) -> dict[str, float]:
        """Filtered ranks of the right tail and the right head among all monks."""
        h, r, t = f.unbind(1)
        every = torch.arange(N_ENT).expand(len(f), -1)
        ranks = []
        for side, truth in (("tail", t), ("head", h)):
            if side == "tail":
                s, known = self.model.score(h, r, every, side), self.known_all[r, h]
            else:
                s, known = self.model.score(every, r, t, side), self.known_all[r, :, t]
            own = s.gather(1, truth[:, None])
            others = known.scatter(1, truth[:, None], True)
            ranks.append(
                1 + (s.masked_fill(others, -1e9) >= own).sum(1)
            )  # ties count against us
        ranks = torch.cat(ranks).double()
        return {
            "mrr": (1 / ranks).mean().item(),
            "hits@3": (ranks <= 3).double().mean().item(),
        }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    gen = torch.Generator().manual_seed(1)
    every = facts()[torch.randperm(N_REL * N_ENT, generator=gen)]
    test, train = every[:100], every[100:]
    trainer = Trainer(train, every)
    print("untrained", trainer.rank(test))
    trainer.fit(args.steps)
    result = trainer.rank(test)
    print("missing facts", {k: round(v, 3) for k, v in result.items()})


if __name__ == "__main__":
    main()
