"""Generates heartbeats (short curves) with a GAN under Lightning's manual
optimization: two optimizers with toggled parameters, a hinge loss, a rate for each
stepped by hand, and a running mean of the weights, which Lightning's callback puts in
for each validation. The score is a distance between sorted projections.

    python lightning_gan_ema.py --steps 200
"""

import argparse
import tempfile
import warnings

import lightning as L
import torch
from lightning.pytorch.callbacks import WeightAveraging
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils.data import DataLoader, TensorDataset

LENGTH, LATENT = 32, 12


def heartbeats(count, generator):
    time = torch.linspace(0, 1, LENGTH)
    place, height, width = torch.rand(3, count, 1, generator=generator)
    place, width = 0.3 + 0.4 * place, 0.04 + 0.04 * width
    peak = (0.6 + 0.4 * height) * torch.exp(-(((time - place) / width) ** 2))
    dip = 0.3 * torch.exp(-(((time - place - 0.15) / 0.06) ** 2))
    return peak - dip + 0.02 * torch.randn(count, LENGTH, generator=generator)


def generator_net():
    return nn.Sequential(
        nn.Linear(LATENT, 128),
        nn.LayerNorm(128),
        nn.ReLU(),
        nn.Linear(128, 128),
        nn.LayerNorm(128),
        nn.ReLU(),
        nn.Linear(128, LENGTH),
    )


def critic_net():
    return nn.Sequential(
        spectral_norm(nn.Linear(LENGTH, 128)),
        nn.LeakyReLU(0.2),
        spectral_norm(nn.Linear(128, 64)),
        nn.LeakyReLU(0.2),
        spectral_norm(nn.Linear(64, 1)),
    )


class HeartbeatGan(L.LightningModule):
    def __init__(self, total, lr=1e-3, critic_every=1):
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.generator, self.critic = generator_net(), critic_net()

    def forward(self, count):
        return self.generator(torch.randn(count, LATENT, device=self.device))

    def configure_optimizers(self):
        lr, total = self.hparams.lr, self.hparams.total
        optimizers, schedulers = [], []
        for net, factor in ((self.generator, 1.0), (self.critic, 2.0)):
            adam = torch.optim.Adam(net.parameters(), lr * factor, betas=(0.0, 0.9))
            line = torch.optim.lr_scheduler.LinearLR(adam, 1.0, 0.1, total)
            optimizers.append(adam)
            schedulers.append(line)
        return optimizers, schedulers

    def train_critic(self, real, optimizer):
        self.toggle_optimizer(optimizer)
        with torch.no_grad():
            fake = self(len(real))
        right = nn.functional.relu(1 - self.critic(real)).mean()
        wrong = nn.functional.relu(1 + self.critic(fake)).mean()
        optimizer.zero_grad()
        self.manual_backward(right + wrong)
        optimizer.step()
        self.untoggle_optimizer(optimizer)
        return right + wrong

    def train_generator(self, count, optimizer):
        self.toggle_optimizer(optimizer)
        loss = -self.critic(self(count)).mean()
        optimizer.zero_grad()
        self.manual_backward(loss)
        self.clip_gradients(optimizer, 5.0, "norm")
        optimizer.step()
        self.untoggle_optimizer(optimizer)
        return loss

    def training_step(self, batch, batch_idx):
        for_generator, for_critic = self.optimizers()
        critic_loss = self.train_critic(batch[0], for_critic)
        generator_loss = self.train_generator(len(batch[0]), for_generator)
        for scheduler in self.lr_schedulers():
            scheduler.step()
        self.log_dict({"critic": critic_loss, "generator": generator_loss})

    def validation_step(self, batch, batch_idx):
        fake, ways = self(len(batch[0])), torch.randn(LENGTH, 64, device=self.device)
        ways = ways / ways.norm(dim=0)
        apart = (fake @ ways).sort(0).values - (batch[0] @ ways).sort(0).values
        self.log("distance", apart.square().mean().sqrt())

    def on_validation_epoch_end(self):
        seen = self.trainer.callback_metrics
        parts = [f"{name} {value.item():.4f}" for name, value in sorted(seen.items())]
        print(f"step {self.global_step}", *parts, flush=True)


class RunningMean(WeightAveraging):
    """A running mean with a rate that starts at zero, so that it forgets the start."""

    def __init__(self, decay):
        super().__init__(avg_fn=self.average)
        self.decay = decay

    def average(self, mean, now, count):
        decay = min(self.decay, (1 + int(count)) / (10 + int(count)))
        return torch.lerp(now, mean, decay)

    def should_update(self, step_idx=None, epoch_idx=None):
        return step_idx is not None and step_idx % 2 == 1  # both have stepped


def main(args, folder):
    L.seed_everything(args.seed, verbose=False)
    generator = torch.Generator().manual_seed(args.seed)
    train = DataLoader(TensorDataset(heartbeats(1280, generator)), 64, shuffle=True)
    valid = DataLoader(TensorDataset(heartbeats(512, generator)), 512)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=args.steps,
        max_epochs=-1,
        callbacks=[RunningMean(0.98)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(HeartbeatGan(args.steps // 2), train, valid)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400, help="of both optimizers")
    parser.add_argument("--seed", type=int, default=3)
    warnings.filterwarnings("ignore", ".*num_workers.*")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        main(parser.parse_args(), temporary)
