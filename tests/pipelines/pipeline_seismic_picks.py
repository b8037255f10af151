"""Arrival of seismic waves, picked by a convolutional net cut into two stages.

Rank 0 holds the first half and rank 1 the second; activations go forth and gradients
back by send and recv, a batch in four micro-batches. Each rank has an optimizer for its
own stage; the gradient norm is taken over both. Normalisation by groups, so that a
micro-batch does not matter.
"""

import argparse
import contextlib
import os
import socket
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

SAMPLES, CHANNELS, MICRO = 256, 24, 4


def block(width, dilation):
    return nn.Sequential(
        nn.Conv1d(width, width, 5, padding=2 * dilation, dilation=dilation),
        nn.GroupNorm(4, width),
        nn.SiLU(),
    )


class FirstStage(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv1d(3, CHANNELS, 7, stride=2, padding=3)
        self.blocks = nn.ModuleList([block(CHANNELS, 1), block(CHANNELS, 2)])

    def forward(self, x):
        x = self.stem(x)
        for b in self.blocks:
            x = x + b(x)
        return x


class SecondStage(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([block(CHANNELS, 4), block(CHANNELS, 8)])
        self.pick = nn.Conv1d(CHANNELS, 1, 1)

    def forward(self, x):
        for b in self.blocks:
            x = x + b(x)
        return self.pick(x).squeeze(1)


def records(n, gen):
    """Three components, noise and then a wave train; the label is the half-rate sample."""
    onset = torch.randint(40, SAMPLES - 60, (n, 1, 1), generator=gen)
    t = torch.arange(SAMPLES) - onset
    freq = 0.15 + 0.35 * torch.rand(n, 1, 1, generator=gen)
    size = 0.5 + 0.8 * torch.rand(n, 3, 1, generator=gen)
    rise = (1 - torch.exp(-t / 6)) * torch.exp(-t / 60)
    wave = size * torch.sin(freq * t) * rise * (t >= 0)
    noise = torch.randn(n, 3, SAMPLES, generator=gen)
    noise = F.avg_pool1d(noise, 3, 1, 1) * 0.4
    return wave + noise, onset.flatten() // 2


class Pipeline:
    def __init__(self, rank, lr):
        self.rank = rank
        torch.manual_seed(50 + rank)
        self.stage = FirstStage() if rank == 0 else SecondStage()
        self.optimizer = torch.optim.AdamW(self.stage.parameters(), lr=lr)

    def forward_backward(self, x, y):
        """One batch; gradients accumulate over its micro-batches. The loss, on rank 1."""
        if self.rank == 0:
            outputs, sent = [], []
            for part in x.chunk(MICRO):
                outputs.append(self.stage(part))
                sent.append(dist.isend(outputs[-1].detach(), dst=1))
            for out, handle in zip(outputs, sent):
                handle.wait()
                grad = torch.empty_like(out)
                dist.recv(grad, src=1)
                out.backward(grad)
            return None
        total, sent = 0.0, []
        for target in y.chunk(MICRO):
            h = torch.empty(len(target), CHANNELS, SAMPLES // 2)
            dist.recv(h, src=0)
            h.requires_grad_()
            loss = F.cross_entropy(self.stage(h), target) / MICRO
            loss.backward()
            sent.append((dist.isend(h.grad, dst=0), h))
            total += loss.item()
        for handle, _ in sent:
            handle.wait()
        return total

    def clip(self, limit):
        grads = [p.grad for p in self.stage.parameters()]
        square = torch.stack([g.square().sum() for g in grads]).sum()
        dist.all_reduce(square)
        factor = (limit / (square.sqrt() + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(grads, factor)
        return square.sqrt().item()

    @contextlib.contextmanager
    def evaluating(self):
        self.stage.eval()
        with torch.inference_mode():
            yield
        self.stage.train()

    def mean_error(self, x, y):
        """Samples between the pick and the truth, known on rank 1."""
        with self.evaluating():
            if self.rank == 0:
                dist.send(self.stage(x), dst=1)
                return None
            h = torch.empty(len(y), CHANNELS, SAMPLES // 2)
            dist.recv(h, src=0)
            return (self.stage(h).argmax(1) - y).abs().float().mean().item()

    def save(self, folder, step):
        state = {
            "stage": self.stage.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        torch.save(
            {**state, "step": step}, os.path.join(folder, f"stage{self.rank}.pt")
        )


def train(rank, world, port, folder, args):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
    )
    pipe = Pipeline(rank, args.lr)
    # both ranks make the same records; one reads the signals, the other the labels
    gen = torch.Generator().manual_seed(1)
    held_out = records(128, torch.Generator().manual_seed(2))
    decay = torch.optim.lr_scheduler.LinearLR(pipe.optimizer, 1.0, 0.05, args.steps)
    for step in range(1, args.steps + 1):
        x, y = records(32, gen)
        pipe.optimizer.zero_grad()
        loss = pipe.forward_backward(x, y)
        norm = pipe.clip(2.0)
        pipe.optimizer.step()
        decay.step()
        if step % 15 == 0 or step in (1, args.steps):
            error = pipe.mean_error(*held_out)
            if rank == 1:
                print(f"{step:4d} loss {loss:.4f} norm {norm:.2f} error {error:.2f}")
    pipe.save(folder, args.steps)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--lr", type=float, default=6e-3)
    arguments = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        free = s.getsockname()[1]
    with tempfile.TemporaryDirectory() as directory:
        torch.multiprocessing.spawn(train, (2, free, directory, arguments), nprocs=2)
