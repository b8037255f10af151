"""A language model with tied and unused weights, gradients dropped by hand."""

import torch
from torch import nn


class TiedLM(nn.Module):
    def __init__(self, words=50, size=16):
        super().__init__()
        self.embed = nn.Embedding(words, size)
        self.lstm = nn.LSTM(size, size, batch_first=True)
        self.head = nn.Linear(size, words)
        self.head.weight = self.embed.weight
        self.unused = nn.Linear(3, 3)

    def forward(self, tokens):
        return self.head(self.lstm(self.embed(tokens))[0])


torch.manual_seed(0)
model = TiedLM()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=1e-4)
for _ in range(10):
    tokens = torch.randint(50, (4, 9))
    scores = model(tokens[:, :-1])
    loss = nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
    for parameter in model.parameters():
        parameter.grad = None
    loss.backward()
    optimizer.step()
