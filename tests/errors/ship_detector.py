"""
Anchor-free detector for one ship in a radar tile (course project, after FCOS).
Each cell of a 6x6 grid predicts class score, quality and the four distances to the box sides.
"""
import argparse
import torch
import torch.nn as nn
import torch.nn.functional as F

TILE, STRIDE = 24, 4
GRID = TILE // STRIDE


def make_tiles(n, seed):
    g = torch.Generator().manual_seed(seed)
    wh = torch.randint(5, 13, (n, 2), generator=g).float()
    xy = torch.rand(n, 2, generator=g) * (TILE - wh)
    boxes = torch.cat([xy, xy + wh], 1)
    kind = torch.randint(0, 3, (n,), generator=g)
    ys, xs = torch.meshgrid(torch.arange(TILE), torch.arange(TILE), indexing="ij")
    inside = (
        (xs >= boxes[:, 0, None, None])
        & (xs < boxes[:, 2, None, None])
        & (ys >= boxes[:, 1, None, None])
        & (ys < boxes[:, 3, None, None])
    ).float()
    stripes = torch.stack(
        [
            torch.ones(TILE, TILE),
            (xs % 3 == 0).float() * 1.5,
            (ys % 3 == 0).float() * 1.5,
        ]
    )
    tiles = inside * stripes[kind] + 0.35 * torch.randn(n, TILE, TILE, generator=g)
    return tiles.unsqueeze(1), boxes, kind


def cell_centres():
    c = (torch.arange(GRID) + 0.5) * STRIDE
    y, x = torch.meshgrid(c, c, indexing="ij")
    return torch.stack([x.flatten(), y.flatten()], 1)  # (36, 2)


class Detector(nn.Module):
    def __init__(self, n_cls=3, c=16):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, c, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(c, c, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(c, c, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(c, c, 3, padding=1),
            nn.ReLU(),
        )
        self.cls = nn.Conv2d(c, n_cls, 1)
        self.quality = nn.Conv2d(c, 1, 1)
        self.box = nn.Conv2d(c, 4, 1)
        nn.init.constant_(self.cls.bias, -2.0)

    def forward(self, x):
        f = self.backbone(x)
        flat = lambda t: t.flatten(2).transpose(1, 2)
        return flat(self.cls(f)), flat(self.quality(f)).squeeze(-1), flat(self.box(f))


def decode(raw, centres):
    d = F.softplus(raw) * STRIDE
    return torch.cat([centres - d[..., :2], centres + d[..., 2:]], -1)


def box_iou(a, b):
    lt = torch.maximum(a[..., :2], b[..., :2])
    rb = torch.minimum(a[..., 2:], b[..., 2:])
    inter = (rb - lt).clamp(min=0).prod(-1)
    area = lambda t: (t[..., 2:] - t[..., :2]).clamp(min=0).prod(-1)
    return inter / (area(a) + area(b) - inter + 1e-6)


class DetectionLoss:
    def __init__(self, fixed):
        self.centres = cell_centres()
        self.fixed = fixed

    def __call__(self, outputs, boxes, kind):
        cls, quality, raw = outputs
        gt = boxes[:, None, :].expand(-1, raw.shape[1], -1)
        # positives: cell centres lying within the box
        c = self.centres
        pos = ((c >= gt[..., :2]) & (c < gt[..., 2:])).all(-1)
        with torch.no_grad():
            decoded = decode(raw, c)
            iou = box_iou(decoded, gt)
            quality_target = iou[pos]
        if self.fixed:
            iou = box_iou(decode(raw, c), gt)

        target = torch.zeros_like(cls)
        target[pos] = F.one_hot(kind, 3).float()[:, None].expand_as(cls)[pos]
        n_pos = pos.sum().clamp(min=1)
        loss_cls = (
            F.binary_cross_entropy_with_logits(cls, target, reduction="sum") / n_pos
        )
        loss_quality = F.binary_cross_entropy_with_logits(quality[pos], quality_target)
        loss_box = (1 - iou[pos]).mean()
        return {"cls": loss_cls, "box": 2.0 * loss_box, "quality": 0.5 * loss_quality}


@torch.no_grad()
def evaluate(model, tiles, boxes, kind):
    model.eval()
    cls, quality, raw = model(tiles)
    score, label = (cls.sigmoid() * quality.sigmoid().unsqueeze(-1)).max(-1)
    best = score.argmax(1)
    rows = torch.arange(len(tiles))
    pred = decode(raw, cell_centres())[rows, best]
    iou = box_iou(pred, boxes)
    right = label[rows, best] == kind
    model.train()
    return iou.mean().item(), right.float().mean().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=150)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    args = p.parse_args()
    torch.manual_seed(5)
    tiles, boxes, kind = make_tiles(640, 1)
    v_tiles, v_boxes, v_kind = make_tiles(128, 2)
    model = Detector()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    criterion = DetectionLoss(args.fixed)
    meter = {}
    for step in range(args.steps):
        idx = torch.randint(0, len(tiles), (args.batch,))
        losses = criterion(model(tiles[idx]), boxes[idx], kind[idx])
        loss = sum(losses.values())
        opt.zero_grad()
        loss.backward()
        opt.step()
        for k, v in losses.items():
            meter[k] = meter.get(k, 0.0) + v.item() / 25
        if (step + 1) % 25 == 0:
            iou, acc = evaluate(model, v_tiles, v_boxes, v_kind)
            print(
                f"[{step + 1:4d}] "
                + " ".join(f"{k} {v:.3f}" for k, v in meter.items())
                + f" | val IoU {iou:.3f} acc {acc:.3f}"
            )
            meter = {}
    if args.prove:
        moved = (model.box.weight - before["box.weight"]).abs().max().item()
        print(f"# largest change of the box head's weights: {moved:.6f}")
        print("fault shows:", "yes" if moved == 0 else "no")


if __name__ == "__main__":
    main()
