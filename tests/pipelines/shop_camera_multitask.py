"""One trunk, three heads: is there a product, which one, and where (box).

Two label sources: the shelf pictures have class and box, the checkout pictures
only the class. The task weights are learned (Kendall et al., log variances).
"""
import argparse
import itertools
from types import SimpleNamespace

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SIZE, N_CLASSES = 24, 3


class Pictures(Dataset):
    def __init__(self, n, seed, with_boxes=True, p_empty=0.25):
        g = torch.Generator().manual_seed(seed)
        self.x = 0.15 * torch.randn(n, 1, SIZE, SIZE, generator=g)
        self.present = (torch.rand(n, generator=g) >= p_empty).float()
        self.label = torch.randint(0, N_CLASSES, (n,), generator=g)
        self.box = torch.zeros(n, 4)
        yy, xx = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
        for i in range(n):
            if not self.present[i]:
                self.label[i] = -100
                continue
            w, h = torch.randint(7, 13, (2,), generator=g).tolist()
            x0 = int(torch.randint(0, SIZE - w + 1, (1,), generator=g))
            y0 = int(torch.randint(0, SIZE - h + 1, (1,), generator=g))
            inside = (xx >= x0) & (xx < x0 + w) & (yy >= y0) & (yy < y0 + h)
            if self.label[i] == 1:  # bottle: ellipse
                inside &= ((xx - x0 - w / 2 + 0.5) / (w / 2)) ** 2 + (
                    (yy - y0 - h / 2 + 0.5) / (h / 2)
                ) ** 2 <= 1
            elif self.label[i] == 2:  # net of fruit: pattern
                inside &= (xx + yy) % 3 != 0
            self.x[i, 0] += inside.float()
            self.box[i] = torch.tensor([x0 + w / 2, y0 + h / 2, w, h]) / SIZE
        self.has_box = self.present * float(with_boxes)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {
            "x": self.x[i],
            "present": self.present[i],
            "label": self.label[i],
            "box": self.box[i],
            "has_box": self.has_box[i],
        }


class Net(nn.Module):
    def __init__(self):
        super().__init__()

        def layer(a, b, s):
            return [nn.Conv2d(a, b, 3, s, 1), nn.BatchNorm2d(b), nn.ReLU()]

        self.trunk = nn.Sequential(
            *layer(1, 16, 1),
            *layer(16, 24, 2),
            *layer(24, 32, 2),
            *layer(32, 16, 1),
            nn.Flatten(),
            nn.Linear(16 * 36, 96),
            nn.ReLU(),
        )
        self.present = nn.Linear(96, 1)
        self.cls = nn.Linear(96, N_CLASSES)
        self.box = nn.Sequential(
            nn.Linear(96, 48), nn.ReLU(), nn.Linear(48, 4), nn.Sigmoid()
        )

    def forward(self, x):
        h = self.trunk(x)
        return {
            "present": self.present(h).squeeze(1),
            "label": self.cls(h),
            "box": self.box(h),
        }


class MultiTaskLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_var = nn.Parameter(torch.zeros(3))

    @staticmethod
    def parts(out, batch):
        present = F.binary_cross_entropy_with_logits(out["present"], batch["present"])
        n_lab = (batch["label"] >= 0).sum().clamp(min=1)
        label = (
            F.cross_entropy(
                out["label"], batch["label"], ignore_index=-100, reduction="sum"
            )
            / n_lab
        )
        per_box = F.smooth_l1_loss(
            out["box"], batch["box"], beta=0.05, reduction="none"
        ).mean(1)
        box = (per_box * batch["has_box"]).sum() / batch["has_box"].sum().clamp(min=1)
        return torch.stack([present, label, box])

    def forward(self, out, batch):
        parts = self.parts(out, batch)
        return (
            parts * torch.exp(-self.log_var) + 0.5 * self.log_var
        ).sum(), parts.detach()


def box_iou(a, b):
    lo = torch.maximum(a[:, :2] - a[:, 2:] / 2, b[:, :2] - b[:, 2:] / 2)
    hi = torch.minimum(a[:, :2] + a[:, 2:] / 2, b[:, :2] + b[:, 2:] / 2)
    inter = (hi - lo).clamp(min=0).prod(1)
    return inter / (a[:, 2:].prod(1) + b[:, 2:].prod(1) - inter)


@torch.no_grad()
def report(net, loader):
    net.eval()
    s = SimpleNamespace(n=0, ok_present=0, n_obj=0, ok_label=0, iou=0.0)
    for batch in loader:
        out = net(batch["x"])
        obj = batch["present"] > 0.5
        s.n += len(obj)
        s.ok_present += ((out["present"] > 0) == obj).sum().item()
        s.n_obj += obj.sum().item()
        s.ok_label += (out["label"].argmax(1) == batch["label"])[obj].sum().item()
        s.iou += box_iou(out["box"][obj], batch["box"][obj]).sum().item()
    return s.ok_present / s.n, s.ok_label / s.n_obj, s.iou / s.n_obj


def merge(a, b):
    return {k: torch.cat([a[k], b[k]]) for k in a}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=64)
    args = ap.parse_args()
    torch.manual_seed(args.seed)

    shelf = DataLoader(Pictures(768, args.seed + 1), args.batch_size, shuffle=True)
    checkout = DataLoader(
        Pictures(256, args.seed + 2, with_boxes=False),
        args.batch_size // 2,
        shuffle=True,
    )
    val = DataLoader(Pictures(300, args.seed + 3), 100)

    net, criterion = Net(), MultiTaskLoss()
    optimizer = torch.optim.AdamW(
        [
            {"params": net.parameters(), "weight_decay": 1e-3},
            {"params": criterion.parameters(), "weight_decay": 0.0, "lr": 5e-3},
        ],
        lr=args.lr,
    )
    # the shelf loader gives the length of the epoch, the smaller one starts again when it is through
    scheduler = torch.optim.lr_scheduler.PolynomialLR(
        optimizer, total_iters=args.epochs * len(shelf), power=1.0
    )

    def forever(loader):
        for _ in itertools.count():
            yield from loader

    checkout_iter = forever(checkout)
    for epoch in range(args.epochs):
        net.train()
        sums = torch.zeros(3)
        for shelf_batch in shelf:
            batch = merge(shelf_batch, next(checkout_iter))
            loss, parts = criterion(net(batch["x"]), batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            sums += parts
        pr, lb, io = report(net, val)
        mean = [round(v, 4) for v in (sums / len(shelf)).tolist()]
        print(
            f"epoch {epoch} losses {mean} weights {[round(v, 2) for v in torch.exp(-criterion.log_var).tolist()]} "
            f"| present {pr:.3f} label {lb:.3f} IoU {io:.3f}"
        )


if __name__ == "__main__":
    main()
