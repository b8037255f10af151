"""Add a regional species head to a fixed bird-call encoder.

The encoder is shared: the original head for common species stays in service.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

N_COMMON, N_LOCAL, BANDS, FRAMES = 6, 4, 24, 20


def calls(n, n_species, bank_seed, seed, gain=1.0, hum=0.0):
    bank = torch.randn(
        n_species, BANDS, 3, generator=torch.Generator().manual_seed(bank_seed)
    )
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, n_species, (n,), generator=g)
    t = torch.arange(FRAMES).float() / FRAMES
    motion = torch.stack([torch.ones_like(t), torch.sin(6.28 * t), torch.cos(6.28 * t)])
    x = bank[y] @ motion + 4.5 * torch.randn(n, BANDS, FRAMES, generator=g)
    return gain * x + hum, y


class Encoder(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.c1 = nn.Conv1d(BANDS, width, 5, padding=2)
        self.b1 = nn.BatchNorm1d(width)
        self.c2 = nn.Conv1d(width, width, 3, padding=1)
        self.b2 = nn.BatchNorm1d(width)

    def forward(self, x):
        x = F.relu(self.b1(self.c1(x)))
        x = F.relu(self.b2(self.c2(x)))
        return torch.cat([x.mean(2), x.amax(2)], dim=1)


class CallNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.encoder = Encoder(width)
        self.common = nn.Linear(2 * width, N_COMMON)
        self.local = nn.Linear(2 * width, N_LOCAL)

    def forward(self, x, head="local"):
        z = self.encoder(x)
        return self.local(z) if head == "local" else self.common(z)


@torch.no_grad()
def published_model():
    """Stands for the downloaded model, fitted to the common species."""
    net = CallNet()
    x, y = calls(1500, N_COMMON, 70, 71)
    net.encoder.b1.momentum = net.encoder.b2.momentum = None
    net.train()
    for i in range(0, len(x), 100):
        net.encoder(x[i : i + 100])
    net.encoder.b1.momentum = net.encoder.b2.momentum = 0.1
    net.eval()
    z = net.encoder(x)
    z1 = torch.cat([z, torch.ones(len(z), 1)], 1)
    t = F.one_hot(y, N_COMMON).float() * 4
    w = torch.linalg.solve(z1.T @ z1 + 1.0 * torch.eye(z1.size(1)), z1.T @ t)
    net.common.weight.copy_(w[:-1].T)
    net.common.bias.copy_(w[-1])
    return net


@torch.no_grad()
def accuracy(net, x, y, head):
    net.eval()
    return (net(x, head).argmax(1) == y).float().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--lr", type=float, default=5e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(2)

    net = published_model()
    for module in (net.encoder, net.common):
        for p in module.parameters():
            p.requires_grad_(False)
    x, y = calls(640, N_LOCAL, 80, 81, gain=0.4, hum=1.5)
    xt, yt = calls(400, N_LOCAL, 80, 82, gain=0.4, hum=1.5)
    xc, yc = calls(400, N_COMMON, 70, 72)
    print(f"before: common acc {accuracy(net, xc, yc, 'common'):.3f}")
    frozen = {k: v.clone() for k, v in net.encoder.state_dict().items()}

    opt = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=args.lr)
    for epoch in range(args.epochs):
        net.train()
        if args.fixed:
            net.encoder.eval()
        order = torch.randperm(len(x))
        total = 0.0
        for i in range(0, len(x), args.batch):
            take = order[i : i + args.batch]
            loss = F.cross_entropy(net(x[take]), y[take])
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() * len(take)
        print(
            f"epoch {epoch}: loss {total / len(x):.4f}  local acc {accuracy(net, xt, yt, 'local'):.3f}"
            f"  common acc {accuracy(net, xc, yc, 'common'):.3f}"
        )

    if args.prove:
        now = net.encoder.state_dict()
        drift = {k: (now[k].float() - frozen[k].float()).norm().item() for k in frozen}
        for k, v in drift.items():
            if v > 0:
                print(f"  encoder.{k} moved by {v:.4f}")
        print("fault shows:", "yes" if max(drift.values()) > 0 else "no")


if __name__ == "__main__":
    main()
