"""Sugar at harvest: a deep ensemble with one member on each of two ranks, which never mix gradients.

The ranks are meant to differ: own seed, own bootstrap of the plots, own order, own weights. They
talk only to judge the ensemble: predictions on the validation plots are gathered, and the decision
to stop is taken on the ensemble's score, by both ranks alike. Every member keeps its own file.
"""
import argparse
import os
import socket
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn

CFG = dict(
    world=2,
    epochs=20,
    batch=64,
    width=48,
    lr=3e-3,
    weight_decay=1e-3,
    beta=0.5,
    patience=6,
    min_epochs=8,
    n_train=1200,
    n_valid=400,
    n_test=600,
    data_seed=43,
)


def plots(n, gen):
    """Weather of the season and the slope of the plot -> sugar; steep plots scatter more."""
    x = torch.randn(n, 6, generator=gen)
    sun, rain, slope = x[:, 0], x[:, 1], x[:, 2]
    mean = (
        20
        + 2.0 * torch.tanh(sun)
        - 1.2 * rain.square().clamp(max=4)
        + 0.8 * slope * sun
        + 0.5 * torch.sin(2 * x[:, 3])
    )
    scatter = 0.3 + 0.5 * torch.sigmoid(2 * slope)
    return x, mean + scatter * torch.randn(n, generator=gen)


class Member(nn.Module):
    def __init__(self, width, y_mean, y_std):
        super().__init__()
        self.register_buffer("y_mean", y_mean)
        self.register_buffer("y_std", y_std)
        self.body = nn.Sequential(
            nn.Linear(6, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, 2),
        )

    def forward(self, x):
        mean, raw = self.body(x).unbind(1)
        var = nn.functional.softplus(raw) + 1e-4
        return self.y_mean + self.y_std * mean, self.y_std.square() * var


def nll(mean, var, y):
    return 0.5 * (var.log() + (y - mean).square() / var)


def beta_nll(mean, var, y, beta):
    """Seitzer et al.: the variance, without its gradient, weighs the rows; big-variance rows are not given up."""
    return (nll(mean, var, y) * var.detach() ** beta).mean()


def mixture(means, variances):
    """Mean and variance of an even mixture of the members' Gaussians."""
    m = means.mean(0)
    return m, (variances + means.square()).mean(0) - m.square()


@torch.no_grad()
def predict(model, x):
    model.eval()
    out = model(x)
    model.train()
    return torch.stack(out)  # 2 x n


def gathered(model, x):
    """All members' predictions, on every rank: world x 2 x n."""
    mine = predict(model, x)
    all_ = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(all_, mine)
    return torch.stack(all_)


def rmse(a, b):
    return (a - b).square().mean().sqrt().item()


class MemberTrainer:
    def __init__(self, rank, cfg, folder):
        self.rank, self.cfg = rank, cfg
        gen = torch.Generator().manual_seed(
            cfg["data_seed"]
        )  # the same plots on each rank
        x, y = plots(cfg["n_train"], gen)
        self.valid, self.test = plots(cfg["n_valid"], gen), plots(cfg["n_test"], gen)
        torch.manual_seed(1000 + rank)  # from here on the members part
        bag = torch.randint(len(x), (len(x),))  # bootstrap, with repeats
        self.x, self.y = x[bag], y[bag]
        self.model = Member(cfg["width"], self.y.mean(), self.y.std())
        self.opt = torch.optim.AdamW(
            self.model.parameters(), lr=cfg["lr"], weight_decay=cfg["weight_decay"]
        )
        self.sched = torch.optim.lr_scheduler.ExponentialLR(self.opt, 0.95)
        self.path = os.path.join(folder, f"member{rank}.pt")
        self.best, self.bad, self.first = float("inf"), 0, None

    def epoch(self):
        total = 0.0
        rows_of = torch.randperm(len(self.x)).split(self.cfg["batch"])
        for rows in rows_of:
            mean, var = self.model(self.x[rows])
            loss = beta_nll(mean, var, self.y[rows], self.cfg["beta"])
            self.opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.opt.step()
            total += loss.item() * len(rows)
        self.sched.step()
        return total / len(self.x)

    def fit(self, epochs):
        for epoch in range(epochs):
            loss = self.epoch()
            preds = gathered(self.model, self.valid[0])
            mean, var = mixture(preds[:, 0], preds[:, 1])
            score = (
                nll(mean, var, self.valid[1]).mean().item()
            )  # equal on both ranks: same inputs, same order
            both = [
                torch.zeros(1, dtype=torch.float64) for _ in range(self.cfg["world"])
            ]
            dist.all_gather(both, torch.tensor([score], dtype=torch.float64))
            assert both[0].equal(both[1])
            self.first = score if self.first is None else self.first
            if score < self.best:
                self.best, self.bad = score, 0
                torch.save(self.model.state_dict(), self.path)
            else:
                self.bad += 1
            member = nll(*preds[self.rank], self.valid[1]).mean().item()
            if epoch % 5 == 0 or epoch == epochs - 1:
                print(
                    f"[{self.rank}] epoch {epoch:2d} own loss {loss:.4f} own NLL {member:.4f} ensemble NLL {score:.4f}",
                    flush=True,
                )
            if epoch + 1 >= self.cfg["min_epochs"] and self.bad >= self.cfg["patience"]:
                break  # both ranks leave here together
        self.model.load_state_dict(torch.load(self.path))
        return epoch + 1


def worker(rank, cfg, folder, port, epochs):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=cfg["world"],
    )
    trainer = MemberTrainer(rank, cfg, folder)
    ran = trainer.fit(epochs)

    weights = torch.cat([p.detach().flatten() for p in trainer.model.parameters()])
    others = [torch.empty_like(weights) for _ in range(cfg["world"])]
    dist.all_gather(others, weights)
    assert not torch.allclose(others[0], others[1]), "the members must differ"
    epochs_run = torch.tensor([ran, -ran])
    dist.all_reduce(epochs_run, op=dist.ReduceOp.MAX)
    assert epochs_run[0] == -epochs_run[1] == ran

    preds = gathered(trainer.model, trainer.test[0])
    y = trainer.test[1]
    mean, var = mixture(preds[:, 0], preds[:, 1])
    singles = [rmse(p[0], y) for p in preds]
    if rank == 0:
        inside = ((y - mean).abs() < 1.645 * var.sqrt()).float().mean().item()
        print(
            f"{ran} epochs; test RMSE of the members {singles[0]:.3f} {singles[1]:.3f}, together {rmse(mean, y):.3f}; "
            f"90% interval holds {100 * inside:.1f}%; valid NLL {trainer.first:.3f} -> {trainer.best:.3f}"
        )
        assert rmse(mean, y) <= sum(singles) / len(singles) + 1e-6
        if epochs >= cfg["epochs"]:
            assert (
                trainer.best < trainer.first - 0.4
                and rmse(mean, y) < 0.5 * y.std().item()
            )
            assert 0.8 < inside < 0.98
    dist.barrier()
    dist.destroy_process_group()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=CFG["epochs"])
    args = ap.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(
            worker,
            args=(CFG, folder, port, args.epochs),
            nprocs=CFG["world"],
            join=True,
        )
        assert sorted(os.listdir(folder)) == [
            f"member{r}.pt" for r in range(CFG["world"])
        ]


if __name__ == "__main__":
    main()
