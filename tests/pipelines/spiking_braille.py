"""Reads embossed letters with a spiking net, from the events of a tactile sensor.

Neurons leak, fire and are reset; a step has no useful derivative, so the backward pass
uses a fast sigmoid in its place. The reset is cut out of the graph, decay rates are
learnt, and a small price is put on neurons that fire too often or never.

    python spiking_braille.py --epochs 6
"""

import argparse
import math

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

LETTERS = {
    "a": "100000", "b": "110000", "c": "100100", "d": "100110", "e": "100010",
    "f": "110100", "g": "110110", "h": "110010", "i": "010100", "j": "010110",
}  # fmt: skip
TAXELS, BINS = 12, 36


def strokes(count, generator):
    """A row of 12 taxels is drawn over a cell of two columns of three dots each."""
    dots = torch.tensor([[int(c) for c in code] for code in LETTERS.values()])
    label = torch.randint(len(dots), (count,), generator=generator)
    pattern = dots[label].view(count, 2, 3).float()
    start = 4 + 6 * torch.rand(count, 1, 1, generator=generator)
    speed = 0.8 + 0.4 * torch.rand(count, 1, 1, generator=generator)
    time = torch.arange(BINS).view(1, BINS, 1)
    centre = start + torch.tensor([0.0, 12.0]).view(1, 1, 2) / speed
    passing = torch.exp(-((time - centre) ** 2) / 8)  # count, BINS, 2
    place = torch.arange(TAXELS).view(TAXELS, 1)
    reach = torch.exp(-((place - torch.tensor([1.5, 5.5, 9.5])) ** 2) / 3)
    rate = torch.einsum("ntc,ncd,pd->ntp", passing, pattern, reach)
    chance = 0.03 + 0.55 * rate.clamp(max=1)
    return torch.bernoulli(chance, generator=generator), label


class Fire(torch.autograd.Function):
    @staticmethod
    def forward(ctx, potential):
        ctx.save_for_backward(potential)
        return (potential > 0).to(potential.dtype)

    @staticmethod
    def backward(ctx, gradient):
        (potential,) = ctx.saved_tensors
        return gradient / (1 + 5 * potential.abs()) ** 2


class LeakyLayer(nn.Module):
    def __init__(self, inputs, outputs, recurrent=False):
        super().__init__()
        self.inward = nn.Linear(inputs, outputs)
        nn.init.normal_(self.inward.weight, std=1.5 / math.sqrt(inputs))
        self.loop = nn.Linear(outputs, outputs, bias=False) if recurrent else None
        if recurrent:
            nn.init.orthogonal_(self.loop.weight, 0.3)
        self.decay = nn.Parameter(torch.full((outputs,), 2.2))

    def forward(self, events):
        current = self.inward(events)
        keep = torch.sigmoid(self.decay)
        potential = current.new_zeros(current.shape[0], current.shape[2])
        fired, out = torch.zeros_like(potential), []
        for drive in current.unbind(1):
            if self.loop is not None:
                drive = drive + self.loop(fired)
            potential = keep * potential * (1 - fired.detach()) + drive
            fired = Fire.apply(potential - 1)
            out.append(fired)
        return torch.stack(out, 1)


class Reader(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.first = LeakyLayer(TAXELS, width)
        self.second = LeakyLayer(width, width, recurrent=True)
        self.out = nn.Linear(width, len(LETTERS))

    def forward(self, events):
        first = self.first(events)
        second = self.second(first)
        trace, scores = 0, []
        for answer in self.out(second).unbind(1):
            trace = 0.95 * trace + answer
            scores.append(trace)
        # the trace's mean over the second half, when both columns were felt
        score = torch.stack(scores[BINS // 2 :], 1).mean(1)
        return score, (first, second)


def price(spikes):
    """Mean rates per neuron between 0.01 and 0.3 cost nothing."""
    cost = 0
    for layer in spikes:
        rate = layer.mean((0, 1))
        cost = cost + F.relu(rate - 0.3).square().sum()
        cost = cost + F.relu(0.01 - rate).square().sum()
    return cost


@torch.no_grad()
def test(net, loader):
    right = total = fired = 0
    for events, label in loader:
        score, spikes = net(events)
        right += (score.argmax(1) == label).sum().item()
        total += len(label)
        fired += sum(layer.sum().item() for layer in spikes)
    return right / total, fired / total


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    train = TensorDataset(*strokes(960, generator))
    held = TensorDataset(*strokes(300, generator))
    loader = DataLoader(train, 48, shuffle=True, generator=generator)
    net = Reader()
    rates = [p for name, p in net.named_parameters() if name.endswith("decay")]
    others = [p for name, p in net.named_parameters() if not name.endswith("decay")]
    optimizer = torch.optim.Adam(
        [{"params": others}, {"params": rates, "lr": 2e-2}], lr=8e-3, betas=(0.9, 0.98)
    )
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)
    step = 0
    for epoch in range(args.epochs):
        for events, label in loader:
            score, spikes = net(events)
            loss = F.cross_entropy(score, label) + 5.0 * price(spikes)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        schedule.step()
        accuracy, fired = test(net, DataLoader(held, 100))
        print(f"epoch {epoch} accuracy {accuracy:.3f} spikes a letter {fired:.0f}")


if __name__ == "__main__":
    main()
