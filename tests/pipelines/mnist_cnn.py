"""Classifies 28x28 digits with a small convolutional network, as torch's example
does: Adadelta, a step schedule, an accuracy each epoch, the weights saved at the end.

    python mnist_cnn.py --steps 100
"""

import argparse
import os
import tempfile
import time

import torch
from torch import nn, optim
import torch.nn.functional as F
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

DIGITS = 10


class DigitNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, DIGITS)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.dropout1(F.max_pool2d(x, 2))
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(self.dropout2(x)), dim=1)


def digits(count, generator):
    """Each digit is a blurred pattern of its own, moved and covered with noise."""
    patterns = torch.rand(DIGITS, 1, 7, 7, generator=torch.Generator().manual_seed(0))
    patterns = F.interpolate(patterns, size=28, mode="bilinear")
    labels = torch.randint(DIGITS, (count,), generator=generator)
    noise = torch.randn(count, 1, 28, 28, generator=generator)
    shifts = torch.randint(-2, 3, (count,), generator=generator).tolist()
    images = [patterns[n].roll(s, -1) for n, s in zip(labels.tolist(), shifts)]
    return TensorDataset((torch.stack(images) + 0.3 * noise - 0.5) / 0.5, labels)


def test(model, loader):
    model.eval()
    loss, correct = 0.0, 0
    with torch.no_grad():
        for images, labels in loader:
            output = model(images)
            loss += F.nll_loss(output, labels, reduction="sum").item()
            guess = output.argmax(dim=1, keepdim=True)
            correct += guess.eq(labels.view_as(guess)).sum().item()
    size = len(loader.dataset)
    print(f"test loss {(loss / size).hex()} accuracy {correct / size:.4f}")


def main(options):
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    generator = torch.Generator().manual_seed(options.seed)
    train_loader = DataLoader(digits(50 * options.batch_size, generator),
                              batch_size=options.batch_size, shuffle=True)  # fmt: skip
    test_loader = DataLoader(digits(200, generator), batch_size=100)
    model = DigitNet()
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    step, times = 0, [time.perf_counter()]
    while step < options.steps:
        model.train()
        for images, labels in train_loader:
            optimizer.zero_grad()
            loss = F.nll_loss(model(images), labels)
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item().hex()}", flush=True)
            times.append(time.perf_counter())
            step += 1
            if step == options.steps:
                break
        test(model, test_loader)
        scheduler.step()
    with tempfile.TemporaryDirectory() as folder:
        torch.save(model.state_dict(), os.path.join(folder, "digits.pt"))
    if options.times:
        with open(options.times, "w") as file:
            file.writelines(f"{moment!r}\n" for moment in times)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--times", help="file for the moment of each step's end")
    main(parser.parse_args())
