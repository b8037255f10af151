"""
Class-conditional diffusion with a small U-shaped transformer (three resolutions) and
classifier-free guidance at sampling time.  Images are 8x8 oriented gratings.
"""
from argparse import ArgumentParser
from math import pi

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLASSES = 6
SIDE = 8


def gratings(labels: Tensor, gen: torch.Generator) -> Tensor:
    ax = torch.linspace(-1, 1, SIDE)
    yy, xx = torch.meshgrid(ax, ax, indexing="ij")
    angle = labels.float() * pi / CLASSES
    phase = torch.rand(len(labels), generator=gen) * 0.8
    proj = xx[None] * angle.cos()[:, None, None] + yy[None] * angle.sin()[:, None, None]
    img = torch.sin(5 * proj + phase[:, None, None])
    return (img + 0.05 * torch.randn(img.shape, generator=gen)).unsqueeze(1)


class LabelEmbedder(nn.Module):
    def __init__(self, num_classes: int, dim: int, dropout_prob: float):
        super().__init__()
        self.table = nn.Embedding(num_classes + 1, dim)
        self.num_classes = num_classes
        self.dropout_prob = dropout_prob
        self.last_labels = None

    def forward(
        self, labels: Tensor, train: bool, drop_mask: Tensor | None = None
    ) -> Tensor:
        if train:
            if drop_mask is None:
                drop_mask = torch.rand(labels.shape[0]) < self.dropout_prob
            labels = torch.where(
                drop_mask, torch.full_like(labels, self.num_classes), labels
            )
        self.last_labels = labels
        return self.table(labels)


class TimeEmbedder(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.freq = nn.Parameter(
            torch.exp(torch.linspace(0, 5, 16)), requires_grad=False
        )
        self.mlp = nn.Sequential(nn.Linear(32, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, t: Tensor) -> Tensor:
        a = t[:, None] * self.freq[None]
        return self.mlp(torch.cat([a.sin(), a.cos()], -1))


class Block(nn.Module):
    def __init__(self, dim: int, heads: int = 4):
        super().__init__()
        self.n1 = nn.LayerNorm(dim, elementwise_affine=False)
        self.n2 = nn.LayerNorm(dim, elementwise_affine=False)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim)
        )
        self.ada = nn.Linear(dim, 4 * dim)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        s1, b1, s2, b2 = self.ada(F.silu(c)).unsqueeze(1).chunk(4, -1)
        h = self.n1(x) * (1 + s1) + b1
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.n2(x) * (1 + s2) + b2)


