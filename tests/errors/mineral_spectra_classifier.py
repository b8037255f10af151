"""Mineral identification from Raman-like spectra (string labels, MLP on binned intensities)."""
import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

MINERALS = [
    "albite",
    "apatite",
    "barite",
    "calcite",
    "dolomite",
    "fluorite",
    "galena",
    "gypsum",
    "halite",
    "olivine",
    "pyrite",
    "quartz",
]
RARE = {"olivine"}
BINS = 100


def spectrum_library():
    g = torch.Generator().manual_seed(77)
    axis = torch.linspace(0, 1, BINS)
    lib = {}
    for name in MINERALS:
        pos = torch.rand(4, generator=g)
        height = 0.4 + torch.rand(4, generator=g)
        lib[name] = (
            height[:, None] * torch.exp(-(((axis - pos[:, None]) / 0.02) ** 2))
        ).sum(0)
    return lib


def measure(n, seed, exclude=()):
    g = torch.Generator().manual_seed(seed)
    lib = spectrum_library()
    available = [m for m in MINERALS if m not in exclude]
    samples = []
    for _ in range(n):
        name = available[int(torch.randint(len(available), (1,), generator=g))]
        gain = 0.6 + 0.8 * torch.rand(1, generator=g)
        shift = int(torch.randint(-1, 2, (1,), generator=g))
        noise = 0.28 * torch.randn(BINS, generator=g)
        samples.append((torch.roll(lib[name], shift) * gain + noise, name))
    return samples


class SpectraSplit:
    def __init__(self, samples, classes=None):
        self.names = [name for _, name in samples]
        self.classes = classes if classes is not None else sorted(set(self.names))
        self.class_to_idx = {c: i for i, c in enumerate(self.classes)}
        self.x = torch.stack([s for s, _ in samples])
        self.x = self.x / self.x.norm(dim=1, keepdim=True)
        self.y = torch.tensor([self.class_to_idx[n] for n in self.names])

    def __len__(self):
        return len(self.y)

    def batches(self, size, generator=None):
        order = (
            torch.randperm(len(self), generator=generator)
            if generator
            else torch.arange(len(self))
        )
        for idx in order.split(size):
            yield self.x[idx], self.y[idx]


class SpectraMLP(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(BINS, 96),
            nn.LayerNorm(96),
            nn.GELU(),
            nn.Dropout(0.3),
            nn.Linear(96, 48),
            nn.GELU(),
            nn.Linear(48, n_classes),
        )

    def forward(self, x):
        return self.net(x)


def validate(model, split):
    model.eval()
    loss = hits = 0.0
    with torch.no_grad():
        for x, y in split.batches(128):
            logits = model(x)
            loss += F.cross_entropy(logits, y, reduction="sum").item()
            hits += (logits.argmax(1) == y).sum().item()
    return loss / len(split), hits / len(split)


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--epochs", type=int, default=20)
    ap.add_argument("--batch-size", type=int, default=64)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(4)

    train = SpectraSplit(measure(1200, seed=51))
    val_samples = measure(300, seed=52, exclude=RARE)
    if args.fixed:
        val = SpectraSplit(val_samples, classes=train.classes)
    else:
        val = SpectraSplit(val_samples)
    print(f"train {len(train)} spectra, val {len(val)} spectra")

    model = SpectraMLP(len(train.classes))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.3, patience=1
    )
    gen = torch.Generator().manual_seed(6)

    best, best_state = float("inf"), None
    for epoch in range(args.epochs):
        model.train()
        total = 0.0
        for x, y in train.batches(args.batch_size, gen):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(y)
        val_loss, val_acc = validate(model, val)
        plateau.step(val_loss)
        if val_loss < best:
            best, best_state = val_loss, copy.deepcopy(model.state_dict())
        if epoch % 3 == 0 or epoch == args.epochs - 1:
            print(
                f"epoch {epoch:2d}: train {total / len(train):.4f} val {val_loss:.4f} "
                f"acc {val_acc:.3f} lr {optimizer.param_groups[0]['lr']:.1e}"
            )

    model.load_state_dict(best_state)
    print("selected model: val loss %.4f acc %.3f" % validate(model, val))

    if args.prove:
        model.eval()
        with torch.no_grad():
            named = [train.classes[i] for i in model(val.x).argmax(1).tolist()]
        by_name = sum(a == b for a, b in zip(named, val.names)) / len(val)
        by_id = validate(model, val)[1]
        print(f"accuracy by name {by_name:.3f}, by id {by_id:.3f}")
        print("fault shows:", "yes" if abs(by_name - by_id) > 1e-6 else "no")


if __name__ == "__main__":
    main()
