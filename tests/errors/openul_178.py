"""Fine-tunes a small frozen decoder with low-rank adapters on made-up token sequences.

The blocks are recomputed in the backward pass to save memory. The adapters sit in all
linear layers, the head included; everything else keeps its weights.
"""

import argparse
import math

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class LoraLinear(nn.Module):
    def __init__(self, base, rank=4, alpha=8):
        super().__init__()
        self.base = base
        self.lora_A = nn.Parameter(torch.empty(rank, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
        self.scaling = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scaling * (x @ self.lora_A.T @ self.lora_B.T)


class Block(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(self, words=32, width=32, layers=2, length=24):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.position = nn.Embedding(length, width)
        self.layers = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, words)
        self.gradient_checkpointing = False

    def gradient_checkpointing_enable(self):
        self.gradient_checkpointing = True

    def enable_input_require_grads(self):
        self.embed.register_forward_hook(lambda m, i, out: out.requires_grad_(True))

    def forward(self, ids):
        x = self.embed(ids) + self.position.weight[: ids.shape[1]]
        for layer in self.layers:
            if self.gradient_checkpointing and self.training:
                x = checkpoint(layer, x, use_reentrant=True)
            else:
                x = layer(x)
        return self.lm_head(self.norm(x))


def get_peft_model(model):
    model.requires_grad_(False)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, LoraLinear(child))
    return model


def sequences(count, generator, words=32, length=16):
    """A token follows from the last one, by a stride that a sequence keeps."""
    stride = 1 + torch.randint(3, (count,), generator=generator)
    ids = [torch.randint(words, (count,), generator=generator)]
    for _ in range(length - 1):
        ids.append((ids[-1] + stride) % words)
    return torch.stack(ids, 1)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=60)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = get_peft_model(Decoder())
    model.gradient_checkpointing_enable()
    if options.fixed:
        model.enable_input_require_grads()
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=2e-2)
    generator = torch.Generator().manual_seed(1)
    model.train()
    for step in range(options.steps):
        ids = sequences(32, generator)
        logits = model(ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    if options.prove:
        inner = {
            n: p for n, p in model.layers.named_parameters() if n.endswith("lora_B")
        }
        still = [n for n, p in inner.items() if p.norm() < 1e-6]
        print("fault shows:", "yes" if still else "no")


if __name__ == "__main__":
    main()
