"""Reads written sums and gives their value's remainder by seven. The data grow harder:
two numbers at first, five at the end, with a share of easier ones kept; loss jumps up
when a level is added. Lookahead around SGD pulls the slow weights every six steps. The
encoder has its places in a module of its own, batch first, and a class token in front.

    python curriculum_lookahead_sums.py --steps 120
"""

import argparse
import math

import torch
from torch import nn
import torch.nn.functional as F

PAD, CLASS, DIGIT, PLUS, MODULUS, LEVELS = 0, 1, 2, 9, 7, 4


class Lookahead:
    """Every ``period`` steps slow weights go a share of the way to the fast ones."""

    def __init__(self, optimizer, period=6, share=0.5):
        self.optimizer, self.period, self.share = optimizer, period, share
        self.param_groups = optimizer.param_groups
        self.slow = [p.detach().clone() for p in self.parameters()]
        self.count = 0

    def parameters(self):
        return [p for group in self.param_groups for p in group["params"]]

    def zero_grad(self):
        self.optimizer.zero_grad()

    @torch.no_grad()
    def step(self):
        self.optimizer.step()
        self.count += 1
        if self.count % self.period == 0:
            for slow, fast in zip(self.slow, self.parameters()):
                slow.lerp_(fast, self.share)
                fast.copy_(slow)


class Places(nn.Module):
    """Adds waves of different length to [batch, place, width]."""

    def __init__(self, width, longest=32):
        super().__init__()
        place = torch.arange(longest)[:, None]
        rate = torch.exp(torch.arange(0, width, 2) * (-math.log(1000.0) / width))
        waves = torch.zeros(longest, width)
        waves[:, 0::2], waves[:, 1::2] = (place * rate).sin(), (place * rate).cos()
        self.register_buffer("waves", waves, persistent=False)

    def forward(self, hidden):
        return hidden + self.waves[: hidden.size(1)]


class SumReader(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.symbol = nn.Embedding(PLUS + 1, width, padding_idx=PAD)
        self.places = Places(width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, MODULUS)

    def forward(self, symbols):
        hidden = self.places(self.symbol(symbols))
        hidden = self.encoder(hidden, src_key_padding_mask=symbols == PAD)
        return self.head(hidden[:, 0])


def sums(count, terms, rng):
    """Rows of symbols, padded at the right, and remainders."""
    rows, values = [], []
    for number in terms:
        digits = torch.randint(MODULUS, (number,), generator=rng)
        row = torch.full((2 * number,), PLUS)
        row[0], row[1::2] = CLASS, DIGIT + digits
        rows.append(row)
        values.append(int(digits.sum()) % MODULUS)
    symbols = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    return symbols, torch.tensor(values)


def terms_of(level, count, rng):
    """Mostly as many terms as the level has, some of the levels before."""
    easier = torch.randint(2, level + 3, (count,), generator=rng)
    keep = torch.rand(count, generator=rng) < 0.7
    return torch.where(keep, level + 2, easier).tolist()


@torch.no_grad()
def accuracy(net, seed):
    net.eval()
    found = []
    for terms in range(2, LEVELS + 2):
        rng = torch.Generator().manual_seed(seed + terms)
        symbols, value = sums(200, [terms] * 200, rng)
        found.append((net(symbols).argmax(1) == value).float().mean().item())
    net.train()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=480)
    parser.add_argument("--lr", type=float, default=0.15)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = torch.Generator().manual_seed(args.seed)
    net = SumReader()
    inner = torch.optim.SGD(net.parameters(), lr=args.lr, momentum=0.9)
    optimizer = Lookahead(inner)
    for step in range(args.steps):
        level = min(LEVELS - 1, step * LEVELS // args.steps)
        for group in optimizer.param_groups:
            group["lr"] = args.lr * min(1.0, (step + 1) / 30)
        symbols, value = sums(64, terms_of(level, 64, rng), rng)
        loss = F.cross_entropy(net(symbols), value)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f} level {level}", flush=True)
        if (step + 1) % max(1, args.steps // LEVELS) == 0:
            print("accuracy", [round(one, 3) for one in accuracy(net, args.seed)])


if __name__ == "__main__":
    main()
