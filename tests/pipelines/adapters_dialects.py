"""Words of a language are sorted by a transformer; then small adapters, norms and a new
head learn a dialect, with everything else frozen. One set of adapters for each dialect;
taken out again, the first task is what it was.

    python adapters_dialects.py
"""

import argparse
import contextlib

import torch
from torch import nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

LETTERS, CLASSES, PAD = 20, 4, 0


def words(count, generator, dialect=None):
    """The class is the commonest pair of vowels; a dialect exchanges letters."""
    rows, labels = [], []
    for _ in range(count):
        length = int(torch.randint(5, 13, (1,), generator=generator))
        row = torch.randint(9, LETTERS + 1, (length,), generator=generator)
        label = int(torch.randint(CLASSES, (1,), generator=generator))
        for _ in range(2):
            place = int(torch.randint(length - 1, (1,), generator=generator))
            row[place], row[place + 1] = 1 + 2 * label, 2 + 2 * label
        rows.append(row if dialect is None else dialect[row])
        labels.append(label)
    return pad_sequence(rows, batch_first=True), torch.tensor(labels)


def make_dialect(generator):
    """Letters mean something else; padding stays what it is."""
    letters = 1 + torch.randperm(LETTERS, generator=generator)
    return torch.cat([torch.zeros(1, dtype=torch.long), letters])


class Adapter(nn.Module):
    def __init__(self, width, narrow=12):
        super().__init__()
        self.down, self.up = nn.Linear(width, narrow), nn.Linear(narrow, width)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x):
        return x + self.up(F.gelu(self.down(x)))


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 4, 0.1, batch_first=True)
        self.feed = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.adapters = nn.ModuleList([nn.Identity(), nn.Identity()])

    def forward(self, x, padding):
        found, _ = self.attention(x, x, x, padding, need_weights=False)
        x = self.norm1(x + self.adapters[0](found))
        return self.norm2(x + self.adapters[1](self.feed(x)))


class Sorter(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.embed = nn.Embedding(LETTERS + 1, width, padding_idx=PAD)
        self.place = nn.Parameter(0.1 * torch.randn(16, width))
        self.layers = nn.ModuleList(Layer(width) for _ in range(2))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, ids):
        padding = ids == PAD
        x = self.embed(ids) + self.place[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x, padding)
        kept = (~padding)[..., None].float()
        return self.head((x * kept).sum(1) / kept.sum(1))

    def tuned(self):
        """The parameters which a dialect may change."""
        for name, parameter in self.named_parameters():
            if "adapters" in name or "norm" in name or name.startswith("head"):
                yield name, parameter


@contextlib.contextmanager
def with_adapters(net, width=48):
    """Puts new adapters in and thaws what is tuned; takes back both at the end."""
    before = {name: p.detach().clone() for name, p in net.tuned()}
    net.requires_grad_(False)
    for layer in net.layers:
        layer.adapters = nn.ModuleList([Adapter(width), Adapter(width)])
    for _, parameter in net.tuned():
        parameter.requires_grad_(True)
    try:
        yield net
    finally:
        for layer in net.layers:
            layer.adapters = nn.ModuleList([nn.Identity(), nn.Identity()])
        with torch.no_grad():
            for name, parameter in net.tuned():
                parameter.copy_(before[name])
        net.requires_grad_(True)


def train(net, steps, lr, generator, dialect, title):
    learnt = [p for p in net.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learnt, lr=lr, weight_decay=0.0)
    net.train()
    for step in range(steps):
        ids, labels = words(64, generator, dialect)
        loss = F.cross_entropy(net(ids), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{title} step {step} loss {loss.item():.4f}", flush=True)
    return sum(p.numel() for p in learnt)


@torch.no_grad()
def accuracy(net, batch):
    net.eval()
    return (net(batch[0]).argmax(1) == batch[1]).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    net = Sorter()
    held = words(400, generator)
    train(net, args.steps, 3e-3, generator, None, "language")
    first = accuracy(net, held)
    print(f"language {first:.3f}")
    frozen = net.embed.weight.detach().clone()
    for number in range(2):
        dialect = make_dialect(generator)
        test = words(400, generator, dialect)
        with with_adapters(net):
            before = accuracy(net, test)
            count = train(
                net, args.steps, 5e-3, generator, dialect, f"dialect {number}"
            )
            after = accuracy(net, test)
        print(f"dialect {number}: {before:.3f} then {after:.3f}, {count} parameters")
    assert torch.equal(frozen, net.embed.weight)
    assert accuracy(net, held) == first


if __name__ == "__main__":
    main()
