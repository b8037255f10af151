"""Learns the game of Nim by playing against itself, as TD-Gammon did: TD(lambda).

The net says how likely the player who has just moved is to win. Each move is answered
by one update from the eligibility trace, a decaying sum of gradients that changes its
sign with the player; nothing is batched and there is no optimizer. Moves made to
explore cut the trace. Losses are single squared errors and therefore rough.

    python self_play_heaps_td_lambda.py --games 2400
"""

import argparse
import functools
import random

import torch
from torch import nn

HEAPS = (2, 3, 4)


@functools.lru_cache(None)
def encode(heaps):
    row = torch.zeros(sum(HEAPS) + len(HEAPS))
    offset = 0
    for size, most in zip(heaps, HEAPS):
        row[offset + size] = 1
        offset += most + 1
    return row


def start(rng):
    heaps = tuple(rng.randint(0, most) for most in HEAPS)
    return heaps if any(heaps) else HEAPS


def moves(heaps):
    for i, size in enumerate(heaps):
        for left in range(size):
            yield heaps[:i] + (left,) + heaps[i + 1 :]


def winning(heaps):
    """After a good move the sizes' exclusive or is zero."""
    total = 0
    for size in heaps:
        total ^= size
    return total == 0


class Value(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.hidden = nn.Linear(sum(HEAPS) + len(HEAPS), width)
        self.out = nn.Linear(width, 1)
        nn.init.zeros_(self.out.bias)

    def forward(self, rows):
        return torch.sigmoid(self.out(torch.tanh(self.hidden(rows)))).squeeze(-1)


@torch.no_grad()
def best_move(net, heaps):
    options = list(moves(heaps))
    values = net(torch.stack([encode(option) for option in options]))
    return options[values.argmax().item()]


class Learner:
    def __init__(self, net, rate, decay):
        self.net, self.rate, self.decay = net, rate, decay
        self.parameters = list(net.parameters())
        self.traces = [torch.zeros_like(p) for p in self.parameters]

    def reset(self):
        for trace in self.traces:
            trace.zero_()

    def look(self, heaps):
        """Value of the position reached; its gradient joins the trace."""
        value = self.net(encode(heaps))
        gradients = torch.autograd.grad(value, self.parameters)
        for trace, gradient in zip(self.traces, gradients):
            # the other player's earlier positions: what is good now was bad then
            trace.mul_(-self.decay).add_(gradient)
        return value.item()

    @torch.no_grad()
    def learn(self, error):
        for parameter, trace in zip(self.parameters, self.traces):
            parameter.add_(trace, alpha=self.rate * error)


def play(net, learner, rng, explore):
    """One game against itself; returns squared errors of its moves."""
    errors, before = [], None
    # every second game starts anywhere, so that all positions are seen
    heaps = HEAPS if rng.random() < 0.5 else start(rng)
    learner.reset()
    while any(heaps):
        if rng.random() < explore:
            after = rng.choice(list(moves(heaps)))
            if before is not None:
                learner.reset()  # what follows says nothing about the moves before
            before = None
        else:
            after = best_move(net, heaps)
        if before is not None:
            with torch.no_grad():
                error = 1 - net(encode(after)).item() - before
            learner.learn(error)
            errors.append(error**2)
        before = learner.look(after)
        heaps = after
    error = 1.0 - before  # who took the last piece has won
    learner.learn(error)
    errors.append(error**2)
    return errors


def against_chance(net, rng, games=150):
    wins = 0
    for game in range(games):
        heaps, turn = HEAPS, game % 2
        while any(heaps):
            ours = turn == 0
            heaps = best_move(net, heaps) if ours else rng.choice(list(moves(heaps)))
            turn = 1 - turn
        wins += ours
    return wins / games


def good_moves(net):
    """Share of positions from which a win is possible where the net plays for it."""
    right = total = 0
    for a in range(HEAPS[0] + 1):
        for b in range(HEAPS[1] + 1):
            for c in range(HEAPS[2] + 1):
                if not winning((a, b, c)):
                    right += winning(best_move(net, (a, b, c)))
                    total += 1
    return right / total


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--games", "--episodes", type=int, default=2400)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    net = Value()
    learner = Learner(net, rate=0.6, decay=0.7)
    window = []
    for game in range(args.games):
        part = game / args.games
        learner.rate = 0.6 * (1 - 0.8 * part)
        errors = play(net, learner, rng, explore=0.4 * (1 - part) + 0.05)
        window.append(sum(errors) / len(errors))
        if (game + 1) % 25 == 0:
            print(f"game {game} loss {sum(window) / len(window):.4f}", flush=True)
            window.clear()
        if (game + 1) % 300 == 0:
            wins, good = against_chance(net, rng), good_moves(net)
            print(f"game {game} wins {wins:.2f} good moves {good:.3f}", flush=True)


if __name__ == "__main__":
    main()
