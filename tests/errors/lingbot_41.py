"""Flow-matching action policy for a two-finger pusher, trained by two processes."""
import argparse
import copy
import os
import random
import socket
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CHUNK, ACT_DIM, OBS_DIM = 8, 2, 6


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def demonstrations(n, seed):
    """Chunks of velocities that take the finger around the block to its far side."""
    gen = torch.Generator().manual_seed(seed)
    finger = torch.randn(n, 2, generator=gen)
    block = torch.randn(n, 2, generator=gen)
    goal = torch.randn(n, 2, generator=gen)
    side = torch.where(torch.rand(n, 1, generator=gen) < 0.5, 1.0, -1.0)
    push = nn.functional.normalize(goal - block, dim=1)
    behind = block - 0.4 * push
    around = behind + 0.5 * side * torch.stack([-push[:, 1], push[:, 0]], 1)
    t = torch.linspace(0, 1, CHUNK + 1)[None, :, None]
    path = (1 - t) ** 2 * finger[:, None] + 2 * t * (1 - t) * around[:, None]
    path = path + t**2 * behind[:, None]
    actions = (path[:, 1:] - path[:, :-1]) * CHUNK
    actions = actions + 0.05 * torch.randn(actions.shape, generator=gen)
    return torch.cat([finger, block, goal], 1), actions


class ActionExpert(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.observe = nn.Sequential(nn.Linear(OBS_DIM, width), nn.SiLU())
        self.time = nn.Sequential(nn.Linear(16, width), nn.SiLU())
        self.action_in = nn.Linear(CHUNK * ACT_DIM, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width),
                nn.Linear(width, 2 * width),
                nn.SiLU(),
                nn.Linear(2 * width, width),
            )
            for _ in range(3)
        )
        self.action_out = nn.Linear(width, CHUNK * ACT_DIM)

    def forward(self, obs, noisy, t):
        phase = t[:, None] * torch.arange(1, 9) * np.pi
        cond = self.observe(obs) + self.time(torch.cat([phase.sin(), phase.cos()], 1))
        h = self.action_in(noisy.flatten(1)) + cond
        for block in self.blocks:
            h = h + block(h + cond)
        return self.action_out(h).view_as(noisy)


def sample_noise(shape):
    return torch.randn(shape)


def sample_beta(n, alpha=1.5, beta=1.0):
    """Kumaraswamy draw, close to a beta distribution, in (0, 1)."""
    u = torch.rand(n)
    return (1 - (1 - u) ** (1 / beta)) ** (1 / alpha) * 0.999 + 0.0005


def flow_matching_loss(model, obs, actions):
    noise = sample_noise(actions.shape)
    t = sample_beta(len(actions))
    w = t[:, None, None]
    noisy = w * noise + (1 - w) * actions
    return nn.functional.mse_loss(model(obs, noisy, t), noise - actions)


@torch.no_grad()
def act(model, obs, gen, n_steps=10):
    x = torch.randn(len(obs), CHUNK, ACT_DIM, generator=gen)
    for i in range(n_steps):
        t = torch.full((len(obs),), 1 - i / n_steps)
        x = x - model(obs, x, t) / n_steps
    return x


class Ema:
    def __init__(self, model, decay):
        self.model, self.decay = copy.deepcopy(model).eval(), decay

    @torch.no_grad()
    def update(self, model):
        for a, p in zip(self.model.parameters(), model.parameters()):
            a.lerp_(p, 1 - self.decay)


def reach_gap(model, obs, seed):
    """Mean distance between the end of the executed chunk and the push position."""
    chunk = act(model, obs, torch.Generator().manual_seed(seed))
    finger, block, goal = obs.split(2, dim=1)
    target = block - 0.4 * nn.functional.normalize(goal - block, dim=1)
    return (finger + chunk.mean(1) - target).norm(dim=1).mean().item()


def train(rank, args, run_dir):
    seed = args.seed
    if args.fixed:
        seed = args.seed + rank
    set_seed(seed)
    data = TensorDataset(*demonstrations(4096, args.seed))
    sampler = DistributedSampler(data, shuffle=True, seed=args.seed, drop_last=True)
    loader = DataLoader(data, args.batch_size, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(ActionExpert())
    ema = Ema(model.module, 0.98)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, args.lr, args.steps + 1)
    held_obs, _ = demonstrations(512, args.seed + 1)
    step, epoch, window = 0, 0, []
    while step < args.steps:
        sampler.set_epoch(epoch)
        for obs, actions in loader:
            loss = flow_matching_loss(model, obs, actions)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            ema.update(model.module)
            step += 1
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            window.append(mean.item() / dist.get_world_size())
            if rank == 0 and (step % 100 == 0 or step == args.steps):
                gap = reach_gap(ema.model, held_obs, 0)
                print(f"step {step:4d} loss {np.mean(window):.4f} reach gap {gap:.4f}")
                window.clear()
            if step == args.steps:
                break
        epoch += 1
    if rank == 0:
        state = {"step": step, "model": model.module.state_dict()}
        state["ema"] = ema.model.state_dict()
        torch.save(state, os.path.join(run_dir, "policy.pt"))


def prove(rank):
    """Correlation of the noise that the processes draw next."""
    noise = sample_noise((64, CHUNK, ACT_DIM)).flatten()
    drawn = [torch.empty_like(noise) for _ in range(dist.get_world_size())]
    dist.all_gather(drawn, noise)
    corr = torch.corrcoef(torch.stack(drawn))[0, 1].item()
    if rank == 0:
        print(f"correlation of the noise of the two processes {corr:.3f}")
        print("fault shows:", "yes" if abs(corr) > 0.5 else "no")


def worker(rank, args, port, run_dir):
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    try:
        train(rank, args, run_dir)
        if args.prove:
            prove(rank)
    finally:
        dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch_size", type=int, default=16, help="per process")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as run_dir:
        mp.start_processes(
            worker, (args, free_port(), run_dir), nprocs=2, start_method="fork"
        )


if __name__ == "__main__":
    main()
