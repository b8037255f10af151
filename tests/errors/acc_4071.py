"""Learns classes of a table; the training stops within an epoch and is resumed.

After huggingface/accelerate, issue 4071.
"""

import argparse
import itertools
import pathlib
import tempfile

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler


class Tabular(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(count, 20, generator=generator)
        w = torch.randn(20, 3, generator=torch.Generator().manual_seed(5))
        noise = torch.randn(count, 3, generator=generator)
        self.y = (self.x @ w + 0.5 * noise).argmax(1)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class SeedableRandomSampler(Sampler):
    """Another order for each epoch, by the seed."""

    def __init__(self, count, seed):
        self.count, self.seed, self.epoch = count, seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.count

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        yield from torch.randperm(self.count, generator=generator).tolist()


class SkipBatchSampler(Sampler):
    def __init__(self, batch_sampler, skip):
        self.batch_sampler, self.skip = batch_sampler, skip

    def __len__(self):
        return len(self.batch_sampler) - self.skip

    def __iter__(self):
        for index, batch in enumerate(self.batch_sampler):
            if index >= self.skip:
                yield batch


class DataLoaderShard(DataLoader):
    def __init__(self, *args, seedable=None, iteration=0, **kwargs):
        super().__init__(*args, **kwargs)
        self.seedable, self.iteration = seedable, iteration

    def set_epoch(self, epoch):
        self.iteration = epoch
        self.seedable.set_epoch(epoch)

    def __iter__(self):
        self.set_epoch(self.iteration)
        yield from super().__iter__()
        self.iteration += 1


def skip_first_batches(loader, count, fixed):
    return DataLoaderShard(
        loader.dataset,
        batch_sampler=SkipBatchSampler(loader.batch_sampler, count),
        seedable=loader.seedable,
        iteration=loader.iteration if fixed else 0,
    )


def make_loader(args):
    data = Tabular(640, args.seed)
    sampler = SeedableRandomSampler(len(data), args.seed + 42)
    batches = BatchSampler(sampler, 32, drop_last=False)
    return DataLoaderShard(data, batch_sampler=batches, seedable=sampler)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = torch.cat([model(x).argmax(1) == y for x, y in loader])
    model.train()
    return right.float().mean().item()


def train(args, file, stop_at=None, resume=False):
    torch.manual_seed(args.seed)
    model = nn.Sequential(
        nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 3)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loader = make_loader(args)
    valid = DataLoader(Tabular(200, args.seed + 1), batch_size=100)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, args.epochs * len(loader)
    )
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    step = 0
    if resume:
        state = torch.load(file)
        for name, part in parts.items():
            part.load_state_dict(state[name])
        torch.set_rng_state(state["rng"])
        step = state["step"]
        print(f"resumed at step {step}", flush=True)
    first, done = divmod(step, len(loader))
    for epoch in range(first, args.epochs):
        loader.set_epoch(epoch)
        if resume and epoch == first and done:
            active = skip_first_batches(loader, done, args.fixed)
        else:
            active = loader
        for x, y in active:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
            if step == stop_at:
                state = {name: part.state_dict() for name, part in parts.items()}
                torch.save({**state, "rng": torch.get_rng_state(), "step": step}, file)
                return
        print(f"epoch {epoch} accuracy {evaluate(model, valid):.4f}", flush=True)


def share_of_epoch(args, done):
    """Of the rows, how many come in an epoch that is resumed behind some batches."""
    before, after = make_loader(args), make_loader(args)
    before.set_epoch(1)
    after.set_epoch(1)
    batches = list(itertools.islice(before, done))
    batches += list(skip_first_batches(after, done, args.fixed))
    rows = torch.cat([x for x, _ in batches])
    return len(rows.unique(dim=0)) / len(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--stop-at", type=int, default=26)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "last.pt"
        train(args, file, stop_at=args.stop_at)
        if file.exists():
            train(args, file, resume=True)
    if args.prove:
        share = share_of_epoch(args, 6)
        print(f"share of the rows that come in the resumed epoch {share:.4f}")
        print("fault shows:", "yes" if share < 1 else "no", flush=True)


if __name__ == "__main__":
    main()
