"""One frozen language model, one small soft prompt per tenant (prompt tuning), served as separate bundles.

Stage 1 trains a tiny causal transformer on event streams of many kinds of machines; the kind is never given
and has to be read from the context.  Stage 2 freezes it and learns four virtual token vectors per tenant, so
that the model knows the tenant's machine before the first event.  All tenants train in turn with optimizers of
their own; the bundles hold prompts and optimizer states only, with a fingerprint of the base model.
"""
import argparse
import hashlib
import io
import json

import torch
from torch import nn
from torch.nn import functional as F

CONFIG = {
    "model": {
        "vocab": 10,
        "dim": 48,
        "heads": 4,
        "layers": 2,
        "max_len": 40,
        "dropout": 0.1,
    },
    "pretrain": {"kinds": 6, "batch": 24, "length": 28, "lr": 5e-3, "warmup": 20},
    "prompt": {
        "tokens": 4,
        "length": 12,
        "batch": 16,
        "lr": 3e-2,
        "rounds": 60,
        "save_after": 30,
    },
    "tenants": {"ferry": 1, "sawmill": 4, "planetarium": 5},
    "seed": 17,
}


def machine_kinds(vocab, kinds):
    """Each kind has its own sharp transition table; rows are permutations, so unigrams say nothing."""
    g = torch.Generator().manual_seed(404)
    tables = []
    for _ in range(kinds):
        table = torch.full((vocab, vocab), 0.15 / (vocab - 2))
        first, second = torch.randperm(vocab, generator=g), torch.randperm(
            vocab, generator=g
        )
        table[torch.arange(vocab), second] = 0.25
        table[torch.arange(vocab), first] = 0.65
        tables.append(table / table.sum(1, keepdim=True))
    return torch.stack(tables)


def sample(tables, kind, length, gen):
    """kind [B] -> tokens [B, length]."""
    out = [torch.randint(tables.shape[1], kind.shape, generator=gen)]
    for _ in range(length - 1):
        out.append(
            torch.multinomial(tables[kind, out[-1]], 1, generator=gen).squeeze(1)
        )
    return torch.stack(out, 1)


class Block(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 3 * dim),
            nn.GELU(),
            nn.Linear(3 * dim, dim),
            nn.Dropout(dropout),
        )

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            self.qkv(self.n1(x))
            .view(b, t, 3, self.heads, d // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        a = F.scaled_dot_product_attention(
            q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0.0
        )
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.n2(x))


class EventLM(nn.Module):
    def __init__(self, vocab, dim, heads, layers, max_len, dropout):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, dim), nn.Embedding(max_len, dim)
        nn.init.normal_(self.tok.weight, std=0.5)
        nn.init.normal_(self.pos.weight, std=0.1)
        self.blocks = nn.ModuleList(Block(dim, heads, dropout) for _ in range(layers))
        self.norm, self.out = nn.LayerNorm(dim), nn.Linear(dim, vocab)

    def forward(self, tokens, prompt=None):
        x = self.tok(tokens)
        skip = 0
        if prompt is not None:
            skip = len(prompt)
            x = torch.cat([prompt.expand(len(x), -1, -1), x], 1)
        x = x + self.pos(torch.arange(x.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x[:, skip:]))  # virtual positions predict nothing


def next_event_loss(logits, tokens):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def fingerprint(model):
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()[:16]


def pretrain(model, tables, steps, cfg, gen):
    opt = torch.optim.AdamW(model.parameters(), lr=cfg["lr"], weight_decay=0.01)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min(1, (s + 1) / cfg["warmup"]) * max(0.05, 1 - s / steps)
    )
    curve = []
    for step in range(steps):
        kind = torch.randint(cfg["kinds"], (cfg["batch"],), generator=gen)
        tokens = sample(tables, kind, cfg["length"], gen)
        loss = next_event_loss(model(tokens), tokens)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        curve.append(loss.item())
        if (step + 1) % 50 == 0:
            print(f"pretrain {step + 1:4d} loss {sum(curve[-20:]) / 20:.3f}")
    return curve


