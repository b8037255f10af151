"""Unconditional DDPM on 8x8 glyphs with an exponential moving average of the weights."""
import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

SIZE = 8


def glyphs(n, seed):
    """Filled rectangles, crosses and diagonals with random position and brightness."""
    g = torch.Generator().manual_seed(seed)
    img = -torch.ones(n, 1, SIZE, SIZE)
    kind = torch.randint(0, 3, (n,), generator=g)
    pos = torch.randint(0, 4, (n, 2), generator=g)
    val = 0.6 + 0.4 * torch.rand(n, generator=g)
    for i in range(n):
        r, c = pos[i].tolist()
        patch = img[i, 0, r : r + 5, c : c + 5]
        if kind[i] == 0:
            patch[:4, :4] = val[i]
        elif kind[i] == 1:
            patch[2, :] = val[i]
            patch[:, 2 if patch.shape[1] > 2 else 0] = val[i]
        else:
            patch.fill_diagonal_(val[i].item())
    return img + 0.02 * torch.randn(img.shape, generator=g)


class TinyUNet(nn.Module):
    def __init__(self, ch=24):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, ch), nn.SiLU(), nn.Linear(ch, ch))
        self.inc = nn.Conv2d(1, ch, 3, padding=1)
        self.down = nn.Conv2d(ch, ch, 3, stride=2, padding=1)
        self.mid = nn.Conv2d(ch, ch, 3, padding=1)
        self.up = nn.ConvTranspose2d(ch, ch, 2, stride=2)
        self.join = nn.Conv2d(2 * ch, ch, 3, padding=1)
        self.outc = nn.Conv2d(ch, 1, 3, padding=1)
        self.n1, self.n2, self.n3 = (nn.GroupNorm(4, ch) for _ in range(3))

    def forward(self, x, t):
        f = torch.exp(-torch.arange(8) * 0.9)
        ang = t[:, None].float() * f
        e = self.time(torch.cat([ang.sin(), ang.cos()], 1))[:, :, None, None]
        h0 = self.inc(x)
        h = F.silu(self.n1(self.down(h0) + e))
        h = h + F.silu(self.n2(self.mid(h) + e))
        h = torch.cat([self.up(h), h0], 1)
        return self.outc(F.silu(self.n3(self.join(h) + e)))


class Scheduler:
    def __init__(self, n=100):
        self.n = n
        self.beta = torch.linspace(1e-3, 0.08, n)
        self.abar = torch.cumprod(1 - self.beta, 0)

    def add_noise(self, x, eps, t):
        a = self.abar[t][:, None, None, None]
        return a.sqrt() * x + (1 - a).sqrt() * eps

    def ddim(self, model, n, gen, steps=20):
        x = torch.randn(n, 1, SIZE, SIZE, generator=gen)
        ts = torch.linspace(self.n - 1, 0, steps).long().tolist()
        for i, t in enumerate(ts):
            a = self.abar[t]
            eps = model(x, torch.full((n,), t))
            x0 = ((x - (1 - a).sqrt() * eps) / a.sqrt()).clamp(-1, 1)
            nxt = self.abar[ts[i + 1]] if i + 1 < len(ts) else torch.tensor(1.0)
            x = nxt.sqrt() * x0 + (1 - nxt).sqrt() * eps
        return x


class EMAModel:
    def __init__(self, params, decay):
        self.decay = decay
        self.shadow = [p.detach().clone() for p in params]
        self.kept = None

    @torch.no_grad()
    def step(self, params):
        for s, p in zip(self.shadow, params):
            s.lerp_(p, 1 - self.decay)

    def store(self, params):
        self.kept = [p.detach().clone() for p in params]

    @torch.no_grad()
    def copy_to(self, params):
        for s, p in zip(self.shadow, params):
            p.copy_(s)

    @torch.no_grad()
    def restore(self, params):
        for k, p in zip(self.kept, params):
            p.copy_(k)
        self.kept = None


@torch.no_grad()
def log_validation(model, sched, val, seed):
    gen = torch.Generator().manual_seed(seed)
    model.eval()
    eps = torch.randn(val.shape, generator=gen)
    t = torch.randint(0, sched.n, (len(val),), generator=gen)
    loss = F.mse_loss(model(sched.add_noise(val, eps, t), t), eps).item()
    fake = sched.ddim(model, 48, gen)
    near = torch.cdist(fake.flatten(1), val.flatten(1)).min(1).values.mean().item()
    model.train()
    return loss, near


def validate(unet, ema, sched, val, args, epoch):
    params = list(unet.parameters())
    ema.store(params)
    ema.copy_to(params)
    loss, near = log_validation(unet, sched, val, args.seed)
    print(
        f"  validation after epoch {epoch}: denoising loss {loss:.4f}  sample distance {near:.3f}"
    )
    if args.fixed:
        ema.restore(params)
    return loss


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=10)
    ap.add_argument("--batch-size", type=int, default=64)
    ap.add_argument("--validation-epochs", type=int, default=2)
    ap.add_argument("--ema-decay", type=float, default=0.98)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    loader = DataLoader(
        TensorDataset(glyphs(896, args.seed)), batch_size=args.batch_size, shuffle=True
    )
    val = glyphs(256, args.seed + 1)
    unet, sched = TinyUNet(), Scheduler()
    ema = EMAModel(unet.parameters(), args.ema_decay)
    opt = torch.optim.AdamW(unet.parameters(), lr=args.lr)
    global_step, moved = 0, []

    for epoch in range(1, args.epochs + 1):
        total = 0.0
        for (x,) in loader:
            eps = torch.randn_like(x)
            t = torch.randint(0, sched.n, (len(x),))
            loss = F.mse_loss(unet(sched.add_noise(x, eps, t), t), eps)
            opt.zero_grad()
            loss.backward()
            opt.step()
            ema.step(unet.parameters())
            global_step += 1
            total += loss.item()
        print(
            f"epoch {epoch:2d}  step {global_step}  train loss {total / len(loader):.4f}"
        )
        if epoch % args.validation_epochs == 0:
            before = copy.deepcopy(unet.state_dict())
            validate(unet, ema, sched, val, args, epoch)
            after = unet.state_dict()
            moved.append(max((after[k] - before[k]).abs().max().item() for k in before))

    ema.copy_to(unet.parameters())
    loss, near = log_validation(unet, sched, val, args.seed + 5)
    print(
        f"final averaged model: denoising loss {loss:.4f}  sample distance {near:.3f}"
    )

    if args.prove:
        print(
            "largest weight change across each validation:",
            " ".join(f"{m:.5f}" for m in moved),
        )
        print("fault shows:", "yes" if moved and max(moved) > 0 else "no")


if __name__ == "__main__":
    main()
