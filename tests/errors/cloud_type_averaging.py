"""Cloud type from sky-camera crops. The averaged weights are the ones that get deployed."""
import argparse
import copy
import torch
from torch import nn
import torch.nn.functional as F

TYPES = 4
SIZE = 24


def sky(n, seed):
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, TYPES, (n,), generator=g)
    base = torch.randn(n, 1, SIZE, SIZE, generator=g)
    out = torch.zeros(n, 3, SIZE, SIZE)
    kernels = {0: (1, 9), 1: (5, 5), 2: (3, 3), 3: (9, 3)}
    for c, (kh, kw) in kernels.items():
        sel = labels == c
        tex = F.avg_pool2d(base[sel], (kh, kw), stride=1, padding=(kh // 2, kw // 2))
        tex = tex / tex.std()
        out[sel] = tex * torch.tensor([1.0, 1.0, 0.7]).view(1, 3, 1, 1)
    out = 0.1 + 0.5 * out + 0.6 * torch.randn(out.shape, generator=g)
    return out, labels


def conv_bn(cin, cout, stride):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.SiLU(),
    )


class CloudNet(nn.Module):
    def __init__(self, w=12):
        super().__init__()
        self.stem = conv_bn(3, w, 1)
        self.stage1 = conv_bn(w, 2 * w, 2)
        self.stage2 = conv_bn(2 * w, 2 * w, 2)
        self.fc = nn.Linear(2 * w, TYPES)

    def forward(self, x):
        x = self.stage2(self.stage1(self.stem(x)))
        return self.fc(x.mean((2, 3)))


class WeightAverage:
    def __init__(self, model, decay, fixed=False):
        self.module = copy.deepcopy(model).eval()
        for p in self.module.parameters():
            p.requires_grad_(False)
        self.decay = decay
        self.fixed = fixed
        self.updates = 0

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        d = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for avg, p in zip(self.module.parameters(), model.parameters()):
            avg.lerp_(p, 1 - d)
        if self.fixed:
            for avg, b in zip(self.module.buffers(), model.buffers()):
                avg.copy_(b)


@torch.no_grad()
def test(model, x, y):
    was = model.training
    model.eval()
    logits = torch.cat([model(c) for c in x.split(128)])
    model.train(was)
    return (
        F.cross_entropy(logits, y).item(),
        (logits.argmax(1) == y).float().mean().item(),
    )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=140)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--lr", type=float, default=0.02)
    ap.add_argument("--decay", type=float, default=0.95)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(31)
    x, y = sky(1200, 1)
    vx, vy = sky(400, 2)

    net = CloudNet()
    avg = WeightAverage(net, args.decay, args.fixed)
    opt = torch.optim.SGD(
        net.parameters(), lr=args.lr, momentum=0.9, nesterov=True, weight_decay=1e-4
    )
    g = torch.Generator().manual_seed(32)

    net.train()
    for step in range(args.steps):
        idx = torch.randint(0, len(x), (args.batch_size,), generator=g)
        loss = F.cross_entropy(net(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        avg.update(net)
        if (step + 1) % 35 == 0:
            l1, a1 = test(net, vx, vy)
            l2, a2 = test(avg.module, vx, vy)
            print(
                f"step {step + 1:4d} train {loss.item():.4f} | raw {l1:.4f} {a1:.3f} | averaged {l2:.4f} {a2:.3f}"
            )

    l2, a2 = test(avg.module, vx, vy)
    print(f"deployed model: loss {l2:.4f} accuracy {a2:.3f}")

    if args.prove:
        gaps = []
        for a, b in zip(avg.module.modules(), net.modules()):
            if isinstance(a, nn.BatchNorm2d):
                gaps.append(
                    ((a.running_mean - b.running_mean).abs() / b.running_var.sqrt())
                    .max()
                    .item()
                )
        print(
            "running means, distance in standard deviations per layer:",
            [round(v, 3) for v in gaps],
        )
        print("fault shows:", "yes" if max(gaps) > 1e-3 else "no")


if __name__ == "__main__":
    main()
