"""Fourier neural operator for steepening river waves (viscous Burgers), trained with the pushforward trick.

Habits: complex-valued parameters under one Adam; the first k steps of an unroll run without a graph
and only the last one is differentiated (pushforward), k grows with the training; a relative L2
loss; an exponential average of the weights is what is evaluated; evaluation also on a finer mesh than
any mesh that was trained on.
"""
import argparse
import copy
import math

import numpy as np
import torch
from torch import nn

FINE, COARSE, SNAPS, DT = 128, 64, 11, 0.08
NU = 0.03


def burgers(n, rng):
    """Pseudo-spectral RK4 with 2/3 dealiasing; returns [n, SNAPS, FINE] on a 2*pi periodic domain."""
    x = np.linspace(0, 2 * np.pi, FINE, endpoint=False)
    u = sum(
        rng.normal(0, 0.7 / k, (n, 1))
        * np.sin(k * x + rng.uniform(0, 2 * np.pi, (n, 1)))
        for k in (1, 2, 3)
    )
    k = np.fft.rfftfreq(FINE, 1 / FINE)
    keep = k < FINE / 3

    def rhs(h):
        v = np.fft.irfft(h, n=FINE)
        return -0.5j * k * np.fft.rfft(v * v) * keep - NU * k**2 * h

    h, out, sub = np.fft.rfft(u), [u], 16
    for _ in range(SNAPS - 1):
        for _ in range(sub):
            d = DT / sub
            a = rhs(h)
            b = rhs(h + d / 2 * a)
            c = rhs(h + d / 2 * b)
            e = rhs(h + d * c)
            h = h + d / 6 * (a + 2 * b + 2 * c + e)
        out.append(np.fft.irfft(h, n=FINE))
    traj = np.stack(out, 1)
    assert (
        np.isfinite(traj).all()
        and np.abs(traj.mean(-1) - traj[:, :1].mean(-1)).max() < 1e-8
    ), "mass is kept"
    return torch.from_numpy(traj.astype(np.float32))


class SpectralConv(nn.Module):
    def __init__(self, width, modes):
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(
            torch.randn(width, width, modes, dtype=torch.cfloat) / width
        )

    def forward(self, x):
        n = x.shape[-1]
        # norm="forward" makes coefficients independent of the number of mesh points.
        h = torch.fft.rfft(x, norm="forward")
        low = torch.einsum("bim,iom->bom", h[..., : self.modes], self.weight)
        padded = torch.zeros(*low.shape[:-1], n // 2 + 1, dtype=low.dtype)
        padded[..., : self.modes] = low
        return torch.fft.irfft(padded, n=n, norm="forward")


class Operator(nn.Module):
    def __init__(self, width=20, modes=14, depth=3):
        super().__init__()
        self.lift = nn.Conv1d(1, width, 1)
        self.spectral = nn.ModuleList(SpectralConv(width, modes) for _ in range(depth))
        self.local = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(depth))
        self.drop = nn.Sequential(
            nn.Conv1d(width, 32, 1), nn.GELU(), nn.Conv1d(32, 1, 1)
        )
        nn.init.zeros_(
            self.drop[-1].weight
        )  # starts as the identity in time: u(t+dt) = u(t)
        nn.init.zeros_(self.drop[-1].bias)

    def forward(self, u):
        h = self.lift(u.unsqueeze(1))
        for s, l in zip(self.spectral, self.local):
            h = h + nn.functional.gelu(s(h) + l(h))
        delta = self.drop(h).squeeze(1)
        return u + delta - delta.mean(-1, keepdim=True)  # the exact mean is conserved


def relative_l2(pred, true):
    return ((pred - true).norm(dim=-1) / true.norm(dim=-1).clamp_min(1e-3)).mean()


@torch.no_grad()
def rollout_error(model, traj, steps=8):
    u, errs = traj[:, 0], []
    for t in range(1, steps + 1):
        u = model(u)
        errs.append(relative_l2(u, traj[:, t]).item())
    return errs


# size: the whole run in one place, read from top to bottom
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=260)
    ap.add_argument("--batch", type=int, default=24)
    ap.add_argument("--max-push", type=int, default=3)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)

    fine_train, fine_test = burgers(160, rng), burgers(32, rng)
    train, test = (
        fine_train[..., :: FINE // COARSE].contiguous(),
        fine_test[..., :: FINE // COARSE].contiguous(),
    )
    persistence = np.mean(
        [relative_l2(test[:, 0], test[:, t]).item() for t in range(1, 9)]
    )

    model = Operator()
    averaged = copy.deepcopy(model).requires_grad_(False)
    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        opt,
        lambda s: min(1, (s + 1) / 15)
        * 0.5
        * (1 + math.cos(math.pi * min(1, s / args.steps)))
        + 1e-3,
    )
    assert any(p.is_complex() for p in model.parameters())

    history = []
    for step in range(args.steps):
        push_cap = min(args.max_push, step * (args.max_push + 2) // args.steps)
        push = int(rng.integers(0, push_cap + 1))
        rows = torch.from_numpy(rng.integers(0, len(train), args.batch))
        start = torch.from_numpy(rng.integers(0, SNAPS - 1 - push, args.batch))
        u = train[rows, start]
        with torch.no_grad():  # pushforward: the drifted state is an input, not a path for gradients
            for _ in range(push):
                u = model(u)
        loss = relative_l2(model(u), train[rows, start + push + 1])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        schedule.step()
        history.append(loss.item())
        decay = min(0.98, (step + 1) / (step + 10))
        with torch.no_grad():
            for slow, fast in zip(averaged.parameters(), model.parameters()):
                slow.lerp_(fast, 1 - decay)
        if (step + 1) % 65 == 0:
            errs = rollout_error(averaged, test)
            print(
                f"step {step + 1:4d} push<={push_cap} loss {np.mean(history[-30:]):.4f} "
                f"rollout {np.mean(errs):.4f} last {errs[-1]:.4f}"
            )

    coarse, fine = np.mean(rollout_error(averaged, test)), np.mean(
        rollout_error(averaged, fine_test)
    )
    print(
        f"8-step rollout: persistence {persistence:.3f}, coarse mesh {coarse:.3f}, unseen fine mesh {fine:.3f}"
    )
    if args.steps >= 200:
        assert np.mean(history[-20:]) < 0.3 * np.mean(history[:3])
        assert coarse < 0.3 * persistence and fine < 0.35 * persistence


if __name__ == "__main__":
    main()
