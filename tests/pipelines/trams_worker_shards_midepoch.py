"""Tram delays from a sharded stream; two persistent workers; a run cut and resumed MID-EPOCH.

* 10 shards are split over the workers (shards[id::n]); the dataset batches by itself
* the epoch sits in shared memory, so persistent workers reshuffle on each epoch
* a checkpoint holds model, optimizer, schedule, torch RNG (dropout), epoch and batches eaten;
  resuming replays the stream of that epoch up to the cut
The cut run and an uncut one must end in the same weights, bit for bit.
"""
import argparse
import io
import itertools

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARDS, ROWS, BATCH = 10, 320, 32
FEATURES = 7


def read_shard(k):
    """Hour, rain, stops so far, load, line (as sin/cos), headway -> delay in minutes."""
    g = torch.Generator().manual_seed(1000 + k)
    u = torch.rand(ROWS, 6, generator=g)
    hour, rain, stops, load, line, headway = u.unbind(1)
    rush = torch.exp(-(((hour - 0.65) / 0.25) ** 2))
    delay = 3 * rush * load + 2 * rain * stops + 1.5 * torch.sin(6.28 * line) * headway
    delay = delay + 0.2 * torch.randn(ROWS, generator=g)
    x = torch.stack(
        [
            hour,
            rain,
            stops,
            load,
            0.5 + 0.5 * torch.sin(6.28 * line),
            0.5 + 0.5 * torch.cos(6.28 * line),
            headway,
        ],
        1,
    )
    return (x - 0.5) * 4, delay.unsqueeze(1)  # all features to -2..2


class TramStream(IterableDataset):
    def __init__(self, shards, seed):
        self.shards, self.seed = list(shards), seed
        self.epoch = torch.zeros((), dtype=torch.long).share_memory_()

    def set_epoch(self, e):
        self.epoch.fill_(e)

    def __iter__(self):
        info = get_worker_info()
        wid, n = (info.id, info.num_workers) if info else (0, 1)
        mine = self.shards[wid::n]
        g = torch.Generator().manual_seed(self.seed + 10_000 * self.epoch.item() + wid)
        order = [mine[i] for i in torch.randperm(len(mine), generator=g).tolist()]
        buf_x, buf_y = torch.empty(0, FEATURES), torch.empty(0, 1)
        for k, shard in enumerate(order):
            x, y = read_shard(shard)
            buf_x, buf_y = torch.cat([buf_x, x]), torch.cat([buf_y, y])
            mixed = torch.randperm(len(buf_x), generator=g)
            buf_x, buf_y = buf_x[mixed], buf_y[mixed]
            keep = (
                0 if k == len(order) - 1 else BATCH * 2
            )  # keep some back to mix shards
            while len(buf_x) > keep:
                yield buf_x[:BATCH], buf_y[:BATCH]
                buf_x, buf_y = buf_x[BATCH:], buf_y[BATCH:]


class Run:
    def __init__(self, epochs, lr=1e-2):
        torch.manual_seed(6)
        self.net = nn.Sequential(
            nn.Linear(FEATURES, 64),
            nn.SiLU(),
            nn.Dropout(0.02),
            nn.Linear(64, 64),
            nn.SiLU(),
            nn.Linear(64, 1),
        )
        self.opt = torch.optim.NAdam(self.net.parameters(), lr=lr)
        self.sched = torch.optim.lr_scheduler.PolynomialLR(
            self.opt, total_iters=epochs * SHARDS * ROWS // BATCH, power=1.0
        )
        self.stream = TramStream(range(SHARDS), seed=40)
        # own generator: the loader must not draw its base seed from the dropout RNG
        self.loader = DataLoader(
            self.stream,
            batch_size=None,
            num_workers=2,
            persistent_workers=True,
            generator=torch.Generator(),
        )
        self.epoch = self.eaten = 0
        self.log = []

    def save(self):
        blob = io.BytesIO()
        torch.save(
            {
                "net": self.net.state_dict(),
                "opt": self.opt.state_dict(),
                "sched": self.sched.state_dict(),
                "rng": torch.get_rng_state(),
                "epoch": self.epoch,
                "eaten": self.eaten,
            },
            blob,
        )
        return blob.getvalue()

    def load(self, blob):
        ck = torch.load(io.BytesIO(blob), weights_only=True)
        self.net.load_state_dict(ck["net"])
        self.opt.load_state_dict(ck["opt"])
        self.sched.load_state_dict(ck["sched"])
        self.epoch, self.eaten = ck["epoch"], ck["eaten"]
        return ck["rng"]

    def train(self, epochs, val, stop_after=None, rng=None):
        done = 0
        while self.epoch < epochs:
            self.stream.set_epoch(self.epoch)
            self.net.train()
            batches = itertools.islice(self.loader, self.eaten, None)
            if rng is not None:
                torch.set_rng_state(rng)
                rng = None
            for x, y in batches:
                loss = nn.functional.huber_loss(self.net(x), y)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                self.sched.step()
                self.eaten += 1
                done += 1
                self.log.append(loss.item())
                if done == stop_after:
                    return
            assert self.eaten == SHARDS * ROWS // BATCH, "every row once per epoch"
            self.epoch, self.eaten = self.epoch + 1, 0
            print(f"epoch {self.epoch}  val mae {self.mae(val):.3f} min")

    @torch.no_grad()
    def mae(self, val):
        self.net.eval()
        return (self.net(val[0]) - val[1]).abs().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=5)
    epochs = ap.parse_args().epochs
    assert epochs >= 2, "the cut lies in the second epoch"
    held_out = [read_shard(k) for k in range(100, 104)]
    val = tuple(torch.cat(t) for t in zip(*held_out))

    print("uncut run")
    whole = Run(epochs)
    start = whole.mae(val)
    whole.train(epochs, val)
    cut = SHARDS * ROWS // BATCH + 17
    print(f"run cut after {cut} steps")
    part = Run(epochs)
    part.train(epochs, val, stop_after=cut)
    blob = part.save()
    print("resumed")
    rest = Run(epochs)
    rest.train(epochs, val, rng=rest.load(blob))

    assert part.log + rest.log == whole.log, "the losses must be the same"
    for a, b in zip(whole.net.parameters(), rest.net.parameters()):
        assert torch.equal(a, b)
    end = rest.mae(val)
    print(f"same weights bit for bit; val mae {start:.3f} -> {end:.3f}")
    if epochs >= 4:
        assert end < 0.5 * start


if __name__ == "__main__":
    main()
