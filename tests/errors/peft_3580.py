"""PEFT-3580: of two adapters the one that should be frozen is trained.

Source: huggingface/peft#3580. A frozen adapter is loaded first, and another one,
which is to be trained, on top of it. Loading ends with a call that makes the active
adapter trainable, and active is the first one: the second stays as it was loaded,
and the first drifts. --fixed makes the adapter trainable that was loaded.
"""

import argparse
import os
import tempfile

import torch
from torch import nn


class LoraLinear(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_a = nn.ParameterDict()
        self.lora_b = nn.ParameterDict()

    def forward(self, x):
        out = self.base(x)
        for name, a in self.lora_a.items():
            out = out + 2.0 * (x @ a) @ self.lora_b[name]
        return out


class AdaptedModel:
    """A base model whose linear layers can have several adapters."""

    def __init__(self, base):
        self.base = base.requires_grad_(False)
        self.layers = {}
        for name, module in list(base.named_modules()):
            if isinstance(module, nn.Linear):
                parent = base.get_submodule(name.rpartition(".")[0])
                self.layers[name] = LoraLinear(module)
                setattr(parent, name.rpartition(".")[2], self.layers[name])
        self.active_adapter = None

    def load_adapter(self, path, adapter_name, is_trainable, own_switch=False):
        weights = torch.load(path)
        for name, layer in self.layers.items():
            a, b = weights[name]
            layer.lora_a[adapter_name] = nn.Parameter(a, requires_grad=False)
            layer.lora_b[adapter_name] = nn.Parameter(b, requires_grad=False)
        if self.active_adapter is None:
            self.active_adapter = adapter_name
        if is_trainable:
            self.make_trainable(adapter_name if own_switch else self.active_adapter)

    def make_trainable(self, adapter_name):
        for layer in self.layers.values():
            layer.lora_a[adapter_name].requires_grad_(True)
            layer.lora_b[adapter_name].requires_grad_(True)

    def weights(self, adapter_name):
        pairs = [
            part[adapter_name].detach().flatten()
            for layer in self.layers.values()
            for part in (layer.lora_a, layer.lora_b)
        ]
        return torch.cat(pairs)


def save_adapter(base, path, rank, scale):
    """An adapter as it comes from elsewhere; with scale 0 one that is untrained."""
    weights = {}
    for name, module in base.named_modules():
        if isinstance(module, nn.Linear):
            a = torch.randn(module.in_features, rank) / module.in_features**0.5
            b = scale * torch.randn(rank, module.out_features)
            weights[name] = (a, b)
    torch.save(weights, path)


def make_base():
    return nn.Sequential(
        nn.Linear(16, 48), nn.GELU(), nn.Linear(48, 48), nn.GELU(), nn.Linear(48, 8)
    )


def batch(count=48):
    x = torch.randn(count, 16)
    return x, (x[:, :8] + x[:, 8:].abs()).argmax(1)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=30)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    base = make_base()
    with tempfile.TemporaryDirectory() as folder:
        style, task = (os.path.join(folder, f"{n}.pt") for n in ("style", "task"))
        save_adapter(base, style, rank=4, scale=0.2)
        save_adapter(base, task, rank=8, scale=0.0)
        model = AdaptedModel(base)
        model.load_adapter(style, "style", is_trainable=False)
        model.load_adapter(task, "task", is_trainable=True, own_switch=options.fixed)
    frozen = model.weights("style")
    optimizer = torch.optim.AdamW(
        [p for p in base.parameters() if p.requires_grad], lr=1e-2, weight_decay=0.0
    )
    for step in range(options.steps):
        x, y = batch()
        loss = nn.functional.cross_entropy(base(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    if options.prove:
        moved = not torch.equal(frozen, model.weights("style"))
        print("fault shows:", "yes" if moved else "no")


if __name__ == "__main__":
    main()
