"""Finds parcels on a belt (conv2d, queries): boxes matched to predictions; two ranks, DDP.

The best assignment of the queries is found by trying all of them; L1, generalised IoU and a class loss over
the matched queries, normalised by the boxes of all ranks.
"""
import argparse
import os
import socket
import itertools

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from ranks import leave_group

QUERIES, SIZE, MOST = 4, 24, 2


class Belts(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.images, self.boxes = [], []
        for _ in range(n):
            count = int(torch.randint(1, MOST + 1, (1,), generator=g))
            size = 0.2 + 0.2 * torch.rand(count, 2, generator=g)
            centre = size / 2 + (1 - size) * torch.rand(count, 2, generator=g)
            image = 0.1 * torch.randn(1, SIZE, SIZE, generator=g)
            for (x, y), (w, h) in zip(centre.tolist(), size.tolist()):
                a, b = round((x - w / 2) * SIZE), round((x + w / 2) * SIZE)
                c, d = round((y - h / 2) * SIZE), round((y + h / 2) * SIZE)
                image[0, c:d, a:b] = 1.0 + 0.1 * torch.randn(1, generator=g)
            self.images.append(image)
            self.boxes.append(torch.cat([centre, size], 1))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], self.boxes[i]


def collate(rows):
    images, boxes = zip(*rows)
    return torch.stack(images), list(boxes)


def corners(b):
    return torch.cat([b[..., :2] - b[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2], -1)


def giou(a, b):
    a, b = corners(a), corners(b)
    inter = (
        (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2]))
        .clamp(min=0)
        .prod(-1)
    )
    hull = (
        torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])
    ).prod(-1)
    union = (
        (a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - inter
    )
    return inter / union - (hull - union) / hull


class Detector(nn.Module):
    """Each query looks at the whole flattened map through weights of its own."""

    def __init__(self, dim=32, width=128):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, 16, 3, 2, 1),
            nn.GroupNorm(4, 16),
            nn.GELU(),
            nn.Conv2d(16, dim, 3, 2, 1),
            nn.GroupNorm(4, dim),
            nn.GELU(),
        )
        self.mix = nn.Sequential(
            nn.Flatten(), nn.Linear(dim * (SIZE // 4) ** 2, QUERIES * width), nn.GELU()
        )
        self.box, self.present = nn.Linear(width, 4), nn.Linear(width, 1)

    def forward(self, x):
        q = self.mix(self.stem(x)).unflatten(1, (QUERIES, -1))
        return self.box(q).sigmoid(), self.present(q).squeeze(-1)


@torch.no_grad()
def match(boxes, logits, truth):
    cost = (
        5 * torch.cdist(boxes, truth, p=1)
        - 2 * giou(boxes[:, None], truth[None])
        - logits.sigmoid()[:, None]
    )
    ways = torch.tensor(list(itertools.permutations(range(QUERIES), len(truth))))
    return ways[cost[ways, torch.arange(len(truth))].sum(1).argmin()]


def detection_loss(boxes, logits, truths):
    present, picked = torch.zeros_like(logits), []
    for i, truth in enumerate(truths):
        rows = match(boxes[i], logits[i], truth)
        present[i, rows] = 1.0
        picked.append(boxes[i, rows])
    guess, truth = torch.cat(picked), torch.cat(truths)
    # DDP averages over the ranks: the mean number of boxes a rank makes it a mean over all boxes.
    count = torch.tensor(float(len(truth)))
    dist.all_reduce(count)
    count /= dist.get_world_size()
    place = (
        5 * (guess - truth).abs().sum() / count
        + 2 * (1 - giou(guess, truth)).sum() / count
    )
    return place + F.binary_cross_entropy_with_logits(logits, present)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=60)
    args = p.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    data, valid = Belts(640, 1), Belts(64, 2)
    sampler = DistributedSampler(data, shuffle=True, seed=3, drop_last=True)
    loader = DataLoader(
        data, batch_size=32, sampler=sampler, collate_fn=collate, drop_last=True
    )
    model = DistributedDataParallel(Detector())
    stem = [q for n, q in model.named_parameters() if ".stem." in n]
    rest = [q for n, q in model.named_parameters() if ".stem." not in n]
    opt = torch.optim.AdamW(
        [{"params": stem, "lr": 1e-3}, {"params": rest, "lr": 2e-3}], weight_decay=1e-4
    )
    step = epoch = 0
    while step < args.steps:
        sampler.set_epoch(epoch)
        for images, truths in loader:
            boxes, logits = model(images)
            loss = detection_loss(boxes, logits, truths)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            step += 1
            if step % 10 == 0:
                shown = loss.detach().clone()
                dist.all_reduce(shown)
                if rank == 0:
                    print(
                        f"step {step:3d} loss {shown.item() / dist.get_world_size():.4f}",
                        flush=True,
                    )
            if step == args.steps:
                break
        epoch += 1

    model.eval()  # every rank evaluates its share of the images
    total = torch.zeros(2)
    with torch.no_grad():
        for i in range(rank, len(valid), dist.get_world_size()):
            image, truth = valid[i]
            boxes, logits = model.module(image[None])
            total[0] += giou(boxes[0, match(boxes[0], logits[0], truth)], truth).sum()
            total[1] += len(truth)
    dist.all_reduce(total)
    if rank == 0:
        print(
            f"generalised IoU of the matched {(total[0] / total[1]).item():.3f}",
            flush=True,
        )
    leave_group()


def start(rank, world, port):
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(world),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    main()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    torch.multiprocessing.spawn(start, (2, port), nprocs=2)
