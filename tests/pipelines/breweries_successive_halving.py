"""Bitterness of a beer from its recipe: hyperparameter search by successive halving.

Twelve trials start on a small budget; after each rung the better third goes on *from where it
stood*.  Between two rungs a trial exists only as bytes in memory: its model, its optimizer (each
trial may have another class and other groups), its sampler position and its generator are built
anew and loaded.  The winner's recipe is then trained from scratch on train + validation, and only
this last model is shown the test batches.
"""
import argparse
import io
import json
import math

import torch
from torch import nn

INGREDIENTS = 9


def brews(n, gen):
    x = torch.rand(n, INGREDIENTS, generator=gen)
    hops, minutes, gravity = x[:, 0], x[:, 1], x[:, 2]
    utilisation = (1 - torch.exp(-3 * minutes)) * torch.exp(-1.2 * gravity)
    ibu = 90 * hops * utilisation + 12 * x[:, 3] * (x[:, 4] > 0.5) + 6 * x[:, 5]
    return x, (ibu + 1.5 * torch.randn(n, generator=gen)) / 20.0


def sample_configs(n, seed):
    """Ranges that are known to be sane for this family of nets."""
    gen = torch.Generator().manual_seed(seed)

    def uniform(low, high):
        return low + (high - low) * torch.rand((), generator=gen).item()

    def log_uniform(low, high):
        return math.exp(uniform(math.log(low), math.log(high)))

    def choice(options):
        return options[int(torch.randint(0, len(options), (), generator=gen))]

    ranges = {
        "sgd": (2e-2, 8e-2),
        "adamw": (1e-3, 6e-3),
        "rmsprop": (5e-4, 2e-3),
        "adagrad": (1e-2, 4e-2),
        "nadam": (1e-3, 5e-3),
    }
    names = list(ranges)
    configs = []
    for trial in range(n):
        name = names[trial % len(names)]
        configs.append(
            {
                "trial": trial,
                "optimizer": name,
                "lr": log_uniform(*ranges[name]),
                "width": choice([24, 48, 96]),
                "depth": choice([1, 2, 3]),
                "activation": choice(["relu", "silu", "tanh"]),
                "batch": choice([32, 64]),
                "decay": log_uniform(1e-5, 1e-3),
            }
        )
    return configs


def build_model(config):
    act = {"relu": nn.ReLU, "silu": nn.SiLU, "tanh": nn.Tanh}[config["activation"]]
    layers, d = [], INGREDIENTS
    for _ in range(config["depth"]):
        layers += [nn.Linear(d, config["width"]), act()]
        d = config["width"]
    return nn.Sequential(*layers, nn.Linear(d, 1), nn.Flatten(0))


def build_optimizer(config, model):
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": config["decay"]},
        {"params": vectors, "weight_decay": 0.0},
    ]
    lr = config["lr"]
    return {
        "sgd": lambda: torch.optim.SGD(groups, lr=lr, momentum=0.9, nesterov=True),
        "adamw": lambda: torch.optim.AdamW(groups, lr=lr),
        "rmsprop": lambda: torch.optim.RMSprop(groups, lr=lr, alpha=0.95),
        "adagrad": lambda: torch.optim.Adagrad(groups, lr=lr),
        "nadam": lambda: torch.optim.NAdam(groups, lr=lr),
    }[config["optimizer"]]()


