"""A training of which something escapes the agent: hidden.py compiled|packed|threads."""

import sys
import threading

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self, packs):
        super().__init__()
        self.packs = packs
        self.body = nn.Linear(6, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        if self.packs:
            h = checkpoint(self.body, x, use_reentrant=False)
        else:
            h = self.body(x)
        return self.head(torch.tanh(h))


def train(how, steps=5):
    torch.manual_seed(0)
    net = Net(packs=how == "packed")
    called = torch.compile(net, backend="eager") if how == "compiled" else net
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(steps):
        x = torch.randn(16, 6)
        loss = nn.functional.mse_loss(called(x), x[:, :2])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    how = sys.argv[1]
    train(how)
    if how == "threads":
        thread = threading.Thread(target=train, args=(how,))
        thread.start()
        thread.join()
