"""REALFILL-4: an image and the weights of its loss are cropped by different dice.

Source: https://github.com/thuanz123/realfill/issues/4. A random crop and flip is
called once for the image and once for the map that says which pixels are known: the
two do not lie on each other any more, and the hole is learned as if it were the
picture. --fixed sends both through one call.
"""

import argparse
import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

HOLE = 0.0  # what stands where nothing is known
T = 50
BETAS = torch.linspace(1e-3, 0.15, T)
ALPHA_BAR = torch.cumprod(1 - BETAS, dim=0)


class RandomCropFlip:
    def __init__(self, size, seed):
        self.size = size
        self.dice = random.Random(seed)

    def __call__(self, image):
        top = self.dice.randint(0, image.shape[-2] - self.size)
        left = self.dice.randint(0, image.shape[-1] - self.size)
        image = image[..., top : top + self.size, left : left + self.size]
        return image.flip(-1) if self.dice.random() < 0.5 else image


class RealFillDataset(Dataset):
    def __init__(self, count, together, size=16, seed=6):
        g = torch.Generator().manual_seed(seed)
        self.together = together
        self.transform = RandomCropFlip(size, seed)
        ramp = torch.linspace(-1, 1, 20)
        tilt = torch.randn(count, 2, 2, generator=g)
        plane = tilt[..., :1, None] * ramp[:, None] + tilt[..., 1:, None] * ramp
        self.scenes = torch.sin(2 * plane) + 1.5
        self.corner = torch.randint(3, 11, (count, 2), generator=g).tolist()

    def __len__(self):
        return len(self.scenes)

    def __getitem__(self, index):
        image = self.scenes[index].clone()
        weighting = torch.ones(1, *image.shape[1:])
        y, x = self.corner[index]
        image[:, y : y + 6, x : x + 6] = HOLE
        weighting[:, y : y + 6, x : x + 6] = 0.0
        if self.together:
            both = self.transform(torch.cat([image, weighting]))
            image, weighting = both[:-1], both[-1:]
        else:
            image, weighting = self.transform(image), self.transform(weighting)
        return {"images": image, "weightings": weighting}


class Denoiser(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        self.time = nn.Embedding(T, width)
        self.enter = nn.Conv2d(2, width, 3, padding=1)
        self.middle = nn.Conv2d(width, width, 3, padding=2, dilation=2)
        self.norm = nn.GroupNorm(4, width)
        self.leave = nn.Conv2d(width, 2, 3, padding=1)

    def forward(self, noisy, t):
        h = F.silu(self.enter(noisy) + self.time(t)[:, :, None, None])
        h = h + F.silu(self.norm(self.middle(h)))
        return self.leave(h)


def add_noise(images, noise, t):
    level = ALPHA_BAR[t].view(-1, 1, 1, 1)
    return level.sqrt() * images + (1 - level).sqrt() * noise


def weighted_mse(predicted, noise, weightings):
    error = F.mse_loss(predicted, noise, reduction="none") * weightings
    return error.mean()


def hole_is_covered(dataset):
    for sample in dataset:
        empty = (sample["images"] == HOLE).all(0)
        if not torch.equal(empty, sample["weightings"][0] == 0):
            return False
    return True


def parse():
    parser = argparse.ArgumentParser(description="fine-tune an inpainting denoiser")
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--steps", "--max_train_steps", type=int, default=20)
    return parser.parse_args()


args = parse()
torch.set_num_threads(1)
torch.manual_seed(21)
train_dataset = RealFillDataset(48, together=args.fixed)
train_dataloader = DataLoader(train_dataset, batch_size=12, shuffle=True)
unet = Denoiser()
optimizer = torch.optim.AdamW(unet.parameters(), lr=3e-3, weight_decay=1e-2)
lr_scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, 0.5, total_iters=4)
global_step = 0
while global_step < args.steps:
    for batch in train_dataloader:
        noise = torch.randn_like(batch["images"])
        timesteps = torch.randint(T, (len(noise),))
        predicted = unet(add_noise(batch["images"], noise, timesteps), timesteps)
        loss = weighted_mse(predicted, noise, batch["weightings"])
        loss.backward()
        nn.utils.clip_grad_norm_(unet.parameters(), 1.0)
        optimizer.step()
        lr_scheduler.step()
        optimizer.zero_grad()
        global_step += 1
        print(f"steps {global_step}/{args.steps}: loss={loss.item():.4f}", flush=True)
        if global_step >= args.steps:
            break
if args.prove:
    print("fault shows:", "no" if hole_is_covered(train_dataset) else "yes")
