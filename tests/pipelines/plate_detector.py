"""Anchor-free grid detector for small plates, in the spirit of YOLO, with a model average for evaluation."""
import argparse
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SIZE, STRIDE, CLASSES = 48, 8, 2
GRID = SIZE // STRIDE


class PlateScenes(Dataset):
    """Each scene has one to three boxes (x1, y1, x2, y2) of a bright or a striped kind."""

    def __init__(self, n, seed, flip=False):
        g = torch.Generator().manual_seed(seed)
        self.flip = flip
        self.scenes = [self.scene(g) for _ in range(n)]

    def scene(self, g):
        def pick(lo, hi):
            return torch.randint(lo, hi, (), generator=g).item()

        img = 0.25 * torch.rand(SIZE, SIZE, generator=g)
        taken, boxes, labels = torch.zeros(SIZE, SIZE, dtype=torch.bool), [], []
        for _ in range(pick(1, 4)):
            w, h = pick(8, 18), pick(6, 13)
            x, y = pick(0, SIZE - w), pick(0, SIZE - h)
            if taken[max(0, y - 3) : y + h + 3, max(0, x - 3) : x + w + 3].any():
                continue
            label, patch = pick(0, CLASSES), torch.full((h, w), 0.8)
            if label == 1:
                patch[:, ::3] = 0.1
            img[y : y + h, x : x + w] = patch + 0.1 * torch.randn(h, w, generator=g)
            taken[y : y + h, x : x + w] = True
            boxes.append([x, y, x + w, y + h])
            labels.append(label)
        return (
            img.unsqueeze(0),
            torch.tensor(boxes, dtype=torch.float32),
            torch.tensor(labels),
        )

    def __len__(self):
        return len(self.scenes)

    def __getitem__(self, i):
        img, boxes, labels = self.scenes[i]
        if self.flip and torch.rand(()) < 0.5:
            img = img.flip(-1)
            boxes = torch.stack(
                [SIZE - boxes[:, 2], boxes[:, 1], SIZE - boxes[:, 0], boxes[:, 3]],
                dim=1,
            )
        return img, boxes, labels


def collate(batch):
    return (
        torch.stack([b[0] for b in batch]),
        [b[1] for b in batch],
        [b[2] for b in batch],
    )


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        layers = []
        for i, o, s in ((1, 16, 2), (16, 24, 2), (24, 40, 2), (40, 40, 1)):
            layers += [
                nn.Conv2d(i, o, 3, s, 1, bias=False),
                nn.BatchNorm2d(o),
                nn.SiLU(),
            ]
        self.body = nn.Sequential(*layers)
        self.head = nn.Conv2d(40, 5 + CLASSES, 1)
        nn.init.constant_(self.head.bias.data[:1], -math.log((1 - 0.05) / 0.05))
        ys, xs = torch.meshgrid(torch.arange(GRID), torch.arange(GRID), indexing="ij")
        self.register_buffer("cells", torch.stack([xs, ys], -1).float())

    def forward(self, x):
        out = self.head(self.body(x)).permute(0, 2, 3, 1)
        center = (self.cells + out[..., 1:3].sigmoid()) * STRIDE
        size = out[..., 3:5].clamp(-3, 3).exp() * 10.0
        boxes = torch.cat([center - size / 2, center + size / 2], dim=-1)
        return out[..., 0], boxes, out[..., 5:]


def pair_iou(a, b):
    lt, rb = torch.maximum(a[..., :2], b[..., :2]), torch.minimum(
        a[..., 2:], b[..., 2:]
    )
    inter = (rb - lt).clamp(min=0).prod(-1)
    union = (
        (a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - inter
    )
    hull = (
        torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])
    ).prod(-1)
    iou = inter / union.clamp(min=1e-6)
    return iou, iou - (hull - union) / hull.clamp(min=1e-6)


