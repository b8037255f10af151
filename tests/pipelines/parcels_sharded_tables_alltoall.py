"""Late-parcel prediction on two ranks: model-parallel tables, data-parallel dense net.

As in DLRM, embedding tables are too large for one rank (we pretend), so each
rank *owns* half of them: the parameters of the ranks differ on purpose, and the
tables are not in DDP. Per step
  ids of my rows  --all_to_all-->  owners look them up for the global batch
  vectors         --all_to_all-->  back to the ranks that own the rows.
The backward of the second exchange sends gradients the other way. DDP averages
the dense gradients over ranks, so table gradients, which sum over both halves
of the global batch, are divided by the world size there. On the first step all
gradients are compared with a single-process reference.
"""
import argparse
import os
import tempfile
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@dataclass
class Config:
    steps: int = 160
    world: int = 2
    tables: tuple = (40, 25, 60, 12)  # depot, courier, postcode, carrier
    dim: int = 8
    dense: int = 5
    local_batch: int = 128
    test_rows: int = 2048  # divides by the world size
    lr_dense: float = 3e-3
    lr_tables: float = 0.1
    seed: int = 113


class Parcels:
    """The same ground truth on all ranks; rows are drawn by (seed, step) for the global batch."""

    def __init__(self, cfg):
        rng = torch.Generator().manual_seed(cfg.seed)
        self.cfg = cfg
        self.effect = [torch.randn(n, generator=rng) for n in cfg.tables]
        self.weight = torch.randn(cfg.dense, generator=rng) / 2

    def rows(self, n, seed):
        rng = torch.Generator().manual_seed(seed)
        ids = torch.stack(
            [torch.randint(size, (n,), generator=rng) for size in self.cfg.tables],
            dim=1,
        )
        x = torch.randn(n, self.cfg.dense, generator=rng)
        e = [effect[ids[:, t]] for t, effect in enumerate(self.effect)]
        logit = 1.5 * (e[0] + e[1] * e[2] + e[3] + x @ self.weight) - 0.5
        late = (torch.rand(n, generator=rng) < torch.sigmoid(logit)).float()
        return ids, x, late


class Exchange(torch.autograd.Function):
    """(world, rows, tables, dim): slab d goes to rank d. Its transpose is the same exchange."""

    @staticmethod
    def forward(ctx, slabs):
        slabs = slabs.contiguous()
        out = torch.empty_like(slabs)
        dist.all_to_all_single(out, slabs)
        return out

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()  # before empty_like, which keeps strides
        out = torch.empty_like(grad)
        dist.all_to_all_single(out, grad)
        return (
            out / dist.get_world_size()
        )  # local losses are means; the global one averages them


class ShardedTables(nn.Module):
    def __init__(self, cfg, rank):
        super().__init__()
        self.per_rank = len(cfg.tables) // cfg.world
        self.owned = range(rank * self.per_rank, (rank + 1) * self.per_rank)
        self.tables = nn.ModuleList()
        for t in self.owned:
            table = nn.Embedding(cfg.tables[t], cfg.dim, sparse=True)
            rng = torch.Generator().manual_seed(
                cfg.seed + 500 + t
            )  # by table, not by rank
            with torch.no_grad():
                table.weight.copy_(0.1 * torch.randn(table.weight.shape, generator=rng))
            self.tables.append(table)

    def forward(self, ids):
        rows, n_tables = ids.shape
        world = dist.get_world_size()
        outgoing = ids.view(rows, world, self.per_rank).transpose(0, 1).contiguous()
        incoming = torch.empty_like(outgoing)
        dist.all_to_all_single(incoming, outgoing)  # (source rank, rows, my tables)
        vectors = torch.stack(
            [table(incoming[..., i]) for i, table in enumerate(self.tables)], dim=2
        )
        mine = Exchange.apply(vectors)  # (owner, my rows, its tables, dim)
        return mine.transpose(0, 1).reshape(rows, n_tables, -1)


class DenseNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        n = len(cfg.tables)
        self.register_buffer(
            "pairs", torch.triu_indices(n, n, offset=1), persistent=False
        )
        self.net = nn.Sequential(
            nn.Linear(n * cfg.dim + cfg.dense + self.pairs.shape[1], 64),
            nn.ReLU(),
            nn.Linear(64, 1),
        )

    def forward(self, vectors, x):
        dots = (vectors[:, self.pairs[0]] * vectors[:, self.pairs[1]]).sum(-1)
        return self.net(torch.cat([vectors.flatten(1), x, dots], dim=1)).squeeze(1)


