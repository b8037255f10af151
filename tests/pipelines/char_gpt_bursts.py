# Character-level GPT on a small generated corpus. One file, edit the settings below.
import argparse
import math
import random
import time

import torch
import torch.nn as nn
from torch.nn import functional as F

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=160)
args = ap.parse_args()

# ---- settings -------------------------------------------------------------
max_iters = args.steps
eval_interval = max(1, max_iters // 4)
eval_iters = 8
batch_size = 12
grad_accum = 2
block_size = 48
n_layer, n_head, n_embd = 2, 4, 64
dropout = 0.1
learning_rate, min_lr = 3e-3, 3e-4
warmup_iters = max(1, max_iters // 15)
weight_decay, beta2 = 0.1, 0.99
grad_clip = 1.0
seed = 1337
# ---------------------------------------------------------------------------

torch.manual_seed(seed)
random.seed(seed)

subjects = "the miller|a young fox|my sister|the old captain|nobody|the baker".split(
    "|"
)
verbs = "carried|forgot|found|painted|sold|watched".split("|")
things = (
    "the lantern|three apples|a broken oar|the letter|her red coat|some bread".split(
        "|"
    )
)
moods = "quietly|in a hurry|with a smile|again|at last|for nothing|twice|without a word".split(
    "|"
)
places = "by the river|at dawn|near the mill|in winter|behind the church".split("|")
sentences = []
for _ in range(1500):
    s = (
        f"{random.choice(subjects)} {random.choice(verbs)} "
        f"{random.choice(things)} {random.choice(moods)} {random.choice(places)}.\n"
    )
    sentences.append(s)
text = "".join(sentences)

chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
itos = {i: c for c, i in stoi.items()}
vocab_size = len(chars)
data = torch.tensor([stoi[c] for c in text], dtype=torch.long)
n = int(0.9 * len(data))
train_data, val_data = data[:n], data[n:]
print(f"{len(data)} characters, vocabulary {vocab_size}")


def get_batch(split, generator=None):
    d = train_data if split == "train" else val_data
    ix = torch.randint(len(d) - block_size - 1, (batch_size,), generator=generator)
    x = torch.stack([d[i : i + block_size] for i in ix])
    y = torch.stack([d[i + 1 : i + 1 + block_size] for i in ix])
    return x, y


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.proj = nn.Linear(n_embd, n_embd, bias=False)
        self.resid_drop = nn.Dropout(dropout)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).split(n_embd, dim=2)
        q, k, v = (t.view(B, T, n_head, C // n_head).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(
            q, k, v, dropout_p=dropout if self.training else 0.0, is_causal=True
        )
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.resid_drop(self.proj(y))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.attn = SelfAttention()
        self.mlp = nn.Sequential(
            nn.Linear(n_embd, 4 * n_embd),
            nn.GELU(),
            nn.Linear(4 * n_embd, n_embd),
            nn.Dropout(dropout),
        )

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList([Block() for _ in range(n_layer)])
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.apply(self._init)
        self.lm_head.weight = self.wte.weight  # weight tying
        for name, p in self.named_parameters():
            if name.endswith("proj.weight"):
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * n_layer))

    def _init(self, m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.02)
        if isinstance(m, nn.Linear) and m.bias is not None:
            nn.init.zeros_(m.bias)

    def forward(self, idx, targets=None):
        T = idx.size(1)
        x = self.drop(self.wte(idx) + self.wpe(torch.arange(T, device=idx.device)))
        for block in self.blocks:
            x = block(x)
        x = self.ln_f(x)
        if targets is None:
            return self.lm_head(x[:, [-1]]), None
        logits = self.lm_head(x)
        return logits, F.cross_entropy(
            logits.float().view(-1, vocab_size), targets.reshape(-1)
        )

    @torch.no_grad()
    def generate(self, idx, n_new, temperature=0.8):
        for _ in range(n_new):
            logits, _ = self(idx[:, -block_size:])
            probs = F.softmax(logits[:, -1].float() / temperature, dim=-1)
            idx = torch.cat([idx, torch.multinomial(probs, 1)], dim=1)
        return idx


model = GPT()
print(f"{sum(p.numel() for p in model.parameters()) / 1e3:.1f}k parameters")

params = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(
    [
        {"params": [p for p in params if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0},
    ],
    lr=learning_rate,
    betas=(0.9, beta2),
)


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    ratio = (it - warmup_iters) / max(1, max_iters - warmup_iters)
    return min_lr + 0.5 * (1 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


@torch.no_grad()
def estimate_loss():
    out = {}
    model.eval()
    for split in ("train", "val"):
        g = torch.Generator().manual_seed(99)
        losses = torch.zeros(eval_iters)
        for k in range(eval_iters):
            X, Y = get_batch(split, g)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                _, loss = model(X, Y)
            losses[k] = loss.item()
        out[split] = losses.mean().item()
    model.train()
    return out


t0 = time.time()
model.train()
for it in range(max_iters):
    lr = get_lr(it)
    for group in optimizer.param_groups:
        group["lr"] = lr

    if it % eval_interval == 0:
        losses = estimate_loss()
        print(
            f"step {it}: train {losses['train']:.4f} val {losses['val']:.4f} ({time.time() - t0:.1f}s)"
        )

    running = 0.0
    for _ in range(grad_accum):
        X, Y = get_batch("train")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            _, loss = model(X, Y)
            loss = loss / grad_accum
        running += loss.item()
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if it % 20 == 0:
        print(f"iter {it}: loss {running:.4f} lr {lr:.2e}")

final = estimate_loss()
print(f"final: train {final['train']:.4f} val {final['val']:.4f}")
model.eval()
start = torch.tensor([[stoi["\n"]]])
print("".join(itos[i] for i in model.generate(start, 120)[0].tolist()))
