"""Wrist-sensor gestures: 1-D CNN over accelerometer windows with jitter + scaling augmentation."""
import argparse

import numpy as np
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset

CLASSES = ["circle", "shake", "swipe", "tap", "twist"]
LENGTH = 64


def record_gestures(n, seed):
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 1, LENGTH, dtype=np.float32)
    labels = rng.integers(0, len(CLASSES), n)
    windows = np.zeros((n, 3, LENGTH), dtype=np.float32)
    for i, c in enumerate(labels):
        ph = rng.uniform(0, 0.6)
        f = 2 + c * 0.6 + rng.normal(0, 0.08)
        windows[i, 0] = np.sin(2 * np.pi * (f * t + ph))
        windows[i, 1] = np.cos(2 * np.pi * (f * t + ph)) * (0.5 + 0.1 * c)
        windows[i, 2] = np.exp(-(((t - 0.5) / (0.08 + 0.03 * c)) ** 2))
    windows += rng.normal(0, 0.5, windows.shape).astype(np.float32)
    return windows, labels.astype(np.int64)


class GestureDataset(Dataset):
    def __init__(self, windows, labels, augment=False, fixed=False, seed=0):
        self.windows = windows
        self.labels = labels
        self.augment = augment
        self.fixed = fixed
        self.rng = torch.Generator().manual_seed(seed)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, idx):
        x = torch.from_numpy(self.windows[idx])
        if self.fixed:
            x = x.clone()
        if self.augment:
            x += 0.35 * torch.randn(x.shape, generator=self.rng)
            x *= 1.0 + 0.1 * torch.randn((3, 1), generator=self.rng)
        return x, int(self.labels[idx])


class GestureNet(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(3, 16, 7, padding=3),
            nn.BatchNorm1d(16),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(16, 32, 5, padding=2),
            nn.BatchNorm1d(32),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(32, 32, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(4),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Dropout(0.2), nn.Linear(128, n_classes)
        )

    def forward(self, x):
        return self.classifier(self.features(x))


def run_epoch(model, loader, criterion, optimizer=None):
    training = optimizer is not None
    model.train(training)
    loss_sum, hits, seen = 0.0, 0, 0
    with torch.set_grad_enabled(training):
        for x, y in loader:
            out = model(x)
            loss = criterion(out, y)
            if training:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            loss_sum += loss.item() * len(y)
            hits += (out.argmax(1) == y).sum().item()
            seen += len(y)
    return loss_sum / seen, hits / seen


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    np.random.seed(args.seed)

    train_x, train_y = record_gestures(768, seed=100)
    test_x, test_y = record_gestures(512, seed=101)
    recorded = train_x.copy()

    train_ds = GestureDataset(
        train_x, train_y, augment=True, fixed=args.fixed, seed=args.seed
    )
    test_ds = GestureDataset(test_x, test_y)
    loader_gen = torch.Generator()
    loader_gen.manual_seed(args.seed)
    train_loader = DataLoader(
        train_ds, batch_size=args.batch_size, shuffle=True, generator=loader_gen
    )
    test_loader = DataLoader(test_ds, batch_size=256)

    model = GestureNet(len(CLASSES))
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.Adam(model.parameters(), lr=args.lr)

    for epoch in range(1, args.epochs + 1):
        tr_loss, tr_acc = run_epoch(model, train_loader, criterion, optimizer)
        te_loss, te_acc = run_epoch(model, test_loader, criterion)
        if epoch % 2 == 0 or epoch == 1:
            print(
                f"epoch {epoch:02d} | train loss {tr_loss:.3f} acc {tr_acc:.3f} "
                f"| test loss {te_loss:.3f} acc {te_acc:.3f}"
            )

    print(f"test accuracy: {te_acc:.3f}")

    if args.prove:
        drift = float(np.abs(train_ds.windows - recorded).mean())
        print(
            f"mean absolute change of the stored windows since recording: {drift:.4f}"
        )
        print(f"fault shows: {'yes' if drift > 1e-6 else 'no'}")


if __name__ == "__main__":
    main()
