"""Land-cover classification with a published multispectral encoder and a new linear head."""
import argparse
import enum
import os
import tempfile

import torch
from torch import nn
import torch.nn.functional as F

BANDS, SIZE, CLASSES = 6, 16, 5


class EncoderWeights(enum.Enum):
    NANO = ("nano", 24)
    TINY = ("tiny", 32)


class PatchEncoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embed = nn.Conv2d(BANDS, width, 4, stride=4)
        self.mix = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.GroupNorm(1, width)
        self.out = nn.Conv2d(width, width, 1)

    def forward(self, x):
        h = torch.relu(self.embed(x))
        h = torch.relu(self.norm(self.mix(h)))
        return torch.relu(self.out(h)).mean((2, 3))


class PixelDecoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.proj = nn.Linear(width, BANDS)

    def forward(self, f):
        return self.proj(f)


class PretrainNet(nn.Module):
    """The network of the released weights."""

    def __init__(self, width):
        super().__init__()
        self.encoder, self.decoder = PatchEncoder(width), PixelDecoder(width)


class Backbone(nn.Module):
    """Thin adapter that gives the network the interface of this code base."""

    def __init__(self, width):
        super().__init__()
        self.model = PretrainNet(width)
        self.num_features = width

    def forward(self, x):
        return self.model.encoder(x)


def publish(weights, folder):
    """Stand-in for the download: write the released state dict and return its path."""
    name, width = weights.value
    with torch.random.fork_rng():
        torch.manual_seed(2024)
        net = PretrainNet(width)
        for p in net.encoder.parameters():
            if p.ndim > 1:
                nn.init.orthogonal_(p, gain=1.6)
    path = os.path.join(folder, f"encoder_{name}.pt")
    torch.save(net.state_dict(), path)
    return path


def create_backbone(weights, path, fixed):
    _, width = weights.value
    backbone = Backbone(width)
    state = torch.load(path, weights_only=True)
    if fixed:
        backbone.model.load_state_dict(state, strict=False)
    else:
        backbone.load_state_dict(state, strict=False)
    return backbone


def make_scenes(path, width, n, seed):
    """Scenes whose classes are separable in the representation of the released encoder."""
    net = PretrainNet(width)
    net.load_state_dict(torch.load(path, weights_only=True))
    g = torch.Generator().manual_seed(seed)
    base = torch.randn(n, BANDS, 4, 4, generator=g)
    x = F.interpolate(base, size=SIZE, mode="nearest") + 0.5 * torch.randn(
        n, BANDS, SIZE, SIZE, generator=g
    )
    with torch.no_grad():
        f = net.encoder(x)
        direction = torch.randn(
            width, CLASSES, generator=torch.Generator().manual_seed(99)
        )
        ref = torch.Generator().manual_seed(98)
        probe = F.interpolate(
            torch.randn(512, BANDS, 4, 4, generator=ref), size=SIZE, mode="nearest"
        )
        pf = net.encoder(
            probe + 0.5 * torch.randn(512, BANDS, SIZE, SIZE, generator=ref)
        )
        score = ((f - pf.mean(0)) / (pf.std(0) + 1e-6)) @ direction
    return x, score.argmax(1)


class Classifier(nn.Module):
    def __init__(self, backbone, freeze):
        super().__init__()
        self.backbone = backbone
        if freeze:
            self.backbone.requires_grad_(False)
        self.norm = nn.BatchNorm1d(backbone.num_features, affine=False)
        self.head = nn.Linear(backbone.num_features, CLASSES)

    def forward(self, x):
        return self.head(self.norm(self.backbone(x)))


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    acc = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return acc


def share_of_released_tensors(backbone, path):
    state = torch.load(path, weights_only=True)
    mine = backbone.model.state_dict()
    same = [k for k, v in state.items() if torch.equal(mine[k], v)]
    print(
        f"tensors of the backbone equal to the released ones at the start: {len(same)} of {len(state)}"
    )
    return len(same) / len(state)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=12)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--lr", type=float, default=1e-2)
    ap.add_argument(
        "--weights", choices=[w.name for w in EncoderWeights], default="TINY"
    )
    ap.add_argument("--full", action="store_true", help="train the backbone too")
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(17)
    weights = EncoderWeights[args.weights]
    with tempfile.TemporaryDirectory() as folder:
        path = publish(weights, folder)
        xtr, ytr = make_scenes(path, weights.value[1], 384, 1)
        xva, yva = make_scenes(path, weights.value[1], 384, 2)
        backbone = create_backbone(weights, path, args.fixed)
        share = share_of_released_tensors(backbone, path) if args.prove else None

    model = Classifier(backbone, freeze=not args.full)
    params = [p for p in model.parameters() if p.requires_grad]
    print(
        f"backbone {weights.name}, {sum(p.numel() for p in params)} trainable parameters"
    )
    optimizer = torch.optim.AdamW(params, lr=args.lr, weight_decay=1e-3)
    g = torch.Generator().manual_seed(4)
    for epoch in range(args.epochs):
        order, total = torch.randperm(len(xtr), generator=g), 0.0
        for idx in order.split(args.batch_size):
            loss = F.cross_entropy(model(xtr[idx]), ytr[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(idx)
        if epoch % 2 == 1 or epoch == args.epochs - 1:
            print(
                f"epoch {epoch:2d}  loss {total / len(xtr):.4f}  val acc {accuracy(model, xva, yva):.3f}"
            )

    if args.prove:
        print("fault shows:", "yes" if share < 1.0 else "no")


if __name__ == "__main__":
    main()
