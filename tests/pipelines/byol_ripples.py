"""Learns from pictures of ripples without labels (BYOL): two views of a picture, a
predictor on the online side, a target side that follows slowly. A ridge regression on
the frozen features tells how good they are.

    python byol_ripples.py
"""

import argparse
import copy
import math

import torch
from torch import nn
import torch.nn.functional as F

SIDE, KINDS = 20, 4


def ripples(count, generator):
    """Waves of a direction and one of two lengths, which together are the kind."""
    kind = torch.randint(KINDS, (count,), generator=generator)
    angle = (kind % 2) * math.pi / 2 + 0.3 * torch.randn(count, generator=generator)
    rate = torch.where(kind < 2, 0.7, 1.4)
    axis = torch.arange(SIDE).float()
    along = axis[:, None] * angle.cos()[:, None, None]
    along = along + axis[None] * angle.sin()[:, None, None]
    phase = 6.3 * torch.rand(count, 1, 1, generator=generator)
    return torch.sin(rate[:, None, None] * along + phase)[:, None], kind


def view(picture, generator):
    """A crop, contrast, brightness and noise, different for each picture."""
    count, size = len(picture), 16
    rows = torch.randint(0, SIDE - size + 1, (count, 1), generator=generator)
    columns = torch.randint(0, SIDE - size + 1, (count, 1), generator=generator)
    rows = rows + torch.arange(size)
    columns = columns + torch.arange(size)
    which = torch.arange(count)[:, None, None]
    picture = picture[which, 0, rows[:, :, None], columns[:, None, :]][:, None]
    contrast = 0.5 + torch.rand(count, 1, 1, 1, generator=generator)
    brightness = 0.5 * torch.randn(count, 1, 1, 1, generator=generator)
    noise = 0.4 * torch.randn(picture.shape, generator=generator)
    return contrast * picture + brightness + noise


def mlp(inputs, hidden, outputs):
    return nn.Sequential(
        nn.Linear(inputs, hidden, bias=False),
        nn.BatchNorm1d(hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, outputs),
    )


class Online(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Flatten(), nn.Linear(512, 64),
        )  # fmt: skip
        self.projector = mlp(64, 128, 32)

    def forward(self, picture):
        return self.projector(self.backbone(picture))


class Byol(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = Online()
        self.predictor = mlp(32, 128, 32)
        self.target = copy.deepcopy(self.online)
        self.target.requires_grad_(False)

    @staticmethod
    def regression(predicted, wanted):
        return 2 - 2 * F.cosine_similarity(predicted, wanted, dim=1).mean()

    def forward(self, first, second):
        with torch.no_grad():
            wanted1, wanted2 = self.target(first), self.target(second)
        guess1 = self.predictor(self.online(first))
        guess2 = self.predictor(self.online(second))
        return self.regression(guess1, wanted2) + self.regression(guess2, wanted1)

    @torch.no_grad()
    def follow(self, tau):
        pairs = zip(self.online.parameters(), self.target.parameters(), strict=True)
        for source, follower in pairs:
            follower.mul_(tau).add_(source, alpha=1 - tau)


@torch.no_grad()
def probe(backbone, pictures, kind):
    """Features standardised, then a ridge regression on one half, tried on the other."""
    was_training = backbone.training
    backbone.eval()
    features = backbone(pictures[..., 2:18, 2:18]).double()
    backbone.train(was_training)
    half = len(features) // 2
    features = (features - features[:half].mean(0)) / (features[:half].std(0) + 1e-6)
    features = torch.cat([features, torch.ones(len(features), 1).double()], 1)
    wanted = F.one_hot(kind, KINDS).double()
    known, rest = features[:half], features[half:]
    gram = known.T @ known + 5.0 * torch.eye(known.shape[1]).double()
    weights = torch.linalg.solve(gram, known.T @ wanted[:half])
    return ((rest @ weights).argmax(1) == kind[half:]).double().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    pictures, _ = ripples(1024, generator)
    held = ripples(400, generator)
    model = Byol()
    learnt = [*model.online.parameters(), *model.predictor.parameters()]
    optimizer = torch.optim.SGD(learnt, lr=0.1, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    model.train()
    for step in range(args.steps):
        rows = torch.randint(len(pictures), (64,), generator=generator)
        batch = pictures[rows]
        loss = model(view(batch, generator), view(batch, generator))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        tau = 1 - 0.05 * (math.cos(math.pi * step / args.steps) + 1) / 2
        model.follow(tau)
        print(f"step {step} loss {loss.item():.4f} tau {tau:.4f}", flush=True)
        if step % 20 == 19:
            print(f"probe {probe(model.online.backbone, *held):.3f}")


if __name__ == "__main__":
    main()
