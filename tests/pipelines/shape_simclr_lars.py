"""Contrastive pre-training (SimCLR) of a small encoder on coloured shapes, LARS optimiser,
followed by a linear probe on frozen features."""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.optimizer import Optimizer


class LARS(Optimizer):
    """Layer-wise adaptive rate scaling with momentum (You et al., 2017)."""

    def __init__(
        self, params, lr, momentum=0.9, weight_decay=0.0, trust=0.02, adapt=True
    ):
        super().__init__(
            params,
            dict(
                lr=lr,
                momentum=momentum,
                weight_decay=weight_decay,
                trust=trust,
                adapt=adapt,
            ),
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
                if group["weight_decay"] != 0:
                    d = d.add(p, alpha=group["weight_decay"])
                if group["adapt"]:
                    pn, dn = p.norm(), d.norm()
                    q = torch.where(
                        (pn > 0) & (dn > 0),
                        group["trust"] * pn / dn.clamp(min=1e-12),
                        torch.ones_like(pn),
                    )
                    d = d * q
                buf = self.state[p].get("momentum_buffer")
                if buf is None:
                    buf = self.state[p]["momentum_buffer"] = torch.zeros_like(p)
                buf.mul_(group["momentum"]).add_(d)
                p.add_(buf, alpha=-group["lr"])
        return loss


def render(n, seed, size=20):
    g = torch.Generator().manual_seed(seed)
    kinds = torch.randint(0, 4, (n,), generator=g)
    yy, xx = torch.meshgrid(
        torch.arange(size).float(), torch.arange(size).float(), indexing="ij"
    )
    imgs = torch.zeros(n, 3, size, size)
    for i, k in enumerate(kinds.tolist()):
        cy, cx = (7 + 6 * torch.rand(2, generator=g)).tolist()
        r = 4 + 2 * torch.rand(1, generator=g).item()
        dy, dx = (yy - cy).abs(), (xx - cx).abs()
        m = [
            dy.pow(2) + dx.pow(2) < r * r,
            torch.maximum(dy, dx) < r,
            (dy < r * 0.35) & (dx < r) | (dx < r * 0.35) & (dy < r),
            (dy.pow(2) + dx.pow(2) < r * r) & (dy.pow(2) + dx.pow(2) > r * r * 0.3),
        ][k]
        imgs[i] = torch.where(
            m,
            torch.rand(3, 1, 1, generator=g) * 0.7 + 0.3,
            0.1 * torch.rand(3, 1, 1, generator=g),
        )
    return imgs + 0.03 * torch.randn(imgs.shape, generator=g), kinds


def augment(x):
    n, _, h, w = x.shape
    scale = torch.empty(n).uniform_(0.75, 1.1)
    flip = torch.randint(0, 2, (n,)).float() * 2 - 1
    theta = torch.zeros(n, 2, 3)
    theta[:, 0, 0], theta[:, 1, 1] = scale * flip, scale
    theta[:, :, 2] = torch.empty(n, 2).uniform_(-0.2, 0.2)
    x = F.grid_sample(
        x,
        F.affine_grid(theta, x.shape, align_corners=False),
        padding_mode="reflection",
        align_corners=False,
    )
    x = x * torch.empty(n, 3, 1, 1).uniform_(0.4, 1.3)
    grey = (torch.rand(n, 1, 1, 1) < 0.3).float()
    x = grey * x.mean(1, keepdim=True) + (1 - grey) * x
    return x + 0.03 * torch.randn_like(x)


class Encoder(nn.Module):
    def __init__(self, width=16, proj=32):
        super().__init__()
        dims = [3, width, 2 * width, 4 * width]
        self.conv = nn.Sequential(
            *[
                nn.Sequential(
                    nn.Conv2d(a, b, 3, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU()
                )
                for a, b in zip(dims, dims[1:])
            ]
        )
        self.dim = 4 * width
        self.proj = nn.Sequential(
            nn.Linear(self.dim, self.dim), nn.ReLU(), nn.Linear(self.dim, proj)
        )

    def features(self, x):
        return self.conv(x).mean((2, 3))

    def forward(self, x):
        return F.normalize(self.proj(self.features(x)), dim=1)


def nt_xent(z1, z2, temperature):
    n = len(z1)
    z = torch.cat([z1, z2])
    sim = z @ z.t() / temperature
    sim.fill_diagonal_(float("-inf"))
    target = torch.cat([torch.arange(n, 2 * n), torch.arange(0, n)])
    return F.cross_entropy(sim, target)


def linear_probe(encoder, train, test, steps=60):
    encoder.eval()
    with torch.no_grad():
        ftr, fte = encoder.features(train[0]), encoder.features(test[0])
    mu, sd = ftr.mean(0), ftr.std(0) + 1e-5
    ftr, fte = (ftr - mu) / sd, (fte - mu) / sd
    probe = nn.Linear(encoder.dim, 4)
    opt = torch.optim.LBFGS(
        probe.parameters(), max_iter=steps, line_search_fn="strong_wolfe"
    )

    def closure():
        opt.zero_grad()
        loss = F.cross_entropy(probe(ftr), train[1]) + 1e-3 * probe.weight.pow(2).sum()
        loss.backward()
        return loss

    opt.step(closure)
    encoder.train()
    with torch.no_grad():
        return (probe(fte).argmax(1) == test[1]).float().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=90)
    ap.add_argument("--batch", type=int, default=96)
    ap.add_argument("--temperature", type=float, default=0.2)
    ap.add_argument("--seed", type=int, default=4)
    a = ap.parse_args()
    torch.manual_seed(a.seed)

    unlabeled, _ = render(768, 1)  # labels are not used here
    labelled, test = render(160, 2), render(300, 3)
    model = Encoder()
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 1e-5},
        {
            "params": [p for p in model.parameters() if p.ndim <= 1],
            "weight_decay": 0.0,
            "adapt": False,
        },
    ]
    base_lr, warm = 0.5, max(1, a.steps // 10)
    opt = LARS(groups, lr=base_lr)
    print(f"probe on random features {linear_probe(model, labelled, test):.3f}")

    step, done = 0, False
    model.train()
    while not done:
        for idx in torch.randperm(len(unlabeled)).split(a.batch):
            lr = (
                base_lr
                * min(1.0, (step + 1) / warm)
                * 0.5
                * (1 + math.cos(math.pi * step / a.steps))
            )
            opt.param_groups[0]["lr"] = lr
            opt.param_groups[1]["lr"] = 0.1 * lr
            x = unlabeled[idx]
            z1, z2 = model(augment(x)), model(augment(x))
            loss = nt_xent(z1, z2, a.temperature)
            model.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            step += 1
            if step % 30 == 0 or step == a.steps:
                acc = linear_probe(model, labelled, test)
                print(
                    f"step {step} nt-xent {loss.item():.3f} (chance {math.log(2 * len(x) - 1):.3f}) probe {acc:.3f}"
                )
            if step == a.steps:
                done = True
                break


if __name__ == "__main__":
    main()
