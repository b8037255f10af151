"""KF-51: a resumed run begins its epoch again.

Source: KempnerInstitute/KempnerForge#51. The loader knows its position and could
save it; the script passes model, optimizer and scheduler to the checkpoint manager,
but not the loader, so that after a resume the first batches of the epoch come a
second time and its end never. --fixed passes the loader as well.
"""

import argparse
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class StatefulLoader:
    """A loader that can go on in the middle of an epoch."""

    def __init__(self, data, batch_size, seed):
        self.data, self.batch_size, self.seed = data, batch_size, seed
        self.epoch = self.batches_yielded = 0

    def state_dict(self):
        return {"epoch": self.epoch, "batches_yielded": self.batches_yielded}

    def load_state_dict(self, state):
        self.epoch = state["epoch"]
        self.batches_yielded = state["batches_yielded"]

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(len(self.data), generator=generator).tolist()
        rows = order[self.batches_yielded * self.batch_size :]
        for batch in DataLoader(self.data, batch_size=self.batch_size, sampler=rows):
            self.batches_yielded += 1
            yield batch
        self.epoch += 1
        self.batches_yielded = 0


class CheckpointManager:
    def __init__(self, folder):
        self.path = os.path.join(folder, "latest.pt")

    def save(self, step, **objects):
        states = {name: thing.state_dict() for name, thing in objects.items()}
        torch.save({"step": step, **states}, self.path)

    def load(self, **objects):
        content = torch.load(self.path)
        for name, thing in objects.items():
            if name in content:
                thing.load_state_dict(content[name])
        return content["step"]


def build(steps):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 24), nn.SiLU(), nn.Linear(24, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, steps)
    return {"model": model, "optimizer": optimizer, "scheduler": scheduler}


def run(parts, loader, step, until, seen):
    while step < until:
        epoch = loader.epoch
        for x, y, row in loader:
            loss = nn.functional.mse_loss(parts["model"](x).squeeze(-1), y)
            parts["optimizer"].zero_grad()
            loss.backward()
            parts["optimizer"].step()
            parts["scheduler"].step()
            seen += [(epoch, number) for number in row.tolist()]
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
            if step == until:
                break
    return step


def samples(count):
    generator = torch.Generator().manual_seed(9)
    x = torch.rand(count, 6, generator=generator)
    return TensorDataset(x, (3 * x[:, 0]).sin() + x[:, 1], torch.arange(count))


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=20)
    options = cli.parse_args()
    torch.set_num_threads(1)
    data = samples(192)
    seen = []
    with tempfile.TemporaryDirectory() as folder:
        manager = CheckpointManager(folder)
        parts, loader = build(options.steps), StatefulLoader(data, 16, seed=5)
        interrupted = max(1, options.steps // 2 - 3)
        step = run(parts, loader, 0, interrupted, seen)
        if options.fixed:
            manager.save(step, dataloader=loader, **parts)
        else:
            manager.save(step, **parts)
        parts, loader = build(options.steps), StatefulLoader(data, 16, seed=5)
        step = manager.load(dataloader=loader, **parts)
        print(f"resumed at step {step}", flush=True)
        run(parts, loader, step, options.steps, seen)
    if options.prove:
        print("fault shows:", "yes" if len(seen) > len(set(seen)) else "no")


if __name__ == "__main__":
    main()
