"""Hogwild: two processes train one logistic model in shared memory without locks,
each with an optimizer and data of its own. What they read of one another depends on
timing, so that losses are printed with one digit.

    python hogwild.py --steps 200
"""

import argparse

import torch
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F

BUCKETS = 2000  # hashed tokens


class SpamFilter(nn.Module):
    """Mean of token vectors, then one hidden layer."""

    def __init__(self, dim=16):
        super().__init__()
        self.tokens = nn.EmbeddingBag(BUCKETS, dim, mode="mean")
        self.hidden = nn.Linear(dim, dim)
        self.verdict = nn.Linear(dim, 1)

    def forward(self, ids):
        return self.verdict(torch.relu(self.hidden(self.tokens(ids)))).squeeze(1)


def messages(count, generator):
    """Thirty tokens each; spam draws a third of them from a small set."""
    spam = torch.rand(count, generator=generator) < 0.4
    ids = torch.randint(0, BUCKETS, (count, 30), generator=generator)
    shady = torch.randint(0, 100, (count, 30), generator=generator)
    chosen = torch.rand(count, 30, generator=generator) < 0.33
    return torch.where(spam[:, None] & chosen, shady, ids), spam.float()


def evaluate(model):
    model.eval()
    ids, spam = messages(1000, torch.Generator().manual_seed(123))
    with torch.no_grad():
        logits = model(ids)
    loss = F.binary_cross_entropy_with_logits(logits, spam).item()
    accuracy = ((logits > 0) == spam.bool()).float().mean().item()
    return loss, accuracy


def train(number, model, args, results):
    torch.set_num_threads(1)
    torch.manual_seed(args.seed + number)
    generator = torch.Generator().manual_seed(args.seed * 100 + number)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
    model.train()
    history = []
    for _ in range(args.steps):
        ids, spam = messages(args.batch_size, generator)
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(ids), spam)
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    tail = history[-20:]
    results.put((number, history[0], sum(tail) / len(tail)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200, help="of each process")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.5)
    parser.add_argument("--momentum", type=float, default=0.8)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    context = mp.get_context("spawn")
    model = SpamFilter()
    model.share_memory()  # gradients are made by each process and not shared
    loss, accuracy = evaluate(model)
    print(f"before: loss {loss:.1f} accuracy {accuracy:.1f}", flush=True)

    results = context.SimpleQueue()
    workers = []
    for number in range(args.processes):
        worker = context.Process(target=train, args=(number, model, args, results))
        worker.start()
        workers.append(worker)
    found = sorted(results.get() for _ in workers)
    for worker in workers:
        worker.join()
        if worker.exitcode != 0:
            raise SystemExit(f"a worker ended with {worker.exitcode}")
    for number, first, last in found:
        print(f"process {number}: loss {first:.1f} at first, {last:.1f} at last")
    loss, accuracy = evaluate(model)
    print(f"after: loss {loss:.1f} accuracy {accuracy:.1f}", flush=True)


if __name__ == "__main__":
    main()
