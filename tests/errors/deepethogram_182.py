"""Two-stage video pipeline.

Stage 1 learns optical flow between frame pairs without labels; the checkpoint chosen by the
monitored validation metric is handed to stage 2, which classifies behaviour from that flow.
"""
import argparse
import copy
import math
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

HW, BEHAVIOURS = 20, 4
MOVES = torch.tensor([[2.0, 0.0], [-2.0, 0.0], [0.0, 2.0], [0.0, -2.0]])


def frame_pairs(n, seed):
    g = torch.Generator().manual_seed(seed)
    noise = torch.randn(n, 1, HW + 12, HW + 12, generator=g)
    k = torch.exp(-torch.linspace(-2, 2, 7) ** 2)
    k = (k[:, None] * k[None]).view(1, 1, 7, 7)
    tex = F.conv2d(noise, k / k.norm(), padding=3)
    y = torch.randint(BEHAVIOURS, (n,), generator=g)
    a, b = [], []
    for i in range(n):
        dx, dy = MOVES[y[i]].int().tolist()
        a.append(tex[i, :, 6 : 6 + HW, 6 : 6 + HW])
        b.append(tex[i, :, 6 - dy : 6 - dy + HW, 6 - dx : 6 - dx + HW])
    pairs = torch.cat([torch.stack(a), torch.stack(b)], 1)
    return pairs + 0.05 * torch.randn(pairs.shape, generator=g), y


def warp(img, flow):
    n, _, h, w = img.shape
    ys, xs = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    gx = (xs + flow[:, 0]) * 2 / (w - 1) - 1
    gy = (ys + flow[:, 1]) * 2 / (h - 1) - 1
    return F.grid_sample(
        img, torch.stack([gx, gy], -1), align_corners=True, padding_mode="border"
    )


def ssim_map(x, y, c1=0.01, c2=0.03):
    mx, my = F.avg_pool2d(x, 3, 1), F.avg_pool2d(y, 3, 1)
    vx = F.avg_pool2d(x * x, 3, 1) - mx**2
    vy = F.avg_pool2d(y * y, 3, 1) - my**2
    cov = F.avg_pool2d(x * y, 3, 1) - mx * my
    s = ((2 * mx * my + c1) * (2 * cov + c2)) / (
        (mx**2 + my**2 + c1) * (vx + vy + c2)
    )
    return ((1 - s) / 2).clamp(0, 1)


class MotionNet(nn.Module):
    def __init__(self, w=16):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(2, w, 5, padding=2),
            nn.ReLU(),
            nn.Conv2d(w, w, 5, padding=2),
            nn.ReLU(),
            nn.Conv2d(w, w, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(w, 2, 3, padding=1),
        )

    def forward(self, pairs):
        return 4 * torch.tanh(self.net(pairs) / 4)


def flow_losses(model, pairs):
    flow = model(pairs)
    rec = warp(pairs[:, 1:], flow)
    l1 = (rec - pairs[:, :1]).abs().mean()
    ssim = ssim_map(rec, pairs[:, :1]).mean()
    smooth = (flow[..., 1:] - flow[..., :-1]).abs().mean() + (
        flow[..., 1:, :] - flow[..., :-1, :]
    ).abs().mean()
    return {
        "loss": l1 + ssim + 0.1 * smooth,
        "L1": l1,
        "SSIM": ssim,
        "smoothness": smooth,
    }


class ModelCheckpoint:
    def __init__(self, folder, monitor, mode=None):
        self.path, self.monitor = os.path.join(folder, "best.pt"), monitor
        self.mode = mode or ("min" if "loss" in monitor else "max")
        self.best, self.epoch = (math.inf if self.mode == "min" else -math.inf), None

    def __call__(self, model, logs, epoch):
        value = logs[self.monitor]
        if (value < self.best) if self.mode == "min" else (value > self.best):
            self.best, self.epoch = value, epoch
            torch.save({"state_dict": model.state_dict(), "epoch": epoch}, self.path)


def train_flow(args, folder):
    pairs, _ = frame_pairs(512, seed=1)
    val, _ = frame_pairs(128, seed=2)
    model = MotionNet()
    opt = torch.optim.Adam(model.parameters(), lr=args.flow_lr)
    ckpt = ModelCheckpoint(folder, "SSIM", mode="min" if args.fixed else None)
    history = []
    for epoch in range(args.epochs):
        for idx in torch.randperm(len(pairs)).split(32):
            loss = flow_losses(model, pairs[idx])["loss"]
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            logs = {k: v.item() for k, v in flow_losses(model, val).items()}
        ckpt(model, logs, epoch)
        history.append(logs)
        print(
            f"flow epoch {epoch}: train {loss.item():.4f}  "
            + "  ".join(f"val/{k} {v:.4f}" for k, v in logs.items())
        )
    return ckpt, history


class FlowClassifier(nn.Module):
    def __init__(self, flow_net):
        super().__init__()
        self.flow_net = flow_net.requires_grad_(False)
        self.features = nn.Sequential(
            nn.Conv2d(2, 8, 3, stride=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(3),
            nn.Flatten(),
        )
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(72, BEHAVIOURS)

    def forward(self, pairs):
        with torch.no_grad():
            flow = self.flow_net(pairs)
        return self.fc(self.drop(self.features(flow)))


def train_classifier(args, path):
    state = torch.load(path)
    flow_net = MotionNet()
    flow_net.load_state_dict(state["state_dict"])
    print(f"flow weights taken from epoch {state['epoch']}")
    x, y = frame_pairs(160, seed=3)
    xv, yv = frame_pairs(300, seed=4)
    torch.manual_seed(args.seed + 1)
    model = FlowClassifier(copy.deepcopy(flow_net))
    opt = torch.optim.Adam(
        [p for p in model.parameters() if p.requires_grad], lr=args.cls_lr
    )
    for epoch in range(args.epochs):
        model.train()
        for idx in torch.randperm(len(x)).split(32):
            loss = F.cross_entropy(model(x[idx]), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
        if epoch % 3 == 0 or epoch == args.epochs - 1:
            model.eval()
            with torch.no_grad():
                acc = (model(xv).argmax(-1) == yv).float().mean().item()
            print(
                f"classifier epoch {epoch}: loss {loss.item():.4f}  val accuracy {acc:.3f}"
            )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=9)
    ap.add_argument("--flow-lr", type=float, default=2e-3)
    ap.add_argument("--cls-lr", type=float, default=3e-3)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        ckpt, history = train_flow(args, folder)
        train_classifier(args, ckpt.path)
    if args.prove:
        by_loss = sorted(range(len(history)), key=lambda e: history[e]["loss"])
        rank = by_loss.index(ckpt.epoch)
        print(
            f"kept epoch {ckpt.epoch}: rank {rank + 1} of {len(history)} by validation loss"
        )
        print("fault shows:", "yes" if rank >= len(history) / 2 else "no")


if __name__ == "__main__":
    main()
