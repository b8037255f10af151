"""A very small vision-language model trained on packed question-answer samples."""

import argparse
import json
import os
import tempfile
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset

PAD, EOS, IMG, ASK_SUM, ASK_FIRST, ASK_MAX, ANSWER = range(7)
DIGIT0, GRID, VOCAB = 7, 2, 7 + 28


@dataclass
class VLMConfig:
    dim: int = 64
    heads: int = 4
    layers: int = 2
    patch: int = 4
    rope_base: float = 1000.0


@dataclass
class TrainConfig:
    max_length: int = 96
    batch_size: int = 12
    steps: int = 170
    lr: float = 3e-3
    eval_every: int = 34
    seed: int = 0
    fixed: bool = False


def digit_images(values, generator):
    """Pictures of 2 x 2 cells; the level of a cell shows its value."""
    cells = values.float().view(-1, GRID, GRID) / 9.0
    images = cells.repeat_interleave(4, 1).repeat_interleave(4, 2)
    stripes = torch.sin(torch.arange(8.0) * 1.57)[None, None, :] * images
    noise = 0.03 * torch.randn(images.shape, generator=generator)
    return torch.stack([images, stripes], 1) + noise


def make_sample(generator):
    values = torch.randint(0, 10, (4,), generator=generator)
    image = digit_images(values[None], generator)[0]
    kind = int(torch.randint(0, 3, (1,), generator=generator))
    answer = [int(values[0] + values[3]), int(values[0]), int(values.max())][kind]
    extra = int(torch.randint(0, 5, (1,), generator=generator))
    prompt = [IMG] * 4 + [ASK_SUM + kind] * (1 + extra) + [ANSWER]
    ids = prompt + [DIGIT0 + answer, EOS]
    labels = [-100] * len(prompt) + ids[len(prompt) :]
    return {"input_ids": ids, "labels": labels, "image": image}


class ConstantLengthDataset(IterableDataset):
    """Packs whole samples into sequences of one length."""

    def __init__(self, cfg, count):
        self.cfg, self.count = cfg, count
        self.generator = torch.Generator().manual_seed(cfg.seed + 1)

    def _pack_one_group(self, group):
        packed = {"input_ids": [], "labels": [], "position_ids": [], "document_ids": []}
        images = []
        for number, sample in enumerate(group):
            length = len(sample["input_ids"])
            packed["input_ids"] += sample["input_ids"]
            packed["labels"] += sample["labels"]
            packed["position_ids"] += range(length)
            packed["document_ids"] += [number] * length
            images.append(sample["image"])
        room = self.cfg.max_length - len(packed["input_ids"])
        packed["input_ids"] += [PAD] * room
        packed["labels"] += [-100] * room
        packed["position_ids"] += [0] * room
        packed["document_ids"] += [-1] * room
        packed = {k: torch.tensor(v) for k, v in packed.items()}
        packed["images"] = torch.stack(images)
        return packed

    def __iter__(self):
        group, used, made = [], 0, 0
        while made < self.count:
            sample = make_sample(self.generator)
            length = len(sample["input_ids"])
            if used + length > self.cfg.max_length:
                yield self._pack_one_group(group)
                group, used, made = [], 0, made + 1
            group.append(sample)
            used += length


def collate(items):
    batch = {k: torch.stack([i[k] for i in items]) for k in items[0] if k != "images"}
    batch["images"] = torch.cat([i["images"] for i in items])
    return batch


