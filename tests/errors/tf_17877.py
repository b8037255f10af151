"""TF-17877: projections are initialised again and again.

Source: huggingface/transformers#17877. The init function, applied to every module,
walks named_parameters() of each of them and draws every c_proj.weight that it meets,
so that all ancestors of a projection draw it anew: slow, and the random stream runs
away from the reference. --fixed draws a projection where it is a direct child only.
"""

import argparse
import math

import torch
from torch import nn
from torch.overrides import TorchFunctionMode


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.c_attn(x).chunk(3, -1)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict(
            {
                "c_fc": nn.Linear(width, 4 * width),
                "c_proj": nn.Linear(4 * width, width),
            }
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        y = nn.functional.gelu(self.mlp["c_fc"](self.ln_2(x)))
        return x + self.mlp["c_proj"](y)


class TinyGPT(nn.Module):
    def __init__(self, words=28, width=24, layers=2, heads=3, context=16, once=False):
        super().__init__()
        self.layers = layers
        self.once = once
        self.wte = nn.Embedding(words, width)
        self.wpe = nn.Embedding(context, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, words, bias=False)
        self.apply(self._init_weights)

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
            if getattr(module, "bias", None) is not None:
                nn.init.zeros_(module.bias)
        for name, parameter in module.named_parameters():
            if self.once and name != "c_proj.weight":
                continue
            if name.endswith("c_proj.weight"):
                std = 0.02 / math.sqrt(2 * self.layers)
                parameter.data.normal_(mean=0.0, std=std)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe.weight[: ids.size(1)]
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class Draws(TorchFunctionMode):
    """Counts how often a tensor's memory is drawn from a normal distribution."""

    def __init__(self):
        super().__init__()
        self.counts = {}

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.normal_:
            place = args[0].data_ptr()
            self.counts[place] = self.counts.get(place, 0) + 1
        return function(*args, **(kwargs or {}))


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=16)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = TinyGPT(once=options.fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(options.steps):
        ids = (torch.randint(28, (8, 1)) + 3 * torch.arange(13)) % 28
        logits = model(ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].ravel())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    if options.prove:
        with Draws() as draws:
            model.apply(model._init_weights)
        # A projection is a Linear and special: two draws are meant.
        print("fault shows:", "yes" if max(draws.counts.values()) > 2 else "no")


if __name__ == "__main__":
    main()
