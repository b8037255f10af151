# Fine-tune a filter-bank backbone on leaf disease patches.
import argparse
import math

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

DISEASES = ("healthy", "rust", "blight", "mosaic")
SIDE = 24


def leaf_images(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, len(DISEASES), (n,), generator=g)
    yy, xx = torch.meshgrid(
        torch.arange(SIDE).float(), torch.arange(SIDE).float(), indexing="ij"
    )
    angle = torch.tensor([0.0, 0.8, 1.6, 2.4])[y] + 0.35 * torch.randn(n, generator=g)
    freq = torch.tensor([0.5, 0.9, 0.7, 1.1])[y]
    phase = torch.rand(n, generator=g) * 2 * math.pi
    wave = torch.sin(
        freq[:, None, None]
        * (xx * torch.cos(angle)[:, None, None] + yy * torch.sin(angle)[:, None, None])
        + phase[:, None, None]
    )
    img = 0.5 * wave + 1.3 * torch.randn(n, SIDE, SIDE, generator=g)
    return img.unsqueeze(1), y


def filter_bank(n_orient=8, scales=(0.5, 0.9), k=7):
    r = torch.arange(k).float() - k // 2
    yy, xx = torch.meshgrid(r, r, indexing="ij")
    out = []
    for s in scales:
        for o in range(n_orient):
            th = o * math.pi / n_orient
            env = torch.exp(-(xx**2 + yy**2) / 8)
            out.append(env * torch.cos(s * (xx * math.cos(th) + yy * math.sin(th))))
    bank = torch.stack(out).unsqueeze(1)
    return bank / bank.flatten(1).norm(dim=1)[:, None, None, None]


class LeafNet(nn.Module):
    def __init__(self, n_out=1000):
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 7, padding=3)
        self.mid = nn.Conv2d(16, 24, 3, padding=1, stride=2)
        self.act = nn.ReLU()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(24, n_out)

    def forward(self, x):
        x = self.act(self.stem(x))
        x = self.act(self.mid(x))
        return self.head(self.pool(x).flatten(1))


def pretrained(seed=13):
    net = LeafNet()
    with torch.no_grad():
        net.stem.weight.copy_(filter_bank())
        net.stem.bias.zero_()
        g = torch.Generator().manual_seed(seed)
        net.mid.weight.copy_(
            torch.randn(net.mid.weight.shape, generator=g) * (2 / (16 * 9)) ** 0.5
        )
    return net


def make_optimizer(net, lr):
    return torch.optim.Adam(net.parameters(), lr=lr)


def setup(args):
    net = pretrained()
    new_head = nn.Linear(net.head.in_features, len(DISEASES))
    if args.fixed:
        net.head = new_head
        opt = make_optimizer(net, args.lr)
    else:
        opt = make_optimizer(net, args.lr)
        net.head = new_head
    return net, opt


@torch.no_grad()
def evaluate(net, loader):
    net.eval()
    hit = sum((net(x).argmax(1) == y).sum().item() for x, y in loader)
    net.train()
    return hit / len(loader.dataset)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=5)
    ap.add_argument("--batch", type=int, default=40)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(5)

    train = DataLoader(
        TensorDataset(*leaf_images(800, 1)), batch_size=args.batch, shuffle=True
    )
    test = DataLoader(TensorDataset(*leaf_images(400, 2)), batch_size=200)
    net, opt = setup(args)
    criterion = nn.CrossEntropyLoss()
    start = {k: v.clone() for k, v in net.state_dict().items()}

    step = 0
    for epoch in range(args.epochs):
        for x, y in train:
            loss = criterion(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 20 == 0:
                print(f"step {step:3d} loss {loss.item():.4f}")
            step += 1
        print(f"-- epoch {epoch}: test accuracy {evaluate(net, test):.3f}")

    if args.prove:
        moved = {k: (v - start[k]).norm().item() for k, v in net.state_dict().items()}
        for k, v in moved.items():
            print(f"  {k:12s} moved {v:.5f}")
        print("fault shows:", "yes" if min(moved.values()) == 0.0 else "no")


if __name__ == "__main__":
    main()
