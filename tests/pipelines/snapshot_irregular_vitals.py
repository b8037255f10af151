"""
Deterioration of patients from irregularly measured vital signs: snapshot ensemble.

One recurrent network with decay between measurements (scripted cell, orthogonal recurrent
weights), cosine rate with warm restarts. At the end of every cycle a snapshot is taken;
the best K of them vote in the end. Samples whose outcome is not known yet keep their place
in the batch with weight zero; the loss is a sum over samples. Accuracy is also reported on
a part of the training set, in evaluation mode, to see the gap.
"""

import argparse
import heapq
import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import orthogonal
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    SequentialSampler,
    Subset,
)

SIGNS = 5


class Stays(Dataset):
    """Stays in hospital sorted by length; -1 marks an outcome that is not known yet."""

    def __init__(self, n, seed, unknown=0.15):
        g = torch.Generator().manual_seed(seed)
        lengths = torch.randint(6, 25, (n,), generator=g).sort().values
        self.items = []
        for length in lengths.tolist():
            gap = -torch.log(torch.rand(length, generator=g) + 1e-6)
            hours = torch.cumsum(gap, 0)
            drift = 0.25 * torch.randn(SIGNS, generator=g)
            level = 0.5 * torch.randn(SIGNS, generator=g)
            x = level + drift * hours[:, None].sqrt()
            x = x + 0.3 * torch.randn(length, SIGNS, generator=g)
            risk = x[-3:, 0].mean() - x[-3:, 1].mean() + 2 * drift[2] * level[3].sign()
            y = int(risk + 0.2 * torch.randn((), generator=g) > 0)
            if torch.rand((), generator=g) < unknown:
                y = -1
            self.items.append((torch.cat([x, gap[:, None]], 1), y))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class ShuffledBatches:
    """Neighbours in length stay together, batches come in random order."""

    def __init__(self, data, size):
        self.batches = list(
            BatchSampler(SequentialSampler(data), size, drop_last=False)
        )

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        for i in torch.randperm(len(self.batches)).tolist():
            yield self.batches[i]


def collate(items):
    x = nn.utils.rnn.pad_sequence([x for x, _ in items], batch_first=True)
    lengths = torch.tensor([len(x) for x, _ in items])
    return x, lengths, torch.tensor([y for _, y in items])


@torch.jit.script
def decay_scan(u, gate, fade, recurrent, lengths):
    """Hidden state fades with the time between measurements; stops at each one's length."""
    h = torch.zeros(u.size(0), u.size(2), dtype=u.dtype)
    for t in range(u.size(1)):
        z = gate[:, t]
        new = z * torch.tanh(u[:, t] + (fade[:, t] * h) @ recurrent.t()) + (1 - z) * h
        h = torch.where((lengths > t).unsqueeze(1), new, h)
    return h


class DecayNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.inputs = nn.Linear(SIGNS + 1, 2 * width)
        self.fade = nn.Linear(1, width)
        self.recurrent = orthogonal(nn.Linear(width, width, bias=False))
        self.head = nn.Sequential(nn.Dropout(0.1), nn.Linear(width, 1))

    def forward(self, x, lengths):
        u, gate = self.inputs(x).chunk(2, -1)
        fade = torch.exp(-F.relu(self.fade(x[..., -1:])))
        h = decay_scan(u, torch.sigmoid(gate), fade, self.recurrent.weight, lengths)
        return self.head(h).squeeze(-1)


@torch.no_grad()
def probabilities(model, loader):
    model.eval()
    p, y = zip(*[(model(x, n).sigmoid(), y) for x, n, y in loader])
    model.train()
    return torch.cat(p), torch.cat(y)


def score(p, y):
    """Accuracy and log-loss over known outcomes."""
    known = y >= 0
    p, y = p[known].clamp(1e-6, 1 - 1e-6), y[known].float()
    right = ((p > 0.5) == (y > 0.5)).float().mean().item()
    return right, F.binary_cross_entropy(p, y).item()


def main(steps, cycles=4, keep=3, batch_size=32):
    torch.set_num_threads(1)
    torch.manual_seed(80)
    data = Stays(592, 81)
    train_loader = DataLoader(
        data, batch_sampler=ShuffledBatches(data, batch_size), collate_fn=collate
    )
    part = Subset(data, range(0, len(data), 4))
    loaders = {
        "train": DataLoader(part, 64, collate_fn=collate),
        "valid": DataLoader(Stays(200, 82, 0.0), 64, collate_fn=collate),
        "test": DataLoader(Stays(400, 83, 0.0), 64, collate_fn=collate),
    }
    model = DecayNet()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=4e-3, alpha=0.95)
    cycle = max(1, steps // cycles)
    scheduler = CosineAnnealingWarmRestarts(optimizer, T_0=cycle, eta_min=4e-5)
    best, step, running = [], 0, 0.0
    for epoch in itertools.count():
        for x, lengths, y in train_loader:
            weight = (y >= 0).float()
            logits = model(x, lengths)
            loss = F.binary_cross_entropy_with_logits(
                logits, y.clamp(min=0).float(), weight=weight, reduction="sum"
            )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 20.0)
            optimizer.step()
            scheduler.step()
            step += 1
            mean = loss.item() / max(1.0, weight.sum().item())
            running = mean if step == 1 else 0.9 * running + 0.1 * mean
            if step % 10 == 0:
                print(
                    f"epoch {epoch} step {step} loss {loss.item():.3f} smooth {running:.4f}"
                )
            if step % cycle == 0:
                right, valid = score(*probabilities(model, loaders["valid"]))
                seen, _ = score(*probabilities(model, loaders["train"]))
                print(
                    f"cycle ends: valid {right:.3f} ({valid:.4f}), part of train {seen:.3f}"
                )
                weights = {k: v.clone() for k, v in model.state_dict().items()}
                heapq.heappush(best, (-valid, step, weights))
                if len(best) > keep:
                    heapq.heappop(best)
            if step >= steps:
                break
        if step >= steps:
            break

    votes = []
    for valid, at, weights in sorted(best, key=lambda b: b[1]):
        model.load_state_dict(weights)
        p, y = probabilities(model, loaders["test"])
        votes.append(p)
        print(f"snapshot of step {at}: test accuracy {score(p, y)[0]:.3f}")
    right, loss = score(torch.stack(votes).mean(0), y)
    print(f"ensemble of {len(votes)}: test accuracy {right:.3f} log-loss {loss:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=160)
    main(parser.parse_args().steps)
