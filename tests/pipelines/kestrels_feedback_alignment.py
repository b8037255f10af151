"""Raptor species from wing-beat spectra, learned without weight transport.

Direct feedback alignment (Nokland, 2016): the output error reaches each hidden layer
through a fixed random matrix instead of the transposed weights of the layers above.
Every layer works on a detached copy of its input, so autograd is used within layers
only. Once per epoch the angle between these updates and the true gradient is measured.
"""

import argparse
import os
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SPECIES = ["kestrel", "sparrowhawk", "merlin", "hobby", "peregrine", "buzzard"]
BANDS = 48


def record(count, rng):
    label = rng.integers(0, len(SPECIES), count)
    beat = np.array([6.0, 7.2, 8.4, 9.0, 7.8, 5.2])[label] + rng.normal(0, 0.25, count)
    glide = np.array([0.55, 0.35, 0.1, 0.3, 0.25, 0.7])[label]
    glide = np.clip(glide + rng.normal(0, 0.08, count), 0.02, 0.95)
    freq = np.linspace(0.5, 24, BANDS)
    spectrum = np.zeros((count, BANDS))
    for harmonic, gain in ((1, 1.0), (2, 0.5), (3, 0.2)):
        peak = freq[None] - harmonic * beat[:, None]
        spectrum += gain * (1 - glide[:, None]) * np.exp(-(peak**2) / 0.8)
    spectrum += glide[:, None] * np.exp(-freq[None] / 2)
    spectrum += np.abs(rng.normal(0, 0.12, spectrum.shape))
    return np.log1p(4 * spectrum).astype(np.float32), label.astype(np.int64)


class AlignedLayer(nn.Module):
    """A hidden layer with its own fixed feedback path from the output error."""

    def __init__(self, inputs, outputs, errors):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        nn.init.xavier_uniform_(self.linear.weight)
        feedback = torch.randn(errors, outputs) / errors**0.5
        self.register_buffer("feedback", feedback)

    def forward(self, x):
        return torch.tanh(self.linear(x))


class AlignedNet(nn.Module):
    def __init__(self, widths, classes):
        super().__init__()
        self.layers = nn.ModuleList(
            AlignedLayer(a, b, classes) for a, b in zip(widths, widths[1:])
        )
        self.readout = nn.Linear(widths[-1], classes)
        nn.init.zeros_(self.readout.weight)
        nn.init.zeros_(self.readout.bias)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.readout(x)

    def cut_forward(self, x):
        """Forward pass with the graph cut between layers."""
        hidden = []
        for layer in self.layers:
            x = layer(x.detach())
            hidden.append(x)
        return self.readout(x.detach()), hidden

    def aligned_backward(self, x, labels):
        """Fill .grad of all layers; return the cross entropy for the log."""
        logits, hidden = self.cut_forward(x)
        with torch.no_grad():
            target = F.one_hot(labels, logits.shape[1])
            error = (logits.softmax(dim=1) - target) / len(labels)
            signals = [error @ layer.feedback for layer in self.layers]
        torch.autograd.backward([logits, *hidden], [error, *signals])
        return F.cross_entropy(logits.detach(), labels)


def angles_to_gradient(model, x, labels):
    """Degrees between the layer-wise updates and the gradient of the loss."""
    weights = [layer.linear.weight for layer in model.layers]
    exact = torch.autograd.grad(F.cross_entropy(model(x), labels), weights)
    logits, hidden = model.cut_forward(x)
    with torch.no_grad():
        error = (logits.softmax(1) - F.one_hot(labels, logits.shape[1])) / len(labels)
    degrees = []
    for layer, h, true in zip(model.layers, hidden, exact):
        (ours,) = torch.autograd.grad(h, layer.linear.weight, error @ layer.feedback)
        cosine = F.cosine_similarity(ours.flatten(), true.flatten(), dim=0)
        degrees.append(torch.rad2deg(torch.acos(cosine.clamp(-1, 1))).item())
    return degrees


def batches(x, y, size, rng):
    order = torch.from_numpy(rng.permutation(len(x)))
    for rows in order.split(size):
        yield x[rows], y[rows]


@torch.no_grad()
def score(model, x, y):
    model.eval()
    logits = model(x)
    model.train()
    confusion = torch.zeros(len(SPECIES), len(SPECIES), dtype=torch.long)
    guess = logits.argmax(dim=1)
    confusion.index_put_((y, guess), torch.ones_like(y), accumulate=True)
    recall = confusion.diag() / confusion.sum(dim=1).clamp(min=1)
    return F.cross_entropy(logits, y).item(), recall


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=80)
    parser.add_argument("--lr", type=float, default=0.03)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)

    train_x, train_y = record(4000, rng)
    held_x, held_y = record(500, rng)
    mean, std = train_x.mean(axis=0), train_x.std(axis=0)
    train_x, held_x = [torch.from_numpy((x - mean) / std) for x in (train_x, held_x)]
    train_y, held_y = torch.from_numpy(train_y), torch.from_numpy(held_y)

    model = AlignedNet([BANDS, 96, 64], len(SPECIES))
    optimizer = torch.optim.SGD(
        model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-3
    )
    schedule = torch.optim.lr_scheduler.MultiStepLR(
        optimizer, [args.epochs // 2, 3 * args.epochs // 4], gamma=0.3
    )
    model.train()
    for epoch in range(args.epochs):
        total = 0.0
        for x, y in batches(train_x, train_y, args.batch, rng):
            optimizer.zero_grad()
            loss = model.aligned_backward(x, y)
            optimizer.step()
            total += loss.item() * len(y)
        schedule.step()
        held_loss, recall = score(model, held_x, held_y)
        angles = angles_to_gradient(model, train_x[:400], train_y[:400])
        print(
            f"epoch {epoch:2d} loss {total / len(train_x):.4f} held {held_loss:.4f} "
            f"mean recall {recall.mean().item():.3f} "
            f"angles {' '.join(f'{a:.0f}' for a in angles)}"
        )
    for name, value in zip(SPECIES, recall.tolist()):
        print(f"  {name:12s} {value:.3f}")
    with tempfile.TemporaryDirectory() as folder:
        torch.save(model.state_dict(), os.path.join(folder, "raptors.pt"))


if __name__ == "__main__":
    main()
