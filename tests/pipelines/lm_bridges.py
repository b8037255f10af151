"""How bridges sag under loads: a small network fitted by Levenberg and Marquardt, with
Jacobians by torch.func and a damping that follows success.

A step that does not lower the error is taken back, and tried again with more damping.

    python lm_bridges.py
"""

import argparse

import torch
from torch import nn
from torch.func import functional_call, jacrev, vmap


class LevenbergMarquardt(torch.optim.Optimizer):
    """For sums of squares; ``residuals`` gives them from a dict of parameters."""

    def __init__(self, module, damping=1.0):
        self.names = [name for name, _ in module.named_parameters()]
        super().__init__(list(module.parameters()), {"damping": damping})

    def named(self):
        return dict(zip(self.names, self.param_groups[0]["params"], strict=True))

    def flatten(self, tree, rows):
        return torch.cat([tree[name].reshape(rows, -1) for name in self.names], 1)

    @torch.no_grad()
    def step(self, residuals, jacobian, tries=8):
        group = self.param_groups[0]
        named = {name: p.detach() for name, p in self.named().items()}
        current = residuals(named)
        before = current.square().mean()
        slopes = self.flatten(jacobian(named), len(current))
        gram, right = slopes.T @ slopes, slopes.T @ current
        old = {name: value.clone() for name, value in named.items()}
        for _ in range(tries):
            damped = gram + group["damping"] * torch.diag(gram.diagonal() + 1e-6)
            change = torch.cholesky_solve(
                right[:, None], torch.linalg.cholesky(damped)
            )[:, 0]
            start = 0
            for name, parameter in self.named().items():
                part = change[start : start + parameter.numel()]
                parameter.copy_(old[name] - part.view_as(parameter))
                start += parameter.numel()
            after = residuals(self.named()).square().mean()
            if after < before:
                group["damping"] = max(group["damping"] / 5, 1e-8)
                return after.item(), True
            group["damping"] = min(group["damping"] * 4, 1e8)
        for name, parameter in self.named().items():
            parameter.copy_(old[name])
        return before.item(), False


def sags(count, generator):
    """Load, its place, span and stiffness of a beam on two supports."""
    low = torch.tensor([0.2, 0.1, 1.0, 0.8]).double()
    high = torch.tensor([1.0, 0.9, 2.0, 2.0]).double()
    chance = torch.rand(count, 4, generator=generator).double()
    load, place, span, stiff = (low + (high - low) * chance).T
    a, b = place * span, (1 - place) * span
    sag = load * a**2 * b**2 / (3 * stiff * span)
    noise = torch.randn(count, generator=generator).double()
    return torch.stack([load, place, span, stiff], 1), sag + 0.002 * noise


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=25)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    inputs, sag = sags(600, generator)
    valid_inputs, valid_sag = sags(600, generator)
    centre, spread = inputs.mean(0), inputs.std(0)
    height = sag.std()
    net = nn.Sequential(
        nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 1)
    ).double()

    def predict(parameters, rows):
        return functional_call(net, parameters, ((rows - centre) / spread,))[..., 0]

    def residuals(parameters):
        return predict(parameters, inputs) - sag / height

    def jacobian(parameters):
        return vmap(jacrev(predict), in_dims=(None, 0))(parameters, inputs)

    optimizer = LevenbergMarquardt(net)
    best, waited = float("inf"), 0
    kept = {name: p.detach().clone() for name, p in net.named_parameters()}
    for step in range(args.steps):
        loss, moved = optimizer.step(residuals, jacobian)
        damping = optimizer.param_groups[0]["damping"]
        print(f"step {step} loss {loss:.6f} damping {damping:.1e}", flush=True)
        with torch.no_grad():
            guess = predict(dict(net.named_parameters()), valid_inputs)
            error = (guess - valid_sag / height).square().mean().item()
        if error < best:
            best, waited = error, 0
            kept = {name: p.detach().clone() for name, p in net.named_parameters()}
        else:
            waited += 1
        if not moved or waited >= 8:
            print("no more to gain")
            break
    net.load_state_dict(kept)
    with torch.no_grad():
        guess = predict(dict(net.named_parameters()), valid_inputs) * height
    share = (guess - valid_sag).square().mean() / valid_sag.var()
    print(f"validation error {best:.6f}, unexplained {share:.5f}")


if __name__ == "__main__":
    main()
