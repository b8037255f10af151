"""Surge at harbour tide gauges; two processes with their own gradient averaging."""

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

HARBOURS = 6
HOURS = 24
PROCESSES = 2

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--epochs", type=int, default=12)
parser.add_argument("--batch", type=int, default=32, help="rows for each process")
parser.add_argument("--lr", type=float, default=0.17)
parser.add_argument("--momentum", type=float, default=0.9)
parser.add_argument("--fixed", action="store_true")


def storms(count, seed):
    """Pressure and wind of 24 hours at sea -> highest surge at six harbours (metres)."""
    g = torch.Generator().manual_seed(seed)
    hour = torch.linspace(0, 1, HOURS)
    when = 0.2 + 0.6 * torch.rand(count, 1, generator=g)
    depth = 0.5 + 1.5 * torch.rand(count, 1, generator=g)
    width = 0.05 + 0.15 * torch.rand(count, 1, generator=g)
    pressure = -depth * torch.exp(-((hour - when) ** 2) / (2 * width**2))
    bearing = torch.rand(count, 1, generator=g) * 6.2832
    veer = torch.randn(count, 1, generator=g) * 1.5
    direction = bearing + veer * (hour - when)
    strength = depth * (0.4 + torch.exp(-((hour - when + 0.05) ** 2) / 0.02))
    east, north = strength * torch.cos(direction), strength * torch.sin(direction)
    facing = torch.linspace(0, 5.2, HARBOURS)
    onshore = (
        east[:, None] * torch.cos(facing)[:, None]
        + north[:, None] * torch.sin(facing)[:, None]
    )
    setup = F.avg_pool1d(F.relu(onshore), 5, stride=1)
    surge = (setup - 0.4 * pressure[:, None, 2:-2]).amax(2)
    inputs = torch.stack([pressure, east, north], 1)
    inputs = inputs + 0.05 * torch.randn(inputs.shape, generator=g)
    return inputs, surge + 0.05 * torch.randn(surge.shape, generator=g)


class SurgeNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.conv1 = nn.Conv1d(3, width, 5, padding=2)
        self.conv2 = nn.Conv1d(width, width, 5, padding=2)
        self.norm = nn.GroupNorm(4, width)
        self.fc1 = nn.Linear(2 * width, 64)
        self.fc2 = nn.Linear(64, HARBOURS)

    def forward(self, x):
        h = F.relu(self.conv1(x))
        h = F.relu(self.norm(self.conv2(h)))
        h = torch.cat([h.amax(2), h.mean(2)], 1)
        return self.fc2(F.relu(self.fc1(h)))


def broadcast_parameters(model):
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, src=0)


def average_gradients(model, fixed):
    for parameter in model.parameters():
        if parameter.grad is None:
            continue
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
        if fixed:
            parameter.grad /= dist.get_world_size()


def average_number(value):
    tensor = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(tensor)
    return tensor.item() / dist.get_world_size()


def my_batches(count, batch, rank, epoch, seed):
    g = torch.Generator().manual_seed(1000 * seed + epoch)
    order = torch.randperm(count, generator=g)[rank::PROCESSES]
    return order.split(batch)


def score(model, inputs, surge):
    model.eval()
    with torch.no_grad():
        gap = model(inputs) - surge
    model.train()
    return gap.pow(2).mean().item(), gap.abs().mean().item()


def learning_rate(epoch, args):
    """Flat for the first two thirds, then a tenth."""
    return args.lr if epoch < 2 * args.epochs // 3 else args.lr / 10


def process(rank, args, folder):
    torch.set_num_threads(1)
    store = "file://" + os.path.join(folder, "store")
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=PROCESSES)
    inputs, surge = storms(1536, seed=args.seed + 21)
    valid_inputs, valid_surge = storms(400, seed=args.seed + 22)

    torch.manual_seed(args.seed + rank)
    model = SurgeNet()
    broadcast_parameters(model)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=args.lr, momentum=args.momentum, weight_decay=1e-4
    )
    steps = 0
    for epoch in range(args.epochs):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(epoch, args)
        running = []
        for rows in my_batches(len(inputs), args.batch, rank, epoch, args.seed):
            optimizer.zero_grad()
            loss = F.mse_loss(model(inputs[rows]), surge[rows])
            loss.backward()
            average_gradients(model, args.fixed)
            optimizer.step()
            running.append(loss.item())
            steps += 1
        train = average_number(sum(running) / len(running))
        valid, gap = score(model, valid_inputs, valid_surge)
        if rank == 0:
            print(
                f"epoch {epoch:2d} step {steps:4d} mse {train:.5f} "
                f"valid mse {valid:.5f} mean gap {100 * gap:.2f} cm",
                flush=True,
            )
    if rank == 0:
        path = os.path.join(folder, "surge.pt")
        torch.save({"model": model.state_dict(), "args": vars(args)}, path)
        print(f"stored {os.path.getsize(path) // 1024} kB after {steps} steps")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as shared:
        mp.spawn(process, (options, shared), nprocs=PROCESSES, join=True)
