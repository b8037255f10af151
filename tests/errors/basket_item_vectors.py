# word2vec (skip-gram, negative sampling) on a made-up shopping-list corpus
# homework 3 -- item vectors; optimizer is SGD with step decay like in the lecture
import argparse
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--dim", type=int, default=32)
parser.add_argument("--batch_size", type=int, default=256)
parser.add_argument("--lr", type=float, default=1.5)
parser.add_argument("--negatives", type=int, default=8)
parser.add_argument("--decay_every", type=int, default=100)
parser.add_argument("--decay", type=float, default=0.2)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--prove", action="store_true")

N_ITEMS, N_THEMES = 300, 12


def make_baskets(n=2500, seed=0):
    """Each basket has one or two themes (breakfast, barbecue, ...) and some random goods."""
    rnd = random.Random(seed)
    baskets = []
    for _ in range(n):
        themes = rnd.sample(range(N_THEMES), rnd.choice([1, 1, 2]))
        basket = []
        for _ in range(rnd.randint(5, 10)):
            if rnd.random() < 0.8:
                basket.append(
                    rnd.choice(themes) + N_THEMES * rnd.randrange(N_ITEMS // N_THEMES)
                )
            else:
                basket.append(rnd.randrange(N_ITEMS))
        baskets.append(basket)
    return baskets


def make_pairs(baskets, window=3):
    pairs = []
    for b in baskets:
        for i, centre in enumerate(b):
            for j in range(max(0, i - window), min(len(b), i + window + 1)):
                if i != j and b[j] != centre:
                    pairs.append((centre, b[j]))
    return torch.tensor(pairs)


class SkipGram(nn.Module):
    def __init__(self, n, dim):
        super().__init__()
        self.centre = nn.Embedding(n, dim)
        self.context = nn.Embedding(n, dim)
        nn.init.uniform_(self.centre.weight, -0.5 / dim, 0.5 / dim)
        nn.init.normal_(self.context.weight, std=0.05)

    def forward(self, centre, context, negatives):
        c = self.centre(centre)
        positive = (c * self.context(context)).sum(-1)
        negative = torch.einsum("bd,bkd->bk", c, self.context(negatives))
        return -(F.logsigmoid(positive) + F.logsigmoid(-negative).sum(-1)).mean()


def neighbour_precision(model, k=10):
    """How many of the k nearest items share the theme."""
    with torch.no_grad():
        v = F.normalize(model.centre.weight, dim=1)
        sim = v @ v.T
        sim.fill_diagonal_(-2)
        near = sim.topk(k, dim=1).indices
    theme = torch.arange(N_ITEMS) % N_THEMES
    return (theme[near] == theme[:, None]).float().mean().item()


def set_lr(optimizer, lr):
    for group in optimizer.param_groups:
        group["lr"] = lr


def train(args):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    baskets = make_baskets()
    pairs = make_pairs(baskets)
    counts = torch.bincount(pairs[:, 1], minlength=N_ITEMS).float()
    noise = counts.pow(0.75)
    print(len(baskets), "baskets,", len(pairs), "pairs")

    model = SkipGram(N_ITEMS, args.dim)
    lr = args.lr
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)

    used_lr, said_lr = [], []
    order = torch.randperm(len(pairs), generator=gen)
    pos, running = 0, []
    for step in range(args.steps):
        if step > 0 and step % args.decay_every == 0:
            lr = lr * args.decay
            if args.fixed:
                set_lr(optimizer, lr)
        if pos + args.batch_size > len(order):
            order, pos = torch.randperm(len(pairs), generator=gen), 0
        batch = pairs[order[pos : pos + args.batch_size]]
        pos += args.batch_size
        neg = torch.multinomial(
            noise, args.batch_size * args.negatives, replacement=True, generator=gen
        )
        neg = neg.view(args.batch_size, args.negatives)

        optimizer.zero_grad()
        loss = model(batch[:, 0], batch[:, 1], neg)
        loss.backward()
        before = model.context.weight.detach().clone() if args.prove else None
        optimizer.step()
        if args.prove:
            # SGD: the update is lr * momentum buffer, so the rate can be read off the weights
            buf = optimizer.state[model.context.weight]["momentum_buffer"]
            moved = before - model.context.weight.detach()
            used_lr.append((moved.norm() / buf.norm()).item())
            said_lr.append(lr)

        running.append(loss.item())
        if (step + 1) % 50 == 0:
            print(
                "step %4d  loss %.4f  lr %.4f  p@10 %.3f"
                % (step + 1, np.mean(running), lr, neighbour_precision(model))
            )
            running = []
    return model, used_lr, said_lr


def main():
    args = parser.parse_args()
    model, used_lr, said_lr = train(args)
    print("final p@10 %.4f" % neighbour_precision(model))
    if args.prove:
        wrong = [
            i for i, (u, s) in enumerate(zip(used_lr, said_lr)) if abs(u - s) > 0.05 * s
        ]
        print(
            "%d of %d updates used another rate than the one meant, first %s"
            % (len(wrong), len(used_lr), wrong[0] if wrong else None)
        )
        print("fault shows:", "yes" if wrong else "no")


if __name__ == "__main__":
    main()
