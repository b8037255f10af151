import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

MINERALS = [
    "quartz",
    "calcite",
    "albite",
    "gypsum",
    "pyrite",
    "olivine",
    "zircon",
    "halite",
    "talc",
    "beryl",
    "dolomite",
    "apatite",
]
BINS = 128


def raman_spectra(n, seed):
    """Each mineral has three lines, intensity and baseline vary."""
    lines = torch.randint(
        8, BINS - 8, (len(MINERALS), 3), generator=torch.Generator().manual_seed(99)
    )
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, len(MINERALS), (n,), generator=g)
    axis = torch.arange(BINS).float()
    shift = torch.randn(n, 1, generator=g)
    spec = torch.zeros(n, BINS)
    for k in range(3):
        centre = lines[y, k].float().unsqueeze(1) + shift
        height = 0.3 + torch.rand(n, 1, generator=g)
        spec += height * torch.exp(-(((axis - centre) / 2.5) ** 2))
    spec += 0.4 * torch.rand(n, 1, generator=g) * axis / BINS
    spec += 0.7 * torch.randn(n, BINS, generator=g)
    return spec.unsqueeze(1), y


class SpectraNet(nn.Module):
    def __init__(self, n_classes, last):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(1, 12, 7, padding=3),
            nn.BatchNorm1d(12),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(12, 24, 5, padding=2),
            nn.BatchNorm1d(24),
            nn.ReLU(),
            nn.MaxPool1d(4),
            nn.Flatten(),
        )
        self.scores = nn.Linear(24 * BINS // 8, n_classes)
        self.last = last

    def forward(self, x):
        return self.last(self.scores(self.features(x)))


def train_epoch(model, loader, criterion, optimizer):
    model.train()
    total, hits, n = 0.0, 0, 0
    for x, y in loader:
        optimizer.zero_grad()
        out = model(x)
        loss = criterion(out, y)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(y)
        hits += (out.argmax(1) == y).sum().item()
        n += len(y)
    return total / n, hits / n


@torch.no_grad()
def test_epoch(model, loader, criterion):
    model.eval()
    total, hits, n = 0.0, 0, 0
    for x, y in loader:
        out = model(x)
        total += criterion(out, y).item() * len(y)
        hits += (out.argmax(1) == y).sum().item()
        n += len(y)
    return total / n, hits / n


def grad_of(model, value):
    return torch.cat(
        [g.flatten() for g in torch.autograd.grad(value, list(model.parameters()))]
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    opts = parser.parse_args()

    torch.manual_seed(42)
    train = DataLoader(
        TensorDataset(*raman_spectra(1440, 1)), batch_size=opts.batch_size, shuffle=True
    )
    test_set = raman_spectra(600, 2)
    test = DataLoader(TensorDataset(*test_set), batch_size=200)

    model = SpectraNet(
        len(MINERALS), nn.Identity() if opts.fixed else nn.Softmax(dim=1)
    )
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=opts.lr)

    for epoch in range(1, opts.epochs + 1):
        tl, ta = train_epoch(model, train, criterion, optimizer)
        vl, va = test_epoch(model, test, criterion)
        print(
            f"epoch {epoch}: train loss {tl:.3f} acc {ta:.3f} | test loss {vl:.3f} acc {va:.3f}"
        )

    if opts.prove:
        model.eval()
        x, y = test_set[0][:100], test_set[1][:100]
        used = criterion(model(x), y)
        nll = -torch.log_softmax(model.scores(model.features(x)), dim=1)[
            torch.arange(100), y
        ].mean()
        a, b = grad_of(model, used), grad_of(model, nll)
        rel = ((a - b).norm() / b.norm()).item()
        print(
            f"criterion {used.item():.4f}, negative log-likelihood {nll.item():.4f}, "
            f"relative gradient distance {rel:.4f}"
        )
        print("fault shows:", "yes" if rel > 1e-3 else "no")


if __name__ == "__main__":
    main()
