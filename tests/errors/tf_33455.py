"""TF-33455: a run ends before its last epoch does.

Source: huggingface/transformers#33455. The trainer computes the number of optimizer
steps by a floor division of the batches by the accumulation, while the loop also
steps on the incomplete group at the end of an epoch; the total is reached early and
the rest of the data is never seen. --fixed rounds up.
"""

import argparse
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, model, loader, epochs, accumulation, round_up):
        self.model, self.loader = model, loader
        self.epochs, self.accumulation = epochs, accumulation
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        per_epoch = len(loader) / accumulation
        per_epoch = math.ceil(per_epoch) if round_up else math.floor(per_epoch)
        self.max_steps = per_epoch * epochs
        self.samples_seen = 0
        self.global_step = 0

    def update(self, total):
        self.optimizer.step()
        self.optimizer.zero_grad()
        print(f"step {self.global_step} loss {total:.4f}", flush=True)
        self.global_step += 1

    def train(self):
        print(f"{self.epochs} epochs, {self.max_steps} optimizer steps", flush=True)
        for epoch in range(self.epochs):
            total = 0.0
            for number, (x, y) in enumerate(self.loader, 1):
                loss = nn.functional.cross_entropy(self.model(x), y)
                (loss / self.accumulation).backward()
                total += loss.item() / self.accumulation
                self.samples_seen += len(x)
                if number % self.accumulation == 0 or number == len(self.loader):
                    self.update(total)
                    total = 0.0
                if self.global_step >= self.max_steps:
                    return


def blobs(count):
    labels = torch.randint(5, (count,))
    centres = 2 * torch.randn(5, 12)
    return TensorDataset(centres[labels] + torch.randn(count, 12), labels)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=18)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = blobs(176)
    loader = DataLoader(data, batch_size=16, shuffle=True)
    accumulation = 2
    epochs = max(1, options.steps // math.ceil(len(loader) / accumulation))
    model = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 5))
    trainer = Trainer(model, loader, epochs, accumulation, options.fixed)
    trainer.train()
    if options.prove:
        complete = trainer.samples_seen == epochs * len(data)
        print("fault shows:", "no" if complete else "yes")


if __name__ == "__main__":
    main()
