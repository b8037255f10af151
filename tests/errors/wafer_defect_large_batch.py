# Wafer map defect classes. Batch 64 does not fit the small card, so it goes in four parts of 16.
import argparse
import torch
import torch.nn as nn
import torch.nn.functional as F

CLASSES = ["none", "center", "ring", "scratch", "corner"]
GRID = torch.linspace(-1, 1, 20)


def wafer_maps(n, gen):
    yy, xx = torch.meshgrid(GRID, GRID, indexing="ij")
    r = (xx**2 + yy**2).sqrt()
    label = torch.randint(len(CLASSES), (n,), generator=gen)
    rate = torch.full((n, 20, 20), 0.08)
    for i, c in enumerate(label.tolist()):
        u = torch.rand(3, generator=gen)
        if c == 1:
            rate[i] += 0.35 * torch.exp(-((r / (0.25 + 0.2 * u[0])) ** 2))
        elif c == 2:
            rate[i] += 0.35 * torch.exp(-(((r - 0.55 - 0.3 * u[0]) / 0.1) ** 2))
        elif c == 3:
            a = 3.1416 * u[0]
            d = (xx * a.cos() + yy * a.sin() - 0.6 * (u[1] - 0.5)).abs()
            rate[i] += 0.45 * (d < 0.1)
        elif c == 4:
            sx, sy = 1 - 2 * (u[0] > 0.5).float(), 1 - 2 * (u[1] > 0.5).float()
            rate[i] += 0.35 * torch.exp(
                -(((xx - 0.6 * sx) ** 2 + (yy - 0.6 * sy) ** 2) / 0.1)
            )
    fail = (torch.rand(n, 20, 20, generator=gen) < rate).float()
    return (fail * (r < 1)).unsqueeze(1), label


class WaferNet(nn.Module):
    def __init__(self):
        super().__init__()

        def stage(i, o):
            return nn.Sequential(
                nn.Conv2d(i, o, 3, padding=1, bias=False), nn.GroupNorm(4, o), nn.ReLU()
            )

        self.s1, self.s2, self.s3 = stage(1, 12), stage(12, 24), stage(24, 32)
        self.fc = nn.Linear(32 * 4, len(CLASSES))

    def forward(self, x):
        x = F.max_pool2d(self.s1(x), 2)
        x = F.max_pool2d(self.s2(x), 2)
        x = F.adaptive_avg_pool2d(self.s3(x), 2)
        return self.fc(x.flatten(1))


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        a = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return a


def flat_grad(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def whole_batch_grad(model, x, y):
    loss = F.cross_entropy(model(x), y)
    return torch.cat(
        [g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))]
    )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--micro-batch", type=int, default=16)
    ap.add_argument("--accumulate", type=int, default=4)
    ap.add_argument("--lr", type=float, default=0.012)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(14)
    gen = torch.Generator().manual_seed(14)
    x, y = wafer_maps(1024, gen)
    xv, yv = wafer_maps(400, gen)
    x, xv = (x - 0.13) / 0.33, (xv - 0.13) / 0.33

    model = WaferNet()
    opt = torch.optim.SGD(
        model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4
    )
    per_epoch = len(x) // (args.micro_batch * args.accumulate)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(
        opt, T_max=args.epochs * per_epoch
    )
    print(
        f"batch {args.micro_batch * args.accumulate}, lr {args.lr}, {per_epoch} steps per epoch"
    )

    ratios = []
    for epoch in range(args.epochs):
        parts = torch.randperm(len(x), generator=gen).split(args.micro_batch)
        total = 0.0
        opt.zero_grad()
        for i, rows in enumerate(parts):
            loss = F.cross_entropy(model(x[rows]), y[rows])
            total += loss.item()
            if args.fixed:
                loss = loss / args.accumulate
            loss.backward()
            if (i + 1) % args.accumulate == 0:
                if args.prove and len(ratios) < 10:
                    whole = torch.cat(parts[i + 1 - args.accumulate : i + 1])
                    want = whole_batch_grad(model, x[whole], y[whole])
                    ratios.append((flat_grad(model).norm() / want.norm()).item())
                opt.step()
                sched.step()
                opt.zero_grad()
        print(
            f"epoch {epoch}: loss {total / len(parts):.4f}, val acc {accuracy(model, xv, yv):.3f}"
        )

    if args.prove:
        mean = sum(ratios) / len(ratios)
        print(f"gradient norm over that of the batch in one piece: {mean:.4f}")
        print("fault shows: %s" % ("no" if abs(mean - 1) < 0.01 else "yes"))


if __name__ == "__main__":
    main()
