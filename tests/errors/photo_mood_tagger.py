"""Multi-label mood tags for photographs, from precomputed colour features."""
import argparse
import torch
from torch import nn
import torch.nn.functional as F

MOODS = [
    "calm",
    "bright",
    "gloomy",
    "warm",
    "cold",
    "busy",
    "lonely",
    "festive",
    "nostalgic",
    "tense",
]


class PhotoSet:
    def __init__(self, n, dim=30, seed=0):
        gen = torch.Generator().manual_seed(1234)
        self.basis = torch.randn(dim, len(MOODS), generator=gen) / dim**0.5
        self.mix = torch.randn(dim, dim, generator=gen) / dim**0.5
        gen = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, dim, generator=gen)
        latent = torch.tanh(self.x @ self.mix * 1.5) + 0.5 * self.x
        score = 4.0 * latent @ self.basis + 0.4 * torch.randn(
            n, len(MOODS), generator=gen
        )
        self.y = (score > 1.2).float()

    def batches(self, size, gen=None):
        order = (
            torch.randperm(len(self.x), generator=gen)
            if gen
            else torch.arange(len(self.x))
        )
        for i in range(0, len(order) - size + 1, size):
            rows = order[i : i + size]
            yield self.x[rows], self.y[rows]


class MoodTagger(nn.Module):
    def __init__(self, dim=30, hidden=96, tags=len(MOODS), fixed=False):
        super().__init__()
        self.fixed = fixed
        self.fc1 = nn.Linear(dim, hidden)
        self.bn1 = nn.BatchNorm1d(hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(hidden, tags)

    def forward(self, x):
        x = F.relu(self.bn1(self.fc1(x)))
        x = self.drop(F.relu(self.fc2(x)))
        x = self.out(x)
        return x if self.fixed else torch.sigmoid(x)

    @torch.no_grad()
    def probabilities(self, x):
        out = self(x)
        return torch.sigmoid(out) if self.fixed else out


def f1(prob, y, threshold=0.5):
    hit = (prob > threshold).float()
    tp = (hit * y).sum(0)
    score = 2 * tp / (hit.sum(0) + y.sum(0)).clamp(min=1)
    return score.mean().item()


def validate(model, data):
    model.eval()
    prob = model.probabilities(data.x)
    brier = (prob - data.y).pow(2).mean().item()
    result = f1(prob, data.y), brier
    model.train()
    return result


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--epochs", type=int, default=12)
    ap.add_argument("--batch-size", type=int, default=64)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(6)
    gen = torch.Generator().manual_seed(6)
    train, val = PhotoSet(2000, seed=1), PhotoSet(600, seed=2)
    print(f"{train.y.mean():.3f} of all (photo, mood) pairs are tagged")

    model = MoodTagger(fixed=args.fixed)
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    for epoch in range(1, args.epochs + 1):
        losses = []
        for x, y in train.batches(args.batch_size, gen):
            optimizer.zero_grad()
            out = model(x)
            loss = criterion(out, y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        score, brier = validate(model, val)
        print(
            f"epoch {epoch:2d}: loss {sum(losses) / len(losses):.4f}, "
            f"val F1 {score:.3f}, Brier {brier:.4f}"
        )

    if args.prove:
        model.eval()
        with torch.no_grad():
            trained_on = criterion(model(val.x), val.y).item()
            implied = F.binary_cross_entropy(model.probabilities(val.x), val.y).item()
            low, high = model(val.x).min().item(), model(val.x).max().item()
        print(f"network output from {low:.3f} to {high:.3f}")
        print(
            f"criterion {trained_on:.4f}, cross entropy of the probabilities {implied:.4f}"
        )
        print("fault shows:", "yes" if abs(trained_on - implied) > 1e-3 else "no")


if __name__ == "__main__":
    main()
