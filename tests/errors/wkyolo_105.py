import argparse

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

# boxes are rows of (class, x1, y1, x2, y2), coordinates relative to the image
N_CLASS, GRID, SIZE = 4, 6, 48
COLORS = np.array(
    [[0.9, 0.1, 0.1], [0.1, 0.9, 0.1], [0.15, 0.2, 0.95], [0.9, 0.85, 0.1]], np.float32
)


class ToyScenes(torch.utils.data.Dataset):
    def __init__(self, n, seed, transform=None):
        rng = np.random.default_rng(seed)
        self.items = [self.render(rng) for _ in range(n)]
        self.transform = transform
        if transform is not None:
            transform.parent = self

    @staticmethod
    def render(rng):
        img = rng.uniform(0, 0.2, (SIZE, SIZE, 3)).astype(np.float32)
        boxes = []
        for _ in range(rng.integers(1, 4)):
            w, h = rng.integers(8, 18, 2)
            x, y = rng.integers(0, SIZE - w), rng.integers(0, SIZE - h)
            c = int(rng.integers(N_CLASS))
            img[y : y + h, x : x + w] = COLORS[c] * rng.uniform(0.8, 1.0)
            boxes.append([c, x / SIZE, y / SIZE, (x + w) / SIZE, (y + h) / SIZE])
        return torch.from_numpy(img).permute(2, 0, 1), torch.tensor(
            boxes, dtype=torch.float32
        )

    def get_more_data(self, rng):
        return self.items[int(rng.integers(len(self.items)))]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        img, boxes = self.items[i]
        if self.transform is not None:
            img, boxes = self.transform(img, boxes)
        return img, boxes


class MixUp:
    def __init__(self, prob, alpha, seed, fixed):
        self.prob, self.alpha, self.fixed = prob, alpha, fixed
        self.rng = np.random.default_rng(seed)
        self.parent = None
        self.trace = None

    def __call__(self, image, boxes):
        if self.rng.random() > self.prob:
            return image, boxes
        image2, boxes2 = self.parent.get_more_data(self.rng)
        lam = float(self.rng.beta(self.alpha, self.alpha))
        mixed_image = lam * image + (1 - lam) * image2
        if self.fixed:
            mixed_boxes = torch.cat([boxes, boxes2])
        else:
            mixed_boxes = torch.cat([lam * boxes, (1 - lam) * boxes2])
        if self.trace is not None:
            self.trace.append((torch.cat([boxes, boxes2]), mixed_boxes))
        return mixed_image, mixed_boxes


def collate(batch):
    images = torch.stack([b[0] for b in batch])
    rows = [
        torch.cat([torch.full((len(b), 1), float(i)), b], 1)
        for i, (_, b) in enumerate(batch)
    ]
    return images, torch.cat(rows)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()

        def conv(i, o, s):
            return nn.Sequential(
                nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.SiLU()
            )

        self.backbone = nn.Sequential(
            conv(3, 16, 2),
            conv(16, 32, 2),
            conv(32, 48, 1),
            conv(48, 48, 2),
            conv(48, 48, 1),
        )
        self.head = nn.Conv2d(48, 5 + N_CLASS, 1)
        nn.init.constant_(self.head.bias[:1], -2.0)
        centre = (torch.arange(GRID) + 0.5) / GRID
        cy, cx = torch.meshgrid(centre, centre, indexing="ij")
        self.register_buffer("centres", torch.stack([cx, cy, cx, cy], -1))

    def forward(self, x):
        p = self.head(self.backbone(x)).permute(0, 2, 3, 1)
        reach = F.softplus(p[..., 1:5]) * 0.25
        sign = torch.tensor([-1.0, -1.0, 1.0, 1.0])
        return p[..., 0], self.centres + sign * reach, p[..., 5:]


