"""An adversarial vocoder, from features to pieces of a wave, in half precision.

After IAHispano/Applio, pull request 860.
"""

import argparse
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Config:
    frames: int = 8
    hop: int = 8
    feats: int = 5
    n_train: int = 448
    n_val: int = 96
    batch_size: int = 32
    epochs: int = 5
    lr: float = 2e-3
    lr_decay: float = 0.95
    betas: tuple = (0.8, 0.99)
    c_spec: float = 10.0
    c_fm: float = 2.0
    fp16: bool = True
    seed: int = 53


def voices(n, cfg, seed):
    g = torch.Generator().manual_seed(seed)
    f0 = (
        0.02
        + 0.06 * torch.rand(n, 1, generator=g)
        + 0.01 * torch.randn(n, cfg.frames, generator=g)
    )
    amp = 0.3 + 0.6 * torch.rand(n, cfg.frames, generator=g)
    harm = torch.rand(n, 3, generator=g)
    up = lambda v: v.repeat_interleave(cfg.hop, 1)
    phase = 6.2832 * torch.cumsum(up(f0), 1)
    wave = (
        sum(harm[:, k : k + 1] * torch.sin((k + 1) * phase) for k in range(3))
        * up(amp)
        / 1.2
    )
    wave = wave + 0.04 * torch.randn(wave.shape, generator=g)
    feats = torch.stack(
        [f0 * 12 - 0.6, amp]
        + [harm[:, k : k + 1].expand(-1, cfg.frames) for k in range(3)],
        1,
    )
    return TensorDataset(feats, wave[:, None])


class Generator(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.hop = cfg.hop
        self.pre = nn.Conv1d(cfg.feats + 2, 32, 3, padding=1)
        self.mid = nn.Conv1d(32, 32, 5, padding=2)
        self.post = nn.Conv1d(32, 1, 7, padding=3)

    def forward(self, f):
        x = f.repeat_interleave(self.hop, 2)
        phase = 6.2832 * torch.cumsum((x[:, :1].float() + 0.6) / 12, 2)
        x = torch.cat([x, phase.sin(), phase.cos()], 1)
        x = F.leaky_relu(self.pre(x), 0.1)
        x = x + F.leaky_relu(self.mid(x), 0.1)
        return torch.tanh(self.post(x))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            [
                nn.Conv1d(1, 16, 9, 2, 4),
                nn.Conv1d(16, 32, 5, 2, 2),
                nn.Conv1d(32, 32, 5, 1, 2),
            ]
        )
        self.out = nn.Conv1d(32, 1, 3, padding=1)

    def forward(self, y):
        maps = []
        for layer in self.layers:
            y = F.leaky_relu(layer(y), 0.1)
            maps.append(y)
        return self.out(y), maps


def spec_loss(y_hat, y):
    win = torch.hann_window(16)
    s = [
        torch.stft(v[:, 0].float(), 16, 4, window=win, return_complex=True)
        .abs()
        .add(1e-2)
        .log()
        for v in (y_hat, y)
    ]
    return F.l1_loss(*s) + F.l1_loss(y_hat.float(), y)


def apply_update_first(scaler, optim_g, optim_d):
    scaler.step(optim_g)
    optim_g.step()
    optim_d.step()
    scaler.update()


def apply_update_second(scaler, optim_g, optim_d):
    scaler.step(optim_g)
    scaler.update()


@torch.no_grad()
def evaluate(net_g, loader):
    net_g.eval()
    total, n = 0.0, 0
    for f, y in loader:
        y_hat = net_g(f)
        total += spec_loss(y_hat, y).item() * len(f)
        n += len(f)
    net_g.train()
    return total / n


def train(cfg, apply_update):
    torch.manual_seed(cfg.seed)
    loader = DataLoader(
        voices(cfg.n_train, cfg, 1), cfg.batch_size, shuffle=True, drop_last=True
    )
    val_loader = DataLoader(voices(cfg.n_val, cfg, 2), 48)
    net_g, net_d = Generator(cfg), Discriminator()
    optim_g = torch.optim.AdamW(net_g.parameters(), cfg.lr, betas=cfg.betas)
    optim_d = torch.optim.AdamW(net_d.parameters(), cfg.lr, betas=cfg.betas)
    scheds = [
        torch.optim.lr_scheduler.ExponentialLR(o, cfg.lr_decay)
        for o in (optim_g, optim_d)
    ]
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, enabled=cfg.fp16)
    autocast = lambda: torch.autocast("cpu", dtype=torch.float16, enabled=cfg.fp16)
    for epoch in range(cfg.epochs):
        sums = torch.zeros(3)
        for f, y in loader:
            with autocast():
                y_hat = net_g(f)
                real, _ = net_d(y)
                fake, _ = net_d(y_hat.detach())
            loss_d = ((1 - real.float()) ** 2).mean() + (fake.float() ** 2).mean()
            optim_d.zero_grad()
            scaler.scale(loss_d).backward()
            scaler.unscale_(optim_d)
            nn.utils.clip_grad_norm_(net_d.parameters(), 10.0)
            scaler.step(optim_d)

            with autocast():
                _, maps_r = net_d(y)
                fake, maps_g = net_d(y_hat)
            loss_spec = spec_loss(y_hat, y)
            loss_fm = sum(
                F.l1_loss(g.float(), r.float().detach()) for g, r in zip(maps_g, maps_r)
            )
            loss_g = (
                ((1 - fake.float()) ** 2).mean()
                + cfg.c_fm * loss_fm
                + cfg.c_spec * loss_spec
            )
            optim_g.zero_grad()
            scaler.scale(loss_g).backward()
            scaler.unscale_(optim_g)
            nn.utils.clip_grad_norm_(net_g.parameters(), 100.0)
            apply_update(scaler, optim_g, optim_d)
            sums += torch.tensor([loss_d.item(), loss_g.item(), loss_spec.item()])
        for s in scheds:
            s.step()
        val = evaluate(net_g, val_loader)
        d, g, spec = (sums / len(loader)).tolist()
        line = f"epoch {epoch} loss_d {d:.3f} loss_g {g:.3f} spec {spec:.3f}"
        print(f"{line} val_spec {val:.4f}", flush=True)
    updates = next(iter(optim_g.state.values()))["step"].item()
    return updates / (cfg.epochs * len(loader))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=Config.seed)
    parser.add_argument("--epochs", type=int, default=Config.epochs)
    parser.add_argument("--lr", type=float, default=Config.lr)
    args = parser.parse_args()
    torch.set_num_threads(1)
    cfg = Config(seed=args.seed, epochs=args.epochs, lr=args.lr)
    count = train(cfg, apply_update_second if args.fixed else apply_update_first)
    if args.prove:
        print(f"the generator was updated {count:.2f} times in an iteration")
        print("fault shows:", "yes" if count > 1 else "no", flush=True)


if __name__ == "__main__":
    main()
