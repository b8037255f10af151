# small character-level GPT on a made-up recipe corpus. one file, nanoGPT flavoured.
import argparse
import inspect
import math
import random
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--seed", type=int, default=1337)
args = parser.parse_args()

# -----------------------------------------------------------------------------
batch_size = 12  # micro-batch
grad_accum = 3  # micro-batches per optimizer step
max_iters = args.steps
eval_interval = max(1, max_iters // 4)
eval_iters = 8
learning_rate = 3e-3
min_lr = 3e-4
warmup_iters = min(15, max_iters // 5 + 1)
weight_decay = 0.1
grad_clip = 1.0
# -----------------------------------------------------------------------------

torch.manual_seed(args.seed)
rng = random.Random(args.seed)

verbs = ["chop", "boil", "fry", "whisk", "roast", "season", "stir", "drain"]
things = [
    "the onions",
    "two eggs",
    "the rice",
    "a carrot",
    "some butter",
    "the beans",
    "fresh basil",
]
hows = [
    "slowly",
    "for ten minutes",
    "until golden",
    "with salt",
    "in a large pan",
    "over low heat",
]
text = "".join(
    f"{rng.choice(verbs)} {rng.choice(things)} {rng.choice(hows)}.\n"
    for _ in range(2500)
)

chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
itos = {i: c for c, i in stoi.items()}
data = torch.tensor([stoi[c] for c in text], dtype=torch.long)
n = int(0.9 * len(data))
train_data, val_data = data[:n], data[n:]


@dataclass
class GPTConfig:
    block_size: int = 48
    vocab_size: int = len(chars)
    n_layer: int = 2
    n_head: int = 4
    n_embd: int = 64
    dropout: float = 0.1


class CausalSelfAttention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.c_attn = nn.Linear(cfg.n_embd, 3 * cfg.n_embd)
        self.c_proj = nn.Linear(cfg.n_embd, cfg.n_embd)
        self.n_head, self.dropout = cfg.n_head, cfg.dropout
        self.resid_dropout = nn.Dropout(cfg.dropout)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (
            t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            for t in self.c_attn(x).split(C, dim=2)
        )
        y = F.scaled_dot_product_attention(
            q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0.0
        )
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.resid_dropout(self.c_proj(y))


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.ln_1 = nn.LayerNorm(cfg.n_embd)
        self.attn = CausalSelfAttention(cfg)
        self.ln_2 = nn.LayerNorm(cfg.n_embd)
        self.mlp = nn.Sequential(
            nn.Linear(cfg.n_embd, 4 * cfg.n_embd),
            nn.GELU(),
            nn.Linear(4 * cfg.n_embd, cfg.n_embd),
            nn.Dropout(cfg.dropout),
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.wte = nn.Embedding(cfg.vocab_size, cfg.n_embd)
        self.wpe = nn.Embedding(cfg.block_size, cfg.n_embd)
        self.drop = nn.Dropout(cfg.dropout)
        self.blocks = nn.ModuleList([Block(cfg) for _ in range(cfg.n_layer)])
        self.ln_f = nn.LayerNorm(cfg.n_embd)
        self.lm_head = nn.Linear(cfg.n_embd, cfg.vocab_size, bias=False)
        self.apply(self._init)
        self.lm_head.weight = self.wte.weight  # tied
        for name, p in self.named_parameters():
            if name.endswith("c_proj.weight"):
                nn.init.normal_(p, 0.0, 0.02 / math.sqrt(2 * cfg.n_layer))

    def _init(self, m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, 0.0, 0.02)
        if isinstance(m, nn.Linear) and m.bias is not None:
            nn.init.zeros_(m.bias)

    def forward(self, idx, targets=None):
        T = idx.size(1)
        x = self.drop(self.wte(idx) + self.wpe(torch.arange(T)))
        for b in self.blocks:
            x = b(x)
        x = self.ln_f(x)
        if targets is None:
            return self.lm_head(x[:, [-1]]), None
        logits = self.lm_head(x)
        return logits, F.cross_entropy(
            logits.view(-1, logits.size(-1)), targets.view(-1)
        )

    @torch.no_grad()
    def generate(self, idx, n_new, temperature=0.8):
        for _ in range(n_new):
            logits, _ = self(idx[:, -self.cfg.block_size :])
            probs = F.softmax(logits[:, -1] / temperature, dim=-1)
            idx = torch.cat([idx, torch.multinomial(probs, 1)], dim=1)
        return idx


model = GPT(GPTConfig())
decay = [p for p in model.parameters() if p.dim() >= 2]
no_decay = [p for p in model.parameters() if p.dim() < 2]
extra = (
    {"fused": True}
    if "fused" in inspect.signature(torch.optim.AdamW).parameters
    else {}
)
optimizer = torch.optim.AdamW(
    [
        {"params": decay, "weight_decay": weight_decay},
        {"params": no_decay, "weight_decay": 0.0},
    ],
    lr=learning_rate,
    betas=(0.9, 0.95),
    **extra,
)
print(
    f"{sum(p.numel() for p in model.parameters())} parameters, {len(data)} characters"
)


def get_batch(split):
    d = train_data if split == "train" else val_data
    T = model.cfg.block_size
    ix = torch.randint(len(d) - T, (batch_size,))
    x = torch.stack([d[i : i + T] for i in ix])
    y = torch.stack([d[i + 1 : i + 1 + T] for i in ix])
    return x, y


@torch.no_grad()
def estimate_loss():
    model.eval()
    out = {
        s: torch.stack([model(*get_batch(s))[1] for _ in range(eval_iters)])
        .mean()
        .item()
        for s in ("train", "val")
    }
    model.train()
    return out


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / warmup_iters
    ratio = (it - warmup_iters) / max(1, max_iters - warmup_iters)
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


t0 = time.time()
for it in range(max_iters):
    if it % eval_interval == 0:
        l = estimate_loss()
        print(
            f"step {it}: train {l['train']:.4f} val {l['val']:.4f} ({time.time() - t0:.1f}s)"
        )
    for group in optimizer.param_groups:
        group["lr"] = get_lr(it)
    for micro in range(grad_accum):
        x, y = get_batch("train")
        _, loss = model(x, y)
        (loss / grad_accum).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if it % 20 == 0:
        print(f"iter {it} loss {loss.item():.4f} norm {norm:.2f}")

l = estimate_loss()
print(f"final: train {l['train']:.4f} val {l['val']:.4f}")
model.eval()
start = torch.tensor([[stoi["\n"]]])
print("".join(itos[i] for i in model.generate(start, 120)[0].tolist()))
