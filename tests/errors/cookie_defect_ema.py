"""Cookie defect detector; the shipped weights are a moving average."""
import argparse
import copy

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


def bake(n, seed):
    """12x12 photos of cookies: 0 good, 1 cracked, 2 burnt edge."""
    g = torch.Generator().manual_seed(seed)
    r = torch.linspace(-1, 1, 12)
    yy, xx = torch.meshgrid(r, r, indexing="ij")
    disc = (xx**2 + yy**2 < 0.8).float()
    kind = torch.randint(0, 3, (n,), generator=g)
    angle = 3.14 * torch.rand(n, 1, 1, generator=g)
    line = (xx * angle.sin() - yy * angle.cos()).abs() < 0.12
    rim = ((xx**2 + yy**2).sqrt() - 0.8).abs() < 0.12
    img = disc * (0.6 + 0.1 * torch.randn(n, 1, 1, generator=g))
    img = img - 0.4 * line * disc * (kind == 1).view(-1, 1, 1)
    img = img - 0.25 * rim * (kind == 2).view(-1, 1, 1)
    img = img + 0.15 * torch.randn(n, 12, 12, generator=g)
    wrong = torch.rand(n, generator=g) < 0.1
    noisy = torch.where(wrong, torch.randint(0, 3, (n,), generator=g), kind)
    return img.unsqueeze(1), noisy, kind


def build():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        nn.Conv2d(16, 24, 3, stride=2, padding=1),
        nn.GroupNorm(4, 24),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(24 * 36, 48),
        nn.ReLU(),
        nn.Linear(48, 3),
    )


class AveragedModel:
    """Exponential moving average of the parameters."""

    def __init__(self, model, decay, fixed=False):
        self.module = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay
        self.fixed = fixed
        self.seen = 0

    @torch.no_grad()
    def update(self, model):
        self.seen += 1
        d = min(self.decay, (1 + self.seen) / (5 + self.seen))
        for mean, now in zip(self.module.parameters(), model.parameters()):
            if self.fixed:
                mean.mul_(d).add_(now, alpha=1 - d)
            else:
                mean.mul_(1 - d).add_(now, alpha=d)


@torch.no_grad()
def accuracy(model, x, y):
    was = model.training
    model.eval()
    acc = (model(x).argmax(1) == y).float().mean().item()
    model.train(was)
    return acc


# size: the whole run in one place, read from top to bottom
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=320)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--lr", type=float, default=0.05)
    ap.add_argument("--decay", type=float, default=0.98)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(13)
    x, y, _ = bake(1200, 40)
    x_test, _, y_test = bake(600, 41)
    loader = DataLoader(
        TensorDataset(x, y),
        args.batch_size,
        shuffle=True,
        drop_last=True,
        generator=torch.Generator().manual_seed(2),
    )

    model = build()
    averaged = AveragedModel(model, args.decay, fixed=args.fixed)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    history = [[p.detach().clone() for p in model.parameters()]]

    step, total = 0, 0.0
    while step < args.steps:
        for xb, yb in loader:
            optimizer.zero_grad()
            loss = criterion(model(xb), yb)
            loss.backward()
            optimizer.step()
            averaged.update(model)
            if args.prove:
                history.append([p.detach().clone() for p in model.parameters()])
            total += loss.item()
            step += 1
            if step % 40 == 0:
                print(
                    f"step {step:4d}  loss {total / 40:.4f}  test acc "
                    f"{accuracy(averaged.module, x_test, y_test):.4f}"
                )
                total = 0.0
            if step == args.steps:
                break

    print(f"shipped weights: test acc {accuracy(averaged.module, x_test, y_test):.4f}")

    if args.prove:
        want = history[0]
        for k, now in enumerate(history[1:], 1):
            d = min(args.decay, (1 + k) / (5 + k))
            want = [d * w + (1 - d) * p for w, p in zip(want, now)]
        got = list(averaged.module.parameters())
        off = max((a - b).abs().max().item() for a, b in zip(got, want))
        live = max((a - b).abs().max().item() for a, b in zip(got, history[-1]))
        print(
            f"largest distance: to the recomputed mean {off:.6f}, to the last weights {live:.6f}"
        )
        print("fault shows:", "yes" if off > 1e-4 else "no")


if __name__ == "__main__":
    main()