class RotaryEmbedding(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        half = cfg.dim // cfg.heads // 2
        inverse = cfg.rope_base ** (-torch.arange(half) / half)
        self.register_buffer("inverse", inverse)

    def forward(self, position_ids):
        angles = position_ids[..., None].float() * self.inverse
        return angles.cos()[:, None], angles.sin()[:, None]


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.heads = cfg.heads
        self.norm1, self.norm2 = nn.RMSNorm(cfg.dim), nn.RMSNorm(cfg.dim)
        self.qkv = nn.Linear(cfg.dim, 3 * cfg.dim, bias=False)
        self.proj = nn.Linear(cfg.dim, cfg.dim, bias=False)
        self.mlp = nn.Sequential(
            nn.Linear(cfg.dim, 2 * cfg.dim), nn.SiLU(), nn.Linear(2 * cfg.dim, cfg.dim)
        )

    def forward(self, x, cos, sin, mask):
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = [t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v)]
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if mask is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.proj(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class LanguageModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.rotary = RotaryEmbedding(cfg)
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.layers))
        self.norm = nn.RMSNorm(cfg.dim)
        self.head = nn.Linear(cfg.dim, VOCAB, bias=False)

    def forward(self, x, position_ids=None, document_ids=None):
        batch, length, _ = x.shape
        if position_ids is None:
            position_ids = torch.arange(length).unsqueeze(0).expand(batch, -1)
        mask = None
        if document_ids is not None:
            same = document_ids[:, :, None] == document_ids[:, None, :]
            causal = torch.ones(length, length, dtype=torch.bool).tril()
            mask = (same & causal)[:, None]
        cos, sin = self.rotary(position_ids)
        for block in self.blocks:
            x = block(x, cos, sin, mask)
        return self.head(self.norm(x))


class VisionLanguageModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.patch = nn.Conv2d(2, cfg.dim, cfg.patch, stride=cfg.patch)
        self.place = nn.Parameter(torch.randn(4, cfg.dim) * 0.02)
        self.projector = nn.Sequential(nn.GELU(), nn.Linear(cfg.dim, cfg.dim))
        self.tokens = nn.Embedding(VOCAB, cfg.dim)
        self.decoder = LanguageModel(cfg)

    def forward(self, input_ids, images, position_ids=None, document_ids=None):
        visual = self.patch(images).flatten(2).transpose(1, 2) + self.place
        visual = self.projector(visual)
        embeds = self.tokens(input_ids).clone()
        embeds[input_ids == IMG] = visual.flatten(0, 1)
        return self.decoder(embeds, position_ids, document_ids)


def shifted_loss(logits, labels):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


@torch.no_grad()
def evaluate(model, samples):
    """Answers of single samples, as at inference."""
    model.eval()
    hits, losses = 0, 0.0
    for sample in samples:
        ids = torch.tensor(sample["input_ids"])[None]
        labels = torch.tensor(sample["labels"])[None]
        logits = model(ids, sample["image"][None])
        losses += shifted_loss(logits, labels).item()
        hits += int(logits[0, -3].argmax() == ids[0, -2])
    model.train()
    return losses / len(samples), hits / len(samples)


def train(cfg, folder):
    torch.manual_seed(cfg.seed)
    model = VisionLanguageModel(VLMConfig())
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.01)
    dataset = ConstantLengthDataset(cfg, cfg.steps * cfg.batch_size)
    loader = DataLoader(dataset, cfg.batch_size, collate_fn=collate)
    generator = torch.Generator().manual_seed(cfg.seed + 1000)
    held_out = [make_sample(generator) for _ in range(150)]
    running, history = 0.0, []
    for step, batch in enumerate(loader, start=1):
        for group in optimizer.param_groups:
            group["lr"] = cfg.lr * min(1, step / 20) * (1 - 0.9 * step / cfg.steps)
        extra = {}
        if cfg.fixed:
            extra = {k: batch[k] for k in ("position_ids", "document_ids")}
        logits = model(batch["input_ids"], batch["images"], **extra)
        loss = shifted_loss(logits, batch["labels"])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        running += loss.item()
        if step % cfg.eval_every == 0:
            eval_loss, accuracy = evaluate(model, held_out)
            history.append({"step": step, "loss": eval_loss, "accuracy": accuracy})
            print(
                f"Step: {step}, Loss: {running / cfg.eval_every:.4f}, "
                f"Val Loss: {eval_loss:.4f}, Accuracy: {accuracy:.4f}"
            )
            running = 0.0
    torch.save(model.state_dict(), os.path.join(folder, "model.pt"))
    with open(os.path.join(folder, "history.json"), "w") as f:
        json.dump(history, f)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        train(TrainConfig(seed=args.seed, fixed=args.fixed), folder)
