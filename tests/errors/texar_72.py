"""TEXAR-72: the layers that are merged stand in a plain list.

Source: asyml/texar-pytorch#72 (also pytorch/pytorch#715). MergeLayer keeps its layers
in a Python list, where Module does not see them: their weights are in no parameters()
and in no state_dict(), and the optimizer never gets them. The convolutions stay as
they were drawn, and the rest learns on top of them. --fixed keeps a ModuleList.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class MergeLayer(nn.Module):
    """Applies several layers to one input and concatenates what they give."""

    def __init__(self, layers, registered):
        super().__init__()
        self._layers = nn.ModuleList(layers) if registered else list(layers)

    def forward(self, x):
        return torch.cat([layer(x) for layer in self._layers], dim=1)


def convolve_and_pool(width, filters, size):
    return nn.Sequential(
        nn.Conv1d(width, filters, size, padding=size // 2),
        nn.ReLU(),
        nn.AdaptiveMaxPool1d(1),
        nn.Flatten(),
    )


class TextCNN(nn.Module):
    def __init__(self, registered, words=80, width=16, filters=12, classes=3):
        super().__init__()
        self.embedder = nn.Embedding(words, width)
        branches = [convolve_and_pool(width, filters, size) for size in (2, 3, 4)]
        self.features = MergeLayer(branches, registered)
        self.dropout = nn.Dropout(0.2)
        self.dense = nn.Linear(3 * filters, classes)

    def forward(self, ids):
        x = self.embedder(ids).transpose(1, 2)
        return self.dense(self.dropout(self.features(x)))


def sentences(count):
    """A pair of words stands at two places of each: which one, is the class."""
    ids = torch.randint(10, 80, (count, 18))
    labels = torch.randint(3, (count,))
    rows = torch.arange(count)
    for first, last in ((0, 8), (9, 17)):
        where = torch.randint(first, last, (count,))
        ids[rows, where] = 2 * labels
        ids[rows, where + 1] = 2 * labels + 1
    return TensorDataset(ids, labels)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=30)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = DataLoader(sentences(320), batch_size=32, shuffle=True)
    model = TextCNN(registered=options.fixed)
    kernels = [branch[0].weight for branch in model.features._layers]
    drawn = [kernel.detach().clone() for kernel in kernels]
    optimizer = torch.optim.Adam(model.parameters(), lr=6e-3)
    model.train()
    step = 0
    while step < options.steps:
        for ids, labels in loader:
            if step == options.steps:
                break
            loss = nn.functional.cross_entropy(model(ids), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
    if options.prove:
        still = all(torch.equal(now, old) for now, old in zip(kernels, drawn))
        print("fault shows:", "yes" if still else "no")


if __name__ == "__main__":
    main()
