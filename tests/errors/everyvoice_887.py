"""A small acoustic model for speech: phonemes and their durations become mel frames.

Utterances are made up: each phoneme has a colour of its own in the mel bins, which
fades over the phoneme. The model predicts the frames and the logarithms of the
durations. EveryVoiceTTS/EveryVoice#887.
"""

import argparse

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

PHONEMES = 24
MELS = 20


def utterances(count, seed):
    generator = torch.Generator().manual_seed(seed)
    colours = torch.randn(PHONEMES, MELS, generator=torch.Generator().manual_seed(9))
    rows = []
    for _ in range(count):
        length = int(torch.randint(3, 16, (1,), generator=generator))
        phones = torch.randint(1, PHONEMES, (length,), generator=generator)
        jitter = torch.randint(0, 3, (length,), generator=generator)
        durations = 2 + phones % 4 + jitter
        fade = torch.cat([torch.linspace(1.0, 0.4, int(d)) for d in durations])
        mel = colours[phones.repeat_interleave(durations)] * fade[:, None] - 2.0
        noise = 0.1 * torch.randn(mel.shape, generator=generator)
        rows.append((phones, durations, mel + noise))
    return rows


def collate(rows):
    phones, _, mels = zip(*rows)
    names = ("phones", "durations", "mel")
    batch = {n: pad_sequence(r, batch_first=True) for n, r in zip(names, zip(*rows))}
    batch["src_lens"] = torch.tensor([len(p) for p in phones])
    batch["mel_lens"] = torch.tensor([len(m) for m in mels])
    return batch


class ConvStack(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv1d(width, width, 3, padding=1) for _ in range(layers)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))

    def forward(self, x, keep):
        for conv, norm in zip(self.convs, self.norms):
            y = conv((x * keep).transpose(1, 2)).transpose(1, 2)
            x = norm(x + torch.relu(y))
        return x * keep


class AcousticModel(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.embed = nn.Embedding(PHONEMES, width, padding_idx=0)
        self.encoder = ConvStack(width, 2)
        self.duration = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 1)
        )
        self.decoder = ConvStack(width, 2)
        self.mel = nn.Linear(width, MELS)

    def forward(self, batch):
        src_keep = lengths_to_mask(batch["src_lens"], batch["phones"].size(1))
        hidden = self.encoder(self.embed(batch["phones"]), src_keep[..., None])
        log_durations = self.duration(hidden).squeeze(-1)
        # Frames follow the true durations, as always in training.
        frames = pad_sequence(
            [h.repeat_interleave(d, 0) for h, d in zip(hidden, batch["durations"])],
            batch_first=True,
        )
        extra = batch["mel"].size(1) - frames.size(1)
        frames = nn.functional.pad(frames, (0, 0, 0, extra))
        mel_keep = lengths_to_mask(batch["mel_lens"], frames.size(1))
        mel = self.mel(self.decoder(frames, mel_keep[..., None]))
        return {"mel": mel, "log_durations": log_durations}


def lengths_to_mask(lengths, size):
    return torch.arange(size) < lengths[:, None]


class AcousticLoss(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.fixed = fixed

    def masked(self, loss, mask):
        mask = mask.expand_as(loss)
        if self.fixed:
            return loss[mask].mean()
        return (loss * mask).mean()

    def forward(self, output, batch):
        src = lengths_to_mask(batch["src_lens"], batch["phones"].size(1))
        mel = lengths_to_mask(batch["mel_lens"], batch["mel"].size(1))
        wanted = torch.log(batch["durations"].float() + 1)
        spectral = nn.functional.mse_loss(output["mel"], batch["mel"], reduction="none")
        timing = nn.functional.mse_loss(
            output["log_durations"], wanted, reduction="none"
        )
        return {
            "mel": self.masked(spectral, mel[..., None]),
            "duration": self.masked(timing, src),
        }


@torch.no_grad()
def validate(model, criterion, loader):
    model.eval()
    sums = [sum(criterion(model(b), b).values()).item() for b in loader]
    model.train()
    return sum(sums) / len(sums)


@torch.no_grad()
def depends_on_padding(model, criterion, batch):
    model.eval()
    longer = dict(batch)
    longer["mel"] = nn.functional.pad(batch["mel"], (0, 0, 0, batch["mel"].size(1)))
    short, long = (criterion(model(b), b)["mel"].item() for b in (batch, longer))
    model.train()
    print(f"mel loss {short:.4f}, with twice the padding {long:.4f}", flush=True)
    return abs(long - short) > 0.1 * short


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=160)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    train = DataLoader(
        utterances(320, 1), batch_size=16, shuffle=True, collate_fn=collate
    )
    valid = DataLoader(utterances(64, 2), batch_size=16, collate_fn=collate)
    model = AcousticModel()
    criterion = AcousticLoss(options.fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.98))
    step = 0
    while step < options.steps:
        for batch in train:
            if step == options.steps:
                break
            losses = criterion(model(batch), batch)
            loss = losses["mel"] + losses["duration"]
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if step % 10 == 0:
                parts = ", ".join(f"{k} {v.item():.4f}" for k, v in losses.items())
                print(f"step {step} loss {loss.item():.4f} ({parts})", flush=True)
            step += 1
        print(f"validation {validate(model, criterion, valid):.4f}", flush=True)
    if options.prove:
        shows = depends_on_padding(model, criterion, next(iter(valid)))
        print("fault shows:", "yes" if shows else "no")


if __name__ == "__main__":
    main()
