"""Embeds the sounds of stamping presses so that those of one press lie together: triplet
loss with semi-hard mining over batches of eight presses with four sounds each, drawn
by a sampler of groups. Where no triplet violates the margin the loss is zero. Nothing in
the network depends on the mode, so it is never switched.

    python triplet_stampings.py --steps 120
"""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


class Stampings(Dataset):
    """Decaying sums of three tones; the tones belong to the press."""

    def __init__(self, presses, each, seed, length=96):
        rng = np.random.default_rng(seed)
        tones = rng.uniform(3, 25, (presses, 1, 3, 1))
        decay = rng.uniform(2, 6, (presses, 1, 1))
        phase = rng.uniform(0, 0.8, (presses, each, 3, 1))
        t = np.linspace(0, 1, length)
        waves = np.sin(2 * np.pi * tones * t + phase).sum(2) * np.exp(-decay * t)
        waves = waves + rng.normal(0, 0.35, waves.shape)
        self.waves = torch.from_numpy(waves.reshape(-1, 1, length)).float()
        self.press = torch.arange(presses).repeat_interleave(each)

    def __len__(self):
        return len(self.press)

    def __getitem__(self, i):
        return self.waves[i], self.press[i]


class GroupSampler(Sampler):
    """Lists of indices: `groups` presses, `each` sounds of every one."""

    def __init__(self, labels, groups, each, batches, seed):
        self.members = [torch.nonzero(labels == k).squeeze(1) for k in labels.unique()]
        self.groups, self.each, self.batches = groups, each, batches
        self.g = torch.Generator().manual_seed(seed)

    def __len__(self):
        return self.batches

    def __iter__(self):
        for _ in range(self.batches):
            chosen = torch.randperm(len(self.members), generator=self.g)
            batch = []
            for k in chosen[: self.groups].tolist():
                own = self.members[k]
                order = torch.randperm(len(own), generator=self.g)
                batch += own[order[: self.each]].tolist()
            yield batch


class SoundNet(nn.Module):
    def __init__(self, width=24, size=16):
        super().__init__()
        self.conv1 = nn.Conv1d(1, width, 9, stride=2, padding=4)
        self.norm1 = nn.GroupNorm(4, width)
        self.conv2 = nn.Conv1d(width, width, 5, stride=2, padding=2)
        self.norm2 = nn.GroupNorm(4, width)
        self.project = nn.Linear(width * 8, size, bias=False)

    def forward(self, x):
        x = F.gelu(self.norm1(self.conv1(x)))
        x = F.gelu(self.norm2(self.conv2(x)))
        x = F.adaptive_avg_pool1d(x, 8).flatten(1)
        return F.normalize(self.project(x), dim=1)


def semi_hard_triplets(embedded, press, margin):
    """Summed hinge over the triplets that count, divided by their number (or by one)."""
    apart = 2 - 2 * embedded @ embedded.T
    same = press[:, None] == press[None, :]
    pairs = same & ~torch.eye(len(press), dtype=torch.bool)
    a, p = torch.nonzero(pairs, as_tuple=True)
    positive = apart[a, p].unsqueeze(1)
    negative = apart[a]
    counts = ~same[a] & (negative > positive) & (negative < positive + margin)
    # Early on hardly any triplet is semi-hard for some anchors; the closest will do.
    closest = negative.masked_fill(same[a], float("inf")).min(1, keepdim=True)[0]
    hard = ~counts.any(1, keepdim=True) & ~same[a] & (negative == closest)
    hinge = torch.relu(positive - negative + margin) * (counts | hard)
    active = int((hinge > 0).sum())
    return hinge.sum() / max(active, 1), active


@torch.no_grad()
def recall_at_one(net, data):
    """Nearest neighbour of every sound among the others, sounds embedded singly."""
    embedded = torch.cat([net(wave.unsqueeze(0)) for wave, _ in data])
    close = embedded @ embedded.T
    close.fill_diagonal_(-2.0)
    return (data.press[close.argmax(1)] == data.press).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--margin", type=float, default=0.2)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    data = Stampings(60, 8, seed=1)
    strangers = Stampings(20, 6, seed=2)
    sampler = GroupSampler(data.press, 8, 4, batches=args.steps, seed=args.seed)
    net = SoundNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=args.lr, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.MultiStepLR(
        optimizer, [args.steps // 2, args.steps * 4 // 5], gamma=0.3
    )
    print(f"before training recall {recall_at_one(net, strangers):.4f}", flush=True)
    for step, (waves, press) in enumerate(DataLoader(data, batch_sampler=sampler)):
        loss, active = semi_hard_triplets(net(waves), press, args.margin)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if step % 5 == 0:
            print(f"step {step} loss {loss.item():.6f} triplets {active}", flush=True)
        if (step + 1) % 30 == 0:
            recall = recall_at_one(net, strangers)
            print(f"  presses never heard: recall {recall:.4f}", flush=True)


if __name__ == "__main__":
    main()
