"""Classifies small synthetic images with a convolutional network: the training that
vs_traincheck.py collects and checks with both systems. The loops have the form of
torch's MNIST example, which TrainCheck's rewriting of the source knows.

    python vs_traincheck_train.py --seed 1 --times FILE

With --fault all but the normalisations is frozen and the optimizer gets the frozen
head: `step` changes nothing, no error is raised, and the loss moves all the same,
because the running statistics do. (A question of a user in PyTorch's forum, number
84911, and the example of TrainCheck's tutorial.)
"""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 10
SIZE = 20


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3)
        self.norm1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3)
        self.norm2 = nn.BatchNorm2d(32)
        self.dropout = nn.Dropout(0.25)
        self.head = nn.Linear(2048, CLASSES)

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x)))
        x = F.relu(self.norm2(self.conv2(x)))
        x = self.dropout(F.max_pool2d(x, 2))
        return F.log_softmax(self.head(torch.flatten(x, 1)), dim=1)


def images(count):
    """Each class is a pattern of its own under noise."""
    patterns = torch.rand(CLASSES, 1, SIZE, SIZE)
    labels = torch.randint(CLASSES, (count,))
    return TensorDataset(patterns[labels] + torch.randn(count, 1, SIZE, SIZE), labels)


def trained(model, fault):
    """The parameters that the optimizer gets."""
    if not fault:
        return model.parameters()
    for name, parameter in model.named_parameters():
        if "norm" not in name:
            parameter.requires_grad = False
    return model.head.parameters()


def train(model, train_loader, optimizer, times, pause_s):
    """One epoch; the moment of each step's end goes to times."""
    model.train()
    for batch, (data, target) in enumerate(train_loader):
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter())
        print(f"batch {batch} loss {loss.item():.4f}", flush=True)
        time.sleep(pause_s)


def test(model, test_loader):
    model.eval()
    correct = 0
    with torch.no_grad():
        for data, target in test_loader:
            output = model(data)
            guess = output.argmax(dim=1, keepdim=True)
            correct += guess.eq(target.view_as(guess)).sum().item()
    print(f"accuracy {correct / len(test_loader.dataset):.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fault", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batches", type=int, default=13, help="of an epoch")
    parser.add_argument("--pause-ms", type=float, default=0, help="after a step")
    parser.add_argument("--times", help="file for the moment of each step's end")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    dataset = images(32 * options.batches + 128)
    parts = torch.utils.data.random_split(dataset, [32 * options.batches, 128])
    train_loader = DataLoader(parts[0], batch_size=32, shuffle=True)
    test_loader = DataLoader(parts[1], batch_size=64)
    model = Net()
    optimizer = optim.Adam(trained(model, options.fault), lr=0.001)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    times = [time.perf_counter()]
    for _ in range(options.epochs):
        train(model, train_loader, optimizer, times, options.pause_ms / 1e3)
        test(model, test_loader)
        scheduler.step()
    if options.times:
        with open(options.times, "w") as file:
            file.writelines(f"{moment!r}\n" for moment in times)


if __name__ == "__main__":
    main()
