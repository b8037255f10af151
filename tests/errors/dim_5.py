import argparse
import math
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

# A DDPM on 8x8 "two blob" pictures with a gated-convolution sequence mixer.
# The run is done in two sessions, as on a queue with a wall clock limit: the first one
# writes a checkpoint, the second one starts from scratch objects and continues.


def get_dataset(n=512, seed=0):
    g = torch.Generator().manual_seed(seed)
    ax = torch.arange(8).float()
    yy, xx = torch.meshgrid(ax, ax, indexing="ij")
    img = torch.zeros(n, 8, 8)
    p = torch.rand(n, 2, generator=g) * 3 + 0.5
    q = 7 - p
    for c in (p, q):
        img += torch.exp(
            -((xx - c[:, :1, None]) ** 2 + (yy - c[:, 1:, None]) ** 2) / 2.0
        )
    return (img * 2 - 1).clamp(-1, 1).unsqueeze(1)


class Mixer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.inp = nn.Linear(dim, 2 * dim)
        self.fwd = nn.Conv1d(dim, dim, 7, padding=3, groups=dim)
        self.glob = nn.Linear(16, 16)
        self.out = nn.Linear(dim, dim)

    def forward(self, x, emb):
        h, gate = self.inp(self.norm(x) + emb[:, None]).chunk(2, -1)
        h = self.fwd(h.transpose(1, 2))
        h = (h + self.glob(h)).transpose(1, 2)
        return x + self.out(F.silu(gate) * h)


class Net(nn.Module):
    def __init__(self, dim=48, depth=4):
        super().__init__()
        self.embed = nn.Conv2d(1, dim, 2, stride=2)
        self.pos = nn.Parameter(torch.zeros(1, 16, dim))
        self.time = nn.Sequential(nn.Linear(32, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.blocks = nn.ModuleList(Mixer(dim) for _ in range(depth))
        self.final = nn.Linear(dim, 4)

    def forward(self, x, t):
        f = torch.exp(-math.log(1000.0) * torch.arange(16) / 16)
        a = t[:, None].float() * f
        emb = self.time(torch.cat([a.sin(), a.cos()], -1))
        h = self.embed(x).flatten(2).transpose(1, 2) + self.pos
        for b in self.blocks:
            h = b(h, emb)
        h = self.final(h).view(-1, 4, 4, 2, 2).permute(0, 1, 3, 2, 4)
        return h.reshape(-1, 1, 8, 8)


class Diffusion:
    def __init__(self, T=200):
        self.T = T
        self.beta = torch.linspace(1e-4 * 1000 / T, 0.02 * 1000 / T, T)
        self.abar = torch.cumprod(1 - self.beta, 0)

    def loss(self, net, x0, gen):
        t = torch.randint(0, self.T, (len(x0),), generator=gen)
        eps = torch.randn(x0.shape, generator=gen)
        ab = self.abar[t].view(-1, 1, 1, 1)
        return F.mse_loss(net(ab.sqrt() * x0 + (1 - ab).sqrt() * eps, t), eps)


def schedule(step, warmup, total):
    if step < warmup:
        return (step + 1) / warmup
    return 0.02 + 0.98 * 0.5 * (
        1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup))
    )


class TrainState:
    def __init__(self, args):
        self.args = args
        self.step = 0
        self.nnet = Net()
        self.nnet_ema = Net().requires_grad_(False)
        self.nnet_ema.load_state_dict(self.nnet.state_dict())
        self.optimizer = torch.optim.AdamW(
            self.nnet.parameters(), lr=args.lr, weight_decay=0.03, betas=(0.9, 0.95)
        )
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda s: schedule(s, args.warmup, args.steps)
        )

    def ema_update(self, rate=0.98):
        with torch.no_grad():
            for e, p in zip(self.nnet_ema.parameters(), self.nnet.parameters()):
                e.lerp_(p, 1 - rate)

    def save(self, path):
        os.makedirs(path, exist_ok=True)
        torch.save(self.step, os.path.join(path, "step.pth"))
        for key in ("optimizer", "lr_scheduler", "nnet", "nnet_ema"):
            torch.save(
                getattr(self, key).state_dict(), os.path.join(path, key + ".pth")
            )

    def resume(self, path):
        self.step = torch.load(os.path.join(path, "step.pth"))
        keys = ["nnet", "nnet_ema", "optimizer"]
        if self.args.fixed:
            keys.append("lr_scheduler")
        for key in keys:
            getattr(self, key).load_state_dict(
                torch.load(os.path.join(path, key + ".pth"))
            )
        print(f"resumed from step {self.step}")


def train_session(args, data, diffusion, until, ckpt_dir, history):
    state = TrainState(args)
    if os.path.exists(os.path.join(ckpt_dir, "step.pth")):
        state.resume(ckpt_dir)
    gen = torch.Generator().manual_seed(1000 + state.step)
    while state.step < until:
        idx = torch.randint(0, len(data), (args.batch,), generator=gen)
        loss = diffusion.loss(state.nnet, data[idx], gen)
        state.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(state.nnet.parameters(), 1.0)
        history.append((state.step, state.optimizer.param_groups[0]["lr"]))
        state.optimizer.step()
        state.lr_scheduler.step()
        state.ema_update()
        if state.step % 15 == 0:
            print(
                f"step {state.step:4d}  loss {loss.item():.4f}  lr {history[-1][1]:.2e}"
            )
        state.step += 1
    state.save(ckpt_dir)
    return state


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=150)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--warmup", type=int, default=20)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    args = p.parse_args()
    torch.manual_seed(1)
    data, test = get_dataset(), get_dataset(128, 1)
    diffusion = Diffusion()
    history = []
    with tempfile.TemporaryDirectory() as ckpt_dir:
        train_session(args, data, diffusion, args.steps * 3 // 5, ckpt_dir, history)
        state = train_session(args, data, diffusion, args.steps, ckpt_dir, history)
    with torch.no_grad():
        for name, net in (("nnet", state.nnet), ("ema", state.nnet_ema)):
            g = torch.Generator().manual_seed(5)
            val = sum(diffusion.loss(net, test, g).item() for _ in range(4)) / 4
            print(f"test loss ({name}): {val:.4f}")
    if args.prove:
        gap = max(
            abs(lr / args.lr - schedule(s, args.warmup, args.steps))
            for s, lr in history
        )
        print(
            f"largest distance of the learning rate from the schedule (share of peak): {gap:.4f}"
        )
        print("fault shows:", "yes" if gap > 0.01 else "no")


if __name__ == "__main__":
    main()
