"""Addition on a clock face with P hours: memorise first, generalise much later.

A two-layer network with squared activations sees half of the P * P sums, always all
of them at once. The training sums are known by heart early; the held-out ones stay
wrong for a long while and then fall into place under strong weight decay.
"""

import argparse
import csv
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn


def clock_table(hours, seen_share, seed):
    """All ordered pairs, split at random into known and unknown sums."""
    left, right = torch.meshgrid(
        torch.arange(hours), torch.arange(hours), indexing="ij"
    )
    pairs = torch.stack([left.flatten(), right.flatten()], dim=1)
    answers = pairs.sum(dim=1) % hours
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(pairs), generator=generator)
    cut = int(seen_share * len(pairs))
    known, unknown = order[:cut], order[cut:]
    return (pairs[known], answers[known]), (pairs[unknown], answers[unknown])


class ClockNet(nn.Module):
    def __init__(self, hours, width):
        super().__init__()
        self.hours = hours
        self.first = nn.Linear(2 * hours, width, bias=False)
        self.second = nn.Linear(width, hours, bias=False)

    def forward(self, pairs):
        onehot = F.one_hot(pairs, self.hours).flatten(1).to(self.first.weight.dtype)
        return self.second(self.first(onehot).square())


def fourier_concentration(weight):
    """Share of a neuron's spectrum in its strongest frequency, averaged."""
    hours = weight.shape[1] // 2
    power = torch.fft.rfft(weight[:, :hours], dim=1).abs().square()[:, 1:]
    return (power.max(dim=1).values / power.sum(dim=1)).mean().item()


@torch.no_grad()
def measure(model, pairs, answers):
    was_training = model.training
    model.eval()
    logits = model(pairs)
    loss = F.cross_entropy(logits, answers).item()
    hits = (logits.argmax(dim=1) == answers).float().mean().item()
    model.train(was_training)
    return loss, hits


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hours", type=int, default=23)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--share", type=float, default=0.6)
    parser.add_argument("--steps", type=int, default=1400)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--weight-decay", type=float, default=0.5)
    parser.add_argument("--every", type=int, default=50)
    return parser.parse_args()


def first_step_above(rows, column, bar):
    return next((row["step"] for row in rows if row[column] >= bar), None)


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    known, unknown = clock_table(args.hours, args.share, args.seed + 17)
    model = ClockNet(args.hours, args.width)
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=args.lr,
        betas=(0.9, 0.98),
        weight_decay=args.weight_decay,
    )
    warmup = torch.optim.lr_scheduler.LinearLR(
        optimizer, start_factor=0.1, total_iters=10
    )
    print(f"{len(known[1])} sums known, {len(unknown[1])} held out")

    rows = []
    model.train()
    for step in range(1, args.steps + 1):
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(known[0]), known[1])
        loss.backward()
        optimizer.step()
        warmup.step()
        if step % args.every == 0 or step == 1:
            known_loss, known_hits = measure(model, *known)
            unknown_loss, unknown_hits = measure(model, *unknown)
            norm = torch.linalg.vector_norm(
                nn.utils.parameters_to_vector(model.parameters()).detach()
            ).item()
            row = {
                "step": step,
                "known_loss": known_loss,
                "known_hits": known_hits,
                "unknown_loss": unknown_loss,
                "unknown_hits": unknown_hits,
                "norm": norm,
                "fourier": fourier_concentration(model.first.weight.detach()),
            }
            rows.append(row)
            print(
                f"{step:5d}  known {known_loss:.2e} ({known_hits:6.1%})  "
                f"held out {unknown_loss:.2e} ({unknown_hits:6.1%})  "
                f"norm {norm:6.2f}  fourier {row['fourier']:.2f}"
            )

    with tempfile.TemporaryDirectory(prefix="clockface_") as folder:
        with open(Path(folder) / "curve.csv", "w", newline="") as sheet:
            writer = csv.DictWriter(sheet, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        torch.save(model.state_dict(), Path(folder) / "clock_net.pt")
    by_heart = first_step_above(rows, "known_hits", 0.99)
    understood = first_step_above(rows, "unknown_hits", 0.95)
    print(f"known by heart at step {by_heart}, generalised at step {understood}")


if __name__ == "__main__":
    main()
