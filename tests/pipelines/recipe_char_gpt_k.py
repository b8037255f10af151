# tiny GPT on made-up recipe sentences, char level
# mostly one flat file, all settings on top so they can be edited by hand
import argparse
import inspect
import math
import time
from contextlib import nullcontext

import numpy as np
import torch
import torch.nn as nn
from torch.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--dtype", default="bfloat16", choices=["float32", "bfloat16"])
cli = parser.parse_args()

# -----------------------------------------------------------------------------
max_iters = cli.steps
eval_interval = 25
eval_iters = 8
batch_size = 12
block_size = 48
gradient_accumulation_steps = 2
n_layer, n_head, n_embd, dropout = 2, 4, 64, 0.1
learning_rate, min_lr = 3e-3, 3e-4
warmup_iters = max(1, max_iters // 20)
weight_decay, beta1, beta2, grad_clip = 0.1, 0.9, 0.95, 1.0
seed = 1337
# -----------------------------------------------------------------------------

torch.manual_seed(seed)
rng = np.random.default_rng(seed)

verbs = ["mix", "chop", "boil", "fry", "bake", "whisk", "stir", "peel"]
things = [
    "the onions",
    "two eggs",
    "the flour",
    "some butter",
    "a carrot",
    "the rice",
    "the dough",
]
ends = [
    "until soft",
    "for ten minutes",
    "in a large pan",
    "with a little salt",
    "and set aside",
]
sentences = [
    f"{rng.choice(verbs)} {rng.choice(things)} {rng.choice(ends)}.\n"
    for _ in range(3000)
]
text = "".join(sentences)
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
itos = {i: c for c, i in stoi.items()}
data = torch.tensor([stoi[c] for c in text], dtype=torch.long)
n = int(0.9 * len(data))
splits = {"train": data[:n], "val": data[n:]}
vocab_size = len(chars)
print(f"{len(data)} characters, vocab {vocab_size}")


def get_batch(split):
    d = splits[split]
    ix = torch.randint(len(d) - block_size, (batch_size,))
    x = torch.stack([d[i : i + block_size] for i in ix])
    y = torch.stack([d[i + 1 : i + 1 + block_size] for i in ix])
    return x, y


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.qkv = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.proj = nn.Linear(n_embd, n_embd, bias=False)
        self.mlp = nn.Sequential(
            nn.Linear(n_embd, 4 * n_embd),
            nn.GELU(),
            nn.Linear(4 * n_embd, n_embd),
            nn.Dropout(dropout),
        )
        self.resid_drop = nn.Dropout(dropout)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(self.ln1(x)).split(n_embd, dim=2)
        q, k, v = (t.view(B, T, n_head, C // n_head).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(
            q, k, v, dropout_p=dropout if self.training else 0.0, is_causal=True
        )
        x = x + self.resid_drop(self.proj(y.transpose(1, 2).reshape(B, T, C)))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block() for _ in range(n_layer))
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.wte.weight = self.lm_head.weight  # weight tying
        self.apply(self._init)

    @staticmethod
    def _init(m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.02)
            if getattr(m, "bias", None) is not None:
                nn.init.zeros_(m.bias)

    def forward(self, idx, targets=None):
        T = idx.size(1)
        x = self.drop(self.wte(idx) + self.wpe(torch.arange(T)))
        for b in self.blocks:
            x = b(x)
        logits = self.lm_head(self.ln_f(x if targets is not None else x[:, -1:]))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(
            logits.view(-1, vocab_size).float(), targets.view(-1)
        )

    @torch.no_grad()
    def generate(self, idx, n_new, temperature=0.8):
        for _ in range(n_new):
            logits, _ = self(idx[:, -block_size:])
            probs = F.softmax(logits[:, -1].float() / temperature, dim=-1)
            idx = torch.cat([idx, torch.multinomial(probs, 1)], dim=1)
        return idx


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / warmup_iters
    ratio = (it - warmup_iters) / max(1, max_iters - warmup_iters)
    return min_lr + 0.5 * (1 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


model = GPT()
params = {
    n: p for n, p in model.named_parameters() if p.requires_grad
}  # tied weight is listed once
groups = [
    {
        "params": [p for p in params.values() if p.dim() >= 2],
        "weight_decay": weight_decay,
    },
    {"params": [p for p in params.values() if p.dim() < 2], "weight_decay": 0.0},
]
extra = (
    {"foreach": True}
    if "foreach" in inspect.signature(torch.optim.AdamW).parameters
    else {}
)
optimizer = torch.optim.AdamW(groups, lr=learning_rate, betas=(beta1, beta2), **extra)
ctx = (
    torch.autocast("cpu", dtype=torch.bfloat16)
    if cli.dtype == "bfloat16"
    else nullcontext()
)


@torch.no_grad()
def estimate_loss():
    model.eval()
    out = {}
    for split in splits:
        losses = torch.zeros(eval_iters)
        for k in range(eval_iters):
            X, Y = get_batch(split)
            with ctx:
                _, loss = model(X, Y)
            losses[k] = loss.item()
        out[split] = losses.mean().item()
    model.train()
    return out


X, Y = get_batch("train")
t0, best = time.time(), float("inf")
for it in range(max_iters):
    for g in optimizer.param_groups:
        g["lr"] = get_lr(it)
    if it % eval_interval == 0:
        l = estimate_loss()
        best = min(best, l["val"])
        print(f"step {it}: train {l['train']:.4f} val {l['val']:.4f}")
    for _ in range(gradient_accumulation_steps):
        with ctx:
            _, loss = model(X, Y)
            loss = loss / gradient_accumulation_steps
        X, Y = get_batch("train")  # next one already
        loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if it % 20 == 0:
        print(
            f"iter {it}: loss {loss.item() * gradient_accumulation_steps:.4f} norm {norm:.2f} {time.time() - t0:.1f}s"
        )

l = estimate_loss()
print(f"final train {l['train']:.4f} val {l['val']:.4f} best {min(best, l['val']):.4f}")
model.eval()
print(
    "".join(
        itos[i] for i in model.generate(torch.tensor([[stoi["\n"]]]), 80)[0].tolist()
    )
)
