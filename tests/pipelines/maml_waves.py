"""Model-agnostic meta-learning on sine waves: the inner loop adapts a copy of the
weights through functional_call and autograd.grad (second order), the outer loss of
all tasks of a batch is backpropagated to the initial weights.

    python maml_waves.py --steps 200
"""

import argparse
import math

import torch
from torch import nn
from torch.func import functional_call


class Wave:
    """One task: a sine of some amplitude and phase."""

    def __init__(self, generator):
        self.generator = generator
        self.amplitude = 0.5 + 2.5 * torch.rand((), generator=generator)
        self.phase = math.pi * torch.rand((), generator=generator)

    def sample(self, shots):
        x = 10 * torch.rand(shots, 1, generator=self.generator) - 5
        return x, self.amplitude * torch.sin(x + self.phase)


class Regressor(nn.Module):
    def __init__(self, hidden=40):
        super().__init__()
        self.fc1 = nn.Linear(1, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


class MAML:
    def __init__(self, net, inner_lr, inner_steps):
        self.net, self.inner_lr, self.inner_steps = net, inner_lr, inner_steps
        self.criterion = nn.MSELoss()

    def predict(self, weights, x):
        return functional_call(self.net, weights, (x,))

    def adapt(self, x, y, steps=None, create_graph=True):
        weights = dict(self.net.named_parameters())
        for _ in range(steps or self.inner_steps):
            loss = self.criterion(self.predict(weights, x), y)
            grads = torch.autograd.grad(
                loss, list(weights.values()), create_graph=create_graph
            )
            weights = {
                name: w - self.inner_lr * g
                for (name, w), g in zip(weights.items(), grads)
            }
        return weights

    def outer_loss(self, tasks, shots):
        losses = []
        for task in tasks:
            weights = self.adapt(*task.sample(shots))
            x, y = task.sample(shots)
            losses.append(self.criterion(self.predict(weights, x), y))
        return torch.stack(losses).mean()

    def test(self, tasks, shots, steps):
        before = after = 0.0
        for task in tasks:
            support, (x, y) = task.sample(shots), task.sample(100)
            weights = self.adapt(*support, steps=steps, create_graph=False)
            with torch.no_grad():
                before += self.criterion(self.net(x), y).item()
                after += self.criterion(self.predict(weights, x), y).item()
        return before / len(tasks), after / len(tasks)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--tasks", type=int, default=8, help="in a meta-batch")
    parser.add_argument("--shots", type=int, default=10)
    parser.add_argument("--inner-steps", type=int, default=1)
    parser.add_argument("--inner-lr", type=float, default=0.02)
    parser.add_argument("--meta-lr", type=float, default=3e-3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(40)
    generator = torch.Generator().manual_seed(41)

    net = Regressor()
    maml = MAML(net, args.inner_lr, args.inner_steps)
    meta_optimizer = torch.optim.Adam(net.parameters(), lr=args.meta_lr)
    recent = []
    for step in range(1, args.steps + 1):
        tasks = [Wave(generator) for _ in range(args.tasks)]
        loss = maml.outer_loss(tasks, args.shots)
        meta_optimizer.zero_grad()
        loss.backward()
        meta_optimizer.step()
        recent.append(loss.item())
        if step % 20 == 0:
            print(f"step {step} loss {sum(recent) / len(recent):.6f}", flush=True)
            recent.clear()

    unseen = [Wave(generator) for _ in range(20)]
    before, after = maml.test(unseen, args.shots, steps=5)
    print(f"unseen waves: {before:.4f} before, {after:.4f} after five steps")


if __name__ == "__main__":
    main()
