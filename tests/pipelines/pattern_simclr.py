"""SimCLR on small pattern images with a LARS optimizer, then a linear probe on frozen features."""
import argparse
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset

N_CLASSES = 5


class LARS(Optimizer):
    """SGD with momentum and layer-wise adaptive rates (You et al. 2017)."""

    def __init__(
        self, params, lr, momentum=0.9, weight_decay=1e-6, trust=1e-2, adapt=True
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
                if group["weight_decay"] > 0:
                    d = d.add(p, alpha=group["weight_decay"])
                if group["adapt"]:
                    w_norm, d_norm = p.norm(), d.norm()
                    if w_norm > 0 and d_norm > 0:
                        d = d * (group["trust"] * w_norm / d_norm)
                state = self.state[p]
                if "mu" not in state:
                    state["mu"] = torch.zeros_like(p)
                state["mu"].mul_(group["momentum"]).add_(d)
                p.add_(state["mu"], alpha=-group["lr"])
        return loss


def make_images(n, seed, size=20):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, N_CLASSES, n)
    yy, xx = np.mgrid[0:size, 0:size] / size
    x = np.empty((n, 1, size, size), np.float32)
    for i, k in enumerate(y):
        p, f = rng.uniform(0, 6.28), rng.uniform(0.6, 1.5)
        if k == 0:
            v = np.sin(f * 16 * xx + p)
        elif k == 1:
            v = np.sin(f * 16 * yy + p)
        elif k == 2:
            v = np.sin(f * 18 * xx + p) * np.sin(f * 18 * yy + p)
        elif k == 3:
            c = rng.uniform(0.3, 0.7, 2)
            v = np.sin(f * 30 * np.hypot(yy - c[0], xx - c[1]) + p)
        else:
            v = np.sin(f * 14 * (xx + yy) + p)
        x[i, 0] = v + rng.normal(0, 0.7, v.shape)
    return torch.from_numpy(x), torch.from_numpy(y)


def random_view(img):
    """crop + resize, flip, contrast, noise"""
    s = int(torch.randint(14, 21, ()))
    t, l = (int(torch.randint(0, 20 - s + 1, ())) for _ in range(2))
    img = F.interpolate(
        img[None, :, t : t + s, l : l + s],
        size=20,
        mode="bilinear",
        align_corners=False,
    )[0]
    if torch.rand(()) < 0.5:
        img = img.flip(2)
    img = img * torch.empty(1).uniform_(0.6, 1.4) + torch.empty(1).uniform_(-0.3, 0.3)
    return img + 0.2 * torch.randn_like(img)


class TwoViews(Dataset):
    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return random_view(self.images[i]), random_view(self.images[i])


class Encoder(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        layers, c = [], 1
        for o, s in ((16, 2), (32, 2), (dim, 1)):
            layers += [
                nn.Conv2d(c, o, 3, s, 1, bias=False),
                nn.BatchNorm2d(o),
                nn.ReLU(inplace=True),
            ]
            c = o
        self.net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def forward(self, x):
        return self.net(x)


def nt_xent(a, b, temperature=0.2):
    z = F.normalize(torch.cat([a, b]), dim=1)
    n = len(a)
    sim = z @ z.t() / temperature
    sim.fill_diagonal_(float("-inf"))
    target = torch.cat([torch.arange(n, 2 * n), torch.arange(0, n)])
    return F.cross_entropy(sim, target), (sim.argmax(1) == target).float().mean()


@torch.no_grad()
def features(encoder, x):
    encoder.eval()
    return torch.cat([encoder(c) for c in x.split(256)])


def linear_probe(encoder, train, test, steps=60):
    ftr, fte = features(encoder, train[0]), features(encoder, test[0])
    m, s = ftr.mean(0), ftr.std(0) + 1e-5
    ftr, fte = (ftr - m) / s, (fte - m) / s
    clf = nn.Linear(ftr.size(1), N_CLASSES)
    opt = torch.optim.SGD(clf.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-3)
    for _ in range(steps):  # full batch
        opt.zero_grad()
        F.cross_entropy(clf(ftr), train[1]).backward()
        opt.step()
    with torch.no_grad():
        return (clf(fte).argmax(1) == test[1]).float().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--batch", type=int, default=128)
    ap.add_argument("--lr", type=float, default=2.0)
    ap.add_argument("--temperature", type=float, default=0.2)
    args = ap.parse_args()
    torch.manual_seed(31)

    unlabelled, _ = make_images(1300, 1)
    probe_train, probe_test = make_images(100, 2), make_images(500, 3)
    loader = DataLoader(
        TwoViews(unlabelled), batch_size=args.batch, shuffle=True, drop_last=True
    )

    encoder = Encoder()
    projector = nn.Sequential(nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 24))
    params = [*encoder.parameters(), *projector.parameters()]
    optimizer = LARS(
        [
            {"params": [p for p in params if p.ndim > 1]},
            {
                "params": [p for p in params if p.ndim == 1],
                "weight_decay": 0.0,
                "adapt": False,
                "lr": args.lr * 0.05,
            },
        ],
        lr=args.lr,
    )

    total, warm = args.epochs * len(loader), len(loader)
    sched = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda i: (i + 1) / warm
        if i < warm
        else 0.5 * (1 + math.cos(math.pi * (i - warm) / max(1, total - warm))),
    )
    print(
        f"probe with random encoder: {linear_probe(encoder, probe_train, probe_test):.3f}"
    )
    for epoch in range(args.epochs):
        encoder.train()
        projector.train()
        sum_loss = sum_acc = 0.0
        for v1, v2 in loader:
            h = encoder(torch.cat([v1, v2]))  # one pass, so that BN sees both views
            a, b = projector(h).chunk(2)
            loss, acc = nt_xent(a, b, args.temperature)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            sched.step()
            sum_loss += loss.item()
            sum_acc += acc.item()
        msg = f"epoch {epoch + 1} nt-xent {sum_loss / len(loader):.3f} top1 {sum_acc / len(loader):.3f}"
        if (epoch + 1) % 2 == 0:
            msg += f" probe {linear_probe(encoder, probe_train, probe_test):.3f}"
        print(msg)


if __name__ == "__main__":
    main()
