#!/usr/bin/env python
"""Sea-bed type from a sonar ping, with a reversible trunk.

The trunk is one autograd.Function over the whole stack of additive couplings. It keeps the
OUTPUT only; in backward it walks the stack from the end, rebuilds each block's input by
subtraction and differentiates that one block. Works because the residual branches are
deterministic (GroupNorm, no dropout, no batch statistics).
"""
import argparse
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd.function import once_differentiable


def branch(c):
    return nn.Sequential(nn.GroupNorm(4, c), nn.ReLU(), nn.Conv1d(c, c, 5, padding=2))


class Coupling(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.f, self.g = branch(c), branch(c)

    def forward(self, a, b):
        a = a + self.f(b)
        b = b + self.g(a)
        return a, b


class ReversibleStack(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, blocks, *params):
        a, b = x.chunk(2, dim=1)
        for block in blocks:
            a, b = block(a, b)
        out = torch.cat([a, b], dim=1)
        ctx.blocks = blocks
        ctx.save_for_backward(out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out):
        (out,) = ctx.saved_tensors
        a, b = out.chunk(2, dim=1)
        da, db = grad_out.chunk(2, dim=1)
        per_block = []
        for block in reversed(ctx.blocks):
            # b_out = b_in + g(a_out)
            with torch.enable_grad():
                a_ = a.detach().requires_grad_()
                ga = block.g(a_)
            pg = list(block.g.parameters())
            first, *dg = torch.autograd.grad(ga, [a_] + pg, db)
            da = da + first
            b = b - ga.detach()
            # a_out = a_in + f(b_in)
            with torch.enable_grad():
                b_ = b.detach().requires_grad_()
                fb = block.f(b_)
            pf = list(block.f.parameters())
            first, *df = torch.autograd.grad(fb, [b_] + pf, da)
            db = db + first
            a = a - fb.detach()
            per_block.append(list(df) + list(dg))  # same order as block.parameters()
        flat = [g for grads in reversed(per_block) for g in grads]
        return (torch.cat([da, db], dim=1), None, *flat)


class SeabedNet(nn.Module):
    def __init__(self, depth=5, c=16, classes=5, invert=True):
        super().__init__()
        self.stem = nn.Conv1d(1, 2 * c, 9, stride=4, padding=4)
        self.blocks = nn.ModuleList(Coupling(c) for _ in range(depth))
        self.head = nn.Linear(2 * c, classes)
        self.invert = invert

    def forward(self, x):
        h = self.stem(x.unsqueeze(1))
        if self.invert:
            h = ReversibleStack.apply(h, self.blocks, *self.blocks.parameters())
        else:
            a, b = h.chunk(2, dim=1)
            for block in self.blocks:
                a, b = block(a, b)
            h = torch.cat([a, b], dim=1)
        return self.head(F.relu(h).mean(-1))


def pings(n, seed, length=128):
    """Five sea beds, which differ in echo decay, ripple frequency and second echo."""
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(length) / length
    y = torch.randint(0, 5, (n,), generator=g)
    decay = torch.tensor([4.0, 7.0, 5.0, 10.0, 6.0])[y, None]
    ripple = torch.tensor([8.0, 12.0, 20.0, 14.0, 26.0])[y, None]
    second = torch.tensor([0.0, 0.5, 0.2, 0.8, 0.4])[y, None]
    ripple = ripple * (1 + 0.06 * torch.randn(n, 1, generator=g))
    delay = 0.1 + 0.15 * torch.rand(n, 1, generator=g)
    rel = (t - delay).clamp(min=0)
    echo = (t > delay) * torch.exp(-decay * rel) * torch.sin(2 * math.pi * ripple * rel)
    rel2 = (t - delay - 0.4).clamp(min=0)
    echo = echo + second * (rel2 > 0) * torch.exp(-8 * rel2)
    x = echo + 0.25 * torch.randn(n, length, generator=g)
    return (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True), y


def check_against_plain_autograd():
    torch.manual_seed(0)
    rev = SeabedNet(depth=3).double()
    plain = copy.deepcopy(rev)
    plain.invert = False
    x, y = pings(6, seed=99)
    for net in (rev, plain):
        F.cross_entropy(net(x.double()), y).backward()
    for (name, p), q in zip(rev.named_parameters(), plain.parameters()):
        assert torch.allclose(p.grad, q.grad, atol=1e-10), name
    print("gradients of the reversible stack agree with plain autograd")


@torch.no_grad()
def evaluate(net, x, y):
    net.eval()
    logits = torch.cat([net(part) for part in x.split(256)])
    net.train()
    return (
        F.cross_entropy(logits, y).item(),
        (logits.argmax(1) == y).float().mean().item(),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()

    check_against_plain_autograd()
    torch.manual_seed(1)
    x, y = pings(1024, seed=1)
    xv, yv = pings(384, seed=2)
    net = SeabedNet()
    per_epoch = math.ceil(len(x) / 64)
    opt = torch.optim.AdamW(net.parameters(), lr=args.lr, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.OneCycleLR(
        opt, max_lr=args.lr, total_steps=per_epoch * args.epochs
    )
    first = evaluate(net, xv, yv)
    print(f"before: val loss {first[0]:.3f} acc {first[1]:.3f}")
    for epoch in range(args.epochs):
        running = 0.0
        for idx in torch.randperm(len(x)).split(64):
            loss = F.cross_entropy(net(x[idx]), y[idx])
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            opt.step()
            sched.step()
            running += loss.item() * len(idx)
        vloss, vacc = evaluate(net, xv, yv)
        print(
            f"epoch {epoch}: train {running / len(x):.3f}  val {vloss:.3f}  acc {vacc:.3f}"
        )
    if args.epochs >= 4:
        assert vloss < 0.7 * first[0] and vacc > 0.7, (vloss, vacc)


if __name__ == "__main__":
    main()
