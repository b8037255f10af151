"""Learning to learn by gradient descent by gradient descent, for sundial curves.

Every task: fit a tiny net to the shadow of a gnomon over the day, at a random latitude and a
random date.  The tiny net is never touched by torch.optim: a coordinate-wise LSTM proposes its
updates, and only that LSTM has a (meta) optimizer.  The inner gradients are cut out of the graph
(no second derivatives, as in Andrychowicz et al. 2016) and the unroll is truncated.
"""
import argparse
import math

import torch
import torch.nn as nn

HIDDEN = 10
SHAPES = [(1, HIDDEN), (HIDDEN,), (HIDDEN, 1), (1,)]
SIZES = [math.prod(s) for s in SHAPES]


class Sundial:
    """A regression task: hour angle -> length of the shadow along the plate."""

    def __init__(self, generator):
        u = torch.rand(3, generator=generator)
        lat = math.radians(25 + 30 * float(u[0]))
        decl = math.radians(-15 + 38 * float(u[1]))
        hours = torch.rand(64, 1, generator=generator) * 2 - 1
        angle = hours * math.radians(65)
        sin_alt = (
            math.sin(lat) * math.sin(decl)
            + math.cos(lat) * math.cos(decl) * angle.cos()
        )
        shadow = angle.sin() * math.cos(decl) / sin_alt.clamp_min(0.25)
        self.x = hours * 1.7
        self.y = shadow + 0.4 * float(u[2]) * hours

    def loss(self, theta, rows):
        w1, b1, w2, b2 = [t.view(s) for t, s in zip(theta.split(SIZES), SHAPES)]
        out = torch.tanh(self.x[rows] @ w1 + b1) @ w2 + b2
        return ((out - self.y[rows]) ** 2).mean()


def fresh_theta(generator):
    parts = [
        torch.randn(n, generator=generator)
        * (1.0 if len(s) == 2 and s[0] == 1 else 0.3)
        for n, s in zip(SIZES, SHAPES)
    ]
    return torch.cat(parts)


class LSTMOptimizer(nn.Module):
    """The same small LSTM for each coordinate; every coordinate has its own state."""

    def __init__(self, hidden=16, scale=0.1, p=10.0):
        super().__init__()
        self.cell = nn.LSTMCell(2, hidden)
        self.out = nn.Linear(hidden, 1, bias=False)
        self.scale, self.p, self.hidden = scale, p, hidden

    def start(self, n):
        return torch.zeros(n, self.hidden), torch.zeros(n, self.hidden)

    def features(self, grad):
        mag = grad.abs()
        small = mag < math.exp(-self.p)
        first = torch.where(
            small,
            torch.full_like(grad, -1.0),
            mag.clamp_min(math.exp(-self.p)).log() / self.p,
        )
        second = torch.where(small, grad * math.exp(self.p), grad.sign())
        return torch.stack([first, second], dim=1)

    def forward(self, grad, state):
        h, c = self.cell(self.features(grad), state)
        return self.scale * self.out(h).squeeze(1), (h, c)


def inner_gradient(task, theta, rows):
    """The gradient as plain numbers: the meta gradient does not go through it."""
    probe = theta.detach().requires_grad_()
    (grad,) = torch.autograd.grad(task.loss(probe, rows), probe)
    return grad


def meta_episode(learner, meta_opt, task, theta, unroll, cut, generator):
    state, segment, trace = learner.start(len(theta)), 0.0, []
    for t in range(unroll):
        rows = torch.randint(0, 64, (32,), generator=generator)
        update, state = learner(inner_gradient(task, theta, rows), state)
        theta = theta + update
        loss = task.loss(theta, slice(None))
        segment = segment + loss
        trace.append(loss.item())
        if (t + 1) % cut == 0:
            meta_opt.zero_grad(set_to_none=True)
            (segment / cut).backward()
            nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
            meta_opt.step()
            # the next segment starts from the same numbers without the history
            theta, state, segment = (
                theta.detach(),
                tuple(s.detach() for s in state),
                0.0,
            )
    return trace


@torch.no_grad()
def apply_learned(learner, task, theta, steps):
    state = learner.start(len(theta))
    for _ in range(steps):
        with torch.enable_grad():
            grad = inner_gradient(task, theta, slice(None))
        update, state = learner(grad, state)
        theta = theta + update
    return task.loss(theta, slice(None)).item()


def apply_sgd(task, theta, steps, lr):
    for _ in range(steps):
        theta = theta - lr * inner_gradient(task, theta, slice(None))
    return task.loss(theta, slice(None)).item()


def evaluate(learner, seed, steps, n_tasks=8):
    generator = torch.Generator().manual_seed(seed)
    start, learned = 0.0, 0.0
    sgd = {lr: 0.0 for lr in (0.03, 0.1, 0.3)}
    for _ in range(n_tasks):
        task, theta = Sundial(generator), fresh_theta(generator)
        start += task.loss(theta, slice(None)).item() / n_tasks
        learned += apply_learned(learner, task, theta, steps) / n_tasks
        for lr in sgd:
            sgd[lr] += apply_sgd(task, theta, steps, lr) / n_tasks
    return start, learned, min(sgd.values())


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument(
        "--steps", type=int, default=80, help="meta episodes (2 meta steps each)"
    )
    ap.add_argument("--unroll", type=int, default=20)
    ap.add_argument("--cut", type=int, default=10)
    args = ap.parse_args()
    assert args.unroll % args.cut == 0, "the last segment would be thrown away"

    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    learner = LSTMOptimizer()
    meta_opt = torch.optim.Adam(learner.parameters(), lr=5e-3)

    start, before, sgd = evaluate(learner, seed=99, steps=args.unroll)
    print(
        f"held-out tasks: start {start:.3f}  untrained LSTM {before:.3f}  best SGD {sgd:.3f}"
    )

    finals = []
    for episode in range(args.steps):
        task, theta = Sundial(generator), fresh_theta(generator)
        trace = meta_episode(
            learner, meta_opt, task, theta, args.unroll, args.cut, generator
        )
        finals.append(trace[-1])
        if (episode + 1) % 20 == 0:
            recent = sum(finals[-20:]) / len(finals[-20:])
            print(
                f"episode {episode + 1:3d}  mean final loss of the last 20 tasks {recent:.4f}"
            )

    _, after, sgd = evaluate(learner, seed=99, steps=args.unroll)
    print(
        f"held-out tasks: trained LSTM {after:.4f} (untrained {before:.4f}, best SGD {sgd:.4f})"
    )
    assert math.isfinite(after)
    if args.steps >= 60:
        assert after < 0.5 * start, "the learned optimizer must optimise"
        assert after < 0.6 * before
        assert sum(finals[-20:]) < sum(finals[:20])


if __name__ == "__main__":
    main()
