#!/usr/bin/env python
# Tiny U-Net on synthetic leaf scans: foreground = leaf blade.
import argparse
import torch
from torch import nn
from torch.utils.data import Dataset, DataLoader


class LeafScans(Dataset):
    SIZE = 32

    def __init__(self, n, seed, train, fixed=False):
        g = torch.Generator().manual_seed(seed)
        self.train = train
        self.fixed = fixed
        self.aug = torch.Generator().manual_seed(seed + 77)
        ys, xs = torch.meshgrid(
            torch.arange(self.SIZE), torch.arange(self.SIZE), indexing="ij"
        )
        images, masks = [], []
        for _ in range(n):
            cx, cy = (torch.rand(2, generator=g) * 14 + 9).tolist()
            a, b = (torch.rand(2, generator=g) * 5 + 4).tolist()
            blade = (((xs - cx) / a) ** 2 + ((ys - cy) / b) ** 2 < 1).float()
            paper = 0.5 + 0.1 * torch.randn(3, self.SIZE, self.SIZE, generator=g)
            tint = torch.tensor([-0.25, 0.2, -0.2]).view(3, 1, 1)
            images.append(
                paper + blade * tint * (0.7 + 0.6 * torch.rand(1, generator=g))
            )
            masks.append(blade.unsqueeze(0))
        self.images, self.masks = torch.stack(images), torch.stack(masks)

    def __len__(self):
        return len(self.images)

    def augment(self, image, mask):
        if torch.rand(1, generator=self.aug).item() < 0.5:
            image = torch.flip(image, dims=[-1])
            if self.fixed:
                mask = torch.flip(mask, dims=[-1])
        gain = 1 + 0.1 * torch.randn(1, generator=self.aug)
        return image * gain, mask

    def __getitem__(self, i):
        image, mask = self.images[i], self.masks[i]
        if self.train:
            image, mask = self.augment(image, mask)
        return image, mask


def block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
    )


class SmallUNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.enc1 = block(3, width)
        self.enc2 = block(width, 2 * width)
        self.mid = block(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.dec2 = block(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.dec1 = block(2 * width, width)
        self.out = nn.Conv2d(width, 1, 1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        e1 = self.enc1(x)
        e2 = self.enc2(self.pool(e1))
        m = self.mid(self.pool(e2))
        d2 = self.dec2(torch.cat([self.up2(m), e2], 1))
        d1 = self.dec1(torch.cat([self.up1(d2), e1], 1))
        return self.out(d1)


def dice_loss(logits, target, eps=1.0):
    p = torch.sigmoid(logits)
    inter = (p * target).sum((1, 2, 3))
    return (
        1 - (2 * inter + eps) / (p.sum((1, 2, 3)) + target.sum((1, 2, 3)) + eps)
    ).mean()


@torch.no_grad()
def iou(model, loader):
    model.eval()
    inter = union = 0.0
    for x, m in loader:
        p = model(x) > 0
        m = m > 0.5
        inter += (p & m).sum().item()
        union += (p | m).sum().item()
    return inter / max(union, 1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=100)
    ap.add_argument("--bs", type=int, default=16)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(0)
    train_set = LeafScans(400, seed=3, train=True, fixed=args.fixed)
    val_set = LeafScans(96, seed=4, train=False)
    train_dl = DataLoader(
        train_set,
        batch_size=args.bs,
        shuffle=True,
        drop_last=True,
        generator=torch.Generator().manual_seed(5),
    )
    val_dl = DataLoader(val_set, batch_size=48)

    net = SmallUNet()
    optim = torch.optim.Adam(net.parameters(), lr=args.lr)
    bce = nn.BCEWithLogitsLoss()

    step, running = 0, None
    while step < args.steps:
        for image, mask in train_dl:
            net.train()
            logits = net(image)
            loss = bce(logits, mask) + dice_loss(logits, mask)
            optim.zero_grad(set_to_none=True)
            loss.backward()
            optim.step()
            running = (
                loss.item() if running is None else 0.9 * running + 0.1 * loss.item()
            )
            if step % 20 == 0:
                print(f"[{step:4d}] loss {running:.4f}")
            step += 1
            if step >= args.steps:
                break

    print(f"val IoU {iou(net, val_dl):.4f}")

    if args.prove:
        bad = 0
        for k in range(60):
            m = train_set.masks[k]
            a, b = train_set.augment(m.clone(), m.clone())
            bad += int(not torch.equal(a > 0.1, b > 0.1))
        print(f"{bad} of 60 pairs no longer line up after augmentation")
        print("fault shows: " + ("yes" if bad else "no"))


if __name__ == "__main__":
    main()
