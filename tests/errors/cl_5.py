"""Learns calls of birds in two parts; the second part keeps to the first model.

After GMvandeVen/continual-learning, issue 5.
"""

import argparse
import copy

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

CLASSES, FEATURES = 10, 20


def calls(count, classes, seed):
    centres = 1.2 * torch.randn(
        CLASSES, FEATURES, generator=torch.Generator().manual_seed(9)
    )
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(*classes, (count,), generator=generator)
    noise = torch.randn(count, FEATURES, generator=generator)
    return centres[label] + noise, label


def network(width=64):
    return nn.Sequential(
        nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, CLASSES),
    )  # fmt: skip


def loss_fn_kd(scores, target_scores, temperature, fixed):
    """The cross-entropy to softened targets, times the squared temperature."""
    log_scores = F.log_softmax(scores / temperature, dim=1)
    targets = F.softmax(target_scores / temperature, dim=1)
    if fixed:
        loss = -(targets * log_scores).sum(dim=1).mean()
    else:
        loss = -(targets * log_scores).mean()
    return loss * temperature**2


def accuracy(model, data, part):
    """Among the classes of the part."""
    model.eval()
    with torch.no_grad():
        guess = model(data[0])[:, slice(*part)].argmax(1) + part[0]
        right = (guess == data[1]).float().mean().item()
    model.train()
    return right


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--temperature", type=float, default=2.0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    model, previous, step = network(), None, 0
    parts = (0, CLASSES // 2), (CLASSES // 2, CLASSES)
    held = [calls(400, part, args.seed + 50) for part in parts]
    for number, part in enumerate(parts):
        data = TensorDataset(*calls(960, part, args.seed + number))
        loader = DataLoader(data, batch_size=32, shuffle=True)
        optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
        for _ in range(args.epochs):
            for call, label in loader:
                scores = model(call)
                own = slice(*part)
                loss = F.cross_entropy(scores[:, own], label - part[0])
                if previous is not None:
                    with torch.no_grad():
                        before = previous(call)
                    kept = loss_fn_kd(
                        scores[:, : part[0]], before[:, : part[0]],
                        args.temperature, args.fixed,
                    )  # fmt: skip
                    loss = 0.5 * loss + 0.5 * kept
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                print(f"step {step} loss {loss.item():.4f}", flush=True)
                step += 1
        right = [accuracy(model, *one) for one in zip(held[: number + 1], parts)]
        print(f"part {number} accuracies {[round(one, 4) for one in right]}")
        previous = copy.deepcopy(model).eval().requires_grad_(False)
    if args.prove:
        before = torch.randn(64, CLASSES)
        softened = F.softmax(before / args.temperature, dim=1)
        entropy = -(softened * softened.log()).sum(1).mean() * args.temperature**2
        same = loss_fn_kd(before, before, args.temperature, args.fixed)
        share = (same / entropy).item()
        print(f"the loss of equal scores is {share:.4f} times the targets' entropy")
        print("fault shows:", "no" if abs(share - 1) < 1e-3 else "yes", flush=True)


if __name__ == "__main__":
    main()
