"""Temperature of a furnace's lining; a logger that now and then writes nonsense.

Spikes of the loss (sensors at full scale, or NaN) are answered by a rollback: model,
optimizer and schedule return to the last good snapshot, kept in memory every ten steps,
the rate is halved for a while and the batches since the snapshot are not seen again.
Losses that are not finite never reach the optimizer. The rate scale recovers.
"""
import argparse
import collections
import copy
import math
import statistics

import torch
import torch.nn as nn
import torch.nn.functional as F


class LiningNet(nn.Module):
    def __init__(self, inputs=8, width=48):
        super().__init__()
        self.cell = nn.GRU(inputs, width, batch_first=True)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

    def forward(self, x):
        return self.head(self.cell(x)[0][:, -1]).squeeze(-1)


def shifts(n, gen):
    x = torch.randn(n, 12, 8, generator=gen).cumsum(1) * 0.3
    decay = 0.8 ** torch.arange(11, -1, -1.0)
    heat = (x[:, :, 0] * decay).sum(1) + torch.tanh(x[:, -1, 1] * x[:, -1, 2])
    return x, heat / 2 + 0.05 * torch.randn(n, generator=gen)


def stream(gen):
    """Endless batches; the logger fails at times."""
    number = 0
    while True:
        x, y = shifts(32, gen)
        if number % 53 == 47:
            x[::2, 6:] = 80.0
            y[::2] = 60.0
        elif number % 71 == 60:
            x[3, 4, 2] = math.nan
        yield x, y
        number += 1


class Snapshots:
    def __init__(self, *parts):
        self.parts, self.kept = parts, None

    def keep(self, step):
        self.kept = step, copy.deepcopy([p.state_dict() for p in self.parts])

    def restore(self):
        step, states = self.kept
        for part, state in zip(self.parts, states):
            part.load_state_dict(copy.deepcopy(state))
        return step


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--steps", type=int, default=200)
    args = p.parse_args()
    torch.manual_seed(17)
    torch.set_num_threads(1)
    batches = stream(torch.Generator().manual_seed(3))
    vx, vy = shifts(400, torch.Generator().manual_seed(4))
    model = LiningNet()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=2e-3, momentum=0.5)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps, 1e-5)
    snapshots = Snapshots(model, optimizer, schedule)
    snapshots.keep(0)
    recent = collections.deque(maxlen=20)
    step, calm, skipped, rollbacks = 0, 0, 0, 0
    while step < args.steps:
        x, y = next(batches)
        loss = F.mse_loss(model(x), y)
        if not torch.isfinite(loss):
            skipped += 1
            continue
        usual = statistics.median(recent) if len(recent) > 5 else math.inf
        optimizer.zero_grad()
        loss.backward()
        scale = 1.0 if calm <= 0 else 0.5
        rates = [g["lr"] for g in optimizer.param_groups]
        for g in optimizer.param_groups:
            g["lr"] *= scale
        optimizer.step()
        for g, rate in zip(optimizer.param_groups, rates):
            g["lr"] = rate
        schedule.step()
        step, calm = step + 1, calm - 1
        if loss.item() > 8 * usual:
            back = snapshots.restore()
            print(f"step {step}: loss {loss.item():.2f}, back to step {back}")
            step, calm, rollbacks = back, 10, rollbacks + 1
            continue
        recent.append(loss.item())
        if step % 10 == 0:
            snapshots.keep(step)
        if step % 40 == 0 or step == args.steps:
            model.eval()
            with torch.no_grad():
                off = F.mse_loss(model(vx), vy).item()
            model.train()
            print(f"step {step:3d} loss {loss.item():.4f} valid {off:.4f}")
    print(f"{rollbacks} rollbacks, {skipped} batches skipped")


if __name__ == "__main__":
    main()
