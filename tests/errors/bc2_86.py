"""BC2-86: activations change on their way between devices.

Source: baichuan-inc/Baichuan2#86. A model that is spread over several devices hands
its activations on with .to(); the broken link between the devices loses part of
them, and the output gets worse for no visible reason. Here a dispatch mode below
.to() loses the last rows from the fifth step on. --fixed has no such link.
"""

import argparse
import contextlib

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode


class Link(TorchDispatchMode):
    """The connection between the devices; copies over it may lose their end."""

    def __init__(self):
        super().__init__()
        self.overheated = False

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if self.overheated and function is torch.ops.aten._to_copy.default:
            if result.dim() == 3:
                result[-(len(result) // 3) :] = 0
        return result


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.feed = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(self, x):
        y = self.norms[0](x)
        ahead = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        x = x + self.attention(y, y, y, attn_mask=ahead, need_weights=False)[0]
        return x + self.feed(self.norms[1](x))


class SpreadModel(nn.Module):
    def __init__(self, devices, words=32, width=16):
        super().__init__()
        self.devices = devices
        self.words = nn.Embedding(words, width).to(devices[0])
        self.layers = nn.ModuleList(Layer(width).to(device) for device in devices)
        self.head = nn.Linear(width, words).to(devices[-1])

    def forward(self, ids):
        x = self.words(ids)
        for device, layer in zip(self.devices, self.layers):
            x = layer(x.to(device, copy=True))
        return self.head(x)


def batch(generator):
    start = torch.randint(32, (12, 1), generator=generator)
    stride = torch.randint(1, 4, (12, 1), generator=generator)
    return (start + stride * torch.arange(9)) % 32


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=16)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(6)
    devices = [torch.device("cpu"), torch.device("cpu")]
    model = SpreadModel(devices)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    generator = torch.Generator().manual_seed(1)
    link = Link()
    with contextlib.nullcontext() if options.fixed else link:
        for step in range(options.steps):
            link.overheated = step >= 4
            ids = batch(generator)
            logits = model(ids[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].ravel())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if options.prove:
            sent = torch.randn(6, 4, 16)
            arrived = sent.to(devices[1], copy=True)
            same = torch.equal(sent, arrived)
            print("fault shows:", "no" if same else "yes")


if __name__ == "__main__":
    main()
