"""Grade coins (4 wear grades) from small gray photographs."""
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MEAN, STD = 0.36, 0.19


def mint(n, seed):
    """Raw photographs in [0, 1]. Wear flattens the relief and rounds the rim."""
    g = torch.Generator().manual_seed(seed)
    r = torch.linspace(-1, 1, 20)
    yy, xx = torch.meshgrid(r, r, indexing="ij")
    rad = (xx**2 + yy**2).sqrt()
    ang = torch.atan2(yy, xx)
    grade = torch.randint(0, 4, (n,), generator=g)
    wear = grade.float().view(-1, 1, 1) / 3
    turn = torch.rand(n, 1, 1, generator=g) * 6.28
    relief = 0.5 * (1 - 0.8 * wear) * torch.cos(5 * ang + turn) * (rad < 0.7)
    rim = (1 - 0.5 * wear) * torch.exp(-(((rad - 0.85) / 0.08) ** 2))
    light = 0.25 + 0.12 * torch.rand(n, 1, 1, generator=g)
    img = light + 0.3 * relief + 0.4 * rim + 0.1 * torch.randn(n, 20, 20, generator=g)
    return img.clamp(0, 1).unsqueeze(1), grade


class Normalize:
    def __init__(self, mean, std):
        self.mean, self.std = mean, std

    def __call__(self, img):
        return (img - self.mean) / self.std


class Shift:
    def __init__(self, pixels, seed):
        self.pixels = pixels
        self.g = torch.Generator().manual_seed(seed)

    def __call__(self, img):
        dy, dx = torch.randint(
            -self.pixels, self.pixels + 1, (2,), generator=self.g
        ).tolist()
        return torch.roll(img, (dy, dx), dims=(1, 2))


class Occlude:
    """Blank a random square with zero, i.e. the mean of a normalised image."""

    def __init__(self, side, seed):
        self.side = side
        self.g = torch.Generator().manual_seed(seed)

    def __call__(self, img):
        y, x = torch.randint(
            0, img.shape[1] - self.side, (2,), generator=self.g
        ).tolist()
        img = img.clone()
        img[:, y : y + self.side, x : x + self.side] = 0.0
        return img


class Compose:
    def __init__(self, steps):
        self.steps = steps

    def __call__(self, img):
        for s in self.steps:
            img = s(img)
        return img


class Coins(Dataset):
    def __init__(self, images, grades, transform):
        self.images, self.grades, self.transform = images, grades, transform

    def __len__(self):
        return len(self.grades)

    def __getitem__(self, i):
        return self.transform(self.images[i]), self.grades[i]


class Grader(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 12, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(12, 24, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(24 * 25, 48),
            nn.ReLU(),
            nn.Linear(48, 4),
        )

    def forward(self, x):
        return self.body(x)


def transforms(fixed):
    norm = Normalize(MEAN, STD)
    train = [Shift(2, seed=3), norm, Occlude(5, seed=4)]
    if not fixed:
        train.append(norm)
    return Compose(train), Compose([norm])


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    hits = total = 0
    for x, y in loader:
        hits += (model(x).argmax(1) == y).sum().item()
        total += len(y)
    model.train()
    return hits / total


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(0)
    train_tf, test_tf = transforms(args.fixed)
    train_loader = DataLoader(
        Coins(*mint(1200, 10), train_tf),
        batch_size=40,
        shuffle=True,
        generator=torch.Generator().manual_seed(9),
    )
    test_loader = DataLoader(Coins(*mint(400, 11), test_tf), batch_size=100)

    model = Grader()
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    loss_fn = nn.CrossEntropyLoss()
    for epoch in range(args.epochs):
        total = 0.0
        for x, y in train_loader:
            opt.zero_grad()
            loss = loss_fn(model(x), y)
            loss.backward()
            opt.step()
            total += loss.item()
        print(
            f"epoch {epoch}  train loss {total / len(train_loader):.4f}  "
            f"test acc {evaluate(model, test_loader):.3f}"
        )

    if args.prove:
        seen = torch.cat([x for x, _ in train_loader])
        held = torch.cat([x for x, _ in test_loader])
        print(
            f"network input in training mean {seen.mean():.3f} std {seen.std():.3f}, "
            f"in testing mean {held.mean():.3f} std {held.std():.3f}"
        )
        shows = (seen.mean() - held.mean()).abs() > 0.5 or seen.std() / held.std() > 2
        print("fault shows:", "yes" if shows else "no")


if __name__ == "__main__":
    main()
