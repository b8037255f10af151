# Plant leaf disease classification, adapted from my competition notebook.
# 5 classes, 3x32x32 crops.
import argparse
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class CFG:
    seed: int = 2021
    n_classes: int = 5
    n_train: int = 1280
    n_valid: int = 400
    bs: int = 64
    lr: float = 0.08
    milestones: tuple = (5, 8)  # epochs
    gamma: float = 0.1


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--prove", action="store_true")
args = parser.parse_args()

cfg = CFG()
torch.manual_seed(cfg.seed)


def make_leaves(n, g):
    """green leaf + class specific spots (size, colour, number)"""
    y = torch.randint(0, cfg.n_classes, (n,), generator=g)
    x = torch.rand(n, 3, 32, 32, generator=g) * 0.25
    x[:, 1] += 0.45
    yy, xx = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    for i in range(n):
        c = int(y[i])
        n_spots = [0, 3, 6, 3, 6][c]
        radius = [0, 3.0, 2.0, 2.0, 3.0][c]
        colour = torch.tensor(
            [
                [0.0, 0.0, 0.0],
                [0.3, -0.2, 0.0],
                [0.3, -0.2, 0.0],
                [0.25, 0.1, -0.1],
                [0.25, 0.1, -0.1],
            ][c]
        )
        for _ in range(n_spots):
            cy, cx = (torch.rand(2, generator=g) * 32).tolist()
            blob = ((yy - cy) ** 2 + (xx - cx) ** 2 < radius**2).float()
            x[i] += colour[:, None, None] * blob
    x += 0.08 * torch.randn(x.shape, generator=g)
    return (x - 0.3) / 0.25, y


class SmallNet(nn.Module):
    def __init__(self):
        super().__init__()

        def block(i, o):
            return nn.Sequential(
                nn.Conv2d(i, o, 3, padding=1, bias=False),
                nn.BatchNorm2d(o),
                nn.ReLU(inplace=True),
                nn.MaxPool2d(2),
            )

        self.features = nn.Sequential(block(3, 16), block(16, 32), block(32, 48))
        self.head = nn.Sequential(nn.Dropout(0.1), nn.Linear(48, cfg.n_classes))

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))


g = torch.Generator().manual_seed(cfg.seed)
train_ds = TensorDataset(*make_leaves(cfg.n_train, g))
valid_ds = TensorDataset(*make_leaves(cfg.n_valid, g))
train_dl = DataLoader(train_ds, batch_size=cfg.bs, shuffle=True, drop_last=True)
valid_dl = DataLoader(valid_ds, batch_size=200)

model = SmallNet()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(
    model.parameters(), lr=cfg.lr, momentum=0.9, weight_decay=1e-4
)
scheduler = torch.optim.lr_scheduler.MultiStepLR(
    optimizer, milestones=cfg.milestones, gamma=cfg.gamma
)

steps_done, epoch = 0, 0
lr_used = []
while steps_done < args.steps:
    model.train()
    total, seen = 0.0, 0
    for it, (xb, yb) in enumerate(train_dl):
        loss = criterion(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        lr_used.append((epoch, optimizer.param_groups[0]["lr"]))
        optimizer.step()
        step_now = True
        if args.fixed:
            step_now = it == len(train_dl) - 1
        if step_now:
            scheduler.step()
        total += loss.item() * len(xb)
        seen += len(xb)
        steps_done += 1
        if steps_done >= args.steps:
            break

    model.eval()
    hits = 0
    with torch.no_grad():
        for xb, yb in valid_dl:
            hits += (model(xb).argmax(1) == yb).sum().item()
    print(
        f"epoch {epoch}: train loss {total / seen:.4f}  valid acc {hits / len(valid_ds):.4f}"
    )
    epoch += 1

if args.prove:
    # the plan: full rate up to the first milestone epoch
    early = [lr for ep, lr in lr_used if ep < cfg.milestones[0]]
    print("fault shows:", "yes" if min(early) < cfg.lr * 0.99 else "no")
