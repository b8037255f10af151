"""SimCLR on multichannel waveforms + linear probe. LARS-like optimizer written by hand.

The augmentations (scaling, jitter, time masking, channel dropout) should leave the
"device" behind a waveform recognisable.
"""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim import Optimizer
from torch.utils.data import DataLoader, TensorDataset

CHANNELS, LENGTH, DEVICES = 3, 64, 6


def make_waveforms(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, DEVICES, (n,), generator=g)
    t = torch.linspace(0, 1, LENGTH)
    freq = 3.0 + 1.2 * y.float()[:, None] + 0.2 * torch.randn(n, 1, generator=g)
    phase = 6.28 * torch.rand(n, 1, generator=g)
    base = torch.sin(6.2832 * freq * t + phase)
    x = torch.stack(
        [base, base**2 - 0.5, torch.sin(6.2832 * 2 * freq * t + phase)], dim=1
    )
    return x + 0.8 * torch.randn(x.shape, generator=g), y


def augment(x):
    b = x.size(0)
    x = x * (0.7 + 0.6 * torch.rand(b, 1, 1)) + 0.1 * torch.randn_like(x)
    shift = torch.randint(0, LENGTH, (b, 1, 1))
    idx = (torch.arange(LENGTH).view(1, 1, -1) + shift) % LENGTH
    x = x.gather(2, idx.expand(-1, CHANNELS, -1))
    start = torch.randint(0, LENGTH - 8, (b, 1, 1))
    pos = torch.arange(LENGTH).view(1, 1, -1)
    x = x.masked_fill((pos >= start) & (pos < start + 8), 0.0)
    keep = (torch.rand(b, CHANNELS, 1) > 0.15).float()
    return x * keep


class Encoder(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(CHANNELS, 24, 7, stride=2, padding=3),
            nn.BatchNorm1d(24),
            nn.ReLU(),
            nn.Conv1d(24, dim, 5, stride=2, padding=2),
            nn.BatchNorm1d(dim),
            nn.ReLU(),
            nn.Conv1d(dim, dim, 3, padding=1),
            nn.BatchNorm1d(dim),
            nn.ReLU(),
            nn.AdaptiveMaxPool1d(1),
            nn.Flatten(),
        )

    def forward(self, x):
        return self.net(x)


def nt_xent(z1, z2, temperature):
    n = z1.size(0)
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    sim = z @ z.t() / temperature
    sim.fill_diagonal_(float("-inf"))
    positives = torch.arange(2 * n).roll(n)
    return F.cross_entropy(sim, positives)


class LARS(Optimizer):
    """Layer-wise adaptive momentum SGD; vectors (bias, norm) get plain momentum."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=1e-4, trust=0.02):
        super().__init__(
            params,
            dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust=trust),
        )

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                d = p.grad
                if p.ndim > 1:
                    d = d.add(p, alpha=group["weight_decay"])
                    pn, dn = p.norm(), d.norm()
                    scale = torch.where(
                        (pn > 0) & (dn > 0),
                        group["trust"] * pn / (dn + 1e-9),
                        torch.ones(()),
                    )
                    d = d * scale
                state = self.state[p]
                if "mu" not in state:
                    state["mu"] = torch.zeros_like(p)
                state["mu"].mul_(group["momentum"]).add_(d)
                p.add_(state["mu"], alpha=-group["lr"])
        return loss


@torch.no_grad()
def embed(encoder, x):
    encoder.eval()
    return torch.cat([encoder(part) for part in x.split(256)])


def linear_probe(encoder, train, test, iters):
    """Logistic regression on fixed features; features standardised with the training part."""
    (xa, ya), (xb, yb) = train, test
    fa, fb = embed(encoder, xa), embed(encoder, xb)
    mean, std = fa.mean(0), fa.std(0) + 1e-5
    fa, fb = (fa - mean) / std, (fb - mean) / std
    clf = nn.Linear(fa.size(1), DEVICES)
    opt = torch.optim.SGD(clf.parameters(), lr=0.5, weight_decay=1e-3)
    for _ in range(iters):
        opt.zero_grad()
        F.cross_entropy(clf(fa), ya).backward()
        opt.step()
    with torch.no_grad():
        return (clf(fb).argmax(1) == yb).float().mean().item()


def main(args):
    torch.manual_seed(args.seed)
    x_unlab, _ = make_waveforms(3000, seed=100)
    probe_train, probe_test = make_waveforms(120, seed=101), make_waveforms(
        500, seed=102
    )
    loader = DataLoader(
        TensorDataset(x_unlab), batch_size=args.batch, shuffle=True, drop_last=True
    )

    encoder = Encoder()
    projector = nn.Sequential(nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 24))
    optimizer = LARS([*encoder.parameters(), *projector.parameters()], lr=args.lr)
    warm = max(1, args.steps // 10)
    scheduler = torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=warm),
            torch.optim.lr_scheduler.CosineAnnealingLR(
                optimizer, T_max=max(1, args.steps - warm)
            ),
        ],
        milestones=[warm],
    )

    print(f"chance {1 / DEVICES:.3f}, log(2N-1) = {math.log(2 * args.batch - 1):.3f}")
    print(
        f"probe before training: {linear_probe(encoder, probe_train, probe_test, 40):.3f}"
    )
    step, epoch = 0, 0
    while step < args.steps:
        encoder.train()
        projector.train()
        losses = []
        for (x,) in loader:
            z1, z2 = projector(encoder(augment(x))), projector(encoder(augment(x)))
            loss = nt_xent(z1, z2, args.temperature)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
            step += 1
            if step == args.steps:
                break
        epoch += 1
        acc = linear_probe(encoder, probe_train, probe_test, 40)
        print(
            f"epoch {epoch} step {step} loss {sum(losses) / len(losses):.3f} probe {acc:.3f}"
        )


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=115)
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--lr", type=float, default=0.5)
    p.add_argument("--temperature", type=float, default=0.2)
    p.add_argument("--seed", type=int, default=0)
    main(p.parse_args())
