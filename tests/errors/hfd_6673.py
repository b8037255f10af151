"""Moods of short tunes from a stream that is shuffled anew in each epoch.

Two persistent workers each read their shards through a buffer that depends on the epoch.
huggingface/datasets#6673.
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

NOTES, LENGTH = 12, 16


class TuneStream(IterableDataset):
    """Rows of shards, in an order that set_epoch() changes."""

    def __init__(self, tunes, moods, shards=8, shared_epoch=False):
        self.tunes, self.moods, self.shards = tunes, moods, shards
        self.epoch = torch.zeros((), dtype=torch.long)
        if shared_epoch:
            self.epoch.share_memory_()

    def set_epoch(self, epoch):
        self.epoch.fill_(epoch)

    def __iter__(self):
        worker = get_worker_info()
        first, stride = (worker.id, worker.num_workers) if worker else (0, 1)
        generator = torch.Generator().manual_seed(42 + int(self.epoch))
        order = torch.randperm(self.shards, generator=generator)[first::stride]
        rows = torch.arange(len(self.tunes)).chunk(self.shards)
        rows = torch.cat([rows[shard] for shard in order])
        for row in rows[torch.randperm(len(rows), generator=generator)].tolist():
            yield row, self.tunes[row], self.moods[row]


class MoodNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.note = nn.Embedding(NOTES, width)
        self.gru = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * width, 3)

    def forward(self, tune):
        return self.out(self.gru(self.note(tune))[0].mean(1))


def tunes(count, seed):
    generator = torch.Generator().manual_seed(seed)
    tune = torch.randint(NOTES, (count, LENGTH), generator=generator)
    jump = tune.diff(dim=1)
    mood = torch.where(jump.abs().float().mean(1) > 4.2, 2, (jump.sum(1) > 0).long())
    return tune, mood


@torch.no_grad()
def accuracy(model, tune, mood):
    model.eval()
    right = (model(tune).argmax(1) == mood).float().mean().item()
    model.train()
    return right


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=120)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    stream = TuneStream(*tunes(640, 1), shared_epoch=options.fixed)
    loader = DataLoader(stream, batch_size=32, num_workers=2, persistent_workers=True)
    valid = tunes(400, 2)
    model = MoodNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    step = epoch = 0
    orders = []
    while step < options.steps:
        stream.set_epoch(epoch)
        orders.append([])
        for rows, tune, mood in loader:
            if step == options.steps:
                break
            orders[-1].extend(rows.tolist())
            loss = F.cross_entropy(model(tune), mood)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        print(f"epoch {epoch} accuracy {accuracy(model, *valid):.4f}", flush=True)
        epoch += 1
    if options.prove:
        same = sum(a == orders[0] for a in orders[1:])
        print(f"{same} of {len(orders) - 1} epochs have the first one's order")
        print("fault shows:", "yes" if same else "no", flush=True)


if __name__ == "__main__":
    main()
