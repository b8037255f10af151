"""PT-51800: spectral normalisation before any training forward.

Source: pytorch/pytorch#51800. torch.nn.utils.spectral_norm estimates the largest
singular value by iterations that run in training forwards only; a model that is
evaluated first, in eval mode, divides by an estimate from random vectors, and the
score before training is meaningless. --fixed warms the estimates up before it
evaluates.
"""

import argparse
import warnings

import torch
from torch import nn
from torch.nn.utils import spectral_norm

warnings.filterwarnings("ignore", category=FutureWarning)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            spectral_norm(nn.Linear(10, 48)),
            nn.LeakyReLU(0.2),
            spectral_norm(nn.Linear(48, 48)),
            nn.LeakyReLU(0.2),
            spectral_norm(nn.Linear(48, 1)),
        )

    def forward(self, x):
        return self.body(x).squeeze(-1)


def sample(count):
    """Real points lie on a sphere, the others do not."""
    real = nn.functional.normalize(torch.randn(count, 10), dim=1) * 3
    fake = torch.randn(count, 10)
    x = torch.cat([real, fake])
    y = torch.cat([torch.ones(count), torch.zeros(count)])
    return x, y


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
    gains = [
        torch.linalg.matrix_norm(layer.weight, 2).item()
        for layer in model.body
        if isinstance(layer, nn.Linear)
    ]
    return loss.item(), gains


@torch.no_grad()
def warm_up(model, x, passes=50):
    model.train()
    for _ in range(passes):
        model(x)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=24)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Critic()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.5, 0.999))
    validation = sample(64)
    if options.fixed:
        warm_up(model, validation[0])
    score, gains = evaluate(model, *validation)
    print(f"before training: validation {score:.4f}", flush=True)
    for step in range(options.steps):
        model.train()
        x, y = sample(32)
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    score, _ = evaluate(model, *validation)
    print(f"after training: validation {score:.4f}")
    if options.prove:
        off = any(abs(gain - 1) > 0.1 for gain in gains)
        print("fault shows:", "yes" if off else "no")


if __name__ == "__main__":
    main()
