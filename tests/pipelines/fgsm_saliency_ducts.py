"""Blockages in ducts from echoes (conv1d), trained against small attacks. An attack is
the sign of the loss's gradient by the input, made in evaluation mode and given as a
constant to the step; no gradient of it stays in the weights. Part of the loss is a
penalty on the gradient by the samples before the pulse, which are known to say nothing,
and for which a graph of the gradient is made. At the end saliency is printed.

    python fgsm_saliency_ducts.py --steps 160
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

LENGTH, QUIET, KINDS = 80, 16, 4


def echoes(count, seed):
    """A pulse comes back from one of four distances; before it there is noise only."""
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(0, KINDS, (count,), generator=g)
    t = torch.arange(LENGTH)
    centre = QUIET + 8 + 14 * kind[:, None] + 6 * torch.rand(count, 1, generator=g)
    pulse = torch.exp(-(((t - centre) / 3) ** 2)) * torch.cos(0.9 * (t - centre))
    gain = 0.7 + 0.6 * torch.rand(count, 1, generator=g)
    return gain * pulse + 0.25 * torch.randn(count, LENGTH, generator=g), kind


class EchoNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(1, width, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm1d(width),
            nn.Softplus(),
            nn.Conv1d(width, width, 5, stride=2, padding=2, bias=False),
            nn.BatchNorm1d(width),
            nn.Softplus(),
        )
        self.head = nn.Linear(width * LENGTH // 4, KINDS)

    def forward(self, x):
        return self.head(self.features(x.unsqueeze(1)).flatten(1))


def attack(model, x, y, epsilon):
    """The worst small change by the sign of the gradient, the model as it is in use."""
    was_training = model.training
    model.eval()
    x = x.clone().requires_grad_(True)
    slope = torch.autograd.grad(F.cross_entropy(model(x), y), x)[0]
    model.train(was_training)
    return (x + epsilon * slope.sign()).detach()


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        right = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return right


def saliency(model, x, y):
    """The share of the gradient by the input that falls on the quiet part."""
    model.eval()
    x = x.clone().requires_grad_(True)
    slope = torch.autograd.grad(F.cross_entropy(model(x), y), x)[0].abs().mean(0)
    return (slope[:QUIET].sum() / slope.sum()).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--epsilon", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    x, y = echoes(1200, 1)
    val_x, val_y = echoes(400, 2)
    model = EchoNet()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.01, momentum=0.9, nesterov=True
    )
    model.train()
    for step in range(args.steps):
        rows = torch.randint(0, len(x), (args.batch,))
        hard = attack(model, x[rows], y[rows], args.epsilon)
        clean = x[rows].requires_grad_(True)
        clean_loss = F.cross_entropy(model(clean), y[rows])
        slope = torch.autograd.grad(clean_loss, clean, create_graph=True)[0]
        quiet = args.batch * slope[:, :QUIET].square().sum(1).mean()
        hard_loss = F.cross_entropy(model(hard), y[rows])
        loss = 0.5 * clean_loss + 0.5 * hard_loss + 0.5 * quiet
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(f"step {step} loss {loss.item():.6f} quiet {quiet.item():.6f}")
        if (step + 1) % 40 == 0:
            hard = attack(model, val_x, val_y, args.epsilon)
            right = accuracy(model, val_x, val_y), accuracy(model, hard, val_y)
            print(f"  accuracy {right[0]:.4f}, under attack {right[1]:.4f}", flush=True)
    print(f"quiet part's share of the saliency {saliency(model, val_x, val_y):.4f}")


if __name__ == "__main__":
    main()
