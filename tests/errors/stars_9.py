"""Singing annotation: phoneme recognition (CTC over frames) together with a frame level technique tag.

Synthetic mel frames: every phoneme is a fixed spectrum held for a few frames, the technique adds a
vibrato to the energy.
"""
import argparse
from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

N_PH, N_TECH, N_MEL = 12, 3, 20
hparams = {
    "hidden": 48,
    "lr": 4e-3,
    "batch": 16,
    "lambda_ph_ctc": 1.0,
    "lambda_tech": 1.0,
    "clip": 5.0,
    "label_smoothing": 0.0,
}


class SongDataset(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        spectra = torch.randn(
            N_PH + 1, N_MEL, generator=torch.Generator().manual_seed(0)
        )
        self.items = []
        for _ in range(n):
            k = int(torch.randint(4, 9, (1,), generator=g))
            ph = torch.randint(1, N_PH + 1, (k,), generator=g)
            dur = torch.randint(4, 10, (k,), generator=g)
            frames = spectra[ph.repeat_interleave(dur)]
            tech = int(torch.randint(0, N_TECH, (1,), generator=g))
            t = torch.arange(len(frames)).float()
            wave = 0.5 * torch.sin(t * (0.0, 0.6, 1.3)[tech])
            mel = (
                frames
                + wave[:, None]
                + 0.5 * torch.randn(len(frames), N_MEL, generator=g)
            )
            self.items.append((mel, ph, torch.full((len(frames),), tech)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(rows):
    pad = partial(nn.utils.rnn.pad_sequence, batch_first=True)
    mel = pad([r[0] for r in rows])
    ph = pad([r[1] for r in rows])
    tech = pad([r[2] for r in rows], padding_value=-100)
    return {
        "mel": mel,
        "ph": ph,
        "tech": tech,
        "mel_len": torch.tensor([len(r[0]) for r in rows]),
        "ph_len": torch.tensor([len(r[1]) for r in rows]),
    }


class Annotator(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(N_MEL, hidden, 5, padding=2),
            nn.ReLU(),
            nn.Conv1d(hidden, hidden, 9, padding=4),
            nn.ReLU(),
        )
        self.ph_out = nn.Linear(hidden, N_PH + 1)
        self.tech_out = nn.Linear(hidden, N_TECH)

    def forward(self, mel):
        h = self.conv(mel.transpose(1, 2)).transpose(1, 2)
        return {"ph_frame_logits": self.ph_out(h), "tech_logits": self.tech_out(h)}


class AnnotationTask:
    def __init__(self, args):
        self.args = args
        self.model = Annotator(hparams["hidden"])
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=hparams["lr"], weight_decay=0.01
        )
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 60, gamma=0.8)
        self.gaps = []

    def ph_ctc_loss(self, logits, sample):
        scores = logits.transpose(0, 1)
        if self.args.fixed:
            scores = scores.log_softmax(-1)
        return F.ctc_loss(
            scores,
            sample["ph"],
            sample["mel_len"],
            sample["ph_len"],
            blank=0,
            zero_infinity=True,
        )

    def run_model(self, sample):
        out = self.model(sample["mel"])
        losses = {
            "ph_ctc": self.ph_ctc_loss(out["ph_frame_logits"], sample)
            * hparams["lambda_ph_ctc"],
            "tech": F.cross_entropy(
                out["tech_logits"].flatten(0, 1),
                sample["tech"].flatten(),
                ignore_index=-100,
                label_smoothing=hparams["label_smoothing"],
            )
            * hparams["lambda_tech"],
        }
        return losses, out

    def training_step(self, sample):
        self.model.train()
        losses, out = self.run_model(sample)
        total = sum(losses.values())
        self.optimizer.zero_grad()
        total.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), hparams["clip"])
        self.optimizer.step()
        self.scheduler.step()
        if self.args.prove:
            with torch.no_grad():
                # the objective may depend on the class probabilities alone
                z = out["ph_frame_logits"]
                self.gaps.append(
                    (self.ph_ctc_loss(z, sample) - self.ph_ctc_loss(z + 1.0, sample))
                    .abs()
                    .item()
                )
        return total.item(), {k: round(v.item(), 4) for k, v in losses.items()}

    @torch.no_grad()
    def validate(self, loader):
        self.model.eval()
        dist, words, right, frames = 0, 0, 0, 0
        for s in loader:
            out = self.model(s["mel"])
            best = out["ph_frame_logits"].argmax(-1)
            for b, n, ref, m in zip(best, s["mel_len"], s["ph"], s["ph_len"]):
                hyp = [p for p in torch.unique_consecutive(b[:n]).tolist() if p != 0]
                dist += edit_distance(hyp, ref[:m].tolist())
                words += int(m)
            ok = s["tech"] >= 0
            right += (out["tech_logits"].argmax(-1) == s["tech"])[ok].sum().item()
            frames += ok.sum().item()
        return dist / words, right / frames


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        prev, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            prev, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, prev + (x != y))
    return row[-1]


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=160)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(21)
    train = DataLoader(
        SongDataset(480, 1), hparams["batch"], shuffle=True, collate_fn=collate
    )
    valid = DataLoader(SongDataset(48, 2), 24, collate_fn=collate)
    task, step = AnnotationTask(args), 0
    while step < args.steps:
        for sample in train:
            total, parts = task.training_step(sample)
            step += 1
            if step % 20 == 0:
                per, acc = task.validate(valid)
                print(
                    f"step {step} loss {total:.4f} {parts} phoneme error {per:.3f} technique acc {acc:.3f}"
                )
            if step >= args.steps:
                break
    if args.prove:
        print(
            f"change of the loss by a constant added to all scores {max(task.gaps):.4f}"
        )
        print("fault shows:", "yes" if max(task.gaps) > 1e-2 else "no")
