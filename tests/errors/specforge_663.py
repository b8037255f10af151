"""Two-process training of a draft head with sharded gradients and fp32 master shards.

Each process works on its own batches; gradients are reduced so that every process owns one
slice of the flat gradient, updates that slice of the master weights and shares the result.
"""
import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

VOCAB, CTX = 32, 12


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class TokenStream:
    """Sequences of a random second-order process; one row in ten is far noisier than the rest."""

    def __init__(self, seed):
        table = torch.Generator().manual_seed(77)
        self.nxt = torch.randint(VOCAB, (VOCAB, 3), generator=table)
        self.gen = torch.Generator().manual_seed(seed)

    def batch(self, n):
        ids = torch.randint(VOCAB, (n, 2), generator=self.gen)
        noise = torch.where(torch.rand(n, generator=self.gen) < 0.1, 0.6, 0.05)
        for _ in range(CTX - 1):
            follow = self.nxt[ids[:, -1], ids[:, -2] % 3]
            rand = torch.randint(VOCAB, (n,), generator=self.gen)
            pick = torch.where(torch.rand(n, generator=self.gen) < noise, rand, follow)
            ids = torch.cat([ids, pick[:, None]], 1)
        return ids[:, :-1], ids[:, 1:]


class DraftHead(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.conv = nn.Conv1d(dim, 2 * dim, 3)
        self.fc = nn.Linear(2 * dim, dim)
        self.norm = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, VOCAB, bias=False)
        nn.init.normal_(self.embed.weight, std=2.0)

    def forward(self, ids):
        e = self.embed(ids)
        h = F.silu(self.conv(F.pad(e.transpose(1, 2), (2, 0)))).transpose(1, 2)
        return self.lm_head(self.norm(e + self.fc(h)))


class ShardedBackend:
    def __init__(self, model, world, rank):
        self.params = list(model.parameters())
        self.world, self.rank = world, rank
        total = sum(p.numel() for p in self.params)
        self.size = (total + world - 1) // world
        self.pad = self.size * world - total

    def flatten(self, tensors):
        flat = torch.cat([t.reshape(-1).float() for t in tensors])
        return F.pad(flat, (0, self.pad))

    def mine(self, flat):
        return flat[self.rank * self.size : (self.rank + 1) * self.size].clone()

    def reduce_gradients(self):
        flat = self.flatten([p.grad for p in self.params])
        dist.all_reduce(flat)
        return self.mine(flat / self.world)

    @torch.no_grad()
    def publish(self, shard):
        parts = [torch.empty_like(shard) for _ in range(self.world)]
        dist.all_gather(parts, shard)
        flat, at = torch.cat(parts), 0
        for p in self.params:
            p.copy_(flat[at : at + p.numel()].view_as(p))
            at += p.numel()


class MasterOptimizer:
    def __init__(self, backend, args):
        self.backend, self.args = backend, args
        flat = backend.flatten([p.detach() for p in backend.params])
        self.master = nn.Parameter(backend.mine(flat))
        self.inner = torch.optim.SGD([self.master], lr=args.lr, momentum=0.9)
        self.applied = 1.0

    def clip(self):
        if not self.args.fixed:
            local = nn.utils.clip_grad_norm_([self.master], self.args.max_grad_norm)
            return min(1.0, self.args.max_grad_norm / (float(local) + 1e-6))
        square = self.master.grad.pow(2).sum()
        dist.all_reduce(square)
        coef = min(1.0, self.args.max_grad_norm / (float(square.sqrt()) + 1e-6))
        self.master.grad.mul_(coef)
        return coef

    def step(self, lr_scale):
        self.master.grad = self.backend.reduce_gradients()
        before = self.master.grad.pow(2).sum()
        self.applied = self.clip()
        for group in self.inner.param_groups:
            group["lr"] = self.args.lr * lr_scale
        self.inner.step()
        self.backend.publish(self.master.detach())
        dist.all_reduce(before)
        return float(before.sqrt())


def worker(rank, world, port, args):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    model = DraftHead()
    stream = TokenStream(100 + rank)
    backend = ShardedBackend(model, world, rank)
    optimizer = MasterOptimizer(backend, args)
    worst, mean_ratio = 0.0, 0.0
    for step in range(args.steps):
        x, y = stream.batch(args.batch_size)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        model.zero_grad(set_to_none=True)
        loss.backward()
        lr_scale = min(1.0, (step + 1) / 10) * (1 - 0.9 * step / args.steps)
        norm = optimizer.step(lr_scale)
        if args.prove:
            coefs = [torch.zeros(1) for _ in range(world)]
            dist.all_gather(coefs, torch.tensor([optimizer.applied]))
            want = min(1.0, args.max_grad_norm / (norm + 1e-6))
            got = torch.cat(coefs)
            worst = max(worst, float((got / want - 1).abs().max()))
            mean_ratio += float(got[0] / got[1]) / args.steps
        if step % 30 == 0 or step == args.steps - 1:
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            if rank == 0:
                print(
                    f"step {step:4d} loss {mean.item() / world:.4f} grad_norm {norm:.3f}",
                    flush=True,
                )
    if rank == 0:
        with torch.no_grad():
            x, y = TokenStream(999).batch(512)
            out = model(x)
            print(
                f"eval loss {F.cross_entropy(out.flatten(0, 1), y.flatten()).item():.4f} "
                f"accept rate {(out.argmax(-1) == y).float().mean().item():.3f}",
                flush=True,
            )
        if args.prove:
            print(
                f"largest relative gap between applied and expected clip factor: {worst:.4f}; "
                f"mean factor of process 0 over process 1: {mean_ratio:.3f}",
                flush=True,
            )
            print("fault shows:", "yes" if worst > 1e-3 else "no", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=90)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--lr", type=float, default=0.5)
    p.add_argument("--max-grad-norm", type=float, default=0.25)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    args = p.parse_args()
    mp.spawn(worker, args=(2, free_port(), args), nprocs=2, join=True)


if __name__ == "__main__":
    main()
