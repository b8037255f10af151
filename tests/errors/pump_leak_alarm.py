"""Leak alarm for district-heating pumps, trained on sensor snapshots.

Leaks are the smaller class, so they get a weight in the loss.
"""
import argparse
import torch
import torch.nn as nn


def read_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=300)
    ap.add_argument("--batch", type=int, default=128)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--log-every", type=int, default=50)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    return ap.parse_args()


SENSORS = [
    "flow_in",
    "flow_out",
    "pressure",
    "temperature",
    "vibration",
    "current",
    "humidity",
    "valve",
]


def snapshots(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, len(SENSORS), generator=g)
    x[:, 1] = 0.9 * x[:, 0] + 0.4 * x[:, 1]
    drive = (
        1.6 * (x[:, 0] - x[:, 1])
        - 0.9 * x[:, 2]
        + 0.8 * x[:, 6]
        + 0.5 * x[:, 4] * x[:, 5]
    )
    drive = drive + 0.7 * torch.randn(n, generator=g)
    cut = 1.3
    return x, (drive > cut).float()


class LeakNet(nn.Module):
    def __init__(self, n_in, hidden=48, dropout=0.1):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(n_in, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(1)


def class_weight(labels, fixed):
    pos = labels.sum()
    neg = len(labels) - pos
    if fixed:
        return neg / pos
    return pos / neg


@torch.no_grad()
def report(model, x, y):
    """Precision, recall and balanced accuracy at a threshold of 0.5."""
    model.eval()
    hit = torch.sigmoid(model(x)) > 0.5
    model.train()
    truth = y > 0.5
    tp = (hit & truth).sum().item()
    fp = (hit & ~truth).sum().item()
    fn = (~hit & truth).sum().item()
    tn = (~hit & ~truth).sum().item()
    precision = tp / max(tp + fp, 1)
    recall = tp / max(tp + fn, 1)
    balanced = 0.5 * (recall + tn / max(tn + fp, 1))
    return precision, recall, balanced


def main():
    args = read_args()
    torch.manual_seed(31)
    x_train, y_train = snapshots(4000, 100)
    x_val, y_val = snapshots(2000, 101)
    mean, std = x_train.mean(0), x_train.std(0)
    x_train, x_val = (x_train - mean) / std, (x_val - mean) / std
    print(
        f"train: {len(y_train)} snapshots, {int(y_train.sum())} leaks "
        f"({100 * y_train.mean():.1f}%)"
    )

    model = LeakNet(len(SENSORS))
    criterion = nn.BCEWithLogitsLoss(pos_weight=class_weight(y_train, args.fixed))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=100, gamma=0.5)

    g = torch.Generator().manual_seed(5)
    order, at = torch.randperm(len(x_train), generator=g), 0
    total = 0.0
    for step in range(1, args.steps + 1):
        if at + args.batch > len(order):
            order, at = torch.randperm(len(x_train), generator=g), 0
        rows = order[at : at + args.batch]
        at += args.batch

        logits = model(x_train[rows])
        loss = criterion(logits, y_train[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()

        total += loss.item()
        if step % args.log_every == 0:
            p, r, b = report(model, x_val, y_val)
            print(
                f"step {step:4d}  loss {total / args.log_every:.4f}  precision {p:.3f}  "
                f"recall {r:.3f}  balanced accuracy {b:.3f}"
            )
            total = 0.0

    p, r, b = report(model, x_val, y_val)
    print(f"validation: precision {p:.3f}, recall {r:.3f}, balanced accuracy {b:.3f}")

    if args.prove:
        each = nn.BCEWithLogitsLoss(pos_weight=criterion.pos_weight, reduction="none")
        blank = each(torch.zeros_like(y_train), y_train)
        share = (blank[y_train > 0.5].sum() / blank.sum()).item()
        print(f"share of the leaks in the loss of an undecided model: {share:.4f}")
        print("fault shows:", "yes" if abs(share - 0.5) > 0.05 else "no")


if __name__ == "__main__":
    main()
