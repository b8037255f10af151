"""A one-scale RetinaNet for lesions in small synthetic scans (three lesion types)."""
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SIZE, STRIDE, N_CLASSES = 48, 8, 3
ANCHOR_SIZES = (10.0, 18.0)
BOX_STD = torch.tensor([0.1, 0.1, 0.2, 0.2])


# ---------------------------------------------------------------- data
def render(rng):
    img = rng.normal(0.0, 0.25, (SIZE, SIZE)).astype(np.float32)
    boxes, labels = [], []
    yy, xx = np.mgrid[0:SIZE, 0:SIZE]
    for _ in range(rng.integers(1, 3)):
        kind = int(rng.integers(1, N_CLASSES + 1))
        h, w = rng.uniform(8, 22, 2)
        cy, cx = rng.uniform(h / 2, SIZE - h / 2), rng.uniform(w / 2, SIZE - w / 2)
        r = ((yy - cy) / (h / 2)) ** 2 + ((xx - cx) / (w / 2)) ** 2
        inside = r <= 1
        if kind == 1:
            img[inside] += 1.2
        elif kind == 2:
            img[inside] -= 1.2
        else:
            img[inside] += np.where(r[inside] > 0.45, 1.2, -0.8)
        boxes.append([cy - h / 2, cx - w / 2, cy + h / 2, cx + w / 2])
        labels.append(kind)
    return img, np.array(boxes, np.float32), np.array(labels)


def make_set(n, seed):
    rng = np.random.default_rng(seed)
    return [render(rng) for _ in range(n)]


# ---------------------------------------------------------------- boxes
def make_anchors():
    centers = torch.arange(STRIDE / 2, SIZE, STRIDE)
    cy, cx = torch.meshgrid(centers, centers, indexing="ij")
    out = []
    for s in ANCHOR_SIZES:
        out.append(torch.stack([cy - s / 2, cx - s / 2, cy + s / 2, cx + s / 2], -1))
    return torch.stack(out, 2).reshape(-1, 4)


def iou(a, b):
    lo = torch.maximum(a[:, None, :2], b[None, :, :2])
    hi = torch.minimum(a[:, None, 2:], b[None, :, 2:])
    inter = (hi - lo).clamp(min=0).prod(-1)
    area = lambda t: (t[:, 2:] - t[:, :2]).prod(-1)
    return inter / (area(a)[:, None] + area(b)[None] - inter)


def encode(anchors, gt):
    size, gsize = anchors[:, 2:] - anchors[:, :2], gt[:, 2:] - gt[:, :2]
    center, gcenter = anchors[:, :2] + size / 2, gt[:, :2] + gsize / 2
    return torch.cat([(gcenter - center) / size, (gsize / size).log()], 1) / BOX_STD


def decode(anchors, deltas):
    size = anchors[:, 2:] - anchors[:, :2]
    d = deltas * BOX_STD
    center = anchors[:, :2] + size / 2 + d[:, :2] * size
    size = size * d[:, 2:].clamp(max=2).exp()
    return torch.cat([center - size / 2, center + size / 2], 1)


def match(anchors, boxes, labels):
    """Per anchor: -1 background, 0 in between, otherwise the class; and its box target."""
    overlap = iou(anchors, boxes)
    best, which = overlap.max(1)
    matches = torch.where(best < 0.3, -1, 0)
    matches[best >= 0.45] = labels[which[best >= 0.45]]
    top = overlap.argmax(0)
    matches[top] = labels
    which[top] = torch.arange(len(boxes))
    return matches, encode(anchors, boxes[which])


# ---------------------------------------------------------------- model and losses
class RetinaNet(nn.Module):
    def __init__(self, c=24):
        super().__init__()

        def conv(i, o, s=1):
            return nn.Sequential(
                nn.Conv2d(i, o, 3, s, 1), nn.GroupNorm(4, o), nn.ReLU()
            )

        self.backbone = nn.Sequential(
            conv(1, c, 2), conv(c, c, 2), conv(c, 2 * c, 2), conv(2 * c, 2 * c)
        )
        a = len(ANCHOR_SIZES)
        self.cls = nn.Sequential(
            conv(2 * c, 2 * c), nn.Conv2d(2 * c, a * (N_CLASSES + 1), 1)
        )
        self.box = nn.Sequential(conv(2 * c, 2 * c), nn.Conv2d(2 * c, a * 4, 1))

    def forward(self, x):
        f = self.backbone(x)
        flat = lambda t, k: t.permute(0, 2, 3, 1).reshape(len(x), -1, k)
        return flat(self.cls(f), N_CLASSES + 1), flat(self.box(f), 4)


