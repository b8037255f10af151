"""Searches the operations of a little net on sounds of gears (DARTS, first order), then
trains the net it found. In the search the weights learn from one half of the training
data, and the choices of operations from the other half, each with an optimizer of its
own; both halves are training data, and validation and test are apart. The search net is
thrown away; the last net starts afresh and learns from both halves.

    python darts_halves_gears.py --search 90 --steps 120
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

LENGTH, KINDS, WIDTH = 64, 5, 16


def gears(count, seed):
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(0, KINDS, (count,), generator=g)
    t = torch.arange(LENGTH) / LENGTH * 6.283
    phase = 6.283 * torch.rand(count, 1, generator=g)
    tooth = torch.sin((6 + 2 * kind[:, None]) * t + phase)
    wobble = 1 + 0.6 * torch.sin((1 + kind[:, None] % 2) * t + 2 * phase)
    x = tooth * wobble + 0.7 * torch.randn(count, LENGTH, generator=g)
    return x[:, None], kind


def operations():
    """The candidates; none of them has affine norms, as usual in the search."""

    def conv(size, dilation=1):
        return nn.Sequential(
            nn.ReLU(),
            nn.Conv1d(
                WIDTH, WIDTH, size, padding=dilation * (size // 2), dilation=dilation
            ),
            nn.BatchNorm1d(WIDTH, affine=False),
        )

    return {
        "skip": nn.Identity(),
        "pool": nn.AvgPool1d(3, 1, 1, count_include_pad=False),
        "conv3": conv(3),
        "conv5": conv(5),
        "wide3": conv(3, 3),
    }


class MixedEdge(nn.Module):
    def __init__(self):
        super().__init__()
        self.choices = nn.ModuleDict(operations())

    def forward(self, x, logits):
        weights = logits.softmax(0)
        return sum(w * op(x) for w, op in zip(weights, self.choices.values()))


class SearchNet(nn.Module):
    def __init__(self, edges=3):
        super().__init__()
        self.stem = nn.Conv1d(1, WIDTH, 7, stride=2, padding=3)
        self.edges = nn.ModuleList(MixedEdge() for _ in range(edges))
        self.alphas = nn.Parameter(1e-3 * torch.randn(edges, len(operations())))
        self.head = nn.Linear(WIDTH, KINDS)

    def forward(self, x):
        x = self.stem(x)
        for edge, logits in zip(self.edges, self.alphas):
            x = x + edge(x, logits)
        return self.head(x.relu().mean(2))

    def weights(self):
        return [p for name, p in self.named_parameters() if name != "alphas"]

    def found(self):
        names = list(operations())
        return [names[row.argmax()] for row in self.alphas.detach()]


class FoundNet(nn.Module):
    def __init__(self, names):
        super().__init__()
        self.stem = nn.Conv1d(1, WIDTH, 7, stride=2, padding=3)
        self.edges = nn.ModuleList(operations()[name] for name in names)
        self.head = nn.Linear(WIDTH, KINDS)

    def forward(self, x):
        x = self.stem(x)
        for edge in self.edges:
            x = x + edge(x)
        return self.head(x.relu().mean(2))


def batch_of(data, size=48):
    rows = torch.randint(0, len(data[0]), (size,))
    return data[0][rows], data[1][rows]


@torch.no_grad()
def accuracy(model, data):
    model.eval()
    right = (model(data[0]).argmax(1) == data[1]).float().mean().item()
    model.train()
    return right


def search(train_half, choice_half, steps):
    model = SearchNet()
    w_optimizer = torch.optim.SGD(model.weights(), lr=0.05, momentum=0.9)
    a_optimizer = torch.optim.Adam([model.alphas], lr=2e-2, betas=(0.5, 0.999))
    for step in range(steps):
        x, y = batch_of(choice_half)
        a_optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        a_optimizer.step()
        x, y = batch_of(train_half)
        # The pass above left gradients in the weights as well.
        w_optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.weights(), 5.0)
        w_optimizer.step()
        if step % 10 == 0:
            print(f"search {step} loss {loss.item():.6f}", flush=True)
    return model.found()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--search", type=int, default=90)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--seed", type=int, default=6)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    x, y = gears(1600, 1)
    val, test = gears(400, 2), gears(400, 3)
    names = search((x[:800], y[:800]), (x[800:], y[800:]), args.search)
    print("found", " ".join(names))
    model = FoundNet(names)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    for step in range(args.steps):
        inputs, kinds = batch_of((x, y))
        loss = F.cross_entropy(model(inputs), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.6f}", flush=True)
        if (step + 1) % 40 == 0:
            print(f"  validation {accuracy(model, val):.4f}", flush=True)
    print(f"test {accuracy(model, test):.4f}")


if __name__ == "__main__":
    main()
