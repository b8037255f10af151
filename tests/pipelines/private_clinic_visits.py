"""Predicts missed appointments at a clinic under differential privacy (DP-SGD). A batch
is a Poisson sample, so its size differs from step to step; gradients of single patients
come from vmap over grad, are clipped one by one, summed, given Gaussian noise, divided
by the expected size and put into .grad for an ordinary SGD with momentum.

    python private_clinic_visits.py --steps 150
"""

import argparse
import math

import torch
from torch import nn
from torch.func import functional_call, grad_and_value, vmap


class VisitNet(nn.Module):
    """No batch normalisation: patients must not see one another."""

    def __init__(self, inputs=12, width=24):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(inputs, width),
            nn.Tanh(),
            nn.GroupNorm(4, width),
            nn.Linear(width, 2),
        )

    def forward(self, x):
        return self.layers(x)


def patients(count, seed):
    rule = torch.Generator().manual_seed(4)
    direction = torch.randn(12, generator=rule)
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 12, generator=g)
    score = x @ direction / 2 + x[:, 0] * x[:, 1] - 0.5
    missed = torch.rand(count, generator=g) < torch.sigmoid(3 * score)
    return x, missed.long()


class PrivateGradients:
    def __init__(self, model, clip, noise, expected, seed):
        self.model, self.clip, self.noise = model, clip, noise
        self.expected = expected
        self.g = torch.Generator().manual_seed(seed)
        self.per_patient = vmap(grad_and_value(self.loss), in_dims=(None, 0, 0))

    def loss(self, params, x, y):
        out = functional_call(self.model, params, (x.unsqueeze(0),))
        return nn.functional.cross_entropy(out, y.unsqueeze(0))

    def fill(self, x, y):
        """Writes private gradients into .grad; returns mean loss and clipped share."""
        params = {n: p.detach() for n, p in self.model.named_parameters()}
        grads, losses = self.per_patient(params, x, y)
        flat = torch.cat([g.flatten(1) for g in grads.values()], dim=1)
        norms = flat.norm(dim=1)
        scale = (self.clip / norms.clamp_min(1e-12)).clamp(max=1.0)
        for name, p in self.model.named_parameters():
            total = torch.einsum("n,n...->...", scale, grads[name])
            noise = torch.randn(p.shape, generator=self.g) * self.noise * self.clip
            p.grad = (total + noise) / self.expected
        return losses.mean().item(), (scale < 1).float().mean().item()


def rough_epsilon(steps, rate, noise, delta=1e-5):
    """Strong composition in zCDP for a sampled Gaussian: an estimate for the log, not
    a proof."""
    rho = steps * rate**2 / (2 * noise**2)
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    right = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return right


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--expected-batch", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--noise", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    x, y = patients(4000, seed=1)
    val_x, val_y = patients(1000, seed=2)
    model = VisitNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.8)
    private = PrivateGradients(
        model, args.clip, args.noise, args.expected_batch, seed=args.seed + 1
    )
    rate = args.expected_batch / len(x)

    model.train()
    for step in range(args.steps):
        rows = torch.nonzero(torch.rand(len(x)) < rate).squeeze(1)
        loss, clipped = private.fill(x[rows], y[rows])
        optimizer.step()
        if step % 5 == 0:
            print(
                f"step {step} loss {loss:.6f} batch {len(rows)} clipped {clipped:.2f}",
                flush=True,
            )
        if (step + 1) % 50 == 0 or step + 1 == args.steps:
            spent = rough_epsilon(step + 1, rate, args.noise)
            right = accuracy(model, val_x, val_y)
            print(f"  accuracy {right:.4f}, epsilon about {spent:.2f}", flush=True)


if __name__ == "__main__":
    main()
