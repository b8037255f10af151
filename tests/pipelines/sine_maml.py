# MAML on sinusoid regression (second order), functional style.
import argparse
import math

import torch
from torch import nn
from torch.func import functional_call


def sample_tasks(n_tasks, shots, queries, gen):
    amp = 0.1 + 4.9 * torch.rand(n_tasks, 1, 1, generator=gen)
    phase = math.pi * torch.rand(n_tasks, 1, 1, generator=gen)
    x = 10 * torch.rand(n_tasks, shots + queries, 1, generator=gen) - 5
    y = amp * torch.sin(x - phase)
    return x[:, :shots], y[:, :shots], x[:, shots:], y[:, shots:]


def build_net(width=40):
    return nn.Sequential(
        nn.Linear(1, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, 1),
    )


def adapt(net, params, x, y, inner_lr, n_steps, create_graph):
    """Plain gradient descent on the support set starting from `params`."""
    for _ in range(n_steps):
        loss = nn.functional.mse_loss(functional_call(net, params, (x,)), y)
        grads = torch.autograd.grad(
            loss, tuple(params.values()), create_graph=create_graph
        )
        params = {k: p - inner_lr * g for (k, p), g in zip(params.items(), grads)}
    return params


def meta_loss(net, tasks, inner_lr):
    params = dict(net.named_parameters())
    losses = []
    for xs, ys, xq, yq in zip(*tasks):
        fast = adapt(net, params, xs, ys, inner_lr, n_steps=1, create_graph=True)
        losses.append(nn.functional.mse_loss(functional_call(net, fast, (xq,)), yq))
    return torch.stack(losses).mean()


def meta_test(net, tasks, inner_lr, n_steps):
    start = {k: p.detach() for k, p in net.named_parameters()}
    total = 0.0
    for xs, ys, xq, yq in zip(*tasks):
        params = {k: p.clone().requires_grad_(True) for k, p in start.items()}
        fast = adapt(net, params, xs, ys, inner_lr, n_steps, create_graph=False)
        with torch.no_grad():
            total += nn.functional.mse_loss(
                functional_call(net, fast, (xq,)), yq
            ).item()
    return total / len(tasks[0])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=300)
    ap.add_argument("--tasks-per-step", type=int, default=10)
    ap.add_argument("--shots", type=int, default=10)
    ap.add_argument("--inner-lr", type=float, default=0.01)
    ap.add_argument("--meta-lr", type=float, default=3e-3)
    ap.add_argument("--seed", type=int, default=222)
    opt = ap.parse_args()

    torch.manual_seed(opt.seed)
    gen = torch.Generator().manual_seed(opt.seed)
    test_tasks = sample_tasks(
        60, opt.shots, 50, torch.Generator().manual_seed(opt.seed + 1)
    )

    net = build_net()
    meta_opt = torch.optim.Adam(net.parameters(), lr=opt.meta_lr)
    running = []
    for it in range(1, opt.steps + 1):
        meta_opt.zero_grad()
        loss = meta_loss(
            net, sample_tasks(opt.tasks_per_step, opt.shots, 10, gen), opt.inner_lr
        )
        loss.backward()
        meta_opt.step()
        running.append(loss.item())
        if it % 50 == 0 or it == opt.steps:
            scores = {k: meta_test(net, test_tasks, opt.inner_lr, k) for k in (0, 1, 5)}
            print(
                f"[{it:4d}] query loss {sum(running) / len(running):.3f}  held-out tasks: "
                + "  ".join(f"{k} steps {v:.3f}" for k, v in scores.items())
            )
            running.clear()


if __name__ == "__main__":
    main()
