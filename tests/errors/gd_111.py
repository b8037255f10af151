"""GD-111: micro-batches are summed where their mean is meant.

Source: openai/guided-diffusion#111. A batch is cut into micro-batches for want of
memory; each has a mean loss of its own, and their gradients are added and never
divided by their number: the step is four times as long as that of the whole batch.
--fixed divides each loss.
"""

import argparse

import torch
from torch import nn


class Denoiser(nn.Module):
    def __init__(self, size=16, width=96):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(8, width), nn.SiLU())
        self.enter = nn.Linear(size, width)
        self.middle = nn.Sequential(
            nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, size)
        )

    def forward(self, x, t):
        waves = t[:, None] * 2.0 ** torch.arange(4)
        phase = torch.cat([waves.sin(), waves.cos()], dim=1)
        return self.middle(self.enter(x) + self.time(phase))


def curves(count, size=16):
    phase = 6.28 * torch.rand(count, 1)
    return torch.sin(phase + torch.arange(size) * 0.6)


class TrainLoop:
    def __init__(self, model, batch_size, microbatch, divide):
        self.model = model
        self.batch_size = batch_size
        self.microbatch = microbatch
        self.divide = divide
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def loss_of(self, part):
        x_start, t, noise = part
        level = torch.cos(1.5 * t)[:, None]
        x_t = level * x_start + (1 - level**2).sqrt() * noise
        return (self.model(x_t, t) - noise).square().mean()

    def forward_backward(self, batch):
        self.optimizer.zero_grad()
        count = self.batch_size // self.microbatch
        total = 0.0
        for i in range(0, self.batch_size, self.microbatch):
            loss = self.loss_of([part[i : i + self.microbatch] for part in batch])
            total += loss.item() / count
            (loss / count if self.divide else loss).backward()
        return total

    def sample_batch(self):
        x_start = curves(self.batch_size)
        return x_start, torch.rand(self.batch_size), torch.randn_like(x_start)

    def run_step(self):
        loss = self.forward_backward(self.sample_batch())
        self.optimizer.step()
        return loss

    def wrong_scale(self):
        """Whether a batch has another gradient than when it is not cut."""
        batch = self.sample_batch()
        self.forward_backward(batch)
        summed = [p.grad.clone() for p in self.model.parameters()]
        whole = torch.autograd.grad(self.loss_of(batch), self.model.parameters())
        pairs = zip(summed, whole)
        return any((a - b).norm() > 1e-3 * b.norm() for a, b in pairs)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=20)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loop = TrainLoop(Denoiser(), batch_size=64, microbatch=16, divide=options.fixed)
    for step in range(options.steps):
        loss = loop.run_step()
        print(f"step {step} loss {loss:.4f}", flush=True)
    if options.prove:
        print("fault shows:", "yes" if loop.wrong_scale() else "no")


if __name__ == "__main__":
    main()
