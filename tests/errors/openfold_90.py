import argparse
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

# Predict pairwise residue distances from a sequence; validation uses averaged weights.

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=160)
parser.add_argument("--val_every", type=int, default=20)
parser.add_argument("--batch", type=int, default=12)
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--ema_decay", type=float, default=0.98)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--prove", action="store_true")

AMINO, LENGTH = 12, 12


def fold(seq, angles):
    """2d backbone: every residue turns the chain by its own angle."""
    heading = torch.cumsum(angles[seq], dim=1)
    xy = torch.cumsum(torch.stack([heading.cos(), heading.sin()], -1), dim=1)
    return torch.cdist(xy, xy)


class Batches:
    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)
        self.angles = (
            torch.rand(AMINO, generator=torch.Generator().manual_seed(5)) - 0.5
        ) * 1.6

    def draw(self, n):
        seq = torch.randint(0, AMINO, (n, LENGTH), generator=self.g)
        return seq, fold(seq, self.angles)


class PairLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm = nn.LayerNorm(c)
        self.left, self.right = nn.Linear(c, c), nn.Linear(c, c)
        self.gate, self.out = nn.Linear(c, c), nn.Linear(c, c)

    def forward(self, z):
        x = self.norm(z)
        tri = (
            torch.einsum("bikc,bkjc->bijc", self.left(x), self.right(x))
            / z.shape[1] ** 0.5
        )
        return z + self.out(F.gelu(tri) * torch.sigmoid(self.gate(x)))


class FoldNet(nn.Module):
    def __init__(self, c=24, layers=2):
        super().__init__()
        self.a, self.b = nn.Embedding(AMINO, c), nn.Embedding(AMINO, c)
        self.rel = nn.Embedding(2 * LENGTH, c)
        self.layers = nn.ModuleList(PairLayer(c) for _ in range(layers))
        self.head = nn.Sequential(
            nn.LayerNorm(c), nn.Linear(c, c), nn.GELU(), nn.Linear(c, 1)
        )
        i = torch.arange(LENGTH)
        self.register_buffer("offset", i[:, None] - i[None, :] + LENGTH)

    def forward(self, seq):
        z = self.a(seq)[:, :, None] + self.b(seq)[:, None] + self.rel(self.offset)
        for layer in self.layers:
            z = layer(z)
        d = self.head(z).squeeze(-1)
        return F.softplus((d + d.transpose(1, 2)) / 2)


class ExponentialMovingAverage:
    def __init__(self, model, decay):
        self.decay = decay
        self.params = {k: v.detach().clone() for k, v in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model):
        for k, v in model.state_dict().items():
            if v.is_floating_point():
                self.params[k].lerp_(v, 1 - self.decay)


class Wrapper:
    """Keeps model, averaged weights and optimizer together, with the usual hooks."""

    def __init__(self, args):
        self.args = args
        self.model = FoldNet()
        self.ema = ExponentialMovingAverage(self.model, args.ema_decay)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.cached_weights = None
        self.drift = []

    def training_step(self, seq, dist):
        self.model.train()
        loss = F.smooth_l1_loss(self.model(seq), dist)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.ema.update(self.model)
        return loss.item()

    def on_validation_start(self):
        state = self.model.state_dict()
        self.cached_weights = copy.deepcopy(state) if self.args.fixed else state
        self.model.load_state_dict(self.ema.params)
        self.model.eval()

    def on_validation_end(self):
        self.model.load_state_dict(self.cached_weights)
        self.cached_weights = None

    @torch.no_grad()
    def validate(self, batches):
        before = torch.cat(
            [p.detach().flatten() for p in self.model.parameters()]
        ).clone()
        self.on_validation_start()
        losses = [F.smooth_l1_loss(self.model(s), d).item() for s, d in batches]
        self.on_validation_end()
        after = torch.cat([p.detach().flatten() for p in self.model.parameters()])
        self.drift.append((after - before).norm().item() / before.norm().item())
        return sum(losses) / len(losses)


def main():
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    train, held_out = Batches(1), Batches(2)
    val = [held_out.draw(24) for _ in range(2)]
    wrapper = Wrapper(args)

    best = math.inf
    running = 0.0
    for step in range(1, args.steps + 1):
        running += wrapper.training_step(*train.draw(args.batch))
        if step % args.val_every == 0:
            v = wrapper.validate(val)
            best = min(best, v)
            print(
                f"step {step:4d}  train {running / args.val_every:.4f}  val(ema) {v:.4f}"
            )
            running = 0.0

    print(f"best validation loss {best:.4f}")
    if args.prove:
        change = max(wrapper.drift, default=0.0)
        print(f"largest relative change of the weights by a validation: {change:.5f}")
        print("fault shows:", "yes" if change > 1e-6 else "no")


if __name__ == "__main__":
    main()
