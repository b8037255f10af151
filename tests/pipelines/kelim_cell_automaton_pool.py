"""A kelim grows from one knot and is kept: a neural cellular automaton.

It trains on its own old states out of a pool (detached): the worst starts anew, later
some are damaged on purpose. The last layer starts at zero, so the first has no gradient
in the first step; hooks bring each parameter's gradient to unit norm once it is there;
fixed filters in a buffer. A random number of steps, and cells that act at random in the
evaluation, too.
"""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=150)

torch.manual_seed(11)
rng = np.random.default_rng(11)

SIZE, CH, POOL, BATCH, ITERS = 14, 8, 48, 8, parser.parse_args().steps

# the target: RGBA, a stepped diamond with a dark heart
yy, xx = np.mgrid[0:SIZE, 0:SIZE]
d = np.abs(yy - 6.5) + np.abs(xx - 6.5)
target = np.zeros((4, SIZE, SIZE), np.float32)
rings = [
    (0, 2.1, (0.1, 0.1, 0.3)),
    (2.1, 4.1, (0.9, 0.7, 0.2)),
    (4.1, 6.1, (0.7, 0.1, 0.1)),
]
for lo, hi, rgb in rings:
    ring = (d >= lo) & (d < hi)
    for c in range(3):
        target[c][ring] = rgb[c]
    target[3][ring] = 1.0
target = torch.from_numpy(target)


def seed_state(n):
    s = torch.zeros(n, CH, SIZE, SIZE)
    s[:, 3:, SIZE // 2, SIZE // 2] = 1.0
    return s


class Automaton(nn.Module):
    def __init__(self, hidden=48, fire=0.5):
        super().__init__()
        ident = torch.zeros(3, 3)
        ident[1, 1] = 1
        sx = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]]) / 8
        kernels = torch.stack([ident, sx, sx.t()]).repeat(CH, 1, 1)[:, None]
        self.register_buffer("kernels", kernels)  # perception is not learnt
        self.think = nn.Conv2d(3 * CH, hidden, 1)
        self.act = nn.Conv2d(hidden, CH, 1)
        nn.init.zeros_(self.act.weight)  # at first the automaton does nothing
        nn.init.zeros_(self.act.bias)
        self.fire = fire

    @staticmethod
    def alive(s):
        return F.max_pool2d(s[:, 3:4], 3, stride=1, padding=1) > 0.1

    def step(self, s, gen=None):
        before = self.alive(s)
        ds = self.act(
            F.relu(self.think(F.conv2d(s, self.kernels, padding=1, groups=CH)))
        )
        # cells have no common clock: each acts at random, also at test time
        clock = torch.rand(s.shape[0], 1, SIZE, SIZE, generator=gen) < self.fire
        s = s + ds * clock
        return s * (before & self.alive(s))

    def forward(self, s, steps, gen=None):
        for _ in range(steps):
            s = self.step(s, gen)
        return s


def pattern_error(s):  # one number per sample
    return ((s[:, :4] - target) ** 2).mean(dim=(1, 2, 3))


net = Automaton()


# Back-propagation through ~20 steps gives gradients of wildly varying size.  As in the
# original work each parameter's gradient is brought to unit norm, once it is complete.
def unit_norm(p):
    p.grad.div_(p.grad.norm() + 1e-8)


for p in net.parameters():
    p.register_post_accumulate_grad_hook(unit_norm)

opt = torch.optim.Adam(net.parameters(), lr=5e-3)
sched = torch.optim.lr_scheduler.MultiStepLR(
    opt, [ITERS * 7 // 10, ITERS * 9 // 10], gamma=0.3
)

pool = seed_state(POOL)
noise = torch.Generator().manual_seed(5)
history = []
for it in range(ITERS):
    idx = torch.from_numpy(rng.choice(POOL, BATCH, replace=False))
    batch = pool[idx]
    # the worst state starts anew, so that growing from the seed is never forgotten
    worst = int(pattern_error(batch).argmax())
    batch[worst] = seed_state(1)[0]
    if it >= 60:  # later: two wounded states to heal
        order = pattern_error(batch).argsort()
        for k in order[:2]:
            r, c = rng.integers(1, SIZE - 5, 2)
            batch[k, :, r : r + 4, c : c + 4] = 0

    out = net(batch, int(rng.integers(13, 20)), noise)
    overflow = (out - out.clamp(-2, 2)).abs().mean()  # keeps hidden channels bounded
    loss = pattern_error(out).mean() + overflow
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    pool[idx] = out.detach()  # truncation between iterations
    history.append(loss.item())
    if it % 25 == 0 or it == ITERS - 1:
        mean, lr = np.mean(history[-10:]), sched.get_last_lr()[0]
        print(f"iter {it:3d}  loss {mean:.4f}  lr {lr:.1e}")

net.eval()
gen = torch.Generator().manual_seed(77)
with torch.no_grad():
    blank = (target**2).mean().item()
    grown = net(seed_state(16), 19, gen)
    kept = net(grown, 19, gen)
    hurt = kept.clone()
    hurt[:, :, 3:7, 3:7] = 0
    healed = net(hurt, 19, gen)
for name, s in [("grown", grown), ("kept", kept), ("healed", healed)]:
    print(f"{name:7s} mse {pattern_error(s).mean():.4f}   (blank cloth {blank:.4f})")
