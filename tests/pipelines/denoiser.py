"""Trains a denoising autoencoder and saves a checkpoint every epoch.

Each checkpoint holds the model, a moving average of its weights that is
computed by hand, the optimizer and the epoch; training goes on from the newest
one once in between.

    python denoiser.py --steps 24
"""

import argparse
import pathlib
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Denoiser(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(24, width), nn.GELU())
        self.norm = nn.LayerNorm(width)
        self.decode = nn.Linear(width, 24)

    def forward(self, x):
        return self.decode(self.norm(self.encode(x)))


def waves(count, seed):
    generator = torch.Generator().manual_seed(seed)
    phase = torch.rand(count, 1, generator=generator) * 6.28
    speed = 1 + 3 * torch.rand(count, 1, generator=generator)
    return torch.sin(phase + speed * torch.linspace(0, 3, 24))


def start_average(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def move_average(average, model, keep=0.9):
    for name, value in model.state_dict().items():
        average[name].mul_(keep).add_(value, alpha=1 - keep)


def save(path, model, average, optimizer, epoch):
    torch.save(
        {
            "model": model.state_dict(),
            "average": average,
            "optimizer": optimizer.state_dict(),
            "epoch": epoch,
        },
        path,
    )


def resume(path, model, optimizer):
    saved = torch.load(path, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return saved["average"]


def train(options, folder):
    torch.manual_seed(options.seed)
    model = Denoiser(options.width)
    average = start_average(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    clean = waves(options.batch_size * options.steps_per_epoch, options.seed + 1)
    loader = DataLoader(
        TensorDataset(clean),
        batch_size=options.batch_size,
        shuffle=True,
        generator=torch.Generator().manual_seed(options.seed),
    )
    noise = torch.Generator().manual_seed(options.seed + 2)
    step = epoch = 0
    while step < options.steps:
        for (batch,) in loader:
            noisy = batch + 0.3 * torch.randn(batch.shape, generator=noise)
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(noisy), batch)
            loss.backward()
            optimizer.step()
            move_average(average, model)
            print(f"step {step} loss {loss.item().hex()}", flush=True)
            step += 1
            if step == options.steps:
                break
        newest = folder / f"epoch-{epoch}.pt"
        save(newest, model, average, optimizer, epoch)
        if epoch == 1:
            average = resume(newest, model, optimizer)
        epoch += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--steps-per-epoch", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--seed", type=int, default=11)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        train(options, pathlib.Path(folder))


if __name__ == "__main__":
    main()
