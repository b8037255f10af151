"""Scents by an artificial nose, learnt without the transport of weights backwards.

The first layer finds principal components by Sanger's rule (Hebbian, one update a batch,
weights in a buffer, no gradient); while it settles nothing else is trained. The layers
behind it are trained by feedback alignment: errors go back through fixed random
matrices, so the gradients of the lower layers are wrong on purpose and still help.

    python hebbian_feedback_scents.py --epochs 8
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

SENSORS, SOURCES, SCENTS = 48, 10, 6


def sniffs(count, generator):
    """Six scents are blends of ten substances that reach the sensors mixed."""
    plume = torch.Generator().manual_seed(77)  # the same nose and scents for every set
    mixing = torch.randn(SOURCES, SENSORS, generator=plume) / SENSORS**0.5
    mixing = mixing * torch.linspace(3.0, 1.2, SOURCES)[:, None]
    blends = torch.randn(2 * SCENTS, SOURCES, generator=plume)
    label = torch.randint(SCENTS, (count,), generator=generator)
    variant = torch.randint(2, (count,), generator=generator)  # each has two blends
    amount = blends[label + SCENTS * variant]
    amount = amount + 0.55 * torch.randn(count, SOURCES, generator=generator)
    noise = 0.05 * torch.randn(count, SENSORS, generator=generator)
    drift = 0.3 + 0.02 * torch.arange(SENSORS)
    return amount @ mixing + noise + drift, label


class Sanger(nn.Module):
    """Generalised Hebbian rule; scales its outputs to unit variance."""

    def __init__(self, inputs, outputs):
        super().__init__()
        start = nn.init.orthogonal_(torch.empty(outputs, inputs)) * 0.5
        self.register_buffer("weight", start)
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("variance", torch.ones(outputs))
        self.register_buffer("seen", torch.tensor(0))

    @torch.no_grad()
    def learn(self, x, rate):
        self.seen += 1
        self.mean.lerp_(x.mean(0), 1 / min(self.seen.item(), 50))
        x = x - self.mean
        y = x @ self.weight.T
        both = y.T @ y / len(x)
        change = y.T @ x / len(x) - both.tril() @ self.weight
        self.weight += rate * change
        self.variance.lerp_(both.diagonal(), 1 / min(self.seen.item(), 50))
        return change.norm().item()

    def forward(self, x):
        with torch.no_grad():
            y = (x - self.mean) @ self.weight.T
            return y / (self.variance + 1e-4).sqrt()


class FeedbackProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, feedback):
        ctx.save_for_backward(x, feedback)
        return torch.addmm(bias, x, weight.T)

    @staticmethod
    def backward(ctx, gradient):
        x, feedback = ctx.saved_tensors
        to_x = gradient @ feedback if ctx.needs_input_grad[0] else None
        return to_x, gradient.T @ x, gradient.sum(0), None


class FeedbackLinear(nn.Linear):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.register_buffer("feedback", torch.randn(outputs, inputs) / outputs**0.5)

    def forward(self, x):
        return FeedbackProduct.apply(x, self.weight, self.bias, self.feedback)


class Nose(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.bulb = Sanger(SENSORS, SOURCES)
        self.first = FeedbackLinear(SOURCES, width)
        self.second = FeedbackLinear(width, width)
        self.out = FeedbackLinear(width, SCENTS)

    def forward(self, x):
        hidden = torch.tanh(self.first(self.bulb(x)))
        return self.out(torch.tanh(self.second(hidden)))

    def alignment(self):
        """Cosine of the weights and what stands for them; it grows by itself."""
        pairs = [(layer.weight, layer.feedback) for layer in (self.second, self.out)]
        return [F.cosine_similarity(w.flatten(), b.flatten(), 0) for w, b in pairs]


def batches(data, size):
    """The sampler hands whole lists of rows to the data set: no collating."""
    sampler = BatchSampler(RandomSampler(data), size, drop_last=False)
    return DataLoader(data, sampler=sampler, batch_size=None)


def explained(nose, x):
    centred = x - x.mean(0)
    basis, _ = torch.linalg.qr(nose.bulb.weight.T)
    return ((centred @ basis).square().sum() / centred.square().sum()).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    train = TensorDataset(*sniffs(2000, generator))
    held = sniffs(600, generator)
    nose = Nose()
    loader = batches(train, 32)
    for epoch in range(6):
        for x, _ in loader:
            change = nose.bulb.learn(x, 0.03 / (1 + epoch))
        share = explained(nose, train.tensors[0])
        print(f"bulb epoch {epoch} change {change:.4f} explained {share:.3f}")
    optimizer = torch.optim.SGD(nose.parameters(), 0.05, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    step = 0
    for epoch in range(args.epochs):
        for x, label in loader:
            loss = F.cross_entropy(nose(x), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 5 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        schedule.step()
        with torch.no_grad():
            score = nose(held[0])
        accuracy = (score.argmax(1) == held[1]).float().mean()
        angles = " ".join(f"{a.item():.3f}" for a in nose.alignment())
        print(f"epoch {epoch} accuracy {accuracy:.3f} alignment {angles}", flush=True)


if __name__ == "__main__":
    main()
