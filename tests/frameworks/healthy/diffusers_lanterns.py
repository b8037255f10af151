"""Draws lanterns: unconditional diffusion in the fashion of diffusers' examples. A
small UNet2DModel predicts the noise that a DDPMScheduler put in, gradients are clipped,
the rate is warmed up and decays, and a running mean of the weights is lent to the model
while a pipeline samples with a scheduler of its own.

    python diffusers_lanterns.py --steps 40
"""

import argparse
import copy
import tempfile

import torch
from diffusers import DDIMScheduler, DDPMPipeline, DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from diffusers.training_utils import EMAModel
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIZE = 16


def lanterns(count, generator):
    """A round light on a dark ground, with a stick above it, in [-1, 1]."""
    grid = torch.linspace(-1, 1, SIZE)
    y, x = torch.meshgrid(grid, grid, indexing="ij")
    middle = torch.rand(count, 2, 1, 1, generator=generator) - 0.5
    radius = 0.25 + 0.15 * torch.rand(count, 1, 1, generator=generator)
    distance = ((x - middle[:, 0]) ** 2 + (y - middle[:, 1]) ** 2).sqrt()
    light = torch.sigmoid((radius - distance) * 12)
    stick = ((x - middle[:, 0]).abs() < 0.08) & (y < middle[:, 1])
    return (torch.maximum(light, 0.5 * stick.float()) * 2 - 1).unsqueeze(1)


def build_model():
    return UNet2DModel(
        sample_size=SIZE,
        in_channels=1,
        out_channels=1,
        layers_per_block=1,
        block_out_channels=(16, 32),
        norm_num_groups=8,
        attention_head_dim=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )


def noise_loss(model, noise_scheduler, images, generator=None):
    noise = torch.randn(images.shape, generator=generator)
    steps = noise_scheduler.config.num_train_timesteps
    timesteps = torch.randint(steps, (len(images),), generator=generator)
    noisy = noise_scheduler.add_noise(images, noise, timesteps)
    return nn.functional.mse_loss(model(noisy, timesteps).sample, noise)


@torch.no_grad()
def evaluate(model, ema, noise_scheduler, held_out):
    """Noise loss with fixed noise, and samples, both by the running mean."""
    ema.store(model.parameters())
    ema.copy_to(model.parameters())
    model.eval()
    fixed = torch.Generator().manual_seed(0)
    loss = noise_loss(model, noise_scheduler, held_out, fixed).item()
    ddim = DDIMScheduler.from_config(noise_scheduler.config)
    pipeline = DDPMPipeline(unet=model, scheduler=ddim)
    pipeline.set_progress_bar_config(disable=True)
    images = pipeline(8, fixed, num_inference_steps=10, output_type="np").images
    model.train()
    ema.restore(model.parameters())
    return loss, float(images.mean()), float(images.std())


def save(model, ema, noise_scheduler):
    """A copy of the model with the averaged weights, written and read back."""
    final = copy.deepcopy(model)
    ema.copy_to(final.parameters())
    with tempfile.TemporaryDirectory() as folder:
        DDPMPipeline(unet=final, scheduler=noise_scheduler).save_pretrained(folder)
        return DDPMPipeline.from_pretrained(folder)


def main(args):
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    data, held_out = lanterns(1024, generator), lanterns(96, generator)
    loader = DataLoader(TensorDataset(data), args.batch_size, shuffle=True)
    model = build_model()
    noise_scheduler = DDPMScheduler(200, beta_schedule="squaredcos_cap_v2")
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)
    lr_scheduler = get_cosine_schedule_with_warmup(
        optimizer, num_warmup_steps=args.steps // 10, num_training_steps=args.steps
    )
    ema = EMAModel(model.parameters(), decay=0.95)
    step = 0
    while step < args.steps:
        for (images,) in loader:
            loss = noise_loss(model, noise_scheduler, images)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            lr_scheduler.step()
            optimizer.zero_grad()
            ema.step(model.parameters())
            step += 1
            if step % 5 == 0:
                print(f"step {step} loss {loss.item():.4f}")
            if step % 20 == 0 or step == args.steps:
                scores = evaluate(model, ema, noise_scheduler, held_out)
                print("  ema: loss {:.4f} samples {:.3f} +- {:.3f}".format(*scores))
            if step == args.steps:
                break
    print(f"images {float(data.mean()) / 2 + 0.5:.3f} +- {float(data.std()) / 2:.3f}")
    saved = save(model, ema, noise_scheduler).unet
    fixed = torch.Generator().manual_seed(0)
    with torch.no_grad():
        loss = noise_loss(saved.eval(), noise_scheduler, held_out, fixed)
    print(f"saved: loss {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=6)
    torch.set_num_threads(1)
    main(parser.parse_args())
