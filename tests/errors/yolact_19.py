# Tiny single shot detector (prior boxes, SSD style matching) on synthetic rectangles.
# Wide and tall objects, so three aspect ratios per cell are used.
import argparse
from itertools import product
from math import sqrt

import torch
import torch.nn as nn
import torch.nn.functional as F

cfg = {
    "img": 48,
    "grids": [6, 3],
    "scales": [0.30, 0.55],
    "aspect_ratios": [1.0, 3.0, 1.0 / 3.0],
    "pos_thresh": 0.5,
    "neg_thresh": 0.4,
    "variances": [0.1, 0.2],
    "negpos": 3,
    "batch": 24,
    "lr": 3e-3,
}


def make_prior_boxes(fixed):
    """center-size priors, relative to the picture"""
    out = []
    for grid, scale in zip(cfg["grids"], cfg["scales"]):
        for j, i in product(range(grid), range(grid)):
            x, y = (i + 0.5) / grid, (j + 0.5) / grid
            for ar in cfg["aspect_ratios"]:
                ar = sqrt(ar)
                w = scale * ar
                if fixed:
                    h = scale / ar
                else:
                    h = scale * ar
                out += [x, y, w, h]
    return torch.tensor(out).view(-1, 4)


def point_form(b):
    return torch.cat([b[:, :2] - b[:, 2:] / 2, b[:, :2] + b[:, 2:] / 2], 1)


def jaccard(a, b):
    lo = torch.max(a[:, None, :2], b[None, :, :2])
    hi = torch.min(a[:, None, 2:], b[None, :, 2:])
    inter = (hi - lo).clamp(min=0).prod(2)
    area = lambda t: (t[:, 2] - t[:, 0]) * (t[:, 3] - t[:, 1])
    return inter / (area(a)[:, None] + area(b)[None] - inter)


def scene(gen):
    """one or two bars, class 1 = wide, class 2 = tall"""
    s = cfg["img"]
    img = 0.2 * torch.rand(3, s, s, generator=gen)
    boxes, labels = [], []
    halves = torch.randperm(2, generator=gen)[
        : 1 + int(torch.rand(1, generator=gen) < 0.5)
    ]
    for half in halves.tolist():
        wide = bool(torch.rand(1, generator=gen) < 0.5)
        long = int(torch.randint(20, 30, (1,), generator=gen))
        short = int(torch.randint(7, 11, (1,), generator=gen))
        w, h = (min(long, 22), short) if wide else (short, long)
        x = half * 24 + int(torch.randint(0, 24 - w + 1, (1,), generator=gen))
        y = int(torch.randint(0, s - h + 1, (1,), generator=gen))
        img[:, y : y + h, x : x + w] += torch.rand(3, 1, 1, generator=gen) + 0.3
        boxes.append([x / s, y / s, (x + w) / s, (y + h) / s])
        labels.append(1 if wide else 2)
    return img, torch.tensor(boxes), torch.tensor(labels)


def match(boxes, labels, priors):
    overlaps = jaccard(boxes, point_form(priors))
    best_overlap, best_idx = overlaps.max(0)
    conf = labels[best_idx].clone()
    conf[best_overlap < cfg["pos_thresh"]] = -1
    conf[best_overlap < cfg["neg_thresh"]] = 0
    best_prior = overlaps.argmax(1)  # every object gets at least one prior
    conf[best_prior] = labels
    best_idx[best_prior] = torch.arange(len(boxes))
    g = boxes[best_idx]
    v = cfg["variances"]
    g_cxcy = ((g[:, :2] + g[:, 2:]) / 2 - priors[:, :2]) / (v[0] * priors[:, 2:])
    g_wh = torch.log((g[:, 2:] - g[:, :2]) / priors[:, 2:]) / v[1]
    return torch.cat([g_cxcy, g_wh], 1), conf


