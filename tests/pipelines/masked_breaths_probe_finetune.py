"""Breathing patterns from a chest belt in three stages, one after another in a script.

1. A masked autoencoder (the encoder sees half of the patches) without any labels.
2. A linear probe: the encoder frozen and in eval mode, features computed once.
3. Fine-tuning that starts from the probe's layer, with rates that fall layer by layer
   towards the input, label smoothing that is taken back, and a short warm-up.

    python masked_breaths_probe_finetune.py --steps 130
"""

import argparse
import copy
import math

import torch
from torch import nn
import torch.nn.functional as F

PATCH, PATCHES, KINDS = 8, 24, 5


def breaths(count, generator):
    """Normal, fast, deep and slow, waxing and waning, with pauses."""

    def uniform(low, high):
        return low + (high - low) * torch.rand(count, 1, generator=generator)

    kind = torch.randint(KINDS, (count,), generator=generator)
    time = torch.linspace(0, 1, PATCH * PATCHES).expand(count, -1)
    rate = torch.tensor([5.0, 8.0, 3.0, 5.5, 5.5])[kind, None] * uniform(0.9, 1.1)
    size = torch.tensor([1.0, 0.7, 1.5, 1.2, 1.1])[kind, None] * uniform(0.85, 1.15)
    phase = uniform(0, 1)
    wave = torch.sin(2 * math.pi * (rate * time + phase))
    wave = wave + 0.3 * torch.sin(4 * math.pi * (rate * time + phase) + 0.7)
    slow = torch.sin(2 * math.pi * (1.5 * time + uniform(0, 1)))
    waxing = 0.5 + 0.5 * slow
    pause = (slow > -0.5).float()
    wave = torch.where(kind[:, None] == 3, wave * waxing, wave)
    wave = torch.where(kind[:, None] == 4, wave * pause, wave) * size
    noise = torch.randn(wave.shape, generator=generator)
    return (wave + 0.25 * noise).view(count, PATCHES, PATCH), kind


def blocks(width, depth):
    return nn.ModuleList(
        nn.TransformerEncoderLayer(
            width, 4, 2 * width, 0.0, F.gelu, batch_first=True, norm_first=True
        )
        for _ in range(depth)
    )


def fixed_places(width):
    angle = torch.arange(PATCHES)[:, None] / 30 ** (torch.arange(0, width, 2) / width)
    return torch.cat([angle.sin(), angle.cos()], 1)


class Encoder(nn.Module):
    def __init__(self, width=48, depth=3):
        super().__init__()
        self.embed = nn.Linear(PATCH, width)
        self.register_buffer("place", fixed_places(width))
        self.blocks = blocks(width, depth)
        self.norm = nn.LayerNorm(width)

    def forward(self, patches, kept=None):
        hidden = self.embed(patches) + self.place
        if kept is not None:
            hidden = hidden.gather(1, kept[..., None].expand(-1, -1, hidden.shape[2]))
        for block in self.blocks:
            hidden = block(hidden)
        return self.norm(hidden)


class Decoder(nn.Module):
    def __init__(self, width=48, inner=32):
        super().__init__()
        self.inward = nn.Linear(width, inner)
        self.blank = nn.Parameter(torch.zeros(inner))
        self.register_buffer("place", fixed_places(inner), persistent=False)
        self.blocks = blocks(inner, 1)
        self.out = nn.Linear(inner, PATCH)

    def forward(self, seen, kept):
        seen = self.inward(seen)
        full = self.blank.expand(len(seen), PATCHES, -1)
        full = full.scatter(1, kept[..., None].expand_as(seen), seen) + self.place
        for block in self.blocks:
            full = block(full)
        return self.out(full)


def batches(count, size):
    while True:
        yield from torch.randperm(count).split(size)


def pretrain(encoder, patches, steps):
    decoder = Decoder()
    parameters = [*encoder.parameters(), *decoder.parameters()]
    optimizer = torch.optim.AdamW(parameters, 3e-3, (0.9, 0.95), weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 3e-3, steps, pct_start=0.15, cycle_momentum=False
    )
    for step, rows in zip(range(steps), batches(len(patches), 64)):
        batch = patches[rows]
        order = torch.rand(len(rows), PATCHES).argsort(1)
        kept, hidden = order.split([PATCHES // 2, PATCHES - PATCHES // 2], 1)
        guess = decoder(encoder(batch, kept), kept)
        error = (guess - batch).square().mean(2)
        loss = error.gather(1, hidden).mean()  # only what the encoder did not see
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        print(f"pretrain step {step} loss {loss.item():.4f}", flush=True)


def probe(encoder, train, held):
    encoder.requires_grad_(False).eval()
    with torch.no_grad():
        seen, unseen = (encoder(part[0]).mean(1) for part in (train, held))
    mean, spread = seen.mean(0), seen.std(0)
    layer = nn.Linear(seen.shape[1], KINDS)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    optimizer = torch.optim.SGD(layer.parameters(), 0.5, momentum=0.9)
    for step in range(60):  # the whole of the few labelled rows at once
        loss = F.cross_entropy(layer((seen - mean) / spread), train[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            print(f"probe step {step} loss {loss.item():.4f}", flush=True)
    right = layer((unseen - mean) / spread).argmax(1) == held[1]
    print(f"probe accuracy {right.float().mean():.3f}")
    with torch.no_grad():  # the scale goes into the layer
        layer.weight /= spread
        layer.bias -= layer.weight @ mean
    encoder.requires_grad_(True).train()
    return layer


def finetune(encoder, layer, train, held, steps, fall=0.65):
    parts = [encoder.embed, *encoder.blocks, nn.ModuleList([encoder.norm, layer])]
    groups = [
        {"params": list(part.parameters()), "lr": 2e-3 * fall ** (len(parts) - 1 - i)}
        for i, part in enumerate(parts)
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda s: min((s + 1) / 8, 0.5 + 0.5 * math.cos(math.pi * s / steps)),
    )
    for step, rows in zip(range(steps), batches(len(train[0]), 32)):
        batch = train[0][rows] * (0.9 + 0.2 * torch.rand(len(rows), 1, 1))
        smoothing = 0.1 * max(0.0, 1 - 2 * step / steps)
        score = layer(encoder(batch).mean(1))
        loss = F.cross_entropy(score, train[1][rows], label_smoothing=smoothing)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([p for g in groups for p in g["params"]], 1.0)
        optimizer.step()
        schedule.step()
        print(f"finetune step {step} loss {loss.item():.4f}", flush=True)
    encoder.eval()
    with torch.no_grad():
        score = layer(encoder(held[0]).mean(1))
    accuracy = (score.argmax(1) == held[1]).float().mean()
    print(f"finetune held {F.cross_entropy(score, held[1]):.4f} {accuracy:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=130)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    unlabelled, _ = breaths(2000, generator)
    train, held = breaths(320, generator), breaths(400, generator)
    encoder = Encoder()
    pretrain(encoder, unlabelled, args.steps)
    before = copy.deepcopy(encoder.state_dict())
    layer = probe(encoder, train, held)
    after = encoder.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    finetune(encoder, layer, train, held, max(args.steps // 2, 1))


if __name__ == "__main__":
    main()
