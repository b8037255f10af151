#!/usr/bin/env python
"""Click-through model for a notice board: one pass, two optimisers, every row tested before it is learnt.

The wide part (hashed crosses) is trained with FTRL-proximal, which leaves most weights at exactly
zero; the deep part with Adagrad. Clicks are rare, so three of four non-clicks are dropped BEFORE
training and the probabilities are corrected afterwards. The quality is the progressive log-loss on
the undropped stream, each batch being scored before the model learns from it. The job is stopped in
the middle and taken up again from its checkpoint.
"""
import argparse
import logging
import math
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("adverts")

CONFIG = {
    "fields": [40, 25, 12, 7],  # advert, page, hour band, device
    "buckets": 4096,  # of the wide part
    "dim": 8,
    "hidden": [32, 16],
    "rows_per_hour": 512,
    "keep_negative": 0.25,
    "ftrl": {"alpha": 0.1, "beta": 1.0, "l1": 1.0, "l2": 1.0},
    "adagrad": {"lr": 0.05, "initial_accumulator_value": 0.1},
    "stop_and_resume_at": 0.5,
    "seed": 23,
}


class ClickStream(IterableDataset):
    """Hour after hour of impressions. An hour is made from its own number, so any worker can make it."""

    def __init__(self, cfg, first_hour, last_hour):
        self.cfg, self.first, self.last = cfg, first_hour, last_hour

    def hour(self, h):
        g = torch.Generator().manual_seed(self.cfg["seed"] * 100003 + h)
        w = torch.Generator().manual_seed(77)  # the world does not change
        sizes = self.cfg["fields"]
        effect = [0.9 * torch.randn(s, generator=w) for s in sizes]
        cross = 1.2 * torch.randn(sizes[0], sizes[3], generator=w)  # advert x device
        x = torch.stack(
            [
                (torch.rand(self.cfg["rows_per_hour"], generator=g).square() * s).long()
                for s in sizes
            ],
            1,
        )
        logit = (
            -3.2
            + sum(e[x[:, i]] for i, e in enumerate(effect)) * 0.6
            + cross[x[:, 0], x[:, 3]]
        )
        y = (torch.rand(len(x), generator=g) < logit.sigmoid()).float()
        kept = (y > 0) | (torch.rand(len(x), generator=g) < self.cfg["keep_negative"])
        return h, x, y, kept

    def __iter__(self):
        info = get_worker_info()
        k, n = (info.id, info.num_workers) if info else (0, 1)
        for h in range(
            self.first + k, self.last, n
        ):  # round robin keeps the hours in order
            yield self.hour(h)


class FTRL(torch.optim.Optimizer):
    """FTRL-proximal, per coordinate (McMahan et al., 2013). The weight is a function of z and n."""

    def __init__(self, params, alpha, beta, l1, l2):
        super().__init__(params, dict(alpha=alpha, beta=beta, l1=l1, l2=l2))

    @torch.no_grad()
    def step(self):
        for grp in self.param_groups:
            for p in grp["params"]:
                if p.grad is None:
                    continue
                st = self.state[p]
                if not st:
                    st["z"], st["n"] = torch.zeros_like(p), torch.zeros_like(p)
                g, z, n = p.grad, st["z"], st["n"]
                sigma = ((n + g * g).sqrt() - n.sqrt()) / grp["alpha"]
                z.add_(g - sigma * p)
                n.add_(g * g)
                shrunk = (z.abs() - grp["l1"]).clamp(min=0) * z.sign()
                p.copy_(-shrunk / ((grp["beta"] + n.sqrt()) / grp["alpha"] + grp["l2"]))


