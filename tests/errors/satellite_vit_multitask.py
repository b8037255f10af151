"""Small ViT on satellite patches with two heads: land use (4 classes) and cloud cover (regression)."""
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

LAND = ["water", "forest", "fields", "town"]
SIZE, PATCH = 32, 8


def scene(rng):
    k = int(rng.integers(4))
    yy, xx = np.mgrid[0:SIZE, 0:SIZE] / SIZE
    if k == 0:
        img = np.stack(
            [
                0.1 + 0 * xx,
                0.2 + 0.03 * np.sin(20 * xx + rng.uniform(0, 6)),
                0.4 + 0 * xx,
            ]
        )
    elif k == 1:
        tex = rng.normal(0, 0.09, (SIZE, SIZE))
        img = np.stack([0.12 + tex, 0.35 + tex, 0.14 + tex])
    elif k == 2:
        f, a = rng.uniform(18, 34), rng.uniform(0, np.pi)
        s = 0.1 * np.sign(np.sin(f * (xx * np.cos(a) + yy * np.sin(a))))
        img = np.stack([0.35 + s, 0.4 + s, 0.2 + 0.5 * s])
    else:
        blocks = np.kron(rng.uniform(0.25, 0.65, (8, 8)), np.ones((4, 4)))
        img = np.stack([blocks, blocks, blocks * 0.95])
    cloud = np.zeros((SIZE, SIZE))
    for _ in range(int(rng.integers(0, 4))):
        cx, cy = rng.uniform(0, 1, 2)
        cloud = np.maximum(
            cloud,
            np.exp(
                -((xx - cx) ** 2 + (yy - cy) ** 2) / (2 * rng.uniform(0.06, 0.16) ** 2)
            ),
        )
    img = img * (1 - cloud) + 0.95 * cloud + rng.normal(0, 0.04, img.shape)
    return img.astype(np.float32), k, np.float32((cloud > 0.5).mean())


def make(n, seed):
    rng = np.random.default_rng(seed)
    x, k, c = zip(*[scene(rng) for _ in range(n)])
    return (
        (torch.from_numpy(np.stack(x)) - 0.35) / 0.25,
        torch.tensor(k),
        torch.tensor(np.array(c)),
    )


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = (
            self.qkv(x)
            .view(b, n, 3, self.heads, d // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        y = F.scaled_dot_product_attention(q, k, v)
        return self.proj(y.transpose(1, 2).reshape(b, n, d))


class EncoderBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 3 * dim), nn.GELU(), nn.Linear(3 * dim, dim)
        )

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class MultiTaskViT(nn.Module):
    def __init__(self, dim=48, depth=3, heads=4):
        super().__init__()
        n = (SIZE // PATCH) ** 2
        self.patch = nn.Conv2d(3, dim, PATCH, stride=PATCH)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(0.02 * torch.randn(1, n + 1, dim))
        self.blocks = nn.Sequential(*[EncoderBlock(dim, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.land = nn.Linear(dim, len(LAND))
        self.cloud = nn.Linear(dim, 1)

    def forward(self, x):
        p = self.patch(x).flatten(2).transpose(1, 2)
        h = torch.cat([self.cls.expand(len(x), -1, -1), p], 1) + self.pos
        h = self.norm(self.blocks(h))
        return self.land(h[:, 0]), self.cloud(h[:, 1:].mean(1)).squeeze(-1).sigmoid()


def param_groups(model, weight_decay, fixed):
    no_decay = ("bias", "norm", "cls", "pos")
    decay_params, other_params = [], []
    for name, p in model.named_parameters():
        skip = name in no_decay
        if fixed:
            skip = any(part in name for part in no_decay)
        (other_params if skip else decay_params).append(p)
    return [
        {"params": decay_params, "weight_decay": weight_decay},
        {"params": other_params, "weight_decay": 0.0},
    ]


def evaluate(model, data):
    model.eval()
    with torch.no_grad():
        land, cloud = model(data[0])
    acc = (land.argmax(1) == data[1]).float().mean().item()
    mae = (cloud - data[2]).abs().mean().item()
    model.train()
    return acc, mae


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=180)
    ap.add_argument("--lr", type=float, default=1.5e-3)
    ap.add_argument("--wd", type=float, default=0.1)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(88)
    train, test = make(1024, 1), make(300, 2)

    model = MultiTaskViT()
    groups = param_groups(model, args.wd, args.fixed)
    optimizer = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.98))
    warm = max(1, args.steps // 10)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda s: min(
            (s + 1) / warm,
            0.5 * (1 + np.cos(np.pi * max(0, s - warm) / max(1, args.steps - warm))),
        ),
    )

    step = 0
    while step < args.steps:
        for idx in torch.randperm(len(train[1])).split(32):
            land, cloud = model(train[0][idx])
            l1, l2 = F.cross_entropy(land, train[1][idx]), F.mse_loss(
                cloud, train[2][idx]
            )
            loss = l1 + 10 * l2
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            step += 1
            if step % 30 == 0:
                acc, mae = evaluate(model, test)
                print(
                    f"step {step:4d} land {l1.item():.4f} cloud {l2.item():.5f} | acc {acc:.3f} cloud MAE {mae:.4f}"
                )
            if step >= args.steps:
                break

    if args.prove:
        decayed = {
            id(p)
            for g in optimizer.param_groups
            if g["weight_decay"] > 0
            for p in g["params"]
        }
        vectors = [
            n for n, p in model.named_parameters() if id(p) in decayed and p.dim() == 1
        ]
        print(
            f"one-dimensional parameters with weight decay: {len(vectors)} {vectors[:3]}"
        )
        print("fault shows:", "yes" if vectors else "no")


if __name__ == "__main__":
    main()
