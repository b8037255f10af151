# SimCLR pretraining on two processes (gloo), random pictures of blobs. Starts its own workers.
import argparse
import json
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD = 2


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--batch_per_proc", type=int, default=32)
    p.add_argument("--temperature", type=float, default=0.2)
    p.add_argument("--lr", type=float, default=0.1)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    return p.parse_args()


def picture_bank(n, seed=0):
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(0, 6, (n,), generator=g)
    yy, xx = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    cx = 3 + 10 * torch.rand(n, 1, 1, generator=g)
    cy = 3 + 10 * torch.rand(n, 1, 1, generator=g)
    width = (1.5 + kind.float() * 0.6).view(-1, 1, 1)
    blob = torch.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / (2 * width**2))
    stripes = torch.sin(xx * (0.4 + 0.25 * kind.view(-1, 1, 1)))
    img = torch.stack([blob, blob * stripes, stripes.expand_as(blob)], 1)
    return img + 0.05 * torch.randn(n, 3, 16, 16, generator=g), kind


def augment(x, g):
    n = x.size(0)
    x = x * (0.6 + 0.8 * torch.rand(n, 3, 1, 1, generator=g))
    flip = torch.rand(n, generator=g) < 0.5
    x = torch.where(flip.view(-1, 1, 1, 1), x.flip(3), x)
    shift = torch.randint(-2, 3, (2,), generator=g).tolist()
    return torch.roll(x, shift, (2, 3)) + 0.1 * torch.randn(x.shape, generator=g)


class Encoder(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1),
            nn.GroupNorm(4, 16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1),
            nn.GroupNorm(4, 32),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )
        self.head = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, dim))

    def forward(self, x):
        return F.normalize(self.head(self.trunk(x)), dim=1)


class GatherLayer(torch.autograd.Function):
    """all_gather whose backward sums what every process owes to our slice"""

    @staticmethod
    def forward(ctx, x):
        out = [torch.zeros_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(out, x.contiguous())
        return torch.cat(out)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad)
        n = grad.size(0) // dist.get_world_size()
        return grad[dist.get_rank() * n : (dist.get_rank() + 1) * n]


@torch.no_grad()
def gather_from_all(x):
    out = [torch.zeros_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(out, x.contiguous())
    return torch.cat(out)


class SimclrInfoNCECriterion(nn.Module):
    def __init__(self, temperature, fixed):
        super().__init__()
        self.t, self.fixed = temperature, fixed

    def forward(self, embedding):
        if self.fixed:
            everything = GatherLayer.apply(embedding)
        else:
            everything = gather_from_all(embedding)
        n = embedding.size(0)
        start = dist.get_rank() * n
        sim = embedding @ everything.t() / self.t
        rows = torch.arange(n)
        sim = sim.masked_fill(F.one_hot(rows + start, everything.size(0)).bool(), -1e9)
        positive = (rows + n // 2) % n + start
        return F.cross_entropy(sim, positive)


def full_batch_gradient(model, x_all, temperature):
    """the same loss on one process that sees the whole batch"""
    emb = model(x_all)
    n = x_all.size(0) // WORLD
    sim = emb @ emb.t() / temperature
    sim = sim.masked_fill(torch.eye(len(emb)).bool(), -1e9)
    idx = torch.arange(len(emb))
    positive = (idx % n + n // 2) % n + (idx // n) * n
    grads = torch.autograd.grad(
        F.cross_entropy(sim, positive), list(model.parameters())
    )
    return torch.cat([g.reshape(-1) for g in grads])


def worker(rank, args, port_file, result_file):
    dist.init_process_group(
        "gloo", init_method=f"file://{port_file}", rank=rank, world_size=WORLD
    )
    torch.set_num_threads(1)
    torch.manual_seed(0)
    images, _ = picture_bank(1024)
    mine = images[rank::WORLD]
    net = Encoder()
    model = DDP(net)
    opt = torch.optim.SGD(
        model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4
    )
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, max(1, args.steps))
    criterion = SimclrInfoNCECriterion(args.temperature, args.fixed)
    g = torch.Generator().manual_seed(100 + rank)
    for step in range(args.steps):
        idx = torch.randint(0, len(mine), (args.batch_per_proc,), generator=g)
        views = torch.cat([augment(mine[idx], g), augment(mine[idx], g)])
        loss = criterion(model(views))
        opt.zero_grad()
        loss.backward()
        if args.prove and step == args.steps - 1:
            used = torch.cat([p.grad.reshape(-1) for p in net.parameters()]).clone()
            expected = full_batch_gradient(
                net, gather_from_all(views), args.temperature
            )
            gap = ((used - expected).norm() / expected.norm()).item()
        opt.step()
        sched.step()
        if rank == 0 and (step % 10 == 0 or step == args.steps - 1):
            print(
                f"[{step:3d}] loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.4f}",
                flush=True,
            )
    if rank == 0 and args.prove:
        with open(result_file, "w") as f:
            json.dump(gap, f)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    args = parse()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as d:
        mp.spawn(worker, args=(args, d + "/init", d + "/gap.json"), nprocs=WORLD)
        if args.prove:
            gap = json.load(open(d + "/gap.json"))
            print(
                f"gradient differs from that of one process with the whole batch by {gap:.4f}"
            )
            print("fault shows:", "yes" if gap > 0.05 else "no")
