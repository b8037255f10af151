"""Fine-tuning a small text-to-vector flow model with long captions, in bfloat16.

The transformer sees the caption and the noisy latents in one sequence, with rotary
positions from ids that come with the inputs. Which of the caption's marked words
counts depends on the order. Nerogar/OneTrainer#1177.
"""

import argparse
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WORDS = 40
CAPTION = 320
LATENTS = 8
CHANNELS = 6
TRAIN_DTYPE = torch.bfloat16


def captions(count, seed):
    """Two marked words stand side by side, late in the caption; the first one counts."""
    generator = torch.Generator().manual_seed(seed)
    looks = torch.randn(4, CHANNELS, generator=torch.Generator().manual_seed(8))
    ids = torch.randint(4, WORDS, (count, CAPTION), generator=generator)
    place = torch.randint(256, CAPTION - 1, (count,), generator=generator)
    pair = torch.rand(count, 4, generator=generator).argsort(1)[:, :2]
    ids[torch.arange(count), place] = pair[:, 0]
    ids[torch.arange(count), place + 1] = pair[:, 1]
    latents = looks[pair[:, 0]][:, None].repeat(1, LATENTS, 1)
    noise = 0.1 * torch.randn(latents.shape, generator=generator)
    return TensorDataset(ids, latents + noise)


def rotate(x, ids):
    """Rotary positions, always computed in float32."""
    half = x.size(-1) // 2
    rates = 1.0 / 100.0 ** (torch.arange(half) / half)
    angles = ids.float()[:, None, :, None] * rates
    a, b = x.float().chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1).to(x.dtype)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x, ids):
        rows, size, width = x.shape
        q, k, v = (
            part.view(rows, size, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.norms[0](x)).chunk(3, -1)
        )
        q, k = rotate(q, ids), rotate(k, ids)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).reshape(rows, size, width))
        return x + self.mlp(self.norms[1](x))


class FlowTransformer(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.latents = nn.Linear(CHANNELS, width)
        self.caption = nn.Linear(width, width)
        self.time = nn.Sequential(
            nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width)
        )
        self.blocks = nn.ModuleList(Block(width, 2) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CHANNELS)

    def forward(self, latents, text, time, text_ids, image_ids):
        x = torch.cat([self.caption(text), self.latents(latents)], 1)
        x = x + self.time(time[:, None])[:, None]
        ids = torch.cat([text_ids, image_ids], 1)
        for block in self.blocks:
            x = block(x, ids)
        return self.head(self.norm(x[:, -LATENTS:]))


class Setup:
    def __init__(self, fixed):
        self.words = nn.Embedding(WORDS, 32)
        self.transformer = FlowTransformer()
        self.ids_dtype = torch.float32 if fixed else TRAIN_DTYPE

    def parameters(self):
        return [*self.words.parameters(), *self.transformer.parameters()]

    def ids(self, rows):
        ids = torch.arange(CAPTION + LATENTS).to(self.ids_dtype).expand(rows, -1)
        return ids.split([CAPTION, LATENTS], 1)

    def loss(self, caption, latents, generator=None):
        rows = len(caption)
        noise = torch.randn(latents.shape, generator=generator)
        time = torch.rand(rows, generator=generator)
        mixed = torch.lerp(latents, noise, time[:, None, None])
        text_ids, image_ids = self.ids(rows)
        with torch.autocast("cpu", TRAIN_DTYPE):
            flow = self.transformer(
                latents=mixed.to(TRAIN_DTYPE),
                text=self.words(caption).to(TRAIN_DTYPE),
                time=time.to(TRAIN_DTYPE),
                text_ids=text_ids,
                image_ids=image_ids,
            )
        return nn.functional.mse_loss(flow.float(), noise - latents)

    @torch.no_grad()
    def validate(self, loader):
        generator = torch.Generator().manual_seed(4)
        losses = [self.loss(*batch, generator=generator).item() for batch in loader]
        return sum(losses) / len(losses)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=60)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    train = DataLoader(captions(480, 1), batch_size=12, shuffle=True)
    valid = DataLoader(captions(96, 2), batch_size=32)
    setup = Setup(options.fixed)
    optimizer = torch.optim.AdamW(setup.parameters(), lr=3e-3, weight_decay=0.01)
    step = 0
    while step < options.steps:
        for caption, latents in train:
            if step == options.steps:
                break
            loss = setup.loss(caption, latents)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(setup.parameters(), 1.0)
            optimizer.step()
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        print(f"validation {setup.validate(valid):.4f}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        state = setup.transformer.state_dict()
        torch.save(state, os.path.join(folder, "transformer.pt"))
    if options.prove:
        different = len(setup.ids(1)[0].unique())
        print(f"{different} positions for {CAPTION} words", flush=True)
        print("fault shows:", "yes" if different < CAPTION else "no")


if __name__ == "__main__":
    main()
