# %% [markdown]
# Leaf disease, baseline notebook -> script. 5 classes, 20x20 crops.
# %%
import argparse
import copy
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Subset, random_split

cli = argparse.ArgumentParser()
cli.add_argument("--steps", type=int, default=120)
cli.add_argument("--fixed", action="store_true")
cli.add_argument("--prove", action="store_true")
args = cli.parse_args()

CLASSES = ["healthy", "rust", "blight", "mildew", "mosaic"]
BATCH = 16
SEED = 314
torch.manual_seed(SEED)
np.random.seed(SEED)


# %% data
def draw_leaf(label, rng):
    yy, xx = np.mgrid[:20, :20]
    img = np.zeros((3, 20, 20), np.float32)
    img[1] = 0.55 + 0.05 * rng.standard_normal()
    if label == 1:
        for _ in range(6):
            y, x = rng.integers(2, 18, 2)
            img[0, y - 1 : y + 2, x - 1 : x + 2] += 0.5
    elif label == 2:
        y, x = rng.uniform(5, 15, 2)
        img[:, (yy - y) ** 2 + (xx - x) ** 2 < 22] *= 0.45
    elif label == 3:
        y, x = rng.uniform(4, 16, 2)
        img += 0.45 * np.exp(-((yy - y) ** 2 + (xx - x) ** 2) / 25)
    elif label == 4:
        img[0] += 0.3 * ((yy // 4 + xx // 4) % 2)
    img += 0.15 * rng.standard_normal(img.shape)
    return torch.from_numpy(img.astype(np.float32))


class LeafData(Dataset):
    def __init__(self, n, transform=None):
        rng = np.random.default_rng(SEED)
        self.labels = rng.integers(0, len(CLASSES), n)
        self.images = [draw_leaf(c, rng) for c in self.labels]
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        img = self.images[i]
        if self.transform is not None:
            img = self.transform(img)
        return img, int(self.labels[i])


class Normalise:
    def __init__(self, mean=(0.12, 0.52, 0.05), std=(0.25, 0.22, 0.22)):
        self.mean = torch.tensor(mean).view(3, 1, 1)
        self.std = torch.tensor(std).view(3, 1, 1)

    def __call__(self, img):
        return (img - self.mean) / self.std


class Augment:
    """Random flips, shifts and brightness, then the usual normalisation."""

    def __init__(self):
        self.norm = Normalise()
        self.calls = 0

    def __call__(self, img):
        self.calls += 1
        if torch.rand(()) < 0.5:
            img = img.flip(2)
        if torch.rand(()) < 0.5:
            img = img.flip(1)
        dy, dx = torch.randint(-3, 4, (2,)).tolist()
        img = torch.roll(img, (dy, dx), (1, 2))
        img = img * (0.8 + 0.4 * torch.rand(()))
        return self.norm(img)


full = LeafData(420)
n_val = 120
train_set, val_set = random_split(
    full, [len(full) - n_val, n_val], generator=torch.Generator().manual_seed(1)
)
if args.fixed:
    val_set = Subset(copy.copy(full), val_set.indices)
augment = Augment()
train_set.dataset.transform = augment
val_set.dataset.transform = Normalise()

train_dl = DataLoader(train_set, batch_size=BATCH, shuffle=True, drop_last=True)
val_dl = DataLoader(val_set, batch_size=60)


# %% model
def conv(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU()
    )


net = nn.Sequential(
    conv(3, 16),
    nn.MaxPool2d(2),
    conv(16, 24),
    nn.MaxPool2d(2),
    conv(24, 32),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Dropout(0.2),
    nn.Linear(32, len(CLASSES)),
)
opt = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=1e-2)
sched = torch.optim.lr_scheduler.OneCycleLR(
    opt, max_lr=6e-3, total_steps=max(args.steps, 2)
)

# %% training
step = epoch = 0
tic = time.time()
while step < args.steps:
    net.train()
    losses, hits, n = [], 0, 0
    for xb, yb in train_dl:
        out = net(xb)
        loss = F.cross_entropy(out, yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        losses.append(loss.item())
        hits += (out.argmax(1) == yb).sum().item()
        n += len(yb)
        step += 1
        if step >= args.steps:
            break
    net.eval()
    with torch.no_grad():
        val_hits = sum((net(x).argmax(1) == y).sum().item() for x, y in val_dl)
    print(
        f"epoch {epoch} step {step} loss {np.mean(losses):.4f} train acc {hits / n:.3f} val acc {val_hits / n_val:.3f}"
    )
    epoch += 1

# %%
if args.prove:
    a, b = train_set[0][0], train_set[0][0]
    c, d = train_set[0][0], train_set[0][0]
    frozen = torch.equal(a, b) and torch.equal(c, d) and augment.calls == 0
    print(
        f"# pictures augmented during the training: {augment.calls}; same row twice gives the same picture: {torch.equal(a, b)}"
    )
    print("fault shows:", "yes" if frozen else "no")
