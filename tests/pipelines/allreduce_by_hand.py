"""Data parallelism written by hand, without DDP: rank 0's weights are broadcast, each
rank takes its part of the batch, gradients are put into one flat tensor, summed by
all_reduce, divided and handed back. The model is a GRU that forecasts tides.

    python allreduce_by_hand.py --steps 50
"""

import argparse
import math
import socket

import torch
import torch.distributed as dist
import torch.nn as nn

from ranks import leave_group

HISTORY, AHEAD = 30, 6


class TideGRU(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.gru = nn.GRU(1, hidden, batch_first=True)
        self.readout = nn.Linear(hidden, AHEAD)

    def forward(self, levels):
        _, last = self.gru(levels.unsqueeze(-1))
        return levels[:, -1:] + self.readout(last[0])


def tides(count, generator):
    """Two tides of different period, some noise: (history, what follows)."""
    start = 200 * torch.rand(count, 1, generator=generator)
    size = 0.7 + 0.6 * torch.rand(count, 2, generator=generator)
    t = start + torch.arange(HISTORY + AHEAD)
    level = size[:, :1] * torch.sin(2 * math.pi * t / 12.4)
    level = level + 0.4 * size[:, 1:] * torch.sin(2 * math.pi * t / 25.8)
    level = level + 0.03 * torch.randn(level.shape, generator=generator)
    return level[:, :HISTORY], level[:, HISTORY:]


def broadcast_model(model):
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, src=0)


def average_gradients(model, world_size):
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([g.reshape(-1) for g in grads])
    dist.all_reduce(flat, op=dist.ReduceOp.SUM)
    flat /= world_size
    offset = 0
    for g in grads:
        g.copy_(flat[offset : offset + g.numel()].view_as(g))
        offset += g.numel()


def average_scalar(value, world_size):
    tensor = torch.tensor([value])
    dist.all_reduce(tensor)
    return tensor.item() / world_size


def main_worker(rank, world_size, port, cfg):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=world_size,
    )
    torch.manual_seed(cfg.seed + rank)  # the broadcast makes the weights equal
    model = TideGRU()
    broadcast_model(model)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=cfg.lr, momentum=0.9, nesterov=True
    )
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cfg.steps)

    generator = torch.Generator().manual_seed(cfg.seed)  # the same batches everywhere
    share = cfg.batch_size // world_size
    mine = slice(rank * share, (rank + 1) * share)
    for step in range(cfg.steps):
        history, future = tides(cfg.batch_size, generator)
        loss = nn.functional.huber_loss(model(history[mine]), future[mine], delta=0.5)
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model, world_size)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if step % 5 == 0 or step == cfg.steps - 1:
            shown = average_scalar(loss.item(), world_size)
            if rank == 0:
                print(f"step {step} loss {shown:.6f}", flush=True)

    checksum = sum(p.detach().double().abs().sum().item() for p in model.parameters())
    if abs(average_scalar(checksum, world_size) - checksum) > 1e-3:
        raise RuntimeError("the ranks have drifted apart")
    leave_group()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--steps", type=int, default=50)
    ap.add_argument("--nproc", type=int, default=2)
    ap.add_argument("--batch-size", type=int, default=64, help="of all ranks")
    ap.add_argument("--lr", type=float, default=0.1)
    ap.add_argument("--seed", type=int, default=55)
    cfg = ap.parse_args()
    torch.multiprocessing.spawn(
        main_worker, args=(cfg.nproc, free_port(), cfg), nprocs=cfg.nproc
    )
