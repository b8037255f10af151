"""Segmentation of made-up skin lesions with a U-Net that fuses all levels for each one.

An encoder gives features of four sizes; for each level, the features of all levels
are brought to its size, smoothed and multiplied. yaoppeng/U-Net_v2#10.
"""

import argparse
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIZE = 32


def lesions(count, seed):
    generator = torch.Generator().manual_seed(seed)
    y, x = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    cy, cx = (8 + 16 * torch.rand(2, count, 1, 1, generator=generator)).unbind()
    ry, rx = (3 + 6 * torch.rand(2, count, 1, 1, generator=generator)).unbind()
    masks = (((y - cy) / ry) ** 2 + ((x - cx) / rx) ** 2 < 1).float()[:, None]
    tone = torch.rand(count, 3, 1, 1, generator=generator)
    dark = 0.4 + 0.4 * torch.rand(count, 3, 1, 1, generator=generator)
    noise = 0.35 * torch.randn(count, 3, SIZE, SIZE, generator=generator)
    return TensorDataset(tone - dark * masks + noise, masks)


class Encoder(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.stages = nn.ModuleList()
        before = 3
        for i, width in enumerate(widths):
            self.stages.append(
                nn.Sequential(
                    nn.Conv2d(before, width, 3, stride=2 if i else 1, padding=1),
                    nn.BatchNorm2d(width),
                    nn.ReLU(),
                )
            )
            before = width

    def forward(self, x):
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        return features


class Fusion(nn.Module):
    def __init__(self, channel, levels, fixed):
        super().__init__()
        if fixed:
            convs = [nn.Conv2d(channel, channel, 3, padding=1) for _ in range(levels)]
        else:
            convs = [nn.Conv2d(channel, channel, 3, padding=1)] * levels
        self.convs = nn.ModuleList(convs)

    def forward(self, features, anchor):
        answer = torch.ones_like(anchor)
        size = anchor.shape[-1]
        for conv, x in zip(self.convs, features):
            if x.shape[-1] > size:
                x = nn.functional.adaptive_avg_pool2d(x, size)
            elif x.shape[-1] < size:
                x = nn.functional.interpolate(x, (size, size), mode="bilinear")
            answer = answer * conv(x)
        return answer


class UNetV2(nn.Module):
    def __init__(self, fixed, channel=12, widths=(8, 12, 16, 24)):
        super().__init__()
        self.encoder = Encoder(widths)
        self.translate = nn.ModuleList(nn.Conv2d(w, channel, 1) for w in widths)
        self.fusions = nn.ModuleList(
            Fusion(channel, len(widths), fixed) for _ in widths
        )
        self.ups = nn.ModuleList(
            nn.ConvTranspose2d(channel, channel, 2, stride=2) for _ in widths[1:]
        )
        self.out = nn.Sequential(
            nn.BatchNorm2d(channel), nn.ReLU(), nn.Conv2d(channel, 1, 1)
        )

    def forward(self, x):
        features = [t(f) for t, f in zip(self.translate, self.encoder(x))]
        fused = [fuse(features, anchor) for fuse, anchor in zip(self.fusions, features)]
        x = fused.pop()
        for up in self.ups:
            x = up(x) + fused.pop()
        return self.out(x)


def structure_loss(logits, masks):
    bce = nn.functional.binary_cross_entropy_with_logits(logits, masks)
    p = logits.sigmoid()
    overlap = (p * masks).sum((2, 3))
    union = (p + masks).sum((2, 3)) - overlap
    return bce + (1 - (overlap + 1) / (union + 1)).mean()


@torch.no_grad()
def mean_iou(model, loader):
    model.eval()
    scores = []
    for images, masks in loader:
        guess = model(images) > 0
        both = (guess & (masks > 0)).sum((1, 2, 3))
        either = (guess | (masks > 0)).sum((1, 2, 3))
        scores.append(both / either.clamp(min=1))
    model.train()
    return torch.cat(scores).mean().item()


def shared(model):
    """Pairs of convolutions of one fusion whose weights are always the same."""
    pairs = 0
    for fusion in model.fusions:
        weights = [conv.weight for conv in fusion.convs]
        pairs += sum(torch.equal(a, b) for a, b in zip(weights, weights[1:]))
    return pairs


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=80)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    train = DataLoader(lesions(320, 1), batch_size=16, shuffle=True)
    valid = DataLoader(lesions(96, 2), batch_size=32)
    model = UNetV2(options.fixed)
    weights = sum(p.numel() for p in model.parameters())
    print(f"{weights} parameters", flush=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.PolynomialLR(optimizer, options.steps, 0.9)
    best = step = 0
    with tempfile.TemporaryDirectory() as folder:
        while step < options.steps:
            for images, masks in train:
                if step == options.steps:
                    break
                loss = structure_loss(model(images), masks)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                if step % 10 == 0:
                    print(f"step {step} loss {loss.item():.4f}", flush=True)
                step += 1
            score = mean_iou(model, valid)
            print(f"mean IoU {score:.3f}", flush=True)
            if score > best:
                best = score
                torch.save(model.state_dict(), os.path.join(folder, "best.pt"))
    if options.prove:
        pairs = shared(model)
        print(f"{pairs} pairs of equal convolutions", flush=True)
        print("fault shows:", "yes" if pairs else "no")


if __name__ == "__main__":
    main()
