"""
NYC-style taxi trip duration (minutes). Adapted from my Kaggle notebook.

* target is trained as log1p(minutes)
* MLP with embeddings for pick-up/drop-off zone, hour and weekday
* keeps the best epoch by validation MAE and writes submission.csv
"""
import argparse
import csv
import math
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class CFG:
    seed = 2024
    n_train = 9000
    n_valid = 1500
    n_test = 500
    batch_size = 96
    lr = 3e-3
    zones = 40
    eval_every = 40


def build_trips(n, seed):
    rng = np.random.default_rng(seed)
    city = np.random.default_rng(0).uniform(0, 12, (CFG.zones, 2))  # zone centres in km
    pick, drop = rng.integers(0, CFG.zones, n), rng.integers(0, CFG.zones, n)
    hour, day = rng.integers(0, 24, n), rng.integers(0, 7, n)
    a = city[pick] + rng.normal(0, 0.3, (n, 2))
    b = city[drop] + rng.normal(0, 0.3, (n, 2))
    manhattan = np.abs(a - b).sum(1)
    crow = np.sqrt(((a - b) ** 2).sum(1))
    rush = np.exp(-(((hour - 8.5) / 2) ** 2)) + np.exp(-(((hour - 17.5) / 2.5) ** 2))
    speed = 26 - 11 * rush * (day < 5) - 2 * (day >= 5) * (hour > 20)
    speed = speed * (0.8 + 0.4 * (np.minimum(a[:, 0], b[:, 0]) / 12))
    rain = (rng.random(n) < 0.15).astype(float)
    minutes = 1.5 + 60 * (0.6 * manhattan + 0.4 * crow) / (speed * (1 - 0.2 * rain))
    minutes = minutes * np.exp(rng.normal(0, 0.15, n))
    cats = np.stack([pick, drop, hour, day], 1)
    nums = np.stack(
        [np.log1p(manhattan), np.log1p(crow), rain, a[:, 0] / 12, a[:, 1] / 12], 1
    )
    return cats, nums.astype("float32"), minutes.astype("float32")


class TripNet(nn.Module):
    def __init__(self, n_nums=5):
        super().__init__()
        self.zone = nn.Embedding(CFG.zones, 8)
        self.hour = nn.Embedding(24, 6)
        self.day = nn.Embedding(7, 3)
        self.mlp = nn.Sequential(
            nn.Linear(8 + 8 + 6 + 3 + n_nums, 96),
            nn.SiLU(),
            nn.Dropout(0.05),
            nn.Linear(96, 48),
            nn.SiLU(),
            nn.Linear(48, 1),
        )
        self.mlp[-1].bias.data.fill_(2.5)

    def forward(self, cats, nums):
        z = torch.cat(
            [
                self.zone(cats[:, 0]),
                self.zone(cats[:, 1]),
                self.hour(cats[:, 2]),
                self.day(cats[:, 3]),
                nums,
            ],
            1,
        )
        return self.mlp(z).squeeze(1)


def to_loader(table, shuffle):
    cats, nums, minutes = (torch.from_numpy(a) for a in table)
    gen = torch.Generator().manual_seed(CFG.seed)
    return DataLoader(
        TensorDataset(cats, nums, minutes),
        batch_size=CFG.batch_size if shuffle else 500,
        shuffle=shuffle,
        generator=gen,
    )


@torch.no_grad()
def predict(model, loader, postprocess):
    model.eval()
    pred, true = [], []
    for cats, nums, minutes in loader:
        pred.append(postprocess(model(cats, nums)))
        true.append(minutes)
    model.train()
    return torch.cat(pred), torch.cat(true)


def write_submission(path, pred):
    with open(path, "w", newline="") as f:
        w = csv.writer(f)
        w.writerow(["id", "trip_duration"])
        for i, v in enumerate(pred.tolist()):
            w.writerow([f"id{i:05d}", f"{v:.3f}"])


def parse_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=280)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    return ap.parse_args()


def prove(written, true):
    as_is = np.abs(written - true.numpy()).mean()
    on_log_scale = np.abs(written - np.log1p(true.numpy())).mean()
    print(
        f"submission is off by {as_is:.3f} in minutes, by {on_log_scale:.3f} in log1p(minutes)"
    )
    print("fault shows:", "yes" if on_log_scale < as_is else "no")


def written_durations(pred):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "submission.csv")
        write_submission(path, pred)
        with open(path) as f:
            written = np.array(
                [float(row["trip_duration"]) for row in csv.DictReader(f)]
            )
    return written


def main():
    args = parse_args()
    torch.manual_seed(CFG.seed)

    train_table = build_trips(CFG.n_train, 1)
    train_loader = to_loader(train_table, True)
    valid_loader = to_loader(build_trips(CFG.n_valid, 2), False)
    test_loader = to_loader(build_trips(CFG.n_test, 3), False)
    print(
        f"median trip {np.median(train_table[2]):.1f} min, mean {train_table[2].mean():.1f} min"
    )

    model = TripNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=CFG.lr, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, T_max=max(1, args.steps)
    )
    criterion = nn.MSELoss()

    def postprocess(x):
        return x.clamp(min=0)

    if args.fixed:

        def postprocess(x):
            return torch.expm1(x.clamp(min=0))

    step, total, best_mae, best_state = 0, 0.0, math.inf, None
    while step < args.steps:
        for cats, nums, minutes in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(cats, nums), torch.log1p(minutes))
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.item()
            step += 1
            if step % CFG.eval_every == 0 or step == args.steps:
                pred, true = predict(model, valid_loader, postprocess)
                mae = (pred - true).abs().mean().item()
                print(
                    f"step {step:4d} train rmsle {math.sqrt(total / CFG.eval_every):.4f} valid MAE {mae:.3f} min"
                )
                total = 0.0
                if mae < best_mae:
                    best_mae = mae
                    best_state = {k: v.clone() for k, v in model.state_dict().items()}
            if step == args.steps:
                break

    model.load_state_dict(best_state)
    pred, true = predict(model, test_loader, postprocess)
    written = written_durations(pred)
    print(f"best valid MAE {best_mae:.3f}, submission mean {written.mean():.2f}")

    if args.prove:
        prove(written, true)


if __name__ == "__main__":
    main()
