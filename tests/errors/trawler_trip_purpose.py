"""What was the boat doing?  Classify position logs of small trawlers.

Each trip is a log of (speed, turn rate, depth below keel) at ten minute intervals.
Trips last between 10 and 48 entries.  Purposes differ in the order of events, e.g. a
survey trip steams first and works a grid at the end, a transfer steams throughout.

    python trawler_trip_purpose.py --epochs 12
    python trawler_trip_purpose.py --epochs 20 --workdir runs/a --resume
"""
import argparse
import contextlib
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

PURPOSES = ["transfer", "trawling", "survey", "pots"]
STEAM, TOW, GRID, HAUL = range(4)
MEANS = np.array(
    [[8.5, 0.1, 40.0], [3.2, 0.3, 60.0], [4.0, 0.9, 55.0], [1.2, 1.1, 25.0]]
)
SPREAD = np.array([2.2, 0.5, 20.0])
PLANS = {
    0: [STEAM, TOW, STEAM],
    1: [STEAM, TOW, TOW],
    2: [TOW, STEAM, GRID],
    3: [HAUL, STEAM, HAUL],
}


class TripLogs(Dataset):
    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.trips = [self.one_trip(rng) for _ in range(count)]

    @staticmethod
    def one_trip(rng):
        purpose = int(rng.integers(len(PURPOSES)))
        length = int(rng.integers(10, 49))
        share = rng.dirichlet([4.0, 4.0, 4.0])
        bounds = np.cumsum(share) * length
        rows = []
        for t in range(length):
            activity = PLANS[purpose][int(np.searchsorted(bounds[:2], t))]
            if rng.random() < 0.2:
                activity = int(rng.integers(4))
            rows.append(MEANS[activity] + rng.normal(0, 1, 3) * SPREAD)
        return np.asarray(rows, dtype=np.float32), purpose

    def statistics(self):
        stacked = np.concatenate([log for log, _ in self.trips])
        return stacked.mean(0), stacked.std(0)

    def standardise(self, mean, std):
        self.trips = [((log - mean) / std, purpose) for log, purpose in self.trips]
        return self

    def __len__(self):
        return len(self.trips)

    def __getitem__(self, index):
        log, purpose = self.trips[index]
        return torch.from_numpy(log), purpose


def collate(items):
    logs, purposes = zip(*items)
    lengths = torch.tensor([len(log) for log in logs])
    return pad_sequence(logs, batch_first=True), lengths, torch.tensor(purposes)


class TripLSTM(nn.Module):
    def __init__(self, args, hidden=40):
        super().__init__()
        self.lstm = nn.LSTM(3, hidden, batch_first=True)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(hidden, len(PURPOSES))
        self.fixed = args.fixed

    def forward(self, logs, lengths):
        states, _ = self.lstm(logs)
        if self.fixed:
            last = states[torch.arange(len(lengths)), lengths - 1]
        else:
            last = states[:, -1]
        return self.head(self.drop(last))


class Session:
    """Model, optimizer and plateau scheduler, with a checkpoint to go on from."""

    def __init__(self, args, folder):
        self.model = TripLSTM(args)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
            self.optimizer, mode="min", factor=0.5, patience=2
        )
        self.criterion = nn.CrossEntropyLoss()
        self.path = os.path.join(folder, "session.pt")
        self.epoch, self.best = 0, float("inf")

    def save(self):
        parts = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "epoch": self.epoch,
            "best": self.best,
            "rng": torch.get_rng_state(),
        }
        torch.save(parts, self.path)

    def load(self):
        parts = torch.load(self.path)
        self.model.load_state_dict(parts["model"])
        self.optimizer.load_state_dict(parts["optimizer"])
        self.scheduler.load_state_dict(parts["scheduler"])
        self.epoch, self.best = parts["epoch"], parts["best"]
        torch.set_rng_state(parts["rng"])

    def train(self, loader):
        self.model.train()
        total, seen = 0.0, 0
        for logs, lengths, purposes in loader:
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(logs, lengths), purposes)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            total += loss.item() * len(purposes)
            seen += len(purposes)
        return total / seen

    @torch.no_grad()
    def test(self, loader):
        self.model.eval()
        total, hits, seen = 0.0, 0, 0
        for logs, lengths, purposes in loader:
            out = self.model(logs, lengths)
            total += self.criterion(out, purposes).item() * len(purposes)
            hits += int((out.argmax(1) == purposes).sum())
            seen += len(purposes)
        return total / seen, hits / seen


@torch.no_grad()
def prove(session, dataset):
    """Scores of a trip by itself next to its scores inside a padded batch."""
    model = session.model.eval()
    items = [dataset[i] for i in range(60)]
    logs, lengths, _ = collate(items)
    together = model(logs, lengths)
    alone = torch.cat(
        [model(log[None], torch.tensor([len(log)])) for log, _ in items], dim=0
    )
    gap = (together - alone).abs().max(1).values
    print(f"scores moved by company: mean {gap.mean():.4f} largest {gap.max():.4f}")
    print("fault shows:", "yes" if gap.max() > 1e-3 else "no")


def main():
    parser = argparse.ArgumentParser(description="trip purpose from position logs")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--lr", type=float, default=6e-3)
    parser.add_argument("--workdir", default=None)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(19)

    train_set, test_set = TripLogs(960, seed=1), TripLogs(300, seed=2)
    mean, std = train_set.statistics()
    train_set.standardise(mean, std)
    test_set.standardise(mean, std)
    train_loader = DataLoader(train_set, args.batch, shuffle=True, collate_fn=collate)
    test_loader = DataLoader(test_set, 100, collate_fn=collate)

    with contextlib.ExitStack() as stack:
        folder = args.workdir or stack.enter_context(tempfile.TemporaryDirectory())
        session = Session(args, folder)
        if args.resume and os.path.exists(session.path):
            session.load()
        while session.epoch < args.epochs:
            train_loss = session.train(train_loader)
            valid_loss, hits = session.test(test_loader)
            session.scheduler.step(valid_loss)
            session.epoch += 1
            session.best = min(session.best, valid_loss)
            session.save()
            lr = session.optimizer.param_groups[0]["lr"]
            print(
                f"epoch {session.epoch} train {train_loss:.3f} valid {valid_loss:.3f} "
                f"accuracy {hits:.3f} lr {lr:g}"
            )
        print(f"lowest validation loss {session.best:.4f}")
        if args.prove:
            prove(session, test_set)


if __name__ == "__main__":
    main()
