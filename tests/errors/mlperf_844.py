# Rectified-flow training of a small image generator, data parallel over two processes (gloo).
import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SIDE = 8


class BlobImages(Dataset):
    """8x8 pictures with one soft blob; the class fixes the quadrant."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.y = torch.randint(0, 4, (n,), generator=g)
        cx = 2.0 + 4.0 * (self.y % 2) + 0.5 * torch.randn(n, generator=g)
        cy = 2.0 + 4.0 * (self.y // 2) + 0.5 * torch.randn(n, generator=g)
        ii = torch.arange(SIDE).float()
        d2 = (ii[None, None, :] - cx[:, None, None]) ** 2 + (
            ii[None, :, None] - cy[:, None, None]
        ) ** 2
        self.x = (2 * torch.exp(-d2 / 3.0) - 0.3).flatten(1)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class FlowNet(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.cls = nn.Embedding(4, 32)
        self.tproj = nn.Linear(16, 32)
        self.register_buffer("freq", 2.0 ** torch.arange(8) * 3.14159)
        self.inp = nn.Linear(SIDE * SIDE + 64, width)
        self.mid = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.out = nn.Linear(width, SIDE * SIDE)

    def forward(self, x, t, y):
        a = t[:, None] * self.freq
        cond = torch.cat(
            [self.cls(y), self.tproj(torch.cat([a.sin(), a.cos()], 1))], dim=1
        )
        h = F.gelu(self.inp(torch.cat([x, cond], dim=1)))
        for m in self.mid:
            h = h + F.gelu(m(h))
        return self.out(h)


def set_determinism(seed, rank, fixed):
    torch.manual_seed(seed + rank if fixed else seed)


def training_step(model, x, y):
    noise = torch.randn_like(x)
    t = torch.sigmoid(torch.randn(x.shape[0]))
    xt = (1 - t[:, None]) * x + t[:, None] * noise
    pred = model(xt, t, y)
    return F.mse_loss(pred, noise - x), noise, t


@torch.no_grad()
def sample(model, y, steps=20):
    g = torch.Generator().manual_seed(123)
    x = torch.randn(len(y), SIDE * SIDE, generator=g)
    for i in range(steps):
        t = torch.full((len(y),), 1 - i / steps)
        x = x - model(x, t, y) / steps
    return x


@torch.no_grad()
def validation_loss(model, data):
    g = torch.Generator().manual_seed(9)
    total = 0.0
    for _ in range(4):
        noise = torch.randn(data.x.shape, generator=g)
        t = torch.rand(len(data), generator=g)
        xt = (1 - t[:, None]) * data.x + t[:, None] * noise
        total += F.mse_loss(model(xt, t, data.y), noise - data.x).item()
    return total / 4


def fingerprint(*tensors):
    return torch.cat([v.flatten()[:32].double() for v in tensors])


# size: the whole run in one place, read from top to bottom
def worker(rank, world, port, args):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    set_determinism(args.seed, rank, args.fixed)

    train = BlobImages(1024, args.seed + 50)
    sampler = DistributedSampler(
        train, num_replicas=world, rank=rank, shuffle=True, seed=args.seed
    )
    loader = DataLoader(train, batch_size=args.batch, sampler=sampler, drop_last=True)
    model = DDP(FlowNet())
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)
    same_draws, same_images, step, epoch = 0, 0, 0, 0

    while step < args.steps:
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss, noise, t = training_step(model, x, y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            if args.prove:
                for kind, mine in (
                    ("draws", fingerprint(noise, t)),
                    ("images", fingerprint(x)),
                ):
                    all_ranks = [torch.empty_like(mine) for _ in range(world)]
                    dist.all_gather(all_ranks, mine)
                    hit = int(torch.equal(all_ranks[0], all_ranks[1]))
                    if kind == "draws":
                        same_draws += hit
                    else:
                        same_images += hit
            if step % 30 == 0 or step == args.steps - 1:
                mean = loss.detach().clone()
                dist.all_reduce(mean)
                if rank == 0:
                    print(
                        f"step {step:4d} | loss {mean.item() / world:.4f}", flush=True
                    )
            step += 1
            if step >= args.steps:
                break
        epoch += 1

    if rank == 0:
        held = BlobImages(256, args.seed + 51)
        print(f"validation loss {validation_loss(model.module, held):.4f}")
        pics = sample(model.module, held.y)
        far = torch.cdist(pics, held.x).min(dim=1).values.mean().item()
        print(f"mean distance of a sample to its nearest held-out picture {far:.3f}")
        if args.prove:
            print(
                f"steps in which both processes used the same noise and times: {same_draws} of {step}"
            )
            print(
                f"steps in which both processes used the same pictures: {same_images} of {step}"
            )
            print("fault shows: " + ("yes" if same_draws > 0 else "no"), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    cli = ap.parse_args()
    mp.spawn(worker, args=(2, free_port(), cli), nprocs=2, join=True)
