# Predict the shopping category of the next click from a browsing session.
# Sessions have different lengths, GRU encoder, gradient accumulation because the
# original data did not fit in memory with the batch size we wanted.
import argparse
import random

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

N_ITEMS = 300
N_CATS = 8
ACCUMULATE = 2


class Sessions(Dataset):
    def __init__(self, n, seed):
        rnd = random.Random(seed)
        self.rows = []
        for _ in range(n):
            cat = rnd.randrange(N_CATS)
            clicks = []
            for _ in range(rnd.randint(3, 30)):
                if rnd.random() < 0.25:
                    cat = rnd.randrange(N_CATS)
                clicks.append(1 + cat + N_CATS * rnd.randrange(N_ITEMS // N_CATS))
            following = cat if rnd.random() < 0.85 else rnd.randrange(N_CATS)
            self.rows.append((torch.tensor(clicks), following))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    clicks, targets = zip(*rows)
    lengths = torch.tensor([len(c) for c in clicks])
    return (
        pad_sequence(clicks, batch_first=True, padding_value=0),
        lengths,
        torch.tensor(targets),
    )


class SessionModel(nn.Module):
    def __init__(self, fixed, dim=40, hidden=64):
        super().__init__()
        self.fixed = fixed
        self.item = nn.Embedding(N_ITEMS + N_CATS + 1, dim, padding_idx=0)
        self.gru = nn.GRU(dim, hidden, batch_first=True)
        self.head = nn.Sequential(nn.Dropout(0.1), nn.Linear(hidden, N_CATS))

    def forward(self, clicks, lengths):
        out, _ = self.gru(self.item(clicks))
        if self.fixed:
            state = out[torch.arange(len(out)), lengths - 1]
        else:
            state = out[:, -1]
        return self.head(state)


def hit_rate(model, loader):
    model.eval()
    hits = total = 0
    with torch.no_grad():
        for clicks, lengths, target in loader:
            hits += (model(clicks, lengths).argmax(-1) == target).sum().item()
            total += len(target)
    model.train()
    return hits / total


def fit(model, train_loader, test_loader, args):
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=60, gamma=0.5)
    criterion = nn.CrossEntropyLoss()
    updates, micro, window = 0, 0, 0.0
    optimizer.zero_grad()
    while updates < args.steps:
        for clicks, lengths, target in train_loader:
            loss = criterion(model(clicks, lengths), target)
            (loss / ACCUMULATE).backward()
            window += loss.item() / ACCUMULATE
            micro += 1
            if micro % ACCUMULATE:
                continue
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
            updates += 1
            if updates % 30 == 0:
                print(
                    f"update {updates}: loss {window / 30:.4f}  hit rate {hit_rate(model, test_loader):.4f}"
                )
                window = 0.0
            if updates >= args.steps:
                break


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=150, help="optimizer updates")
    p.add_argument("--lr", type=float, default=5e-3)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    return p.parse_args()


if __name__ == "__main__":
    args = parse()
    torch.manual_seed(8)
    random.seed(8)
    train_loader = DataLoader(
        Sessions(4000, 1),
        batch_size=32,
        shuffle=True,
        collate_fn=collate,
        drop_last=True,
    )
    test_loader = DataLoader(Sessions(600, 2), batch_size=100, collate_fn=collate)
    model = SessionModel(args.fixed)
    fit(model, train_loader, test_loader, args)
    print("final hit rate", round(hit_rate(model, test_loader), 4))

    if args.prove:
        model.eval()
        clicks, lengths, _ = collate([test_loader.dataset[i] for i in range(50)])
        longer = torch.cat([clicks, torch.zeros(50, 12, dtype=clicks.dtype)], dim=1)
        with torch.no_grad():
            gap = (model(clicks, lengths) - model(longer, lengths)).abs().max().item()
        print(f"scores change by at most {gap:.6f} when the batch is padded further")
        print("fault shows:", "yes" if gap > 1e-4 else "no")
