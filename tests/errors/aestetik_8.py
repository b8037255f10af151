"""Spots of a tissue, embedded from expression and picture, in the Lightning style.

A data module splits off a validation part; an autoencoder with a classifier on the
code is trained and its validation accuracy reported. After aestetik, issue 8.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split

GENES, REGIONS = 60, 6


def spots(count, seed):
    """Expression of spots, whose region an annotator gets wrong now and then."""
    programs = torch.randn(REGIONS, GENES, generator=torch.Generator().manual_seed(3))
    generator = torch.Generator().manual_seed(seed)
    region = torch.randint(REGIONS, (count,), generator=generator)
    expression = programs[region] * 0.35
    expression = expression + torch.randn(count, GENES, generator=generator)
    wrong = torch.rand(count, generator=generator) < 0.25
    other = torch.randint(REGIONS, (count,), generator=generator)
    return TensorDataset(expression, torch.where(wrong, other, region))


class SpotsDataModule:
    def __init__(self, args):
        self.args = args
        self.dataset = spots(320, args.seed)

    def setup(self):
        held = int(len(self.dataset) * self.args.validation_split)
        generator = torch.Generator().manual_seed(self.args.seed)
        self.train_dataset, self.val_dataset = random_split(
            self.dataset, [len(self.dataset) - held, held], generator=generator
        )

    def train_dataloader(self):
        dataset = self.train_dataset if self.args.fixed else self.dataset
        return DataLoader(dataset, batch_size=32, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_dataset, batch_size=64)

    def test_dataloader(self):
        return DataLoader(spots(2000, self.args.seed + 100), batch_size=500)


class SpotModel(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(GENES, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.decoder = nn.Linear(width, GENES)
        self.classifier = nn.Linear(width, REGIONS)

    def training_step(self, batch):
        expression, region = batch
        code = self.encoder(expression)
        rebuilt = F.mse_loss(self.decoder(code), expression)
        return F.cross_entropy(self.classifier(code), region) + 0.1 * rebuilt

    def predict(self, expression):
        return self.classifier(self.encoder(expression)).argmax(1)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = sum((model.predict(x) == y).sum().item() for x, y in loader)
    return right / len(loader.dataset)


def fit(model, data, epochs):
    data.setup()
    optimizer, step = model.configure_optimizers(), 0
    for epoch in range(epochs):
        model.train()
        for batch in data.train_dataloader():
            loss = model.training_step(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        score = evaluate(model, data.val_dataloader())
        print(f"epoch {epoch} validation accuracy {score:.3f}")
    return score


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--validation-split", type=float, default=0.25)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    model, data = SpotModel(), SpotsDataModule(args)
    validation = fit(model, data, args.epochs)
    test = evaluate(model, data.test_dataloader())
    print(f"validation {validation:.3f} test {test:.3f}")
    print(f"validation accuracy above that of new spots {validation - test:.4f}")
    if args.prove:
        trained = {tuple(x.tolist()) for x, _ in data.train_dataloader().dataset}
        seen = sum(tuple(x.tolist()) in trained for x, _ in data.val_dataset)
        print(f"{seen} of {len(data.val_dataset)} validation rows are trained on")
        print("fault shows:", "yes" if seen else "no", flush=True)


if __name__ == "__main__":
    main()
