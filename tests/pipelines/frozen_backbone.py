"""Transfer of a small convolutional net: the backbone learns eight textures, then it
is frozen and a new head learns to tell the sizes of a spot apart. train() is
overridden, so that the BatchNorm layers of the frozen backbone stay in eval mode.

    python frozen_backbone.py --steps 80
"""

import argparse
import math

import torch
import torch.nn as nn

SIZE = 20


def textures(n, generator):
    kind = torch.randint(0, 8, (n,), generator=generator)
    yy, xx = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    angle = (kind % 4).float()[:, None, None] * (math.pi / 4)
    wave = torch.where(kind < 4, 0.6, 1.3)[:, None, None]
    shift = 6.28 * torch.rand(n, 1, 1, generator=generator)
    image = torch.sin(wave * (xx * angle.cos() + yy * angle.sin()) + shift)
    image = image + 0.3 * torch.randn(n, SIZE, SIZE, generator=generator)
    return image.unsqueeze(1), kind


def spots(n, generator):
    kind = torch.randint(0, 3, (n,), generator=generator)
    centre = 6 + 8 * torch.rand(n, 2, 1, 1, generator=generator)
    yy, xx = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    squared = (yy - centre[:, 0]) ** 2 + (xx - centre[:, 1]) ** 2
    radius = (1.5 + 1.5 * kind.float())[:, None, None]
    image = torch.exp(-squared / (2 * radius**2)) * 2 - 0.5
    image = image + 0.3 * torch.randn(n, SIZE, SIZE, generator=generator)
    return image.unsqueeze(1), kind


class ConvBN(nn.Sequential):
    def __init__(self, cin, cout, stride):
        super().__init__(
            nn.Conv2d(cin, cout, 3, stride, 1, bias=False),
            nn.BatchNorm2d(cout),
            nn.ReLU(inplace=True),
        )


class Backbone(nn.Module):
    features = 64

    def __init__(self):
        super().__init__()
        self.stem = ConvBN(1, 16, 1)
        self.down1 = ConvBN(16, 32, 2)
        self.down2 = ConvBN(32, 64, 2)

    def forward(self, x):
        return self.down2(self.down1(self.stem(x))).mean(dim=(2, 3))


class SpotSizer(nn.Module):
    def __init__(self, backbone, classes):
        super().__init__()
        self.backbone = backbone.requires_grad_(False)
        self.head = nn.Sequential(
            nn.Linear(backbone.features, 32),
            nn.LayerNorm(32),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(32, classes),
        )

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()  # statistics of the pretraining, also while training
        return self

    def forward(self, x):
        with torch.no_grad():
            features = self.backbone(x)
        return self.head(features)


def pretrain(steps, generator):
    backbone = Backbone()
    classifier = nn.Linear(Backbone.features, 8)
    both = nn.Sequential(backbone, classifier)
    optimizer = torch.optim.SGD(both.parameters(), lr=0.1, momentum=0.9)
    for i in range(steps):
        x, y = textures(32, generator)
        loss = nn.functional.cross_entropy(both(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % 20 == 0 or i == steps - 1:
            print(f"pretraining {i} loss {loss.item():.6f}", flush=True)
    return backbone


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--steps", type=int, default=80, help="steps of each phase")
    ap.add_argument("--lr", type=float, default=5e-3)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(42)
    generator = torch.Generator().manual_seed(7)

    model = SpotSizer(pretrain(args.steps, generator), classes=3)
    optimizer = torch.optim.AdamW(model.head.parameters(), lr=args.lr)
    x_test, y_test = spots(300, generator)
    for i in range(args.steps):
        model.train()
        x, y = spots(48, generator)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (i + 1) % 20 == 0 or i == 0:
            model.eval()
            with torch.no_grad():
                right = (model(x_test).argmax(1) == y_test).float().mean()
            print(f"head {i} loss {loss.item():.6f} test accuracy {right:.3f}")


if __name__ == "__main__":
    main()
