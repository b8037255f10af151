"""Spiking network for spoken digits from a simulated cochlea.

The network is compiled once and then trained one epoch at a time, because the
spike trains are shifted anew (channel-wise augmentation) before every epoch.
"""
import argparse
import os
import tempfile
from math import sqrt

import numpy as np
import torch

NUM_CHANNELS = 32
NUM_TIMESTEPS = 30


class SurrogateSpike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v):
        ctx.save_for_backward(v)
        return (v > 0).float()

    @staticmethod
    def backward(ctx, grad):
        (v,) = ctx.saved_tensors
        return grad / (1 + 5 * v.abs()) ** 2


class DigitSpikes:
    """Each digit is a set of sweeps through the channels."""

    def __init__(self, num_classes, seed):
        rng = np.random.default_rng(seed)
        self.num_classes = num_classes
        self.sweeps = [
            [
                (rng.uniform(4, 28), rng.uniform(-0.7, 0.7), rng.uniform(2, 16))
                for _ in range(3)
            ]
            for _ in range(num_classes)
        ]

    def record(self, num, rng):
        labels = rng.integers(0, self.num_classes, num)
        spikes = (rng.random((num, NUM_TIMESTEPS, NUM_CHANNELS)) < 0.02).astype("f4")
        for i, label in enumerate(labels):
            stretch = rng.uniform(0.85, 1.15)
            for centre, slope, start in self.sweeps[label]:
                for dt in range(10):
                    t = int(round(start + stretch * dt + rng.normal(0, 0.6)))
                    c = int(round(centre + slope * dt + rng.normal(0, 0.8)))
                    heard = rng.random() < 0.8
                    if heard and 0 <= t < NUM_TIMESTEPS and 0 <= c < NUM_CHANNELS:
                        spikes[i, t, c] = 1.0
        return spikes, labels


def shift_channels(spikes, rng, max_shift=2):
    shifted = np.zeros_like(spikes)
    for i, k in enumerate(rng.integers(-max_shift, max_shift + 1, len(spikes))):
        src = slice(max(0, -k), NUM_CHANNELS - max(0, k))
        dst = slice(max(0, k), NUM_CHANNELS - max(0, -k))
        shifted[i, :, dst] = spikes[i, :, src]
    return shifted


class Adam:
    def __init__(self, alpha=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-8):
        self.alpha, self.beta1, self.beta2 = alpha, beta1, beta2
        self.epsilon = epsilon
        self.moments = {}

    def set_step(self, step):
        self.moment_scale1 = 1.0 / (1.0 - self.beta1 ** (step + 1))
        self.moment_scale2 = 1.0 / (1.0 - self.beta2 ** (step + 1))

    @torch.no_grad()
    def update(self, name, variable, gradient):
        if name not in self.moments:
            zeros = torch.zeros_like(variable)
            self.moments[name] = (zeros, zeros.clone())
        m, v = self.moments[name]
        m.mul_(self.beta1).add_(gradient, alpha=1 - self.beta1)
        v.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        denominator = (v * self.moment_scale2).sqrt_().add_(self.epsilon)
        variable.addcdiv_(m * self.moment_scale1, denominator, value=-self.alpha)


class Connection:
    def __init__(self, pre, post, mean, sd, gen):
        self.g = torch.randn(pre, post, generator=gen) * sd + mean
        self.g.requires_grad_()


