"""Diseases of barley from spectra of leaves on two ranks, with sparse communication.

A communication hook of DistributedDataParallel sends the largest entries of a gradient
only; what was left out is kept on each rank and added the next time. In the first epoch
everything is sent, then a fifth, then a twentieth.

    python ddp_topk_barley.py --epochs 5
"""

import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

BANDS, DISEASES = 96, 5


def leaves(count, seed):
    generator = torch.Generator().manual_seed(seed)

    def uniform(low, high, *shape):
        return low + (high - low) * torch.rand(*shape, generator=generator)

    disease = torch.randint(DISEASES, (count,), generator=generator)
    axis = torch.linspace(0, 1, BANDS)
    edge = torch.sigmoid((axis - uniform(0.5, 0.6, count, 1)) * 25)
    spectrum = 0.2 + edge * uniform(0.7, 1.2, count, 1)
    centre = torch.tensor([0.15, 0.3, 0.42, 0.7, 0.85])[disease, None]
    centre = centre + uniform(-0.04, 0.04, count, 1)
    depth = uniform(0.1, 0.35, count, 1)
    spectrum = spectrum - depth * torch.exp(-(((axis - centre) / 0.04) ** 2))
    spectrum = spectrum + 0.06 * torch.randn(count, BANDS, generator=generator)
    # standard normal variate: each leaf by its own mean and spread
    mean, spread = spectrum.mean(1, keepdim=True), spectrum.std(1, keepdim=True)
    return (spectrum - mean) / spread, disease


class Branches(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.paths = nn.ModuleList(
            nn.Conv1d(inputs, width, k, padding=k // 2) for k in (3, 7, 15)
        )
        self.norm = nn.GroupNorm(3, 3 * width)

    def forward(self, x):
        return F.gelu(self.norm(torch.cat([path(x) for path in self.paths], 1)))


class LeafNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.trunk = nn.Sequential(
            Branches(1, width), nn.MaxPool1d(2), Branches(3 * width, width),
            nn.MaxPool1d(2), Branches(3 * width, width),
            nn.AvgPool1d(3),
        )  # fmt: skip
        self.head = nn.Linear(3 * width * BANDS // 12, DISEASES)

    def forward(self, spectrum):
        return self.head(self.trunk(spectrum[:, None]).flatten(1))


class Largest:
    """State of the hook: what has not been sent yet, for each bucket."""

    def __init__(self):
        self.share, self.left, self.sent = 1.0, {}, 0

    def hook(self, _, bucket):
        flat = bucket.buffer()
        world = dist.get_world_size()
        done = torch.futures.Future()
        if self.share == 1.0:
            dist.all_reduce(flat)
            self.sent += flat.numel()
            done.set_result(flat.div_(world))
            return done
        left = self.left.get(bucket.index())
        if left is None:
            left = self.left[bucket.index()] = torch.zeros_like(flat)
        left += flat
        count = max(1, int(self.share * left.numel()))
        index = left.abs().topk(count).indices
        values = left[index]
        left[index] = 0.0
        self.sent += 2 * count
        all_index = [torch.empty_like(index) for _ in range(world)]
        all_values = [torch.empty_like(values) for _ in range(world)]
        dist.all_gather(all_index, index)
        dist.all_gather(all_values, values)
        flat.zero_()
        for index, values in zip(all_index, all_values):
            flat.index_add_(0, index, values, alpha=1 / world)
        done.set_result(flat)
        return done

    def norm(self):
        return sum(left.norm().item() ** 2 for left in self.left.values()) ** 0.5


def work(rank, args, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    spectrum, disease = leaves(960, args.seed)
    held = leaves(400, args.seed + 1000)
    net = DistributedDataParallel(LeafNet(), gradient_as_bucket_view=True)
    largest = Largest()
    net.register_comm_hook(None, largest.hook)
    # momentum is off where little is sent: late entries would be counted over and over
    optimizer = torch.optim.SGD(net.parameters(), args.lr, momentum=0.9)
    order = torch.Generator().manual_seed(args.seed)  # the same on both ranks
    step = 0
    for epoch in range(args.epochs):
        largest.share = (1.0, 0.2, 0.05)[min(epoch, 2)]
        for group in optimizer.param_groups:
            group["momentum"] = (0.9, 0.6, 0.0)[min(epoch, 2)]
            group["lr"] = args.lr * (1, 2, 4)[min(epoch, 2)] * 0.8**epoch
        for rows in torch.randperm(len(disease), generator=order).split(32):
            mine = rows[rank::2]
            loss = F.cross_entropy(net(spectrum[mine]), disease[mine])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            shown = loss.detach().clone()
            dist.reduce(shown, 0)  # for the log: only rank 0 has the sum
            if rank == 0:
                print(f"step {step} loss {shown.item() / 2:.4f}", flush=True)
            step += 1
        if rank == 0:
            net.eval()
            with torch.no_grad():
                score = net.module(held[0])
            net.train()
            accuracy = (score.argmax(1) == held[1]).float().mean()
            print(
                f"epoch {epoch} accuracy {accuracy:.3f} sent {largest.sent} "
                f"kept back {largest.norm():.3f}",
                flush=True,
            )
    same = [torch.empty(()) for _ in range(2)]
    dist.all_gather(
        same, sum(p.detach().double().sum() for p in net.parameters()).float()
    )
    assert torch.equal(*same), "ranks have parted"
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    mp.spawn(work, (args, port), nprocs=2)


if __name__ == "__main__":
    main()
