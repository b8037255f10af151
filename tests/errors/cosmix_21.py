# Mean-teacher domain adaptation for segmentation: labelled source scans, unlabelled target scans.
import argparse, copy
import numpy as np
import torch, torch.nn as nn, torch.nn.functional as F

NUM_CLASSES = 3


def synth_scans(rng, count, domain):
    imgs = np.zeros((count, 1, 24, 24), np.float32)
    labs = np.zeros((count, 24, 24), np.int64)
    yy, xx = np.mgrid[0:24, 0:24]
    for i in range(count):
        base = rng.normal(0.0, 0.08, (24, 24))
        cy, cx, r = rng.uniform(6, 17), rng.uniform(6, 17), rng.uniform(3, 6)
        disc = (yy - cy) ** 2 + (xx - cx) ** 2 < r * r
        y0, x0 = rng.integers(0, 16, 2)
        bar = (yy >= y0) & (yy < y0 + 4) & (xx >= x0) & (xx < x0 + 8) & ~disc
        labs[i][disc], labs[i][bar] = 1, 2
        base = base + 0.9 * disc + 0.45 * bar
        if domain == "target":
            base = 1.1 * base + 0.2 + 0.1 * rng.normal(size=(24, 24)) + 0.004 * xx
        imgs[i, 0] = base
    return torch.from_numpy(imgs), torch.from_numpy(labs)


def block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
    )


class SegNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.down1, self.down2 = block(1, width), block(width, 2 * width)
        self.mid = block(2 * width, 2 * width)
        self.up = block(3 * width, width)
        self.cls = nn.Conv2d(width, NUM_CLASSES, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.mid(self.down2(F.max_pool2d(a, 2)))
        b = F.interpolate(b, scale_factor=2, mode="nearest")
        return self.cls(self.up(torch.cat([a, b], 1)))


class MomentumUpdater:
    def __init__(self, tau, fixed):
        self.tau, self.fixed = tau, fixed

    @torch.no_grad()
    def update(self, online, momentum):
        for po, pm in zip(online.parameters(), momentum.parameters()):
            pm.mul_(self.tau).add_(po, alpha=1 - self.tau)
        if self.fixed:
            for bo, bm in zip(online.buffers(), momentum.buffers()):
                if bm.is_floating_point():
                    bm.mul_(self.tau).add_(bo, alpha=1 - self.tau)
                else:
                    bm.copy_(bo)


def mix(src_x, src_y, tgt_x, tgt_y, gen):
    """Paste a random rectangle of the source scan into the target scan."""
    x, y = tgt_x.clone(), tgt_y.clone()
    for i in range(len(x)):
        top, left = torch.randint(0, 12, (2,), generator=gen).tolist()
        x[i, :, top : top + 12, left : left + 12] = src_x[
            i, :, top : top + 12, left : left + 12
        ]
        y[i, top : top + 12, left : left + 12] = src_y[
            i, top : top + 12, left : left + 12
        ]
    return x, y


def mean_iou(net, x, y):
    net.eval()
    with torch.no_grad():
        pred = net(x).argmax(1)
    ious = []
    for c in range(NUM_CLASSES):
        inter = ((pred == c) & (y == c)).sum().item()
        union = ((pred == c) | (y == c)).sum().item()
        ious.append(inter / max(union, 1))
    return sum(ious) / len(ious)


def bn_layers(net):
    return [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)]


# size: the whole run in one place, read from top to bottom
def run(opt):
    torch.manual_seed(opt.seed)
    rng = np.random.default_rng(opt.seed)
    gen = torch.Generator().manual_seed(opt.seed)
    sx, sy = synth_scans(rng, 160, "source")
    tx, _ = synth_scans(rng, 160, "target")
    vx, vy = synth_scans(rng, 60, "target")

    student = SegNet()
    optim = torch.optim.SGD(
        student.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4
    )

    student.train()
    for it in range(opt.warmup):
        idx = torch.randint(0, len(sx), (opt.batch,), generator=gen)
        loss = F.cross_entropy(student(sx[idx]), sy[idx])
        optim.zero_grad()
        loss.backward()
        optim.step()
    print(
        f"source warm-up done, loss {loss.item():.3f}, target mIoU {mean_iou(student, vx, vy):.3f}"
    )

    teacher = copy.deepcopy(student)
    for p in teacher.parameters():
        p.requires_grad_(False)
    audit = [
        (m.running_mean.clone(), m.running_var.clone()) for m in bn_layers(teacher)
    ]
    updater = MomentumUpdater(opt.tau, opt.fixed)

    for it in range(opt.steps):
        i = torch.randint(0, len(sx), (opt.batch,), generator=gen)
        j = torch.randint(0, len(tx), (opt.batch,), generator=gen)
        teacher.eval()
        with torch.no_grad():
            prob = teacher(tx[j]).softmax(1)
            conf, pseudo = prob.max(1)
            pseudo = pseudo.masked_fill(conf < opt.threshold, 255)
        mx, my = mix(sx[i], sy[i], tx[j], pseudo, gen)
        student.train()
        sup = F.cross_entropy(student(sx[i]), sy[i])
        uns = F.cross_entropy(student(mx), my, ignore_index=255)
        loss = sup + uns
        optim.zero_grad()
        loss.backward()
        optim.step()
        updater.update(student, teacher)
        if opt.prove:
            audit = [
                (
                    opt.tau * m + (1 - opt.tau) * l.running_mean,
                    opt.tau * v + (1 - opt.tau) * l.running_var,
                )
                for (m, v), l in zip(audit, bn_layers(student))
            ]
        if it % 15 == 0 or it == opt.steps - 1:
            kept = (pseudo != 255).float().mean().item()
            print(
                f"iter {it:3d} loss {loss.item():.3f} (sup {sup.item():.3f}) pseudo kept {kept:.2f}"
            )

    print(
        f"target mIoU: student {mean_iou(student, vx, vy):.3f} teacher {mean_iou(teacher, vx, vy):.3f}"
    )
    if opt.prove:
        gap = 0.0
        for (m, v), layer in zip(audit, bn_layers(teacher)):
            gap = max(
                gap,
                ((layer.running_mean - m).norm() / (m.norm() + 1e-6)).item(),
                ((layer.running_var - v).norm() / (v.norm() + 1e-6)).item(),
            )
        print(
            f"largest relative distance of teacher statistics from the moving average of the student's: {gap:.4f}"
        )
        print("fault shows:", "yes" if gap > 0.02 else "no")


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--warmup", type=int, default=20)
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--tau", type=float, default=0.95)
    p.add_argument("--threshold", type=float, default=0.6)
    p.add_argument("--seed", type=int, default=3)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    run(p.parse_args())
