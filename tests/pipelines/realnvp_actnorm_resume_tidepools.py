"""The density of four readings of tide pools, a flow; stopped half-way and resumed.

ActNorm is initialised in the first forward by its batch, and couplings start as the
identity. The cosine schedule ends at a rate of 0. The checkpoint, in memory, has the
model, Adam, the schedule and the states of both random generators; after it everything
is built anew in the same process and loaded.
"""

import argparse
import io
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=8)
EPOCHS, BATCH, DIM = parser.parse_args().epochs, 128, 4


class ActNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(dim))
        self.log_scale = nn.Parameter(torch.zeros(dim))
        self.register_buffer("ready", torch.tensor(False))

    def forward(self, x):
        if self.training and not self.ready:
            with torch.no_grad():
                self.shift.copy_(-x.mean(0))
                self.log_scale.copy_(-(x.std(0) + 1e-6).log())
                self.ready.fill_(True)
        log_det = self.log_scale.sum().expand(len(x))
        return (x + self.shift) * self.log_scale.exp(), log_det


class Coupling(nn.Module):
    def __init__(self, dim, flip, hidden=48):
        super().__init__()
        self.flip, self.half = flip, dim // 2
        self.net = nn.Sequential(
            nn.Linear(self.half, hidden), nn.SiLU(), nn.Linear(hidden, hidden),
            nn.SiLU(), nn.Linear(hidden, 2 * (dim - self.half)),
        )  # fmt: skip
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x):
        a, b = x[:, : self.half], x[:, self.half :]
        if self.flip:
            a, b = b, a
        log_s, t = self.net(a).chunk(2, 1)
        log_s = 1.5 * torch.tanh(log_s)
        b = b * log_s.exp() + t
        out = torch.cat([b, a], 1) if self.flip else torch.cat([a, b], 1)
        return out, log_s.sum(1)


class Flow(nn.Module):
    def __init__(self, depth=6):
        super().__init__()
        self.steps = nn.ModuleList()
        for i in range(depth):
            self.steps += [ActNorm(DIM), Coupling(DIM, flip=bool(i % 2))]

    def log_prob(self, x):
        total = torch.zeros(len(x))
        for s in self.steps:
            x, ld = s(x)
            total = total + ld
        return total - 0.5 * (x**2).sum(1) - 0.5 * DIM * math.log(2 * math.pi)

    forward = log_prob


def pools(n, g):
    def noise(scale):
        return scale * torch.randn(n, generator=g)

    hour = torch.rand(n, generator=g) * 2 * math.pi
    temp = 14 + 3 * torch.sin(hour) + noise(0.1)
    salt = 33 + 0.5 * torch.cos(hour) + noise(0.03)
    ph = 8.0 + 0.04 * (temp - 14) ** 2 / 3 + noise(0.02)
    oxy = 9 - 0.3 * (temp - 14) + noise(0.1)
    return torch.stack([temp, salt, ph, oxy], 1)


def build():
    model = Flow()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    steps = EPOCHS * (len(train_set) // BATCH)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=steps)
    gen = torch.Generator().manual_seed(77)
    loader = DataLoader(train_set, BATCH, shuffle=True, drop_last=True, generator=gen)
    return model, opt, sched, loader, gen


def run(model, opt, sched, loader, epochs):
    for epoch in epochs:
        model.train()
        total = 0.0
        for (x,) in loader:
            nll = -model(x).mean()
            opt.zero_grad(set_to_none=True)
            nll.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            sched.step()
            total += nll.item()
        model.eval()
        with torch.no_grad():
            val = -model(val_x).mean().item()
        nll, lr = total / len(loader), sched.get_last_lr()[0]
        print(f"epoch {epoch} nll {nll:+.3f} val {val:+.3f} lr {lr:.2e}")


torch.manual_seed(0)
g = torch.Generator().manual_seed(5)
raw_train, raw_val = pools(2048, g), pools(512, g)
mu, sd = raw_train.mean(0), raw_train.std(0)  # of the training part only
train_set = TensorDataset((raw_train - mu) / sd)
val_x = (raw_val - mu) / sd

model, opt, sched, loader, gen = build()
run(model, opt, sched, loader, range(EPOCHS // 2))
disk = io.BytesIO()
state = {
    "model": model.state_dict(),
    "opt": opt.state_dict(),
    "sched": sched.state_dict(),
    "epoch": EPOCHS // 2,
    "loader": gen.get_state(),
    "torch": torch.get_rng_state(),
}
torch.save(state, disk)
del model, opt, sched, loader, gen, state

disk.seek(0)
ck = torch.load(disk, weights_only=True)
model, opt, sched, loader, gen = build()
model.load_state_dict(ck["model"])
opt.load_state_dict(ck["opt"])
sched.load_state_dict(ck["sched"])
gen.set_state(ck["loader"])
torch.set_rng_state(ck["torch"])
run(model, opt, sched, loader, range(ck["epoch"], EPOCHS))