def compute_class_loss(anchor_matches, class_logits):
    pos = torch.nonzero(anchor_matches > 0).squeeze(1)
    neg = torch.nonzero(anchor_matches == -1).squeeze(1)
    loss = F.cross_entropy(class_logits[pos], anchor_matches[pos])
    background = F.cross_entropy(
        class_logits[neg], torch.zeros_like(neg), reduction="none"
    )
    keep = min(len(neg), max(1, 3 * len(pos)))
    return (loss + background.topk(keep).values.mean()) / 2


def compute_bbox_loss(target_deltas, pred_deltas, anchor_matches, cfg):
    if cfg.fixed:
        indices = torch.nonzero(anchor_matches > 0).squeeze(1)
    else:
        indices = torch.nonzero(anchor_matches == 1).squeeze(1)
    cfg.used += len(indices)
    cfg.positive += int((anchor_matches > 0).sum())
    if len(indices) == 0:
        return pred_deltas.sum() * 0
    return F.smooth_l1_loss(pred_deltas[indices], target_deltas[indices])


@torch.no_grad()
def localisation(model, data, anchors):
    """Mean IoU of the decoded box of the best anchor with the lesion, per class."""
    model.eval()
    per_class = {k: [] for k in range(1, N_CLASSES + 1)}
    hits = []
    for img, boxes, labels in data:
        cls, box = model(torch.from_numpy(img)[None, None])
        score, guess = cls[0].softmax(-1)[:, 1:].max(1)
        overlap = iou(decode(anchors, box[0]), torch.from_numpy(boxes))
        start = iou(anchors, torch.from_numpy(boxes))
        for j, k in enumerate(labels.tolist()):
            per_class[k].append(overlap[start[:, j].argmax(), j].item())
            found = (score > 0.5) & (guess + 1 == k) & (overlap[:, j] > 0.6)
            hits.append(bool(found.any()))
    model.train()
    return {k: float(np.mean(v)) for k, v in per_class.items()}, float(np.mean(hits))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=160)
    ap.add_argument("--batch", type=int, default=12)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    cfg = ap.parse_args()
    cfg.used = cfg.positive = 0
    torch.manual_seed(1)
    torch.set_num_threads(1)
    train, test = make_set(400, 10), make_set(80, 11)
    anchors = make_anchors()
    model = RetinaNet()
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    rng = np.random.default_rng(0)

    for it in range(cfg.steps):
        batch = [train[i] for i in rng.integers(0, len(train), cfg.batch)]
        cls, box = model(torch.stack([torch.from_numpy(b[0]) for b in batch])[:, None])
        class_loss = bbox_loss = 0.0
        for i, (_, boxes, labels) in enumerate(batch):
            m, target = match(
                anchors, torch.from_numpy(boxes), torch.from_numpy(labels)
            )
            class_loss = class_loss + compute_class_loss(m, cls[i]) / cfg.batch
            bbox_loss = (
                bbox_loss + compute_bbox_loss(target, box[i], m, cfg) / cfg.batch
            )
        loss = class_loss + bbox_loss
        opt.zero_grad()
        loss.backward()
        opt.step()
        if it % 40 == 0 or it == cfg.steps - 1:
            print(
                f"it {it:4d} loss {loss.item():.3f} class {class_loss.item():.3f} "
                f"box {bbox_loss.item():.3f}"
            )

    per_class, recall = localisation(model, test, anchors)
    print(
        "mean IoU by class: " + "  ".join(f"{k}: {v:.3f}" for k, v in per_class.items())
    )
    print(f"recall at IoU 0.6: {recall:.3f}")
    if cfg.prove:
        print(f"anchors in the box loss: {cfg.used} of {cfg.positive} positive ones")
        print("fault shows:", "yes" if cfg.used < cfg.positive else "no")


if __name__ == "__main__":
    main()
