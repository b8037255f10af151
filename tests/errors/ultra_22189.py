"""Trains a small box detector in half precision, and resumes it from a checkpoint.

The pictures are made up: one bright box in noise. The run is stopped after half of its
steps; a second trainer reads the checkpoint and goes on to the end.
"""

import argparse
import os
import tempfile

import torch
from torch import nn


class Detector(nn.Module):
    def __init__(self, side=12):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1),
            nn.SiLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.SiLU(),
            nn.Flatten(),
            nn.Linear(144, 32),
            nn.SiLU(),
        )
        self.box = nn.Linear(32, 4)
        self.kind = nn.Linear(32, 3)

    def forward(self, x):
        hidden = self.backbone(x)
        return self.box(hidden), self.kind(hidden)


def scenes(count, generator, side=12):
    kind = torch.randint(3, (count,), generator=generator)
    size = 3 + torch.randint(3, (count, 2), generator=generator)
    corner = (torch.rand(count, 2, generator=generator) * (side - size)).long()
    picture = 0.2 * torch.randn(count, 1, side, side, generator=generator)
    for i in range(count):
        (y, x), (h, w) = corner[i].tolist(), size[i].tolist()
        picture[i, 0, y : y + h, x : x + w] += 0.5 + 0.5 * kind[i]
    box = torch.cat([corner + size / 2, size.float()], 1) / side
    return picture, box, kind


class DetectionTrainer:
    def __init__(self, save_scaler):
        self.save_scaler = save_scaler
        self.model = Detector()
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=1e-4, momentum=0.9, nesterov=True
        )
        self.scaler = torch.amp.GradScaler("cpu")
        self.generator = torch.Generator().manual_seed(11)
        self.start = 0

    def criterion(self, output, box, kind):
        boxes, kinds = output
        box_loss = (boxes.float() - box).abs().mean()
        kind_loss = nn.functional.cross_entropy(kinds.float(), kind)
        return (7.5 * box_loss + 0.5 * kind_loss) * len(box)

    def save(self, path, step):
        state = {
            "step": step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
        }
        if self.save_scaler:
            state["scaler"] = self.scaler.state_dict()
        torch.save(state, path)

    def resume(self, path):
        state = torch.load(path)
        self.start = state["step"]
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"])
        if state.get("scaler"):
            self.scaler.load_state_dict(state["scaler"])

    def train(self, until):
        self.model.train()
        for step in range(self.start, until):
            picture, box, kind = scenes(64, self.generator)
            with torch.autocast("cpu", dtype=torch.float16):
                output = self.model(picture)
            loss = self.criterion(output, box, kind)
            self.optimizer.zero_grad()
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), 200.0)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            print(f"step {step} loss {loss.item() / len(box):.4f}", flush=True)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=40)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    half = options.steps // 2
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "last.pt")
        first = DetectionTrainer(save_scaler=options.fixed)
        first.train(half)
        first.save(path, half)
        second = DetectionTrainer(save_scaler=options.fixed)
        second.resume(path)
        resumed = second.scaler.get_scale()
        second.train(options.steps)
    if options.prove:
        same = resumed == first.scaler.get_scale()
        print("fault shows:", "no" if same else "yes")


if __name__ == "__main__":
    main()
