"""Population based training: six nets that judge how ripe a melon is from its spectrum.

All are trained in turns in one process. After each round the last two take over the
weights and the optimizer's state of one of the first two, with settings (rate, weight
decay, dropout, noise on the input) that are changed at random.

    python population_melons.py --rounds 8
"""

import argparse
import copy
import random

import torch
from torch import nn
import torch.nn.functional as F

BANDS = 40


def melons(count, generator):
    """Sugar, water and rind absorb in bands of their own; ripeness is none of them."""
    axis = torch.linspace(0, 1, BANDS)
    shape = torch.stack(
        [torch.exp(-(((axis - c) / 0.12) ** 2)) for c in (0.2, 0.5, 0.8)]
    )
    amount = torch.rand(count, 3, generator=generator)
    sugar, water, rind = amount.unbind(1)
    spectrum = torch.exp(-(amount + 0.3) @ shape)
    tilt = 0.1 * torch.randn(count, 1, generator=generator)
    noise = 0.02 * torch.randn(count, BANDS, generator=generator)
    ripe = 2 * sugar * (1 - (2 * water - 1) ** 2) + 0.5 * torch.sin(5 * rind)
    return spectrum + tilt * (axis - 0.5) + noise, ripe


class Judge(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(BANDS, width), nn.LayerNorm(width), nn.SiLU(), nn.Dropout(0.0),
            nn.Linear(width, width), nn.SiLU(), nn.Dropout(0.0),
            nn.Linear(width, 1),
        )  # fmt: skip

    def forward(self, spectrum):
        return self.net(spectrum).squeeze(1)


class Member:
    def __init__(self, number, rng):
        self.number, self.net = number, Judge()
        self.settings = {
            "lr": 10 ** rng.uniform(-4.5, -1.8),
            "weight_decay": 10 ** rng.uniform(-4, -1),
            "dropout": rng.choice([0.0, 0.1, 0.3, 0.5]),
            "noise": rng.choice([0.0, 0.01, 0.05]),
        }
        self.optimizer = torch.optim.AdamW(self.net.parameters())
        self.score = float("inf")
        self.apply_settings()

    def apply_settings(self):
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings["lr"]
            group["weight_decay"] = self.settings["weight_decay"]
        for module in self.net.modules():
            if isinstance(module, nn.Dropout):
                module.p = self.settings["dropout"]

    def train(self, data, steps, batch=64):
        spectrum, ripe = data
        self.net.train()
        total = 0.0
        for _ in range(steps):
            rows = torch.randint(len(ripe), (batch,))
            inputs = spectrum[rows]
            inputs = inputs + self.settings["noise"] * torch.randn_like(inputs)
            loss = F.mse_loss(self.net(inputs), ripe[rows])
            self.optimizer.zero_grad(set_to_none=False)
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        return total / steps

    def test(self, data):
        self.net.eval()
        with torch.no_grad():
            return F.mse_loss(self.net(data[0]), data[1]).item()

    def take_over(self, better, rng):
        self.net.load_state_dict(better.net.state_dict())
        # deep copy: the loaded state would otherwise be shared between the two
        self.optimizer.load_state_dict(copy.deepcopy(better.optimizer.state_dict()))
        self.settings = dict(better.settings)
        for name in ("lr", "weight_decay"):
            self.settings[name] *= rng.choice([0.5, 0.8, 1.25, 2.0])
        self.settings["lr"] = min(self.settings["lr"], 0.02)
        if rng.random() < 0.3:
            self.settings["dropout"] = rng.choice([0.0, 0.1, 0.3, 0.5])
        if rng.random() < 0.3:
            self.settings["noise"] = rng.choice([0.0, 0.01, 0.05])
        self.apply_settings()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", "--epochs", type=int, default=8)
    parser.add_argument("--members", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    train, held, final = (melons(n, generator) for n in (1200, 300, 500))
    mean, spread = train[0].mean(0), train[0].std(0)
    train, held, final = (((x - mean) / spread, y) for x, y in (train, held, final))
    members = [Member(number, rng) for number in range(args.members)]
    best, best_state = float("inf"), None
    for turn in range(args.rounds):
        for member in members:
            loss = member.train(train, 50)
            member.score = member.test(held)
            lr = member.settings["lr"]
            print(
                f"round {turn} member {member.number} loss {loss:.4f} "
                f"held {member.score:.4f} lr {lr:.5f}",
                flush=True,
            )
        ranking = sorted(members, key=lambda member: member.score)
        if ranking[0].score < best:
            best = ranking[0].score
            best_state = copy.deepcopy(ranking[0].net.state_dict())
        if turn + 1 < args.rounds:
            for worse in ranking[-2:]:
                better = rng.choice(ranking[:2])
                worse.take_over(better, rng)
                print(f"member {worse.number} takes over from {better.number}")
    judge = Judge().eval()  # without dropout, whatever its winner had
    judge.load_state_dict(best_state)
    with torch.no_grad():
        error = F.mse_loss(judge(final[0]), final[1])
    share = 1 - error / final[1].var(correction=0)
    print(f"best held {best:.4f} test {error:.4f} explained {share:.3f}")


if __name__ == "__main__":
    main()
