"""Trains a ResNet-18 for small images: SGD with Nesterov momentum, weight decay
for matrices only, label smoothing, a one-cycle schedule, the best weights kept.

    python resnet18.py --steps 100
"""

import argparse
import pathlib
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES = 10


def conv3x3(inputs, outputs, stride=1):
    return nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = conv3x3(inputs, outputs, stride)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = conv3x3(outputs, outputs)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outputs))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class ResNet18(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = conv3x3(3, width)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = self.layer(width, width, 1)
        self.layer2 = self.layer(width, 2 * width, 2)
        self.layer3 = self.layer(2 * width, 4 * width, 2)
        self.layer4 = self.layer(4 * width, 8 * width, 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8 * width, CLASSES)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
        for module in self.modules():
            if isinstance(module, BasicBlock):
                nn.init.zeros_(module.bn2.weight)

    @staticmethod
    def layer(inputs, outputs, stride):
        return nn.Sequential(
            BasicBlock(inputs, outputs, stride), BasicBlock(outputs, outputs, 1)
        )

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Stripes(Dataset):
    """Waves of one direction and colour a class; crops and flips as augmentation."""

    def __init__(self, size, seed, augment):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(CLASSES, (size,), generator=generator)
        angle = self.labels * torch.pi / CLASSES
        grid = torch.arange(32.0)
        wave = (
            torch.cos(angle)[:, None, None] * grid[:, None]
            + torch.sin(angle)[:, None, None] * grid
        ).sin()
        colour = torch.rand(size, 3, 1, 1, generator=generator)
        noise = torch.randn(size, 3, 32, 32, generator=generator)
        self.images = wave[:, None] * colour + 0.3 * noise
        self.augment = augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index]
        if self.augment:
            image = nn.functional.pad(image, (2, 2, 2, 2))
            top, left = torch.randint(5, (2,)).tolist()
            image = image[:, top : top + 32, left : left + 32]
            if torch.rand(()) < 0.5:
                image = image.flip(-1)
        return image, self.labels[index]


def groups(model, decay):
    decayed, others = [], []
    for parameter in model.parameters():
        (decayed if parameter.ndim > 1 else others).append(parameter)
    return [
        {"params": decayed, "weight_decay": decay},
        {"params": others, "weight_decay": 0.0},
    ]


@torch.inference_mode()
def accuracy(model, loader):
    was_training = model.training
    model.eval()
    hits = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train(was_training)
    return hits / len(loader.dataset)


def main(options):
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    loader = DataLoader(
        Stripes(40 * options.batch_size, options.seed, True),
        batch_size=options.batch_size,
        shuffle=True,
        drop_last=True,
    )
    validation = DataLoader(Stripes(32, options.seed + 1, False), batch_size=32)
    model = ResNet18(options.width)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(
        groups(model, 5e-4), lr=0.05, momentum=0.9, nesterov=True
    )
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.1, total_steps=options.steps
    )
    folder = tempfile.TemporaryDirectory()
    best_file = pathlib.Path(folder.name) / "best.pt"
    best, step, times = -1.0, 0, [time.perf_counter()]
    model.train()
    while step < options.steps:
        for images, labels in loader:
            loss = criterion(model(images), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
            print(f"step {step} loss {loss.item().hex()}", flush=True)
            times.append(time.perf_counter())
            step += 1
            if step == options.steps:
                break
        reached = accuracy(model, validation)
        print(f"accuracy {reached:.4f}", flush=True)
        if reached > best:
            best = reached
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, best_file)
    model.load_state_dict(torch.load(best_file)["model"])
    print(f"best {accuracy(model, validation):.4f}")
    folder.cleanup()
    if options.times:
        pathlib.Path(options.times).write_text("".join(f"{t!r}\n" for t in times))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--width", type=int, default=20)
    parser.add_argument("--times", help="file for the moment of each step's end")
    main(parser.parse_args())
