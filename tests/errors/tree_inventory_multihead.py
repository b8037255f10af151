import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

# Street tree inventory: from a lidar/NDVI profile, predict three attributes.
TASKS = {"species": 6, "vitality": 3, "height": 5}
WEIGHTS = {"species": 1.0, "vitality": 1.0, "height": 0.5}


class Trees(Dataset):
    def __init__(self, n, seed, bins=24):
        g = torch.Generator().manual_seed(seed)
        self.labels = {
            t: torch.randint(0, k, (n,), generator=g) for t, k in TASKS.items()
        }
        z = torch.linspace(0, 1, bins)
        top = (
            0.3
            + 0.15 * self.labels["height"].float()
            + 0.05 * torch.randn(n, generator=g)
        )
        form = 1.0 + self.labels["species"].float()
        crown = torch.exp(-(((z - 0.7 * top[:, None]) / 0.2) ** 2))
        lidar = crown * (1 + 0.6 * torch.sin(form[:, None] * 6 * z))
        ndvi = 0.3 + 0.2 * self.labels["vitality"].float()[:, None] + 0.2 * crown
        self.x = torch.stack(
            [
                lidar + 0.15 * torch.randn(n, bins, generator=g),
                ndvi + 0.3 * torch.randn(n, bins, generator=g),
            ],
            dim=1,
        )

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], {t: y[i] for t, y in self.labels.items()}


class InventoryNet(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv1d(2, 16, 5, padding=2),
            nn.ReLU(),
            nn.Conv1d(16, 32, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 12, hidden),
            nn.ReLU(),
        )
        self.heads = nn.ModuleDict({t: nn.Linear(hidden, k) for t, k in TASKS.items()})

    def forward(self, x):
        h = self.trunk(x)
        return {t: head(h) for t, head in self.heads.items()}


def compute_loss(outputs, labels, fixed):
    total = torch.zeros(())
    for task, weight in WEIGHTS.items():
        loss = weight * F.cross_entropy(outputs[task], labels[task])
        total = total + loss if fixed else loss
    return total


def accuracy(model, loader):
    model.eval()
    right = dict.fromkeys(TASKS, 0)
    count = 0
    with torch.no_grad():
        for x, labels in loader:
            out = model(x)
            count += len(x)
            for t in TASKS:
                right[t] += (out[t].argmax(1) == labels[t]).sum().item()
    model.train()
    return {t: right[t] / count for t in TASKS}


def run(args):
    torch.manual_seed(args.seed)
    train = DataLoader(
        Trees(1500, 1),
        batch_size=50,
        shuffle=True,
        generator=torch.Generator().manual_seed(args.seed),
    )
    test = DataLoader(Trees(500, 2), batch_size=250)
    model = InventoryNet()
    opt = torch.optim.Adam(model.parameters(), lr=1.5e-3)
    grads = {t: 0.0 for t in TASKS}

    for epoch in range(args.epochs):
        mean = 0.0
        for x, labels in train:
            loss = compute_loss(model(x), labels, args.fixed)
            opt.zero_grad()
            loss.backward()
            opt.step()
            mean += loss.item() / len(train)
            if args.prove:
                for t in TASKS:
                    g = model.heads[t].weight.grad
                    grads[t] += 0.0 if g is None else g.abs().sum().item()
        if epoch % 2 == 0 or epoch == args.epochs - 1:
            print(f"epoch {epoch:02d} loss {mean:.4f}")

    acc = accuracy(model, test)
    print("test accuracy  " + "  ".join(f"{t} {a:.3f}" for t, a in acc.items()))
    return grads


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--seed", type=int, default=77)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    grads = run(args)
    if args.prove:
        print("gradient received by head:", {t: round(v, 3) for t, v in grads.items()})
        print("fault shows:", "yes" if min(grads.values()) == 0.0 else "no")


if __name__ == "__main__":
    main()
