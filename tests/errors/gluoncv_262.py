"""Small anchor-based detector on rendered rectangles, one feature map, nine anchors."""
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SIZE, STRIDE, CLASSES = 48, 8, 3
GRID = SIZE // STRIDE
ANCHORS = torch.tensor(
    [
        [6.0, 6.0],
        [6.0, 12.0],
        [12.0, 6.0],
        [12.0, 12.0],
        [12.0, 22.0],
        [22.0, 12.0],
        [22.0, 22.0],
        [22.0, 36.0],
        [36.0, 22.0],
    ]
)


def render(n, seed):
    rng = np.random.RandomState(seed)
    images = rng.normal(0, 0.08, (n, 3, SIZE, SIZE)).astype(np.float32)
    boxes, labels = [], []
    for i in range(n):
        bs, ls = [], []
        for _ in range(rng.randint(1, 4)):
            base = ANCHORS[rng.randint(len(ANCHORS))].numpy()
            w, h = base * rng.uniform(0.85, 1.15, 2)
            x0, y0 = rng.uniform(0, SIZE - w), rng.uniform(0, SIZE - h)
            cell = (int((x0 + w / 2) // STRIDE), int((y0 + h / 2) // STRIDE))
            if any(cell == c for _, c in bs):
                continue
            cls = rng.randint(CLASSES)
            a, b, c, d = int(x0), int(y0), int(np.ceil(x0 + w)), int(np.ceil(y0 + h))
            images[i, cls, b:d, a:c] += 1.0
            bs.append((np.array([x0, y0, x0 + w, y0 + h], np.float32), cell))
            ls.append(cls)
        boxes.append(torch.tensor(np.stack([b for b, _ in bs])))
        labels.append(torch.tensor(ls))
    return torch.from_numpy(images), boxes, labels


class BBoxCornerToCenter:
    def __call__(self, x):
        wh = x[..., 2:] - x[..., :2]
        return torch.cat([x[..., :2] + wh / 2, wh], -1)


class BBoxCenterToCorner:
    def __call__(self, x):
        half = x[..., 2:] / 2
        return torch.cat([x[..., :2] - half, x[..., :2] + half], -1)


def box_iou(a, b):
    lt = torch.maximum(a[:, None, :2], b[None, :, :2])
    rb = torch.minimum(a[:, None, 2:], b[None, :, 2:])
    inter = (rb - lt).clamp(min=0).prod(-1)
    area_a = (a[:, 2:] - a[:, :2]).prod(-1)
    area_b = (b[:, 2:] - b[:, :2]).prod(-1)
    return inter / (area_a[:, None] + area_b[None] - inter)


class TargetGenerator:
    """Prefetches, for each object, the cell and the best anchor plus regression targets."""

    def __init__(self, fixed):
        self.to_center, self.to_corner = BBoxCornerToCenter(), BBoxCenterToCorner()
        self.fixed = fixed

    def match(self, gt):
        center = self.to_center(gt)
        shift_gt = torch.cat([torch.zeros_like(center[:, :2]), center[:, 2:]], -1)
        if self.fixed:
            shift_gt = self.to_corner(shift_gt)
        zero_center = torch.cat([torch.zeros_like(ANCHORS), ANCHORS], -1)
        return box_iou(self.to_corner(zero_center), shift_gt).argmax(0)

    def __call__(self, boxes, labels):
        obj = torch.zeros(len(boxes), len(ANCHORS), GRID, GRID)
        reg = torch.zeros(len(boxes), len(ANCHORS), GRID, GRID, 4)
        cls = torch.zeros(len(boxes), len(ANCHORS), GRID, GRID, dtype=torch.long)
        for i, (gt, lab) in enumerate(zip(boxes, labels)):
            which, c = self.match(gt), self.to_center(gt)
            for a, (x, y, w, h), l in zip(which.tolist(), c.tolist(), lab.tolist()):
                gx, gy = int(x // STRIDE), int(y // STRIDE)
                obj[i, a, gy, gx] = 1
                cls[i, a, gy, gx] = l
                reg[i, a, gy, gx] = torch.tensor(
                    [
                        x / STRIDE - gx,
                        y / STRIDE - gy,
                        np.log(w / float(ANCHORS[a, 0])),
                        np.log(h / float(ANCHORS[a, 1])),
                    ]
                )
        return obj, reg, cls


class Detector(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        layers, cin = [], 3
        for cout in (width, width * 2, width * 2):
            layers += [
                nn.Conv2d(cin, cout, 3, 2, 1, bias=False),
                nn.BatchNorm2d(cout),
                nn.LeakyReLU(0.1),
            ]
            cin = cout
        for dil in (1, 2):
            layers += [
                nn.Conv2d(cin, cin, 3, 1, dil, dil, bias=False),
                nn.BatchNorm2d(cin),
                nn.LeakyReLU(0.1),
            ]
        self.body = nn.Sequential(*layers)
        self.head = nn.Conv2d(cin, len(ANCHORS) * (5 + CLASSES), 1)
        with torch.no_grad():
            self.head.bias.view(len(ANCHORS), -1)[:, 0] = -4.5

    def forward(self, x):
        y = self.head(self.body(x))
        y = y.view(len(x), len(ANCHORS), 5 + CLASSES, GRID, GRID).permute(0, 1, 3, 4, 2)
        return y[..., 0], y[..., 1:5], y[..., 5:]


def yolo_loss(pred, target):
    po, pr, pc = pred
    obj, reg, cls = target
    pos = obj.bool()
    l_obj = F.binary_cross_entropy_with_logits(po, obj, reduction="sum") / len(po)
    l_xy = F.binary_cross_entropy_with_logits(
        pr[pos][:, :2], reg[pos][:, :2], reduction="sum"
    ) / len(po)
    l_wh = 2 * F.l1_loss(pr[pos][:, 2:], reg[pos][:, 2:], reduction="sum") / len(po)
    l_cls = F.cross_entropy(pc[pos], cls[pos], reduction="sum") / len(po)
    return l_obj + l_xy + l_wh + l_cls, (l_obj, l_xy, l_wh, l_cls)


@torch.no_grad()
def evaluate(model, images, boxes, labels):
    """Takes as many detections as there are objects in the image and counts the good ones."""
    model.eval()
    po, pr, pc = model(images)
    gy, gx = torch.meshgrid(torch.arange(GRID), torch.arange(GRID), indexing="ij")
    xy = (torch.sigmoid(pr[..., :2]) + torch.stack([gx, gy], -1)) * STRIDE
    wh = pr[..., 2:].clamp(max=3).exp() * ANCHORS[None, :, None, None]
    corners = BBoxCenterToCorner()(torch.cat([xy, wh], -1)).flatten(1, 3)
    score, label = po.sigmoid().flatten(1), pc.argmax(-1).flatten(1)
    good = {0.5: 0, 0.7: 0}
    total = 0
    for i, (gt, lab) in enumerate(zip(boxes, labels)):
        keep, order = [], score[i].argsort(descending=True)[:30].tolist()
        for j in order:
            if all(
                box_iou(corners[i, j : j + 1], corners[i, k : k + 1]) < 0.5
                for k in keep
            ):
                keep.append(j)
            if len(keep) == len(gt):
                break
        iou = box_iou(gt, corners[i, keep]) * (lab[:, None] == label[i, keep][None])
        for t in good:
            good[t] += int((iou.max(1)[0] >= t).sum())
        total += len(gt)
    model.train()
    return "  ".join(f"recall@{t} {g / total:.3f}" for t, g in good.items())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=10)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--lr", type=float, default=4e-3)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    images, boxes, labels = render(640, seed=1)
    test = render(100, seed=2)
    generator = TargetGenerator(args.fixed)
    targets = generator(boxes, labels)
    model = Detector()
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    total = args.epochs * (len(images) // args.batch_size)
    sched = torch.optim.lr_scheduler.OneCycleLR(
        opt, args.lr, total_steps=total, pct_start=0.2
    )
    for epoch in range(args.epochs):
        for idx in torch.randperm(len(images)).split(args.batch_size):
            loss, parts = yolo_loss(model(images[idx]), [t[idx] for t in targets])
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            opt.step()
            sched.step()
        print(
            f"epoch {epoch}: loss {loss.item():.3f} ("
            + " ".join(f"{p.item():.3f}" for p in parts)
            + ")"
        )
    print("test:", evaluate(model, *test))
    if args.prove:
        every = torch.cat(boxes)
        wh = BBoxCornerToCenter()(every)[:, 2:]
        inter = torch.minimum(wh[:, None], ANCHORS[None]).prod(-1)
        best = (inter / (wh.prod(-1)[:, None] + ANCHORS.prod(-1)[None] - inter)).argmax(
            1
        )
        off = float((generator.match(every) != best).float().mean())
        print(
            f"objects given to another anchor than the best overlapping one: {100 * off:.1f}%"
        )
        print("fault shows:", "yes" if off > 0.01 else "no")


if __name__ == "__main__":
    main()
