"""NEMORL-3312: every checkpoint but the first holds the first one's weights.

Source: NVIDIA-NeMo/RL#3312. The writer assumes that the structure of the state stays
the same and keeps its plan of the first save, to which the tensors that it copied
belong as well; later saves write the copies again under a new step. --fixed keeps
the plan and copies the tensors anew.
"""

import argparse
import os
import tempfile

import torch
from torch import nn


class PlannedWriter:
    """Writes states by a plan: which tensor goes where in one buffer."""

    def __init__(self, assume_constant_structure, refresh):
        self.constant = assume_constant_structure
        self.refresh = refresh
        self.plan = None
        self.buffer = None

    def make_plan(self, state):
        plan, offset = [], 0
        for name, tensor in state.items():
            plan.append((name, offset, tensor.shape))
            offset += tensor.numel()
        return plan

    def stage(self, state):
        flat = [tensor.detach().reshape(-1).float() for tensor in state.values()]
        return torch.cat(flat)

    def save(self, state, step, path):
        if self.plan is None or not self.constant:
            self.plan = self.make_plan(state)
            self.buffer = self.stage(state)
        elif self.refresh:
            self.buffer = self.stage(state)
        torch.save({"step": step, "plan": self.plan, "data": self.buffer}, path)


def read(path):
    content = torch.load(path)
    return content["step"], {
        name: content["data"][start : start + shape.numel()].view(shape)
        for name, start, shape in content["plan"]
    }


class Policy(nn.Module):
    """Chooses one of six arms by the context."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 6))

    def forward(self, context):
        return torch.distributions.Categorical(logits=self.layers(context))


def reward(context, action):
    return (context[:, :6].argmax(1) == action).float()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=24)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.02)
    writer = PlannedWriter(assume_constant_structure=True, refresh=options.fixed)
    baseline = 0.0
    stale = []
    with tempfile.TemporaryDirectory() as folder:
        for step in range(options.steps):
            context = torch.randn(64, 8)
            choice = policy(context)
            action = choice.sample()
            gained = reward(context, action)
            loss = -(choice.log_prob(action) * (gained - baseline)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            baseline = 0.9 * baseline + 0.1 * gained.mean().item()
            print(
                f"step {step} loss {loss.item():.4f} reward {gained.mean().item():.3f}",
                flush=True,
            )
            if step % 6 == 5:
                path = os.path.join(folder, f"step_{step}.pt")
                writer.save(policy.state_dict(), step, path)
                if options.prove:
                    _, saved = read(path)
                    live = policy.state_dict()
                    stale.append(any(not live[n].equal(t) for n, t in saved.items()))
    if options.prove:
        print("fault shows:", "yes" if any(stale) else "no")


if __name__ == "__main__":
    main()
