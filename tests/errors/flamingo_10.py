"""Answers questions about the pictures of an album by cross attention.

After flamingo-pytorch, issue 10.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

KINDS, WIDTH, MOST = 12, 32, 8


def albums(count, seed):
    """Pictures (vectors of a kind), a kind that is asked for, and how often it is in."""
    centres = torch.randn(KINDS, WIDTH, generator=torch.Generator().manual_seed(5))
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(count):
        size = int(torch.randint(1, MOST + 1, (), generator=generator))
        kinds = torch.randint(KINDS, (size,), generator=generator)
        asked = torch.randint(KINDS, (), generator=generator)
        if torch.rand((), generator=generator) < 0.6:
            asked = kinds[0]
        pictures = centres[kinds] + 0.3 * torch.randn(size, WIDTH, generator=generator)
        share = (kinds == asked).float().mean()
        rows.append((pictures, asked, share))
    return rows


def collate(rows):
    pictures, asked, share = zip(*rows)
    sizes = torch.tensor([len(one) for one in pictures])
    padded = nn.utils.rnn.pad_sequence(pictures, batch_first=True)
    absent = torch.arange(padded.shape[1]) >= sizes[:, None]
    return padded, absent, torch.stack(asked), torch.stack(share)


class CrossAttention(nn.Module):
    def __init__(self, heads=4):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(WIDTH)
        self.to_q = nn.Linear(WIDTH, WIDTH, bias=False)
        self.to_kv = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.to_out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, text, media, absent):
        parts = self.to_q(self.norm(text)), *self.to_kv(media).chunk(2, -1)
        q, k, v = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in parts
        )
        sim = q @ k.transpose(2, 3) * q.shape[3] ** -0.5
        sim = self.hide(sim, absent[:, None, None])
        out = sim.softmax(dim=-1) @ v
        return self.to_out(out.transpose(1, 2).flatten(2))

    def hide(self, sim, mask):
        return sim.masked_fill(mask, -torch.finfo(sim.dtype).max)


class GatedCrossAttention(CrossAttention):
    def hide(self, sim, mask):
        sim.masked_fill(mask, -torch.finfo(sim.dtype).max)
        return sim


class AlbumModel(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.question = nn.Embedding(KINDS, WIDTH)
        kind = CrossAttention if fixed else GatedCrossAttention
        self.layers = nn.ModuleList(kind() for _ in range(2))
        self.head = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, 1)
        )

    def forward(self, media, absent, asked):
        text = self.question(asked)[:, None]
        for layer in self.layers:
            text = text + layer(text, media, absent)
        return self.head(text)[:, 0, 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    loader = DataLoader(
        albums(1600, args.seed), batch_size=32, shuffle=True, collate_fn=collate
    )
    held = collate(albums(256, args.seed + 1))
    model = AlbumModel(args.fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    step = 0
    for epoch in range(args.epochs):
        model.train()
        for media, absent, asked, share in loader:
            loss = F.mse_loss(model(media, absent, asked), share)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        model.eval()
        with torch.no_grad():
            error = (model(*held[:3]) - held[3]).abs().mean().item()
        print(f"epoch {epoch} error {error:.4f}", flush=True)
    if args.prove:
        media, absent, asked, _ = held
        wider = F.pad(media, (0, 0, 0, 4)), F.pad(absent, (0, 4), value=True)
        with torch.no_grad():
            gap = (model(*wider, asked) - model(media, absent, asked)).abs().mean()
        print(f"four more empty places move the answers by {gap:.6f}")
        print("fault shows:", "yes" if gap > 1e-4 else "no", flush=True)


if __name__ == "__main__":
    main()
