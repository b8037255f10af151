"""MMP-702: frozen stages that train.

Source: open-mmlab/mmpretrain#702. A backbone freezes its first stages inside its
own train() method; the runner starts from a fresh model, which is in training mode
already, and never calls train(), so that frozen_stages has no effect. --fixed calls
train() at the start of each epoch.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Backbone(nn.Module):
    def __init__(self, widths=(8, 12, 16), frozen_stages=0):
        super().__init__()
        self.frozen_stages = frozen_stages
        before = 3
        self.stages = nn.ModuleList()
        for width in widths:
            self.stages.append(
                nn.Sequential(
                    nn.Conv2d(before, width, 3, padding=1),
                    nn.BatchNorm2d(width),
                    nn.ReLU(),
                    nn.MaxPool2d(2),
                )
            )
            before = width

    def forward(self, x):
        for stage in self.stages:
            x = stage(x)
        return x.mean(dim=(2, 3))

    def _freeze_stages(self):
        for stage in self.stages[: self.frozen_stages]:
            stage.eval()
            for parameter in stage.parameters():
                parameter.requires_grad = False

    def train(self, mode=True):
        super().train(mode)
        self._freeze_stages()
        return self


class Classifier(nn.Module):
    def __init__(self, frozen_stages):
        super().__init__()
        self.backbone = Backbone(frozen_stages=frozen_stages)
        self.head = nn.Linear(16, 3)

    def forward(self, images):
        return self.head(self.backbone(images))


class Runner:
    def __init__(self, model, optimizer, loader, set_mode):
        self.model, self.optimizer, self.loader = model, optimizer, loader
        self.set_mode = set_mode
        self.iteration = 0

    def run_epoch(self, limit):
        if self.set_mode:
            self.model.train()
        for images, labels in self.loader:
            if self.iteration == limit:
                return
            loss = nn.functional.cross_entropy(self.model(images), labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            print(f"step {self.iteration} loss {loss.item():.4f}", flush=True)
            self.iteration += 1


def pictures(count):
    labels = torch.arange(count) % 3
    images = 0.5 * torch.randn(count, 3, 16, 16)
    images[torch.arange(count), labels] += 0.4
    return TensorDataset(images, labels)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=18)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Classifier(frozen_stages=2)
    before = [p.detach().clone() for p in model.backbone.stages[:2].parameters()]
    loader = DataLoader(pictures(96), batch_size=16, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    runner = Runner(model, optimizer, loader, options.fixed)
    while runner.iteration < options.steps:
        runner.run_epoch(options.steps)
    if options.prove:
        after = model.backbone.stages[:2].parameters()
        moved = any(not torch.equal(a, b) for a, b in zip(before, after))
        print("fault shows:", "yes" if moved else "no")


if __name__ == "__main__":
    main()
