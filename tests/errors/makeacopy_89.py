"""The four corners of a sheet of paper by heat maps, as a scanner's app finds them.

Channels are top left, top right, bottom right, bottom left; pictures are mirrored in
half of all cases. egdels/makeacopy#89.
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

SIZE = 24


class SheetDataset(Dataset):
    def __init__(self, count, seed, augment=False, reorder=True):
        generator = torch.Generator().manual_seed(seed)
        self.augment, self.reorder = augment, reorder
        corner = torch.tensor([[6.0, 6.0], [17.0, 6.0], [17.0, 17.0], [6.0, 17.0]])
        jitter = 8 * torch.rand(count, 4, 2, generator=generator) - 4
        self.corners = corner + jitter
        self.images = self.draw(self.corners)
        self.images += 0.2 * torch.randn(self.images.shape, generator=generator)
        self.mirrored = []

    @staticmethod
    def draw(corners):
        """Inside of the four edges, with a fold that shows where the top is."""
        grid = torch.arange(float(SIZE))
        after = corners.roll(-1, 1)
        edge = (after - corners)[:, :, :, None, None]
        x = grid[None, None, None, :] - corners[:, :, 0, None, None]
        y = grid[None, None, :, None] - corners[:, :, 1, None, None]
        inside = (edge[:, :, 0] * y - edge[:, :, 1] * x > 0).all(1).float()
        middle = corners.mean(1)[:, 1, None, None]
        return inside * torch.where(grid[None, :, None] < middle, 1.0, 0.7)

    def __len__(self):
        return len(self.images)

    def heatmaps(self, corners):
        grid = torch.arange(float(SIZE))
        dx = grid[None, None, :] - corners[:, 0, None, None]
        dy = grid[None, :, None] - corners[:, 1, None, None]
        return torch.exp(-(dx**2 + dy**2) / 4)

    def flip(self, image, corners):
        image = image.flip(-1)
        corners = torch.stack([SIZE - 1 - corners[:, 0], corners[:, 1]], 1)
        if self.reorder:
            corners = corners[[1, 0, 3, 2]]
        return image, corners

    def __getitem__(self, index):
        image, corners = self.images[index], self.corners[index]
        if self.augment and torch.rand(()) < 0.5:
            image, corners = self.flip(image, corners)
            self.mirrored.append(corners)
        return image[None], self.heatmaps(corners), corners


class CornerNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.Conv2d(2 * width, 2 * width, 3, padding=2, dilation=2),
            nn.ReLU(),
        )
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.out = nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, image):
        line = torch.linspace(-1, 1, SIZE).expand(len(image), 1, SIZE, SIZE)
        x = torch.cat([image, line, line.mT], 1)
        return self.out(F.relu(self.up(self.down(x))))


@torch.no_grad()
def evaluate(model, data):
    """Mean distance of the peaks from the corners."""
    model.eval()
    heat = model(data.images[:, None]).flatten(2)
    peak = heat.argmax(2)
    found = torch.stack([peak % SIZE, peak // SIZE], 2).float()
    model.train()
    return (found - data.corners).norm(dim=2).mean().item()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=100)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = SheetDataset(640, 1, augment=True, reorder=options.fixed)
    valid = SheetDataset(200, 2)
    loader = DataLoader(data, batch_size=32, shuffle=True)
    model = CornerNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    step = 0
    while step < options.steps:
        for image, heatmap, _ in loader:
            if step == options.steps:
                break
            loss = F.mse_loss(model(image), heatmap)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.5f}", flush=True)
            step += 1
        print(f"corners are off by {evaluate(model, valid):.3f}", flush=True)
    if options.prove:
        corners = torch.stack(data.mirrored)
        crossed = (corners[:, 0, 0] > corners[:, 1, 0]).float().mean().item()
        print(f"{crossed:.3f} of the mirrored sheets have left and right exchanged")
        print("fault shows:", "yes" if crossed > 0.5 else "no", flush=True)


if __name__ == "__main__":
    main()
