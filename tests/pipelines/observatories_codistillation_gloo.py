"""Two observatories classify variable stars without sharing their light curves.

Online codistillation (Anil et al., 2018) over two gloo processes. Each site trains its
own network on its own archive; every few steps the sites swap weights, and a site uses
the last weights of the other one as a frozen teacher. Gradients are never averaged and
the two networks start and stay different.
"""

import argparse
import copy
import os
import tempfile
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils.data import DataLoader, TensorDataset

KINDS = ["eclipsing", "cepheid", "rr_lyrae", "rotator", "constant"]
POINTS = 64


def light_curve(kind, dirt, rng):
    phase = np.linspace(0, 1, POINTS, endpoint=False)
    shift = rng.uniform(0, 1)
    p = (phase + shift) % 1.0
    depth = rng.uniform(0.5, 1.0)
    if kind == 0:
        curve = -depth * np.exp(-((p - 0.5) ** 2) / 0.003)
        curve -= 0.5 * depth * np.exp(-((p - 0.05) ** 2) / 0.003)
    elif kind == 1:
        curve = depth * np.where(p < 0.3, p / 0.3, (1 - p) / 0.7) - 0.5 * depth
    elif kind == 2:
        curve = depth * (np.exp(-5 * p) - 0.2)
    elif kind == 3:
        curve = 0.5 * depth * np.sin(2 * np.pi * p)
    else:
        curve = np.zeros(POINTS)
    return curve + rng.normal(0, dirt, POINTS)


def observe(count, prior, dirt, rng):
    kinds = rng.choice(len(KINDS), size=count, p=prior)
    curves = np.stack([light_curve(k, dirt, rng) for k in kinds])
    return torch.tensor(curves[:, None], dtype=torch.float32), torch.tensor(kinds)


class CurveNet(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, width, 7, padding=3, padding_mode="circular"),
            nn.GELU(),
            nn.AvgPool1d(2),
            nn.Conv1d(width, 2 * width, 5, padding=2, padding_mode="circular"),
            nn.GELU(),
            nn.AdaptiveMaxPool1d(4),
            nn.Flatten(),
        )
        self.head = nn.Linear(8 * width, len(KINDS))

    def forward(self, curves):
        return self.head(self.body(curves))


class Site:
    priors = ([0.3, 0.3, 0.15, 0.15, 0.1], [0.1, 0.15, 0.3, 0.2, 0.25])
    dirt = (0.16, 0.22)

    def __init__(self, rank, args):
        self.rank, self.args = rank, args
        torch.manual_seed(args.seed * 10 + rank)
        rng = np.random.default_rng([args.seed, rank])
        archive = observe(args.stars, self.priors[rank], self.dirt[rank], rng)
        common = np.random.default_rng([args.seed, 99])
        self.shared = observe(500, [0.2] * 5, 0.19, common)
        self.loader = DataLoader(
            TensorDataset(*archive),
            batch_size=args.batch,
            shuffle=True,
            drop_last=True,
            generator=torch.Generator().manual_seed(args.seed * 10 + rank),
        )
        self.model = CurveNet()
        self.peer = copy.deepcopy(self.model).eval().requires_grad_(False)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
            self.optimizer, args.epochs * len(self.loader)
        )
        self.step, self.peer_known = 0, False

    def swap_weights(self):
        mine = parameters_to_vector(self.model.parameters()).detach()
        both = [torch.empty_like(mine) for _ in range(2)]
        dist.all_gather(both, mine)
        vector_to_parameters(both[1 - self.rank], self.peer.parameters())
        self.peer_known = True
        return (both[0] - both[1]).norm().item()

    def loss(self, curves, kinds):
        logits = self.model(curves)
        label_loss = F.cross_entropy(logits, kinds)
        if not self.peer_known:
            return label_loss, label_loss.detach()
        with torch.no_grad():
            opinion = self.peer(curves).softmax(dim=1)
        peer_loss = F.cross_entropy(logits, opinion)
        weight = self.args.peer_weight
        return label_loss + weight * peer_loss, label_loss.detach()

    def train_epoch(self):
        self.model.train()
        total, seen, gap = 0.0, 0, None
        for curves, kinds in self.loader:
            if self.step >= self.args.burn_in and self.step % self.args.swap == 0:
                gap = self.swap_weights()
            self.optimizer.zero_grad()
            loss, label_loss = self.loss(curves, kinds)
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            self.step += 1
            total += label_loss.item() * len(kinds)
            seen += len(kinds)
        return total / seen, gap

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        curves, kinds = self.shared
        mine = self.model(curves).log_softmax(dim=1)
        both = [torch.empty_like(mine) for _ in range(2)]
        dist.all_gather(both, mine)
        committee = torch.stack(both).logsumexp(dim=0).argmax(dim=1)
        hits = [(guess.argmax(dim=1) == kinds).float().mean().item() for guess in both]
        return hits, (committee == kinds).float().mean().item()


def work(rank, args, folder):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{os.path.join(folder, 'meeting_point')}",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=120),
    )
    try:
        site = Site(rank, args)
        for epoch in range(1, args.epochs + 1):
            loss, gap = site.train_epoch()
            losses = [torch.zeros(1) for _ in range(2)]
            dist.all_gather(losses, torch.tensor([loss]))
            hits, committee = site.evaluate()
            if rank == 0:
                apart = "not yet swapped" if gap is None else f"apart {gap:.2f}"
                print(
                    f"epoch {epoch:2d} label loss {losses[0].item():.4f} "
                    f"{losses[1].item():.4f} hits {hits[0]:.3f} {hits[1]:.3f} "
                    f"committee {committee:.3f} {apart}",
                    flush=True,
                )
        torch.save(site.model.state_dict(), os.path.join(folder, f"site{rank}.pt"))
        dist.barrier()
    finally:
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stars", type=int, default=640)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=40)
    parser.add_argument("--lr", type=float, default=6e-3)
    parser.add_argument("--swap", type=int, default=8)
    parser.add_argument("--burn-in", type=int, default=32)
    parser.add_argument("--peer-weight", type=float, default=0.7)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, args=(args, folder), nprocs=2, join=True)
        kept = sorted(name for name in os.listdir(folder) if name.endswith(".pt"))
        print("kept:", ", ".join(kept))


if __name__ == "__main__":
    main()
