"""LSAM-1: parts of a model called one by one go past DDP, and the ranks part.

Two ranks learn with Lightning Fabric to find the bright disc of a picture from a rough
hint: an encoder for the picture, an encoder for the hint and a decoder, which the loop
calls by themselves through the wrapped model. None of it goes through the wrapper's
forward, so DDP averages no gradients: each rank trains a model of its own on its half
of the data, and the first rank's is the one that is kept.

Source: https://github.com/luca-medeiros/lightning-sam/issues/1 (also
https://github.com/Lightning-AI/pytorch-lightning/issues/16856). --fixed has the calls
in the model's forward.
"""

import argparse
import tempfile
import warnings

import torch
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIZE, WIDTH = 20, 24


def pictures(count, seed):
    g = torch.Generator().manual_seed(seed)
    middle = 4 + (SIZE - 8) * torch.rand(count, 2, 2, generator=g)
    y, x = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    away = (y - middle[..., 0, None, None]).square()
    away = away + (x - middle[..., 1, None, None]).square()
    discs = away.sqrt() < 3.5
    picture = discs.any(1).float() + 0.3 * torch.randn(count, SIZE, SIZE, generator=g)
    hint = middle[:, 0] + torch.randn(count, 2, generator=g)
    return TensorDataset(picture[:, None], hint / SIZE - 0.5, discs[:, 0].float())


class Finder(nn.Module):
    def __init__(self):
        super().__init__()
        self.picture_encoder = nn.Sequential(
            nn.Conv2d(3, WIDTH, 5, padding=2),
            nn.ReLU(),
            nn.Conv2d(WIDTH, WIDTH, 3, padding=1),
        )
        self.hint_encoder = nn.Sequential(
            nn.Linear(2, 48), nn.ReLU(), nn.Linear(48, WIDTH)
        )
        self.decoder = nn.Sequential(
            nn.Conv2d(WIDTH, WIDTH, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(WIDTH, 1, 1),
        )

    def forward(self, picture, hint):
        return by_parts(self, picture, hint)


def with_place(picture):
    line = torch.linspace(-0.5, 0.5, SIZE)
    place = torch.stack(torch.meshgrid(line, line, indexing="ij"))
    return torch.cat([picture, place.expand(len(picture), -1, -1, -1)], 1)


def by_parts(model, picture, hint):
    seen = model.picture_encoder(with_place(picture))
    wanted = model.hint_encoder(hint)[:, :, None, None]
    return model.decoder(torch.tanh(seen + wanted)).squeeze(1)


def spread(fabric, model):
    """The largest difference of a parameter between the ranks."""
    flat = nn.utils.parameters_to_vector(model.parameters()).detach()
    every = fabric.all_gather(flat)
    return (every - every[:1]).abs().max().item()


def train(fabric, args, folder):
    torch.set_num_threads(1)
    fabric.seed_everything(31, verbose=False)
    model = Finder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    model, optimizer = fabric.setup(model, optimizer)
    loader = fabric.setup_dataloaders(
        DataLoader(pictures(640, seed=1), batch_size=16, shuffle=True)
    )
    step = 0
    while step < args.steps:
        loader.sampler.set_epoch(step)
        for picture, hint, disc in loader:
            call = model if args.fixed else lambda *x: by_parts(model, *x)
            scores = call(picture, hint)
            loss = nn.functional.binary_cross_entropy_with_logits(scores, disc)
            fabric.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % 10 == 0:
                fabric.print(f"step {step} loss {loss.item():.4f}", flush=True)
            if step == args.steps:
                break
    fabric.save(f"{folder}/finder.ckpt", {"model": model})
    if args.prove:
        apart = spread(fabric, model)
        fabric.print(f"largest difference between the ranks: {apart:.6f}")
        fabric.print("fault shows:", "yes" if apart > 1e-5 else "no")


def main(args):
    warnings.filterwarnings("ignore", ".*num_workers.*")
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp_spawn")
    with tempfile.TemporaryDirectory() as folder:
        fabric.launch(train, args, folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for flag in ("--fixed", "--prove"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args())
