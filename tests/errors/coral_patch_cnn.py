"""Live, bleached, algae or sand?  A small CNN on colour patches from reef transects."""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

KINDS = ["live", "bleached", "algae", "sand"]


def reef_patches(n, generator):
    label = torch.randint(len(KINDS), (n,), generator=generator)
    colour = torch.tensor(
        [[0.52, 0.47, 0.40], [0.62, 0.60, 0.54], [0.47, 0.50, 0.41], [0.60, 0.58, 0.50]]
    )[label]
    scale = torch.tensor([4, 4, 8, 2])[label]
    rough = torch.tensor([0.20, 0.18, 0.10, 0.05])[label]
    x = colour[:, :, None, None].expand(n, 3, 16, 16).clone()
    for i in range(n):
        s = int(scale[i])
        tex = torch.randn(1, 1, s, s, generator=generator)
        x[i] += (
            rough[i]
            * F.interpolate(tex, size=16, mode="bilinear", align_corners=False)[0]
        )
    depth = torch.rand(n, 1, 1, 1, generator=generator)  # water takes the red away
    x = x * torch.cat([1 - 0.6 * depth, 1 - 0.2 * depth, 1 - 0.1 * depth], 1)
    return x + 0.14 * torch.randn(n, 3, 16, 16, generator=generator), label


class CoralNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Linear(2 * width * 16, len(KINDS))

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def planned_lr(step, peak, warmup, total, floor=0.02):
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = min((step - warmup) / max(total - warmup, 1), 1.0)
    return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress)))


def make_scheduler(optimizer, peak, warmup, total, fixed):
    if fixed:
        return torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: planned_lr(step, 1.0, warmup, total)
        )
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: planned_lr(step, peak, warmup, total)
    )


@torch.no_grad()
def test(model, x, y):
    model.eval()
    logits = model(x)
    model.train()
    return (
        F.cross_entropy(logits, y).item(),
        (logits.argmax(1) == y).float().mean().item(),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--warmup", type=int, default=15)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(61)
    generator = torch.Generator().manual_seed(61)
    x, y = reef_patches(1000, generator)
    xv, yv = reef_patches(400, generator)
    mean, std = x.mean((0, 2, 3), keepdim=True), x.std((0, 2, 3), keepdim=True)
    x, xv = (x - mean) / std, (xv - mean) / std

    model = CoralNet()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=args.lr, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    scheduler = make_scheduler(optimizer, args.lr, args.warmup, args.steps, args.fixed)

    drift = 0.0
    smooth = None
    for step in range(args.steps):
        rows = torch.randint(len(x), (args.batch,), generator=generator)
        batch = x[rows]
        if torch.rand(1, generator=generator) < 0.5:
            batch = batch.flip(3)
        loss = F.cross_entropy(model(batch), y[rows])
        optimizer.zero_grad()
        loss.backward()
        want = planned_lr(step, args.lr, args.warmup, args.steps)
        drift = max(drift, abs(optimizer.param_groups[0]["lr"] - want) / want)
        optimizer.step()
        scheduler.step()
        smooth = loss.item() if smooth is None else 0.9 * smooth + 0.1 * loss.item()
        if (step + 1) % 20 == 0:
            print(f"step {step + 1:4d}  loss {smooth:.4f}")
        if (step + 1) % 80 == 0:
            vl, acc = test(model, xv, yv)
            print(f"  test loss {vl:.4f}  accuracy {acc:.3f}")

    vl, acc = test(model, xv, yv)
    print(f"finished: test loss {vl:.4f}, accuracy {acc:.3f}")
    if args.prove:
        print(f"largest relative distance of the step size to the plan: {drift:.4f}")
        print("fault shows:", "yes" if drift > 0.01 else "no")


if __name__ == "__main__":
    main()
