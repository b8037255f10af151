"""Tag short soundscape clips with the species that call in them (several per clip).

Clips are simulated as log-mel patches: each species owns a call shape in the time
frequency plane, clips contain one to five callers and background rain.
"""
import argparse
import csv
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

SPECIES = ("wren", "frog", "cricket", "owl", "plover", "cicada", "toad")
MELS, FRAMES = 20, 32


def call_template(k):
    """Call of species k as a list of (mel, frame, level)."""
    rng = np.random.default_rng(100 + k)
    length = int(rng.integers(8, 14))
    start, slope = rng.uniform(3, 16), rng.uniform(-0.7, 0.7)
    wobble, rate = rng.uniform(0, 2.5), rng.uniform(0.4, 1.4)
    points = []
    for t in range(length):
        mel = start + slope * t + wobble * np.sin(rate * t)
        points.append((int(np.clip(round(mel), 0, MELS - 1)), t, rng.uniform(0.7, 1.3)))
    return points


def simulate(n_clips, seed):
    rng = np.random.default_rng(seed)
    templates = [call_template(k) for k in range(len(SPECIES))]
    clips = rng.normal(0, 0.45, (n_clips, 1, MELS, FRAMES)).astype(np.float32)
    tags = np.zeros((n_clips, len(SPECIES)), dtype=np.float32)
    for i in range(n_clips):
        if rng.random() < 0.3:
            clips[i, 0, -6:] += rng.uniform(0.2, 0.8)
        callers = rng.choice(len(SPECIES), rng.integers(1, 6), replace=False)
        for k in callers:
            tags[i, k] = 1.0
            shift = rng.integers(0, FRAMES - 14)
            gain = rng.uniform(1.2, 2.4)
            for mel, t, level in templates[k]:
                clips[i, 0, mel, t + shift] += gain * level
    return torch.from_numpy(clips), torch.from_numpy(tags)


def conv_block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
    )


class TagNet(nn.Module):
    def __init__(self, width=10):
        super().__init__()
        self.features = nn.Sequential(
            conv_block(1, width),
            nn.MaxPool2d((1, 2)),
            conv_block(width, 2 * width),
            nn.MaxPool2d(2),
            conv_block(2 * width, 2 * width),
        )
        self.mix = nn.Linear(2 * width * (MELS // 2), 64)
        self.tags = nn.Linear(64, len(SPECIES))

    def forward(self, clip):
        h = self.features(clip)  # (batch, channels, mel, time)
        h = h.amax(dim=3).flatten(1)
        h = torch.relu(self.mix(h))
        return torch.sigmoid(self.tags(h))


def average_precision(prob, truth):
    order = prob.argsort(descending=True)
    hits = truth[order].cumsum(0)
    ranks = torch.arange(1, len(prob) + 1)
    return ((hits / ranks) * truth[order]).sum().item() / max(truth.sum().item(), 1)


class Scorer:
    """Mean average precision and micro F1 at one half, over a whole loader."""

    def __init__(self, loader):
        self.loader = loader

    @torch.no_grad()
    def predict(self, model):
        model.eval()
        prob = torch.cat([model(clip) for clip, _ in self.loader])
        truth = torch.cat([tags for _, tags in self.loader])
        return prob, truth

    def __call__(self, model, criterion):
        prob, truth = self.predict(model)
        ap = [average_precision(prob[:, k], truth[:, k]) for k in range(len(SPECIES))]
        picked = (prob > 0.5).float()
        tp = (picked * truth).sum()
        f1 = 2 * tp / (picked.sum() + truth.sum()).clamp(min=1)
        return {
            "loss": criterion(prob, truth).item(),
            "map": float(np.mean(ap)),
            "f1": f1.item(),
        }


def prove(model, scorer, criterion):
    """Loss as trained next to the Bernoulli likelihood of the predicted probabilities."""
    prob, truth = scorer.predict(model)
    p = prob.clamp(1e-7, 1 - 1e-7)
    likelihood = -(truth * p.log() + (1 - truth) * (1 - p).log()).mean().item()
    used = criterion(prob, truth).item()
    ideal = criterion(truth, truth).item()
    print(f"used {used:.4f}  likelihood {likelihood:.4f}  perfect tags {ideal:.4f}")
    print("fault shows:", "yes" if ideal > 0.01 else "no")


def train(args, out_dir):
    clips, tags = simulate(800, seed=21)
    train_set = TensorDataset(clips[:650], tags[:650])
    valid_set = TensorDataset(clips[650:], tags[650:])
    shuffle = torch.Generator().manual_seed(args.seed)
    loader = DataLoader(
        train_set, args.batch_size, shuffle=True, drop_last=True, generator=shuffle
    )
    scorer = Scorer(DataLoader(valid_set, 100))

    model = TagNet()
    criterion = nn.BCEWithLogitsLoss()
    if args.fixed:
        criterion = nn.BCELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=2e-3, total_steps=args.epochs * len(loader)
    )
    best_map = 0.0
    with open(os.path.join(out_dir, "log.csv"), "w", newline="") as handle:
        table = csv.writer(handle)
        table.writerow(["epoch", "train", "valid", "map", "f1"])
        for epoch in range(args.epochs):
            model.train()
            losses = []
            for clip, target in loader:
                optimizer.zero_grad()
                loss = criterion(model(clip), target)
                loss.backward()
                optimizer.step()
                scheduler.step()
                losses.append(loss.item())
            s = scorer(model, criterion)
            row = [epoch, np.mean(losses), s["loss"], s["map"], s["f1"]]
            table.writerow(row)
            print("[%02d] train %.4f valid %.4f mAP %.3f F1 %.3f" % tuple(row))
            if s["map"] > best_map:
                best_map = s["map"]
                torch.save(model.state_dict(), os.path.join(out_dir, "tagger.pth"))
    print("best mAP %.3f" % best_map)
    return model, scorer, criterion


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--batch-size", type=int, default=25)
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    with tempfile.TemporaryDirectory(prefix="soundscape_") as out_dir:
        model, scorer, criterion = train(args, out_dir)
    if args.prove:
        prove(model, scorer, criterion)


if __name__ == "__main__":
    main()
