"""Faults of bearings on a machine without labels: domain adaptation by gradient reversal.

The domain classifier's loss ought to stay near log 2. Runs in float16 where it can, with the
loss scale kept by hand: it starts too high on purpose and finds its place in a few skipped
steps. SGD with centred gradients.
"""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

FAULTS, BANDS = 4, 40


def spectra(n, machine, gen):
    """Log spectra: each fault has its harmonics; the other machine is pitched and coloured otherwise."""
    fault = torch.randint(0, FAULTS, (n,), generator=gen)
    f = torch.arange(BANDS).float()
    base = (5.0 + 1.7 * fault)[:, None] + 0.25 * torch.randn(n, 1, generator=gen)
    if machine == 1:
        base = base + 0.35
    x = sum(torch.exp(-((f - k * base) ** 2) / 1.5) / k**0.5 for k in (1, 2, 3))
    load = 0.5 + torch.rand(n, 1, generator=gen)
    colour = 0.02 * (f - 20) if machine == 0 else 0.3 * torch.sin(f / 4)
    return x * load + colour + 0.12 * torch.randn(n, BANDS, generator=gen), fault


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.strength * grad, None


class CentredSGD(torch.optim.SGD):
    """The mean over the inputs of each unit is taken off its gradient (matrices only)."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None and p.ndim > 1:
                    p.grad.sub_(p.grad.mean(dim=tuple(range(1, p.ndim)), keepdim=True))
        return super().step(closure)


class Net(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.features = nn.Sequential(
            nn.Linear(BANDS, width),
            nn.LayerNorm(width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
        )
        self.fault = nn.Linear(width, FAULTS)
        self.domain = nn.Linear(width, 1)

    def forward(self, x, strength, known):
        h = self.features(x)
        return self.fault(h[:known]), self.domain(Reverse.apply(h, strength)).squeeze(
            -1
        )


def forever(x, y, size, gen):
    """Batches without end; every row once an epoch, the short last batch left out."""
    while True:
        for pick in torch.randperm(len(x), generator=gen).split(size):
            if len(pick) == size:
                yield x[pick], y[pick]


@torch.inference_mode()
def accuracy(net, x, y):
    net.eval()
    right = (net.fault(net.features(x)).argmax(1) == y).float().mean().item()
    net.train()
    return right


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=80)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--reversal", type=float, default=0.3)
    args = p.parse_args()
    torch.manual_seed(12)
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(120)
    home = spectra(500, 0, gen)
    foreign = spectra(330, 1, gen)  # its labels are not used in the training
    tests = [spectra(300, m, gen) for m in (0, 1)]

    net = Net()
    optimizer = CentredSGD(
        [
            dict(params=net.features.parameters(), lr=0.02),
            dict(params=net.fault.parameters(), lr=0.04),
            dict(params=net.domain.parameters(), lr=0.02),
        ],
        momentum=0.9,
        weight_decay=1e-4,
    )
    decay = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: (1 + 10 * s / args.steps) ** -0.75
    )
    sources = forever(*home, args.batch, torch.Generator().manual_seed(3))
    targets = forever(*foreign, args.batch, torch.Generator().manual_seed(4))
    which = torch.cat([torch.zeros(args.batch), torch.ones(args.batch)])
    scale, good, step, tries = 2.0**20, 0, 0, 0
    while step < args.steps:
        tries += 1
        (xs, ys), (xt, _) = next(sources), next(targets)
        strength = args.reversal * (2 / (1 + math.exp(-10 * step / args.steps)) - 1)
        with torch.autocast("cpu", dtype=torch.float16):
            fault, domain = net(torch.cat([xs, xt]), strength, known=args.batch)
        task = F.cross_entropy(fault.float(), ys)
        adverse = F.binary_cross_entropy_with_logits(domain.float(), which)
        optimizer.zero_grad()
        ((task + adverse) * scale).backward()
        grads = [q.grad for q in net.parameters()]
        torch._foreach_div_(grads, scale)
        norm = torch.stack(torch._foreach_norm(grads)).norm()
        if (
            not norm.isfinite()
        ):  # overflow: this batch is lost, the next has half the scale
            scale, good = scale / 2, 0
            continue
        torch._foreach_mul_(grads, (1.0 / (norm + 1e-6)).clamp(max=1.0))
        optimizer.step()
        decay.step()
        step, good = step + 1, good + 1
        if good % 200 == 0:
            scale *= 2
        if step % 10 == 0 or step == args.steps:
            a, b = (accuracy(net, *t) for t in tests)
            print(
                f"step {step:3d} ({tries} tried, scale 2^{int(math.log2(scale))}) task {task.item():.4f} "
                f"domain {adverse.item():.4f} reversal {strength:.2f} home {a:.3f} abroad {b:.3f}"
            )


if __name__ == "__main__":
    main()
