"""Prefix language model that unpacks run lengths: "3a1c2b|" -> "aaacbb$".

The code is read in both directions, what follows the bar is causal and alone has a loss.
Matrices of the blocks go to Muon, everything else to AdamW; the output layer and the
last matrix of every branch start at zero, so the trunk hears nothing in the first step.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD, BAR, END = 0, 1, 2
DIGIT, LETTER = 3, 7  # 3..6 are the counts 1..4, 7..12 are a..f
VOCAB, MAX_RUNS = 13, 4


def make_batch(n, gen):
    """-> ids (n, L), targets (n, L) with -100 where nothing is to be said, prefix lengths"""
    runs = torch.randint(2, MAX_RUNS + 1, (n,), generator=gen).tolist()
    rows = []
    for r in runs:
        counts = torch.randint(1, 5, (r,), generator=gen)
        letters = torch.randint(0, 6, (r,), generator=gen)
        code = torch.stack([counts - 1 + DIGIT, letters + LETTER], 1).flatten().tolist()
        plain = torch.repeat_interleave(letters + LETTER, counts).tolist()
        rows.append((code + [BAR], plain + [END]))
    width = max(len(a) + len(b) for a, b in rows) - 1
    ids = torch.full((n, width), PAD)
    targets = torch.full((n, width), -100)
    for i, (a, b) in enumerate(rows):
        full = torch.tensor(a + b)
        ids[i, : len(full) - 1] = full[:-1]
        targets[i, len(a) - 1 : len(full) - 1] = full[len(a) :]
    return ids, targets, torch.tensor([len(a) for a, _ in rows])


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim, bias=False)
        self.up = nn.Linear(dim, 4 * dim, bias=False)
        self.down = nn.Linear(4 * dim, dim, bias=False)
        self.mix = nn.Parameter(torch.tensor([1.0, 0.0]))  # residual stream, embedding
        nn.init.zeros_(self.proj.weight)
        nn.init.zeros_(self.down.weight)

    def forward(self, x, x0, mask):
        x = self.mix[0] * x + self.mix[1] * x0
        b, t, d = x.shape
        q, k, v = self.qkv(F.rms_norm(x, (d,))).view(b, t, 3, self.heads, -1).unbind(2)
        q, k = (F.rms_norm(z, (z.size(-1),)) for z in (q, k))
        y = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask
        )
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.relu(self.up(F.rms_norm(x, (d,)))).square())


class PrefixLM(nn.Module):
    def __init__(self, dim=64, heads=4, layers=3, longest=25):
        super().__init__()
        self.token = nn.Embedding(VOCAB, dim)
        self.place = nn.Embedding(longest, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.head = nn.Linear(dim, VOCAB, bias=False)
        nn.init.zeros_(self.head.weight)

    def forward(self, ids, prefix):
        t = torch.arange(ids.size(1))
        in_prefix = t < prefix[:, None]
        causal = t[:, None] >= t
        mask = (causal | in_prefix[:, None, :]) & (ids != PAD)[:, None, :]
        x = x0 = F.rms_norm(
            self.token(ids) + self.place(t), (self.token.embedding_dim,)
        )
        for block in self.blocks:
            x = block(x, x0, mask.unsqueeze(1))
        logits = self.head(F.rms_norm(x, (x.size(-1),)))
        return 15 * torch.tanh(logits / 15)


def orthogonalise(g, rounds=5):
    """Newton-Schulz iteration; bfloat16 is precise enough for it."""
    x = g.bfloat16()
    tall = x.size(0) > x.size(1)
    x = x.T if tall else x
    x = x / (x.norm() + 1e-7)
    for _ in range(rounds):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return (x.T if tall else x).to(g.dtype)


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if "buffer" not in state:
                    state["buffer"] = torch.zeros_like(p)
                state["buffer"].lerp_(p.grad, 1 - group["momentum"])
                g = p.grad.lerp(state["buffer"], group["momentum"])  # Nesterov
                scale = max(1.0, p.size(0) / p.size(1)) ** 0.5
                p.add_(orthogonalise(g), alpha=-group["lr"] * scale)


@torch.no_grad()
def evaluate(model, batch):
    ids, targets, prefix = batch
    model.eval()
    logits = model(ids, prefix)
    model.train()
    said = targets != -100
    right = (logits.argmax(-1) == targets) | ~said
    return (
        F.cross_entropy(logits.flatten(0, 1), targets.flatten()).item(),
        right.all(1).float().mean().item(),
    )


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--batch", type=int, default=48)
    args = p.parse_args()
    torch.manual_seed(5)
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(50)
    valid = make_batch(200, torch.Generator().manual_seed(51))

    model = PrefixLM()
    matrices = [q for q in model.blocks.parameters() if q.ndim == 2]
    scalars = [q for q in model.blocks.parameters() if q.ndim < 2]
    embeddings = [*model.token.parameters(), *model.place.parameters()]
    adam = torch.optim.AdamW(
        [
            dict(params=embeddings, lr=2e-2),
            dict(params=model.head.parameters(), lr=8e-3),
            dict(params=scalars, lr=5e-3),
        ],
        betas=(0.8, 0.95),
        eps=1e-10,
        weight_decay=0.0,
    )
    muon = Muon(matrices, lr=0.03)
    groups = adam.param_groups + muon.param_groups
    for g in groups:
        g["initial_lr"] = g["lr"]

    for step in range(args.steps):
        left = (args.steps - step) / args.steps
        for g in groups:  # constant, then straight down over the last 40 %
            g["lr"] = g["initial_lr"] * min(1.0, left / 0.4)
        muon.param_groups[0]["momentum"] = 0.85 + 0.1 * min(1.0, step / 20)
        ids, targets, prefix = make_batch(args.batch, gen)
        loss = F.cross_entropy(model(ids, prefix).flatten(0, 1), targets.flatten())
        loss.backward()
        for opt in (adam, muon):
            opt.step()
        model.zero_grad(set_to_none=True)
        if step % 10 == 0 or step == args.steps - 1:
            val, exact = evaluate(model, valid)
            print(
                f"{step:4d} train {loss.item():.4f} valid {val:.4f} all right {exact:.3f}"
            )


if __name__ == "__main__":
    main()
