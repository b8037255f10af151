"""PT-115607: a specialised optimizer step that updates nothing.

A compiler specialises `step` on the gradients that it sees when it traces it.
Here it traces before the first backward and finds none; what is left of the
step does nothing, and no guard notices that gradients are there later. --fixed
has the guard.
"""

import argparse

import torch
from torch import nn


class SpecialisedAdadelta(torch.optim.Adadelta):
    """What the compiler makes of torch.optim.Adadelta."""

    def __init__(self, parameters, guarded, **options):
        super().__init__(parameters, **options)
        self.guarded = guarded
        self.does_nothing = self.has_no_gradients()

    def has_no_gradients(self):
        groups = self.param_groups
        return all(p.grad is None for group in groups for p in group["params"])

    @torch.no_grad()
    def step(self, closure=None):
        if self.guarded:
            self.does_nothing = self.has_no_gradients()
        if not self.does_nothing:
            super().step(closure)


class Regression(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(10, 10)
        self.out = nn.Linear(10, 1)

    def forward(self, x):
        return self.out(torch.relu(self.hidden(x)))


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--steps", type=int, default=12)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = Regression()
    optimizer = SpecialisedAdadelta(net.parameters(), options.fixed, lr=0.5)
    for step in range(options.steps):
        x = torch.randn(32, 10)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), x.sum(dim=1, keepdim=True))
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
