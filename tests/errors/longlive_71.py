"""Two ranks train a denoiser of latents of clips, data parallel.

After NVlabs/LongLive, issue 71.
"""

import argparse
import os
import socket
import tempfile
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


@dataclass
class Config:
    n_clips: int = 640
    n_val: int = 128
    frames: int = 8
    latent: int = 6
    prompts: int = 16
    hidden: int = 72
    batch_size: int = 16
    epochs: int = 4
    lr: float = 2e-3
    seed: int = 31
    started_at: int = 1783987200


class ClipLatents(Dataset):
    def __init__(self, n, cfg, seed):
        g = torch.Generator().manual_seed(seed)
        wg = torch.Generator().manual_seed(7)
        base = torch.randn(cfg.prompts, cfg.latent, generator=wg)
        speed = torch.randn(cfg.prompts, cfg.latent, generator=wg) * 0.6
        self.prompt = torch.randint(0, cfg.prompts, (n,), generator=g)
        phase = torch.rand(n, 1, 1, generator=g) * 2
        t = torch.arange(cfg.frames).view(1, -1, 1) * 0.4 + phase
        clean = torch.sin(base[self.prompt][:, None] + speed[self.prompt][:, None] * t)
        self.x = clean + 0.03 * torch.randn(clean.shape, generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.prompt[i], i


class Denoiser(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.inp = nn.Linear(cfg.latent, cfg.hidden)
        self.cond = nn.Embedding(cfg.prompts, cfg.hidden)
        self.time = nn.Sequential(
            nn.Linear(1, cfg.hidden), nn.SiLU(), nn.Linear(cfg.hidden, cfg.hidden)
        )
        self.rnn = nn.GRU(cfg.hidden, cfg.hidden, batch_first=True)
        self.out = nn.Linear(cfg.hidden, cfg.latent)

    def forward(self, x, prompt, sigma):
        h = (
            self.inp(x)
            + self.cond(prompt)[:, None]
            + self.time(sigma[:, None])[:, None]
        )
        h, _ = self.rnn(F.silu(h))
        return self.out(h)


def denoise_loss(model, x, prompt, generator=None):
    sigma = torch.rand(len(x), generator=generator)
    noise = torch.randn(x.shape, generator=generator)
    s = sigma.view(-1, 1, 1)
    return F.mse_loss(model((1 - s) * x + s * noise, prompt, sigma), noise - x)


@torch.no_grad()
def validate(model, data):
    model.eval()
    g = torch.Generator().manual_seed(0)
    loss = denoise_loss(model, data.x, data.prompt, g).item()
    model.train()
    return loss


def sampler_seed_stamp(cfg, rank):
    return cfg.started_at * rank


def sampler_seed_shared(cfg, rank):
    return cfg.seed


def worker(rank, world, port, cfg, sampler_seed, out_path):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(cfg.seed + rank)
    train_set = ClipLatents(cfg.n_clips, cfg, 100)
    val_set = ClipLatents(cfg.n_val, cfg, 200)
    sampler = DistributedSampler(
        train_set,
        num_replicas=world,
        rank=rank,
        shuffle=True,
        seed=sampler_seed(cfg, rank),
        drop_last=True,
    )
    loader = DataLoader(train_set, cfg.batch_size, sampler=sampler, drop_last=True)
    model = DDP(Denoiser(cfg))
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, cfg.epochs * len(loader))
    visits = torch.zeros(cfg.epochs, cfg.n_clips)
    for epoch in range(cfg.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(1)
        for x, prompt, idx in loader:
            visits[epoch, idx] += 1
            opt.zero_grad(set_to_none=True)
            loss = denoise_loss(model, x, prompt)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            total += loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            val = validate(model.module, val_set)
            mean = total.item() / world / len(loader)
            print(f"epoch {epoch} train {mean:.4f} val {val:.4f}", flush=True)
        dist.barrier()
    dist.all_reduce(visits)
    if rank == 0:
        torch.save({"model": model.module.state_dict(), "visits": visits}, out_path)
    dist.barrier()
    dist.destroy_process_group()


def train(cfg, sampler_seed):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "last.pt")
        mp.spawn(worker, args=(2, port, cfg, sampler_seed, path), nprocs=2)
        visits = torch.load(path)["visits"]
    return (visits > 0).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=Config.seed)
    parser.add_argument("--epochs", type=int, default=Config.epochs)
    parser.add_argument("--lr", type=float, default=Config.lr)
    args = parser.parse_args()
    cfg = Config(seed=args.seed, epochs=args.epochs, lr=args.lr)
    visited = train(cfg, sampler_seed_shared if args.fixed else sampler_seed_stamp)
    if args.prove:
        print(f"{visited:.1%} of the clips are visited in an epoch")
        print("fault shows:", "yes" if visited < 1 else "no", flush=True)


if __name__ == "__main__":
    main()
