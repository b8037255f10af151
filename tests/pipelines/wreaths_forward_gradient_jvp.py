"""Training without back-propagation: forward gradients (Baydin et al., 2022).

A wreath maker sorts wreaths into three grades from six measurements. The net
is trained with forward-mode differentiation only: we draw random directions v
in weight space, take the exact directional derivative of the loss with
torch.func.jvp, and use (dL.v) v as an unbiased estimate of the gradient.
No graph is ever recorded, .backward() is never called, and the parameters
have requires_grad=False throughout, on purpose. The estimate is written into
p.grad by hand so that a stock optimizer can be used.

The estimator is noisy (its variance grows with the number of weights), so the
net is small and several directions are averaged with vmap in each step.
"""
import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, jvp, vmap


def make_wreaths(n, generator):
    """Six measurements; the grade depends on roundness (a product) and fullness."""
    x = torch.randn(n, 6, generator=generator)
    roundness = x[:, 0] * x[:, 1] + 0.5 * x[:, 2]
    fullness = x[:, 3] - 0.7 * x[:, 4]
    score = roundness + fullness
    grade = (score > -0.6).long() + (score > 0.6).long()
    return x, grade


def build_net():
    net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    return net.requires_grad_(False)


def loss_of(params, net, x, y):
    return F.cross_entropy(functional_call(net, params, (x,)), y)


def draw_tangents(params, k, generator):
    """k independent standard normal directions for each parameter."""
    return {
        name: torch.randn(k, *p.shape, generator=generator)
        for name, p in params.items()
    }


def forward_gradient(net, params, x, y, k, generator):
    """Mean over k directions of (directional derivative) * direction, and the loss."""
    tangents = draw_tangents(params, k, generator)

    def along(v):
        return jvp(lambda p: loss_of(p, net, x, y), (params,), (v,))

    losses, slopes = vmap(along)(tangents)  # slopes: (k,)
    grads = {
        name: torch.einsum("k,k...->...", slopes, v) / k for name, v in tangents.items()
    }
    return losses[0], grads


def flatten(grads, names):
    return torch.cat([grads[n].reshape(-1) for n in names])


def audit_against_backprop(net, params, x, y, generator):
    """Once, before training: the estimate must point where the true gradient does."""
    names = list(params)
    n_weights = sum(p.numel() for p in params.values())
    k = 6 * n_weights
    _, estimate = forward_gradient(net, params, x, y, k, generator)
    true = torch.func.grad(loss_of)(params, net, x, y)
    cosine = F.cosine_similarity(
        flatten(estimate, names), flatten(true, names), dim=0
    ).item()
    expected = math.sqrt(k / (k + n_weights))  # for isotropic normal directions
    print(
        f"audit: cosine with the true gradient {cosine:.3f} (expected about {expected:.3f})"
    )
    assert (
        abs(cosine - expected) < 0.1
    ), "forward gradient is not aligned with the gradient"


def evaluate(net, x, y):
    with torch.inference_mode():
        logits = net(x)
    return (
        F.cross_entropy(logits, y).item(),
        (logits.argmax(1) == y).float().mean().item(),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--directions", type=int, default=24)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=3)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    data_rng = torch.Generator().manual_seed(args.seed + 1)
    tangent_rng = torch.Generator().manual_seed(args.seed + 2)

    x_train, y_train = make_wreaths(2048, data_rng)
    x_test, y_test = make_wreaths(1024, data_rng)

    net = build_net()
    params = dict(net.named_parameters())  # views of the live weights
    assert not any(p.requires_grad for p in net.parameters())

    audit_against_backprop(net, params, x_train[:256], y_train[:256], tangent_rng)

    optimizer = torch.optim.Adam(net.parameters(), lr=args.lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda s: 0.5 * (1 + math.cos(math.pi * min(s / max(args.steps, 1), 1.0))),
    )

    loss_start, acc_start = evaluate(net, x_test, y_test)
    print(f"before: test loss {loss_start:.3f} accuracy {acc_start:.3f}")

    smooth = None
    for step in range(args.steps):
        rows = torch.randint(len(x_train), (args.batch,), generator=data_rng)
        loss, grads = forward_gradient(
            net, params, x_train[rows], y_train[rows], args.directions, tangent_rng
        )
        assert loss.grad_fn is None  # nothing was taped
        for name, p in net.named_parameters():
            p.grad = grads[name]  # replaced each step: no zero_grad is needed
        optimizer.step()
        schedule.step()
        smooth = loss.item() if smooth is None else 0.95 * smooth + 0.05 * loss.item()
        if step % 100 == 0 or step == args.steps - 1:
            print(
                f"step {step:4d} loss {smooth:.3f} lr {schedule.get_last_lr()[0]:.4f}"
            )

    loss_end, acc_end = evaluate(net, x_test, y_test)
    print(f"after: test loss {loss_end:.3f} accuracy {acc_end:.3f}")
    assert math.isfinite(loss_end)
    if args.steps >= 600:
        majority = torch.bincount(y_test).max().item() / len(y_test)
        assert loss_end < loss_start and acc_end > majority + 0.2, (acc_end, majority)


if __name__ == "__main__":
    main()
