"""VQ-VAE of woven patterns (conv2d): straight-through codes, codebook by moving averages.

The codebook is a buffer, learnt without gradients; codes that fall out of use are placed on
encoder outputs of the batch. The images are generated on the fly by the dataset and cached.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Weaves(Dataset):
    """16 x 16 weaves with three channels; made at the first access, kept afterwards."""

    def __init__(self, n, seed):
        self.n, self.seed, self.cache = n, seed, {}

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if i not in self.cache:
            g = torch.Generator().manual_seed(self.seed * 100_003 + i)
            warp, weft = torch.rand(2, 3, 1, 1, generator=g)
            px, py = torch.randint(1, 4, (2,), generator=g).tolist()
            yy, xx = torch.meshgrid(torch.arange(16), torch.arange(16), indexing="ij")
            over = ((xx // px + yy // py) % 2).float()
            self.cache[i] = over * warp + (1 - over) * weft
        return self.cache[i]


class Codebook(nn.Module):
    def __init__(self, count, dim, decay=0.9, commitment=0.25):
        super().__init__()
        self.decay, self.commitment = decay, commitment
        codes = torch.randn(count, dim)
        self.register_buffer("codes", codes)
        self.register_buffer("sums", codes.clone())
        self.register_buffer("sizes", torch.ones(count))

    @torch.no_grad()
    def start_from(self, z):
        """Places the codes on encoder outputs, before the first step."""
        flat = z.permute(0, 2, 3, 1).reshape(-1, z.shape[1])
        self.codes.copy_(flat[torch.randperm(len(flat))[: len(self.codes)]])
        self.sums.copy_(self.codes)

    def forward(self, z):
        flat = z.permute(0, 2, 3, 1).reshape(-1, z.shape[1])
        index = torch.cdist(flat.detach(), self.codes).argmin(1)
        q = self.codes[index].view(z.shape[0], *z.shape[2:], -1).permute(0, 3, 1, 2)
        commit = self.commitment * F.mse_loss(z, q)
        if self.training:
            self.follow(flat.detach(), index)
        return z + (q - z).detach(), commit, index

    @torch.no_grad()
    def follow(self, flat, index):
        hot = F.one_hot(index, len(self.codes)).type_as(flat)
        self.sizes.lerp_(hot.sum(0), 1 - self.decay)
        self.sums.lerp_(hot.T @ flat, 1 - self.decay)
        total = self.sizes.sum()
        smooth = (self.sizes + 1e-5) / (total + len(self.codes) * 1e-5) * total
        self.codes.copy_(self.sums / smooth.unsqueeze(1))
        dead = self.sizes < 0.1
        if dead.any():
            fresh = flat[torch.randint(0, len(flat), (int(dead.sum()),))]
            self.codes[dead], self.sums[dead], self.sizes[dead] = fresh, fresh, 1.0


class VQVAE(nn.Module):
    def __init__(self, width=32, dim=12, count=64):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.SiLU(),
            nn.Conv2d(width, width, 4, 2, 1),
            nn.SiLU(),
            nn.Conv2d(width, dim, 3, padding=1),
            nn.GroupNorm(1, dim),
        )
        self.codebook = Codebook(count, dim)
        self.decoder = nn.Sequential(
            nn.Conv2d(dim, width, 3, padding=1),
            nn.SiLU(),
            nn.ConvTranspose2d(width, width, 4, 2, 1),
            nn.SiLU(),
            nn.Conv2d(width, 3, 3, padding=1),
        )

    def forward(self, x):
        q, commit, index = self.codebook(self.encoder(x))
        return self.decoder(q), commit, index


def perplexity(index, count):
    p = torch.bincount(index, minlength=count).float() / len(index)
    return torch.exp(-(p * (p + 1e-10).log()).sum()).item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=60)
    args = p.parse_args()
    torch.manual_seed(13)
    train = DataLoader(Weaves(640, 1), batch_size=32, shuffle=True, drop_last=True)
    valid = DataLoader(Weaves(128, 2), batch_size=64)
    model = VQVAE()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    sched = torch.optim.lr_scheduler.SequentialLR(
        opt,
        [
            torch.optim.lr_scheduler.ConstantLR(opt, factor=0.5, total_iters=5),
            torch.optim.lr_scheduler.CosineAnnealingLR(
                opt, T_max=max(args.steps - 5, 1), eta_min=2e-4
            ),
        ],
        [5],
    )

    with torch.no_grad():
        model.codebook.start_from(model.encoder(next(iter(train))))
    step = 0
    while step < args.steps:
        model.train()
        for x in train:
            y, commit, index = model(x)
            loss = F.mse_loss(y, x) / 0.08 + commit
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            step += 1
            if step % 10 == 0:
                print(
                    f"step {step:3d} loss {loss.item():.4f} commit {commit.item():.4f} "
                    f"perplexity {perplexity(index, 64):.1f}"
                )
            if step == args.steps:
                break
        model.eval()
        with torch.no_grad():
            errors = [
                F.mse_loss(model(x)[0], x, reduction="none").mean((1, 2, 3))
                for x in valid
            ]
        print(f"validation mse {torch.cat(errors).mean().item():.4f}")


if __name__ == "__main__":
    main()
