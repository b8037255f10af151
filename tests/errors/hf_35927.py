"""A language model of letters with RMS norms; AdamW with two groups, for decay.

After huggingface/transformers, issue 35927.
"""

import argparse
import math

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

LETTERS, BLOCK = 64, 48


class Letters(Dataset):
    """A letter follows from the two before it, nine times of ten."""

    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        fixed = torch.Generator().manual_seed(3)
        table = torch.randint(0, LETTERS, (8, LETTERS), generator=fixed).tolist()
        random = torch.rand(count, generator=generator) < 0.1
        drawn = torch.randint(0, LETTERS, (count,), generator=generator).tolist()
        text = [1, 2]
        for one, letter in zip(random.tolist(), drawn):
            text.append(letter if one else table[text[-2] % 8][text[-1]])
        self.text = torch.tensor(text)

    def __len__(self):
        return (len(self.text) - 1) // BLOCK

    def __getitem__(self, index):
        block = self.text[index * BLOCK : index * BLOCK + BLOCK + 1]
        return block[:-1], block[1:]


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        variance = x.pow(2).mean(-1, keepdim=True)
        return self.weight * x * torch.rsqrt(variance + self.eps)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.input_layernorm = RMSNorm(width)
        self.post_attention_layernorm = RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)
        self.up, self.gate = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        rows, length, width = x.shape
        qkv = self.qkv(self.input_layernorm(x))
        qkv = qkv.view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*qkv, is_causal=True)
        x = x + self.o_proj(attended.transpose(1, 2).reshape(rows, length, width))
        hidden = self.post_attention_layernorm(x)
        return x + self.down(F.silu(self.gate(hidden)) * self.up(hidden))


class LetterModel(nn.Module):
    def __init__(self, width=64, layers=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(LETTERS, width), nn.Embedding(BLOCK, width)
        self.layers = nn.ModuleList(Block(width, 4) for _ in range(layers))
        self.norm = RMSNorm(width)
        self.head = nn.Linear(width, LETTERS, bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight[: ids.size(1)]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def get_parameter_names(model, forbidden_types, forbidden_names):
    """All parameters but those of modules of these types or names."""
    names = []
    for name, child in model.named_children():
        if isinstance(child, tuple(forbidden_types)):
            continue
        if any(part in name.lower() for part in forbidden_names):
            continue
        inner = get_parameter_names(child, forbidden_types, forbidden_names)
        names += [f"{name}.{one}" for one in inner]
    return names + list(model._parameters)


def make_optimizer(model, args):
    names = ["norm"] if args.fixed else []
    decayed = get_parameter_names(model, [nn.LayerNorm], names)
    decayed = [name for name in decayed if "bias" not in name]
    named = list(model.named_parameters())
    groups = [
        {
            "params": [p for n, p in named if n in decayed],
            "weight_decay": args.weight_decay,
        },
        {"params": [p for n, p in named if n not in decayed], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    losses = [F.cross_entropy(model(x).flatten(0, 1), y.flatten()) for x, y in loader]
    model.train()
    return torch.stack(losses).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    model = LetterModel()
    optimizer = make_optimizer(model, args)
    train = DataLoader(Letters(32000, args.seed), batch_size=32, shuffle=True)
    valid = DataLoader(Letters(4800, args.seed + 1), batch_size=32)

    def rate(step, warmup=5):
        cosine = 0.5 * (1 + math.cos(math.pi * step / args.steps))
        return min(1, (step + 1) / warmup) * cosine

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    step = 0
    while step < args.steps:
        for x, y in train:
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
            if step % 15 == 0:
                print(f"validation {evaluate(model, valid):.4f}", flush=True)
            if step == args.steps:
                break
    if args.prove:
        gains = [m.weight for m in model.modules() if isinstance(m, RMSNorm)]
        for group in optimizer.param_groups:
            group["lr"] = args.lr
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.state.clear()
        before = [gain.detach().clone() for gain in gains]
        optimizer.step()
        pull = max((1 - g / b).abs().max().item() for g, b in zip(gains, before))
        print(f"a step without gradients takes {pull:.6f} of the norms' gains")
        print("fault shows:", "yes" if pull > 1e-6 else "no", flush=True)


if __name__ == "__main__":
    main()
