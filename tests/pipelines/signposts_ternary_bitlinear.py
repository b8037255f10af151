"""A 1.58-bit character model of signposts: ternary weights, 8-bit activations, packed rows.

Quantisation-aware from the first step (straight-through gradients to full-precision weights).
After the recipe of BitNet b1.58 the learning rate falls by steps in mid-run and the weight decay
is switched off for the second half. At the end the weights are exported to int8 {-1, 0, 1}.
Signposts are packed several to a row; each sees itself only and counts its own positions.
"""
import argparse
import copy
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

CHARS = "\0\n abcdefghijklmnopqrstuvwxyz0123456789"
INDEX = {c: i for i, c in enumerate(CHARS)}
ROW, IGNORE = 96, -100


def signposts(count, seed):
    rng = random.Random(seed)
    towns = {
        "millbrook": 3,
        "ashford": 7,
        "oakham": 2,
        "weymouth": 9,
        "stowe": 5,
        "larkhill": 6,
    }
    ways = {"north": "left", "south": "right", "east": "up", "west": "down"}
    out = {}
    while len(out) < count:
        names = rng.sample(sorted(towns), rng.randint(1, 2))
        way = rng.choice(sorted(ways))
        out[
            f"{way} turn {ways[way]} "
            + " ".join(f"{n} {towns[n] * rng.randint(1, 9)} miles" for n in names)
            + "\n"
        ] = None
    return list(out)


def pack(texts):
    """First fit; returns ids, labels (next character of the same sign), document and position."""
    rows = []
    for text in texts:
        ids = [INDEX[c] for c in text]
        row = next((r for r in rows if sum(map(len, r)) + len(ids) <= ROW), None)
        if row is None:
            rows.append(row := [])
        row.append(ids)
    shape = (len(rows), ROW)
    ids, doc = torch.zeros(shape, dtype=torch.long), torch.full(shape, -1)
    labels, pos = torch.full(shape, IGNORE), torch.zeros(shape, dtype=torch.long)
    for r, row in enumerate(rows):
        at = 0
        for d, seq in enumerate(row):
            span = slice(at, at + len(seq))
            ids[r, span], doc[r, span] = torch.tensor(seq), d
            pos[r, span] = torch.arange(len(seq))
            labels[r, at : at + len(seq) - 1] = torch.tensor(seq[1:])
            at += len(seq)
    return ids, labels, doc, pos


class Ternary(torch.autograd.Function):
    @staticmethod
    def forward(ctx, w):
        scale = w.abs().mean().clamp(min=1e-5)
        return (w / scale).round().clamp(-1, 1) * scale

    @staticmethod
    def backward(ctx, grad):
        return grad  # straight through


class Int8PerToken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        step = x.abs().amax(-1, keepdim=True).clamp(min=1e-5) / 127
        return (x / step).round().clamp(-128, 127) * step

    @staticmethod
    def backward(ctx, grad):
        return grad


class BitLinear(nn.Linear):
    def __init__(self, n_in, n_out):
        super().__init__(n_in, n_out, bias=False)

    def forward(self, x):
        x = F.rms_norm(x, x.shape[-1:])
        return F.linear(Int8PerToken.apply(x), Ternary.apply(self.weight))


class PackedTernary(nn.Module):
    """The exported layer: int8 weights that are -1, 0 or 1, and one scale."""

    def __init__(self, layer):
        super().__init__()
        w = layer.weight.detach()
        scale = w.abs().mean().clamp(min=1e-5)
        self.register_buffer("scale", scale)
        self.register_buffer("signs", (w / scale).round().clamp(-1, 1).to(torch.int8))

    def forward(self, x):
        x = F.rms_norm(x, x.shape[-1:])
        step = x.abs().amax(-1, keepdim=True).clamp(min=1e-5) / 127
        return F.linear((x / step).round().clamp(-128, 127), self.signs.float()) * (
            step * self.scale
        )


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = BitLinear(d, 3 * d), BitLinear(d, d)
        self.up, self.down = BitLinear(d, 3 * d), BitLinear(3 * d, d)

    def forward(self, x, allowed):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.relu(self.up(x)).square())


class SignModel(nn.Module):
    def __init__(self, d=64, heads=4, layers=2):
        super().__init__()
        self.chars, self.places = nn.Embedding(len(CHARS), d), nn.Embedding(ROW, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(
            d, len(CHARS)
        )  # kept in full precision

    def forward(self, ids, doc, pos):
        same = (
            doc[:, :, None] == doc[:, None, :]
        )  # padding is a document of its own (-1)
        allowed = (same & torch.ones(ROW, ROW, dtype=torch.bool).tril())[:, None]
        x = self.chars(ids) + self.places(pos)
        for block in self.blocks:
            x = block(x, allowed)
        return self.head(self.norm(x))


def loss_of(model, texts):
    ids, labels, doc, pos = pack(texts)
    return F.cross_entropy(
        model(ids, doc, pos).flatten(0, 1), labels.flatten(), ignore_index=IGNORE
    )


def export(model):
    packed = copy.deepcopy(model)
    for block in packed.blocks:
        for name in ("qkv", "out", "up", "down"):
            setattr(block, name, PackedTernary(getattr(block, name)))
    return packed


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120)
    steps = ap.parse_args().steps
    torch.manual_seed(17)
    rng = random.Random(17)
    texts = signposts(860, seed=17)
    held, train = texts[:60], texts[60:]
    model = SignModel().train()
    opt = torch.optim.AdamW(
        model.parameters(), lr=6e-3, betas=(0.9, 0.95), weight_decay=0.1
    )
    with torch.no_grad():
        start = loss_of(model, held).item()
    for step in range(steps):
        late = step >= steps // 2
        for group in opt.param_groups:
            peak, floor = (3e-3, 3e-4) if late else (6e-3, 4e-3)
            part = (
                (step - steps // 2) / (steps - steps // 2)
                if late
                else step / max(steps // 2, 1)
            )
            group["lr"] = (peak + (floor - peak) * part) * min(1.0, (step + 1) / 10)
            group["weight_decay"] = 0.0 if late else 0.1
        loss = loss_of(model, rng.sample(train, 16))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 30 == 0 or step == steps - 1:
            with torch.no_grad():
                print(
                    f"step {step:3d} loss {loss.item():.3f} held {loss_of(model, held).item():.3f}"
                )
    packed = export(model.eval())
    with torch.no_grad():
        end, small = loss_of(model, held).item(), loss_of(packed, held).item()
        x = torch.randn(5, 64)
        assert torch.allclose(model.blocks[0].up(x), packed.blocks[0].up(x), atol=1e-3)
    assert all(
        set(m.signs.unique().tolist()) <= {-1, 0, 1}
        for m in packed.modules()
        if isinstance(m, PackedTernary)
    )
    print(f"held-out {start:.3f} -> {end:.3f}; exported ternary model {small:.3f}")
    assert abs(small - end) < 0.02
    if steps >= 120:
        assert end < 0.35 * start


if __name__ == "__main__":
    main()
