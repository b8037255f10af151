"""Where will the car go?  Several candidate paths through a junction and their odds.

The past track is encoded by a GRU, a set of decoders each propose one future, and a scorer
says how likely each proposal is.  Only the closest proposals of a car are pulled to its path.
"""
import argparse
import json
import math
import random
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

PAST, FUTURE, DT = 10, 12, 0.4
STRIDE = 2.0  # metres, a usual move between two positions


class Junction(Dataset):
    """Cars approach from the west with a free heading; exits are left, ahead and right."""

    def __init__(self, cars, seed):
        rng = np.random.default_rng(seed)
        self.tracks = [self.drive(rng) for _ in range(cars)]

    @staticmethod
    def drive(rng):
        seen = int(rng.integers(5, PAST + 1))
        speed = rng.uniform(3.0, 7.0)
        slowing = rng.random() < 0.5
        exits, odds = (-1, 0, 1), (0.4, 0.05, 0.55) if slowing else (0.05, 0.9, 0.05)
        turn = rng.choice(exits, p=odds)
        curve = turn * rng.uniform(0.32, 0.4)
        heading, place = rng.uniform(-math.pi, math.pi), rng.uniform(-50, 50, 2)
        points = []
        for k in range(seen + FUTURE):
            points.append(place.copy())
            if slowing and k < seen:
                speed = max(1.8, speed * 0.85)
            if 1 <= k - seen < 5:
                heading += curve
            step = np.array([math.cos(heading), math.sin(heading)])
            place = place + speed * DT * step + rng.normal(0, 0.04, 2)
        points = np.stack(points)
        return points[:seen], points[seen:]

    def __len__(self):
        return len(self.tracks)

    def __getitem__(self, i):
        """The frame of the car: last position at the origin, last motion along x."""
        past, future = self.tracks[i]
        origin, ahead = past[-1], past[-1] - past[-3]
        a = math.atan2(ahead[1], ahead[0])
        rot = np.array([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]])
        local = lambda pts: torch.tensor((pts - origin) @ rot, dtype=torch.float32)
        return local(past).diff(dim=0), local(future)


def collate(items):
    past, future = zip(*items)
    lengths = torch.tensor([len(p) for p in past])
    return pad_sequence(past, batch_first=True), lengths, torch.stack(future)


class PathSet(nn.Module):
    def __init__(self, paths=5, width=48):
        super().__init__()
        self.encoder = nn.GRU(2, width, batch_first=True)
        self.trunk = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.LayerNorm(width)
        )
        self.decoders = nn.ModuleList(
            [
                nn.Sequential(
                    nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2 * FUTURE)
                )
                for _ in range(paths)
            ]
        )
        self.scorer = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, paths)
        )

    def forward(self, past, lengths):
        packed = pack_padded_sequence(
            past / STRIDE, lengths, batch_first=True, enforce_sorted=False
        )
        _, h = self.encoder(packed)
        h = self.trunk(h[-1])
        moves = STRIDE * torch.stack([decode(h) for decode in self.decoders], 1)
        paths = moves.view(len(h), len(self.decoders), FUTURE, 2).cumsum(2)
        return paths, self.scorer(h)


def distances(paths, future):
    """Mean displacement of every path, [cars, paths]."""
    return (paths - future[:, None]).norm(dim=-1).mean(-1)


class Schedule:
    """How many of the proposals follow each car: everybody at first, one in the end."""

    def __init__(self, paths, epochs):
        self.paths, self.epochs = paths, epochs

    def __call__(self, epoch):
        left = 1 - min(1.0, epoch / (0.6 * self.epochs))
        return max(1, round(self.paths * left))


def compute_loss(paths, scores, future, top):
    d = distances(paths, future)
    near, _ = d.topk(top, dim=1, largest=False)
    winner = d.detach().argmin(1)
    return near.mean(), nn.functional.cross_entropy(scores, winner)


def evaluate(model, loader):
    model.eval()
    best, first, far, hits, cars = 0.0, 0.0, 0.0, 0, 0
    usage = torch.zeros(len(model.decoders))
    with torch.inference_mode():
        for past, lengths, future in loader:
            paths, scores = model(past, lengths)
            d = distances(paths, future)
            pick = scores.argmax(1, keepdim=True)
            best += d.min(1).values.sum().item()
            first += d.gather(1, pick).sum().item()
            far += (
                ((paths - future[:, None])[:, :, -1].norm(dim=-1).min(1).values > 2)
                .sum()
                .item()
            )
            hits += (pick.squeeze(1) == d.argmin(1)).sum().item()
            usage += torch.bincount(d.argmin(1), minlength=len(usage))
            cars += len(future)
    return {
        "min_ade": round(best / cars, 3),
        "top1_ade": round(first / cars, 3),
        "missed": round(far / cars, 3),
        "picked": round(hits / cars, 3),
        "usage": [round(u / cars, 2) for u in usage.tolist()],
    }


def run(args, folder):
    make = lambda n, seed: Junction(n, seed)
    order = torch.Generator().manual_seed(args.seed)
    train = DataLoader(
        make(1200, 1),
        64,
        shuffle=True,
        collate_fn=collate,
        generator=order,
        drop_last=False,
    )
    valid = DataLoader(make(300, 2), 300, collate_fn=collate)
    test = DataLoader(make(500, 3), 250, collate_fn=collate)

    model = PathSet(args.paths)
    body = [p for n, p in model.named_parameters() if not n.startswith("scorer")]
    optimizer = torch.optim.AdamW(
        [
            {"params": body, "lr": 3e-3},
            {"params": model.scorer.parameters(), "lr": 3e-3},
        ],
        weight_decay=1e-4,
    )
    total = args.epochs * len(train)
    shape = lambda t: min(1.0, (t + 1) / 20) * 0.5 * (1 + math.cos(math.pi * t / total))
    warm = torch.optim.lr_scheduler.LambdaLR(optimizer, shape)
    top_of, log = Schedule(args.paths, args.epochs), []
    for epoch in range(args.epochs):
        model.train()
        top, sums, cars = top_of(epoch), np.zeros(2), 0
        for past, lengths, future in train:
            path_loss, score_loss = compute_loss(*model(past, lengths), future, top)
            optimizer.zero_grad()
            (path_loss + score_loss).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            warm.step()
            sums += np.array([path_loss.item(), score_loss.item()]) * len(future)
            cars += len(future)
        fit, odds = sums / cars
        result = evaluate(model, valid)
        log.append(result | {"epoch": epoch, "top": top, "path": fit, "odds": odds})
        print(
            f"epoch {epoch:2d} top {top} path {fit:.3f} odds {odds:.3f} | {result}",
            flush=True,
        )
    (folder / "log.json").write_text(json.dumps(log))
    torch.save({"model": model.state_dict(), "args": vars(args)}, folder / "paths.pt")
    print("test", evaluate(model, test))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--paths", type=int, default=5)
    parser.add_argument("--seed", type=int, default=3)
    args = parser.parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    run(args, Path(tempfile.mkdtemp(prefix="junctions_")))


if __name__ == "__main__":
    main()
