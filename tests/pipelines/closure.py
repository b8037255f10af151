"""LBFGS: forwards and backwards lie inside the step."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
x = torch.randn(32, 4)
y = x.sum(1, keepdim=True)


def closure():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    return loss


for _ in range(8):
    optimizer.step(closure)
