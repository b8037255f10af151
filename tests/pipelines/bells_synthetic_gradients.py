"""Which foundry cast this bell?  Decoupled neural interfaces (synthetic gradients).

Every block of the classifier is trained without waiting for the layers above it.  A small
side network looks at the block's output (and at the label) and *predicts* the gradient that
would come back; the block steps with that prediction at once.  The side network is then
regressed onto the gradient that the next block really hands down (which is itself bootstrapped
from the next side network, except at the top, where it is the exact one).

Jaderberg et al. 2017, "Decoupled Neural Interfaces using Synthetic Gradients", label-conditioned.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

FOUNDRIES = 6
BANDS = 48


def make_profiles(generator):
    """Every foundry tunes its bells with its own ratios of the five lowest partials."""
    ratios = torch.tensor([0.5, 1.0, 1.2, 1.5, 2.0])
    return ratios + 0.12 * torch.randn(FOUNDRIES, 5, generator=generator)


def ring(n, profiles, generator):
    y = torch.randint(0, FOUNDRIES, (n,), generator=generator)
    strike = 0.9 + 0.2 * torch.rand(n, 1, generator=generator)
    partials = profiles[y] * strike + 0.015 * torch.randn(n, 5, generator=generator)
    loud = 0.5 + torch.rand(n, 5, generator=generator)
    centres = torch.linspace(0.3, 2.6, BANDS)
    bumps = torch.exp(-(((centres - partials.unsqueeze(-1)) / 0.06) ** 2))
    spectrum = (loud.unsqueeze(-1) * bumps).sum(1)
    spectrum = spectrum + 0.05 * torch.randn(n, BANDS, generator=generator)
    return spectrum, y


class Block(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.lin = nn.Linear(d_in, d_out)
        self.norm = nn.LayerNorm(d_out)

    def forward(self, x):
        return F.relu(self.norm(self.lin(x)))


class GradientPredictor(nn.Module):
    """h, y -> estimate of d(loss of this sample) / dh.

    The last layer starts at zero, as in the paper: the block below stays where it is until
    there is something worth following.
    """

    def __init__(self, d):
        super().__init__()
        self.inner = nn.Linear(d + FOUNDRIES, 128)
        self.outer = nn.Linear(128, d)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(self, h, y):
        z = torch.cat([h, F.one_hot(y, FOUNDRIES).to(h.dtype)], dim=1)
        return self.outer(F.relu(self.inner(z)))


@torch.no_grad()
def accuracy(blocks, head, x, y):
    h = x
    for block in blocks:
        h = block(h)
    return (head(h).argmax(1) == y).float().mean().item()


def agreement(blocks, head, predictors, x, y):
    """Cosine between predicted and exact gradient at every interface (a diagnostic only)."""
    hs, h = [], x
    for block in blocks:
        h = block(h)
        hs.append(h)
    loss = F.cross_entropy(head(h), y, reduction="sum")
    exact = torch.autograd.grad(loss, hs)
    with torch.no_grad():
        return [
            F.cosine_similarity(p(a, y).flatten(), g.flatten(), dim=0).item()
            for p, a, g in zip(predictors, hs, exact)
        ]


# size: the whole run in one place, read from top to bottom
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=700)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--seed", type=int, default=5)
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    g = torch.Generator().manual_seed(args.seed)
    profiles = make_profiles(g)
    x_train, y_train = ring(3000, profiles, g)
    x_test, y_test = ring(800, profiles, g)
    mean, std = x_train.mean(0), x_train.std(0)
    x_train, x_test = (x_train - mean) / std, (x_test - mean) / std

    blocks = nn.ModuleList([Block(BANDS, 64), Block(64, 64), Block(64, 64)])
    head = nn.Linear(64, FOUNDRIES)
    predictors = nn.ModuleList([GradientPredictor(64) for _ in blocks])

    # one optimizer for each part: nothing here is stepped together
    block_opts = [torch.optim.Adam(b.parameters(), lr=1e-3) for b in blocks]
    pred_opts = [torch.optim.Adam(p.parameters(), lr=1e-3) for p in predictors]
    head_opt = torch.optim.Adam(head.parameters(), lr=1e-3)

    history = []
    for step in range(args.steps):
        idx = torch.randint(0, len(x_train), (args.batch,), generator=g)
        x, y = x_train[idx], y_train[idx]
        n = len(x)

        below = x  # input of the block at work: a leaf, cut off from what made it
        below_pred = None  # the prediction made for `below`, to be checked from above
        for i, block in enumerate(blocks):
            block_opts[i].zero_grad()
            h = block(below)
            h_leaf = h.detach().requires_grad_()
            guess = predictors[i](h_leaf.detach(), y)
            # step now, with the promise instead of the real gradient (mean over the batch)
            h.backward(guess.detach() / n)
            block_opts[i].step()
            if below_pred is not None:
                settle(pred_opts[i - 1], below_pred, below.grad * n)
            below, below_pred = h_leaf, guess

        head_opt.zero_grad()
        loss = F.cross_entropy(head(below), y)
        loss.backward()
        head_opt.step()
        settle(pred_opts[-1], below_pred, below.grad * n)
        history.append(loss.item())

        if step % 100 == 0 or step == args.steps - 1:
            cos = agreement(blocks, head, predictors, x_test[:256], y_test[:256])
            acc = accuracy(blocks, head, x_test, y_test)
            print(
                f"step {step:4d} loss {history[-1]:.3f} test acc {acc:.3f} "
                f"cos {' '.join(f'{c:+.2f}' for c in cos)}"
            )

    first, last = sum(history[:20]) / 20, sum(history[-20:]) / 20
    acc = accuracy(blocks, head, x_test, y_test)
    print(f"loss {first:.3f} -> {last:.3f}, test accuracy {acc:.3f}")
    assert last < 0.6 * first
    if args.steps >= 500:
        assert acc > 0.8
        assert min(agreement(blocks, head, predictors, x_test, y_test)) > 0


def settle(opt, guess, truth):
    """One regression step of a predictor towards the gradient that arrived from above."""
    opt.zero_grad()
    F.mse_loss(guess, truth.detach()).backward()
    opt.step()


if __name__ == "__main__":
    main()
