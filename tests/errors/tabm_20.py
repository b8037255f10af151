"""An ensemble of small nets in one, on a table whose targets have outliers.

After yandex-research/tabm, issue 20.
"""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


def make_table(count, seed, features=8):
    """Rows, measured targets, and targets without noise."""
    gen = torch.Generator().manual_seed(seed)
    x = torch.randn(count, features, generator=gen)
    y = x[:, 0] * x[:, 1] + torch.sin(2 * x[:, 2]) + 0.5 * x[:, 3]
    noise = 0.1 * torch.randn(count, generator=gen)
    outlier = torch.rand(count, generator=gen) < 0.03
    far = 15 * torch.randn(count, generator=gen)
    return x, y + torch.where(outlier, far, noise), y


class EnsembleLinear(nn.Module):
    def __init__(self, inputs, outputs, k):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.r = nn.Parameter(torch.randn(k, inputs).sign())
        self.s = nn.Parameter(torch.ones(k, outputs))
        self.bias = nn.Parameter(torch.zeros(k, outputs))

    def forward(self, x):
        return self.linear(x * self.r) * self.s + self.bias


class TabM(nn.Module):
    def __init__(self, features, hidden=64, k=8):
        super().__init__()
        self.k = k
        self.block1 = EnsembleLinear(features, hidden, k)
        self.block2 = EnsembleLinear(hidden, hidden, k)
        self.output = EnsembleLinear(hidden, 1, k)

    def forward(self, x):
        x = x[:, None].expand(-1, self.k, -1)
        x = F.relu(self.block1(x))
        return self.output(F.relu(self.block2(x))).squeeze(-1)


def loss_fn(predicted, y):
    return F.mse_loss(predicted, y[:, None].expand(-1, predicted.shape[1]))


def train_step(model, optimizer, x, y, clipping_norm):
    model.train()
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    if clipping_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), clipping_norm)
    loss.backward()
    optimizer.step()
    return loss


def train_step_clipped(model, optimizer, x, y, clipping_norm):
    model.train()
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    loss.backward()
    if clipping_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), clipping_norm)
    optimizer.step()
    return loss


@torch.inference_mode()
def evaluate(model, x, clean):
    model.eval()
    return (model(x).mean(1) - clean).square().mean().sqrt().item()


def gradient_norm(model):
    return torch.stack([p.grad.norm() for p in model.parameters()]).norm().item()


def train(args, step_function):
    """The norms of the gradients that the steps used."""
    torch.manual_seed(args.seed)
    x, y, _ = make_table(2048, 1)
    held, _, clean = make_table(512, 2)
    mean, std = y.median(), (y.quantile(0.75) - y.quantile(0.25)) / 1.35
    y, limit = (y - mean) / std, args.gradient_clipping_norm
    model = TabM(x.shape[1])
    optimizer = torch.optim.SGD(
        model.parameters(), lr=args.lr, momentum=0.9, weight_decay=3e-4
    )
    norms, step = [], 0
    for epoch in range(args.epochs):
        for index in torch.randperm(len(x)).split(args.batch_size):
            loss = step_function(model, optimizer, x[index], y[index], limit)
            norms.append(gradient_norm(model))
            step += 1
        error = evaluate(model, held, (clean - mean) / std)
        print(
            f"epoch {epoch} step {step} loss {loss.item():.4f} error {error:.4f}",
            flush=True,
        )
    return norms


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=6e-2)
    parser.add_argument("--gradient-clipping-norm", type=float, default=0.5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    norms = train(args, train_step_clipped if args.fixed else train_step)
    if args.prove:
        over = sum(norm > args.gradient_clipping_norm * 1.001 for norm in norms)
        print(f"{over} of {len(norms)} steps used gradients above the limit")
        print("fault shows:", "yes" if over else "no", flush=True)


if __name__ == "__main__":
    main()
