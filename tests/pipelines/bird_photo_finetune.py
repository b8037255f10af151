"""
Transfer learning in three stages.

The backbone is first trained on a 'big' set of shapes, then a new head is put on
it for the small bird set: head only -> last block opened -> everything opened,
with smaller learning rates for earlier layers.
"""
import argparse
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split


def blobs(n, n_classes, gen, hue):
    """24x24 pictures, class = number of lobes and orientation of a blob."""
    yy, xx = torch.meshgrid(
        torch.linspace(-1, 1, 24), torch.linspace(-1, 1, 24), indexing="ij"
    )
    y = torch.randint(0, n_classes, (n,), generator=gen)
    lobes = (y % 4 + 2).float().view(-1, 1, 1)
    deep = torch.where(y >= 4, 0.5, 0.25).view(-1, 1, 1)
    cx, cy = 0.3 * torch.rand(2, n, 1, 1, generator=gen) - 0.15
    turn = 6.28 * torch.rand(n, 1, 1, generator=gen)
    r = ((xx - cx) ** 2 + (yy - cy) ** 2).sqrt()
    a = torch.atan2(yy - cy, xx - cx)
    inside = torch.sigmoid(25 * (0.55 * (1 + deep * torch.cos(lobes * a + turn)) - r))
    colour = torch.tensor(hue).view(1, 3, 1, 1)
    img = inside.unsqueeze(1) * colour + 0.15 * torch.randn(n, 3, 24, 24, generator=gen)
    return img, y


def block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.block1, self.block2, self.block3 = (
            block(3, 16),
            block(16, 32),
            block(32, 64),
        )

    def forward(self, x):
        return self.block3(self.block2(self.block1(x))).mean((2, 3))


class Classifier(nn.Module):
    def __init__(self, backbone, n_classes):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(64, n_classes)

    def forward(self, x):
        return self.head(self.backbone(x))

    def train(self, mode=True):
        """Blocks that are frozen stay in eval, their running statistics do not move."""
        super().train(mode)
        for m in self.backbone.children():
            if not any(p.requires_grad for p in m.parameters()):
                m.eval()
        return self


def set_trainable(module, flag):
    for p in module.parameters():
        p.requires_grad = flag


def accuracy(model, loader):
    model.eval()
    hits = total = 0
    with torch.no_grad():
        for x, y in loader:
            hits += (model(x).argmax(1) == y).sum().item()
            total += len(y)
    return hits / total


def run_epoch(model, loader, optimizer, clip=None):
    model.train()
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(
                [p for p in model.parameters() if p.requires_grad], clip
            )
        optimizer.step()
        total += loss.item() * len(y)
    return total / len(loader.dataset)


def pretrain(backbone, epochs, gen):
    x, y = blobs(1200, 8, gen, (0.9, 0.4, 0.4))
    loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True, generator=gen)
    model = Classifier(backbone, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for e in range(epochs):
        print(f"pretrain epoch {e} loss {run_epoch(model, loader, optimizer):.4f}")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4, help="epochs of each stage")
    ap.add_argument("--pretrain-epochs", type=int, default=4)
    ap.add_argument("--seed", type=int, default=12)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed)

    backbone = Backbone()
    pretrain(backbone, args.pretrain_epochs, gen)

    x, y = blobs(700, 4, gen, (0.3, 0.5, 0.9))
    train_set, val_set = random_split(TensorDataset(x, y), [400, 300], generator=gen)
    train_loader = DataLoader(train_set, batch_size=32, shuffle=True, generator=gen)
    val_loader = DataLoader(val_set, batch_size=100)

    model = Classifier(backbone, 4)
    nn.init.normal_(model.head.weight, std=0.01)
    nn.init.zeros_(model.head.bias)

    # stage 1: only the new head
    set_trainable(model.backbone, False)
    optimizer = torch.optim.AdamW(
        [{"params": model.head.parameters(), "lr": 1e-2, "name": "head"}],
        weight_decay=1e-3,
    )
    for e in range(args.epochs):
        loss = run_epoch(model, train_loader, optimizer)
        print(
            f"head   epoch {e} loss {loss:.4f} val acc {accuracy(model, val_loader):.3f}"
        )

    # stage 2: last block joins the same optimizer, the head goes slower
    set_trainable(model.backbone.block3, True)
    optimizer.param_groups[0]["lr"] = 3e-3
    optimizer.add_param_group(
        {"params": model.backbone.block3.parameters(), "lr": 1e-3, "name": "block3"}
    )
    for e in range(args.epochs):
        loss = run_epoch(model, train_loader, optimizer, clip=1.0)
        print(
            f"block3 epoch {e} loss {loss:.4f} val acc {accuracy(model, val_loader):.3f}"
        )

    # stage 3: everything
    for name, lr in (("block2", 5e-4), ("block1", 2.5e-4)):
        part = getattr(model.backbone, name)
        set_trainable(part, True)
        optimizer.add_param_group({"params": part.parameters(), "lr": lr, "name": name})
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.7)
    for e in range(args.epochs):
        loss = run_epoch(model, train_loader, optimizer, clip=1.0)
        rates = {g["name"]: f"{g['lr']:.1e}" for g in optimizer.param_groups}
        scheduler.step()
        print(
            f"full   epoch {e} loss {loss:.4f} val acc {accuracy(model, val_loader):.3f} {rates}"
        )


if __name__ == "__main__":
    main()
