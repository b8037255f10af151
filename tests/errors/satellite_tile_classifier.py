import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

LAND = ["water", "forest", "crop", "urban", "bare"]
BANDS, SIDE = 4, 12


def tiles(n, seed, flip=0.0):
    sig = torch.randn(len(LAND), BANDS, generator=torch.Generator().manual_seed(64))
    rough = torch.tensor([0.2, 0.6, 0.9, 1.4, 0.4])
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, len(LAND), (n,), generator=g)
    x = 0.45 * sig[y][:, :, None, None] + 0.9 * torch.randn(n, BANDS, 1, 1, generator=g)
    tex = torch.randn(n, 1, SIDE, SIDE, generator=g)
    x = (
        x
        + rough[y][:, None, None, None] * tex
        + 0.8 * torch.randn(n, BANDS, SIDE, SIDE, generator=g)
    )
    noisy = torch.rand(n, generator=g) < flip
    y = torch.where(noisy, torch.randint(0, len(LAND), (n,), generator=g), y)
    return x, y


class TileNet(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(BANDS, c, 3, padding=1),
            nn.GroupNorm(4, c),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(c, 2 * c, 3, padding=1),
            nn.GroupNorm(4, 2 * c),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.out = nn.Linear(2 * c * (SIDE // 4) ** 2, len(LAND))

    def forward(self, x):
        return self.out(self.body(x))


class WeightAverage:
    """Exponential moving average of the weights, used for evaluation."""

    def __init__(self, source, decay):
        self.model = source
        self.decay = decay

    @torch.no_grad()
    def update(self, net):
        for a, p in zip(self.model.parameters(), net.parameters()):
            a.copy_(self.decay * a + (1 - self.decay) * p)


@torch.no_grad()
def evaluate(net, x, y):
    out = net(x)
    return F.cross_entropy(out, y).item(), (out.argmax(1) == y).float().mean().item()


def main():
    p = argparse.ArgumentParser(description="land cover from 4-band tiles")
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--batch", type=int, default=24)
    p.add_argument("--lr", type=float, default=6e-3)
    p.add_argument("--decay", type=float, default=0.98)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    a = p.parse_args()

    torch.manual_seed(31)
    x, y = tiles(1500, 1, flip=0.25)
    xt, yt = tiles(600, 2)
    net = TileNet()
    avg = WeightAverage(copy.deepcopy(net) if a.fixed else net, a.decay)
    opt = torch.optim.Adam(net.parameters(), lr=a.lr)
    gen = torch.Generator().manual_seed(12)

    expected = [q.detach().clone() for q in net.parameters()]
    for step in range(a.steps):
        i = torch.randint(0, len(x), (a.batch,), generator=gen)
        loss = F.cross_entropy(net(x[i]), y[i], label_smoothing=0.05)
        opt.zero_grad()
        loss.backward()
        opt.step()
        avg.update(net)
        if a.prove:
            for e, q in zip(expected, net.parameters()):
                e.mul_(a.decay).add_(q.detach(), alpha=1 - a.decay)
        if step % 50 == 0 or step == a.steps - 1:
            vl, va = evaluate(avg.model, xt, yt)
            print(
                f"step {step:4d} | train {loss.item():.4f} | averaged weights: loss {vl:.4f} acc {va:.4f}"
            )

    rl, ra = evaluate(net, xt, yt)
    al, aa = evaluate(avg.model, xt, yt)
    print(
        f"final  last weights {rl:.4f} / {ra:.4f}   averaged weights {al:.4f} / {aa:.4f}"
    )

    if a.prove:
        num = (
            sum(
                (q - e).pow(2).sum().item()
                for q, e in zip(avg.model.parameters(), expected)
            )
            ** 0.5
        )
        den = sum(e.pow(2).sum().item() for e in expected) ** 0.5
        print(
            f"evaluation weights against the running mean computed apart: {num / den:.6f}"
        )
        print("fault shows:", "yes" if num / den > 1e-4 else "no")


if __name__ == "__main__":
    main()
