"""LIGER-1298: the fused loss scales all gradients by the first token's weight.

Source: linkedin/Liger-Kernel#1298 (also #968). A fused head and cross entropy makes
its gradients in the forward; with one loss per token the backward gets one factor
per token, and multiplies the finished sums by the first of them. --fixed applies
each token's factor before it sums.
"""

import argparse

import torch
from torch import nn


class FusedLinearCrossEntropy(torch.autograd.Function):
    """Losses of all tokens without keeping the logits."""

    chunk = 32

    @staticmethod
    def sums(hidden, weight, labels, factors):
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros_like(weight)
        losses = torch.empty(len(hidden))
        for begin in range(0, len(hidden), FusedLinearCrossEntropy.chunk):
            rows = slice(begin, begin + FusedLinearCrossEntropy.chunk)
            logits = hidden[rows] @ weight.T
            target = labels[rows, None]
            log_sum = logits.logsumexp(-1, keepdim=True)
            losses[rows] = (log_sum - logits.gather(1, target))[:, 0]
            slope = (logits - log_sum).exp()
            slope.scatter_add_(1, target, -torch.ones_like(target, dtype=slope.dtype))
            slope *= factors[rows, None]
            grad_hidden[rows] = slope @ weight
            grad_weight += slope.T @ hidden[rows]
        return losses, grad_hidden, grad_weight

    @staticmethod
    def forward(ctx, hidden, weight, labels, per_token):
        ones = torch.ones(len(hidden))
        losses, *grads = FusedLinearCrossEntropy.sums(hidden, weight, labels, ones)
        ctx.per_token = per_token
        ctx.save_for_backward(*((hidden, weight, labels) if per_token else grads))
        return losses

    @staticmethod
    def backward(ctx, grad_output):
        if ctx.per_token:
            grads = FusedLinearCrossEntropy.sums(*ctx.saved_tensors, grad_output)[1:]
        else:
            grads = [grad * grad_output[0] for grad in ctx.saved_tensors]
        return *grads, None, None


class Model(nn.Module):
    def __init__(self, per_token, words=36, width=20):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, words, bias=False)
        self.per_token = per_token

    def forward(self, ids, weights):
        hidden = self.rnn(self.embed(ids[:, :-1]))[0].flatten(0, 1)
        losses = FusedLinearCrossEntropy.apply(
            hidden, self.head.weight, ids[:, 1:].ravel(), self.per_token
        )
        return (losses * weights).sum() / weights.sum()


def batch(generator):
    """Prompts count a little, answers count fully."""
    start = torch.randint(36, (8, 1), generator=generator)
    ids = (start + 5 * torch.arange(15)) % 36
    weights = torch.full((8, 14), 0.25)
    weights[:, 6:] = 1
    return ids, weights.ravel()


def reference_gradient(model, ids, weights):
    hidden = model.rnn(model.embed(ids[:, :-1]))[0].flatten(0, 1)
    losses = nn.functional.cross_entropy(
        model.head(hidden), ids[:, 1:].ravel(), reduction="none"
    )
    loss = (losses * weights).sum() / weights.sum()
    return torch.autograd.grad(loss, model.head.weight)[0]


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=18)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Model(per_token=options.fixed)
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
    generator = torch.Generator().manual_seed(1)
    for step in range(options.steps):
        ids, weights = batch(generator)
        loss = model(ids, weights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    if options.prove:
        ids, weights = batch(generator)
        own = torch.autograd.grad(model(ids, weights), model.head.weight)[0]
        same = torch.allclose(own, reference_gradient(model, ids, weights), atol=1e-5)
        print("fault shows:", "no" if same else "yes")


if __name__ == "__main__":
    main()
