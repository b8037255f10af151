"""Load forecasts for a power grid with a bfloat16 net and a float32 master copy of its
weights: gradients are copied up, the optimizer steps on the copy, weights are copied
down. A batch in which a meter reported NaN is skipped.

    python bf16_master_weights.py --steps 160
"""

import argparse

import torch
from torch import nn


class GridLoad(nn.Module):
    """A gated MLP; works in the precision of its weights."""

    def __init__(self, inputs, hidden):
        super().__init__()
        self.value = nn.Linear(inputs, hidden)
        self.gate = nn.Linear(inputs, hidden)
        self.mix = nn.Linear(hidden, hidden)
        self.load = nn.Linear(hidden, 1)

    def forward(self, x):
        h = self.value(x) * torch.sigmoid(self.gate(x))
        h = h + nn.functional.silu(self.mix(h))
        return self.load(h).squeeze(-1)


class MasterWeights:
    """Float32 twins of the parameters, and the optimizer that moves them."""

    def __init__(self, model, make_optimizer):
        self.low = [p for p in model.parameters() if p.requires_grad]
        self.high = [p.detach().clone().float().requires_grad_() for p in self.low]
        self.optimizer = make_optimizer(self.high)

    def zero_grad(self):
        for p in self.low:
            p.grad = None

    @torch.no_grad()
    def step(self, max_norm):
        for master, p in zip(self.high, self.low):
            master.grad = p.grad.float()
        nn.utils.clip_grad_norm_(self.high, max_norm)
        self.optimizer.step()
        for master, p in zip(self.high, self.low):
            p.copy_(master)


class Meters:
    """Weather, hour and day in; load out. Now and then a meter fails."""

    def __init__(self, seed, failures):
        self.generator = torch.Generator().manual_seed(seed)
        self.failures = failures

    def read(self, n):
        hour = 24 * torch.rand(n, generator=self.generator)
        warmth = torch.randn(n, generator=self.generator)
        wind = torch.rand(n, generator=self.generator)
        weekend = (torch.rand(n, generator=self.generator) < 2 / 7).float()
        angle = hour / 24 * 2 * torch.pi
        load = 1.0 + 0.6 * torch.sin(angle - 2) * (1 - 0.5 * weekend)
        load = load + 0.25 * warmth**2 - 0.3 * wind
        load = load + 0.03 * torch.randn(n, generator=self.generator)
        x = torch.stack([angle.sin(), angle.cos(), warmth, wind, weekend], dim=1)
        if torch.rand((), generator=self.generator) < self.failures:
            row = torch.randint(0, n, (), generator=self.generator)
            x[row, 2] = torch.nan
        return x, load


def validate(model, x, load):
    model.eval()
    with torch.no_grad():
        guess = model(x.bfloat16()).float()
    model.train()
    return (guess - load).abs().mean().item()


def main(args):
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    model = GridLoad(5, 64).bfloat16()
    master = MasterWeights(
        model, lambda params: torch.optim.Adam(params, lr=args.lr, eps=1e-8)
    )
    scheduler = torch.optim.lr_scheduler.MultiStepLR(
        master.optimizer, [args.steps // 2, args.steps * 3 // 4], gamma=0.3
    )
    meters = Meters(args.seed, failures=0.06)
    held = Meters(args.seed + 1, failures=0.0).read(512)

    step = skipped = 0
    while step < args.steps:
        x, load = meters.read(args.batch_size)
        if torch.isnan(x).any():
            skipped += 1
            continue
        guess = model(x.bfloat16())
        loss = nn.functional.mse_loss(guess.float(), load)
        master.zero_grad()
        loss.backward()
        master.step(args.max_norm)
        scheduler.step()
        if step % 16 == 0 or step == args.steps - 1:
            print(
                f"{step:4d} loss {loss.item():.6f} held-out error "
                f"{validate(model, *held):.4f} skipped {skipped}",
                flush=True,
            )
        step += 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--batch-size", type=int, default=96)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--max-norm", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=70)
    main(parser.parse_args())
