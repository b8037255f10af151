# Human activity recognition from smartphone sensors (UCI HAR layout: 9 channels, 128 readings, 6 activities).
# The signals are simulated here so that the script runs anywhere.
import argparse
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import DataLoader, TensorDataset

ACTIVITIES = ["walking", "upstairs", "downstairs", "sitting", "standing", "laying"]


def simulate(n, seed):
    rng = np.random.RandomState(seed)
    t = np.arange(128) / 50.0
    labels = rng.randint(0, 6, n)
    data = np.zeros((n, 9, 1, 128), dtype=np.float32)
    for k, a in enumerate(labels):
        amp = [1.0, 0.9, 1.1, 0.05, 0.05, 0.05][a]
        freq = [1.9, 1.6, 2.2, 0.3, 0.3, 0.3][a] + 0.15 * rng.randn()
        gravity = {3: (0.6, 0.7, 0.2), 4: (0.9, 0.1, 0.1), 5: (0.0, 0.1, 1.0)}.get(
            a, (0.9, 0.2, 0.1)
        )
        for c in range(9):
            wave = amp * np.sin(
                2 * np.pi * freq * t * (1 + c % 2) + rng.uniform(0, 6.3)
            )
            data[k, c, 0] = wave + 0.5 * rng.randn(128)
            if c < 3:
                data[k, c, 0] += gravity[c] + 0.25 * rng.randn()
    return torch.from_numpy(data), torch.from_numpy(labels)


class Network(nn.Module):
    def __init__(self, args):
        super(Network, self).__init__()
        self.fixed = args.fixed
        self.conv1 = nn.Sequential(
            nn.Conv2d(9, 16, kernel_size=(1, 9)),
            nn.ReLU(),
            nn.MaxPool2d(kernel_size=(1, 2), stride=2),
        )
        self.conv2 = nn.Sequential(
            nn.Conv2d(16, 32, kernel_size=(1, 9)),
            nn.ReLU(),
            nn.MaxPool2d(kernel_size=(1, 2), stride=2),
        )
        self.fc1 = nn.Sequential(nn.Linear(32 * 26, 200), nn.ReLU())
        self.fc2 = nn.Sequential(nn.Linear(200, 100), nn.ReLU())
        self.fc3 = nn.Sequential(nn.Linear(100, 6))

    def forward(self, x):
        out = self.conv1(x)
        out = self.conv2(out)
        out = out.reshape(-1, 32 * 26)
        out = self.fc1(out)
        out = self.fc2(out)
        out = self.fc3(out)
        if self.fixed:
            return out
        out = F.softmax(out, dim=1)
        return out


def train(model, optimizer, train_loader, test_loader, criterion, max_steps):
    history = []
    step, epoch = 0, 0
    while step < max_steps:
        correct, total, total_loss, n_batch = 0, 0, 0.0, 0
        model.train()
        for sample, target in train_loader:
            output = model(sample)
            loss = criterion(output, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total_loss += loss.item()
            n_batch += 1
            predicted = output.max(1)[1]
            total += target.size(0)
            correct += (predicted == target).sum().item()
            step += 1
            if step == max_steps:
                break
        acc_test = test(model, test_loader)
        history.append([total_loss / n_batch, 100.0 * correct / total, acc_test])
        print(
            "Epoch: [{}], loss: {:.4f}, train acc: {:.2f}%, test acc: {:.2f}%".format(
                epoch, *history[-1]
            )
        )
        epoch += 1
    return history


def test(model, loader):
    model.eval()
    correct, total = 0, 0
    with torch.no_grad():
        for sample, target in loader:
            predicted = model(sample).max(1)[1]
            total += target.size(0)
            correct += (predicted == target).sum().item()
    return 100.0 * correct / total


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--batch", type=int, default=64)
    args = parser.parse_args()

    random.seed(10)
    np.random.seed(10)
    torch.manual_seed(10)

    x, y = simulate(1400, 1)
    xt, yt = simulate(400, 2)
    mean, std = x.mean((0, 2, 3), keepdim=True), x.std((0, 2, 3), keepdim=True)
    x, xt = (x - mean) / std, (xt - mean) / std
    train_loader = DataLoader(TensorDataset(x, y), batch_size=args.batch, shuffle=True)
    test_loader = DataLoader(TensorDataset(xt, yt), batch_size=args.batch)

    net = Network(args)
    sgd = optim.SGD(net.parameters(), lr=args.lr, momentum=args.momentum)
    history = train(
        net, sgd, train_loader, test_loader, nn.CrossEntropyLoss(), args.steps
    )

    best = max(h[2] for h in history)
    print("best test accuracy: {:.2f}%".format(best))
    if args.prove:
        with torch.no_grad():
            out = net(xt)
        looks_like_probabilities = bool(
            (out >= 0).all() and (out.sum(1) - 1).abs().max() < 1e-4
        )
        print(
            "range of the values given to the criterion: {:.3f} to {:.3f}".format(
                out.min(), out.max()
            )
        )
        print("fault shows:", "yes" if looks_like_probabilities else "no")