class WideDeep(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.buckets = cfg["buckets"]
        f = len(cfg["fields"])
        self.pairs = [(i, j) for i in range(f) for j in range(i + 1, f)]
        self.wide = nn.EmbeddingBag(self.buckets, 1, mode="sum")
        nn.init.zeros_(self.wide.weight)  # FTRL starts from nothing
        self.emb = nn.ModuleList(nn.Embedding(s, cfg["dim"]) for s in cfg["fields"])
        for e in self.emb:
            nn.init.normal_(e.weight, std=0.05)
        sizes = [f * cfg["dim"], *cfg["hidden"]]
        layers = []
        for a, b in zip(sizes, sizes[1:]):
            layers += [nn.Linear(a, b), nn.ReLU()]
        self.deep = nn.Sequential(*layers, nn.Linear(sizes[-1], 1))

    def crosses(self, x):
        keys = [x[:, i] * 7919 + 104729 * (i + 1) for i in range(x.shape[1])]
        keys += [
            (x[:, i] * 1000003 + x[:, j] * 8191 + 31 * (i * 10 + j))
            for i, j in self.pairs
        ]
        return torch.stack(keys, 1) % self.buckets

    def forward(self, x):
        deep = self.deep(torch.cat([e(x[:, i]) for i, e in enumerate(self.emb)], 1))
        return (self.wide(self.crosses(x)) + deep).squeeze(1)


class Job:
    def __init__(self, cfg):
        torch.manual_seed(cfg["seed"])
        self.cfg, self.model = cfg, WideDeep(cfg)
        deep = [
            p for n, p in self.model.named_parameters() if not n.startswith("wide.")
        ]
        self.opts = {
            "wide": FTRL([self.model.wide.weight], **cfg["ftrl"]),
            "deep": torch.optim.Adagrad(deep, **cfg["adagrad"]),
        }
        self.next_hour, self.tally = 0, []

    def save(self, path):
        torch.save(
            {
                "model": self.model.state_dict(),
                "next_hour": self.next_hour,
                "tally": self.tally,
                "opts": {k: o.state_dict() for k, o in self.opts.items()},
            },
            path + ".tmp",
        )
        os.replace(path + ".tmp", path)

    def load(self, path):
        ck = torch.load(path)
        self.model.load_state_dict(ck["model"])
        for k, o in self.opts.items():
            o.load_state_dict(ck["opts"][k])
        self.next_hour, self.tally = ck["next_hour"], ck["tally"]

    def learn_hours(self, until, workers):
        shift = math.log(self.cfg["keep_negative"])  # log-odds on the full stream
        loader = DataLoader(
            ClickStream(self.cfg, self.next_hour, until),
            batch_size=None,
            num_workers=workers,
        )
        for h, x, y, kept in loader:
            assert h == self.next_hour
            with torch.no_grad():  # first the test ...
                logit = self.model(x) + shift
                test = F.binary_cross_entropy_with_logits(logit, y)
            self.tally.append(
                (test.item(), logit.sigmoid().mean().item(), y.mean().item())
            )
            loss = F.binary_cross_entropy_with_logits(self.model(x[kept]), y[kept])
            for o in self.opts.values():  # ... then the lesson
                o.zero_grad()
            loss.backward()
            self.model.wide.weight.grad.mul_(
                float(kept.sum())
            )  # FTRL's penalties are per row, not per batch
            for o in self.opts.values():
                o.step()
            self.next_hour = h + 1
            if h % 40 == 39:
                t = torch.tensor(self.tally[-40:]).mean(0)
                log.info(
                    "hour %4d  train %.4f  progressive log-loss %.4f  calibration %.3f",
                    h + 1,
                    loss.item(),
                    t[0],
                    t[1] / t[2],
                )


def entropy_ratio(rows):
    t = torch.tensor(rows).mean(0)
    p = t[2].item()
    return (
        t[0].item() / -(p * math.log(p) + (1 - p) * math.log(1 - p)),
        (t[1] / t[2]).item(),
    )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument(
        "--steps", type=int, default=320, help="hours of the stream, a step each"
    )
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    half = int(args.steps * CONFIG["stop_and_resume_at"])
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "job.pt")
        job = Job(CONFIG)
        job.learn_hours(half, args.workers)
        job.save(path)
        before = {k: v.clone() for k, v in job.model.state_dict().items()}
        del job
        job = Job(CONFIG)  # another process, as it were
        job.load(path)
        assert job.next_hour == half and all(
            torch.equal(before[k], v) for k, v in job.model.state_dict().items()
        )
        log.info("resumed at hour %d", job.next_hour)
        job.learn_hours(args.steps, args.workers)
    w = job.model.wide.weight
    zero = (w == 0).float().mean().item()
    n = max(1, args.steps // 5)
    early, late = entropy_ratio(job.tally[:n]), entropy_ratio(job.tally[-n:])
    log.info(
        "normalised entropy %.3f -> %.3f, calibration %.3f, %.0f%% of the wide weights are exactly zero",
        early[0],
        late[0],
        late[1],
        100 * zero,
    )
    if args.steps >= 320:
        assert (
            late[0] < 0.9
            and late[0] < early[0]
            and 0.85 < late[1] < 1.15
            and 0.3 < zero < 1.0
        )


if __name__ == "__main__":
    main()
