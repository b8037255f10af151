"""Sorts descriptions of herbs (transformer encoder), then learns new words. After the
first training all is frozen but biases and norms (BitFit), a new head, and the rows of
ten new words in the embedding: a hook zeroes the gradients of the old rows, and the
embedding's group has no weight decay, so that they stay as they are, which is asserted
at the end. The optimizer of the second training is a new one.

    python bitfit_new_words_herbs.py --steps 100 --tune 80
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

OLD, NEW, LENGTH, KINDS = 60, 10, 14, 5


def herbs(count, seed, with_new):
    """Each kind has its words; later descriptions use new words for some of them."""
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(0, KINDS, (count,), generator=g)
    words = torch.randint(0, OLD, (count, LENGTH), generator=g)
    own = kind[:, None] * 6 + torch.randint(0, 6, (count, LENGTH), generator=g)
    words = torch.where(torch.rand(count, LENGTH, generator=g) < 0.25, own, words)
    if with_new:
        fresh = (
            OLD + kind[:, None] * 2 + torch.randint(0, 2, (count, LENGTH), generator=g)
        )
        plain = torch.randint(30, OLD, (count, LENGTH), generator=g)
        words = torch.where(words < 30, plain, words)
        words = torch.where(torch.rand(count, LENGTH, generator=g) < 0.2, fresh, words)
    return words, kind


class HerbNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.words = nn.Embedding(OLD + NEW, width)
        self.places = nn.Parameter(0.02 * torch.randn(LENGTH, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0.1, batch_first=True, activation="gelu"
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, KINDS)

    def forward(self, words):
        return self.head(self.encoder(self.words(words) + self.places).mean(1))


def freeze(model):
    """Leaves biases, norms and new words; gives the groups of the second optimizer."""
    model.requires_grad_(False)
    model.head = nn.Linear(model.head.in_features, KINDS)
    small = []
    for name, p in model.encoder.named_parameters():
        if name.endswith("bias") or ".norm" in name:
            small.append(p.requires_grad_(True))
    table = model.words.weight.requires_grad_(True)
    is_new = (torch.arange(OLD + NEW) >= OLD).float()[:, None]
    table.register_hook(lambda grad: grad * is_new)
    return [
        {"params": model.head.parameters(), "weight_decay": 0.01},
        {"params": small, "weight_decay": 0.0},
        {"params": [table], "weight_decay": 0.0, "lr": 2e-2},
    ]


def train(model, optimizer, data, steps, name):
    model.train()
    for step in range(steps):
        rows = torch.randint(0, len(data[0]), (48,))
        loss = F.cross_entropy(model(data[0][rows]), data[1][rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(f"{name} {step} loss {loss.item():.6f}", flush=True)


@torch.no_grad()
def accuracy(model, data):
    model.eval()
    return (model(data[0]).argmax(1) == data[1]).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--tune", type=int, default=80)
    parser.add_argument("--seed", type=int, default=12)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    model = HerbNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    train(model, optimizer, herbs(1500, 1, False), args.steps, "step")
    print(f"accuracy {accuracy(model, herbs(500, 2, False)):.4f}")

    later = herbs(800, 3, True)
    old_rows = model.words.weight[:OLD].detach().clone()
    frozen_before = model.encoder.layers[0].linear1.weight.detach().clone()
    optimizer = torch.optim.AdamW(freeze(model), lr=5e-3)
    train(model, optimizer, later, args.tune, "tune")
    assert torch.equal(model.words.weight[:OLD], old_rows)
    assert torch.equal(model.encoder.layers[0].linear1.weight, frozen_before)
    print(f"accuracy with new words {accuracy(model, herbs(500, 4, True)):.4f}")


if __name__ == "__main__":
    main()
