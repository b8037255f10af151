"""LoRA: pre-train a tiny causal transformer on one kind of text, adapt it to another with low-rank updates only."""
import argparse
import math
import os
import random
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

ALPHABET = "\n abcdefghijklmnopqrstuvwxyz.,=+0123456789"
STOI = {c: i for i, c in enumerate(ALPHABET)}
BLOCK = 48


def general_text(n_lines, seed):
    rnd = random.Random(seed)
    nouns = [
        "cat",
        "farmer",
        "river",
        "engine",
        "teacher",
        "garden",
        "window",
        "sailor",
    ]
    verbs = ["sees", "finds", "likes", "follows", "paints", "hears"]
    adjectives = ["old", "green", "quiet", "small", "bright"]
    return "".join(
        f"the {rnd.choice(adjectives)} {rnd.choice(nouns)} {rnd.choice(verbs)} "
        f"the {rnd.choice(nouns)}, and the {rnd.choice(nouns)} {rnd.choice(verbs)} it.\n"
        for _ in range(n_lines)
    )


def recipe_text(n_lines, seed):
    rnd = random.Random(seed)
    things = ["flour", "sugar", "butter", "milk", "honey"]
    return "".join(
        f"mix {rnd.randint(1, 9)} {rnd.choice(['cups', 'spoons'])} of {rnd.choice(things)} "
        f"with the {rnd.choice(things)}, wait {rnd.randint(1, 5)}0 minutes.\n"
        for _ in range(n_lines)
    )


def unseen_lines(text, train_text):
    known = set(train_text.splitlines())
    return "".join(line + "\n" for line in text.splitlines() if line not in known)


def encode(text):
    return torch.tensor([STOI[c] for c in text])


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            f(x).view(b, t, self.heads, d // self.heads).transpose(1, 2)
            for f in (self.query, self.key, self.value)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim)
        )

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class CharLM(nn.Module):
    def __init__(self, dim=64, heads=4, depth=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(len(ALPHABET), dim), nn.Embedding(BLOCK, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.ln = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, len(ALPHABET), bias=False)

    def forward(self, idx):
        x = self.tok(idx) + self.pos(torch.arange(idx.size(1)))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


class LoRALinear(nn.Module):
    def __init__(self, base, rank=4, alpha=8, dropout=0.05):
        super().__init__()
        self.base = base
        self.a = nn.Parameter(torch.empty(rank, base.in_features))
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))
        self.scaling = alpha / rank
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        return self.base(x) + self.scaling * (self.drop(x) @ self.a.T @ self.b.T)

    @torch.no_grad()
    def merged(self):
        self.base.weight += self.scaling * self.b @ self.a
        return self.base


def add_lora(model):
    model.requires_grad_(False)
    for block in model.blocks:
        for owner, names in (
            (block.attn, ("query", "value", "proj")),
            (block.mlp, ("0", "2")),
        ):
            for name in names:
                setattr(owner, name, LoRALinear(getattr(owner, name)))


def merge_lora(model):
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, LoRALinear):
                setattr(parent, name, child.merged())


def get_batch(data, batch, gen):
    start = torch.randint(len(data) - BLOCK, (batch,), generator=gen)
    rows = torch.stack([data[s : s + BLOCK + 1] for s in start.tolist()])
    return rows[:, :-1], rows[:, 1:]


@torch.no_grad()
def perplexity(model, data):
    model.eval()
    n = (len(data) - 1) // BLOCK
    x, y = data[: n * BLOCK].view(n, BLOCK), data[1 : n * BLOCK + 1].view(n, BLOCK)
    return math.exp(F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item())


def train(model, data, steps, lr, gen, report, weight_decay):
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=lr, weight_decay=weight_decay)
    warm = torch.optim.lr_scheduler.LinearLR(
        optimizer, start_factor=0.1, total_iters=max(1, steps // 10)
    )
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, T_max=max(1, steps - steps // 10), eta_min=0.1 * lr
    )
    scheduler = torch.optim.lr_scheduler.SequentialLR(
        optimizer, [warm, cosine], milestones=[max(1, steps // 10)]
    )
    for step in range(1, steps + 1):
        model.train()
        x, y = get_batch(data, 24, gen)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        scheduler.step()
        if step % 50 == 0 or step == steps:
            print(f"  step {step:4d} loss {loss.item():.3f} | {report()}")


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument(
        "--steps",
        type=int,
        default=200,
        help="pre-training steps; adaptation takes half as many",
    )
    cli.add_argument("--seed", type=int, default=10)
    args = cli.parse_args()
    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed)
    train_text = {"general": general_text(500, 1), "recipes": recipe_text(300, 3)}
    general, recipes = encode(train_text["general"]), encode(train_text["recipes"])
    general_val = encode(unseen_lines(general_text(60, 2), train_text["general"]))
    recipes_val = encode(unseen_lines(recipe_text(60, 4), train_text["recipes"]))

    model = CharLM()
    print("pre-training")
    train(
        model,
        general,
        args.steps,
        4e-3,
        gen,
        lambda: f"val perplexity {perplexity(model, general_val):.2f}",
        0.05,
    )

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "base.pt")
        torch.save(model.state_dict(), path)
        adapted = CharLM()
        adapted.load_state_dict(torch.load(path, weights_only=True))
    add_lora(adapted)
    n_train = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    print(
        f"adapting: {n_train} of {sum(p.numel() for p in adapted.parameters())} parameters, "
        f"recipe perplexity before {perplexity(adapted, recipes_val):.2f}"
    )
    train(
        adapted,
        recipes,
        max(1, args.steps // 2),
        1e-2,
        gen,
        lambda: f"recipe perplexity {perplexity(adapted, recipes_val):.2f}",
        0.0,
    )
    before = perplexity(adapted, recipes_val)
    merge_lora(adapted)
    print(f"merged: {perplexity(adapted, recipes_val):.4f} (unmerged {before:.4f})")


if __name__ == "__main__":
    main()