def assign(targets, batch_size):
    """One positive cell per object: the one that holds its centre."""
    obj = torch.zeros(batch_size, GRID, GRID)
    b = targets[:, 0].long()
    cls = targets[:, 1].long().clamp(0, N_CLASS - 1)
    xyxy = targets[:, 2:]
    cx, cy = (xyxy[:, 0] + xyxy[:, 2]) / 2, (xyxy[:, 1] + xyxy[:, 3]) / 2
    gi = (cx * GRID).long().clamp(0, GRID - 1)
    gj = (cy * GRID).long().clamp(0, GRID - 1)
    obj[b, gj, gi] = 1.0
    return obj, (b, gj, gi), cls, xyxy


def pair_iou(a, b):
    lt, rb = torch.maximum(a[:, :2], b[:, :2]), torch.minimum(a[:, 2:], b[:, 2:])
    inter = (rb - lt).clamp(min=0).prod(1)
    area = lambda t: (t[:, 2:] - t[:, :2]).clamp(min=0).prod(1)
    return inter / (area(a) + area(b) - inter + 1e-7)


def loss_fn(pred, targets):
    obj_logit, box, cls_logit = pred
    obj, where, cls, xyxy = assign(targets, len(obj_logit))
    l_obj = F.binary_cross_entropy_with_logits(obj_logit, obj)
    picked = box[where]
    l_box = (
        F.smooth_l1_loss(picked, xyxy, beta=0.05) + (1 - pair_iou(picked, xyxy)).mean()
    )
    l_cls = F.cross_entropy(cls_logit[where], cls)
    return 4 * l_obj + l_box + 0.5 * l_cls, (l_obj.item(), l_box.item(), l_cls.item())


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    hit = cls_ok = total = 0
    ious = []
    for images, targets in loader:
        obj, box, cls = model(images)
        for i in range(len(images)):
            gt = targets[targets[:, 0] == i]
            score, order = obj[i].flatten().topk(len(gt))
            boxes, names = box[i].reshape(-1, 4)[order], cls[i].reshape(-1, N_CLASS)[
                order
            ].argmax(1)
            for row in gt:
                iou = pair_iou(boxes, row[2:].expand(len(boxes), 4))
                k = iou.argmax()
                ious.append(iou[k].item())
                hit += int(iou[k] > 0.5)
                cls_ok += int(iou[k] > 0.5 and names[k] == row[1].long())
                total += 1
    model.train()
    return hit / total, cls_ok / total, sum(ious) / len(ious)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--mixup", type=float, default=0.4)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    cfg = ap.parse_args()
    torch.manual_seed(0)
    mixup = MixUp(cfg.mixup, 8.0, 5, cfg.fixed)
    train = ToyScenes(320, 1, mixup)
    val = ToyScenes(64, 2)
    loader = torch.utils.data.DataLoader(
        train, 16, shuffle=True, collate_fn=collate, drop_last=True
    )
    val_loader = torch.utils.data.DataLoader(val, 32, collate_fn=collate)
    model = Detector()
    opt = torch.optim.SGD(
        model.parameters(), 0.02, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, cfg.epochs * len(loader))
    for epoch in range(cfg.epochs):
        for images, targets in loader:
            loss, parts = loss_fn(model(images), targets)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
        rec, rec_cls, miou = evaluate(model, val_loader)
        print(
            f"epoch {epoch} loss {loss.item():.3f} obj/box/cls {parts[0]:.3f}/{parts[1]:.3f}/{parts[2]:.3f} "
            f"recall@.5 {rec:.3f} with class {rec_cls:.3f} mean IoU {miou:.3f}"
        )
    if cfg.prove:
        mixup.trace = []
        for i in range(len(train)):
            train[i]
        given = torch.cat([t[0] for t in mixup.trace])
        made = torch.cat([t[1] for t in mixup.trace])
        wrong_cls = (given[:, 0].long() != made[:, 0].long()).float().mean().item()
        iou = pair_iou(given[:, 1:], made[:, 1:]).mean().item()
        print(
            f"{len(mixup.trace)} mixed images: class changed {wrong_cls:.3f}, IoU with annotated box {iou:.3f}"
        )
        print("fault shows:", "yes" if wrong_cls > 0.05 or iou < 0.95 else "no")


if __name__ == "__main__":
    main()
