"""A denoiser learns a new style with low-rank adapters and is merged for sampling.

The base is trained first and frozen. The merged weights are validated and written to
a file. After FastVideo, issue 870.
"""

import argparse
import copy
import os
import tempfile

import torch
from torch import nn
import torch.nn.functional as F

SIZE, CLASSES = 16, 4


class LoRALinear(nn.Module):
    def __init__(self, base, rank, alpha):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.randn(rank, base.in_features) / rank)
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scaling = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scaling * (x @ self.lora_A.T @ self.lora_B.T)

    @torch.no_grad()
    def merged(self, scaled):
        layer = copy.deepcopy(self.base)
        change = self.lora_B @ self.lora_A
        layer.weight += self.scaling * change if scaled else change
        return layer


class Denoiser(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.inlet = nn.Linear(SIZE, width)
        self.embed = nn.Embedding(CLASSES, width)
        self.time = nn.Linear(16, width)
        self.hidden1, self.hidden2 = nn.Linear(width, width), nn.Linear(width, width)
        self.outlet = nn.Linear(width, SIZE)

    def forward(self, x, t, label):
        waves = t[:, None] * torch.arange(1, 9) * torch.pi
        condition = self.time(torch.cat([waves.sin(), waves.cos()], 1))
        state = F.silu(self.inlet(x) + condition + self.embed(label))
        state = state + F.silu(self.hidden1(state))
        return self.outlet(state + F.silu(self.hidden2(state)))


ADAPTED = "inlet", "hidden1", "hidden2", "outlet"


def add_adapters(model, rank, alpha):
    model.requires_grad_(False)
    for name in ADAPTED:
        setattr(model, name, LoRALinear(getattr(model, name), rank, alpha))
    return [p for p in model.parameters() if p.requires_grad]


def merge_adapters(model, scaled):
    plain = copy.deepcopy(model)
    for name in ADAPTED:
        setattr(plain, name, getattr(model, name).merged(scaled))
    return plain


class Clips:
    """Latents around the centres of a style."""

    def __init__(self, style, seed):
        rules = torch.Generator().manual_seed(40 + style)
        self.centres = 2 * torch.randn(CLASSES, SIZE, generator=rules)
        self.mixing = 0.7 * torch.randn(4, SIZE, generator=rules)
        self.generator = torch.Generator().manual_seed(seed)

    def loss(self, model, count):
        label = torch.randint(CLASSES, (count,), generator=self.generator)
        code = torch.randn(count, 4, generator=self.generator)
        clean = self.centres[label] + code @ self.mixing
        noise = torch.randn(count, SIZE, generator=self.generator)
        t = torch.rand(count, generator=self.generator)
        noisy = (1 - t[:, None]) * clean + t[:, None] * noise
        return F.mse_loss(model(noisy, t, label), noise - clean)


def fit(model, clips, parameters, lr, steps, first):
    optimizer = torch.optim.AdamW(parameters, lr=lr, weight_decay=0.01)
    model.train()
    for step in range(first, first + steps):
        loss = clips.loss(model, 128)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


@torch.no_grad()
def validate(model):
    """The loss on clips that are the same each time."""
    model.eval()
    return Clips(1, 99).loss(model, 2048).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--base-steps", type=int, default=120)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--alpha", type=float, default=32.0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    model = Denoiser()
    parameters = list(model.parameters())
    fit(model, Clips(0, args.seed), parameters, 4e-3, args.base_steps, 0)
    print(f"base on the new style {validate(model):.4f}")
    adapters = add_adapters(model, args.rank, args.alpha)
    clips = Clips(1, args.seed + 1)
    fit(model, clips, adapters, 4e-3, args.steps, args.base_steps)
    merged = merge_adapters(model, scaled=args.fixed)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "merged.pt")
        torch.save(merged.state_dict(), path)
        sampler = Denoiser()
        sampler.load_state_dict(torch.load(path))
    losses = validate(model), validate(sampler)
    print("with adapters {:.4f} merged {:.4f}".format(*losses))
    if args.prove:
        gap = abs(losses[0] - losses[1])
        print("fault shows:", "yes" if gap > 1e-3 else "no", flush=True)


if __name__ == "__main__":
    main()
