"""Trains a network on pictures of textures in two jobs; the second one resumes.

The last and the best weights are written after each epoch. After ConvNeXt, issue 94.
"""

import argparse
import os
import tempfile

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

SIDE, KINDS = 16, 6


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 5, padding=2, groups=width)
        self.norm = nn.GroupNorm(1, width)
        self.expand = nn.Conv2d(width, 3 * width, 1)
        self.reduce = nn.Conv2d(3 * width, width, 1)

    def forward(self, x):
        hidden = self.norm(self.depthwise(x))
        return x + self.reduce(F.gelu(self.expand(hidden)))


class TinyConvNeXt(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 2, stride=2)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, KINDS)

    def forward(self, pictures):
        hidden = self.blocks(self.stem(pictures))
        return self.head(self.norm(hidden.mean((2, 3))))


def textures(count, seed):
    generator = torch.Generator().manual_seed(seed)
    kind = torch.randint(KINDS, (count,), generator=generator)
    place = torch.arange(float(SIDE))
    rows, columns = torch.meshgrid(place, place, indexing="ij")
    angle = 3.1416 * kind / KINDS + 0.2 * torch.randn(count, generator=generator)
    phase = 6.2832 * torch.rand(count, 1, 1, generator=generator)
    along = angle.cos()[:, None, None] * rows + angle.sin()[:, None, None] * columns
    noise = 0.8 * torch.randn(count, SIDE, SIDE, generator=generator)
    return TensorDataset((torch.sin(1.3 * along + phase) + noise)[:, None], kind)


class Job:
    def __init__(self, folder, args):
        self.folder, self.args = folder, args
        self.model = TinyConvNeXt()
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=args.lr, weight_decay=0.05
        )
        self.train = DataLoader(textures(512, args.seed), 32, shuffle=True)
        self.valid = DataLoader(textures(300, args.seed + 1), batch_size=100)
        self.epoch, self.max_accuracy, self.accuracies = 0, 0.0, []

    def path(self, name):
        return os.path.join(self.folder, f"checkpoint-{name}.pth")

    def save(self, name):
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "epoch": self.epoch,
            "max_accuracy": self.max_accuracy,
            "accuracies": self.accuracies,
        }
        torch.save(state, self.path(name))

    def auto_resume(self):
        if not os.path.exists(self.path("last")):
            return
        state = torch.load(self.path("last"))
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epoch, self.accuracies = state["epoch"], state["accuracies"]
        if self.args.fixed:
            self.max_accuracy = state["max_accuracy"]
        print(f"resumed at epoch {self.epoch}", flush=True)

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        right = sum((self.model(x).argmax(1) == y).sum().item() for x, y in self.valid)
        return right / len(self.valid.dataset)

    def run(self, until):
        self.auto_resume()
        best_before = self.max_accuracy
        while self.epoch < until:
            self.model.train()
            for number, (pictures, kind) in enumerate(self.train):
                loss = F.cross_entropy(self.model(pictures), kind, label_smoothing=0.1)
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                step = self.epoch * len(self.train) + number
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            accuracy = self.evaluate()
            print(f"epoch {self.epoch} accuracy {accuracy:.4f}", flush=True)
            self.epoch += 1
            self.accuracies.append(accuracy)
            if accuracy > self.max_accuracy:
                self.max_accuracy = accuracy
                self.save("best")
            self.save("last")
        return best_before


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--stop-after", type=int, default=6)
    parser.add_argument("--lr", type=float, default=6e-3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for until in (args.stop_after, args.epochs):
            torch.manual_seed(args.seed + until)
            job = Job(folder, args)
            recalled = job.run(until)
        best = torch.load(job.path("best"))
    job.model.load_state_dict(best["model"])
    kept, highest = job.evaluate(), max(job.accuracies)
    print(f"accuracy of the best file {kept:.4f}, highest seen {highest:.4f}")
    if args.prove:
        before = max(job.accuracies[: args.stop_after])
        print(f"the second job began with {recalled:.4f} as the best of {before:.4f}")
        print("fault shows:", "yes" if recalled < before else "no", flush=True)


if __name__ == "__main__":
    main()
