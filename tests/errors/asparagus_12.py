import argparse
import torch
import torch.nn as nn
import torch.nn.functional as F


class Volumes(torch.utils.data.Dataset):
    """Smooth synthetic head-like volumes, 16^3 voxels, mirrored about the mid plane."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        ax = torch.linspace(-1, 1, 16)
        z, y, x = torch.meshgrid(ax, ax, ax, indexing="ij")
        vols = []
        for _ in range(n):
            r = torch.rand(3, generator=g) * 0.3 + 0.65
            shell = torch.sigmoid(
                12 * (1 - (z / r[0]) ** 2 - (y / r[1]) ** 2 - (x / r[2]) ** 2)
            )
            v = 0.5 * shell
            for _ in range(3):
                c = torch.rand(3, generator=g) - 0.5
                w = 0.04 + 0.06 * torch.rand(1, generator=g)
                d = (z - c[0]) ** 2 + (y - c[1]) ** 2 + (x.abs() - c[2].abs()) ** 2
                v = v + (torch.rand(1, generator=g) - 0.3) * torch.exp(-d / w)
            v = v + 0.02 * torch.randn(v.shape, generator=g)
            vols.append((v - v.mean()) / v.std())
        self.data = torch.stack(vols).unsqueeze(1)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return self.data[i]


class BlockMask:
    """mask == True for voxels that stay visible, False for voxels taken away."""

    def __init__(self, ratio, block=4, seed=0):
        self.ratio, self.block = ratio, block
        self.gen = torch.Generator().manual_seed(seed)

    def __call__(self, x):
        b, _, d, h, w = x.shape
        k = self.block
        keep = (
            torch.rand(b, 1, d // k, h // k, w // k, generator=self.gen) >= self.ratio
        )
        mask = (
            keep.repeat_interleave(k, 2).repeat_interleave(k, 3).repeat_interleave(k, 4)
        )
        return x * mask, mask


class ConvBlock(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv = nn.Conv3d(cin, cout, 3, stride=stride, padding=1)
        self.norm = nn.InstanceNorm3d(cout, affine=True)

    def forward(self, x):
        return F.leaky_relu(self.norm(self.conv(x)), 0.01)


class UNet3D(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        self.e1, self.e2, self.e3 = (
            ConvBlock(1, w),
            ConvBlock(w, 2 * w, 2),
            ConvBlock(2 * w, 4 * w, 2),
        )
        self.bott = ConvBlock(4 * w, 4 * w)
        self.u2, self.d2 = nn.ConvTranspose3d(4 * w, 2 * w, 2, 2), ConvBlock(
            4 * w, 2 * w
        )
        self.u1, self.d1 = nn.ConvTranspose3d(2 * w, w, 2, 2), ConvBlock(2 * w, w)
        self.out = nn.Conv3d(w, 1, 1)

    def forward(self, x):
        a = self.e1(x)
        b = self.e2(a)
        c = self.bott(self.e3(b))
        b = self.d2(torch.cat([self.u2(c), b], 1))
        return self.out(self.d1(torch.cat([self.u1(b), a], 1)))


class SelfSupervised(nn.Module):
    def __init__(self, net, masker, fixed, rec_loss_masked_only=True):
        super().__init__()
        self.net, self.masker = net, masker
        self.rec_loss_masked_only = rec_loss_masked_only
        self.fixed = fixed
        self._rec_loss_fn = nn.MSELoss()

    def _rec_loss(self, pred, y, mask=None):
        if mask is not None:
            if self.fixed:
                return self._rec_loss_fn(pred[~mask], y[~mask])
            pred, y = pred.clone(), y.clone()
            pred[~mask] = 0
            y[~mask] = 0
        return self._rec_loss_fn(pred, y)

    def training_step(self, y):
        x, mask = self.masker(y)
        pred = self.net(x)
        return self._rec_loss(pred, y, mask if self.rec_loss_masked_only else None)


@torch.no_grad()
def hidden_region_error(model, data, ratio):
    model.eval()
    masker = BlockMask(ratio, seed=123)
    num = den = base = 0.0
    for i in range(0, len(data), 16):
        y = torch.stack([data[j] for j in range(i, min(i + 16, len(data)))])
        x, mask = masker(y)
        err = (model.net(x) - y)[~mask]
        num += err.pow(2).sum().item()
        base += (y[~mask] - y.mean()).pow(2).sum().item()
        den += err.numel()
    model.train()
    return num / den, base / den


def main(a):
    torch.manual_seed(a.seed)
    train, val = Volumes(96, 10), Volumes(32, 11)
    loader = torch.utils.data.DataLoader(
        train, batch_size=a.batch_size, shuffle=True, drop_last=True
    )
    model = SelfSupervised(UNet3D(), BlockMask(a.mask_ratio, seed=a.seed), a.fixed)
    opt = torch.optim.AdamW(model.parameters(), lr=a.lr, weight_decay=3e-5)
    sched = torch.optim.lr_scheduler.PolynomialLR(opt, total_iters=a.steps, power=0.9)
    step = 0
    while step < a.steps:
        for y in loader:
            if step == a.steps:
                break
            loss = model.training_step(y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 12.0)
            opt.step()
            sched.step()
            if step % 10 == 0:
                print(
                    f"step {step:3d}  rec_loss {loss.item():.4f}  lr {sched.get_last_lr()[0]:.2e}"
                )
            step += 1
    err, base = hidden_region_error(model, val, a.mask_ratio)
    print(f"val: mse on removed voxels {err:.4f} (constant predictor {base:.4f})")

    if a.prove:
        y = torch.stack([val[i] for i in range(4)])
        x, mask = model.masker(y)
        pred = model.net(x).detach().requires_grad_(True)
        model._rec_loss(pred, y, mask).backward()
        g = pred.grad.abs()
        share = (g[~mask].sum() / g.sum()).item()
        print(f"share of the loss gradient on removed voxels {share:.4f}")
        print("fault shows:", "yes" if share < 0.5 else "no")


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=70)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--mask-ratio", type=float, default=0.6)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    main(p.parse_args())
