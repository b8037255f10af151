"""Recognises glyphs with a small ConvNeXt-like net: label smoothing, AdamW without
decay for norms and biases, clipped gradients. It is evaluated in the middle of an
epoch, with test-time augmentation (the image and four shifts of it).

    python smoothed_glyphs.py --steps 90
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

GLYPHS, SIDE = 9, 16
SHIFTS = [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)]


def draw(count, seed):
    """Glyphs are fixed 8x8 patterns, pasted somewhere, with strokes missing."""
    g = torch.Generator().manual_seed(71)
    patterns = (torch.rand(GLYPHS, 8, 8, generator=g) < 0.4).float()
    g.manual_seed(seed)
    label = torch.randint(0, GLYPHS, (count,), generator=g)
    corner = torch.randint(2, SIDE - 10, (count, 2), generator=g)
    images = torch.zeros(count, 1, SIDE, SIDE)
    for image, which, (top, left) in zip(images, label, corner.tolist()):
        image[0, top : top + 8, left : left + 8] = patterns[which]
    images *= torch.rand(images.shape, generator=g) > 0.2
    return images + 0.15 * torch.randn(images.shape, generator=g), label


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class NextBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.spatial = nn.Conv2d(dim, dim, 5, padding=2, groups=dim)
        self.norm = LayerNorm2d(dim)
        self.expand = nn.Conv2d(dim, 3 * dim, 1)
        self.reduce = nn.Conv2d(3 * dim, dim, 1)
        self.gamma = nn.Parameter(0.1 * torch.ones(dim, 1, 1))

    def forward(self, x):
        y = self.reduce(nn.functional.gelu(self.expand(self.norm(self.spatial(x)))))
        return x + self.gamma * y


def glyph_net(dim=24):
    return nn.Sequential(
        nn.Conv2d(1, dim, 2, stride=2),
        LayerNorm2d(dim),
        NextBlock(dim),
        NextBlock(dim),
        nn.Conv2d(dim, 2 * dim, 2, stride=2),
        NextBlock(2 * dim),
        nn.Flatten(),
        nn.LayerNorm(2 * dim * (SIDE // 4) ** 2),
        nn.Linear(2 * dim * (SIDE // 4) ** 2, GLYPHS),
    )


def param_groups(net, weight_decay):
    decay, no_decay = [], []
    for name, p in net.named_parameters():
        plain = p.ndim <= 1 or name.endswith(("bias", "gamma"))
        (no_decay if plain else decay).append(p)
    return [
        {"params": decay, "weight_decay": weight_decay},
        {"params": no_decay, "weight_decay": 0.0},
    ]


@torch.inference_mode()
def evaluate_tta(net, loader):
    net.eval()
    plain = averaged = 0
    for images, labels in loader:
        views = [net(images.roll(shift, dims=(2, 3))).softmax(1) for shift in SHIFTS]
        plain += (views[0].argmax(1) == labels).sum().item()
        averaged += (torch.stack(views).mean(0).argmax(1) == labels).sum().item()
    net.train()
    return plain / len(loader.dataset), averaged / len(loader.dataset)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--steps", type=int, default=90)
    p.add_argument("--eval-every", type=int, default=25)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--smoothing", type=float, default=0.1)
    args = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(9)

    loader = DataLoader(TensorDataset(*draw(1280, 1)), 32, shuffle=True, drop_last=True)
    test_loader = DataLoader(TensorDataset(*draw(200, 2)), 100)
    net = glyph_net()
    train_criterion = nn.CrossEntropyLoss(label_smoothing=args.smoothing)
    optimizer = torch.optim.AdamW(param_groups(net, 0.05), lr=args.lr)

    step = 0
    while step < args.steps:
        for images, labels in loader:
            loss = train_criterion(net(images), labels)
            optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            step += 1
            if step % 10 == 0:
                print(f"{step} loss {loss.item():.6f} norm {norm:.4f}", flush=True)
            if step % args.eval_every == 0 or step == args.steps:
                plain, averaged = evaluate_tta(net, test_loader)
                print(f"{step} accuracy {plain:.3f}, with shifts {averaged:.3f}")
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
