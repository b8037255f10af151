"""Flight recorder windows of gliders: phase of flight and the next reading.

The recorder gives five channels (vertical speed, airspeed, bank, turn rate, noise of the
audio vario).  A shared encoder feeds two heads; the second one predicts the reading that
follows the window and acts as a helper for the first.
"""
import argparse
import math
import sys
import tempfile
from collections import deque
from pathlib import Path

import torch
from torch import nn

PHASES = ("tow", "cruise", "thermal", "wave", "circuit")
CHANNELS, WINDOW = 5, 16

# vertical speed, airspeed, bank, turn rate, audio: level, swing, period
HABITS = {
    "tow": ((2.5, 0.5, 9), (110, 4, 8), (5, 8, 12), (1, 3, 12), (0.5, 0.1, 5)),
    "cruise": ((-1.0, 1.2, 7), (120, 9, 9), (4, 6, 10), (1, 2, 10), (0.3, 0.2, 6)),
    "thermal": ((2.0, 1.5, 7), (85, 4, 9), (35, 6, 8), (16, 4, 8), (0.8, 0.3, 4)),
    "wave": ((1.8, 0.4, 15), (95, 4, 14), (3, 5, 15), (0, 2, 15), (0.6, 0.1, 9)),
    "circuit": ((-1.8, 0.8, 6), (100, 5, 7), (14, 14, 9), (6, 7, 9), (0.2, 0.1, 6)),
}


def record_windows(count, seed):
    g = torch.Generator().manual_seed(seed)
    phases = torch.randint(len(PHASES), (count,), generator=g)
    time = torch.arange(WINDOW + 1, dtype=torch.float32)
    out = torch.empty(count, WINDOW + 1, CHANNELS)
    for i, phase in enumerate(phases.tolist()):
        for c, (level, swing, period) in enumerate(HABITS[PHASES[phase]]):
            start, stretch, shift = torch.rand(3, generator=g).tolist()
            angle = 2 * math.pi * (time / (period * (0.8 + 0.4 * stretch)) + start)
            noise = torch.randn(WINDOW + 1, generator=g)
            drift = 1.6 * (shift - 0.5) * swing * 2
            out[i, :, c] = level + drift + swing * (torch.sin(angle) + 0.7 * noise)
    return out, phases


class Recorder:
    """Windows, following reading and phase, scaled with the training statistics."""

    def __init__(self, count, seed, scale=None):
        readings, self.phase = record_windows(count, seed)
        if scale is None:
            scale = readings.mean((0, 1)), readings.std((0, 1))
        self.scale = scale
        readings = (readings - scale[0]) / scale[1]
        self.window, self.following = readings[:, :-1], readings[:, -1]

    def batches(self, size, generator):
        for rows in torch.randperm(len(self.phase), generator=generator).split(size):
            yield self.window[rows], self.following[rows], self.phase[rows]


class Encoder(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.enter = nn.Conv1d(CHANNELS, width, 3, padding=1)
        self.hidden = nn.ModuleList(
            nn.Conv1d(width, width, 3, padding=d, dilation=d) for d in (1, 2, 4)
        )
        self.out = nn.Linear(2 * width, width)

    def forward(self, window):
        h = torch.relu(self.enter(window.transpose(1, 2)))
        for conv in self.hidden:
            h = h + torch.relu(conv(h))
        return torch.tanh(self.out(torch.cat([h.mean(-1), h[..., -1]], dim=-1)))


class TwoHeads(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.encoder = Encoder(width)
        self.phase_head = nn.Linear(width, len(PHASES))
        self.next_head = nn.Sequential(
            nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, CHANNELS)
        )

    def forward(self, window):
        code = self.encoder(window)
        return self.phase_head(code), self.next_head(code)


class GradientLog:
    """Size of what lies in .grad at the moment a batch starts its backward pass."""

    def __init__(self):
        self.found = []

    def look(self, model):
        grads = [p.grad.norm() for p in model.parameters() if p.grad is not None]
        self.found.append(torch.stack(grads).norm().item() if grads else 0.0)

    def report(self):
        carried = sum(v > 0 for v in self.found)
        print(
            f"{carried} of {len(self.found)} batches began on gradients of earlier ones"
        )
        print("fault shows:", "yes" if carried else "no")


def train_epoch(model, data, optimizer, args, shuffle, gradient_log):
    phase_loss_fn, next_loss_fn = nn.CrossEntropyLoss(), nn.SmoothL1Loss()
    recent = deque(maxlen=20)
    model.train()
    optimizer.zero_grad()
    for window, following, phase in data.batches(args.batch, shuffle):
        if args.fixed:
            optimizer.zero_grad()
        if gradient_log is not None:
            gradient_log.look(model)
        phase_scores, guess = model(window)
        phase_loss = phase_loss_fn(phase_scores, phase)
        next_loss = next_loss_fn(guess, following)
        phase_loss.backward(retain_graph=True)
        (args.helper * next_loss).backward()
        optimizer.step()
        recent.append((phase_loss.item(), next_loss.item()))
    return [sum(column) / len(recent) for column in zip(*recent)]


@torch.no_grad()
def validate(model, data):
    model.eval()
    scores, guess = model(data.window)
    loss = nn.functional.cross_entropy(scores, data.phase).item()
    hits = (scores.argmax(-1) == data.phase).float().mean().item()
    gap = (guess - data.following).abs().mean().item()
    return loss, hits, gap


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--helper", type=float, default=0.5)
    parser.add_argument("--lr", type=float, default=1.5e-3)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args(argv)

    torch.manual_seed(27)
    shuffle = torch.Generator().manual_seed(28)
    flights = Recorder(1280, seed=60)
    later = Recorder(320, seed=61, scale=flights.scale)
    model = TwoHeads()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    gradient_log = GradientLog() if args.prove else None
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(args.epochs):
            phase, following = train_epoch(
                model, flights, optimizer, args, shuffle, gradient_log
            )
            scheduler.step()
            loss, hits, gap = validate(model, later)
            sys.stdout.write(
                f"{epoch:3d} phase {phase:.3f} next {following:.3f} | "
                f"held-out phase {loss:.3f} ({hits:.1%}) next gap {gap:.3f}\n"
            )
            torch.save(model.state_dict(), Path(folder, f"glider_{epoch:02d}.pt"))
    if gradient_log is not None:
        gradient_log.report()


if __name__ == "__main__":
    main()
