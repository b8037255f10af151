"""Daily demand per store, MLP on lag features, trained on two processes with early stopping."""
import argparse
import copy
import os
import tempfile
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class TrainConfig:
    world: int = 2
    stores: int = 40
    days: int = 260
    lags: int = 14
    batch: int = 64
    lr: float = 2e-3
    eval_every: int = 20
    patience: int = 6
    seed: int = 3
    widths: list = field(default_factory=lambda: [96, 64])


def make_table(cfg):
    g = torch.Generator().manual_seed(cfg.seed)
    base = torch.rand(cfg.stores, 1, generator=g) * 2 + 1
    weekly = torch.rand(cfg.stores, 7, generator=g) * 0.8
    t = torch.arange(cfg.days)
    season = 0.4 * torch.sin(t * 2 * torch.pi / 90)
    # the southern stores (second half of the list) sell with much more noise
    noise = torch.full((cfg.stores, 1), 0.12)
    noise[cfg.stores // 2 :] = 0.4
    sales = (
        base
        + weekly[:, t % 7]
        + season
        + noise * torch.randn(cfg.stores, cfg.days, generator=g)
    )
    w = sales.unfold(1, cfg.lags + 1, 1)
    dow = F.one_hot(t[cfg.lags :] % 7, 7).float().expand(cfg.stores, -1, -1)
    x = torch.cat([w[..., :-1], dow], -1)
    y = w[..., -1]
    k = int(0.75 * x.shape[1])
    flat = lambda a: a.reshape(-1, *a.shape[2:])
    return flat(x[:, :k]), flat(y[:, :k]), flat(x[:, k:]), flat(y[:, k:])


def mlp(n_in, widths):
    layers = []
    for w in widths:
        layers += [nn.Linear(n_in, w), nn.ReLU(), nn.Dropout(0.1)]
        n_in = w
    return nn.Sequential(*layers, nn.Linear(n_in, 1))


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.bad, self.state = patience, float("inf"), 0, None

    def update(self, score, model):
        if score < self.best:
            self.best, self.bad = score, 0
            self.state = copy.deepcopy(model.state_dict())
        else:
            self.bad += 1
        return self.bad >= self.patience


@torch.no_grad()
def validation_mae(model, x, y, args):
    """x, y: the rows of this process."""
    model.eval()
    err = (model(x).squeeze(-1) - y).abs()
    stats = torch.tensor([err.sum().item(), float(len(err))], dtype=torch.float64)
    if args.fixed:
        dist.all_reduce(stats)
    model.train()
    return (stats[0] / stats[1]).item()


def main_worker(rank, cfg, args, init_file):
    dist.init_process_group(
        "gloo", init_method="file://" + init_file, rank=rank, world_size=cfg.world
    )
    torch.set_num_threads(1)
    xtr, ytr, xva, yva = make_table(cfg)
    xva_mine, yva_mine = xva.chunk(cfg.world)[rank], yva.chunk(cfg.world)[rank]

    torch.manual_seed(cfg.seed)
    net = nn.parallel.DistributedDataParallel(mlp(xtr.shape[1], cfg.widths))
    opt = torch.optim.Adam(net.parameters(), lr=cfg.lr)
    order = torch.Generator().manual_seed(cfg.seed)
    torch.manual_seed(cfg.seed + rank)
    stopper = EarlyStopping(cfg.patience)

    for step in range(args.steps):
        rows = torch.randint(0, len(xtr), (cfg.world, cfg.batch), generator=order)[rank]
        loss = F.smooth_l1_loss(net(xtr[rows]).squeeze(-1), ytr[rows])
        opt.zero_grad()
        loss.backward()
        opt.step()

        if (step + 1) % cfg.eval_every == 0:
            mae = validation_mae(net.module, xva_mine, yva_mine, args)
            stop = torch.zeros(1)
            if rank == 0:
                stop += float(stopper.update(mae, net.module))
                print(
                    f"step {step + 1:4d} loss {loss.item():.4f} val mae {mae:.4f}",
                    flush=True,
                )
            dist.broadcast(stop, src=0)
            if stop.item():
                if rank == 0:
                    print(f"stopped early at step {step + 1}", flush=True)
                break

    if rank == 0 and stopper.state is not None:
        print(f"best val mae {stopper.best:.4f}", flush=True)

    if args.prove:
        reported = validation_mae(net.module, xva_mine, yva_mine, args)
        net.eval()
        with torch.no_grad():
            whole = (net.module(xva).squeeze(-1) - yva).abs().mean().item()
        if rank == 0:
            print(
                "fault shows:",
                "yes" if abs(reported - whole) > 0.01 * whole else "no",
                flush=True,
            )
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    cfg = TrainConfig()
    with tempfile.TemporaryDirectory() as tmp:
        mp.spawn(
            main_worker, args=(cfg, args, os.path.join(tmp, "init")), nprocs=cfg.world
        )