class UTransformer(nn.Module):
    def __init__(self, dim: int = 48, label_dropout: float = 0.1, fixed: bool = False):
        super().__init__()
        self.fixed = fixed
        self.label_dropout = label_dropout
        self.patch = nn.Linear(4, dim)
        self.pos = nn.Parameter(torch.randn(1, 16, dim) * 0.1)
        self.t_emb = nn.ModuleList(TimeEmbedder(dim) for _ in range(3))
        self.y_emb = nn.ModuleList(
            LabelEmbedder(CLASSES, dim, label_dropout) for _ in range(3)
        )
        self.enc, self.mid, self.dec = Block(dim), Block(dim), Block(dim)
        self.down, self.up = nn.Linear(4 * dim, dim), nn.Linear(dim, 4 * dim)
        self.merge = nn.Linear(2 * dim, dim)
        self.head = nn.Linear(dim, 4)

    @staticmethod
    def fold(x: Tensor) -> Tensor:
        b, n, c = x.shape
        s = int(n**0.5)
        return (
            x.view(b, s // 2, 2, s // 2, 2, c)
            .permute(0, 1, 3, 2, 4, 5)
            .reshape(b, n // 4, 4 * c)
        )

    @staticmethod
    def unfold(x: Tensor) -> Tensor:
        b, n, c = x.shape
        s = int(n**0.5)
        return (
            x.view(b, s, s, 2, 2, c // 4)
            .permute(0, 1, 3, 2, 4, 5)
            .reshape(b, n * 4, c // 4)
        )

    def forward(self, x: Tensor, t: Tensor, y: Tensor) -> Tensor:
        drop = None
        if self.training and self.fixed:
            drop = torch.rand(len(y)) < self.label_dropout
        c = [
            te(t) + ye(y, self.training, drop) for te, ye in zip(self.t_emb, self.y_emb)
        ]
        h = self.patch(self.fold(x.permute(0, 2, 3, 1).flatten(1, 2))) + self.pos
        a = self.enc(h, c[0])
        m = self.mid(self.down(self.fold(a)), c[1])
        h = self.dec(self.merge(torch.cat([a, self.unfold(self.up(m))], -1)), c[2])
        return self.unfold(self.head(h)).view(-1, SIDE, SIDE, 1).permute(0, 3, 1, 2)


def alpha_sigma(t: Tensor):
    return (t * pi / 2).cos().view(-1, 1, 1, 1), (t * pi / 2).sin().view(-1, 1, 1, 1)


@torch.no_grad()
def sample(
    model: UTransformer, y: Tensor, scale: float, gen: torch.Generator, n: int = 10
) -> Tensor:
    x = torch.randn(len(y), 1, SIDE, SIDE, generator=gen)
    ts = torch.linspace(0.98, 0.02, n + 1)
    null = torch.full_like(y, CLASSES)
    for t, s in zip(ts[:-1], ts[1:]):
        tt = t.expand(2 * len(y))
        v = model(torch.cat([x, x]), tt, torch.cat([y, null]))
        cond, uncond = v.chunk(2)
        v = uncond + scale * (cond - uncond)
        a, sg = alpha_sigma(t.view(1))
        x0, eps = (a * x - sg * v).clamp(-1.5, 1.5), sg * x + a * v
        a, sg = alpha_sigma(s.view(1))
        x = a * x0 + sg * eps
    return x


def nearest_class(img: Tensor, gen: torch.Generator) -> Tensor:
    lab = torch.arange(CLASSES).repeat_interleave(40)
    bank = gratings(lab, gen).flatten(1)
    return lab[torch.cdist(img.flatten(1), bank).argmin(1)]


def main():
    ap = ArgumentParser()
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--cfg-scale", type=float, default=2.0)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    a = ap.parse_args()
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(21)
    model = UTransformer(fixed=a.fixed)
    opt = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], lr=2e-3, weight_decay=0.0
    )
    partly = fully = seen = 0
    model.train()
    for step in range(1, a.steps + 1):
        y = torch.randint(0, CLASSES, (a.batch,), generator=gen)
        x0 = gratings(y, gen)
        t = torch.rand(a.batch, generator=gen) * 0.98 + 0.01
        eps = torch.randn(x0.shape, generator=gen)
        al, sg = alpha_sigma(t)
        v = model(al * x0 + sg * eps, t, y)
        loss = F.mse_loss(v, al * eps - sg * x0)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if a.prove:
            hidden = torch.stack([e.last_labels == CLASSES for e in model.y_emb]).sum(0)
            partly += ((hidden > 0) & (hidden < 3)).sum().item()
            fully += (hidden == 3).sum().item()
            seen += a.batch
        if step == 1 or step % 40 == 0:
            print(f"{step:5d} | v-loss {loss.item():.4f}")
    model.eval()
    y = torch.arange(CLASSES).repeat(12)
    img = sample(model, y, a.cfg_scale, torch.Generator().manual_seed(4))
    acc = (nearest_class(img, gen) == y).float().mean().item()
    print(
        f"guided samples of the asked class: {acc:.3f}, pixel std {img.std().item():.3f}"
    )
    if a.prove:
        print(
            f"samples with no label at all {fully / seen:.4f} (wanted {model.label_dropout}), with some label {partly / seen:.4f}"
        )
        print("fault shows:", "yes" if partly / seen > 0.01 else "no")


if __name__ == "__main__":
    main()
