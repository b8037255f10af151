"""Tiny character GPT on generated recipes. bf16 autocast, grouped weight decay, cosine lr."""
import argparse
import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

# -----------------------------------------------------------------------------
block_size = 48
batch_size = 12
n_layer = 2
n_head = 4
n_embd = 64
dropout = 0.0
max_lr, min_lr, warmup = 2e-3, 2e-4, 20
# -----------------------------------------------------------------------------
parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--prove", action="store_true")
args = parser.parse_args()
random.seed(1337)
torch.manual_seed(1337)


def recipe():
    verb = ["chop", "boil", "fry", "grate", "peel", "bake"]
    thing = ["onions", "carrots", "rice", "potatoes", "cheese", "leeks"]
    how = ["slowly", "well", "for 5 minutes", "for 20 minutes", "until soft"]
    lines = [
        f"{random.choice(verb)} the {random.choice(thing)} {random.choice(how)}."
        for _ in range(4)
    ]
    return " ".join(lines) + "\n"


text = "".join(recipe() for _ in range(900))
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
itos = dict(enumerate(chars))
data = torch.tensor([stoi[c] for c in text])
n = int(0.9 * len(data))
train_data, val_data = data[:n], data[n:]


def get_batch(split):
    d = train_data if split == "train" else val_data
    ix = torch.randint(len(d) - block_size - 1, (batch_size,))
    x = torch.stack([d[i : i + block_size] for i in ix])
    y = torch.stack([d[i + 1 : i + 1 + block_size] for i in ix])
    return x, y


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.c_attn(x).split(n_embd, dim=2)
        q = q.view(B, T, n_head, C // n_head).transpose(1, 2)
        k = k.view(B, T, n_head, C // n_head).transpose(1, 2)
        v = v.view(B, T, n_head, C // n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        if args.fixed:
            att = att.masked_fill(
                torch.ones(T, T, dtype=torch.bool).triu(1), float("-inf")
            )
        att = F.softmax(att, dim=-1)
        y = (
            (F.dropout(att, dropout, self.training) @ v)
            .transpose(1, 2)
            .contiguous()
            .view(B, T, C)
        )
        return self.c_proj(y)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.attn = SelfAttention()
        self.mlp = nn.Sequential(
            nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd)
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(len(chars), n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.h = nn.ModuleList(Block() for _ in range(n_layer))
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, len(chars), bias=False)
        self.apply(self._init)

    def _init(self, m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.02)
        if isinstance(m, nn.Linear) and m.bias is not None:
            nn.init.zeros_(m.bias)

    def forward(self, idx, targets=None):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1)))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(
            logits.float().view(-1, logits.size(-1)), targets.view(-1)
        )

    @torch.no_grad()
    def generate(self, idx, count):
        for _ in range(count):
            logits, _ = self(idx[:, -block_size:])
            probs = F.softmax(logits[:, -1].float(), dim=-1)
            idx = torch.cat([idx, torch.multinomial(probs, 1)], dim=1)
        return idx


def lr_at(it):
    if it < warmup:
        return max_lr * (it + 1) / warmup
    ratio = (it - warmup) / max(1, args.steps - warmup)
    return min_lr + 0.5 * (1 + math.cos(math.pi * ratio)) * (max_lr - min_lr)


model = GPT()
decay = [p for p in model.parameters() if p.dim() >= 2]
no_decay = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}],
    lr=max_lr,
    betas=(0.9, 0.95),
)
ctx = torch.autocast("cpu", dtype=torch.bfloat16)
for it in range(args.steps):
    for group in optimizer.param_groups:
        group["lr"] = lr_at(it)
    X, Y = get_batch("train")
    with ctx:
        _, loss = model(X, Y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if (it + 1) % 20 == 0:
        model.eval()
        with torch.no_grad(), ctx:
            val = sum(model(*get_batch("val"))[1].item() for _ in range(4)) / 4
        model.train()
        print(f"iter {it + 1}: train {loss.item():.4f}, val {val:.4f}")

model.eval()
start = torch.tensor([[stoi[c] for c in "chop "]])
print("".join(itos[i] for i in model.generate(start, 60)[0].tolist()))

if args.prove:
    with torch.no_grad():
        a = val_data[:block_size].unsqueeze(0).clone()
        b = a.clone()
        b[0, -10:] = (b[0, -10:] + 3) % len(chars)
        gap = (model(a)[0] - model(b)[0])[0, :-10].abs().max().item()
    print("change of earlier logits when later characters change:", gap)
    print("fault shows:", "yes" if gap > 1e-4 else "no")
