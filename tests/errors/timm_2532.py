#!/usr/bin/env python
"""Image classification with a small ViT and layer-wise learning rate decay."""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def make_images(n, seed, size=16, classes=6):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (n,), generator=g)
    t = torch.linspace(-1, 1, size)
    yy, xx = torch.meshgrid(t, t, indexing="ij")
    angle = y.float()[:, None, None] * math.pi / classes
    phase = torch.rand(n, 1, 1, generator=g) * 2 * math.pi
    freq = 6 + 2 * torch.rand(n, 1, 1, generator=g)
    wave = torch.sin(freq * (xx * angle.cos() + yy * angle.sin()) + phase)
    tint = 0.3 + torch.rand(n, 3, 1, 1, generator=g)
    return wave[:, None] * tint + 0.6 * torch.randn(n, 3, size, size, generator=g), y


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = (
            self.qkv(x)
            .reshape(b, n, 3, self.heads, c // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        return self.proj(
            F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, c)
        )


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(dim), Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, dim * 3), nn.GELU(), nn.Linear(dim * 3, dim)
        )

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self, img=16, patch=4, dim=48, depth=4, heads=4, num_classes=6):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, dim, patch, patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(
            0.02 * torch.randn(1, 1 + (img // patch) ** 2, dim)
        )
        self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, num_classes)

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.pos_embed
        for blk in self.blocks:
            x = blk(x)
        return self.head(self.norm(x)[:, 0])

    def layer_id(self, name):
        if name.startswith(("patch_embed", "cls_token", "pos_embed")):
            return 0
        if name.startswith("blocks."):
            return int(name.split(".")[1]) + 1
        return len(self.blocks) + 1


def param_groups_layer_decay(model, lr, weight_decay, layer_decay, fixed):
    top = len(model.blocks) + 1
    groups = {}
    for name, p in model.named_parameters():
        decay = (
            weight_decay
            if p.ndim > 1 and "token" not in name and "pos" not in name
            else 0.0
        )
        idx = model.layer_id(name)
        scale = layer_decay ** (top - idx)
        key = (idx, decay)
        if key not in groups:
            group = {"params": [], "weight_decay": decay, "param_names": []}
            if fixed:
                group["lr"] = lr * scale
            else:
                group["lr_scale"] = scale
            groups[key] = group
        groups[key]["params"].append(p)
        groups[key]["param_names"].append(name)
    return list(groups.values())


def create_optimizer(model, args):
    groups = param_groups_layer_decay(
        model, args.lr, args.weight_decay, args.layer_decay, args.fixed
    )
    return torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.98))


def lr_lambda(total, warmup):
    def f(step):
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))

    return f


@torch.no_grad()
def validate(model, x, y):
    model.eval()
    out = torch.cat([model(c) for c in x.split(128)])
    model.train()
    return F.cross_entropy(out, y).item(), (out.argmax(1) == y).float().mean().item()


# size: the whole run in one place, read from top to bottom
def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=7)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--weight-decay", type=float, default=0.05)
    p.add_argument("--layer-decay", type=float, default=0.65)
    p.add_argument("--smoothing", type=float, default=0.1)
    p.add_argument("--seed", type=int, default=42)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    args = p.parse_args()

    torch.manual_seed(args.seed)
    x, y = make_images(1024, seed=args.seed)
    xv, yv = make_images(384, seed=args.seed + 1)
    model = VisionTransformer()
    optimizer = create_optimizer(model, args)
    per_epoch = len(x) // args.batch_size
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lr_lambda(args.epochs * per_epoch, per_epoch // 2)
    )
    print(
        f"{len(optimizer.param_groups)} parameter groups, layer_decay {args.layer_decay}"
    )

    movement = None
    for epoch in range(args.epochs):
        running = 0.0
        for idx in torch.randperm(len(x)).split(args.batch_size):
            loss = F.cross_entropy(
                model(x[idx]), y[idx], label_smoothing=args.smoothing
            )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            before = None
            if args.prove and movement is None:
                before = (
                    model.patch_embed.weight.detach().clone(),
                    model.head.weight.detach().clone(),
                )
            optimizer.step()
            if before is not None:
                movement = [
                    (a.detach() - b).abs().median().item()
                    for a, b in zip(
                        (model.patch_embed.weight, model.head.weight), before
                    )
                ]
            scheduler.step()
            running += loss.item()
        vl, va = validate(model, xv, yv)
        print(
            f"epoch {epoch}: train {running / per_epoch:.4f}  val {vl:.4f}  top1 {100 * va:.1f}"
        )

    if args.prove:
        ratio, want = movement[0] / movement[1], args.layer_decay ** (
            len(model.blocks) + 1
        )
        print(
            f"first update, patch embedding over head: {ratio:.3f} (layer_decay^depth = {want:.3f})"
        )
        print("fault shows:", "yes" if ratio > 2 * want else "no")


if __name__ == "__main__":
    main()
