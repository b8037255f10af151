# Transfer learning for leaf diseases.
# 1) pre-train a small resnet on texture pictures (stands in for the downloaded weights)
# 2) new head, backbone frozen (BN statistics too) for some epochs
# 3) thaw the last stage with a lower learning rate
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.down = None
        if stride != 1 or cin != cout:
            self.down = nn.Sequential(
                nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout)
            )

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + (x if self.down is None else self.down(x)))


class TinyResNet(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 12, 3, 1, 1, bias=False), nn.BatchNorm2d(12), nn.ReLU()
        )
        self.layer1 = BasicBlock(12, 16, 2)
        self.layer2 = BasicBlock(16, 32, 2)
        self.layer3 = BasicBlock(32, 48, 2)
        self.fc = nn.Linear(48, num_classes)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(self.stem(x))))
        return self.fc(x.mean(dim=(2, 3)))


def textures(n, seed, size=24):
    """source task: 6 orientations/frequencies of gratings"""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 6, n)
    yy, xx = np.mgrid[0:size, 0:size]
    ang = (y % 3) * np.pi / 3
    freq = np.where(y < 3, 0.5, 1.1)
    phase = rng.uniform(0, 2 * np.pi, n)
    g = np.sin(
        freq[:, None, None]
        * (np.cos(ang)[:, None, None] * xx + np.sin(ang)[:, None, None] * yy)
        + phase[:, None, None]
    )
    x = g[:, None] * rng.uniform(0.5, 1.0, (n, 3, 1, 1)) + rng.normal(
        0, 0.4, (n, 3, size, size)
    )
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


def leaves(n, seed, size=24):
    """target task: healthy, spots, stripes, yellow rim"""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, n)
    x = np.zeros((n, 3, size, size))
    x[:, 1] = 0.6
    yy, xx = np.mgrid[0:size, 0:size]
    for i in range(n):
        if y[i] == 1:
            for _ in range(rng.integers(4, 9)):
                cy, cx = rng.uniform(2, size - 2, 2)
                x[i, :, (yy - cy) ** 2 + (xx - cx) ** 2 < 4] = (0.4, 0.25, 0.1)
        elif y[i] == 2:
            w = np.sin(0.9 * xx + rng.uniform(0, 6.28)) > 0.4
            x[i, 0][w] += 0.5
        elif y[i] == 3:
            d = rng.integers(3, 6)
            rim = (yy < d) | (xx < d) | (yy >= size - d) | (xx >= size - d)
            x[i, 0][rim] += 0.5
    x += rng.normal(0, 0.2, x.shape)
    x = (x - 0.3) / 0.35
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


def accuracy(model, loader):
    was_training = model.training
    model.eval()
    hits = total = 0
    with torch.no_grad():
        for x, y in loader:
            hits += (model(x).argmax(1) == y).sum().item()
            total += y.numel()
    model.train(was_training)
    return hits / total


def pretrain(model, epochs):
    loader = DataLoader(TensorDataset(*textures(900, 1)), batch_size=50, shuffle=True)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=epochs)
    model.train()
    for ep in range(epochs):
        for x, y in loader:
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
        sched.step()
        print(f"[pretrain] epoch {ep} last loss {loss.item():.3f}")
    print(
        f"[pretrain] test acc {accuracy(model, DataLoader(TensorDataset(*textures(300, 2)), 100)):.3f}"
    )


def set_frozen(module, frozen):
    for p in module.parameters():
        p.requires_grad = not frozen


def train_mode(model, frozen_parts):
    """model.train() but frozen parts keep their running statistics"""
    model.train()
    for part in frozen_parts:
        part.eval()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=10, help="fine-tuning epochs")
    ap.add_argument("--thaw-at", type=int, default=4)
    ap.add_argument("--pretrain-epochs", type=int, default=3)
    args = ap.parse_args()
    torch.manual_seed(5)

    source = TinyResNet(6)
    pretrain(source, args.pretrain_epochs)

    model = TinyResNet(4)
    weights = {k: v for k, v in source.state_dict().items() if not k.startswith("fc.")}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert set(missing) == {"fc.weight", "fc.bias"} and not unexpected

    frozen = [model.stem, model.layer1, model.layer2, model.layer3]
    for part in frozen:
        set_frozen(part, True)

    train_loader = DataLoader(
        TensorDataset(*leaves(480, 10)), batch_size=32, shuffle=True
    )
    val_loader = DataLoader(TensorDataset(*leaves(300, 20)), batch_size=100)

    optimizer = torch.optim.Adam(model.fc.parameters(), lr=1e-2)
    for epoch in range(args.epochs):
        if epoch == args.thaw_at:
            set_frozen(model.layer3, False)
            frozen.remove(model.layer3)
            optimizer.param_groups[0]["lr"] = 3e-3
            optimizer.add_param_group(
                {"params": list(model.layer3.parameters()), "lr": 1e-3}
            )
            n = sum(p.numel() for p in model.parameters() if p.requires_grad)
            print(f"thawed layer3, trainable parameters: {n}")

        train_mode(model, frozen)
        total = 0.0
        for x, y in train_loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(y)
        print(
            f"epoch {epoch:2d} loss {total / len(train_loader.dataset):.4f} val acc {accuracy(model, val_loader):.3f}"
        )


if __name__ == "__main__":
    main()
