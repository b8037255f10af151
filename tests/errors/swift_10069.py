"""Two-process training of a sentence embedder with in-batch InfoNCE over gathered embeddings."""
import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

TOPICS, VOCAB, LEN = 40, 160, 12


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--batch", type=int, default=8, help="groups per process")
    p.add_argument("--dim", type=int, default=32)
    p.add_argument("--lr", type=float, default=5e-3)
    p.add_argument("--tau", type=float, default=0.1)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    return p.parse_args()


class Texts:
    """Bags of tokens; a topic owns some tokens, the rest of a text is filler."""

    def __init__(self, seed):
        g = torch.Generator().manual_seed(seed)
        self.words = torch.stack(
            [torch.randperm(VOCAB, generator=g)[:5] for _ in range(TOPICS)]
        )

    def text(self, topics, g):
        own = self.words[topics][:, torch.randint(0, 5, (LEN,), generator=g)]
        noise = torch.randint(0, VOCAB, (len(topics), LEN), generator=g)
        return torch.where(torch.rand(len(topics), LEN, generator=g) < 0.45, own, noise)

    def groups(self, n, g):
        """Rows [query, positive, negative, ...] group after group, and 1 where a group begins."""
        order = torch.randperm(TOPICS, generator=g)
        rows, starts = [], []
        for i in range(n):
            n_neg = int(torch.randint(1, 4, (1,), generator=g))
            others = order[n:][torch.randperm(TOPICS - n, generator=g)[:n_neg]]
            rows.append(torch.cat([order[i : i + 1].repeat(2), others]))
            starts.append(torch.tensor([1] + [0] * (1 + n_neg)))
        topics = torch.cat(rows)
        return self.text(topics, g), torch.cat(starts)


class Embedder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.emb = nn.EmbeddingBag(VOCAB, dim, mode="mean")
        self.mlp = nn.Sequential(nn.Linear(dim, 64), nn.GELU(), nn.Linear(64, dim))

    def forward(self, ids):
        return F.normalize(self.mlp(self.emb(ids)), dim=-1)


def gather_rows(x, keep_local=True):
    """Concatenate a tensor with differing first dimension over processes, in rank order."""
    n = torch.tensor([x.size(0)])
    sizes = [torch.zeros_like(n) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, n)
    top = int(max(sizes))
    padded = torch.zeros(top, *x.shape[1:], dtype=x.dtype)
    padded[: x.size(0)] = x.detach()
    parts = [torch.zeros_like(padded) for _ in sizes]
    dist.all_gather(parts, padded)
    parts = [p[: int(s)] for p, s in zip(parts, sizes)]
    if keep_local:
        parts[dist.get_rank()] = x
    return torch.cat(parts)


def infonce(emb, starts, tau):
    """In-batch InfoNCE: a query against the positives and negatives of every group."""
    bounds = starts.nonzero().squeeze(1)[1:].tolist()
    groups = torch.tensor_split(emb, bounds)
    queries = torch.stack([g[0] for g in groups])
    docs = torch.cat([g[1:] for g in groups])
    sizes = torch.tensor([len(g) - 1 for g in groups])
    target = sizes.cumsum(0) - sizes
    return F.cross_entropy(queries @ docs.T / tau, target), len(groups)


def train_loss(model, ids, starts, args):
    emb = gather_rows(model(ids))
    if args.fixed:
        starts = gather_rows(starts, keep_local=False)
    return infonce(emb, starts, args.tau)


def recall(model, texts, seed):
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        topics = torch.arange(TOPICS).repeat(4)
        q, d = model(texts.text(topics, g)), model(texts.text(torch.arange(TOPICS), g))
    return ((q @ d.T).argmax(1) == topics).float().mean().item()


def worker(rank, world, port, args):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.set_num_threads(1)
    torch.manual_seed(7)
    texts, model = Texts(1), Embedder(args.dim)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    g = torch.Generator().manual_seed(100 + rank)
    worst, seen = 0.0, set()

    for step in range(args.steps):
        ids, starts = texts.groups(args.batch, g)
        loss, n_groups = train_loss(model, ids, starts, args)
        opt.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        if args.prove:
            all_ids, all_starts = gather_rows(ids, False), gather_rows(starts, False)
            with torch.no_grad():
                want, n_want = infonce(model(all_ids), all_starts, args.tau)
            worst = max(worst, abs(want.item() - loss.item()))
            seen.add((n_groups, n_want))
        opt.step()
        mean_loss = loss.detach().clone()
        dist.all_reduce(mean_loss)
        if rank == 0 and (step % 10 == 0 or step == args.steps - 1):
            print(f"step {step:3d}  loss {mean_loss.item() / world:.4f}", flush=True)

    if rank == 0:
        print(f"recall@1 over {TOPICS} topics: {recall(model, texts, 55):.3f}")
    stats = torch.tensor([worst])
    dist.all_reduce(stats, op=dist.ReduceOp.MAX)
    if rank == 0 and args.prove:
        print(
            f"groups in the loss vs groups in the global batch: {sorted(seen)}; "
            f"largest loss difference {stats.item():.4f}"
        )
        print("fault shows:", "yes" if stats.item() > 1e-4 else "no")
    dist.destroy_process_group()


if __name__ == "__main__":
    args = get_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        free = s.getsockname()[1]
    mp.spawn(worker, args=(2, free, args), nprocs=2)
