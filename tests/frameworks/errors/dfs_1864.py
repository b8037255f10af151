"""DFS-1864: the running mean of the weights overwrites its own decay.

A small UNet2DModel learns to take noise out of pictures of crystals. The running mean
is to have a decay that grows from step to step up to a bound. The step writes the rate
that it worked out into the bound itself, and the next step takes the smaller of that
and the decay: after a few steps the rate stays at a half, and the mean, which is what
is evaluated and saved, is hardly more than the last two steps' weights.

Source: https://github.com/huggingface/diffusers/issues/1864. --fixed leaves the bound
alone.
"""

import argparse
import os
import tempfile

import torch
from diffusers import DDPMScheduler, UNet2DModel
from diffusers.optimization import get_constant_schedule_with_warmup
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIZE, TIMESTEPS = 12, 100


class RunningMean:
    def __init__(self, parameters, decay=0.9999, keep_decay=False):
        self.means = [p.detach().clone() for p in parameters]
        self.decay, self.keep_decay, self.steps = decay, keep_decay, 0

    def rate(self):
        return 1 - min(self.decay, (1 + self.steps) / (10 + self.steps))

    @torch.no_grad()
    def step(self, parameters):
        self.steps += 1
        rate = self.rate()
        if not self.keep_decay:
            self.decay = rate
        for mean, parameter in zip(self.means, parameters):
            mean.sub_(rate * (mean - parameter))

    def copy_to(self, parameters):
        for mean, parameter in zip(self.means, parameters):
            parameter.data.copy_(mean)


def crystals(count, seed):
    """Six-fold bright spots of some size, angle and place."""
    generator = torch.Generator().manual_seed(seed)
    grid = torch.linspace(-1, 1, SIZE)
    y, x = torch.meshgrid(grid, grid, indexing="ij")
    place = 0.6 * torch.rand(2, count, 1, 1, generator=generator) - 0.3
    turn = torch.rand(count, 1, 1, generator=generator)
    angle = torch.atan2(y - place[0], x - place[1])
    radius = ((y - place[0]) ** 2 + (x - place[1]) ** 2).sqrt()
    edge = 0.5 + 0.15 * torch.cos(6 * (angle + turn))
    return (2 * torch.sigmoid((edge - radius) * 10) - 1).unsqueeze(1)


def build_model():
    return UNet2DModel(
        sample_size=SIZE,
        in_channels=1,
        out_channels=1,
        layers_per_block=1,
        block_out_channels=(16, 32),
        norm_num_groups=4,
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
        add_attention=False,
    )


def noise_loss(model, schedule, images, generator):
    noise = torch.randn(images.shape, generator=generator)
    timesteps = torch.randint(TIMESTEPS, (len(images),), generator=generator)
    noisy = schedule.add_noise(images, noise, timesteps)
    return nn.functional.mse_loss(model(noisy, timesteps).sample, noise)


@torch.no_grad()
def evaluate(mean, schedule, held_out):
    """The loss of the averaged weights, with the same noise each time."""
    model = build_model().eval()
    mean.copy_to(model.parameters())
    return noise_loss(model, schedule, held_out, torch.Generator().manual_seed(0))


def relative_distance(mean, meant, start):
    """How far the mean is from what it is meant to be, as a share of the way."""
    apart = sum((a - b).square().sum() for a, b in zip(mean.means, meant))
    way = sum((b - s).square().sum() for b, s in zip(meant, start))
    return (apart / way).sqrt().item()


def follow(meant, parameters, step):
    """The mean by the formula, for comparison; steps count from 1."""
    decay = min(0.9999, (1 + step) / (10 + step))
    return [decay * m + (1 - decay) * p.detach() for m, p in zip(meant, parameters)]


def main(args, folder):
    torch.manual_seed(41)
    noise = torch.Generator().manual_seed(42)
    loader = DataLoader(TensorDataset(crystals(960, 1)), batch_size=32, shuffle=True)
    held_out, model = crystals(96, 2), build_model()
    schedule = DDPMScheduler(TIMESTEPS, beta_schedule="squaredcos_cap_v2")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    warm_up = get_constant_schedule_with_warmup(optimizer, num_warmup_steps=5)
    mean = RunningMean(model.parameters(), keep_decay=args.fixed)
    start = meant = [p.detach().clone() for p in model.parameters()]
    step = 0
    while step < args.steps:
        for (images,) in loader:
            loss = noise_loss(model, schedule, images, noise)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            warm_up.step()
            optimizer.zero_grad()
            mean.step(model.parameters())
            step += 1
            if args.prove:
                meant = follow(meant, model.parameters(), step)
            if step % 10 == 0:
                averaged = evaluate(mean, schedule, held_out).item()
                print(f"step {step} loss {loss.item():.4f} mean {averaged:.4f}")
            if step == args.steps:
                break
    mean.copy_to(model.parameters())
    model.save_pretrained(os.path.join(folder, "unet"))
    if args.prove:
        apart = relative_distance(mean, meant, start)
        print(f"the mean is off by {apart:.5f} of its way")
        print("fault shows:", "yes" if apart > 1e-3 else "no")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for flag in ("--fixed", "--prove"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--steps", type=int, default=50)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        main(parser.parse_args(), temporary)
