"""Finds meteor echoes in patches of a radio waterfall. Echoes are rare, hence the focal loss."""
import argparse
import torch
from torch import nn
import torch.nn.functional as F


def waterfall_patches(n, g, rate=0.12):
    """(n, 1, 16, 32) patches; frequency x time."""
    x = torch.randn(n, 1, 16, 32, generator=g) * 0.7
    y = (torch.rand(n, generator=g) < rate).float()
    t = torch.arange(32).float()
    for i in range(n):
        f0 = int(torch.randint(2, 13, (1,), generator=g))
        t0 = int(torch.randint(2, 18, (1,), generator=g))
        amp = 1.2 + 1.2 * torch.rand(1, generator=g)
        decay = torch.exp(-(t - t0).clamp(min=0) / 7.0) * (t >= t0)
        if y[i] == 1:
            x[i, 0, f0] += amp * decay
            x[i, 0, f0 + 1] += 0.5 * amp * decay
        elif torch.rand(1, generator=g) < 0.6:  # aeroplane: rising, no decay
            x[i, 0, f0] += amp * (t >= t0) * 0.8
        elif torch.rand(1, generator=g) < 0.5:  # spark: all frequencies at once
            x[i, 0, :, t0] += amp
    return x, y


class EchoNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 12, (3, 5), padding=(1, 2))
        self.c2 = nn.Conv2d(12, 24, (3, 5), padding=(1, 2))
        self.norm = nn.GroupNorm(4, 24)
        self.head = nn.Linear(24 * 2, 1)
        nn.init.constant_(self.head.bias, -2.5)  # prior of a rare class

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.c1(x)), (2, 2))
        x = F.relu(self.norm(self.c2(x)))
        x = torch.cat([x.amax((2, 3)), x.mean((2, 3))], dim=1)
        return self.head(x)[:, 0]


def modulation(prob, y, gamma, fixed):
    if fixed:
        p_t = torch.where(y == 1, prob, 1 - prob)
    else:
        p_t = prob
    return (1 - p_t) ** gamma


def focal_loss(logit, y, gamma=2.0, alpha=0.3, fixed=False):
    prob = torch.sigmoid(logit)
    ce = F.binary_cross_entropy_with_logits(logit, y, reduction="none")
    a_t = torch.where(y == 1, alpha, 1 - alpha)
    return (a_t * modulation(prob, y, gamma, fixed) * ce).mean()


@torch.no_grad()
def metrics(net, x, y):
    score = torch.cat([net(c) for c in x.split(256)])
    order = score.argsort(descending=True)
    hit = y[order]
    precision = hit.cumsum(0) / torch.arange(1, len(y) + 1)
    ap = (precision * hit).sum() / hit.sum()
    alarm = score > 0
    p = (alarm & (y == 1)).sum() / alarm.sum().clamp(min=1)
    r = (alarm & (y == 1)).sum() / y.sum()
    f1 = 2 * p * r / (p + r).clamp(min=1e-8)
    brier = ((torch.sigmoid(score) - y) ** 2).mean()
    return ap.item(), f1.item(), brier.item()


def run(opts):
    torch.manual_seed(8)
    g = torch.Generator().manual_seed(8)
    x, y = waterfall_patches(1200, g)
    xv, yv = waterfall_patches(600, g)
    net = EchoNet()
    opt = torch.optim.AdamW(net.parameters(), lr=opts.lr, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.OneCycleLR(
        opt, max_lr=opts.lr, total_steps=opts.steps
    )

    n_batch = 64
    worst = 0.0
    for step in range(opts.steps):
        idx = torch.randint(len(x), (n_batch,), generator=g)
        logit = net(x[idx])
        loss = focal_loss(logit, y[idx], gamma=opts.gamma, fixed=opts.fixed)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        opt.step()
        sched.step()

        if opts.prove:
            with torch.no_grad():
                prob = torch.sigmoid(logit)
                used = modulation(prob, y[idx], opts.gamma, opts.fixed)
                miss = (prob - y[idx]).abs() ** opts.gamma
                worst = max(worst, (used - miss).abs().max().item())
        if step % 20 == 0:
            print(
                f"step {step:3d}  focal {loss.item():.5f}  lr {sched.get_last_lr()[0]:.2e}"
            )
        if (step + 1) % 60 == 0:
            ap, f1, brier = metrics(net, xv, yv)
            print(f"   validation: AP {ap:.3f}  F1 {f1:.3f}  Brier {brier:.4f}")

    ap, f1, brier = metrics(net, xv, yv)
    print(f"final: AP {ap:.3f}  F1 {f1:.3f}  Brier {brier:.4f}")
    if opts.prove:
        print(f"largest distance between factor used and |p - y|^gamma: {worst:.4f}")
        print("fault shows: yes" if worst > 0.01 else "fault shows: no")


if __name__ == "__main__":
    ap_ = argparse.ArgumentParser()
    ap_.add_argument("--steps", type=int, default=180)
    ap_.add_argument("--lr", type=float, default=3e-3)
    ap_.add_argument("--gamma", type=float, default=2.0)
    ap_.add_argument("--fixed", action="store_true")
    ap_.add_argument("--prove", action="store_true")
    run(ap_.parse_args())
