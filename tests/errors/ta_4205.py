"""Recognizes made-up speech with a small Conformer and the CTC loss.

After pytorch/audio, issue 4205.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

MELS, TOKENS = 40, 20


class Utterances(Dataset):
    """Filterbanks: each token is held for some frames."""

    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        sound = torch.randn(TOKENS, MELS, generator=torch.Generator().manual_seed(99))
        self.items = []
        for _ in range(count):
            length = int(torch.randint(3, 12, (1,), generator=generator))
            tokens = torch.randint(1, TOKENS, (length,), generator=generator)
            frames = torch.randint(4, 9, (length,), generator=generator)
            feats = sound[tokens.repeat_interleave(frames)]
            feats = feats + 0.4 * torch.randn(feats.shape, generator=generator)
            self.items.append((feats, tokens))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def collate(batch):
    feats, tokens = zip(*batch)
    return (
        pad_sequence(feats, batch_first=True),
        torch.tensor([len(one) for one in feats]),
        pad_sequence(tokens, batch_first=True),
        torch.tensor([len(one) for one in tokens]),
    )


class ConvModule(nn.Module):
    def __init__(self, width, kernel=7, mask_padding=False):
        super().__init__()
        self.mask_padding = mask_padding
        self.ln = nn.LayerNorm(width)
        self.pw1 = nn.Conv1d(width, 2 * width, 1)
        self.dw = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.norm = nn.BatchNorm1d(width)
        self.pw2 = nn.Conv1d(width, width, 1)
        self.drop = nn.Dropout(0.1)

    def forward(self, x, pad_mask):
        x = F.glu(self.pw1(self.ln(x).transpose(1, 2)), dim=1)
        if self.mask_padding:
            x = self.dw(x.masked_fill(pad_mask[:, None, :], 0.0)).transpose(1, 2)
            frames = torch.zeros_like(x)
            frames[~pad_mask] = self.norm(x[~pad_mask])
            x = frames.transpose(1, 2)
        else:
            x = self.norm(self.dw(x))
        return self.drop(self.pw2(F.silu(x)).transpose(1, 2))


class FeedForward(nn.Sequential):
    def __init__(self, width):
        super().__init__(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.SiLU(),
            nn.Dropout(0.1), nn.Linear(2 * width, width),
        )  # fmt: skip


class ConformerLayer(nn.Module):
    def __init__(self, width, fixed):
        super().__init__()
        self.ff1, self.ff2 = FeedForward(width), FeedForward(width)
        self.ln = nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, 4, dropout=0.1, batch_first=True)
        self.conv = ConvModule(width, mask_padding=fixed)
        self.out = nn.LayerNorm(width)

    def forward(self, x, pad_mask):
        x = x + 0.5 * self.ff1(x)
        h = self.ln(x)
        x = x + self.attn(h, h, h, key_padding_mask=pad_mask, need_weights=False)[0]
        x = x + self.conv(x, pad_mask)
        return self.out(x + 0.5 * self.ff2(x))


class Recognizer(nn.Module):
    def __init__(self, fixed, width=64):
        super().__init__()
        self.inp = nn.Linear(MELS, width)
        self.layers = nn.ModuleList(ConformerLayer(width, fixed) for _ in range(2))
        self.head = nn.Linear(width, TOKENS)

    def forward(self, feats, lengths):
        pad_mask = torch.arange(feats.size(1))[None] >= lengths[:, None]
        x = self.inp(feats)
        for layer in self.layers:
            x = layer(x, pad_mask)
        return self.head(x).log_softmax(-1)


@torch.no_grad()
def evaluate(model, loader, ctc):
    model.eval()
    total = 0.0
    for feats, frames, tokens, lengths in loader:
        logp = model(feats, frames).transpose(0, 1)
        total += ctc(logp, tokens, frames, lengths).item()
    model.train()
    return total / len(loader)


@torch.no_grad()
def change_by_padding(model, feats):
    """How far the output of an utterance is off behind which padding comes."""
    model.eval()
    length = torch.tensor([len(feats)])
    alone = model(feats[None], length)
    padded = model(F.pad(feats, (0, 0, 0, 20))[None], length)[:, : len(feats)]
    model.train()
    return (alone - padded).abs().max().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    model = Recognizer(args.fixed)
    ctc = nn.CTCLoss(blank=0, zero_infinity=True)
    data, held = Utterances(320, args.seed), Utterances(24, args.seed + 1)
    train = DataLoader(data, batch_size=16, shuffle=True, collate_fn=collate)
    batched = DataLoader(held, batch_size=16, collate_fn=collate)
    single = DataLoader(held, batch_size=1, collate_fn=collate)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    step = 0
    for epoch in range(args.epochs):
        for feats, frames, tokens, lengths in train:
            logp = model(feats, frames).transpose(0, 1)
            loss = ctc(logp, tokens, frames, lengths)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        losses = [evaluate(model, loader, ctc) for loader in (batched, single)]
        print(f"epoch {epoch} batched {losses[0]:.3f} single {losses[1]:.3f}")
    if args.prove:
        change = change_by_padding(model, held[0][0])
        print(f"padding changes the log probabilities by {change:.6f}")
        print("fault shows:", "yes" if change > 1e-3 else "no", flush=True)


if __name__ == "__main__":
    main()
