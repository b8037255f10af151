"""Truth of logical formulas by a tree LSTM: every sample has a graph of its own.

No tensors of samples, no batches, no padding: formulas are nested tuples, evaluated one
after another by recursion, sixteen to a step, each with a backward of its own (the loss
divided before). Weights of an operator have no gradient in a step where it does not
occur. Depth grows during training. Two rates; the forget gates' bias starts at one.
"""
import argparse
import random

import torch
import torch.nn as nn
import torch.nn.functional as F


def formula(depth, rng):
    """-> ('and', left, right), ('xor', ...), ('not', one) or True / False"""
    if depth == 0 or rng.random() < 0.1:
        return rng.random() < 0.5
    kind = rng.choice(["and", "or", "xor", "not"])
    if kind == "not":
        return kind, formula(depth - 1, rng)
    return kind, formula(depth - 1, rng), formula(depth - 1, rng)


def truth(f):
    if isinstance(f, bool):
        return f
    if f[0] == "not":
        return not truth(f[1])
    a, b = truth(f[1]), truth(f[2])
    return {"and": a and b, "or": a or b, "xor": a != b}[f[0]]


class TreeLSTM(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        self.leaf = nn.Embedding(2, 2 * width)
        self.one = nn.Linear(width, 4 * width)
        self.two = nn.ModuleDict(
            {k: nn.Linear(2 * width, 5 * width) for k in ("and", "or", "xor")}
        )
        for linear in (self.one, *self.two.values()):
            with torch.no_grad():
                linear.bias[3 * width :] = 1.0
        self.out = nn.Linear(width, 1)

    def state(self, f):
        if isinstance(f, bool):
            h, c = self.leaf.weight[int(f)].chunk(2)
            return torch.tanh(h), c
        if f[0] == "not":
            h, c = self.state(f[1])
            write, show, new, keep = self.one(h).chunk(4)
            c = keep.sigmoid() * c + write.sigmoid() * new.tanh()
        else:
            (ha, ca), (hb, cb) = self.state(f[1]), self.state(f[2])
            gates = self.two[f[0]](torch.cat([ha, hb]))
            write, show, new, left, right = gates.chunk(5)
            c = left.sigmoid() * ca + right.sigmoid() * cb
            c = c + write.sigmoid() * new.tanh()
        return show.sigmoid() * c.tanh(), c

    def forward(self, f):
        return self.out(self.state(f)[0])


@torch.no_grad()
def accuracy(model, formulas):
    model.eval()
    right = sum((model(f).item() > 0) == truth(f) for f in formulas)
    model.train()
    return right / len(formulas)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--steps", type=int, default=110)
    p.add_argument("--formulas", type=int, default=16, help="of a step")
    args = p.parse_args()
    torch.manual_seed(19)
    torch.set_num_threads(1)
    rng = random.Random(1)
    valid = [formula(3, random.Random(1000 + i)) for i in range(150)]
    model = TreeLSTM()
    optimizer = torch.optim.Adam(
        [
            {"params": [*model.one.parameters(), *model.two.parameters()]},
            {"params": [*model.leaf.parameters(), *model.out.parameters()], "lr": 2e-2},
        ],
        lr=1e-2,
    )
    for step in range(args.steps):
        depth = 1 + min(2, 3 * step // args.steps)
        optimizer.zero_grad()
        total = 0.0
        for _ in range(args.formulas):
            f = formula(depth, rng)
            wanted = torch.tensor([float(truth(f))])
            loss = F.binary_cross_entropy_with_logits(model(f), wanted)
            (loss / args.formulas).backward()
            total += loss.item() / args.formulas
        nn.utils.clip_grad_value_(model.parameters(), 0.5)
        optimizer.step()
        if step % 20 == 19 or step == args.steps - 1:
            print(
                f"step {step + 1:3d} depth {depth} loss {total:.4f} "
                f"valid {accuracy(model, valid):.3f}"
            )


if __name__ == "__main__":
    main()
