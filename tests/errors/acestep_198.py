"""Flow matching of music latents by a small trainer with callbacks for schedulers.

After ace-step/ACE-Step, pull request 198.
"""

import argparse
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Config:
    genres: int = 6
    latent: int = 8
    hidden: int = 96
    n_train: int = 1536
    n_val: int = 384
    batch_size: int = 64
    max_epochs: int = 5
    lr: float = 3e-3
    warmup_steps: int = 20
    weight_decay: float = 0.01
    seed: int = 19


def make_latents(n, cfg, seed):
    g = torch.Generator().manual_seed(seed)
    wg = torch.Generator().manual_seed(8)
    centre = 1.5 * torch.randn(cfg.genres, cfg.latent, generator=wg)
    mix = 0.4 * torch.randn(cfg.genres, cfg.latent, 3, generator=wg)
    genre = torch.randint(0, cfg.genres, (n,), generator=g)
    z = torch.randn(n, 3, 1, generator=g)
    x = (
        centre[genre]
        + (mix[genre] @ z)[..., 0]
        + 0.05 * torch.randn(n, cfg.latent, generator=g)
    )
    return TensorDataset(x / 1.6, genre)


class VelocityNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.inp = nn.Linear(cfg.latent, cfg.hidden)
        self.genre = nn.Embedding(cfg.genres, cfg.hidden)
        self.register_buffer("freqs", 2.0 ** torch.arange(4) * 3.1416)
        self.time = nn.Linear(8, cfg.hidden)
        self.body = nn.Sequential(
            nn.SiLU(),
            nn.Linear(cfg.hidden, cfg.hidden),
            nn.SiLU(),
            nn.Linear(cfg.hidden, cfg.hidden),
            nn.SiLU(),
        )
        self.out = nn.Linear(cfg.hidden, cfg.latent)

    def forward(self, x, t, genre):
        a = t[:, None] * self.freqs
        h = (
            self.inp(x)
            + self.genre(genre)
            + self.time(torch.cat([a.sin(), a.cos()], 1))
        )
        return self.out(self.body(h))


class Pipeline:
    def __init__(self, cfg):
        self.cfg, self.net = cfg, VelocityNet(cfg)

    def loss(self, batch, generator=None):
        x, genre = batch
        t = torch.sigmoid(torch.randn(len(x), generator=generator))
        noise = torch.randn(x.shape, generator=generator)
        xt = (1 - t[:, None]) * x + t[:, None] * noise
        return F.mse_loss(self.net(xt, t, genre), noise - x)

    def lr_lambda(self, step):
        total = self.cfg.max_epochs * (self.cfg.n_train // self.cfg.batch_size)
        if step < self.cfg.warmup_steps:
            return (step + 1) / self.cfg.warmup_steps
        return max(0.05, (total - step) / (total - self.cfg.warmup_steps))

    def configure_optimizers_short(self):
        opt = torch.optim.AdamW(
            self.net.parameters(), lr=self.cfg.lr, weight_decay=self.cfg.weight_decay
        )
        sched = torch.optim.lr_scheduler.LambdaLR(opt, self.lr_lambda)
        return [opt], [{"scheduler": sched}]

    def configure_optimizers_long(self):
        opt = torch.optim.AdamW(
            self.net.parameters(), lr=self.cfg.lr, weight_decay=self.cfg.weight_decay
        )
        sched = torch.optim.lr_scheduler.LambdaLR(opt, self.lr_lambda)
        return [opt], [{"scheduler": sched, "interval": "step"}]


class Trainer:
    def __init__(self, max_epochs, gradient_clip_val=1.0):
        self.max_epochs, self.clip = max_epochs, gradient_clip_val

    def _update_schedulers(self, configs, interval):
        for c in configs:
            if c.get("interval", "epoch") == interval:
                c["scheduler"].step()

    @torch.no_grad()
    def _validate(self, module, loader):
        module.net.eval()
        g = torch.Generator().manual_seed(0)
        total = sum(module.loss(b, g).item() * len(b[0]) for b in loader)
        module.net.train()
        return total / len(loader.dataset)

    def fit(self, module, configure, train_loader, val_loader):
        (opt,), schedulers = configure()
        module.net.train()
        steps = 0
        for epoch in range(self.max_epochs):
            running = 0.0
            for batch in train_loader:
                opt.zero_grad()
                loss = module.loss(batch)
                loss.backward()
                nn.utils.clip_grad_norm_(module.net.parameters(), self.clip)
                opt.step()
                self._update_schedulers(schedulers, "step")
                running += loss.item()
                steps += 1
            self._update_schedulers(schedulers, "epoch")
            val = self._validate(module, val_loader)
            train_loss = running / len(train_loader)
            print(
                f"epoch {epoch} train_loss {train_loss:.4f} val_loss {val:.4f}",
                flush=True,
            )
        return schedulers[0]["scheduler"], steps


def make_loaders(cfg):
    train_loader = DataLoader(
        make_latents(cfg.n_train, cfg, 1), cfg.batch_size, shuffle=True, drop_last=True
    )
    val_loader = DataLoader(make_latents(cfg.n_val, cfg, 2), 128)
    return train_loader, val_loader


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=Config.seed)
    parser.add_argument("--epochs", type=int, default=Config.max_epochs)
    parser.add_argument("--lr", type=float, default=Config.lr)
    args = parser.parse_args()
    torch.set_num_threads(1)
    cfg = Config(seed=args.seed, max_epochs=args.epochs, lr=args.lr)
    torch.manual_seed(cfg.seed)
    train_loader, val_loader = make_loaders(cfg)
    module = Pipeline(cfg)
    if args.fixed:
        configure = module.configure_optimizers_long
    else:
        configure = module.configure_optimizers_short
    scheduler, steps = Trainer(cfg.max_epochs).fit(
        module, configure, train_loader, val_loader
    )
    if args.prove:
        moved = scheduler.last_epoch
        print(f"the schedule was stepped {moved} times in {steps} steps")
        print("fault shows:", "yes" if moved < steps else "no", flush=True)


if __name__ == "__main__":
    main()
