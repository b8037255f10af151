"""LLY-892: the average of the weights starts anew after a resume.

Source: lightly-ai/lightly-train#892. The moving average counts its updates in a plain
integer, which is in no state dict; after a resume the warm-up of the decay begins at
zero again, and the first update overwrites the average with the raw weights. --fixed
keeps the count in a buffer.
"""

import argparse
import copy
import math
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class ModelEMA(nn.Module):
    def __init__(self, model, decay=0.99, warmup=8, keep_count=False):
        super().__init__()
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay, self.warmup = decay, warmup
        if keep_count:
            self.register_buffer("updates", torch.tensor(0))
        else:
            self.updates = 0

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        decay = self.decay * (1 - math.exp(-int(self.updates) / self.warmup))
        state = model.state_dict()
        for name, average in self.model.state_dict().items():
            if average.dtype.is_floating_point:
                average.lerp_(state[name], 1 - decay)
            else:
                average.copy_(state[name])


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU()
        )
        self.box = nn.Linear(8 * 49, 2)

    def forward(self, images):
        return self.box(self.backbone(images).flatten(1))


class Run:
    def __init__(self, keep_count):
        torch.manual_seed(0)
        self.model = Detector()
        self.ema = ModelEMA(self.model, keep_count=keep_count)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)
        self.step = 0

    def parts(self):
        return {"model": self.model, "ema": self.ema, "optimizer": self.optimizer}

    def save(self, path):
        state = {name: part.state_dict() for name, part in self.parts().items()}
        torch.save({**state, "step": self.step}, path)

    def load(self, path):
        state = torch.load(path)
        for name, part in self.parts().items():
            part.load_state_dict(state[name])
        self.step = state["step"]

    def train(self, loader, until):
        self.model.train()
        while self.step < until:
            for images, places in loader:
                if self.step == until:
                    break
                loss = nn.functional.smooth_l1_loss(self.model(images), places)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.ema.update(self.model)
                print(f"step {self.step} loss {loss.item():.4f}", flush=True)
                self.step += 1


def spots(count):
    generator = torch.Generator().manual_seed(1)
    places = torch.randint(2, 14, (count, 2), generator=generator)
    images = 0.1 * torch.randn(count, 1, 16, 16, generator=generator)
    for image, (row, column) in zip(images, places.tolist()):
        image[0, row - 1 : row + 2, column - 1 : column + 2] += 1
    return TensorDataset(images, places / 16)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=28)
    options = cli.parse_args()
    torch.set_num_threads(1)
    loader = DataLoader(
        spots(128),
        batch_size=16,
        shuffle=True,
        generator=torch.Generator().manual_seed(6),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "last.ckpt")
        run = Run(options.fixed)
        run.train(loader, options.steps // 2)
        run.save(path)
        run = Run(options.fixed)
        run.load(path)
        run.train(loader, options.steps)
    if options.prove:
        print("fault shows:", "no" if int(run.ema.updates) == run.step else "yes")


if __name__ == "__main__":
    main()
