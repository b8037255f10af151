"""PL-2551: a frozen backbone thaws after the first validation.

Source: Lightning-AI/pytorch-lightning#2551. For fine-tuning the backbone is frozen
and put into eval mode; when the validation ends, the trainer calls train() on the
whole model, and the backbone's normalisation starts to follow the new data. --fixed
restores the mode that each module had.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class FineTuned(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 12, 3, padding=1),
            nn.BatchNorm2d(12),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(48, classes))

    def freeze_backbone(self):
        self.backbone.requires_grad_(False)
        self.backbone.eval()

    def forward(self, x):
        return self.head(self.backbone(x))


class Trainer:
    def __init__(self, every, restore_modes):
        self.every = every
        self.restore_modes = restore_modes

    @torch.no_grad()
    def run_evaluation(self, model, loader):
        modes = {module: module.training for module in model.modules()}
        model.eval()
        losses = [nn.functional.cross_entropy(model(x), y).item() for x, y in loader]
        if self.restore_modes:
            for module, mode in modes.items():
                module.training = mode
        else:
            model.train()
        return sum(losses) / len(losses)

    def fit(self, model, optimizer, training, validation, steps):
        step = 0
        while step < steps:
            for x, y in training:
                if step == steps:
                    break
                loss = nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                print(f"step {step} loss {loss.item():.4f}", flush=True)
                step += 1
                if step % self.every == 0:
                    score = self.run_evaluation(model, validation)
                    print(f"validation {score:.4f}", flush=True)


def textures(count):
    labels = torch.randint(3, (count,))
    images = 0.4 * torch.randn(count, 1, 12, 12) + 0.5
    for image, label in zip(images, labels.tolist()):
        image[:, :: label + 2] += 1.5
    return TensorDataset(images, labels)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=20)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = FineTuned()
    model.freeze_backbone()
    statistics = {name: b.clone() for name, b in model.backbone.named_buffers()}
    optimizer = torch.optim.Adam(model.head.parameters(), lr=0.02)
    training = DataLoader(textures(192), batch_size=32, shuffle=True)
    validation = DataLoader(textures(64), batch_size=32)
    trainer = Trainer(6, options.fixed)
    trainer.fit(model, optimizer, training, validation, options.steps)
    if options.prove:
        now = dict(model.backbone.named_buffers())
        moved = any(not torch.equal(now[n], old) for n, old in statistics.items())
        print("fault shows:", "yes" if moved else "no")


if __name__ == "__main__":
    main()
