"""Several properties of made-up molecules at once, one head each; stopped and resumed.

The list of properties comes from the records themselves. The run is stopped in its
middle and goes on from its checkpoint with everything built anew.
Lightning-AI/pytorch-lightning#17025.
"""

import argparse
import os
import random
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader

FEATURES = 20
PROPERTIES = ("boiling", "density", "solubility", "toxicity", "viscosity")
SCALES = (8.0, 0.3, 2.0, 0.05, 4.0)


def records(count, seed):
    """As they come from a folder: one property of one molecule each."""
    generator = torch.Generator().manual_seed(seed)
    rule = torch.Generator().manual_seed(11)
    laws = torch.randn(len(PROPERTIES), FEATURES, generator=rule)
    found = []
    for i in range(count):
        x = torch.randn(FEATURES, generator=generator)
        kind = i % len(PROPERTIES)
        value = SCALES[kind] * torch.tanh(laws[kind] @ x / 3)
        found.append({"property": PROPERTIES[kind], "x": x, "value": value})
    return found


def property_names(found, fixed):
    names = list(dict.fromkeys(record["property"] for record in found))
    return sorted(names) if fixed else names


def collate(rows):
    x = torch.stack([row["x"] for row in rows])
    values = torch.stack([row["value"] for row in rows])
    return x, values, [row["property"] for row in rows]


class MultiTask(nn.Module):
    def __init__(self, names, width=48):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(FEATURES, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU()
        )
        self.heads = nn.ModuleDict({name: self.head(width) for name in names})

    @staticmethod
    def head(width):
        return nn.Sequential(nn.Linear(width, 16), nn.SiLU(), nn.Linear(16, 1))

    def forward(self, x, names):
        hidden = self.trunk(x)
        out = x.new_empty(len(x))
        for name in set(names):
            rows = torch.tensor([other == name for other in names])
            out[rows] = self.heads[name](hidden[rows]).squeeze(-1)
        return out


class Run:
    def __init__(self, found, fixed):
        self.found = found
        names = property_names(found, fixed)
        self.model = MultiTask(names)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.step = 0

    def train(self, until):
        generator = torch.Generator().manual_seed(self.step)
        loader = DataLoader(
            self.found, 80, shuffle=True, collate_fn=collate, generator=generator
        )
        while self.step < until:
            for x, values, names in loader:
                if self.step == until:
                    break
                loss = nn.functional.huber_loss(self.model(x, names), values)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                if self.step % 10 == 0:
                    print(f"step {self.step} loss {loss.item():.4f}", flush=True)
                self.step += 1

    @torch.no_grad()
    def validate(self, found):
        self.model.eval()
        x, values, names = collate(found)
        error = (self.model(x, names) - values).abs().mean().item()
        self.model.train()
        print(f"validation error {error:.4f}", flush=True)

    def save(self, path):
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
        }
        torch.save(state, path)

    def load(self, path):
        state = torch.load(path)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]

    def moments(self):
        states = self.optimizer.state
        named = self.model.named_parameters()
        return {name: states[p]["exp_avg_sq"].clone() for name, p in named}


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=160)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = records(1600, seed=1)
    held_out = records(200, seed=2)
    first = Run(found, options.fixed)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "last.ckpt")
        first.train(options.steps // 2)
        first.validate(held_out)
        first.save(path)
        before = first.moments()
        # The folder is read again, and its files come in any order.
        again = random.Random(7).sample(found, len(found))
        second = Run(again, options.fixed)
        second.load(path)
    after = second.moments()
    print(f"resumed at step {second.step}", flush=True)
    second.train(options.steps)
    second.validate(held_out)
    if options.prove:
        moved = [name for name in before if not torch.equal(before[name], after[name])]
        print(f"{len(moved)} of {len(before)} averages changed on resume", flush=True)
        print("fault shows:", "yes" if moved else "no")


if __name__ == "__main__":
    main()
