# Class-conditional flow matching with minibatch optimal transport.
#
# The data are 2d point sets of several classes, every class is one stroke of a drawing.
import argparse
import math
import os
import tempfile

import torch
import torch.nn as nn

SAVE_EVERY = 4


class OTPlanSampler:
    """Couples the samples of two minibatches by an entropic transport plan."""

    def __init__(self, reg=0.05, iterations=60, generator=None):
        self.reg, self.iterations, self.generator = reg, iterations, generator

    def get_map(self, x0, x1):
        cost = torch.cdist(x0, x1) ** 2
        kernel = -cost / (self.reg * cost.max())
        n = len(x0)
        log_mass = torch.full((n,), -math.log(n))
        f, g = torch.zeros(n), torch.zeros(n)
        for _ in range(self.iterations):
            f = log_mass - torch.logsumexp(kernel + g[None, :], 1)
            g = log_mass - torch.logsumexp(kernel + f[:, None], 0)
        return (kernel + f[:, None] + g[None, :]).exp()

    def sample_map(self, plan, batch_size):
        choices = torch.multinomial(
            plan.flatten(), batch_size, replacement=True, generator=self.generator
        )
        columns = plan.shape[1]
        return choices // columns, choices % columns

    def sample_plan(self, x0, x1):
        i, j = self.sample_map(self.get_map(x0, x1), len(x0))
        return x0[i], x1[j]

    def sample_plan_with_labels(self, x0, x1, y0=None, y1=None):
        i, j = self.sample_map(self.get_map(x0, x1), len(x0))
        return (
            x0[i],
            x1[j],
            y0[i] if y0 is not None else None,
            y1[j] if y1 is not None else None,
        )


class ConditionalFlowMatcher:
    def __init__(self, sigma=0.0):
        self.sigma = sigma

    def sample_location_and_conditional_flow(self, x0, x1):
        t = torch.rand(len(x0))
        tt = t[:, None]
        xt = (1 - tt) * x0 + tt * x1 + self.sigma * torch.randn_like(x0)
        return t, xt, x1 - x0


class ExactOptimalTransportConditionalFlowMatcher(ConditionalFlowMatcher):
    def __init__(self, sigma=0.0, generator=None):
        super().__init__(sigma)
        self.ot_sampler = OTPlanSampler(generator=generator)

    def sample_location_and_conditional_flow(self, x0, x1):
        x0, x1 = self.ot_sampler.sample_plan(x0, x1)
        return super().sample_location_and_conditional_flow(x0, x1)

    def guided_sample_location_and_conditional_flow(self, x0, x1, y0=None, y1=None):
        x0, x1, y0, y1 = self.ot_sampler.sample_plan_with_labels(x0, x1, y0, y1)
        t, xt, ut = super().sample_location_and_conditional_flow(x0, x1)
        return t, xt, ut, y0, y1


def strokes(labels, generator):
    """A point of the stroke of each label: arcs and segments around the origin."""
    u = torch.rand(len(labels), generator=generator)
    angle = labels.float() * (2 * math.pi / 6)
    radius = torch.where(labels % 2 == 0, 1.6 + 0.6 * (u - 0.5), torch.tensor(2.2))
    spread = torch.where(labels % 2 == 0, torch.tensor(0.0), 0.7 * (u - 0.5))
    points = torch.stack(
        [radius * (angle + spread).cos(), radius * (angle + spread).sin()], 1
    )
    noise = torch.randn(len(labels), 2, generator=generator)
    return points + 0.06 * noise


def make_dataset(count, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 6, (count,), generator=generator)
    return strokes(labels, generator), labels


class ConditionalVelocity(nn.Module):
    def __init__(self, classes=6, width=96):
        super().__init__()
        self.label = nn.Embedding(classes, 16)
        self.register_buffer("freqs", 2.0 ** torch.arange(4) * math.pi / 2)
        self.net = nn.Sequential(
            nn.Linear(2 + 16 + 8, width),
            nn.SELU(),
            nn.Linear(width, width),
            nn.SELU(),
            nn.Linear(width, width),
            nn.SELU(),
            nn.Linear(width, 2),
        )

    def forward(self, t, x, y):
        phases = t[:, None] * self.freqs
        time = torch.cat([phases.sin(), phases.cos()], -1)
        return self.net(torch.cat([x, time, self.label(y)], -1))


@torch.no_grad()
def generate(model, labels, steps=25, seed=5):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(len(labels), 2, generator=generator)
    for k in range(steps):
        t = torch.full((len(labels),), k / steps)
        x = x + model(t, x, labels) / steps
    return x


@torch.no_grad()
def evaluate(model, data, labels):
    """Share of generated points next to a training point of their class."""
    model.eval()
    wanted = torch.arange(6).repeat_interleave(50)
    points = generate(model, wanted)
    distance, nearest = torch.cdist(points, data).min(1)
    model.train()
    agreement = (labels[nearest] == wanted).float().mean().item()
    return agreement, distance.mean().item()


def train(args, folder):
    data, labels = make_dataset(2400, args.seed)
    model = ConditionalVelocity()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    generator = torch.Generator().manual_seed(args.seed + 1)
    FM = ExactOptimalTransportConditionalFlowMatcher(0.0, generator)
    for epoch in range(args.n_epochs):
        total, count = 0.0, 0
        order = torch.randperm(len(data), generator=generator)
        for rows in order.split(args.batch_size):
            optimizer.zero_grad()
            x1, y = data[rows], labels[rows]
            x0 = torch.randn_like(x1)
            if args.fixed:
                t, xt, ut, _, y = FM.guided_sample_location_and_conditional_flow(
                    x0, x1, y1=y
                )
            else:
                t, xt, ut = FM.sample_location_and_conditional_flow(x0, x1)
            vt = model(t, xt, y)
            loss = torch.mean((vt - ut) ** 2)
            loss.backward()
            optimizer.step()
            total, count = total + loss.item(), count + 1
        agreement, distance = evaluate(model, data, labels)
        print(
            f"epoch: {epoch}, loss: {total / count:.4}, "
            f"class agreement: {agreement:.3f}, distance: {distance:.3f}"
        )
        if (epoch + 1) % SAVE_EVERY == 0:
            torch.save(model.state_dict(), os.path.join(folder, f"cfm_{epoch}.pt"))
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--n_epochs", type=int, default=12)
    parser.add_argument("--batch_size", type=int, default=96)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        train(args, folder)
