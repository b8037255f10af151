# Small image classifier with a learned tokenizer (8 tokens per picture) and
# self-attention over the tokens. Pictures: one of 6 glyphs pasted twice on noise.
import argparse
import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F


class SpatialAttention(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(ch, ch // 2, 3, padding=1),
            nn.GELU(),
            nn.Conv2d(ch // 2, 1, 3, padding=1),
        )

    def forward(self, x):
        a = torch.sigmoid(self.conv(x))
        return (x * a).mean(dim=(2, 3))


class TokenLearner(nn.Module):
    def __init__(self, S, ch):
        super().__init__()
        self.S = S
        self.tokenizers = nn.ModuleList([SpatialAttention(ch) for _ in range(S)])

    def forward(self, x):
        return torch.stack([t(x) for t in self.tokenizers], dim=1)  # B, S, C


class TokenBlock(nn.Module):
    """pre-norm attention + MLP; nn.MultiheadAttention wants the sequence first"""

    def __init__(self, dim, heads, fixed=False):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mhsa = nn.MultiheadAttention(dim, heads)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim)
        )
        self.fixed = fixed

    def swap(self, y):
        a, b, c = y.shape
        if self.fixed:
            return y.transpose(0, 1)
        return y.view(b, a, c)

    def forward(self, y):
        h = self.swap(self.n1(y))
        h, _ = self.mhsa(h, h, h)
        y = y + self.swap(h.contiguous())
        return y + self.mlp(self.n2(y))


class Net(nn.Module):
    def __init__(self, classes, S=8, dim=24, depth=2, fixed=False):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, dim, 5, stride=2, padding=2),
            nn.GroupNorm(4, dim),
            nn.GELU(),
            nn.Conv2d(dim, dim, 3, stride=2, padding=1),
            nn.GroupNorm(4, dim),
            nn.GELU(),
        )
        self.tokens = TokenLearner(S, dim)
        self.pos = nn.Parameter(torch.randn(1, S, dim) * 0.02)
        self.blocks = nn.Sequential(*[TokenBlock(dim, 4, fixed) for _ in range(depth)])
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, classes))

    def forward(self, x):
        y = self.tokens(self.stem(x)) + self.pos
        return self.head(self.blocks(y).mean(1))


GLYPHS = (
    torch.randn(6, 3, 1, 1, generator=torch.Generator().manual_seed(99)).mul(0.6)
    + 0.6 * torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(98)).sign()
)


def sample(n, gen):
    x = 0.5 * torch.randn(n, 3, 24, 24, generator=gen)
    g = torch.randint(6, (n,), generator=gen)
    at = torch.randint(0, 16, (n, 2, 2), generator=gen)
    for i in range(n):
        for k in range(2):
            r, c = at[i, k].tolist()
            x[i, :, r : r + 8, c : c + 8] += GLYPHS[g[i]]
    return x, g


def lr_at(step, total, base, warm=10):
    if step < warm:
        return base * (step + 1) / warm
    return base * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, total - warm)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=100)
    ap.add_argument("--bs", type=int, default=32)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    random.seed(0)
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)

    net = Net(6, fixed=args.fixed)
    opt = torch.optim.AdamW(net.parameters(), lr=args.lr, weight_decay=0.02)
    print("%.2fk parameters" % (sum(p.numel() for p in net.parameters()) / 1e3))
    xv, yv = sample(192, torch.Generator().manual_seed(2))
    hist = []
    for step in range(args.steps):
        net.train()
        for g in opt.param_groups:
            g["lr"] = lr_at(step, args.steps, args.lr)
        x, y = sample(args.bs, gen)
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        hist.append(loss.item())
        if (step + 1) % 20 == 0:
            net.eval()
            with torch.no_grad():
                acc = sum(
                    (net(a).argmax(1) == b).sum().item()
                    for a, b in zip(xv.split(args.bs), yv.split(args.bs))
                ) / len(yv)
            print(
                "step %4d  loss %.4f  val acc %.3f"
                % (step + 1, sum(hist[-20:]) / 20, acc)
            )

    if args.prove:
        net.eval()
        x = xv[: args.bs].clone().requires_grad_(True)
        net(x)[0].sum().backward()
        others = x.grad[1:].abs().sum().item()
        print("fault shows:", "yes" if others > 0 else "no")


if __name__ == "__main__":
    main()
