"""A small diffusion model of two moons that draws samples after each epoch.

After huggingface/diffusers, issue 7991.
"""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Moons(Dataset):
    def __init__(self, count, seed):
        gen = torch.Generator().manual_seed(seed)
        half = torch.rand(count, generator=gen) < 0.5
        angle = torch.rand(count, generator=gen) * 3.1416
        x = torch.where(half, angle.cos(), 1 - angle.cos())
        y = torch.where(half, angle.sin(), 0.5 - angle.sin())
        noise = 0.05 * torch.randn(count, 2, generator=gen)
        self.points = torch.stack([x - 0.5, y - 0.25], 1) * 1.5 + noise

    def __len__(self):
        return len(self.points)

    def __getitem__(self, index):
        return self.points[index], index


class NoiseScheduler:
    def __init__(self, steps):
        self.steps = steps
        self.betas = torch.linspace(1e-3, 0.15, steps)
        self.alphas_cumprod = (1 - self.betas).cumprod(0)

    def add_noise(self, clean, noise, t):
        a = self.alphas_cumprod[t][:, None]
        return a.sqrt() * clean + (1 - a).sqrt() * noise

    def step(self, predicted, t, sample, generator):
        a, beta = self.alphas_cumprod[t], self.betas[t]
        mean = (sample - beta / (1 - a).sqrt() * predicted) / (1 - beta).sqrt()
        if t == 0:
            return mean
        return mean + beta.sqrt() * torch.randn(sample.shape, generator=generator)


class Net(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, hidden), nn.SiLU())
        self.inp, self.mid = nn.Linear(2, hidden), nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, 2)

    def forward(self, x, t):
        angle = t[:, None].float() * torch.exp(-torch.arange(8) * 0.5)
        h = F.silu(self.inp(x)) + self.time(torch.cat([angle.sin(), angle.cos()], 1))
        return self.out(F.silu(self.mid(F.silu(h))))


class Pipeline:
    def __init__(self, net, scheduler):
        self.net, self.scheduler = net, scheduler

    @torch.no_grad()
    def __call__(self, batch_size, generator):
        sample = torch.randn(batch_size, 2, generator=generator)
        for t in reversed(range(self.scheduler.steps)):
            predicted = self.net(sample, torch.full((batch_size,), t))
            sample = self.scheduler.step(predicted, t, sample, generator)
        return sample


def report(epoch, samples, data):
    distance = torch.cdist(samples, data.points).min(1).values.mean().item()
    print(f"epoch {epoch} distance of samples to the data {distance:.4f}", flush=True)


def evaluate(config, epoch, pipeline, data):
    generator = torch.manual_seed(config.seed)
    samples = pipeline(config.eval_batch_size, generator=generator)
    report(epoch, samples, data)


def evaluate_with_own_generator(config, epoch, pipeline, data):
    generator = torch.Generator(device="cpu").manual_seed(config.seed)
    samples = pipeline(config.eval_batch_size, generator=generator)
    report(epoch, samples, data)


def train_loop(config, evaluation):
    """The order and the noise of each epoch."""
    torch.manual_seed(config.seed)
    data = Moons(512, 1)
    loader = DataLoader(data, config.train_batch_size, shuffle=True)
    net, scheduler = Net(), NoiseScheduler(25)
    optimizer = torch.optim.AdamW(net.parameters(), lr=config.lr)
    lr_scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, config.epochs * len(loader)
    )
    seen = []
    for epoch in range(config.epochs):
        net.train()
        order, noises = [], []
        for clean, index in loader:
            noise = torch.randn(clean.shape)
            t = torch.randint(0, scheduler.steps, (len(clean),))
            loss = F.mse_loss(net(scheduler.add_noise(clean, noise, t), t), noise)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            lr_scheduler.step()
            order.append(index)
            noises.append(noise)
        seen.append((torch.cat(order), torch.cat(noises)))
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
        net.eval()
        evaluation(config, epoch, Pipeline(net, scheduler), data)
    return seen


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--train-batch-size", type=int, default=32)
    parser.add_argument("--eval-batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=4e-3)
    config = parser.parse_args()
    torch.set_num_threads(1)
    seen = train_loop(config, evaluate_with_own_generator if config.fixed else evaluate)
    if config.prove:
        same = sum(
            torch.equal(one[0], then[0]) and torch.equal(one[1], then[1])
            for one, then in zip(seen[1:], seen[2:])
        )
        print(f"{same} epochs have the order and the noise of the one before")
        print("fault shows:", "yes" if same else "no", flush=True)


if __name__ == "__main__":
    main()
