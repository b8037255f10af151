"""Two-process CLIP pre-training on toy picture/caption pairs (gloo, CPU)."""
import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD = 2
VOCAB, LENGTH = 32, 6


# ---------------------------------------------------------------- data
def make_pairs(n, seed):
    gen = torch.Generator().manual_seed(seed)
    attrs = torch.randint(0, 5, (n, 4), generator=gen)
    basis = torch.randn(4, 5, 3 * 8 * 8, generator=torch.Generator().manual_seed(77))
    pix = sum(basis[k][attrs[:, k]] for k in range(4)) * 0.5
    pix = pix + 0.4 * torch.randn(pix.shape, generator=gen)
    words = attrs + 1 + 5 * torch.arange(4)
    noise = torch.randint(22, VOCAB, (n, 2), generator=gen)
    tokens = torch.cat([words, noise], 1)
    perm = torch.rand(n, LENGTH, generator=gen).argsort(1)
    return pix.view(n, 3, 8, 8), tokens.gather(1, perm)


# ---------------------------------------------------------------- model
class ImageTower(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1),
            nn.GELU(),
            nn.Conv2d(32, 32, 2, stride=2),
            nn.GELU(),
            nn.Flatten(),
            nn.Linear(512, 128),
            nn.GELU(),
            nn.Linear(128, dim),
        )

    def forward(self, x):
        return self.net(x)


class TextTower(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.out = nn.Linear(64, dim)

    def forward(self, ids):
        return self.out(self.enc(self.emb(ids)).mean(1))


class CLIP(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.visual, self.textual = ImageTower(dim), TextTower(dim)
        self.logit_scale = nn.Parameter(torch.tensor(2.3))

    def forward(self, image, ids):
        img = F.normalize(self.visual(image), dim=-1)
        txt = F.normalize(self.textual(ids), dim=-1)
        return img, txt, self.logit_scale.clamp(max=4.6).exp()


# ---------------------------------------------------------------- loss
def is_distributed():
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor):
        parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, tensor.contiguous())
        return tuple(parts)

    @staticmethod
    def backward(ctx, *grads):
        stacked = torch.stack(grads)
        dist.all_reduce(stacked)
        return stacked[dist.get_rank()]


def all_gather(tensor, fixed=False):
    if is_distributed():
        parts = _Gather.apply(tensor)
        if fixed:
            return parts
    return (tensor,)


class CLIPLoss(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.fixed = fixed

    def forward(self, img, txt, scale):
        img = torch.cat(all_gather(img, self.fixed), 0)
        txt = torch.cat(all_gather(txt, self.fixed), 0)
        logits = scale * img @ txt.t()
        targets = torch.arange(len(logits), device=logits.device)
        return 0.5 * (
            F.cross_entropy(logits, targets) + F.cross_entropy(logits.t(), targets)
        )


# ---------------------------------------------------------------- evaluation
@torch.no_grad()
def retrieval(model, images, ids):
    model.eval()
    img, txt, _ = model(images, ids)
    sim = img @ txt.t()
    truth = torch.arange(len(sim))
    rank = (sim > sim[truth, truth][:, None]).sum(1)
    model.train()
    return (rank == 0).float().mean().item(), (rank < 5).float().mean().item()


@torch.no_grad()
def global_reference(img, txt, scale):
    imgs = [torch.empty_like(img) for _ in range(WORLD)]
    txts = [torch.empty_like(txt) for _ in range(WORLD)]
    dist.all_gather(imgs, img.contiguous())
    dist.all_gather(txts, txt.contiguous())
    logits = scale * torch.cat(imgs) @ torch.cat(txts).t()
    t = torch.arange(len(logits))
    return 0.5 * (F.cross_entropy(logits, t) + F.cross_entropy(logits.t(), t))


def worker(rank, port, args):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    torch.manual_seed(0)
    images, ids = make_pairs(768, 1)
    vimages, vids = make_pairs(200, 2)
    model = DDP(CLIP())
    criterion = CLIPLoss(args.fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, args.lr, total_steps=args.steps, pct_start=0.2
    )
    shuffle = torch.Generator().manual_seed(9)

    for step in range(args.steps):
        pick = torch.randperm(len(images), generator=shuffle)[: args.batch * WORLD]
        mine = pick[rank::WORLD]
        loss = criterion(*model(images[mine], ids[mine]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if rank == 0 and (step % 20 == 0 or step == args.steps - 1):
            print(
                f"step {step:3d} loss {loss.item():.4f} scale {model.module.logit_scale.exp().item():.2f}",
                flush=True,
            )

    if rank == 0:
        r1, r5 = retrieval(model.module, vimages, vids)
        print(
            f"image->text retrieval on 200 pairs: R@1 {r1:.3f} R@5 {r5:.3f}", flush=True
        )
    if args.prove:
        mine = torch.arange(args.batch * WORLD)[rank::WORLD]
        with torch.no_grad():
            out = model.module(vimages[mine], vids[mine])
            got = criterion(*out).item()
        want = global_reference(*out).item()
        if rank == 0:
            print(
                f"criterion {got:.4f}, over the whole batch of {args.batch * WORLD} pairs {want:.4f}"
            )
            print(
                "fault shows:",
                "yes" if abs(got - want) > 1e-4 * max(1.0, want) else "no",
                flush=True,
            )
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=16, help="pairs per process")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    mp.spawn(worker, args=(free_port(), parser.parse_args()), nprocs=WORLD)
