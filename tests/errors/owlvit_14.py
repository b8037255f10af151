# Fine-tune a small single-object detector on drawn shapes.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--bs", type=int, default=32)
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--n-train", type=int, default=512)
parser.add_argument("--n-val", type=int, default=192)
parser.add_argument("--l1-weight", type=float, default=1.0)
parser.add_argument("--giou-weight", type=float, default=2.0)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--prove", action="store_true")

SIZE = 32
CLASSES = ("filled", "frame", "cross")


def draw(n, seed):
    """Images with one object, its class and its box (cx, cy, w, h in units of the image)."""
    g = torch.Generator().manual_seed(seed)
    images = 0.15 * torch.randn(n, 1, SIZE, SIZE, generator=g)
    labels = torch.randint(0, len(CLASSES), (n,), generator=g)
    wh = torch.randint(7, 20, (n, 2), generator=g)
    xy = (torch.rand(n, 2, generator=g) * (SIZE - wh)).long()
    for i in range(n):
        (x, y), (w, h) = xy[i].tolist(), wh[i].tolist()
        patch = images[i, 0, y : y + h, x : x + w]
        kind = int(labels[i])
        if kind == 0:
            patch += 1.0
        elif kind == 1:
            patch += 1.0
            patch[2:-2, 2:-2] -= 1.0
        else:
            patch[h // 2 - 1 : h // 2 + 1] += 1.0
            patch[:, w // 2 - 1 : w // 2 + 1] += 1.0
    boxes = torch.cat([xy + wh / 2, wh.float()], 1) / SIZE
    return images, labels, boxes


class Detector(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        layers, c = [], 1
        for out in (width, width, 2 * width):
            layers += [
                nn.Conv2d(c, out, 3, stride=2, padding=1),
                nn.BatchNorm2d(out),
                nn.ReLU(),
            ]
            c = out
        self.trunk = nn.Sequential(*layers, nn.Flatten())
        feat = c * (SIZE // 8) ** 2
        self.class_head = nn.Linear(feat, len(CLASSES))
        self.box_head = nn.Sequential(nn.Linear(feat, 64), nn.ReLU(), nn.Linear(64, 4))

    def forward(self, x):
        f = self.trunk(x)
        return self.class_head(f), self.box_head(f).sigmoid()


def to_corners(b):
    cx, cy, w, h = b.unbind(-1)
    return torch.stack([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], -1)


def area(b):
    return (b[:, 2] - b[:, 0]).clamp(min=0) * (b[:, 3] - b[:, 1]).clamp(min=0)


def iou_and_union(a, b):
    lt = torch.maximum(a[:, :2], b[:, :2])
    rb = torch.minimum(a[:, 2:], b[:, 2:])
    inter = (rb - lt).clamp(min=0).prod(1)
    union = area(a) + area(b) - inter
    return inter / union.clamp(min=1e-6), union


def paired_giou(a, b):
    """Generalised IoU of two lists of boxes, row by row."""
    iou, union = iou_and_union(a, b)
    hull = torch.cat(
        [torch.minimum(a[:, :2], b[:, :2]), torch.maximum(a[:, 2:], b[:, 2:])], 1
    )
    hull_area = area(hull).clamp(min=1e-6)
    return iou - (hull_area - union) / hull_area


class Criterion(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.w_l1, self.w_giou = args.l1_weight, args.giou_weight
        self.convert = args.fixed
        self.last_giou = None

    def forward(self, logits, boxes, labels, targets):
        loss_class = F.cross_entropy(logits, labels)
        loss_l1 = F.l1_loss(boxes, targets)
        if self.convert:
            giou = paired_giou(to_corners(boxes), to_corners(targets))
        else:
            giou = paired_giou(boxes, targets)
        self.last_giou = giou.detach()
        loss_giou = (1 - giou).mean()
        total = loss_class + self.w_l1 * loss_l1 + self.w_giou * loss_giou
        return total, dict(
            cls=loss_class.item(), l1=loss_l1.item(), giou=loss_giou.item()
        )


@torch.no_grad()
def evaluate(model, data, bs):
    model.eval()
    images, labels, boxes = data
    hits, overlaps = 0, []
    for i in range(0, len(images), bs):
        logits, pred = model(images[i : i + bs])
        hits += (logits.argmax(1) == labels[i : i + bs]).sum().item()
        overlaps.append(
            iou_and_union(to_corners(pred), to_corners(boxes[i : i + bs]))[0]
        )
    model.train()
    ov = torch.cat(overlaps)
    return hits / len(images), ov.mean().item(), (ov > 0.75).float().mean().item()


def main():
    args = parser.parse_args()
    torch.manual_seed(21)
    train, val = draw(args.n_train, 1), draw(args.n_val, 2)
    model, criterion = Detector(), Criterion(args)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    order = torch.Generator().manual_seed(3)
    gaps = []

    for epoch in range(args.epochs):
        perm = torch.randperm(args.n_train, generator=order)
        running = 0.0
        for i in range(0, args.n_train, args.bs):
            idx = perm[i : i + args.bs]
            images, labels, boxes = (t[idx] for t in train)
            logits, pred = model(images)
            loss, parts = criterion(logits, pred, labels, boxes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.item() * len(idx)
            if args.prove:
                true = paired_giou(to_corners(pred.detach()), to_corners(boxes))
                gaps.append((true - criterion.last_giou).abs().mean().item())
        scheduler.step()
        acc, miou, ap75 = evaluate(model, val, args.bs)
        print(
            f"epoch {epoch}  loss {running / args.n_train:.4f}  (cls {parts['cls']:.3f} l1 {parts['l1']:.3f} "
            f"giou {parts['giou']:.3f})  val acc {acc:.3f}  mean IoU {miou:.3f}  IoU>0.75 {ap75:.3f}"
        )

    if args.prove:
        print(
            f"overlap used in the loss vs overlap of the boxes: mean difference {sum(gaps) / len(gaps):.4f}"
        )
        print("fault shows:", "yes" if max(gaps) > 1e-4 else "no")


if __name__ == "__main__":
    main()
