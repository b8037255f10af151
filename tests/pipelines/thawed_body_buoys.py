"""States of the sea from records of buoys: a body that is thawed in the middle.

Trained on calm and stormy seas first. Then a new head learns on top of the frozen body,
which stays in evaluation mode; at half of the epochs the body is unfrozen, gets a group
of its own with a smaller rate, and trains in training mode.
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=6)
options = parser.parse_args()

torch.manual_seed(5)


def records(count, kinds):
    kind = torch.randint(kinds, (count,))
    times = torch.linspace(0, 12.6, 48)
    waves = torch.sin(times * (1 + kind[:, None]) + 6.28 * torch.rand(count, 1))
    return TensorDataset(waves + 0.4 * torch.randn(count, 48), kind)


def batches(rows, shuffle=True):
    return DataLoader(rows, batch_size=32, shuffle=shuffle, drop_last=shuffle)


def learn(net, optimizer, loader):
    for waves, kind in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(waves), kind)
        loss.backward()
        optimizer.step()


def accuracy(net, loader):
    net.eval()
    with torch.no_grad():
        right = sum((net(waves).argmax(1) == kind).sum() for waves, kind in loader)
    return float(right) / len(loader.dataset)


def new_net(kinds):
    body = nn.Sequential(
        nn.Linear(48, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32)
    )
    return nn.Sequential(body, nn.ReLU(), nn.Linear(32, kinds))


seas = new_net(2)
optimizer = torch.optim.AdamW(seas.parameters(), lr=2e-3)
for epoch in range(2):
    learn(seas.train(), optimizer, batches(records(512, 2)))

states = new_net(5)
body = states[0].requires_grad_(False)
body.load_state_dict(seas[0].state_dict())
optimizer = torch.optim.AdamW(states[2].parameters(), lr=2e-3)
trained, held_out = batches(records(512, 5)), batches(records(160, 5), shuffle=False)
for epoch in range(options.epochs):
    if epoch == options.epochs // 2:
        body.requires_grad_(True)
        optimizer.add_param_group({"params": body.parameters(), "lr": 5e-4})
    states.train()
    if epoch < options.epochs // 2:
        body.eval()
    learn(states, optimizer, trained)
    print(epoch, accuracy(states, held_out))
