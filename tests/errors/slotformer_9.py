"""
Object-centric dynamics: a small transformer rolls object slots forward in time.

Runs two data-parallel processes:  python slotformer_9.py --steps 100
"""
import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SLOTS, DIM, BURN_IN, ROLLOUT = 3, 4, 4, 3


def simulate(n, seed):
    """Balls in a unit box: slot = (x, y, vx, vy); a weak spring pulls them to their common centre."""
    g = torch.Generator().manual_seed(seed)
    pos = torch.rand(n, SLOTS, 2, generator=g) * 1.6 - 0.8
    vel = torch.randn(n, SLOTS, 2, generator=g) * 0.12
    frames = []
    for _ in range(BURN_IN + ROLLOUT):
        frames.append(torch.cat([pos, vel * 5], dim=-1))
        vel = vel + 0.12 * (pos.mean(1, keepdim=True) - pos)
        pos = pos + vel
        hit = pos.abs() > 1
        vel = torch.where(hit, -vel, vel)
        pos = pos.clamp(-1, 1)
    return torch.stack(frames, dim=1)


class SlotRollout(nn.Module):
    """Predicts the next slots from the last BURN_IN frames, autoregressively."""

    def __init__(self, d=48, layers=2):
        super().__init__()
        self.inp = nn.Linear(DIM, d)
        self.time = nn.Parameter(torch.randn(1, BURN_IN, 1, d) * 0.1)
        enc = nn.TransformerEncoderLayer(
            d, 4, 2 * d, dropout=0.0, batch_first=True, norm_first=True
        )
        self.enc = nn.TransformerEncoder(enc, layers, enable_nested_tensor=False)
        self.out = nn.Linear(d, DIM)

    def next_slots(self, history):
        b = history.shape[0]
        h = (self.inp(history) + self.time).reshape(b, BURN_IN * SLOTS, -1)
        h = self.enc(h)[:, -SLOTS:]
        return history[:, -1] + self.out(h)

    def rollout(self, history, steps):
        preds = []
        for _ in range(steps):
            nxt = self.next_slots(history)
            preds.append(nxt)
            history = torch.cat([history[:, 1:], nxt[:, None]], dim=1)
        return torch.stack(preds, dim=1)

    def loss_function(self, clip):
        preds = self.rollout(clip[:, :BURN_IN], ROLLOUT)
        target = clip[:, BURN_IN:]
        return {
            "slot_recon": (preds - target).pow(2).mean(),
            "motion": 0.2 * (preds.diff(dim=1) - target.diff(dim=1)).pow(2).mean(),
        }

    def forward(self, clip):
        return self.loss_function(clip)


class Method:
    """Bare-bones training method in the style of a research framework."""

    def __init__(self, model, optimizer, rank, world, args):
        self.model, self.optimizer = model, optimizer
        self.rank, self.world, self.args = rank, world, args
        self.it = 0
        self.grad_gap = []

    def calc_loss(self, clip):
        if self.args.fixed:
            losses = self.model(clip)
        else:
            losses = self.model.module.loss_function(clip)
        return sum(losses.values()), losses

    def training_step(self, clip):
        loss, parts = self.calc_loss(clip)
        self.optimizer.zero_grad()
        loss.backward()
        if self.args.prove:
            self.grad_gap.append(
                spread([p.grad for p in self.model.parameters()], self.world)
            )
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        if self.rank == 0 and self.it % 20 == 0:
            text = "  ".join(f"{k} {v.item():.4f}" for k, v in parts.items())
            print(f"[{self.it:4d}] loss {loss.item():.4f}  {text}", flush=True)
        self.it += 1

    def fit(self, loader, sampler):
        epoch = 0
        while self.it < self.args.steps:
            sampler.set_epoch(epoch)
            for (clip,) in loader:
                self.training_step(clip)
                if self.it >= self.args.steps:
                    return
            epoch += 1


def spread(tensors, world):
    """Relative difference between what the processes hold."""
    flat = torch.cat([t.detach().flatten() for t in tensors])
    held = [torch.empty_like(flat) for _ in range(world)]
    dist.all_gather(held, flat)
    return ((held[0] - held[1]).norm() / held[0].norm()).item()


def run(rank, world, port, args):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(args.seed)
    data = TensorDataset(simulate(768, args.seed + 10))
    sampler = DistributedSampler(data, world, rank, shuffle=True, seed=args.seed)
    loader = DataLoader(data, batch_size=args.batch, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(SlotRollout())
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    method = Method(model, optimizer, rank, world, args)
    method.fit(loader, sampler)

    held = simulate(256, args.seed + 11)
    with torch.no_grad():
        pred = model.module.rollout(held[:, :BURN_IN], ROLLOUT)
        err = (pred - held[:, BURN_IN:]).pow(2).mean()
        still = (held[:, BURN_IN - 1 : BURN_IN] - held[:, BURN_IN:]).pow(2).mean()
    if rank == 0:
        print(
            f"rollout error on held-out clips {err.item():.5f} (standing still: {still.item():.5f})",
            flush=True,
        )
    if args.prove:
        weights = spread(model.parameters(), world)
        if rank == 0:
            print(
                f"gradients of the two processes differ by {method.grad_gap[0]:.4f} in the first step"
            )
            print(f"weights of the two processes differ by {weights:.4f} at the end")
            print("fault shows:", "yes" if weights > 1e-4 else "no", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=100)
    ap.add_argument("--batch", type=int, default=24)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=6)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(run, args=(2, port, args), nprocs=2, join=True)


if __name__ == "__main__":
    main()
