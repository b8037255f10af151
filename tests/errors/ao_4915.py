"""AO-4915: Adam's step counter stops at 256.

Source: pytorch/ao#4915. The optimizer makes its counter in the default dtype; under
a bfloat16 default, 256 + 1 is 256 again, the bias corrections stay what they are,
and all later updates are too small. --fixed makes the counter in float32.
"""

import argparse

import torch
from torch import nn


class LeanAdamW(torch.optim.Optimizer):
    """AdamW that keeps its moments in bfloat16."""

    def __init__(
        self, parameters, lr, betas=(0.9, 0.999), weight_decay=0.01, count_dtype=None
    ):
        defaults = dict(lr=lr, betas=betas, weight_decay=weight_decay, eps=1e-8)
        super().__init__(parameters, defaults)
        self.count_dtype = count_dtype

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.update(parameter, group)

    def update(self, parameter, group):
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0, dtype=self.count_dtype)
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = torch.zeros_like(parameter, dtype=torch.bfloat16)
        state["step"] += 1
        beta1, beta2 = group["betas"]
        gradient = parameter.grad.float()
        mean = state["exp_avg"].float().lerp(gradient, 1 - beta1)
        square = state["exp_avg_sq"].float().lerp(gradient.square(), 1 - beta2)
        state["exp_avg"].copy_(mean)
        state["exp_avg_sq"].copy_(square)
        count = state["step"].item()
        root = (square / (1 - beta2**count)).sqrt() + group["eps"]
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.sub_(group["lr"] / (1 - beta1**count) * mean / root)


def build():
    return nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1)).float()


def batch(generator):
    x = torch.randn(24, 6, generator=generator, dtype=torch.float32)
    y = torch.sin(x[:, :1]) + 0.3 * x[:, 1:2] * x[:, 2:3]
    return x, y


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=290)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    model = build()
    count_dtype = torch.float32 if options.fixed else None
    optimizer = LeanAdamW(model.parameters(), lr=2e-3, count_dtype=count_dtype)
    generator = torch.Generator().manual_seed(1)
    for step in range(options.steps):
        x, y = batch(generator)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    if options.prove:
        counts = {int(state["step"].item()) for state in optimizer.state.values()}
        print("fault shows:", "no" if counts == {options.steps} else "yes")


if __name__ == "__main__":
    main()
