"""Next product in a shopping basket, with one transformer cut over two ranks.

Tensor parallelism written out: attention heads and the wide layer of the MLP are split
by columns, then by rows, and the table of products is split by product, both for the
lookup and (tied) for the cross-entropy. Everything else is replicated: each rank sees
the same batch, and draws the same dropout, as both hold the same seed.
"""

import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

PRODUCTS = 200
LENGTH = 12


class CopyIn(torch.autograd.Function):
    """Identity forward, sum over ranks backward."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad)
        return grad


class ReduceOut(torch.autograd.Function):
    """Sum over ranks forward, identity backward."""

    @staticmethod
    def forward(ctx, x):
        x = x.contiguous().clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


class ParallelCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, first):
        top = logits.amax(-1)
        dist.all_reduce(top, op=dist.ReduceOp.MAX)
        exp = (logits - top[:, None]).exp()
        total = exp.sum(-1)
        dist.all_reduce(total)
        local = target - first
        mine = (local >= 0) & (local < logits.size(1))
        local = local.clamp(0, logits.size(1) - 1)
        hit = logits.gather(1, local[:, None]).squeeze(1) - top
        hit = torch.where(mine, hit, 0.0)
        dist.all_reduce(hit)
        ctx.save_for_backward(exp / total[:, None], local, mine)
        return (total.log() - hit).mean()

    @staticmethod
    def backward(ctx, grad):
        p, local, mine = ctx.saved_tensors
        g = p.clone()
        g[torch.arange(len(g)), local] -= mine.to(g.dtype)
        return g * grad / len(g), None, None


def shard(full, dim):
    """This rank's slice of a weight that all ranks drew alike."""
    piece = full.chunk(dist.get_world_size(), dim)[dist.get_rank()].clone()
    p = nn.Parameter(piece)
    p.sharded = True
    return p


class ColumnLinear(nn.Module):
    def __init__(self, inputs, outputs, parts=1):
        super().__init__()
        # a fused projection (q, k, v) is cut within each of its parts
        full = torch.randn(parts, outputs // parts, inputs) * inputs**-0.5
        self.weight = shard(full, 1)
        self.bias = shard(torch.zeros(parts, outputs // parts), 1)

    def forward(self, x):
        return F.linear(CopyIn.apply(x), self.weight.flatten(0, 1), self.bias.flatten())


class RowLinear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = shard(torch.randn(outputs, inputs) * 0.5 * inputs**-0.5, 1)
        self.bias = nn.Parameter(torch.zeros(outputs))  # added once, after the sum

    def forward(self, x):
        return ReduceOut.apply(F.linear(x, self.weight)) + self.bias


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.local_heads = heads // dist.get_world_size()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = ColumnLinear(width, 3 * width, parts=3)
        self.out = RowLinear(width, width)
        self.up, self.down = ColumnLinear(width, 4 * width), RowLinear(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        b, t, _ = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, t, 3, self.local_heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.out(y.transpose(1, 2).flatten(2)))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)))))


class BasketModel(nn.Module):
    def __init__(self, width=64, heads=4, depth=2):
        super().__init__()
        self.rows = PRODUCTS // dist.get_world_size()
        self.first = self.rows * dist.get_rank()
        self.table = shard(0.1 * torch.randn(PRODUCTS, width), 0)
        self.position = nn.Parameter(0.1 * torch.randn(LENGTH, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def logits(self, items):
        local = items - self.first
        mine = (local >= 0) & (local < self.rows)
        x = self.table[local.clamp(0, self.rows - 1)] * mine[..., None]
        x = ReduceOut.apply(x) + self.position[: items.size(1)]
        for block in self.blocks:
            x = block(x)
        return F.linear(CopyIn.apply(self.norm(x)), self.table)

    def forward(self, items, target):
        logits = self.logits(items).flatten(0, 1)
        return ParallelCrossEntropy.apply(logits, target.flatten(), self.first)


def clip(params, limit):
    """Slices count once on each rank, replicated parameters once altogether."""
    zero = torch.zeros(())
    cut = sum((p.grad.square().sum() for p in params if hasattr(p, "sharded")), zero)
    dist.all_reduce(cut)
    whole = sum(p.grad.square().sum() for p in params if not hasattr(p, "sharded"))
    norm = (cut + whole).sqrt()
    for p in params:
        p.grad.mul_((limit / (norm + 1e-6)).clamp(max=1.0))
    return norm


def baskets(n, gen):
    """Products of a recipe follow one another; now and then something else is bought."""
    step = torch.tensor([1, 7, 31])[torch.randint(0, 3, (n, 1), generator=gen)]
    start = torch.randint(0, PRODUCTS, (n, 1), generator=gen)
    items = (start + step * torch.arange(LENGTH + 1)) % PRODUCTS
    other = torch.randint(0, PRODUCTS, items.shape, generator=gen)
    return torch.where(torch.rand(items.shape, generator=gen) < 0.05, other, items)


@torch.no_grad()
def hit_rate(model, data, k=5):
    model.eval()
    logits = model.logits(data[:, :-1])[:, -1].contiguous()
    parts = [torch.empty_like(logits) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, logits)
    model.train()
    best = torch.cat(parts, 1).topk(k).indices
    return (best == data[:, -1:]).any(1).float().mean().item()


def worker(rank, world, port, args):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
    )
    torch.manual_seed(11)
    gen = torch.Generator().manual_seed(12)
    held_out = baskets(300, torch.Generator().manual_seed(13))
    model = BasketModel()
    params = list(model.parameters())
    optimizer = torch.optim.AdamW(params, lr=args.lr, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, args.lr, total_steps=args.steps, pct_start=0.2
    )
    for step in range(1, args.steps + 1):
        data = baskets(32, gen)
        loss = model(data[:, :-1], data[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        norm = clip(params, 1.0)
        optimizer.step()
        schedule.step()
        if step % 20 == 0 or step in (1, args.steps):
            rate = hit_rate(model, held_out)
            if rank == 0:
                print(f"{step:4d} loss {loss:.4f} norm {norm:.3f} hit@5 {rate:.3f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=140)
    parser.add_argument("--lr", type=float, default=5e-3)
    arguments = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        free = s.getsockname()[1]
    mp.spawn(worker, (2, free, arguments), nprocs=2)
