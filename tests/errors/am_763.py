"""AM-763: the optimizer's state is read and never loaded.

Source: NVIDIA-NeMo/Automodel#763. After a refactoring the checkpointer reads the
optimizer's and the scheduler's part of a checkpoint into dictionaries, and no call
puts them into the objects: the run resumes with fresh moments at the first learning
rate. --fixed loads them.
"""

import argparse
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Checkpointer:
    def __init__(self, folder, load_all):
        self.folder = folder
        self.load_all = load_all

    def save(self, model, optimizer, scheduler, step):
        torch.save(model.state_dict(), os.path.join(self.folder, "model.pt"))
        state = {"optim": optimizer.state_dict(), "sched": scheduler.state_dict()}
        torch.save({**state, "step": step}, os.path.join(self.folder, "optim.pt"))

    def load_model(self, model):
        model.load_state_dict(torch.load(os.path.join(self.folder, "model.pt")))

    def load_optimizer(self, optimizer, scheduler):
        state = optimizer.state_dict(), scheduler.state_dict()
        state = torch.load(os.path.join(self.folder, "optim.pt"))
        if self.load_all:
            optimizer.load_state_dict(state["optim"])
            scheduler.load_state_dict(state["sched"])
        return state["step"]


class Recipe:
    def __init__(self, steps):
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Linear(10, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4)
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(
            self.optimizer, T_max=steps
        )
        self.step = 0

    def run(self, loader, until):
        while self.step < until:
            for x, y in loader:
                if self.step == until:
                    break
                loss = nn.functional.cross_entropy(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.scheduler.step()
                print(f"step {self.step} loss {loss.item():.4f}", flush=True)
                self.step += 1


def clusters(count):
    generator = torch.Generator().manual_seed(2)
    labels = torch.arange(count) % 4
    centres = torch.randn(4, 10, generator=generator)
    noise = torch.randn(count, 10, generator=generator)
    return TensorDataset(centres[labels] + noise, labels)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=24)
    options = cli.parse_args()
    torch.set_num_threads(1)
    loader = DataLoader(
        clusters(256),
        batch_size=32,
        shuffle=True,
        generator=torch.Generator().manual_seed(4),
    )
    half = options.steps // 2
    with tempfile.TemporaryDirectory() as folder:
        checkpointer = Checkpointer(folder, options.fixed)
        recipe = Recipe(options.steps)
        recipe.run(loader, half)
        checkpointer.save(recipe.model, recipe.optimizer, recipe.scheduler, recipe.step)
        recipe = Recipe(options.steps)
        checkpointer.load_model(recipe.model)
        recipe.step = checkpointer.load_optimizer(recipe.optimizer, recipe.scheduler)
        print(f"resumed at step {recipe.step}", flush=True)
        recipe.run(loader, options.steps)
    if options.prove:
        counts = {int(s["step"]) for s in recipe.optimizer.state.values()}
        whole = counts == {recipe.step}
        whole = whole and recipe.scheduler.last_epoch == recipe.step
        print("fault shows:", "no" if whole else "yes")


if __name__ == "__main__":
    main()