class Detector(nn.Module):
    def __init__(self):
        super().__init__()

        def cbr(i, o, s):
            return nn.Sequential(nn.Conv2d(i, o, 3, s, 1), nn.BatchNorm2d(o), nn.ReLU())

        self.stem = nn.Sequential(cbr(3, 16, 2), cbr(16, 24, 2), cbr(24, 32, 2))
        self.extra = cbr(32, 32, 2)
        k = len(cfg["aspect_ratios"])
        self.loc = nn.ModuleList(nn.Conv2d(32, 4 * k, 3, 1, 1) for _ in cfg["grids"])
        self.conf = nn.ModuleList(nn.Conv2d(32, 3 * k, 3, 1, 1) for _ in cfg["grids"])

    def forward(self, x):
        c1 = self.stem(x)
        feats = [c1, self.extra(c1)]
        loc = [
            l(f).permute(0, 2, 3, 1).reshape(len(x), -1, 4)
            for l, f in zip(self.loc, feats)
        ]
        conf = [
            c(f).permute(0, 2, 3, 1).reshape(len(x), -1, 3)
            for c, f in zip(self.conf, feats)
        ]
        return torch.cat(loc, 1), torch.cat(conf, 1)


def multibox_loss(loc, conf, loc_t, conf_t):
    pos = conf_t > 0
    loc_loss = F.smooth_l1_loss(loc[pos], loc_t[pos], reduction="sum")
    ce = F.cross_entropy(
        conf.flatten(0, 1), conf_t.clamp(min=0).flatten(), reduction="none"
    ).view_as(conf_t)
    neg_ce = ce.detach().masked_fill(conf_t != 0, -1)
    rank = neg_ce.argsort(1, descending=True).argsort(1)
    neg = (rank < cfg["negpos"] * pos.sum(1, keepdim=True)) & (conf_t == 0)
    n = pos.sum().clamp(min=1)
    return loc_loss / n, ce[pos | neg].sum() / n


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=80)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--prove", action="store_true")
args = parser.parse_args()

torch.manual_seed(12)
gen = torch.Generator().manual_seed(12)
priors = make_prior_boxes(args.fixed)
data = [scene(gen) for _ in range(400)]
net = Detector()
opt = torch.optim.SGD(net.parameters(), lr=cfg["lr"], momentum=0.9, weight_decay=5e-4)
positives, objects = 0, 0
for it in range(args.steps):
    if it == int(args.steps * 0.75):
        opt.param_groups[0]["lr"] *= 0.1
    pick = torch.randint(0, len(data), (cfg["batch"],), generator=gen).tolist()
    imgs = torch.stack([data[i][0] for i in pick])
    targets = [match(data[i][1], data[i][2], priors) for i in pick]
    loc_t, conf_t = torch.stack([t[0] for t in targets]), torch.stack(
        [t[1] for t in targets]
    )
    loc_loss, conf_loss = multibox_loss(*net(imgs), loc_t, conf_t)
    opt.zero_grad()
    (1.5 * loc_loss + conf_loss).backward()
    opt.step()
    positives += int((conf_t > 0).sum())
    objects += sum(len(data[i][1]) for i in pick)
    if it % 10 == 0 or it == args.steps - 1:
        print(
            f"[{it:4d}] B: {loc_loss.item():.3f} | C: {conf_loss.item():.3f} | "
            f"priors per object {positives / objects:.2f}"
        )

if args.prove:
    ratio = priors[:, 2] / priors[:, 3]
    wanted = torch.tensor(cfg["aspect_ratios"]).repeat(
        len(priors) // len(cfg["aspect_ratios"])
    )
    off = (ratio / wanted - 1).abs().max().item()
    best = (
        torch.cat([jaccard(b, point_form(priors)).max(1).values for _, b, _ in data])
        .mean()
        .item()
    )
    print(
        f"largest error of an aspect ratio {off:.3f}, mean best overlap of an object {best:.3f}"
    )
    print("fault shows:", "yes" if off > 0.01 else "no")
