# %% [markdown]
# # Leaf masks, from small pictures to large ones
# Exported from a notebook. A small U-Net is trained at 16, then 32, then 64 pixels, with a
# fresh optimizer and a one-cycle schedule per size. Before that a learning-rate finder; it
# spoils the weights, which are put back afterwards. Half-way through the last size a
# context block is added to the network and to the optimizer.

# %%
import argparse
import copy
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=120)
STEPS = parser.parse_args().steps
torch.set_num_threads(1)
torch.manual_seed(0)


# %%
def make_leaves(n, seed, size=64):
    """Bright ellipses over a gradient with veins; two to four a picture."""
    g = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, size)
    yy, xx = torch.meshgrid(axis, axis, indexing="ij")
    count = torch.randint(2, 5, (n,), generator=g)
    mask = torch.zeros(n, size, size)
    for k in range(4):
        cx, cy, angle, long = torch.rand(4, n, 1, 1, generator=g)
        cx, cy, angle = 1.6 * cx - 0.8, 1.6 * cy - 0.8, math.pi * angle
        u = (xx - cx) * angle.cos() + (yy - cy) * angle.sin()
        v = (yy - cy) * angle.cos() - (xx - cx) * angle.sin()
        inside = (u / (0.25 + 0.2 * long)) ** 2 + (v / 0.16) ** 2 < 1
        mask = torch.maximum(mask, (inside & (count > k)[:, None, None]).float())
    shade = (
        torch.rand(n, 1, 1, generator=g) * xx + torch.rand(n, 1, 1, generator=g) * yy
    )
    image = 0.5 * shade + 0.8 * mask + 0.4 * torch.randn(n, size, size, generator=g)
    return image[:, None], mask[:, None]


TRAIN, VALID = make_leaves(256, 1), make_leaves(64, 2)


def loaders(size, batch_size):
    out = []
    for (x, y), training in ((TRAIN, True), (VALID, False)):
        k = 64 // size
        x, y = F.avg_pool2d(x, k), (F.avg_pool2d(y, k) > 0.5).float()
        data = TensorDataset(x, y)
        out.append(DataLoader(data, batch_size, shuffle=training, drop_last=training))
    return out


# %%
def conv(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1, bias=False),
        nn.BatchNorm2d(o),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        self.down = nn.ModuleList([conv(1, w), conv(w, 2 * w), conv(2 * w, 4 * w)])
        self.context = nn.Identity()
        self.up = nn.ModuleList([conv(6 * w, 2 * w), conv(3 * w, w)])
        self.head = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.down[0](x)
        b = self.down[1](F.max_pool2d(a, 2))
        c = self.context(self.down[2](F.max_pool2d(b, 2)))
        b = self.up[0](torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        a = self.up[1](torch.cat([F.interpolate(b, scale_factor=2), a], 1))
        return self.head(a)


class Context(nn.Module):
    """Dilated branch, with a gate that starts at zero so that nothing changes at first."""

    def __init__(self, w=32):
        super().__init__()
        self.branch = nn.Sequential(
            nn.Conv2d(w, w, 3, padding=3, dilation=3, groups=w),
            nn.ReLU(),
            nn.Conv2d(w, w, 1),
        )
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return x + self.gate * self.branch(x)


def criterion(logits, y):
    p = torch.sigmoid(logits)
    dice = 1 - (2 * (p * y).sum((1, 2, 3)) + 1) / ((p + y).sum((1, 2, 3)) + 1)
    return F.binary_cross_entropy_with_logits(logits, y) + dice.mean()


def groups(net, lr):
    """Encoder slower than the rest."""
    rest = [*net.up.parameters(), *net.head.parameters()]
    return [
        {"params": list(net.down.parameters()), "lr": lr / 3},
        {"params": rest, "lr": lr},
    ]


# %%
def find_lr(net, loader, low=1e-5, high=1.0, count=24):
    before = copy.deepcopy(net.state_dict())
    opt = torch.optim.AdamW(groups(net, low))
    factor = (high / low) ** (1 / (count - 1))
    smooth, best, history, lr = None, math.inf, [], low
    batches = iter(loader)
    for _ in range(count):
        try:
            x, y = next(batches)
        except StopIteration:
            batches = iter(loader)
            x, y = next(batches)
        loss = criterion(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        smooth = loss.item() if smooth is None else 0.7 * smooth + 0.3 * loss.item()
        history.append((smooth, lr))
        best = min(best, smooth)
        if smooth > 2 * best:
            break
        lr *= factor
        for g in opt.param_groups:
            g["lr"] *= factor
    net.load_state_dict(before)
    return min(max(min(history)[1] / 5, 1e-3), 2e-2)


@torch.no_grad()
def iou(net, loader):
    net.eval()
    both = either = 0
    for x, y in loader:
        p = net(x) > 0
        both += (p & (y > 0)).sum().item()
        either += (p | (y > 0)).sum().item()
    net.train()
    return both / either


# %%
net = UNet()
net.train()
first_loader, _ = loaders(16, 32)
LR = find_lr(net, first_loader)
print(f"suggested learning rate {LR:.4f}")

# %%
shares = [STEPS // 3, STEPS // 3, STEPS - 2 * (STEPS // 3)]
step = 0
for size, batch_size, share in zip((16, 32, 64), (32, 16, 8), shares):
    train_dl, valid_dl = loaders(size, batch_size)
    lr = LR if size == 16 else LR / 2
    opt = torch.optim.AdamW(groups(net, lr), weight_decay=1e-2)
    peaks = [lr / 3, lr]
    done = 0
    while done < share:
        for x, y in train_dl:
            if done == share:
                break
            if size == 64 and done == share // 2:
                net.context = Context()
                opt.add_param_group({"params": list(net.context.parameters())})
                peaks.append(lr)
            t = (done + 1) / share
            scale = (
                t / 0.25
                if t < 0.25
                else 0.5 + 0.5 * math.cos(math.pi * (t - 0.25) / 0.75)
            )
            for g, peak in zip(opt.param_groups, peaks):
                g["lr"] = peak * max(scale, 0.01)
            loss = criterion(net(x), y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            step += 1
            done += 1
            if step % 8 == 0:
                print(f"step {step:3d} size {size} loss {loss.item():.4f}")
    print(f"size {size}: IoU {iou(net, valid_dl):.4f}")

# %%
print(f"gate of the context block: {net.context.gate.item():+.4f}")
