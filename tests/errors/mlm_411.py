"""MLM-411: the first evaluation switches the dropout of attention off for good.

Source: https://github.com/NVIDIA/Megatron-LM/pull/411. Outside of training, forward
sets its own dropout_p to 0, and nothing sets it back: after the first validation the
model trains on without that dropout. --fixed decides in each call anew.
"""

import argparse
import itertools

import torch
from torch import nn
from torch.nn import functional as F

AMINO = "ACDEFGHIKLMNPQRSTVWY"
MASK = len(AMINO)
EVAL_INTERVAL = 6


class FlashSelfAttention(nn.Module):
    """The kernel's wrapper: [batch, heads, length, size] in, the same out."""

    def __init__(self, attention_dropout, keep_p):
        super().__init__()
        self.dropout_p = attention_dropout
        self.keep_p = keep_p

    def forward(self, q, k, v):
        if self.keep_p:
            dropout_p = self.dropout_p if self.training else 0.0
        else:
            if not self.training:
                self.dropout_p = 0.0
            dropout_p = self.dropout_p
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout_p)


class Layer(nn.Module):
    def __init__(self, width, heads, keep_p):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.core_attention = FlashSelfAttention(0.2, keep_p)
        self.dense = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x):
        b, t, w = x.shape
        qkv = self.qkv(self.before(x)).view(b, t, 3, self.heads, w // self.heads)
        context = self.core_attention(*qkv.permute(2, 0, 3, 1, 4))
        x = x + self.dense(context.transpose(1, 2).reshape(b, t, w))
        return x + self.mlp(self.between(x))


class ProteinBert(nn.Module):
    def __init__(self, keep_p, width=32, heads=4, layers=2, length=24):
        super().__init__()
        self.word = nn.Embedding(MASK + 1, width)
        nn.init.normal_(self.word.weight, std=0.15)
        self.position = nn.Parameter(0.02 * torch.randn(length, width))
        self.layers = nn.ModuleList(Layer(width, heads, keep_p) for _ in range(layers))
        self.final = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.word(tokens) + self.position
        for layer in self.layers:
            x = layer(x)
        return self.final(x) @ self.word.weight[:MASK].T


def sequences(count, seed, length=24):
    """A motif of six residues is repeated in each chain, with mutations."""
    g = torch.Generator().manual_seed(seed)
    motif = torch.randint(MASK, (count, 6), generator=g)
    chain = motif.repeat(1, length // 6)
    mutation = torch.randint(MASK, chain.shape, generator=g)
    return torch.where(torch.rand(chain.shape, generator=g) < 0.05, mutation, chain)


def batches(chains, size, seed):
    g = torch.Generator().manual_seed(seed)
    while True:
        for rows in torch.randperm(len(chains), generator=g).split(size):
            labels = chains[rows]
            hidden = torch.rand(labels.shape, generator=g) < 0.15
            yield labels.masked_fill(hidden, MASK), labels.masked_fill(~hidden, -100)


def mlm_loss(model, tokens, labels):
    return F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())


def evaluate(model, chains):
    model.eval()
    with torch.no_grad():
        few = itertools.islice(batches(chains, 32, seed=0), 2)
        losses = [mlm_loss(model, *batch).item() for batch in few]
    model.train()
    return sum(losses) / len(losses)


def still_drops(model, chains):
    """Whether two forwards in training mode differ; attention alone has dropout."""
    tokens, _ = next(batches(chains, 8, seed=1))
    with torch.no_grad():
        return not torch.equal(model(tokens), model(tokens))


def pretrain(args):
    torch.manual_seed(42)
    model = ProteinBert(keep_p=args.fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    source = batches(sequences(256, seed=1), 32, seed=2)
    held_out = sequences(64, seed=3)
    for iteration in range(1, args.steps + 1):
        optimizer.zero_grad()
        loss = mlm_loss(model, *next(source))
        loss.backward()
        optimizer.step()
        print(f"iteration {iteration}/{args.steps} | lm loss {loss.item():.4f}")
        if iteration % EVAL_INTERVAL == 0:
            print(f"validation | lm loss {evaluate(model, held_out):.4f}", flush=True)
    if args.prove:
        drops = still_drops(model, held_out)
        print("fault shows:", "no" if drops else "yes")


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=18)
    for flag in ("--fixed", "--prove"):
        cli.add_argument(flag, action="store_true")
    torch.set_num_threads(1)
    pretrain(cli.parse_args())
