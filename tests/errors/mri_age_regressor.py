"""Brain-age style regression from small 2-D slices with mixed precision."""
import argparse
import math

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


def phantom_slices(n, seed, size=24):
    g = torch.Generator().manual_seed(seed)
    age = 20 + 60 * torch.rand(n, generator=g)
    ys, xs = torch.meshgrid(
        torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij"
    )
    r = (xs**2 + ys**2).sqrt()
    a = ((age - 20) / 60).view(n, 1, 1)
    cortex = torch.exp(-(((r - (0.8 - 0.15 * a)) / 0.12) ** 2))
    ventricle = torch.exp(-((r / (0.12 + 0.2 * a)) ** 2))
    images = cortex - ventricle + 0.35 * torch.randn(n, size, size, generator=g)
    return images.unsqueeze(1), age


class ResBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1 = nn.Conv2d(c, c, 3, padding=1)
        self.conv2 = nn.Conv2d(c, c, 3, padding=1)
        self.gn = nn.GroupNorm(4, c)

    def forward(self, x):
        return x + self.conv2(torch.relu(self.gn(self.conv1(x))))


class SliceNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, stride=2, padding=1)
        self.block1 = ResBlock(width)
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.block2 = ResBlock(2 * width)
        self.head = nn.Linear(2 * width, 1)

    def forward(self, x):
        x = self.block1(torch.relu(self.stem(x)))
        x = self.block2(torch.relu(self.down(x)))
        return self.head(torch.relu(x).mean((2, 3))).squeeze(1)


def mae_years(model, loader, mu, sd):
    model.eval()
    err = n = 0.0
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        for x, age in loader:
            pred = model(x).float() * sd + mu
            err += (pred - age).abs().sum().item()
            n += len(age)
    model.train()
    return err / n


def grad_norm(model):
    return math.sqrt(
        sum(p.grad.double().pow(2).sum().item() for p in model.parameters())
    )


# size: the whole run in one place, read from top to bottom
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--max-norm", type=float, default=1.0)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(8)
    x, age = phantom_slices(640, seed=1)
    vx, vage = phantom_slices(256, seed=2)
    mu, sd = age.mean(), age.std()
    loader = DataLoader(
        TensorDataset(x, age),
        batch_size=args.batch_size,
        shuffle=True,
        generator=torch.Generator().manual_seed(12),
    )
    val_loader = DataLoader(TensorDataset(vx, vage), batch_size=128)

    model = SliceNet()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=args.lr, weight_decay=0.01, eps=1e-6
    )
    scaler = torch.amp.GradScaler("cpu")
    criterion = nn.SmoothL1Loss()

    used, wanted = [], []
    if args.prove:
        optimizer.register_step_pre_hook(lambda *_: used.append(grad_norm(model)))

    step = 0
    for epoch in range(args.epochs):
        running = 0.0
        for bx, bage in loader:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                pred = model(bx)
            loss = criterion(pred.float(), (bage - mu) / sd)
            scaler.scale(loss).backward()
            if args.prove:
                wanted.append(min(grad_norm(model) / scaler.get_scale(), args.max_norm))
            if args.fixed:
                scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_norm)
            scaler.step(optimizer)
            scaler.update()
            running += loss.item()
            step += 1
        print(
            f"epoch {epoch} step {step} loss {running / len(loader):.4f} "
            f"val MAE {mae_years(model, val_loader, mu, sd):.2f} years"
        )

    print(f"final val MAE {mae_years(model, val_loader, mu, sd):.2f} years")

    if args.prove:
        ratio = [u / w for u, w in zip(used, wanted)]
        print(
            f"gradient norm in the update / expected norm: min {min(ratio):.3e} max {max(ratio):.3e}"
        )
        print("fault shows:", "yes" if min(ratio) < 0.9 else "no")


if __name__ == "__main__":
    main()
