"""Latent actions from made-up videos: what moved a square from one frame to the next?

An encoder sees two frames and gives a code, which is quantised; a decoder makes the
second frame from the first one and the code. showlab/Olaf-World#8.
"""

import argparse
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIZE = 12
MOVES = torch.tensor([[0, 0], [2, 0], [-2, 0], [0, 2], [0, -2]])


def clips(count, seed):
    """Pairs of frames with a soft square, and which of five moves was made."""
    generator = torch.Generator().manual_seed(seed)
    place = torch.randint(3, SIZE - 3, (count, 2), generator=generator)
    move = torch.randint(len(MOVES), (count,), generator=generator)
    grid = torch.stack(
        torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij"), -1
    )

    def draw(centre):
        away = (grid - centre[:, None, None]).abs().amax(-1).float()
        return torch.sigmoid(3 * (1.8 - away))[:, None]

    frames = torch.stack([draw(place), draw(place + MOVES[move])], 1)
    noise = 0.03 * torch.randn(frames.shape, generator=generator)
    return TensorDataset(frames + noise, move)


class VectorQuantizer(nn.Module):
    def __init__(self, codes, width):
        super().__init__()
        self.codebook = nn.Embedding(codes, width)
        nn.init.uniform_(self.codebook.weight, -1.0, 1.0)

    def forward(self, x):
        distance = torch.cdist(x, self.codebook.weight)
        indices = distance.argmin(-1)
        z = self.codebook(indices)
        z_q = x + (z - x).detach()
        return z_q, z, indices


class LatentActionModel(nn.Module):
    def __init__(self, fixed, codes=12, width=6):
        super().__init__()
        self.fixed = fixed
        self.encoder = nn.Sequential(
            nn.Conv2d(2, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 24, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(24 * 9, 64),
            nn.ReLU(),
            nn.Linear(64, width),
            nn.LayerNorm(width, elementwise_affine=False),
        )
        self.vq = VectorQuantizer(codes, width)
        self.frame = nn.Conv2d(1, 16, 3, padding=1)
        self.action = nn.Linear(width, 16)
        self.decoder = nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(16, 16, 5, padding=2),
            nn.ReLU(),
            nn.Conv2d(16, 1, 5, padding=2),
        )

    def encode(self, frames):
        z_e = self.encoder(frames.squeeze(2))
        z_q, z, indices = self.vq(z_e)
        return {"z_e": z_e, "z_q": z_q, "z": z, "indices": indices}

    def forward(self, frames):
        out = self.encode(frames)
        first, second = frames.unbind(1)
        mixed = self.frame(first) + self.action(out["z_q"])[:, :, None, None]
        guess = first + self.decoder(mixed)
        codes = out["z"] if self.fixed else out["z_q"]
        losses = {
            "recon": nn.functional.mse_loss(guess, second) * 4 * SIZE,
            "codebook": nn.functional.mse_loss(codes, out["z_e"].detach()),
            "commit": nn.functional.mse_loss(out["z_e"], out["z"].detach()),
        }
        losses["total"] = losses["recon"] + losses["codebook"] + 0.25 * losses["commit"]
        return losses, out["indices"]


@torch.no_grad()
def evaluate(model, loader):
    """Reconstruction, and how well codes tell the moves when each gets its commonest."""
    model.eval()
    recon, table = [], torch.zeros(model.vq.codebook.num_embeddings, len(MOVES))
    for frames, moves in loader:
        losses, indices = model(frames)
        recon.append(losses["recon"].item())
        table.index_put_((indices, moves), torch.ones(len(moves)), accumulate=True)
    model.train()
    told = (table.amax(1).sum() / table.sum()).item()
    return sum(recon) / len(recon), told, int((table.sum(1) > 0).sum())


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=200)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    train = DataLoader(clips(1600, 1), batch_size=32, shuffle=True, drop_last=True)
    valid = DataLoader(clips(320, 2), batch_size=64)
    model = LatentActionModel(options.fixed)
    begin = model.vq.codebook.weight.detach().clone()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    step = 0
    while step < options.steps:
        for frames, _ in train:
            if step == options.steps:
                break
            losses, indices = model(frames)
            optimizer.zero_grad()
            losses["total"].backward()
            optimizer.step()
            if step % 10 == 0:
                parts = " ".join(f"{k} {v.item():.4f}" for k, v in losses.items())
                print(f"step {step} {parts}", flush=True)
            step += 1
        recon, told, used = evaluate(model, valid)
        report = f"validation {recon:.4f}, moves told {told:.3f}, {used} codes"
        print(report, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        torch.save(model.state_dict(), os.path.join(folder, "lam.pt"))
    if options.prove:
        moved = (model.vq.codebook.weight - begin).abs().max().item()
        print(f"codes moved by up to {moved:.4f}", flush=True)
        print("fault shows:", "yes" if moved == 0 else "no")


if __name__ == "__main__":
    main()
