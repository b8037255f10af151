"""Finds rare defects on castings. Before the training a copy of the model has to
overfit a single batch, to see that all is wired up. Batches are balanced by a
WeightedRandomSampler; every so many steps there is a validation in inference mode,
and the best and the last checkpoint are kept as files.

    python defects_sanity.py --steps 100
"""

import argparse
import copy
import pathlib
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

SIDE = 16
KINDS = ("sound", "scratch", "pore", "crack")
SHARES = torch.tensor([0.85, 0.08, 0.04, 0.03])


def castings(count, seed):
    g = torch.Generator().manual_seed(seed)
    kind = torch.multinomial(SHARES, count, replacement=True, generator=g)
    image = 0.3 * torch.randn(count, 1, SIDE, SIDE, generator=g)
    places = torch.randint(3, SIDE - 3, (count, 2), generator=g).tolist()
    for picture, k, (row, column) in zip(image[:, 0], kind.tolist(), places):
        if k == 1:
            picture[row, 2:-2] += 1.2
        elif k == 2:
            picture[row - 1 : row + 2, column - 1 : column + 2] -= 1.5
        elif k == 3:
            steps = torch.arange(SIDE - 4)
            picture[steps + 2, (steps + column) % SIDE] += 1.2
    return TensorDataset(image, kind)


def balanced_sampler(labels, generator):
    counts = torch.bincount(labels, minlength=len(KINDS)).clamp(min=1)
    weights = (1.0 / counts)[labels]
    return WeightedRandomSampler(weights, len(labels), generator=generator)


class DefectNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
        )
        self.classify = nn.Sequential(nn.Dropout(0.2), nn.Linear(4 * width, len(KINDS)))

    def forward(self, image):
        x = self.convolutions(image)
        return self.classify(torch.cat([x.amax((2, 3)), x.mean((2, 3))], dim=1))


def overfit_one_batch(model, batch, tries=25):
    """A trial on a copy; the model itself is not touched."""
    trial = copy.deepcopy(model)
    optimizer = torch.optim.Adam(trial.parameters(), lr=1e-2)
    image, kind = batch
    for _ in range(tries):
        loss = nn.functional.cross_entropy(trial(image), kind)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"one batch overfitted to loss {loss.item():.6f}", flush=True)
    if loss.item() > 0.5:
        raise RuntimeError("cannot even learn one batch by heart")


@torch.inference_mode()
def balanced_accuracy(model, loader):
    model.eval()
    right, total = torch.zeros(len(KINDS)), torch.zeros(len(KINDS))
    for image, kind in loader:
        hit = (model(image).argmax(1) == kind).float()
        right += torch.bincount(kind, hit, minlength=len(KINDS))
        total += torch.bincount(kind, minlength=len(KINDS))
    model.train()
    return (right / total.clamp(min=1)).mean().item()


def save(path, model, optimizer, step, score):
    torch.save(
        {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "step": step,
            "score": score,
        },
        path,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--validate-every", type=int, default=15)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(29)
    train, test = castings(1200, 1), castings(500, 2)
    sampler = balanced_sampler(train.tensors[1], torch.Generator().manual_seed(3))
    loader = DataLoader(train, batch_size=32, sampler=sampler)
    test_loader = DataLoader(test, batch_size=125)
    model = DefectNet()
    overfit_one_batch(model, next(iter(loader)))

    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    best, step = -1.0, 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        while step < args.steps:
            for image, kind in loader:
                loss = nn.functional.cross_entropy(model(image), kind)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                step += 1
                if step % args.validate_every == 0 or step == args.steps:
                    score = balanced_accuracy(model, test_loader)
                    print(
                        f"step {step} loss {loss.item():.6f} balanced {score:.4f}",
                        flush=True,
                    )
                    save(folder / "last.pt", model, optimizer, step, score)
                    if score > best:
                        best = score
                        save(folder / "best.pt", model, optimizer, step, score)
                if step == args.steps:
                    break
        kept = torch.load(folder / "best.pt")
    model.load_state_dict(kept["model"])
    score = balanced_accuracy(model, test_loader)
    print(f"best of step {kept['step']}: balanced {score:.4f}")


if __name__ == "__main__":
    main()
