"""Mushroom species from cap/gill/stem measurements (mixed features)."""
import argparse
import torch
import torch.nn as nn
import torch.nn.functional as F

SPECIES = 6


def forage(n, seed):
    """12 continuous measurements on very different scales, 3 categorical ones."""
    world = torch.Generator().manual_seed(2)
    centre = torch.randn(SPECIES, 12, generator=world)
    habit = torch.rand(SPECIES, 3, 5, generator=world) ** 2
    scale = torch.logspace(-0.5, 1.0, 12)
    offset = 2.0 * torch.randn(12, generator=world)

    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, SPECIES, (n,), generator=g)
    spread = 1.3 * torch.randn(n, 12, generator=g)
    cont = (
        centre[y] + spread + 0.5 * torch.sin(2 * spread.roll(1, 1)) + offset
    ) * scale
    cat = torch.stack(
        [torch.multinomial(habit[y, j], 1, generator=g).squeeze(1) for j in range(3)],
        dim=1,
    )
    return cont, cat, y


class SpeciesNet(nn.Module):
    def __init__(self, hidden=128):
        super().__init__()
        self.emb = nn.ModuleList(nn.Embedding(5, 4) for _ in range(3))
        self.bn_in = nn.BatchNorm1d(12)
        self.fc1 = nn.Linear(24, hidden)
        self.bn1 = nn.BatchNorm1d(hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.bn2 = nn.BatchNorm1d(hidden)
        self.drop = nn.Dropout(0.4)
        self.out = nn.Linear(hidden, SPECIES)

    def forward(self, cont, cat):
        e = [emb(cat[:, j]) for j, emb in enumerate(self.emb)]
        h = torch.cat([self.bn_in(cont), *e], dim=1)
        h = self.drop(F.relu(self.bn1(self.fc1(h))))
        h = self.drop(F.relu(self.bn2(self.fc2(h))))
        return self.out(h)


@torch.no_grad()
def validate(model, data):
    model.eval()
    cont, cat, y = data
    logits = model(cont, cat)
    return (
        F.cross_entropy(logits, y).item(),
        (logits.argmax(1) == y).float().mean().item(),
    )


def train(args):
    torch.manual_seed(args.seed)
    g = torch.Generator().manual_seed(args.seed)
    cont, cat, y = forage(480, 50)
    val = forage(800, 51)

    model = SpeciesNet()
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-2)
    modes = []
    best = (float("inf"), 0.0, -1)

    model.train()
    for epoch in range(args.epochs):
        if args.fixed:
            model.train()
        order = torch.randperm(len(y), generator=g)
        total, batches = 0.0, 0
        for rows in order.split(args.batch_size):
            modes.append(all(m.training for m in model.modules()))
            loss = F.cross_entropy(
                model(cont[rows], cat[rows]), y[rows], label_smoothing=0.05
            )
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
            batches += 1
        nll, acc = validate(model, val)
        if nll < best[0]:
            best = (nll, acc, epoch)
        if epoch % 3 == 0 or epoch == args.epochs - 1:
            print(
                f"epoch {epoch:3d} | train {total / batches:.4f} | val {nll:.4f} "
                f"| val acc {acc:.4f}"
            )
    print(
        f"last epoch: val nll {nll:.4f}, acc {acc:.4f}; best val nll {best[0]:.4f} "
        f"at epoch {best[2]}"
    )
    return model, modes


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=25)
    ap.add_argument("--batch-size", type=int, default=40)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--seed", type=int, default=14)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    model, modes = train(args)
    if args.prove:
        tracked = int(model.bn1.num_batches_tracked)
        print(
            f"{sum(modes)} of {len(modes)} training steps ran in training mode, "
            f"batch norm has seen {tracked} batches"
        )
        print("fault shows:", "yes" if tracked < len(modes) else "no")


if __name__ == "__main__":
    main()
