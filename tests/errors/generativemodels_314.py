"""Latent transformer stage of a VQ-VAE pipeline: learn a prior over the code maps of 2D scans.

The quantised code maps are made up here (a first order texture with a few codes), the rest is as in
our tutorial: ordering, transformer with causal attention, cross entropy over the codes.
"""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class CodeMaps(Dataset):
    """8x8 maps of code indices; a code mostly follows from its left and upper neighbour"""

    def __init__(self, n, num_codes=16, side=8, seed=0):
        rule = torch.Generator().manual_seed(77)
        table = torch.randint(0, num_codes, (num_codes, num_codes), generator=rule)
        g = torch.Generator().manual_seed(seed)
        maps = torch.randint(0, num_codes, (n, side, side), generator=g)
        for i in range(side):
            for j in range(side):
                if i == 0 and j == 0:
                    continue
                left = maps[:, i, j - 1] if j else maps[:, i - 1, j]
                up = maps[:, i - 1, j] if i else maps[:, i, j - 1]
                keep = torch.rand(n, generator=g) < 0.85
                maps[:, i, j] = torch.where(keep, table[left, up], maps[:, i, j])
        self.maps = maps

    def __len__(self):
        return len(self.maps)

    def __getitem__(self, i):
        return self.maps[i]


class Ordering:
    """raster scan with every second row reversed"""

    def __init__(self, side):
        idx = torch.arange(side * side).reshape(side, side)
        idx[1::2] = idx[1::2].flip(1)
        self.sequence = idx.flatten()

    def __call__(self, maps):
        return maps.flatten(1)[:, self.sequence]


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim)
        )
        self.heads = heads

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            self.qkv(self.n1(x))
            .reshape(b, t, 3, self.heads, d // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.n2(x))


class DecoderOnlyTransformer(nn.Module):
    def __init__(self, num_tokens, max_seq_len, dim=48, depth=2, heads=4):
        super().__init__()
        self.token = nn.Embedding(num_tokens, dim)
        self.position = nn.Embedding(max_seq_len, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.to_logits = nn.Linear(dim, num_tokens)

    def forward(self, x):
        h = self.token(x) + self.position(torch.arange(x.size(1)))
        for blk in self.blocks:
            h = blk(h)
        return self.to_logits(self.norm(h))


class TransformerInferer:
    """adds the begin token (index num_codes) and returns logits with the sequence they belong to"""

    def __init__(self, num_codes, ordering):
        self.bos, self.ordering = num_codes, ordering

    def __call__(self, maps, transformer):
        latent = self.ordering(maps)
        latent = F.pad(latent, (1, 0), value=self.bos)
        return transformer(latent).transpose(1, 2), latent

    @torch.no_grad()
    def sample(self, transformer, n, length, generator):
        seq = torch.full((n, 1), self.bos)
        for _ in range(length):
            p = transformer(seq)[:, -1, : self.bos].softmax(-1)
            seq = torch.cat([seq, torch.multinomial(p, 1, generator=generator)], 1)
        return seq[:, 1:]


def lr_lambda(total):
    def f(step):
        return (
            min(1.0, (step + 1) / 20)
            * 0.5
            * (1 + math.cos(math.pi * min(1.0, step / total)))
        )

    return f


def main(args):
    torch.manual_seed(args.seed)
    num_codes, side = 16, 8
    train_loader = DataLoader(
        CodeMaps(2000, seed=1), batch_size=args.batch_size, shuffle=True, drop_last=True
    )
    val_maps = CodeMaps(200, seed=2).maps
    transformer = DecoderOnlyTransformer(num_codes + 1, side * side + 1)
    inferer = TransformerInferer(num_codes, Ordering(side))
    optimizer = torch.optim.AdamW(transformer.parameters(), lr=4e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda(args.steps))
    ce_loss = nn.CrossEntropyLoss()

    step, epoch = 0, 0
    while step < args.steps:
        transformer.train()
        epoch_loss, n = 0.0, 0
        for maps in train_loader:
            optimizer.zero_grad(set_to_none=True)
            logits, target = inferer(maps, transformer)
            if args.fixed:
                logits, target = logits[:, :, :-1], target[:, 1:]
            loss = ce_loss(logits, target)
            loss.backward()
            optimizer.step()
            scheduler.step()
            epoch_loss, n, step = epoch_loss + loss.item(), n + 1, step + 1
            if step >= args.steps:
                break
        epoch += 1
        print(f"epoch {epoch} ({step} steps) ce_loss {epoch_loss / n:.4f}")

    transformer.eval()
    gen = torch.Generator().manual_seed(5)
    samples = inferer.sample(transformer, 4, side * side, gen)
    print("first codes of a sample:", samples[0, :16].tolist())
    if args.prove:
        with torch.no_grad():
            logits, seq = inferer(val_maps, transformer)
            same = (logits.argmax(1) == seq)[:, 1:].float().mean().item()
            nxt = (logits.argmax(1)[:, :-1] == seq[:, 1:]).float().mean().item()
        print(
            f"predicts the token it is given: {same:.3f}, predicts the following token: {nxt:.3f}"
        )
        print("fault shows:", "yes" if same > nxt else "no")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch_size", type=int, default=24)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    main(parser.parse_args())
