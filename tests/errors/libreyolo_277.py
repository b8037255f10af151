"""A small box detector; the training stops after some epochs and is resumed.

After LibreYOLO/libreyolo, issue 277.
"""

import argparse
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Boxes(Dataset):
    """Pictures of a bright rectangle, plain or striped; its box and class."""

    def __init__(self, count, seed, size=16):
        gen = torch.Generator().manual_seed(seed)
        self.images = 0.1 * torch.randn(count, 1, size, size, generator=gen)
        self.boxes = torch.empty(count, 4)
        self.labels = torch.randint(2, (count,), generator=gen)
        for i in range(count):
            w, h = torch.randint(4, 9, (2,), generator=gen).tolist()
            x = int(torch.randint(size - w + 1, (1,), generator=gen))
            y = int(torch.randint(size - h + 1, (1,), generator=gen))
            patch = torch.ones(h, w)
            if self.labels[i]:
                patch[::2] = 0.3
            self.images[i, 0, y : y + h, x : x + w] += patch
            self.boxes[i] = torch.tensor([x + w / 2, y + h / 2, w, h]) / size

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.boxes[index], self.labels[index]


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(),
            nn.Flatten(), nn.Linear(256, 32), nn.ReLU(),
        )  # fmt: skip
        self.box, self.cls = nn.Linear(32, 4), nn.Linear(32, 2)

    def forward(self, x):
        x = self.body(x)
        return self.box(x).sigmoid(), self.cls(x)


class BaseTrainer:
    def __init__(self, args):
        self.args = args
        torch.manual_seed(args.seed)
        self.model = Detector()
        self.optimizer = None
        self.start_epoch = 0
        self.history = []

    def setup(self):
        self.train_loader = DataLoader(
            Boxes(256, 1),
            self.args.batch_size,
            shuffle=True,
            generator=torch.Generator(),
        )
        self.val_set = Boxes(128, 2)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=self.args.lr, weight_decay=1e-4
        )

    def set_lr(self, epoch):
        """Rises over two epochs, then stays."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.args.lr * min(1.0, (epoch + 1) / 2)

    def save(self, path, epoch):
        parts = {"model": self.model, "optimizer": self.optimizer}
        states = {name: part.state_dict() for name, part in parts.items()}
        torch.save({**states, "epoch": epoch}, path)

    def resume(self, path):
        checkpoint = torch.load(path)
        self.model.load_state_dict(checkpoint["model"])
        if self.optimizer is not None and "optimizer" in checkpoint:
            self.optimizer.load_state_dict(checkpoint["optimizer"])
        self.start_epoch = checkpoint["epoch"] + 1
        print(f"resumed at epoch {self.start_epoch}", flush=True)

    def train_epoch(self, epoch):
        self.model.train()
        self.set_lr(epoch)
        self.train_loader.generator.manual_seed(self.args.seed + epoch)
        for images, boxes, labels in self.train_loader:
            box, cls = self.model(images)
            loss = 5 * F.l1_loss(box, boxes) + F.cross_entropy(cls, labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.history.append(loss.item())

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        box, cls = self.model(self.val_set.images)
        right = (cls.argmax(1) == self.val_set.labels).float().mean().item()
        return F.l1_loss(box, self.val_set.boxes).item(), right

    def train(self, path, epochs):
        self.setup()
        for epoch in range(self.start_epoch, epochs):
            self.train_epoch(epoch)
            error, accuracy = self.validate()
            print(
                f"epoch {epoch} loss {self.history[-1]:.4f} "
                f"box error {error:.4f} accuracy {accuracy:.3f}",
                flush=True,
            )
            self.save(path, epoch)
        return self.model


class DeferredTrainer(BaseTrainer):
    def __init__(self, args):
        super().__init__(args)
        self.resume_optimizer_state = None

    def resume(self, path):
        super().resume(path)
        if self.optimizer is None:
            self.resume_optimizer_state = torch.load(path)["optimizer"]

    def setup(self):
        super().setup()
        if self.resume_optimizer_state is not None:
            self.optimizer.load_state_dict(self.resume_optimizer_state)


def interrupted(args, trainer_class, path):
    trainer_class(args).train(path, max(1, args.epochs // 2))
    trainer = trainer_class(args)
    trainer.resume(path)
    return trainer.train(path, args.epochs)


def flat(model):
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    trainer_class = DeferredTrainer if args.fixed else BaseTrainer
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "last.pt")
        resumed = interrupted(args, trainer_class, path)
        if args.prove:
            whole = trainer_class(args).train(path, args.epochs)
            apart = (flat(resumed) - flat(whole)).norm().item()
            print(f"the weights are {apart:.6f} from those of a run without a stop")
            print("fault shows:", "yes" if apart > 1e-3 else "no", flush=True)


if __name__ == "__main__":
    main()
