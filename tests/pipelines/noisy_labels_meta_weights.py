"""Grades eggs by candling readings when a third of the training labels are wrong.
Every step looks ahead: a virtual SGD step on the weighted loss, then the gradient of a
small clean set's loss with respect to the weights (second order); only samples that
would help count in the real step. In a batch in which none helps, the loss is zero.

    python noisy_labels_meta_weights.py --steps 150
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

GRADES = 4


class EggNet(nn.Module):
    def __init__(self, inputs=16, width=48):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(inputs, width),
            nn.LayerNorm(width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, GRADES),
        )

    def forward(self, x):
        return self.net(x)


def eggs(count, seed, wrong=0.0):
    """Readings, labels (of which a share is wrong) and whether a label is right."""
    rule = torch.Generator().manual_seed(3)
    centres = torch.randn(GRADES, 16, generator=rule)
    g = torch.Generator().manual_seed(seed)
    grade = torch.randint(0, GRADES, (count,), generator=g)
    sign = torch.where(torch.rand(count, 1, generator=g) < 0.5, -1.0, 1.0)
    # The sign of the first half carries nothing, which makes the task non-linear.
    x = centres[grade]
    x = torch.cat([sign * x[:, :8], x[:, 8:]], 1)
    x = x + 0.7 * torch.randn(count, 16, generator=g)
    swap = torch.rand(count, generator=g) < wrong
    # Mistakes are one-sided, as those of a tired grader: the next lower grade.
    label = torch.where(swap, (grade + 1) % GRADES, grade)
    return x, label, ~swap


def helpful(model, x, y, clean_x, clean_y, lr):
    """A weight for each sample: how much it would lower the clean loss, if it would."""
    params = dict(model.named_parameters())
    epsilon = torch.zeros(len(x), requires_grad=True)
    losses = F.cross_entropy(functional_call(model, params, (x,)), y, reduction="none")
    grads = torch.autograd.grad(
        (epsilon * losses).sum(), list(params.values()), create_graph=True
    )
    ahead = {n: p - lr * g for (n, p), g in zip(params.items(), grads)}
    clean = F.cross_entropy(functional_call(model, ahead, (clean_x,)), clean_y)
    (slope,) = torch.autograd.grad(clean, epsilon)
    weight = (-slope).clamp_min(0.0)
    total = weight.sum()
    return weight / total if total > 0 else weight


@torch.no_grad()
def accuracy(model, x, y):
    return (model(x).argmax(1) == y).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=12)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    x, y, right = eggs(2000, seed=1, wrong=0.35)
    clean_x, clean_y, _ = eggs(80, seed=2)
    test_x, test_y, _ = eggs(1000, seed=3)
    model = EggNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    schedule = torch.optim.lr_scheduler.PolynomialLR(optimizer, args.steps, power=0.9)

    queue = []
    for step in range(args.steps):
        if not queue:
            queue = list(torch.randperm(len(x)).split(args.batch_size))[:-1]
        rows = queue.pop()
        some = torch.randperm(len(clean_x))[:40]
        rate = optimizer.param_groups[0]["lr"]
        weight = helpful(model, x[rows], y[rows], clean_x[some], clean_y[some], rate)
        losses = F.cross_entropy(model(x[rows]), y[rows], reduction="none")
        loss = (weight * losses).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 5 == 0:
            print(
                f"step {step} loss {loss.item():.6f} "
                f"weight of right labels {weight[right[rows]].sum().item():.3f}",
                flush=True,
            )
        if (step + 1) % 50 == 0 or step + 1 == args.steps:
            found = accuracy(model, test_x, test_y)
            agrees = accuracy(model, x, y)
            print(
                f"  test accuracy {found:.4f}, agrees with {agrees:.4f} of labels",
                flush=True,
            )


if __name__ == "__main__":
    main()