def gather_rows(tensor):
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor.contiguous())
    return torch.cat(parts)


def check_gradients(cfg, rank, tables, ddp, batch):
    """What one process with all tables would get from the global batch."""
    ids, x, late = (gather_rows(t) for t in batch)
    weights = []
    for t, size in enumerate(cfg.tables):
        owner = t // tables.per_rank
        w = (
            tables.tables[t - tables.owned.start].weight.detach().clone()
            if owner == rank
            else torch.empty(size, cfg.dim)
        )
        dist.broadcast(w, src=owner)
        weights.append(w.requires_grad_(True))
    vectors = torch.stack(
        [F.embedding(ids[:, t], w) for t, w in enumerate(weights)], dim=1
    )
    dense = list(ddp.module.parameters())
    loss = F.binary_cross_entropy_with_logits(ddp.module(vectors, x), late)
    wanted = torch.autograd.grad(loss, dense + [weights[t] for t in tables.owned])
    got = [p.grad for p in dense] + [t.weight.grad.to_dense() for t in tables.tables]
    for a, b in zip(got, wanted):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def auc(score, late):
    rank = score.argsort().argsort().double() + 1
    pos = late.sum().double()
    return (
        (rank[late == 1].sum() - pos * (pos + 1) / 2) / (pos * (len(late) - pos))
    ).item()


@torch.no_grad()
def evaluate(cfg, rank, tables, ddp, parcels):
    """Each rank scores its share; both ranks see the same figures of all rows."""
    ddp.eval()
    ids, x, late = (
        t.chunk(cfg.world)[rank] for t in parcels.rows(cfg.test_rows, seed=10**6)
    )
    logits = gather_rows(ddp.module(tables(ids), x))
    late = gather_rows(late)
    ddp.train()
    return F.binary_cross_entropy_with_logits(logits, late).item(), auc(logits, late)


def worker(rank, cfg, folder):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=cfg.world
    )
    torch.manual_seed(cfg.seed)
    parcels, tables, ddp = (
        Parcels(cfg),
        ShardedTables(cfg, rank),
        DistributedDataParallel(DenseNet(cfg)),
    )
    dense_opt = torch.optim.Adam(ddp.parameters(), lr=cfg.lr_dense)
    table_opt = torch.optim.Adagrad(
        tables.parameters(), lr=cfg.lr_tables
    )  # takes sparse gradients
    start = evaluate(cfg, rank, tables, ddp, parcels)
    for step in range(cfg.steps):
        batch = [
            t.chunk(cfg.world)[rank]
            for t in parcels.rows(cfg.local_batch * cfg.world, seed=step)
        ]
        ids, x, late = batch
        loss = F.binary_cross_entropy_with_logits(ddp(tables(ids), x), late)
        dense_opt.zero_grad()
        table_opt.zero_grad()
        loss.backward()
        if step == 0:
            check_gradients(cfg, rank, tables, ddp, batch)
        dense_opt.step()
        table_opt.step()
        if step % 50 == 0 and rank == 0:
            print(f"step {step:4d} loss on rank 0 {loss.item():.4f}", flush=True)
    end = evaluate(cfg, rank, tables, ddp, parcels)
    # Each rank writes the tables that it owns; the dense net is written once.
    torch.save(tables.state_dict(), os.path.join(folder, f"tables_{rank}.pt"))
    if rank == 0:
        torch.save(ddp.module.state_dict(), os.path.join(folder, "dense.pt"))
        print(
            f"test loss {start[0]:.4f} -> {end[0]:.4f}, AUC {start[1]:.3f} -> {end[1]:.3f}",
            flush=True,
        )
    if cfg.steps >= Config.steps:
        assert end[0] < start[0] - 0.1 and end[1] > 0.8
    dist.barrier()
    dist.destroy_process_group()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=Config.steps)
    cfg = Config(steps=ap.parse_args().steps)
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, args=(cfg, folder), nprocs=cfg.world)
        assert {"tables_0.pt", "tables_1.pt", "dense.pt"} <= set(os.listdir(folder))


if __name__ == "__main__":
    main()
