#!/usr/bin/env python
"""Train a tiny mel-to-waveform vocoder on two processes (gloo)."""
import argparse
import math
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

HOP, FRAMES, BANDS = 16, 24, 12


class VoicedClips(Dataset):
    """Harmonic tones with vibrato; features are log energies of a fixed filterbank."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        t = torch.arange(HOP * FRAMES) / 1000.0
        f0 = 40 + 60 * torch.rand(n, 1, generator=g)
        depth = 0.02 * torch.rand(n, 1, generator=g)
        phase = (
            2 * math.pi * (f0 * t + depth * f0 * torch.sin(2 * math.pi * 5 * t) / 10)
        )
        amp = torch.rand(n, 3, 1, generator=g)
        wav = sum(amp[:, k] * torch.sin((k + 1) * phase) for k in range(3)) / 2
        self.wav = wav + 0.01 * torch.randn(wav.shape, generator=g)
        self.mel = self.features(self.wav)

    @staticmethod
    def features(wav):
        spec = torch.stft(
            F.pad(wav, (24, 24)),
            64,
            HOP,
            window=torch.hann_window(64),
            center=False,
            return_complex=True,
        )
        power = spec.abs().pow(2)[:, 1:, :FRAMES]
        edges = torch.linspace(0, power.shape[1], BANDS + 1).long().tolist()
        bands = [
            power[:, a : max(b, a + 1)].mean(1) for a, b in zip(edges[:-1], edges[1:])
        ]
        return torch.stack(bands, 1).clamp_min(1e-5).log() / 4

    def __len__(self):
        return len(self.wav)

    def __getitem__(self, i):
        return i, self.mel[i], self.wav[i]


class Vocoder(nn.Module):
    def __init__(self, ch=16):
        super().__init__()
        self.pre = nn.Conv1d(BANDS, ch, 5, padding=2)
        self.ups = nn.ModuleList(
            [nn.ConvTranspose1d(ch, ch, 8, 4, 2) for _ in range(2)]
        )
        self.res = nn.ModuleList(
            [nn.Conv1d(ch, ch, 5, padding=2 * d, dilation=d) for d in (1, 3)]
        )
        self.post = nn.Conv1d(ch, 1, 7, padding=3)

    def forward(self, mel):
        h = self.pre(mel)
        for up, res in zip(self.ups, self.res):
            h = up(F.leaky_relu(h, 0.1))
            h = h + res(F.leaky_relu(h, 0.1))
        return torch.tanh(self.post(F.leaky_relu(h, 0.1))).squeeze(1)


def stft_loss(fake, real):
    total = 0.0
    for n_fft in (32, 64, 128):
        win = torch.hann_window(n_fft)
        a = torch.stft(fake, n_fft, n_fft // 4, window=win, return_complex=True).abs()
        b = torch.stft(real, n_fft, n_fft // 4, window=win, return_complex=True).abs()
        total = (
            total
            + (a - b).norm() / b.norm()
            + F.l1_loss(torch.log(a + 1e-2), torch.log(b + 1e-2))
        )
    return total / 3


class Trainer:
    def __init__(self, rank, world, args):
        self.rank, self.args = rank, args
        torch.manual_seed(args.seed)
        self.train_set = VoicedClips(args.clips, args.seed)
        self.dev_set = VoicedClips(64, args.seed + 1)
        self.sampler = DistributedSampler(
            self.train_set, num_replicas=world, rank=rank, shuffle=True, seed=args.seed
        )
        self.loader = DataLoader(
            self.train_set, batch_size=args.batch_size, sampler=self.sampler
        )
        self.model = DistributedDataParallel(Vocoder())
        self.optim = torch.optim.RAdam(self.model.parameters(), lr=args.lr)
        self.sched = torch.optim.lr_scheduler.ExponentialLR(self.optim, 0.95)
        self.step, self.visits = 0, []

    def train_epoch(self, epoch):
        if self.args.fixed:
            self.sampler.set_epoch(epoch)
        losses, order = [], []
        for ids, mel, wav in self.loader:
            loss = stft_loss(self.model(mel), wav)
            self.optim.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.optim.step()
            self.step += 1
            losses.append(loss.item())
            order.extend(ids.tolist())
        self.sched.step()
        self.visits.append(order)
        return sum(losses) / len(losses)

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        loss = stft_loss(self.model.module(self.dev_set.mel), self.dev_set.wav).item()
        self.model.train()
        return loss

    def run(self):
        for epoch in range(self.args.epochs):
            avg = torch.tensor(self.train_epoch(epoch))
            dist.all_reduce(avg)
            if self.rank == 0:
                print(
                    f"epoch {epoch}  step {self.step}  train {avg.item() / dist.get_world_size():.4f}  "
                    f"dev {self.evaluate():.4f}",
                    flush=True,
                )

    def report(self):
        mine = torch.tensor(self.visits)
        shards = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(shards, mine)
        if self.rank == 0:
            repeats = sum(int((mine[e] == mine[0]).all()) for e in range(1, len(mine)))
            print(
                f"epochs after the first with the order of the first: {repeats} of {len(mine) - 1}"
            )
            for r, s in enumerate(shards):
                print(
                    f"process {r}: {len(s.unique())} different clips seen of {len(self.train_set)}"
                )
            print("fault shows:", "yes" if repeats else "no", flush=True)


def entry(rank, world, port, args):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    trainer = Trainer(rank, world, args)
    trainer.run()
    if args.prove:
        trainer.report()
    dist.barrier()
    dist.destroy_process_group()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--clips", type=int, default=128)
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--seed", type=int, default=9)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(entry, args=(2, port, args), nprocs=2, join=True)


if __name__ == "__main__":
    main()