class Trial:
    def __init__(self, config, data, seed=0):
        self.config, (self.x, self.y) = config, data
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed + config["trial"])
            self.model = build_model(config)
        self.optimizer = build_optimizer(config, self.model)
        self.generator = torch.Generator().manual_seed(1000 + seed + config["trial"])
        self.steps, self.order, self.at = 0, torch.empty(0, dtype=torch.long), 0

    def next_rows(self):
        if self.at + self.config["batch"] > len(self.order):
            self.order, self.at = (
                torch.randperm(len(self.x), generator=self.generator),
                0,
            )
        rows = self.order[self.at : self.at + self.config["batch"]]
        self.at += self.config["batch"]
        return rows

    def train_to(self, steps):
        self.model.train()
        losses = []
        while self.steps < steps:
            rows = self.next_rows()
            loss = nn.functional.huber_loss(self.model(self.x[rows]), self.y[rows])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.steps += 1
            losses.append(loss.item())
        return losses

    @torch.no_grad()
    def rmse(self, x, y):
        self.model.eval()
        return (self.model(x) - y).pow(2).mean().sqrt().item()

    def freeze(self):
        buffer = io.BytesIO()
        torch.save(
            {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "generator": self.generator.get_state(),
                "steps": self.steps,
                "order": self.order,
                "at": self.at,
            },
            buffer,
        )
        return buffer.getvalue()

    @classmethod
    def thaw(cls, config, data, blob):
        trial = cls(config, data)
        state = torch.load(io.BytesIO(blob), weights_only=True)
        trial.model.load_state_dict(state["model"])
        trial.optimizer.load_state_dict(state["optimizer"])
        trial.generator.set_state(state["generator"])
        trial.steps, trial.order, trial.at = state["steps"], state["order"], state["at"]
        return trial


def search(configs, train, val, rungs, keep_one_in):
    frozen = {c["trial"]: Trial(c, train).freeze() for c in configs}
    alive, board = configs, {}
    for rung, budget in enumerate(rungs):
        for config in alive:
            trial = Trial.thaw(config, train, frozen[config["trial"]])
            losses = trial.train_to(budget)
            board[config["trial"]] = trial.rmse(*val)
            frozen[config["trial"]] = trial.freeze()
            print(
                f"rung {rung} trial {config['trial']:2d} {config['optimizer']:8s} "
                f"steps {trial.steps:4d} loss {losses[0]:.3f}->{losses[-1]:.3f} "
                f"val rmse {board[config['trial']]:.4f}"
            )
        if rung < len(rungs) - 1:
            survivors = max(1, len(alive) // keep_one_in)
            alive = sorted(alive, key=lambda c: board[c["trial"]])[:survivors]
            frozen = {
                c["trial"]: frozen[c["trial"]] for c in alive
            }  # the rest is let go
    best = min(alive, key=lambda c: board[c["trial"]])
    return best, board[best["trial"]], frozen[best["trial"]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--steps", type=int, default=450, help="budget of the last rung"
    )
    parser.add_argument("--trials", type=int, default=12)
    args = parser.parse_args()
    gen = torch.Generator().manual_seed(2024)
    train, val, test = brews(1500, gen), brews(400, gen), brews(500, gen)
    rungs = [args.steps // 9, args.steps // 3, args.steps]
    assert rungs[0] > 0

    configs = sample_configs(args.trials, seed=6)
    best, best_rmse, blob = search(configs, train, val, rungs, keep_one_in=3)
    print("winner", json.dumps(best))

    # a thawed trial that has nothing to do must be the frozen one
    again = Trial.thaw(best, train, blob)
    assert again.train_to(args.steps) == [] and again.rmse(*val) == best_rmse

    both = tuple(torch.cat(pair) for pair in zip(train, val))
    final = Trial(best, both, seed=500)
    losses = final.train_to(args.steps)
    guess = (test[1] - both[1].mean()).pow(2).mean().sqrt().item()
    rmse = final.rmse(*test)
    print(
        f"refit: loss {losses[0]:.3f} -> {losses[-1]:.3f}; "
        f"test rmse {rmse:.4f} (constant guess {guess:.4f}, noise floor {1.5 / 20:.4f})"
    )
    k = max(1, len(losses) // 10)
    assert sum(losses[-k:]) < 0.5 * sum(losses[:k])
    if args.steps >= 300:
        assert rmse < 0.5 * guess


if __name__ == "__main__":
    main()