class Tenant:
    def __init__(self, name, model, cfg, gen):
        self.name, self.cfg = name, cfg
        with torch.no_grad():  # start on real token vectors, as in the paper
            pick = torch.randperm(model.tok.num_embeddings, generator=gen)[
                : cfg["tokens"]
            ]
            start = model.tok.weight[pick].clone()
        self.prompt = nn.Parameter(start)
        self.opt = torch.optim.Adam([self.prompt], lr=cfg["lr"])

    def step(self, model, tokens):
        loss = next_event_loss(model(tokens, self.prompt), tokens)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()

    def bundle(self, base):
        return {
            "name": self.name,
            "base": base,
            "prompt": self.prompt.detach().clone(),
            "opt": self.opt.state_dict(),
        }

    def restore(self, bundle, base):
        assert (
            bundle["base"] == base and bundle["name"] == self.name
        ), "the bundle belongs to another base model"
        with torch.no_grad():
            self.prompt.copy_(bundle["prompt"])
        self.opt.load_state_dict(bundle["opt"])


# size: the whole run in one place, read from top to bottom
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200, help="steps of the base model")
    args = ap.parse_args()
    torch.manual_seed(CONFIG["seed"])
    gen = torch.Generator().manual_seed(CONFIG["seed"])
    m, p, q = CONFIG["model"], CONFIG["pretrain"], CONFIG["prompt"]
    tables = machine_kinds(m["vocab"], p["kinds"])
    model = EventLM(**m)
    curve = pretrain(model, tables, args.steps, p, gen)

    model.eval().requires_grad_(
        False
    )  # stays in eval mode while prompts train: no dropout
    model.zero_grad(set_to_none=True)
    base = fingerprint(model)
    held = {
        n: sample(tables, torch.full((200,), k), q["length"], gen)
        for n, k in CONFIG["tenants"].items()
    }
    tenants = {n: Tenant(n, model, q, gen) for n in CONFIG["tenants"]}

    @torch.no_grad()
    def evaluate(owner, prompt_of):
        prompt = tenants[prompt_of].prompt if prompt_of else None
        return next_event_loss(model(held[owner], prompt), held[owner]).item()

    without = {n: evaluate(n, None) for n in tenants}
    for rnd in range(q["rounds"]):
        if rnd == q["save_after"]:  # the worker moves: bundles go through bytes
            shelf = {}
            for n, t in tenants.items():
                shelf[n] = io.BytesIO()
                torch.save(t.bundle(base), shelf[n])
            tenants = {n: Tenant(n, model, q, gen) for n in shelf}
            for n, box in shelf.items():
                box.seek(0)
                tenants[n].restore(torch.load(box, weights_only=True), base)
        losses = {}
        for n, k in CONFIG["tenants"].items():
            losses[n] = tenants[n].step(
                model, sample(tables, torch.full((q["batch"],), k), q["length"], gen)
            )
        if rnd % 15 == 14:
            print(
                f"round {rnd + 1:3d} "
                + " ".join(f"{n} {v:.3f}" for n, v in losses.items())
            )

    own = {n: evaluate(n, n) for n in tenants}
    names = list(tenants)
    swapped = {n: evaluate(n, names[(i + 1) % len(names)]) for i, n in enumerate(names)}
    print(
        json.dumps(
            {"no_prompt": without, "own_prompt": own, "prompt_of_another": swapped},
            indent=1,
        )
    )
    assert fingerprint(model) == base and all(
        w.grad is None for w in model.parameters()
    )
    if args.steps >= 150:
        assert (
            sum(curve[-20:]) / 20 < 0.85 * curve[0]
        ), "the base model must have learned"
        assert all(own[n] < without[n] - 0.05 and own[n] < swapped[n] for n in tenants)


if __name__ == "__main__":
    main()
