"""Kayak-type classifier that is provably robust: interval bound propagation.

Habits: the objective changes while it is being minimised.  After a warm-up the radius grows from 0 to
its goal and the weight moves from the plain to the worst-case loss, so the training loss goes UP on
purpose for a while; the best checkpoint is only looked for after the ramp.  The last linear layer is
merged with the class differences, bounds are attached to layers by hand, and a PGD attack checks that
certified accuracy <= attacked accuracy <= clean accuracy.
"""
import argparse
import copy

import torch
from torch import nn
from torch.nn import functional as F

CLASSES, SIDE = 4, 8


def make_silhouettes(n, gen):
    """8x8 pictures in [0, 1]: the class is the orientation of a bright hull."""
    y = torch.randint(CLASSES, (n,), generator=gen)
    grid = torch.linspace(-1, 1, SIDE)
    yy, xx = torch.meshgrid(grid, grid, indexing="ij")
    angle = y * (torch.pi / CLASSES) + 0.12 * torch.randn(n, generator=gen)
    shift = 0.15 * torch.randn(n, 2, generator=gen)
    px, py = xx - shift[:, 0].view(-1, 1, 1), yy - shift[:, 1].view(-1, 1, 1)
    across = (
        -torch.sin(angle).view(-1, 1, 1) * px + torch.cos(angle).view(-1, 1, 1) * py
    )
    along = torch.cos(angle).view(-1, 1, 1) * px + torch.sin(angle).view(-1, 1, 1) * py
    pic = 0.85 * torch.exp(-((across / 0.3) ** 2) - (along / 0.9) ** 4) + 0.05
    return (pic + 0.04 * torch.randn(n, SIDE, SIDE, generator=gen)).clamp(
        0, 1
    ).unsqueeze(1), y


class IntervalNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 12, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(12 * 16, 48),
            nn.ReLU(),
        )
        self.head = nn.Linear(48, CLASSES)

    def forward(self, x):
        return self.head(self.body(x))

    @staticmethod
    def through(layer, mid, rad):
        """Midpoint-radius arithmetic, exact for affine layers."""
        if isinstance(layer, nn.Linear):
            return layer(mid), F.linear(rad, layer.weight.abs())
        if isinstance(layer, nn.Conv2d):
            return layer(mid), F.conv2d(
                rad, layer.weight.abs(), None, layer.stride, layer.padding
            )
        low, high = layer(mid - rad), layer(mid + rad)  # monotone: ReLU and Flatten
        return (low + high) / 2, (high - low) / 2

    def worst_logits(self, x, y, eps):
        """Upper bound of every logit minus the true one; the true class gets 0."""
        low, high = (x - eps).clamp(0, 1), (x + eps).clamp(0, 1)
        mid, rad = (low + high) / 2, (high - low) / 2
        for layer in self.body:
            mid, rad = self.through(layer, mid, rad)
        eye = torch.eye(CLASSES)
        diff = eye.unsqueeze(0) - eye[y].unsqueeze(1)  # [B, C, C]: row c is e_c - e_y
        weight, bias = diff @ self.head.weight, diff @ self.head.bias
        upper = torch.einsum("bch,bh->bc", weight, mid) + torch.einsum(
            "bch,bh->bc", weight.abs(), rad
        )
        return upper + bias


def pgd(net, x, y, eps, steps=12):
    adv = (x + eps * (2 * torch.rand_like(x) - 1)).clamp(0, 1)
    for _ in range(steps):
        adv = adv.detach().requires_grad_(True)
        (g,) = torch.autograd.grad(
            F.cross_entropy(net(adv), y), adv
        )  # leaves the weights' .grad alone
        adv = torch.min(torch.max(adv + 0.3 * eps * g.sign(), x - eps), x + eps).clamp(
            0, 1
        )
    return adv.detach()


def report(net, x, y, eps, attack=False):
    with torch.no_grad():
        clean = net(x).argmax(1) == y
        worst = net.worst_logits(x, y, eps)
        others = worst.masked_fill(F.one_hot(y, CLASSES).bool(), float("-inf"))
        certified = others.max(1).values < 0
    assert (~certified | clean).all(), "a certified example is classified correctly"
    out = {
        "clean": clean.float().mean().item(),
        "certified": certified.float().mean().item(),
    }
    if attack:
        held = net(pgd(net, x, y, eps)).argmax(1) == y
        assert (~certified | held).all(), "an attack broke a certificate"
        out["attacked"] = (held & clean).float().mean().item()
    return out


def ramp(step, start, length):
    return min(1.0, max(0.0, (step - start) / length))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=400)
    ap.add_argument("--eps", type=float, default=0.08)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--seed", type=int, default=8)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed)
    x, y = make_silhouettes(1600, gen)
    x_val, y_val = make_silhouettes(300, gen)
    x_test, y_test = make_silhouettes(400, gen)

    net = IntervalNet()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    warm, length = args.steps // 10, args.steps // 2
    late = torch.optim.lr_scheduler.MultiStepLR(
        opt, [int(args.steps * 0.8), int(args.steps * 0.92)], gamma=0.3
    )

    best, kept, plain = -1.0, None, None
    for step in range(1, args.steps + 1):
        pick = torch.randint(len(x), (args.batch,), generator=gen)
        grown = ramp(step, warm, length)
        eps, kappa = args.eps * grown, 1 - 0.5 * grown
        nominal = F.cross_entropy(net(x[pick]), y[pick])
        robust = F.cross_entropy(net.worst_logits(x[pick], y[pick], eps), y[pick])
        loss = kappa * nominal + (1 - kappa) * robust
        opt.zero_grad()
        loss.backward()
        opt.step()
        late.step()
        if step == max(1, warm):
            plain = report(
                net, x_val, y_val, args.eps
            )  # before robustness: usually nothing is certified
        if step % max(1, args.steps // 8) == 0:
            r = report(net, x_val, y_val, args.eps)
            print(
                f"step {step:4d} eps {eps:.3f} kappa {kappa:.2f} loss {loss.item():.3f} "
                f"clean {r['clean']:.3f} certified {r['certified']:.3f}"
            )
            if grown >= 1.0 and r["certified"] > best:
                best, kept = r["certified"], copy.deepcopy(net.state_dict())

    if kept is not None:
        net.load_state_dict(kept)
    r = report(net, x_test, y_test, args.eps, attack=True)
    print(
        f"test: clean {r['clean']:.3f} attacked {r['attacked']:.3f} certified {r['certified']:.3f} "
        f"(certified before the ramp {plain['certified']:.3f})"
    )
    assert r["certified"] <= r["attacked"] <= r["clean"]
    if args.steps >= 300:
        assert (
            r["clean"] > 0.9
            and r["certified"] > 0.6
            and r["certified"] > plain["certified"] + 0.2
        )


if __name__ == "__main__":
    main()
