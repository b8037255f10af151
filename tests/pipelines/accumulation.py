"""Micro-batches, warm-up from a rate of 0, clipping, evaluation in between."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, s / 3))
for batch in range(26):  # the last group is short
    loss = model(torch.randn(8, 4)).pow(2).mean() / 4
    loss.backward()
    if batch % 4 == 3 or batch == 25:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        warm_up.step()
        optimizer.zero_grad()
    if batch % 6 == 5:
        model.eval()
        with torch.no_grad():
            model(torch.randn(8, 4))
        model.train()
