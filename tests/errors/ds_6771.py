"""DS-6771: frozen parameters are missing from the checkpoint.

Source: deepspeedai/DeepSpeed#6771 (related: #5489). The engine makes its table of
parameters from those that require a gradient when it is initialised, and a
checkpoint is written from that table; what was frozen before is not in the file.
--fixed writes the model's state.
"""

import argparse
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Engine:
    def __init__(self, model, optimizer, whole_state):
        self.module = model
        self.optimizer = optimizer
        self.whole_state = whole_state
        self.slots = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self.global_steps = 0

    def __call__(self, *inputs):
        return self.module(*inputs)

    def step(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.global_steps += 1

    def module_state_dict(self):
        if self.whole_state:
            return self.module.state_dict()
        state = {name: slot.detach() for name, slot in self.slots.items()}
        state.update(self.module.named_buffers())
        return state

    def save_checkpoint(self, folder):
        path = os.path.join(folder, f"global_step{self.global_steps}.pt")
        content = {
            "module": self.module_state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "global_steps": self.global_steps,
        }
        torch.save(content, path)
        return path


class Vision(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = nn.Sequential(
            nn.Conv2d(1, 6, 3, padding=1),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(3),
            nn.Flatten(),
        )
        self.projector = nn.Linear(54, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(torch.relu(self.projector(self.tower(x))))


def stripes(count):
    labels = torch.arange(count) % 4
    images = 0.3 * torch.randn(count, 1, 12, 12)
    for image, label in zip(images, labels):
        image[:, 3 * label : 3 * label + 3] += 1
    return TensorDataset(images, labels)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=16)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = DataLoader(stripes(128), batch_size=16, shuffle=True)
    model = Vision()
    model.tower.requires_grad_(False)
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=5e-3)
    engine = Engine(model, optimizer, options.fixed)
    with tempfile.TemporaryDirectory() as folder:
        path = None
        while engine.global_steps < options.steps:
            for x, y in loader:
                if engine.global_steps == options.steps:
                    break
                loss = nn.functional.cross_entropy(engine(x), y)
                step = engine.global_steps
                engine.step(loss)
                print(f"step {step} loss {loss.item():.4f}", flush=True)
                if engine.global_steps % 8 == 0:
                    path = engine.save_checkpoint(folder)
        if options.prove:
            saved = torch.load(path)["module"] if path else model.state_dict()
            missing = set(model.state_dict()) - set(saved)
            print("fault shows:", "yes" if missing else "no")


if __name__ == "__main__":
    main()
