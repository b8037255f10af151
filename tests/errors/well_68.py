"""One step ahead in a made-up flow: a small convolutional surrogate.

Fields (density and two velocities) diffuse and drift on a periodic grid. The data
module makes the data sets of training, validation and roll-outs from simulated runs.
PolymathicAI/the_well#68.
"""

import argparse
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE = 16
FIELDS = 3


def simulate(runs, times, seed):
    generator = torch.Generator().manual_seed(seed)
    scale = torch.tensor([0.5, 0.3, 0.3])[:, None, None]
    offset = torch.tensor([1.2, 0.4, -0.4])[:, None, None]
    spectrum = torch.zeros(runs, FIELDS, SIZE, SIZE)
    spectrum[..., :4, :4] = torch.randn(runs, FIELDS, 4, 4, generator=generator)
    spectrum[..., 0, 0] = 0
    state = torch.fft.fft2(spectrum).real
    state = state / state.std((-2, -1), keepdim=True)
    frames = []
    for _ in range(times):
        frames.append(state * scale + offset)
        neighbours = sum(state.roll(s, d) for s in (-1, 1) for d in (-2, -1))
        state = 0.8 * state.roll((1, 1), (-2, -1)) + 0.05 * neighbours
        density, u, v = state.unbind(1)
        state = torch.stack([density - 0.1 * u * v, u + 0.1 * density, v], 1)
    return torch.stack(frames, 1)


class ZScore:
    def __init__(self, runs):
        self.mean = runs.mean((0, 1, 3, 4), keepdim=True)[0, 0]
        self.std = runs.std((0, 1, 3, 4), keepdim=True)[0, 0]

    def normalize(self, x):
        return (x - self.mean) / self.std

    def denormalize(self, x):
        return x * self.std + self.mean


class FlowDataset(Dataset):
    def __init__(self, runs, steps_out=1, use_normalization=False, normalization=None):
        self.runs = runs
        self.steps_out = steps_out
        self.normalization = normalization if use_normalization else None
        self.starts = runs.size(1) - steps_out

    def __len__(self):
        return len(self.runs) * self.starts

    def __getitem__(self, index):
        run, start = divmod(index, self.starts)
        window = self.runs[run, start : start + self.steps_out + 1]
        if self.normalization is not None:
            window = self.normalization.normalize(window)
        return window[0], window[1:]


class FlowDataModule:
    def __init__(self, batch_size, use_normalization, normalization_type, fixed):
        train = simulate(40, 12, seed=1)
        valid = simulate(10, 12, seed=2)
        self.batch_size = batch_size
        self.normalization = normalization_type(train)
        given = {
            "use_normalization": use_normalization,
            "normalization": self.normalization,
        }
        self.train_dataset = FlowDataset(train, **given)
        kept = given if fixed else {}
        self.val_dataset = FlowDataset(valid, **kept)
        self.rollout_val_dataset = FlowDataset(valid, steps_out=5, **kept)

    def train_dataloader(self):
        return DataLoader(self.train_dataset, self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val_dataset, 2 * self.batch_size)

    def rollout_val_dataloader(self):
        return DataLoader(self.rollout_val_dataset, 2 * self.batch_size)


class Surrogate(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        circular = {"kernel_size": 3, "padding": 1, "padding_mode": "circular"}
        self.layers = nn.Sequential(
            nn.Conv2d(FIELDS, width, **circular),
            nn.GELU(),
            nn.Conv2d(width, width, **circular),
            nn.GELU(),
            nn.Conv2d(width, FIELDS, **circular),
        )

    def forward(self, x):
        return x + self.layers(x)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    total = count = 0
    for x, wanted in loader:
        for ahead in wanted.unbind(1):
            x = model(x)
            total += nn.functional.mse_loss(x, ahead).item() * len(x)
            count += len(x)
    model.train()
    return total / count


def moments(loader):
    values = torch.cat([x for x, _ in loader]).transpose(0, 1).flatten(1)
    return torch.stack([values.mean(1), values.std(1)])


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=150)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = FlowDataModule(16, True, ZScore, options.fixed)
    model = Surrogate()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    best = float("inf")
    step = 0
    with tempfile.TemporaryDirectory() as folder:
        while step < options.steps:
            for x, wanted in data.train_dataloader():
                if step == options.steps:
                    break
                loss = nn.functional.mse_loss(model(x), wanted[:, 0])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                if step % 10 == 0:
                    print(f"step {step} loss {loss.item():.5f}", flush=True)
                step += 1
            ahead = validate(model, data.val_dataloader())
            far = validate(model, data.rollout_val_dataloader())
            print(f"validation {ahead:.5f}, five steps {far:.5f}", flush=True)
            if ahead < best:
                best = ahead
                torch.save(model.state_dict(), os.path.join(folder, "best.pt"))
    if options.prove:
        gap = moments(data.train_dataloader()) - moments(data.val_dataloader())
        print(f"inputs differ by up to {gap.abs().max():.3f}", flush=True)
        print("fault shows:", "yes" if gap.abs().max() > 0.25 else "no")


if __name__ == "__main__":
    main()
