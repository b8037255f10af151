"""Sorts seeds, of which some kinds are rare: a weighted sampler, a rate that is lowered
when the accuracy stops growing, early stopping, the best weights at the end.

Written with functions and dictionaries alone.

    python plateau_seeds.py
"""

import argparse
import copy

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

KINDS, FEATURES = 5, 10
SHARES = torch.tensor([0.5, 0.25, 0.13, 0.08, 0.04])


def seeds(count, seed, shares):
    centres = torch.randn(KINDS, FEATURES, generator=torch.Generator().manual_seed(9))
    generator = torch.Generator().manual_seed(seed)
    kind = torch.multinomial(shares, count, replacement=True, generator=generator)
    bend = torch.randn(count, FEATURES, generator=generator)
    return centres[kind] + 0.9 * bend + 0.2 * bend.roll(1, 1) ** 2, kind


def make_scaler(features):
    mean, spread = features.mean(0), features.std(0)
    return lambda x: (x - mean) / spread


def make_loaders(args):
    features, kind = seeds(800, args.seed, SHARES)
    scale = make_scaler(features)
    frequency = torch.bincount(kind, minlength=KINDS).double()
    sampler = WeightedRandomSampler(
        (1 / frequency)[kind],
        num_samples=len(kind),
        generator=torch.Generator().manual_seed(args.seed),
    )
    even = torch.ones(KINDS)
    loaders = {
        "train": DataLoader(TensorDataset(scale(features), kind), 64, sampler=sampler)
    }
    for name, offset in (("valid", 1), ("test", 2)):
        x, y = seeds(400, args.seed + offset, even)
        loaders[name] = DataLoader(TensorDataset(scale(x), y), batch_size=200)
    return loaders


def make_net(width=64):
    return nn.Sequential(
        nn.Linear(FEATURES, width), nn.LayerNorm(width), nn.GELU(), nn.Dropout(0.2),
        nn.Linear(width, width), nn.LayerNorm(width), nn.GELU(), nn.Dropout(0.2),
        nn.Linear(width, KINDS),
    )  # fmt: skip


def train_epoch(net, optimizer, loader, step):
    net.train()
    for features, kind in loader:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(net(features), kind)
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
        step += 1
    return step


@torch.inference_mode()
def evaluate(net, loader):
    """The mean of the accuracies of the kinds."""
    net.eval()
    hits, total = torch.zeros(KINDS), torch.zeros(KINDS)
    for features, kind in loader:
        right = (net(features).argmax(1) == kind).float()
        hits.index_add_(0, kind, right)
        total.index_add_(0, kind, torch.ones_like(right))
    return (hits / total).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--patience", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    loaders, net = make_loaders(args), make_net()
    optimizer = torch.optim.NAdam(net.parameters(), lr=4e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, mode="max", factor=0.3, patience=1, threshold=1e-3
    )
    best = {"accuracy": -1.0, "epoch": -1, "weights": None}
    step = 0
    for epoch in range(args.epochs):
        step = train_epoch(net, optimizer, loaders["train"], step)
        accuracy = evaluate(net, loaders["valid"])
        schedule.step(accuracy)
        rate = optimizer.param_groups[0]["lr"]
        print(f"epoch {epoch} accuracy {accuracy:.4f} next rate {rate:.1e}")
        if accuracy > best["accuracy"]:
            weights = copy.deepcopy(net.state_dict())
            best = {"accuracy": accuracy, "epoch": epoch, "weights": weights}
        elif epoch - best["epoch"] >= args.patience:
            print("no better for some time, stopped")
            break
    net.load_state_dict(best["weights"])
    again = evaluate(net, loaders["valid"])
    assert again == best["accuracy"], (again, best["accuracy"])
    test = evaluate(net, loaders["test"])
    print(f"best epoch {best['epoch']} valid {again:.4f} test {test:.4f}")


if __name__ == "__main__":
    main()
