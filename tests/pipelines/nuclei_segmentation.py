"""Binary segmentation of synthetic microscopy cells with a small U-Net (BCE + Dice)."""
import argparse
import copy
import logging

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
log = logging.getLogger("cells")


def make_cells(n, size, rng):
    images, masks = [], []
    yy, xx = np.mgrid[0:size, 0:size]
    for _ in range(n):
        mask = np.zeros((size, size), dtype=bool)
        img = rng.normal(0.25, 0.08, (size, size))
        for _ in range(rng.integers(2, 6)):
            cx, cy = rng.uniform(3, size - 3, 2)
            a, b = rng.uniform(3, 7, 2)
            t = rng.uniform(0, np.pi)
            u = (xx - cx) * np.cos(t) + (yy - cy) * np.sin(t)
            v = -(xx - cx) * np.sin(t) + (yy - cy) * np.cos(t)
            cell = (u / a) ** 2 + (v / b) ** 2 < 1
            img[cell] += rng.uniform(0.12, 0.35)
            mask |= cell
        # uneven illumination
        img += 0.15 * (xx / size - 0.5) * rng.uniform(-1, 1)
        images.append(img)
        masks.append(mask)
    x = torch.tensor(np.array(images), dtype=torch.float32).unsqueeze(1)
    y = torch.tensor(np.array(masks), dtype=torch.float32).unsqueeze(1)
    return x, y


def double_conv(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1),
        nn.GroupNorm(4, cout),
        nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1),
        nn.GroupNorm(4, cout),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, base=8):
        super().__init__()
        self.enc1 = double_conv(1, base)
        self.enc2 = double_conv(base, base * 2)
        self.mid = double_conv(base * 2, base * 4)
        self.up2 = nn.ConvTranspose2d(base * 4, base * 2, 2, stride=2)
        self.dec2 = double_conv(base * 4, base * 2)
        self.up1 = nn.ConvTranspose2d(base * 2, base, 2, stride=2)
        self.dec1 = double_conv(base * 2, base)
        self.out = nn.Conv2d(base, 1, 1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        e1 = self.enc1(x)
        e2 = self.enc2(self.pool(e1))
        m = self.mid(self.pool(e2))
        d2 = self.dec2(torch.cat([self.up2(m), e2], dim=1))
        d1 = self.dec1(torch.cat([self.up1(d2), e1], dim=1))
        return self.out(d1)


class BCEDice(nn.Module):
    def __init__(self, weight=0.5, smooth=1.0):
        super().__init__()
        self.weight, self.smooth = weight, smooth
        self.bce = nn.BCEWithLogitsLoss()

    def forward(self, logits, target):
        prob = torch.sigmoid(logits)
        inter = (prob * target).sum(dim=(1, 2, 3))
        total = prob.sum(dim=(1, 2, 3)) + target.sum(dim=(1, 2, 3))
        dice = (2 * inter + self.smooth) / (total + self.smooth)
        return self.weight * self.bce(logits, target) + (1 - self.weight) * (
            1 - dice.mean()
        )


class EarlyStopping:
    def __init__(self, patience, min_delta=1e-3):
        self.patience, self.min_delta = patience, min_delta
        self.best, self.bad, self.state = float("inf"), 0, None

    def step(self, value, model):
        if value < self.best - self.min_delta:
            self.best, self.bad = value, 0
            self.state = copy.deepcopy(model.state_dict())
        else:
            self.bad += 1
        return self.bad >= self.patience


def flip_batch(x, y):
    if torch.rand(1).item() < 0.5:
        x, y = x.flip(-1), y.flip(-1)
    if torch.rand(1).item() < 0.5:
        x, y = x.flip(-2), y.flip(-2)
    return x, y


@torch.inference_mode()
def validate(model, loader, criterion):
    model.eval()
    loss_sum, n = 0.0, 0
    inter = union = 0.0
    for x, y in loader:
        logits = model(x)
        loss_sum += criterion(logits, y).item() * x.size(0)
        n += x.size(0)
        pred = logits > 0
        inter += (pred & (y > 0.5)).sum().item()
        union += (pred | (y > 0.5)).sum().item()
    return loss_sum / n, inter / max(union, 1)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=12)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--patience", type=int, default=4)
    p.add_argument("--seed", type=int, default=11)
    return p.parse_args()


def main():
    args = parse_args()
    torch.manual_seed(args.seed)

    x, y = make_cells(260, 32, np.random.default_rng(args.seed))
    full = TensorDataset(x, y)
    train_set, val_set, test_set = random_split(
        full, [180, 40, 40], generator=torch.Generator().manual_seed(0)
    )
    mean, std = x[train_set.indices].mean(), x[train_set.indices].std()
    full.tensors = ((x - mean) / std, y)
    log.info("foreground fraction in train: %.3f", y[train_set.indices].mean())

    train_loader = DataLoader(train_set, batch_size=12, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=20)
    test_loader = DataLoader(test_set, batch_size=20)

    model = UNet()
    criterion = BCEDice()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, mode="min", factor=0.5, patience=1
    )
    stopper = EarlyStopping(args.patience)

    loss0, iou0 = validate(model, val_loader, criterion)
    log.info("before training: val loss %.4f IoU %.3f", loss0, iou0)

    for epoch in range(1, args.epochs + 1):
        model.train()
        running = 0.0
        for xb, yb in train_loader:
            xb, yb = flip_batch(xb, yb)
            optimizer.zero_grad()
            loss = criterion(model(xb), yb)
            loss.backward()
            optimizer.step()
            running += loss.item() * xb.size(0)
        val_loss, iou = validate(model, val_loader, criterion)
        scheduler.step(val_loss)
        log.info(
            "epoch %2d train %.4f val %.4f IoU %.3f lr %.1e",
            epoch,
            running / len(train_set),
            val_loss,
            iou,
            optimizer.param_groups[0]["lr"],
        )
        if stopper.step(val_loss, model):
            log.info("no improvement for %d epochs, stopping", args.patience)
            break

    if stopper.state is not None:
        model.load_state_dict(stopper.state)
    test_loss, test_iou = validate(model, test_loader, criterion)
    log.info("test loss %.4f IoU %.3f", test_loss, test_iou)


if __name__ == "__main__":
    main()
