"""
ECG beats (normal / premature / atrial / noise) with a dilated 1-d CNN.

Small random search over the hyper-parameters, each trial judged on validation patients, then one
final training with the best setting (stochastic weight averaging in the last part) and one look
at the test patients. Beats of a patient are never in two parts.
"""
import argparse
import json
import math
import random
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset

NAMES = ("normal", "premature", "atrial", "noise")
LENGTH = 96


def bump(t, centre, width, height):
    return height * np.exp(-0.5 * ((t - centre) / width) ** 2)


def patient_beats(rng, n):
    """Each patient has his own amplitude, baseline and QRS width."""
    t = np.linspace(0, 1, LENGTH)
    amp, qrs, base = (
        rng.uniform(0.7, 1.3),
        rng.uniform(0.014, 0.022),
        rng.uniform(-0.3, 0.3),
    )
    kinds = rng.choice(4, size=n, p=[0.55, 0.2, 0.15, 0.1])
    beats = []
    for k in kinds:
        shift = rng.normal(0, 0.02)
        if k == 3:
            x = np.cumsum(rng.normal(0, 0.15, LENGTH))
        else:
            p_height = 0.0 if k == 2 else 0.18
            width, peak = (qrs * 2.6, 1.1) if k == 1 else (qrs, 1.0)
            x = (
                bump(t, 0.25 + shift, 0.03, p_height)
                + bump(t, 0.42 + shift, width, peak)
                - bump(t, 0.47 + shift, width, 0.25)
                + bump(t, 0.7 + shift, 0.06, 0.3 if k != 1 else -0.25)
            )
            if k == 2:
                x = x + 0.05 * np.sin(2 * np.pi * 7 * t + rng.uniform(0, 6))
        beats.append(amp * x + base + rng.normal(0, 0.1, LENGTH))
    return np.array(beats, dtype=np.float32), kinds


def build(patients, seed):
    xs, ys = zip(
        *[patient_beats(np.random.default_rng([seed, p]), 40) for p in patients]
    )
    x = np.concatenate(xs)
    x = x - np.median(x, axis=1, keepdims=True)  # takes the baseline of each beat away
    return TensorDataset(
        torch.from_numpy(x).unsqueeze(1), torch.from_numpy(np.concatenate(ys))
    )


@dataclass
class Trial:
    lr: float
    width: int
    dropout: float
    weight_decay: float
    optimizer: str

    @staticmethod
    def draw(rng):
        return Trial(
            lr=10 ** rng.uniform(-3, -1.7),
            width=rng.choice([8, 12, 16]),
            dropout=rng.choice([0.0, 0.1, 0.3]),
            weight_decay=10 ** rng.uniform(-5, -2),
            optimizer=rng.choice(["adamw", "rmsprop"]),
        )


class BeatNet(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        layers, c = [], 1
        for dilation in (1, 2, 4):
            layers += [
                nn.Conv1d(
                    c, width, 5, padding=2 * dilation, dilation=dilation, bias=False
                ),
                nn.BatchNorm1d(width),
                nn.ReLU(),
            ]
            c = width
        self.conv = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Dropout(dropout), nn.Linear(2 * width, len(NAMES)))

    def forward(self, x):
        x = self.conv(x)
        return self.head(torch.cat([x.mean(-1), x.amax(-1)], dim=1))


def make_optimizer(t, model):
    cls = {"adamw": torch.optim.AdamW, "rmsprop": torch.optim.RMSprop}[t.optimizer]
    return cls(model.parameters(), lr=t.lr, weight_decay=t.weight_decay)


def class_weights(ds):
    counts = torch.bincount(ds.tensors[1], minlength=len(NAMES)).float()
    w = counts.sum() / (len(NAMES) * counts)
    return w.sqrt()


@torch.no_grad()
def macro_f1(model, ds):
    model.eval()
    pred = torch.cat([model(x).argmax(1) for x, _ in DataLoader(ds, batch_size=256)])
    y, scores = ds.tensors[1], []
    for c in range(len(NAMES)):
        tp = ((pred == c) & (y == c)).sum().item()
        wrong = ((pred == c) ^ (y == c)).sum().item()
        scores.append(2 * tp / max(1, 2 * tp + wrong))
    return float(np.mean(scores)), scores


def train(trial, ds, epochs, seed, swa_from=None, prune=None, valid=None):
    torch.manual_seed(seed)
    loader = DataLoader(ds, batch_size=64, shuffle=True)
    model = BeatNet(trial.width, trial.dropout)
    opt = make_optimizer(trial, model)
    criterion = nn.CrossEntropyLoss(weight=class_weights(ds))
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=epochs)
    averaged, swa_sched = None, None
    for epoch in range(epochs):
        model.train()
        for x, y in loader:
            opt.zero_grad(set_to_none=True)
            loss = criterion(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
        if not math.isfinite(loss.item()):
            return model, 0.0
        if swa_from is not None and epoch >= swa_from:
            if averaged is None:
                averaged = AveragedModel(model)
                swa_sched = SWALR(opt, swa_lr=trial.lr / 4, anneal_epochs=1)
            averaged.update_parameters(model)
            swa_sched.step()
        else:
            cosine.step()
        if valid is not None:
            score, _ = macro_f1(model, valid)
            if prune is not None and epoch == epochs // 2 and score < prune:
                print("   pruned", end="")
                break
    if averaged is not None:
        update_bn(loader, averaged)
        model = averaged
    return model, (macro_f1(model, valid)[0] if valid is not None else None)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--trials", type=int, default=4)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--final-epochs", type=int, default=6)
    ap.add_argument("--seed", type=int, default=31)
    args = ap.parse_args()
    rng = random.Random(args.seed)

    patients = list(range(30))
    rng.shuffle(patients)
    train_ds, valid_ds, test_ds = (
        build(patients[:18], 1),
        build(patients[18:24], 1),
        build(patients[24:], 1),
    )

    best, best_trial = -1.0, None
    for i in range(args.trials):
        trial = Trial.draw(rng)
        _, score = train(
            trial, train_ds, args.epochs, args.seed, prune=0.5 * best, valid=valid_ds
        )
        print(
            f"trial {i}: F1 {score:.3f} {json.dumps({k: round(v, 5) if isinstance(v, float) else v for k, v in asdict(trial).items()})}"
        )
        if score > best:
            best, best_trial = score, trial

    # final model: training and validation patients together, nothing is chosen after this
    both = build(patients[:24], 1)
    final, _ = train(
        best_trial,
        both,
        args.final_epochs,
        args.seed + 1,
        swa_from=args.final_epochs * 2 // 3,
    )
    f1, per_class = macro_f1(final, test_ds)
    print(
        f"test macro F1 {f1:.3f} "
        + " ".join(f"{n} {s:.2f}" for n, s in zip(NAMES, per_class))
    )


if __name__ == "__main__":
    main()
