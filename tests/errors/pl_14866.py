"""Pictures of four textures; the last epochs' weights are averaged (SWA).

The averaged model has its batch statistics computed anew from the training data
before it is evaluated and saved. Lightning-AI/pytorch-lightning#14866.
"""

import argparse
import os
import tempfile

import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel
from torch.utils.data import DataLoader, TensorDataset


class ConvNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()

        def block(i, o, stride):
            return nn.Sequential(
                nn.Conv2d(i, o, 3, stride=stride, padding=1, bias=False),
                nn.BatchNorm2d(o),
                nn.ReLU(),
            )

        self.features = nn.Sequential(
            block(3, 12, 1), block(12, 24, 2), block(24, 32, 2)
        )
        self.fc = nn.Linear(32, classes)

    def forward(self, x):
        return self.fc(self.features(x).mean((2, 3)))


def textures(count, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (count,), generator=generator)
    grid = torch.arange(16.0)
    checks = torch.stack(
        [
            torch.sin(grid)[:, None].expand(16, 16),
            torch.sin(grid)[None, :].expand(16, 16),
            torch.sin(grid[:, None] + grid[None, :]),
            torch.sin(grid)[:, None] * torch.sin(grid)[None, :],
        ]
    )
    tint = 1.5 + 0.5 * torch.rand(count, 3, 1, 1, generator=generator)
    noise = 0.9 * torch.randn(count, 3, 16, 16, generator=generator)
    return TensorDataset(checks[labels][:, None] + tint + noise, labels)


class BatchNormUpdate:
    """Computes the statistics of all normalisation layers anew from a loader."""

    def __init__(self, fixed):
        self.momentum = None if fixed else 0.0

    def layers(self, model):
        return [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]

    @torch.no_grad()
    def __call__(self, loader, model):
        before = {layer: layer.momentum for layer in self.layers(model)}
        for layer in before:
            layer.reset_running_stats()
            layer.momentum = self.momentum
        model.train()
        for images, _ in loader:
            model(images)
        for layer, momentum in before.items():
            layer.momentum = momentum
        model.eval()


@torch.no_grad()
def evaluate(model, loader):
    training = model.training
    model.eval()
    right = loss = 0.0
    for images, labels in loader:
        logits = model(images)
        loss += nn.functional.cross_entropy(logits, labels, reduction="sum").item()
        right += (logits.argmax(1) == labels).sum().item()
    model.train(training)
    return loss / len(loader.dataset), right / len(loader.dataset)


@torch.no_grad()
def gap(model, loader):
    """How far the statistics are from those of the data, by the first layer."""
    conv, norm, _ = model.module.features[0]
    values = torch.cat([conv(images) for images, _ in loader]).transpose(0, 1)
    off = (norm.running_mean - values.flatten(1).mean(1)).abs()
    return (off / values.flatten(1).std(1)).mean().item()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=120)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    train = DataLoader(textures(640, 1), batch_size=32, shuffle=True)
    valid = DataLoader(textures(256, 2), batch_size=64)
    model = ConvNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    averaged = AveragedModel(model)
    schedule = SWALR(optimizer, swa_lr=0.01, anneal_epochs=2)
    update_bn = BatchNormUpdate(options.fixed)
    epochs = -(-options.steps // len(train))
    first_averaged = epochs // 2
    step = 0
    for epoch in range(epochs):
        for images, labels in train:
            if step == options.steps:
                break
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        report = "epoch {} validation loss {:.4f}, accuracy {:.3f}"
        print(report.format(epoch, *evaluate(model, valid)), flush=True)
        if epoch >= first_averaged:
            averaged.update_parameters(model)
            schedule.step()
    update_bn(train, averaged)
    loss, right = evaluate(averaged, valid)
    print(f"average: validation loss {loss:.4f}, accuracy {right:.3f}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        torch.save(averaged.module.state_dict(), os.path.join(folder, "swa.pt"))
    if options.prove:
        off = gap(averaged, train)
        print(f"statistics are off by {off:.3f} deviations", flush=True)
        print("fault shows:", "yes" if off > 0.2 else "no")


if __name__ == "__main__":
    main()
