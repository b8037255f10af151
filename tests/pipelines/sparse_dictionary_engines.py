"""A dictionary of what a classifier of engines thinks: a sparse autoencoder on the
hidden layer of a frozen net. Codes are ReLU outputs, four times as many as neurons, with
a price on their sum; directions are put back to length one after each step, and their
gradients along themselves are removed before it. Most codes are zero for most samples,
and some entries hardly ever speak.

    python sparse_dictionary_engines.py --steps 200
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F

SOUNDS, NEURONS, FAULTS = 16, 24, 6


class EngineNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(SOUNDS, 48), nn.Linear(48, NEURONS)
        self.norm = nn.LayerNorm(NEURONS)
        self.head = nn.Linear(NEURONS, FAULTS)

    def hidden(self, sound):
        return self.norm(self.second(F.gelu(self.first(sound))))

    def forward(self, sound):
        return self.head(F.gelu(self.hidden(sound)))


class Dictionary(nn.Module):
    def __init__(self, entries=4 * NEURONS):
        super().__init__()
        directions = F.normalize(torch.randn(entries, NEURONS), dim=1)
        self.directions = nn.Parameter(directions)
        self.encoder = nn.Linear(NEURONS, entries)
        with torch.no_grad():
            self.encoder.weight.copy_(0.3 * directions)
            self.encoder.bias.zero_()
        self.middle = nn.Parameter(torch.zeros(NEURONS))

    def forward(self, hidden):
        codes = F.relu(self.encoder(hidden - self.middle))
        return codes @ self.directions + self.middle, codes

    @torch.no_grad()
    def remove_parallel(self):
        along = (self.directions.grad * self.directions).sum(1, keepdim=True)
        self.directions.grad -= along * self.directions

    @torch.no_grad()
    def to_unit_length(self):
        self.directions.copy_(F.normalize(self.directions, dim=1))


def engines(count, rng):
    """A fault changes three of the sounds; engines have none, one or two."""
    rules = torch.randn(FAULTS, SOUNDS, generator=torch.Generator().manual_seed(6))
    worst = rules.topk(3, dim=1).indices
    fault = torch.randint(FAULTS, (count,), generator=rng)
    sound = 0.3 * torch.randn(count, SOUNDS, generator=rng)
    sound.scatter_add_(1, worst[fault], 1 + torch.rand(count, 3, generator=rng))
    other = torch.randint(FAULTS, (count,), generator=rng)
    small = 0.4 * (torch.rand(count, 1, generator=rng) < 0.3)
    return sound.scatter_add(1, worst[other], small.expand(-1, 3)), fault


def train_classifier(net, steps, rng):
    optimizer = torch.optim.AdamW(net.parameters(), lr=4e-3)
    for step in range(steps):
        sound, fault = engines(64, rng)
        loss = F.cross_entropy(net(sound), fault)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


@torch.no_grad()
def report(net, dictionary, rng):
    """How much is explained, how many codes speak, and the accuracy with them."""
    sound, fault = engines(1000, rng)
    hidden = net.hidden(sound)
    rebuilt, codes = dictionary(hidden)
    left = (rebuilt - hidden).square().sum() / (hidden - hidden.mean(0)).square().sum()
    speak = (codes > 0).float()
    right = (net.head(F.gelu(rebuilt)).argmax(1) == fault).float().mean()
    mute = (speak.mean(0) == 0).sum().item()
    return (
        f"left {left:.4f} codes {speak.sum(1).mean():.2f} mute {mute} right {right:.4f}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=500, help="of both parts together")
    parser.add_argument("--price", type=float, default=0.4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = torch.Generator().manual_seed(args.seed)
    net, first = EngineNet(), max(1, args.steps // 4)
    train_classifier(net, first, rng)
    net.requires_grad_(False).eval()
    dictionary = Dictionary()
    optimizer = torch.optim.Adam(dictionary.parameters(), lr=3e-3, betas=(0.9, 0.99))
    for step in range(first, args.steps):
        sound, _ = engines(128, rng)
        hidden = net.hidden(sound)
        rebuilt, codes = dictionary(hidden)
        error = (rebuilt - hidden).square().sum(1).mean()
        # the price comes in over the first hundred steps
        price = args.price * min(1.0, (step - first) / 100)
        loss = error + price * codes.sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        dictionary.remove_parallel()
        optimizer.step()
        dictionary.to_unit_length()
        print(f"step {step} loss {loss.item():.4f} error {error.item():.4f}")
    print(report(net, dictionary, rng), flush=True)


if __name__ == "__main__":
    main()
