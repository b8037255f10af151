"""Which of a few octopuses flickers (conv1d): prototypical nets, trained on episodes.

A label is the place of an animal in its episode, so there is no layer for classes; more
ways in training than in the evaluation, other animals in each part. An endless
IterableDataset on two workers, each episode seeded by its number; mirrored signals are
animals of their own. Cosine with restarts, best snapshot put back; the scale of
distances is learnt at a rate of its own. Above chance before the training by nature.
"""

import argparse
import itertools

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

LENGTH = 48


def individual(uid):
    """What is fixed of an animal: rate, phase and strength of three pulses."""
    r = np.random.default_rng([314, uid])
    return r.uniform(1.0, 9.0, 3), r.uniform(0, 2 * np.pi, 3), r.uniform(0.4, 1.0, 3)


def record(uid, r, mirrored=False):
    rate, phase, gain = individual(uid)
    t = np.linspace(0, 1, LENGTH) + r.normal(0, 0.03)
    gain = gain * r.uniform(0.8, 1.2, 3)
    sig = (gain[:, None] * np.sin(2 * np.pi * rate[:, None] * t + phase[:, None])).sum(
        0
    )
    sig = sig[::-1] if mirrored else sig
    return sig + r.normal(0, 1.1, LENGTH)


class Episodes(IterableDataset):
    """Endless episodes; the i-th depends on the seed and i alone.

    Worker w of n makes those with i % n == w, so none comes twice.
    """

    def __init__(self, pool, way, shot, query, seed, class_augment=False):
        self.pool = [
            (u, m) for u in pool for m in ((False, True) if class_augment else (False,))
        ]
        self.way, self.shot, self.query, self.seed = way, shot, query, seed

    def episode(self, i):
        r = np.random.default_rng([self.seed, i])
        chosen = r.choice(len(self.pool), self.way, replace=False)
        xs = np.stack(
            [
                [
                    record(self.pool[c][0], r, self.pool[c][1])
                    for _ in range(self.shot + self.query)
                ]
                for c in chosen
            ]
        )
        return torch.from_numpy(xs.astype(np.float32))  # way, shot + query, length

    def __iter__(self):
        info = get_worker_info()
        w, n = (info.id, info.num_workers) if info else (0, 1)
        for i in itertools.count(w, n):
            yield self.episode(i)


class Encoder(nn.Module):
    def __init__(self, width=32, out=32):
        super().__init__()
        chans = [1, width, width, out]
        self.blocks = nn.Sequential(
            *[
                nn.Sequential(
                    nn.Conv1d(a, b, 5, padding=2),
                    nn.BatchNorm1d(b),
                    nn.ReLU(),
                    nn.MaxPool1d(2),
                )
                for a, b in zip(chans, chans[1:])
            ]
        )
        self.log_scale = nn.Parameter(torch.tensor(0.0))

    def embed(self, x):
        return self.blocks(x.unsqueeze(1)).flatten(1)

    def logits(self, ep, shot):
        way, per, length = ep.shape
        # support and query go through together: batch norm must see one distribution
        z = self.embed(ep.reshape(-1, length)).view(way, per, -1)
        proto = z[:, :shot].mean(1)
        q = z[:, shot:].reshape(-1, z.shape[-1])
        dist = torch.cdist(q, proto).square() / z.shape[-1]
        # the place of the animal within this episode, which is another one next time
        target = torch.arange(way).repeat_interleave(per - shot)
        return -dist * self.log_scale.exp(), target


@torch.no_grad()
def score(net, ds, shot, n):
    net.eval()
    hits = []
    for i in range(n):  # always the same n episodes
        out, y = net.logits(ds.episode(i), shot)
        hits.append((out.argmax(1) == y).float().mean().item())
    net.train()
    return float(np.mean(hits)), 1.96 * float(np.std(hits)) / n**0.5


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--episodes", type=int, default=150)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--way", type=int, default=5)
    ap.add_argument("--shot", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(17)

    # the animals of the three parts are different individuals; trained on more ways
    train = Episodes(range(0, 60), 8, args.shot, 4, seed=1, class_augment=True)
    val = Episodes(range(60, 80), args.way, args.shot, 6, seed=2)
    test = Episodes(range(80, 110), args.way, args.shot, 6, seed=3)

    net = Encoder()
    opt = torch.optim.AdamW(
        [
            {"params": net.blocks.parameters(), "lr": 3e-3, "weight_decay": 1e-2},
            {"params": [net.log_scale], "lr": 2e-2, "weight_decay": 0.0},
        ]
    )
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(
        opt, T_0=50, eta_min=1e-4
    )

    before, _ = score(net, test, args.shot, 40)
    loader = iter(DataLoader(train, batch_size=None, num_workers=args.workers))
    best, keep, losses = -1.0, net.state_dict(), []
    for step, ep in enumerate(itertools.islice(loader, args.episodes), 1):
        out, y = net.logits(ep, args.shot)
        loss = F.cross_entropy(out, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        losses.append(loss.item())
        if step % 25 == 0:
            acc, _ = score(net, val, args.shot, 30)
            mean = np.mean(losses[-25:])
            print(f"episode {step:4d}  loss {mean:.3f}  unseen animals (val) {acc:.3f}")
            if acc > best:
                best, keep = acc, {k: v.clone() for k, v in net.state_dict().items()}
    del loader  # ends the endless workers
    net.load_state_dict(keep)
    acc, ci = score(net, test, args.shot, 80)
    print(f"test animals: {acc:.3f} +- {ci:.3f}  (untrained {before:.3f})")


if __name__ == "__main__":
    main()
