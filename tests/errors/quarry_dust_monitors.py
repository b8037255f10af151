# Classify the source of dust bursts at a quarry from the trace of a particle counter.
# Sources: blast, crusher, haul road, stockpile.  The counters differ from place to place.

import argparse
import logging
import os
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)

SOURCES = ["blast", "crusher", "haul road", "stockpile"]
LENGTH = 64


def burst(source, rng):
    t = np.arange(LENGTH)
    start = rng.integers(6, 24)
    since = np.clip(t - start, 0, None)
    on = (t >= start).astype(float)
    if source == 0:
        trace = 2.6 * on * np.exp(-since / rng.uniform(5, 9))
    elif source == 1:
        trace = on * (1.0 + 0.5 * np.sin(since * rng.uniform(0.9, 1.2)))
    elif source == 2:
        trace = np.zeros(LENGTH)
        for k in range(3):
            peak = start + k * rng.integers(9, 13)
            trace += 1.5 * np.exp(-((t - peak) ** 2) / rng.uniform(5, 10))
    else:
        trace = 1.1 * on * (1 - np.exp(-since / rng.uniform(8, 14)))
    return trace + rng.normal(0, 0.35, LENGTH)


def place_traces(place, count, rng):
    """A counter has its own gain and background; mast counters are the faintest."""
    gain, background = place
    labels = rng.integers(0, 4, count)
    fine = np.stack([burst(s, rng) for s in labels])
    coarse = np.stack([burst(s, rng) for s in labels])
    both = np.stack([fine, coarse], 1)
    both = gain * both + background + rng.normal(0, 0.1, (count, 2, 1))
    return both.astype(np.float32), labels.astype(np.int64)


def collect(places, count, seed):
    rng = np.random.default_rng(seed)
    parts = [place_traces(place, count, rng) for place in places]
    x = torch.from_numpy(np.concatenate([part[0] for part in parts]))
    y = torch.from_numpy(np.concatenate([part[1] for part in parts]))
    return TensorDataset(x, y)


PLACES = [(1.0, 0.0), (1.3, 0.5), (0.8, -0.4), (1.1, 0.2), (0.6, 1.2)]


class ConvUnit(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.conv = nn.Conv1d(c_in, c_out, 5, stride=stride, padding=2, bias=False)
        self.bn = nn.BatchNorm1d(c_out, momentum=0.2)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))


class DustNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.units = nn.Sequential(
            ConvUnit(2, 16, 1), ConvUnit(16, 32, 2), ConvUnit(32, 32, 2)
        )
        self.dropout = nn.Dropout(0.4)
        self.fc = nn.Linear(64, len(SOURCES))

    def forward(self, x):
        h = self.units(x)
        h = torch.cat([h.mean(2), h.amax(2)], 1)
        return self.fc(self.dropout(h))


def train_one_epoch(model, loader, optimizer, scheduler):
    model.train()
    losses = []
    for x, y in loader:
        loss = F.cross_entropy(model(x), y, label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


@torch.no_grad()
def validate(model, loader, args):
    if args.fixed:
        model.eval()
    loss, hits, seen = 0.0, 0, 0
    for x, y in loader:
        logits = model(x)
        loss += F.cross_entropy(logits, y, reduction="sum").item()
        hits += (logits.argmax(1) == y).sum().item()
        seen += len(y)
    return loss / seen, hits / seen


@torch.no_grad()
def predict(path, dataset):
    """Load the stored network and label a set of traces."""
    model = DustNet()
    model.load_state_dict(torch.load(path))
    model.eval()
    return torch.cat([model(x) for x, _ in DataLoader(dataset, 128)])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--bs", type=int, default=40)
    ap.add_argument("--lr", type=float, default=4e-3)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--fixed", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    train_set = collect(PLACES, 200, args.seed + 1)
    valid_set = collect(PLACES, 80, args.seed + 2)
    test_set = collect(PLACES, 100, args.seed + 3)
    train_loader = DataLoader(
        train_set,
        args.bs,
        shuffle=True,
        drop_last=True,
        generator=torch.Generator().manual_seed(args.seed),
    )
    valid_loader = DataLoader(valid_set, 16)

    model = DustNet()
    optimizer = optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-2)
    scheduler = optim.lr_scheduler.OneCycleLR(
        optimizer, args.lr, total_steps=args.epochs * len(train_loader)
    )
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "dust.pt")
        best = -1.0
        for epoch in range(args.epochs):
            train_loss = train_one_epoch(model, train_loader, optimizer, scheduler)
            valid_loss, accuracy = validate(model, valid_loader, args)
            logger.info(
                "epoch %d/%d train %.4f valid %.4f acc %.4f",
                epoch + 1,
                args.epochs,
                train_loss,
                valid_loss,
                accuracy,
            )
            if accuracy > best:
                best = accuracy
                torch.save(model.state_dict(), path)
        logits = predict(path, test_set)

    y = test_set.tensors[1]
    logger.info("best valid acc %.4f", best)
    logger.info("test loss %.4f", F.cross_entropy(logits, y).item())
    logger.info("test acc %.4f", (logits.argmax(1) == y).float().mean().item())
    for place, part in enumerate((logits.argmax(1) == y).float().chunk(len(PLACES))):
        logger.info("  counter %d: %.3f", place, part.mean().item())


if __name__ == "__main__":
    main()
