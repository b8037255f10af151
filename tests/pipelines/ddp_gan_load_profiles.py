"""A GAN draws daily load profiles of shops; generator and critic are two DDP models on
two ranks. The critic is called twice before its one backward. The generator's batch
normalisation takes its statistics over both ranks, by hand, and uses those of the
batch for sampling too.

    python ddp_gan_load_profiles.py --steps 240
"""

import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

HOURS, NOISE = 24, 8


class MeanOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x / dist.get_world_size()

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad / dist.get_world_size()


class BatchNormOverRanks(nn.Module):
    """Normalises by the batch of all ranks and keeps no running statistics."""

    def __init__(self, features, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x):
        moments = torch.stack([x.mean(0), x.square().mean(0)])
        mean, square = MeanOverRanks.apply(moments)
        var = (square - mean.square()).clamp_min(0.0)
        return (x - mean) * torch.rsqrt(var + self.eps) * self.weight + self.bias


def generator_net(width=48):
    return nn.Sequential(
        nn.Linear(NOISE, width),
        BatchNormOverRanks(width),
        nn.ReLU(),
        nn.Linear(width, width),
        BatchNormOverRanks(width),
        nn.ReLU(),
        nn.Linear(width, HOURS),
    )


def critic_net(width=48):
    return nn.Sequential(
        nn.Linear(HOURS, width),
        nn.LeakyReLU(0.2),
        nn.Linear(width, width),
        nn.LeakyReLU(0.2),
        nn.Linear(width, 1),
    )


def profiles(count, g):
    """Opening and closing hours differ, and so does the height of the plateau."""
    hour = torch.arange(HOURS).float()
    opens = 8 + torch.randn(count, 1, generator=g)
    closes = 19 + 1.5 * torch.randn(count, 1, generator=g)
    level = 1 + 0.3 * torch.randn(count, 1, generator=g)
    day = torch.sigmoid(1.5 * (hour - opens)) * torch.sigmoid(1.5 * (closes - hour))
    return level * day + 0.05 * torch.randn(count, HOURS, generator=g)


def critic_step(critic, generator, optimizer, real, sigma):
    with torch.no_grad():
        fake = generator(torch.randn(len(real), NOISE))
    # Noise on both sides keeps the critic from winning by the smallest details.
    on_real = critic(real + sigma * torch.randn_like(real))
    on_fake = critic(fake + sigma * torch.randn_like(fake))
    loss = F.softplus(-on_real).mean() + F.softplus(on_fake).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def generator_step(critic, generator, optimizer, count, sigma):
    # The bare critic: its own gradients are not wanted here, so nothing is reduced.
    critic.module.requires_grad_(False)
    fake = generator(torch.randn(count, NOISE))
    loss = F.softplus(-critic.module(fake + sigma * torch.randn_like(fake))).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    critic.module.requires_grad_(True)
    return loss.item()


@torch.no_grad()
def distance(generator, g):
    """Distance of mean profiles and of covariances, relative to those of the data."""
    real, fake = profiles(2000, g), generator(torch.randn(2000, NOISE))
    mean = (real.mean(0) - fake.mean(0)).norm() / real.mean(0).norm()
    cov = torch.cov(real.T) - torch.cov(fake.T)
    return mean.item(), (cov.norm() / torch.cov(real.T).norm()).item()


def worker(rank, world, port, args):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(args.seed)
    generator, critic = DDP(generator_net()), DDP(critic_net())
    betas = (0.0, 0.99)
    gen_opt = torch.optim.Adam(generator.parameters(), lr=args.lr, betas=betas)
    critic_opt = torch.optim.Adam(critic.parameters(), lr=2 * args.lr, betas=betas)
    # Same weights on both ranks, but each draws shops and noise of its own.
    torch.manual_seed(args.seed + 100 * (rank + 1))
    g = torch.Generator().manual_seed(args.seed + 7 * (rank + 1))

    for step in range(args.steps):
        real = profiles(args.batch_size, g)
        critic_loss = critic_step(critic, generator, critic_opt, real, args.noise)
        gen_loss = generator_step(critic, generator, gen_opt, len(real), args.noise)
        if rank == 0 and step % 10 == 0:
            print(
                f"step {step} critic {critic_loss:.6f} generator {gen_loss:.6f}",
                flush=True,
            )
        if (step + 1) % 100 == 0 or step + 1 == args.steps:
            # Both ranks sample, since normalisation waits for both.
            mean, cov = distance(generator, g)
            if rank == 0:
                print(
                    f"  means differ by {mean:.3f}, covariances by {cov:.3f}",
                    flush=True,
                )
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--batch-size", type=int, default=64, help="of each rank")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--noise", type=float, default=0.15)
    parser.add_argument("--seed", type=int, default=17)
    args = parser.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, args=(2, port, args), nprocs=2)
