#!/usr/bin/env python
# ORPO on stew recipes: preference pairs without a reference model and without a separate SFT stage.
#   loss = NLL(chosen) + lam * -log sigmoid( logodds(chosen) - logodds(rejected) )
# with odds p/(1-p) of the length-normalised probability of the answer. Prompts carry no loss.
# Chosen and rejected answers of a batch go through the model in one forward.
import argparse
import math
import random

import torch
from torch import nn
from torch.nn import functional as F

MEATS = ["lamb", "veal", "hare", "cod", "goose"]
ROOTS = ["leek", "turnip", "carrot", "parsnip", "beet"]
HERBS = ["thyme", "sage", "dill", "mint"]
GLUE = ["<pad>", "<eos>", "with", ":", "fry", "add", "season", "simmer", "then", "long"]
WORDS = GLUE + MEATS + ROOTS + HERBS
IDX = {w: i for i, w in enumerate(WORDS)}
PAD, IGNORE = 0, -100


def pair(rng, meat, root, herb):
    prompt = [meat, "with", root, "with", herb, ":"]
    good = ["fry", meat, "then", "add", root, "then", "season", herb, "simmer", "<eos>"]
    flaw = rng.randrange(3)
    if flaw == 0:  # a wrong vegetable
        bad = [
            "fry",
            meat,
            "then",
            "add",
            rng.choice([r for r in ROOTS if r != root]),
            "then",
            "season",
            herb,
            "simmer",
            "<eos>",
        ]
    elif flaw == 1:  # the herb forgotten
        bad = ["fry", meat, "then", "add", root, "simmer", "<eos>"]
    else:  # rambling
        bad = [
            "fry",
            meat,
            "then",
            "add",
            root,
            "then",
            "season",
            herb,
            "simmer",
            "long",
            "long",
            "<eos>",
        ]
    return tuple([IDX[w] for w in part] for part in (prompt, good, bad))


def collate(rows):
    """(2B, T): the chosen ones first. Right padding; labels already shifted by one."""
    full = [(p, g) for p, g, _ in rows] + [(p, b) for p, _, b in rows]
    width = max(len(p) + len(a) for p, a in full)
    ids = torch.full((len(full), width), PAD)
    labels = torch.full((len(full), width), IGNORE)
    for i, (p, a) in enumerate(full):
        ids[i, : len(p) + len(a)] = torch.tensor(p + a)
        labels[i, len(p) - 1 : len(p) + len(a) - 1] = torch.tensor(a)
    return ids, labels


class Cook(nn.Module):
    def __init__(self, d=64, layers=2, heads=4, longest=24):
        super().__init__()
        self.tok, self.pos = nn.Embedding(len(WORDS), d), nn.Embedding(longest, d)
        layer = nn.TransformerEncoderLayer(
            d,
            heads,
            2 * d,
            dropout=0.05,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.body = nn.TransformerEncoder(
            layer, layers, norm=nn.LayerNorm(d), enable_nested_tensor=False
        )
        self.head = nn.Linear(d, len(WORDS))

    def forward(self, ids):
        t = ids.shape[1]
        x = self.tok(ids) + self.pos(torch.arange(t))
        causal = torch.ones(t, t, dtype=torch.bool).triu(
            1
        )  # True = forbidden; pads lie behind
        return self.head(self.body(x, mask=causal, is_causal=True))


def answer_logps(model, ids, labels):
    logp = model(ids).log_softmax(-1)
    real = labels != IGNORE
    picked = logp.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1) * real
    return picked.sum(1), real.sum(1)


def log1mexp(x):
    """log(1 - exp(x)) for x < 0, without cancellation (Maechler)."""
    x = x.clamp(max=-1e-6)
    return torch.where(
        x > -math.log(2), torch.log(-torch.expm1(x)), torch.log1p(-torch.exp(x))
    )


def orpo(model, ids, labels, lam):
    total, length = answer_logps(model, ids, labels)
    mean = total / length
    half = len(ids) // 2
    good, bad = mean[:half], mean[half:]
    logodds = (good - log1mexp(good)) - (bad - log1mexp(bad))
    nll = -total[:half].sum() / length[:half].sum()
    ratio = -F.logsigmoid(logodds).mean()
    return nll + lam * ratio, nll.detach(), ratio.detach(), (logodds > 0).float().mean()


@torch.no_grad()
def judge(model, rows, lam):
    model.eval()
    ids, labels = collate(rows)
    loss, nll, ratio, acc = (float(v) for v in orpo(model, ids, labels, lam))
    model.train()
    return loss, nll, ratio, acc


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=12)
    ap.add_argument("--lam", type=float, default=0.5)
    args = ap.parse_args()
    torch.manual_seed(21)
    rng = random.Random(21)
    dishes = [(m, r, h) for m in MEATS for r in ROOTS for h in HERBS]
    rng.shuffle(dishes)
    seen, unseen = dishes[:80], dishes[80:]  # held out by dish, not by pair
    train = [pair(rng, *d) for d in seen for _ in range(4)]
    held = [pair(rng, *d) for d in unseen for _ in range(4)]
    model = Cook()
    decay = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim <= 1]
    opt = torch.optim.AdamW(
        [
            {"params": decay, "weight_decay": 0.05},
            {"params": plain, "weight_decay": 0.0},
        ],
        lr=4e-3,
        betas=(0.9, 0.98),
    )
    warm = 20
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min((s + 1) / warm, math.sqrt(warm / (s + 1)))
    )
    start = judge(model, held, args.lam)
    for epoch in range(args.epochs):
        rng.shuffle(train)
        run, batches = 0.0, 0
        for at in range(0, len(train), 32):
            ids, labels = collate(train[at : at + 32])
            loss, *_ = orpo(model, ids, labels, args.lam)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            run, batches = run + loss.item(), batches + 1
        loss, nll, ratio, acc = judge(model, held, args.lam)
        print(
            f"epoch {epoch + 1:2d} train {run / batches:.3f} | held: loss {loss:.3f} nll {nll:.3f} "
            f"odds {ratio:.3f} preferred {acc:.2f}"
        )
    if args.epochs >= 12:
        assert loss < 0.4 * start[0] and acc > 0.9, (start, loss, acc)


if __name__ == "__main__":
    main()
