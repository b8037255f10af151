"""A causal character model trained by two ranks that seldom talk (local steps, outer Nesterov).

Each rank takes several AdamW steps on its own half of the text; then the mean displacement of
the weights is the gradient of an outer SGD, whose result both ranks go on from. Between two
meetings the weights of the ranks differ on purpose.
"""
import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from ranks import leave_group

ALPHABET, CONTEXT = "abcdefghijklmnop .", 32


def invent(n, gen):
    """Words of a little lexicon, the next one chosen by the class of the last; full stops at times."""
    lexicon_gen = torch.Generator().manual_seed(77)
    lexicon = []
    for _ in range(24):
        size = int(torch.randint(2, 6, (1,), generator=lexicon_gen))
        lexicon.append(torch.randint(0, 16, (size,), generator=lexicon_gen).tolist())
    out, word = [], 0
    while len(out) < n:
        out += lexicon[word]
        r = torch.rand(2, generator=gen).tolist()
        out += [17, 16] if r[0] < 0.1 else [16]
        word = ((word % 4) * 6 + int(r[1] * 6) + 1) % 24
    return torch.tensor(out[:n])


class Rotary(nn.Module):
    def __init__(self, dim):
        super().__init__()
        angle = torch.outer(
            torch.arange(CONTEXT).float(), 100.0 ** (-torch.arange(0, dim, 2) / dim)
        )
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, x):
        a, b = x.chunk(2, -1)
        cos, sin = self.cos[: x.shape[-2]], self.sin[: x.shape[-2]]
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.rotary = heads, Rotary(dim // heads)
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(
            dim, dim, bias=False
        )
        self.gate, self.up = nn.Linear(dim, 2 * dim, bias=False), nn.Linear(
            dim, 2 * dim, bias=False
        )
        self.down = nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            z.view(b, t, self.heads, -1).transpose(1, 2)
            for z in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(
            self.rotary(q), self.rotary(k), v, is_causal=True
        )
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class CharModel(nn.Module):
    def __init__(self, dim=48, heads=4, layers=2):
        super().__init__()
        self.embed = nn.Embedding(len(ALPHABET), dim)
        self.blocks = nn.Sequential(*(Block(dim, heads) for _ in range(layers)))
        self.norm, self.head = nn.RMSNorm(dim), nn.Linear(
            dim, len(ALPHABET), bias=False
        )

    def forward(self, ids):
        return self.head(self.norm(self.blocks(self.embed(ids))))


def lm_loss(model, text, starts):
    rows = text[starts.unsqueeze(1) + torch.arange(CONTEXT + 1)]
    return F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--local", type=int, default=6, help="steps between two meetings")
    args = p.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    text = invent(24_000, torch.Generator().manual_seed(1))
    valid = invent(3_000, torch.Generator().manual_seed(2))
    mine = text.chunk(world)[rank]

    torch.manual_seed(100 + rank)  # draws of its own for each rank ...
    model = CharModel()
    for q in model.parameters():  # ... but the weights of rank 0 for all
        dist.broadcast(q.data, src=0)
    inner = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
    anchor = nn.Parameter(parameters_to_vector(model.parameters()).detach().clone())
    outer = torch.optim.SGD([anchor], lr=0.7, momentum=0.6, nesterov=True)

    for step in range(1, args.steps + 1):
        loss = lm_loss(model, mine, torch.randint(0, len(mine) - CONTEXT, (32,)))
        inner.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        inner.step()
        if step % args.local == 0 or step == args.steps:
            with torch.no_grad():
                moved = anchor - parameters_to_vector(model.parameters())
            dist.all_reduce(moved)
            anchor.grad = moved / world
            outer.step()
            with torch.no_grad():
                vector_to_parameters(anchor.detach().clone(), model.parameters())
            shown = loss.detach().clone()
            dist.all_reduce(shown)
            model.eval()
            with torch.no_grad():
                val = lm_loss(
                    model, valid, torch.arange(0, len(valid) - CONTEXT, CONTEXT)
                )
            model.train()
            if rank == 0:
                print(
                    f"step {step:3d} loss {shown.item() / world:.4f} valid {val.item():.4f}",
                    flush=True,
                )
    leave_group()


def start(rank, world, port):
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(world),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    main()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    torch.multiprocessing.spawn(start, (2, port), nprocs=2)
