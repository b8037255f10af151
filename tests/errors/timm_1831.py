"""TIMM-1831: the averaged model is updated once in an epoch.

Source: huggingface/pytorch-image-models#1831. The user updates the moving average
at the end of the training loop instead of after each optimizer step; with a decay
that was chosen for steps it stays close to the random start. --fixed updates it in
each step.
"""

import argparse
import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class ModelEma:
    def __init__(self, model, decay):
        self.module = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        state = model.state_dict()
        for name, average in self.module.state_dict().items():
            if average.dtype.is_floating_point:
                average.lerp_(state[name], 1 - self.decay)
            else:
                average.copy_(state[name])


class SmallNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU()
        )
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        return self.fc(self.features(x).mean(dim=(2, 3)))


def accuracy(model, images, labels):
    training = model.training
    model.eval()
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).float().mean().item()
    model.train(training)
    return right


def train_one_epoch(model, ema, optimizer, loader, step, limit, each_step):
    model.train()
    for images, labels in loader:
        if step == limit:
            break
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if each_step:
            ema.update(model)
        print(f"step {step} loss {loss.item():.4f}", flush=True)
        step += 1
    if not each_step:
        ema.update(model)
    return step


def colours(count):
    labels = torch.randint(4, (count,))
    images = torch.randn(count, 3, 12, 12)
    palette = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]])
    return TensorDataset(images + palette[labels][:, :, None, None], labels)


def distance(ema, model):
    pairs = zip(ema.module.parameters(), model.parameters())
    return sum((a - b).square().sum().item() for a, b in pairs) ** 0.5


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=30)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = DataLoader(colours(160), batch_size=16, shuffle=True)
    held_out = colours(128).tensors
    model = SmallNet()
    ema = ModelEma(model, decay=0.8)
    begin = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step = 0
    while step < options.steps:
        step = train_one_epoch(
            model, ema, optimizer, loader, step, options.steps, options.fixed
        )
        plain, averaged = (accuracy(m, *held_out) for m in (model, ema.module))
        print(f"accuracy {plain:.3f}, of the average {averaged:.3f}", flush=True)
    if options.prove:
        behind = distance(ema, model) > 0.4 * distance(ema, begin)
        print("fault shows:", "yes" if behind else "no")


if __name__ == "__main__":
    main()