def detection_loss(outputs, boxes, labels):
    obj, pred_boxes, cls = outputs
    target_obj = torch.zeros_like(obj)
    where = []
    for b, bx in enumerate(boxes):
        cell = (((bx[:, :2] + bx[:, 2:]) / 2) / STRIDE).long().clamp(0, GRID - 1)
        target_obj[b, cell[:, 1], cell[:, 0]] = 1.0
        where += [(b, int(cy), int(cx)) for cx, cy in cell]
    n_pos = max(1, len(where))
    prob = obj.sigmoid()
    p_t, alpha_t = torch.where(target_obj == 1, prob, 1 - prob), torch.where(
        target_obj == 1, 0.6, 0.4
    )
    bce = F.binary_cross_entropy_with_logits(obj, target_obj, reduction="none")
    focal = (alpha_t * (1 - p_t) ** 2 * bce).sum() / n_pos
    b_i, y_i, x_i = torch.tensor(where).t()
    _, giou = pair_iou(pred_boxes[b_i, y_i, x_i], torch.cat(boxes))
    box = (1 - giou).sum() / n_pos
    cls_loss = (
        F.cross_entropy(cls[b_i, y_i, x_i], torch.cat(labels), reduction="sum") / n_pos
    )
    return 4.0 * focal + 2.0 * box + 0.5 * cls_loss, (
        focal.item(),
        box.item(),
        cls_loss.item(),
    )


def nms(boxes, scores, limit=0.4):
    keep, order = [], scores.argsort(descending=True).tolist()
    while order:
        i = order[0]
        keep.append(i)
        order = [j for j in order[1:] if pair_iou(boxes[i], boxes[j])[0] < limit]
    return keep


@torch.no_grad()
def mean_ap50(model, loader):
    model.eval()
    found, n_gt = [[] for _ in range(CLASSES)], [0] * CLASSES
    for images, boxes, labels in loader:
        obj, pb, cls = model(images)
        score = (obj.sigmoid().unsqueeze(-1) * cls.softmax(-1)).flatten(1, 2)
        pb = pb.flatten(1, 2)
        for b in range(len(images)):
            for c in range(CLASSES):
                gt, used = boxes[b][labels[b] == c], set()
                n_gt[c] += len(gt)
                cand = (score[b, :, c] > 0.1).nonzero().flatten()
                for k in nms(pb[b][cand], score[b, cand, c]):
                    i = cand[k]
                    good = False
                    if len(gt):
                        iou, _ = pair_iou(pb[b, i].expand_as(gt), gt)
                        j = int(iou.argmax())
                        good = bool(iou[j] >= 0.5) and j not in used
                        if good:
                            used.add(j)
                    found[c].append((float(score[b, i, c]), good))
    total = 0.0
    for c in range(CLASSES):
        hits = torch.tensor(
            [h for _, h in sorted(found[c], reverse=True)], dtype=torch.float32
        )
        precision = hits.cumsum(0) / torch.arange(1, len(hits) + 1)
        total += float((precision * hits).sum() / max(1, n_gt[c]))
    return total / CLASSES


class ModelEMA:
    def __init__(self, model, decay=0.98, tau=20):
        self.ema = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay, self.tau, self.updates = decay, tau, 0

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        d = self.decay * (1 - math.exp(-self.updates / self.tau))
        src = model.state_dict()
        for k, v in self.ema.state_dict().items():
            if v.dtype.is_floating_point:
                v.mul_(d).add_(src[k], alpha=1 - d)
            else:
                v.copy_(src[k])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    args = ap.parse_args()

    torch.manual_seed(2)
    train = DataLoader(
        PlateScenes(640, 1, flip=True), batch_size=16, shuffle=True, collate_fn=collate
    )
    val = DataLoader(PlateScenes(60, 2), batch_size=20, collate_fn=collate)
    model = Detector()
    ema = ModelEMA(model)
    biases = [p for p in model.parameters() if p.ndim == 1]
    weights = [p for p in model.parameters() if p.ndim > 1]
    opt = torch.optim.SGD(
        [{"params": weights, "weight_decay": 5e-4}, {"params": biases}],
        lr=0.02,
        momentum=0.9,
        nesterov=True,
    )
    warm, drops = max(1, args.steps // 10), (
        int(0.7 * args.steps),
        int(0.9 * args.steps),
    )
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda i: min(1.0, (i + 1) / warm) * 0.2 ** sum(i >= d for d in drops)
    )
    step = 0
    while step < args.steps:
        model.train()
        for images, boxes, labels in train:
            loss, parts = detection_loss(model(images), boxes, labels)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            opt.step()
            sched.step()
            ema.update(model)
            step += 1
            if step % 20 == 0:
                print(
                    f"{step:4d} loss {loss.item():.3f} obj {parts[0]:.3f} box {parts[1]:.3f} cls {parts[2]:.3f}"
                )
            if step == args.steps:
                break
        print(f"     mAP@0.5 (average) {mean_ap50(ema.ema, val):.3f}")


if __name__ == "__main__":
    main()
