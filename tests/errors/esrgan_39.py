"""A GAN refines coarse tide curves to four times as many points.

After ESRGAN-PyTorch, issue 39.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import MultiStepLR
from torch.utils.data import DataLoader, TensorDataset

POINTS, FACTOR = 64, 4


def curves(count, seed):
    """Fine curves with sharp ripples, and their means over four points."""
    generator = torch.Generator().manual_seed(seed)
    phase = 6.28 * torch.rand(count, 2, generator=generator)
    pace = 1 + 2 * torch.rand(count, 1, generator=generator)
    grid = torch.linspace(0, 6.28, POINTS)
    fine = torch.sin(pace * grid + phase[:, :1])
    fine = fine + 0.4 * torch.sign(torch.sin(5 * pace * grid + phase[:, 1:]))
    fine = fine[:, None] + 0.05 * torch.randn(count, 1, POINTS, generator=generator)
    return F.avg_pool1d(fine, FACTOR), fine


class Generator(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.enter = nn.Conv1d(1, width, 5, padding=2)
        self.middle = nn.Sequential(
            nn.Conv1d(width, width, 3, padding=1), nn.LeakyReLU(0.2),
            nn.Conv1d(width, FACTOR * width, 3, padding=1), nn.LeakyReLU(0.2),
        )  # fmt: skip
        self.leave = nn.Conv1d(width, 1, 5, padding=2)

    def forward(self, coarse):
        hidden = self.middle(F.leaky_relu(self.enter(coarse), 0.2))
        hidden = hidden.unflatten(1, (-1, FACTOR)).transpose(2, 3).flatten(2)
        return self.leave(hidden) + F.interpolate(coarse, scale_factor=FACTOR)


def discriminator(width=24):
    return nn.Sequential(
        nn.Conv1d(1, width, 5, 2, 2), nn.LeakyReLU(0.2),
        nn.Conv1d(width, 2 * width, 5, 2, 2), nn.LeakyReLU(0.2),
        nn.Flatten(), nn.Linear(2 * width * POINTS // 4, 1),
    )  # fmt: skip


def define_scheduler(g_optimizer, d_optimizer, args):
    milestones = [args.epochs // 2, 3 * args.epochs // 4]
    g_scheduler = MultiStepLR(g_optimizer, milestones, gamma=0.5)
    d_scheduler = MultiStepLR(
        d_optimizer if args.fixed else g_optimizer, milestones, gamma=0.5
    )
    return g_scheduler, d_scheduler


def gan_loss(logits, real):
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, real))


def train_step(nets, optimizers, coarse, fine):
    (g, d), (g_optimizer, d_optimizer) = nets, optimizers
    d.requires_grad_(False)
    made = g(coarse)
    loss = F.l1_loss(made, fine) + 0.02 * gan_loss(d(made), 1.0)
    g_optimizer.zero_grad()
    loss.backward()
    g_optimizer.step()
    d.requires_grad_(True)
    d_loss = gan_loss(d(fine), 1.0) + gan_loss(d(made.detach()), 0.0)
    d_optimizer.zero_grad()
    d_loss.backward()
    d_optimizer.step()
    return loss.item(), d_loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    loader = DataLoader(
        TensorDataset(*curves(640, args.seed)), batch_size=16, shuffle=True
    )
    nets = Generator(), discriminator()
    g_optimizer = torch.optim.Adam(nets[0].parameters(), 2e-3, betas=(0.9, 0.99))
    d_optimizer = torch.optim.Adam(nets[1].parameters(), 1e-3, betas=(0.9, 0.99))
    g_scheduler, d_scheduler = define_scheduler(g_optimizer, d_optimizer, args)
    first = [one.param_groups[0]["lr"] for one in (g_optimizer, d_optimizer)]
    step = 0
    for epoch in range(args.epochs):
        for coarse, fine in loader:
            loss, d_loss = train_step(nets, (g_optimizer, d_optimizer), coarse, fine)
            print(f"step {step} loss {loss:.4f} d_loss {d_loss:.4f}", flush=True)
            step += 1
        g_scheduler.step()
        d_scheduler.step()
    if args.prove:
        last = [one.param_groups[0]["lr"] for one in (g_optimizer, d_optimizer)]
        falls = [end / start for start, end in zip(first, last)]
        print(f"the rates fell to shares of {falls[0]:.4f} and {falls[1]:.4f}")
        right = all(abs(fall - 0.25) < 1e-6 for fall in falls)
        print("fault shows:", "no" if right else "yes", flush=True)


if __name__ == "__main__":
    main()
