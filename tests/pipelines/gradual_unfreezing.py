"""Fine-tuning by gradual unfreezing: an encoder of short event logs is trained to
fill in hidden events; then a classifier is put on top. Its head is trained alone, and
later the upper and the lower layer join as parameter groups of smaller rates.

    python gradual_unfreezing.py --steps 120
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F

EVENTS, HIDDEN_EVENT, LENGTH = 24, 24, 20


def logs(count, generator):
    """A log walks along one of four circles of events; some walk backwards."""
    ring = torch.randint(0, 4, (count, 1), generator=generator)
    backwards = torch.rand(count, 1, generator=generator) < 0.5
    hops = torch.randint(0, 2, (count, LENGTH), generator=generator).cumsum(1)
    start = torch.randint(0, 6, (count, 1), generator=generator)
    place = torch.where(backwards, start - hops, start + hops) % 6
    return ring * 6 + place, backwards.squeeze(1).long()


class GatedLayer(nn.Module):
    """A gated convolution over time with a residual and a norm."""

    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv1d(width, 2 * width, 3, padding=1)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        gated = F.glu(self.conv(x.transpose(1, 2)), dim=1)
        return self.norm(x + gated.transpose(1, 2))


class LogEncoder(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.events = nn.Embedding(EVENTS + 1, width)
        self.lower = GatedLayer(width)
        self.upper = GatedLayer(width)

    def forward(self, ids):
        return self.upper(self.lower(self.events(ids)))


class Detector(nn.Module):
    def __init__(self, encoder, width=32):
        super().__init__()
        self.encoder = encoder
        self.head = nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, ids):
        return self.head(self.encoder(ids).mean(dim=1))


def pretrain(steps, generator, width=32):
    encoder, guess = LogEncoder(width), nn.Linear(width, EVENTS)
    params = [*encoder.parameters(), *guess.parameters()]
    optimizer = torch.optim.Adam(params, lr=3e-3)
    for step in range(steps):
        ids, _ = logs(32, generator)
        hidden = torch.rand(ids.shape, generator=generator) < 0.15
        logits = guess(encoder(ids.masked_fill(hidden, HIDDEN_EVENT)))
        loss = F.cross_entropy(logits[hidden], ids[hidden])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0 or step == steps - 1:
            print(f"pretraining {step} loss {loss.item():.6f}", flush=True)
    return encoder


def unfreeze(module, optimizer, lr):
    module.requires_grad_(True)
    optimizer.add_param_group({"params": list(module.parameters()), "lr": lr})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120, help="of each part")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--decay", type=float, default=0.4, help="per deeper layer")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(29)
    generator = torch.Generator().manual_seed(29)

    encoder = pretrain(args.steps, generator)
    encoder.requires_grad_(False)
    model = Detector(encoder)
    optimizer = torch.optim.SGD(model.head.parameters(), lr=args.lr, momentum=0.9)
    stages = {
        args.steps // 3: ("upper", encoder.upper, args.lr * args.decay),
        2 * args.steps // 3: ("lower", encoder.lower, args.lr * args.decay**2),
    }
    ids_test, target_test = logs(400, generator)
    for step in range(args.steps):
        if step in stages:
            name, layer, lr = stages[step]
            unfreeze(layer, optimizer, lr)
            count = sum(p.requires_grad for p in model.parameters())
            print(f"{name} layer joins with lr {lr:.3f}: {count} tensors train")
        ids, target = logs(48, generator)
        loss = F.cross_entropy(model(ids), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0 or step == args.steps - 1:
            print(f"step {step} loss {loss.item():.6f}", flush=True)
    with torch.no_grad():
        right = (model(ids_test).argmax(1) == target_test).float().mean()
    print(f"accuracy {right.item():.4f}")


if __name__ == "__main__":
    main()
