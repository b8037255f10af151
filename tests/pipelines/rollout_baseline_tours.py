"""Plans round trips through twelve villages with an attention network that points to the
next one (REINFORCE). The baseline is the greedy tour of a frozen copy, which is replaced
by the current network whenever that is clearly better on villages kept for it (paired
t-test). The loss is an advantage times a log probability and has no meaning as a level.

    python rollout_baseline_tours.py --steps 120
"""

import argparse
import copy
import math

import torch
from torch import nn

VILLAGES = 12


class Encoder(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.enter = nn.Linear(2, width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, places):
        return self.layers(self.enter(places))


class TourNet(nn.Module):
    def __init__(self, width=48, layers=2, clip=10.0):
        super().__init__()
        self.encoder = Encoder(width, layers)
        self.keys = nn.Linear(width, width, bias=False)
        self.query = nn.Linear(3 * width, width)
        self.start = nn.Parameter(0.1 * torch.randn(2 * width))
        self.clip = clip

    def forward(self, places, greedy):
        """Tours as lists of indices, and their log probabilities."""
        nodes = self.encoder(places)
        keys, mean = self.keys(nodes), nodes.mean(1)
        rows = torch.arange(len(places))
        seen = torch.zeros(places.shape[:2], dtype=torch.bool)
        context = self.start.expand(len(places), -1)
        tour, log_probability = [], 0.0
        for _ in range(places.shape[1]):
            query = self.query(torch.cat([mean, context], dim=1))
            scores = (keys @ query.unsqueeze(2)).squeeze(2) / math.sqrt(keys.shape[2])
            scores = self.clip * torch.tanh(scores)
            logs = scores.masked_fill(seen, float("-inf")).log_softmax(1)
            if greedy:
                choice = logs.argmax(1)
            else:
                choice = torch.multinomial(logs.detach().exp(), 1).squeeze(1)
            log_probability = log_probability + logs[rows, choice]
            seen = seen.index_put((rows, choice), torch.tensor(True))
            tour.append(choice)
            context = torch.cat([nodes[rows, tour[0]], nodes[rows, choice]], dim=1)
        return torch.stack(tour, dim=1), log_probability


def tour_length(places, tour):
    path = places.gather(1, tour.unsqueeze(2).expand(-1, -1, 2))
    return (path - path.roll(1, dims=1)).norm(dim=2).sum(1)


class RolloutBaseline:
    def __init__(self, model, g, trials=500):
        self.g, self.trials = g, trials
        self.replace(model)

    def replace(self, model):
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        # Villages drawn anew, so that no copy is chosen for luck with the old ones.
        self.places = torch.rand(self.trials, VILLAGES, 2, generator=self.g)
        self.lengths = self(self.places)

    @torch.no_grad()
    def __call__(self, places):
        return tour_length(places, self.model(places, greedy=True)[0])

    @torch.no_grad()
    def challenge(self, model):
        model.eval()
        lengths = tour_length(self.places, model(self.places, greedy=True)[0])
        model.train()
        gain = self.lengths - lengths
        t = gain.mean() / (gain.std() / math.sqrt(len(gain)))
        better = t.item() > 1.645
        if better:
            self.replace(model)
        return better, lengths.mean().item()


def nearest_neighbour(places):
    """Length of the tours that always go to the nearest village."""
    rows = torch.arange(len(places))
    here = torch.zeros(len(places), dtype=torch.long)
    seen, tour = torch.zeros(places.shape[:2], dtype=torch.bool), [here]
    seen[:, 0] = True
    for _ in range(places.shape[1] - 1):
        away = (places - places[rows, here].unsqueeze(1)).norm(dim=2)
        here = away.masked_fill(seen, float("inf")).argmin(1)
        seen[rows, here] = True
        tour.append(here)
    return tour_length(places, torch.stack(tour, dim=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--every", type=int, default=15)
    parser.add_argument("--seed", type=int, default=14)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    model = TourNet()
    baseline = RolloutBaseline(model, torch.Generator().manual_seed(args.seed + 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for step in range(args.steps):
        places = torch.rand(args.batch_size, VILLAGES, 2)
        tour, log_probability = model(places, greedy=False)
        lengths = tour_length(places, tour)
        advantage = lengths - baseline(places)
        loss = (advantage * log_probability).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 5 == 0:
            print(
                f"step {step} loss {loss.item():.6f} length {lengths.mean().item():.4f}",
                flush=True,
            )
        if (step + 1) % args.every == 0:
            better, mean = baseline.challenge(model)
            print(f"  greedy length {mean:.4f}, new baseline: {better}", flush=True)

    places = torch.rand(500, VILLAGES, 2, generator=torch.Generator().manual_seed(1))
    model.eval()
    with torch.no_grad():
        mean = tour_length(places, model(places, greedy=True)[0]).mean().item()
    simple = nearest_neighbour(places).mean().item()
    print(f"greedy tours {mean:.4f}, nearest neighbour {simple:.4f}")


if __name__ == "__main__":
    main()
