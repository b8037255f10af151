"""Species of orchids by their traits (MLP), sparse from the start: RigL.

Four of five hidden weights are zero at all times; masks are applied anew after each
step. In every eighth step, until three quarters of the run, connections are moved
instead of a step of the optimizer: the smallest are dropped, and those whose dense
gradient is largest grow from zero; their momentum is cleared. The schedule steps all
the same.
"""

import argparse
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=8)

rs = np.random.RandomState(55)
torch.manual_seed(55)
SPECIES, TRAITS = 8, 60
DENSITY, EPOCHS, BATCH, EVERY = 0.2, parser.parse_args().epochs, 50, 8

# only a third of the traits say anything about the species
means = np.zeros((SPECIES, TRAITS), dtype=np.float32)
means[:, :20] = rs.randn(SPECIES, 20)


def orchids(n):
    """Each species has two mirrored forms, so that no linear rule tells them."""
    y = rs.randint(0, SPECIES, n)
    form = rs.choice([-1.0, 1.0], size=(n, 1))
    x = means[y] * form + 0.8 * rs.randn(n, TRAITS)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


xt, yt = orchids(1500)
xv, yv = orchids(400)

net = nn.Sequential(
    nn.Linear(TRAITS, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(),
    nn.Linear(128, SPECIES),
)  # fmt: skip
sparse = [net[0].weight, net[2].weight]
masks = []
with torch.no_grad():
    for w in sparse:
        m = torch.zeros(w.numel())
        m[torch.randperm(w.numel())[: int(DENSITY * w.numel())]] = 1
        masks.append(m.view_as(w))
        w.mul_(masks[-1]).div_(math.sqrt(DENSITY))  # the scale of activations stays

total = EPOCHS * len(xt) // BATCH
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=2e-4)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, total)


@torch.no_grad()
def rewire(step):
    """Called after backward(): gradients are dense, weights are masked."""
    fraction = 0.3 / 2 * (1 + math.cos(math.pi * step / (0.75 * total)))
    moved = 0
    for w, m in zip(sparse, masks):
        k = int(fraction * m.sum().item())
        if k == 0:
            continue
        alive = torch.where(m.bool(), w.abs(), torch.inf).flatten()
        drop = alive.topk(k, largest=False).indices
        dead = torch.where(m.bool(), -torch.inf, w.grad.abs()).flatten()
        grow = dead.topk(k).indices
        m.view(-1)[drop] = 0
        m.view(-1)[grow] = 1
        w.view(-1)[drop] = 0
        w.view(-1)[grow] = 0
        buf = opt.state[w]["momentum_buffer"].view(-1)
        buf[drop] = 0
        buf[grow] = 0
        moved += k
    return moved


def report(epoch, loss, moved):
    net.eval()
    with torch.no_grad():
        out = net(xv)
    valid, right = F.cross_entropy(out, yv), (out.argmax(1) == yv).float().mean()
    live = sum((w != 0).sum().item() for w in sparse) / sum(w.numel() for w in sparse)
    useful = masks[0][:, :20].mean() / masks[0].mean()
    print(
        f"epoch {epoch} loss {loss:.4f} valid {valid:.4f} acc {right:.3f} "
        f"density {live:.3f} moved {moved} useful inputs x{useful:.2f}"
    )


step = 0
for epoch in range(EPOCHS):
    net.train()
    seen, moved = 0.0, 0
    for idx in torch.randperm(len(xt)).split(BATCH):
        loss = F.cross_entropy(net(xt[idx]), yt[idx])
        opt.zero_grad()
        loss.backward()
        step += 1
        if step % EVERY == 0 and step < 0.75 * total:
            moved += rewire(step)
        else:
            opt.step()
            with torch.no_grad():
                for w, m in zip(sparse, masks):
                    w.mul_(m)
        sched.step()
        seen += loss.item() * len(idx)
    report(epoch, seen / len(xt), moved)
