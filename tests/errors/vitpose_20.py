"""Heatmap keypoint estimation with a plain vision transformer and layer-wise learning rates."""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

KEYPOINTS = 3


def make_people(n: int, seed: int):
    """Stick figures: head dot, two hands at the ends of an inclined arm line. Images are 24x24."""
    g = torch.Generator().manual_seed(seed)
    grid = torch.arange(24).float()
    yy, xx = torch.meshgrid(grid, grid, indexing="ij")
    centre = torch.rand(n, 2, generator=g) * 8 + 8
    angle = (torch.rand(n, generator=g) - 0.5) * 2.0
    arm = torch.rand(n, generator=g) * 2 + 5
    offset = torch.stack([angle.cos(), angle.sin()], 1) * arm[:, None]
    head = centre + torch.stack(
        [torch.zeros(n), -torch.rand(n, generator=g) * 2 - 5], 1
    )
    pts = torch.stack([head, centre - offset, centre + offset], 1)
    img = 0.1 * torch.randn(n, 3, 24, 24, generator=g)

    def spot(p, s):
        d2 = (xx[None] - p[:, 0, None, None]) ** 2 + (
            yy[None] - p[:, 1, None, None]
        ) ** 2
        return torch.exp(-d2 / (2 * s * s))

    img[:, 0] += spot(head, 1.8)
    for t in torch.linspace(-1, 1, 9):
        img[:, 1] += 0.5 * spot(centre + t * offset, 0.8)
    img[:, 2] += spot(centre, 1.2)
    heat = torch.stack(
        [
            torch.exp(
                -(
                    (xx[::2, ::2][None] - pts[:, k, 0, None, None]) ** 2
                    + (yy[::2, ::2][None] - pts[:, k, 1, None, None]) ** 2
                )
                / (2 * 2.0**2)
            )
            for k in range(KEYPOINTS)
        ],
        1,
    )
    return img, heat, pts


class TransformerLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim)
        )

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class ViTPose(nn.Module):
    def __init__(self, dim=48, depth=3, heads=4):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, dim, 4, stride=4)
        self.pos_embed = nn.Parameter(torch.randn(1, 36, dim) * 0.2)
        self.layers = nn.ModuleList(TransformerLayer(dim, heads) for _ in range(depth))
        self.last_norm = nn.LayerNorm(dim)
        self.keypoint_head = nn.Sequential(
            nn.ConvTranspose2d(dim, 32, 4, 2, 1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, KEYPOINTS, 3, padding=1),
        )

    def forward(self, x):
        t = self.patch_embed(x).flatten(2).transpose(1, 2) + self.pos_embed
        for layer in self.layers:
            t = layer(t)
        t = self.last_norm(t).transpose(1, 2).unflatten(2, (6, 6))
        return self.keypoint_head(t)

    def parameter_groups(self, lr):
        stem = list(self.patch_embed.parameters()) + [self.pos_embed]
        groups = [{"params": stem, "lr": lr, "name": "stem"}]
        groups += [
            {"params": list(l.parameters()), "lr": lr, "name": f"layer{i}"}
            for i, l in enumerate(self.layers)
        ]
        tail = list(self.last_norm.parameters()) + list(self.keypoint_head.parameters())
        return groups + [{"params": tail, "lr": lr, "name": "head"}]


class LayerDecayOptimizer:
    def __init__(self, optimizer, layerwise_decay_rate, fixed):
        self.optimizer = optimizer
        self.layerwise_decay_rate = layerwise_decay_rate
        self.param_groups = optimizer.param_groups
        self.fixed = fixed
        if fixed:
            self._scale()

    def _scale(self):
        for rate, group in zip(self.layerwise_decay_rate, self.optimizer.param_groups):
            group["lr"] *= rate

    def step(self):
        if not self.fixed:
            self._scale()
        self.optimizer.step()

    def zero_grad(self):
        self.optimizer.zero_grad()


@torch.no_grad()
def pck(model, img, pts, radius=2.5):
    model.eval()
    heat = model(img).flatten(2)
    arg = heat.argmax(-1)
    found = torch.stack([arg % 12, arg // 12], -1).float() * 2
    model.train()
    return ((found - pts).norm(dim=-1) < radius).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--layer-decay-rate", type=float, default=0.75)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    cfg = parser.parse_args()

    torch.manual_seed(2024)
    img, heat, _ = make_people(512, 1)
    vimg, _, vpts = make_people(128, 2)
    model = ViTPose()
    groups = model.parameter_groups(cfg.lr)
    depth = len(groups)
    rates = [cfg.layer_decay_rate ** (depth - 1 - i) for i in range(depth)]
    base = torch.optim.AdamW(groups, lr=cfg.lr, betas=(0.9, 0.999), weight_decay=0.05)
    optimizer = LayerDecayOptimizer(base, rates, cfg.fixed)
    milestones = [int(cfg.steps * 0.75), int(cfg.steps * 0.92)]
    scheduler = torch.optim.lr_scheduler.MultiStepLR(
        base, milestones=milestones, gamma=0.1
    )

    used = []
    best = 0.0
    generator = torch.Generator().manual_seed(0)
    for step in range(cfg.steps):
        idx = torch.randint(0, len(img), (cfg.batch_size,), generator=generator)
        out = model(img[idx])
        loss = F.mse_loss(out, heat[idx]) * 10
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        used.append([g["lr"] for g in optimizer.param_groups])
        scheduler.step()
        if step % 20 == 0 or step == cfg.steps - 1:
            print(
                f"step {step:3d} | loss {loss.item():.4f} | head LR {used[-1][-1]:.6f}"
            )
        if (step + 1) % 25 == 0:
            score = pck(model, vimg, vpts)
            best = max(best, score)
            print(f"          PCK@2.5px {score:.3f}")
    print(f"best PCK {best:.3f}")

    if cfg.prove:
        worst = 0.0
        for step, row in enumerate(used):
            drop = 0.1 ** sum(step >= m for m in milestones)
            for rate, lr in zip(rates, row):
                want = cfg.lr * rate * drop
                worst = max(worst, abs(math.log((lr + 1e-300) / want)))
        print(
            f"largest |log ratio| of used to intended learning rate over all layers: {worst:.3f}"
        )
        print("fault shows:", "yes" if worst > 0.05 else "no")


if __name__ == "__main__":
    main()