class CompiledNetwork:
    def __init__(self, num_hidden, num_output, optimiser, batch_size, seed, keep_step):
        gen = torch.Generator().manual_seed(seed)
        self.connections = {
            "input_hidden": Connection(NUM_CHANNELS, num_hidden, 0.05, 0.15, gen),
            "hidden_hidden": Connection(num_hidden, num_hidden, 0.0, 0.05, gen),
            "hidden_output": Connection(num_hidden, num_output, 0.0, 0.2, gen),
        }
        self.optimiser, self.batch_size = optimiser, batch_size
        self.keep_step, self.next_step = keep_step, 0
        self.alpha_mem, self.alpha_out = np.exp(-1 / 10), np.exp(-1 / 10)
        self.num_hidden, self.num_output = num_hidden, num_output

    def simulate(self, spikes):
        batch = spikes.shape[0]
        g = {name: c.g for name, c in self.connections.items()}
        drive = spikes @ g["input_hidden"]
        v = torch.zeros(batch, self.num_hidden)
        s = torch.zeros(batch, self.num_hidden)
        out = torch.zeros(batch, self.num_output)
        mean_out = torch.zeros(batch, self.num_output)
        for t in range(NUM_TIMESTEPS):
            v = self.alpha_mem * v * (1 - s) + drive[:, t] + s @ g["hidden_hidden"]
            s = SurrogateSpike.apply(v - 1.0)
            out = self.alpha_out * out + s @ g["hidden_output"]
            mean_out = mean_out + out / NUM_TIMESTEPS
        return mean_out

    def train_batch(self, spikes, labels, step):
        logits = self.simulate(spikes)
        loss = torch.nn.functional.cross_entropy(logits, labels)
        variables = [c.g for c in self.connections.values()]
        gradients = torch.autograd.grad(loss, variables)
        self.optimiser.set_step(step)
        for name, gradient in zip(self.connections, gradients):
            self.optimiser.update(name, self.connections[name].g, gradient)
        return loss.item(), (logits.argmax(1) == labels).sum().item()

    def train(self, spikes, labels, num_epochs, shuffle_rng):
        step_i = 0
        if self.keep_step:
            step_i = self.next_step
        history = []
        for _ in range(num_epochs):
            order = shuffle_rng.permutation(len(labels))
            losses, correct = [], 0
            for start in range(0, len(order), self.batch_size):
                pick = order[start : start + self.batch_size]
                x, y = torch.from_numpy(spikes[pick]), torch.from_numpy(labels[pick])
                loss, good = self.train_batch(x, y, step_i)
                losses.append(loss)
                correct += good
                step_i += 1
            history.append((float(np.mean(losses)), correct / len(order)))
        self.next_step = step_i
        return history

    @torch.no_grad()
    def evaluate(self, spikes, labels):
        logits = self.simulate(torch.from_numpy(spikes))
        return (logits.argmax(1).numpy() == labels).mean()

    def save_connectivity(self, path):
        np.savez(path, **{n: c.g.detach().numpy() for n, c in self.connections.items()})


def expected_scale(optimiser, updates):
    return sqrt(1 - optimiser.beta2**updates) / (1 - optimiser.beta1**updates)


def prove(network, updates):
    """Moment scaling at the last update against the number of updates made."""
    opt = network.optimiser
    used = opt.moment_scale1 / sqrt(opt.moment_scale2)
    wanted = expected_scale(opt, updates)
    print(f"{updates} updates: scale {used:.4f}, by their number {wanted:.4f}")
    print("fault shows:", "yes" if abs(used / wanted - 1) > 0.01 else "no")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--num_train", type=int, default=480)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--num_hidden", type=int, default=48)
    parser.add_argument("--alpha", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    rng = np.random.default_rng(args.seed)
    digits = DigitSpikes(8, args.seed)
    train_spikes, train_labels = digits.record(args.num_train, rng)
    test_spikes, test_labels = digits.record(300, rng)
    network = CompiledNetwork(
        args.num_hidden,
        digits.num_classes,
        Adam(args.alpha),
        args.batch_size,
        args.seed,
        keep_step=args.fixed,
    )
    augment_rng = np.random.default_rng(args.seed + 1)
    shuffle_rng = np.random.default_rng(args.seed + 2)
    with tempfile.TemporaryDirectory() as checkpoints:
        for epoch in range(args.epochs):
            spikes = shift_channels(train_spikes, augment_rng)
            (loss, acc), *_ = network.train(spikes, train_labels, 1, shuffle_rng)
            test_acc = network.evaluate(test_spikes, test_labels)
            network.save_connectivity(os.path.join(checkpoints, f"epoch_{epoch}.npz"))
            print(
                f"Epoch {epoch}: loss {loss:.4f}, train {100 * acc:.1f}%, "
                f"test {100 * test_acc:.1f}%"
            )
    if args.prove:
        prove(network, args.epochs * -(-args.num_train // args.batch_size))


if __name__ == "__main__":
    main()
