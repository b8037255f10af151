"""Small image classifier, trained with an event-style engine and accumulated gradients.

The pictures are synthetic: oriented gratings with noise, one class per orientation.
"""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=80, help="optimizer steps")
parser.add_argument("--accumulation-steps", type=int, default=4)
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--prove", action="store_true")
args = parser.parse_args()


class State:
    def __init__(self):
        self.iteration = 0
        self.epoch = 0
        self.output = None


class Engine:
    """Runs process_function over a loader, fires handlers after each iteration."""

    def __init__(self, process_function):
        self.process_function = process_function
        self.state = State()
        self.handlers = []

    def on_iteration(self, fn):
        self.handlers.append(fn)
        return fn

    def run(self, loader, max_iterations):
        while self.state.iteration < max_iterations:
            self.state.epoch += 1
            for batch in loader:
                self.state.iteration += 1
                self.state.output = self.process_function(self, batch)
                for h in self.handlers:
                    h(self)
                if self.state.iteration >= max_iterations:
                    break
        return self.state


class GratingNet(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 12, 5, padding=2)
        self.conv2 = nn.Conv2d(12, 24, 3, padding=1)
        self.head = nn.Linear(24, num_classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.head(x.mean(dim=(2, 3)))


def make_pictures(n, num_classes, size=20):
    g = torch.Generator().manual_seed(11)
    y = torch.randint(0, num_classes, (n,), generator=g)
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    angle = y.float() * math.pi / num_classes
    phase = torch.rand(n, generator=g) * 2 * math.pi
    wave = (
        xx[None] * torch.cos(angle)[:, None, None]
        + yy[None] * torch.sin(angle)[:, None, None]
    ) * 0.9
    x = torch.sin(wave + phase[:, None, None]) + 0.8 * torch.randn(
        n, size, size, generator=g
    )
    return x[:, None], y


torch.manual_seed(0)
NUM_CLASSES = 6
x_all, y_all = make_pictures(1500, NUM_CLASSES)
train_loader = DataLoader(
    TensorDataset(x_all[:1280], y_all[:1280]),
    batch_size=args.batch_size,
    shuffle=True,
    generator=torch.Generator().manual_seed(1),
)
x_val, y_val = x_all[1280:], y_all[1280:]

model = GratingNet(NUM_CLASSES)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
criterion = nn.CrossEntropyLoss()
accumulation_steps = args.accumulation_steps

clear_on = 0
if args.fixed:
    clear_on = 1 % accumulation_steps

pending = []
mismatch = []


def update_fn(engine, batch):
    model.train()
    if engine.state.iteration % accumulation_steps == clear_on:
        optimizer.zero_grad()

    x, y = batch
    loss = criterion(model(x), y) / accumulation_steps
    loss.backward()
    pending.append((x, y))

    if engine.state.iteration % accumulation_steps == 0:
        if args.prove:
            whole = criterion(
                model(torch.cat([p[0] for p in pending])),
                torch.cat([p[1] for p in pending]),
            )
            ref = torch.cat(
                [
                    g.flatten()
                    for g in torch.autograd.grad(whole, list(model.parameters()))
                ]
            )
            used = torch.cat([p.grad.flatten() for p in model.parameters()])
            mismatch.append(((used - ref).norm() / ref.norm()).item())
        optimizer.step()
        pending.clear()
    return loss.item() * accumulation_steps


trainer = Engine(update_fn)


@trainer.on_iteration
def log(engine):
    if engine.state.iteration % (accumulation_steps * 10) == 0:
        model.eval()
        with torch.no_grad():
            acc = (model(x_val).argmax(1) == y_val).float().mean().item()
        print(
            f"epoch {engine.state.epoch} it {engine.state.iteration} "
            f"loss {engine.state.output:.4f} val acc {acc:.3f}"
        )


trainer.run(train_loader, max_iterations=args.steps * accumulation_steps)
if args.prove:
    # relative distance of the applied gradient from that of the effective batch
    worst = max(mismatch)
    print(f"gradient vs effective batch: {worst:.5f}")
    print("fault shows:", "yes" if worst > 0.01 else "no")
