"""How late a parcel will be, from the scans on its way. Ways are padded at the left, so
that the last step of the LSTM is a real scan in each row; padding has a flag of its
own among the inputs and is cut off where all of a batch have it. Batches are by
similar length, and their order is drawn anew in each epoch.

    python leftpad_lstm_parcels.py --epochs 2
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Sampler

DEPOTS = 20


class ByLength(Sampler):
    """Batches of ways that are about as long as one another."""

    def __init__(self, lengths, size, rng):
        self.lengths, self.size, self.rng = lengths, size, rng

    def __len__(self):
        return len(self.lengths) // self.size

    def __iter__(self):
        blur = torch.randn(len(self.lengths), generator=self.rng)
        order = (self.lengths + blur).argsort()[: len(self) * self.size]
        groups = order.view(len(self), self.size)
        yield from groups[torch.randperm(len(self), generator=self.rng)].tolist()


def parcels(count, seed):
    """Depots with the hours between scans; some depots hold everything up."""
    rules = torch.Generator().manual_seed(2)
    slow = 2 * torch.rand(DEPOTS, generator=rules) ** 3
    rng = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(count):
        scans = int(torch.randint(2, 13, (), generator=rng))
        depot = torch.randint(DEPOTS, (scans,), generator=rng)
        hours = slow[depot] + torch.rand(scans, generator=rng)
        late = hours[-4:].sum() + slow[depot[-1]] * (hours[-1] > 1)
        noise = 0.1 * torch.randn((), generator=rng)
        made.append((depot, hours, late + noise - 3))
    return made


def collate(batch):
    size = max(len(depot) for depot, _, _ in batch)
    depots, numbers, lates = [], [], []
    for depot, hours, late in batch:
        short = size - len(depot)
        depots.append(F.pad(depot + 1, (short, 0)))
        seen = torch.stack([hours, torch.ones_like(hours)], 1)
        numbers.append(F.pad(seen, (0, 0, short, 0)))
        lates.append(late)
    return torch.stack(depots), torch.stack(numbers), torch.stack(lates)


class ParcelNet(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.depot = nn.Embedding(DEPOTS + 1, 12, padding_idx=0)
        self.lstm = nn.LSTM(14, width, batch_first=True)
        self.head = nn.Sequential(
            nn.Linear(width, width), nn.Hardswish(), nn.Linear(width, 1)
        )

    def forward(self, depots, numbers):
        states, _ = self.lstm(torch.cat([self.depot(depots), numbers], 2))
        return self.head(states[:, -1])[:, 0]


@torch.no_grad()
def evaluate(net, loader):
    net.eval()
    off = [(net(depots, numbers) - late).abs() for depots, numbers, late in loader]
    return torch.cat(off).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    train, held = parcels(1500, args.seed), parcels(400, args.seed + 1)
    lengths = torch.tensor([float(len(depot)) for depot, _, _ in train])
    groups = ByLength(lengths, 32, torch.Generator().manual_seed(args.seed))
    loader = DataLoader(train, batch_sampler=groups, collate_fn=collate)
    held = DataLoader(held, batch_size=100, collate_fn=collate)
    net = ParcelNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    step = 0
    for epoch in range(args.epochs):
        net.train()
        for depots, numbers, late in loader:
            loss = F.huber_loss(net(depots, numbers), late, delta=0.5)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f} of {depots.shape[1]} scans")
            step += 1
        schedule.step()
        print(f"epoch {epoch} off by {evaluate(net, held):.4f} days", flush=True)


if __name__ == "__main__":
    main()
