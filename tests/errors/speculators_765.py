import argparse
import contextlib
import math

import torch
import torch.nn.functional as F
from torch import nn

# Trains a small draft model that predicts the next token of a (frozen, made-up) verifier
# from the verifier's hidden states.


class Verifier(nn.Module):
    """Stands for the large model: fixed weights, gives hidden states and next-token choices."""

    def __init__(self, vocab, hidden):
        super().__init__()
        g = torch.Generator().manual_seed(2024)
        self.table = torch.randn(vocab, hidden, generator=g)
        self.mix = torch.randn(hidden, hidden, generator=g) / hidden**0.5
        self.gain = torch.logspace(-1.2, 0.5, hidden)
        self.head = torch.randn(vocab, hidden, generator=g) / hidden**0.5

    @torch.no_grad()
    def rollout(self, batch, length, gen):
        tok = torch.randint(len(self.table), (batch,), generator=gen)
        h = torch.zeros(batch, self.table.shape[1])
        toks, hiddens = [tok], []
        for _ in range(length):
            h = torch.tanh(h @ self.mix + self.table[tok])
            logits = 2.5 * (h * self.gain) @ self.head.t()
            tok = torch.multinomial(logits.softmax(-1), 1, generator=gen).squeeze(1)
            toks.append(tok)
            hiddens.append(h)
        ids = torch.stack(toks, 1)
        return torch.stack(hiddens, 1), ids[:, :-1], ids[:, 1:]


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * y.to(x.dtype)


class DraftLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.input_layernorm = RMSNorm(dim)
        self.post_attention_layernorm = RMSNorm(dim)
        self.q_norm, self.k_norm = RMSNorm(dim // heads), RMSNorm(dim // heads)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(dim, dim, bias=False) for _ in range(4)
        )
        self.gate_up = nn.Linear(dim, 4 * dim, bias=False)
        self.down = nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        y = self.input_layernorm(x)
        q, k, v = (
            p(y).view(b, t, self.heads, -1)
            for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k, v = (z.transpose(1, 2) for z in (self.q_norm(q), self.k_norm(k), v))
        a = F.scaled_dot_product_attention(
            q.to(v.dtype), k.to(v.dtype), v, is_causal=True
        )
        x = x + self.o_proj(a.transpose(1, 2).reshape(b, t, d))
        gate, up = self.gate_up(self.post_attention_layernorm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class DraftModel(nn.Module):
    def __init__(self, vocab, hidden, dim=48, heads=4):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, dim)
        self.hidden_norm = RMSNorm(hidden)
        self.fc = nn.Linear(hidden + dim, dim, bias=False)
        self.layers = nn.ModuleList([DraftLayer(dim, heads)])
        self.norm = RMSNorm(dim)
        self.lm_head = nn.Linear(dim, vocab, bias=False)
        for m in self.modules():
            if isinstance(m, (nn.Linear, nn.Embedding)):
                nn.init.normal_(m.weight, std=0.02)

    def forward(self, hidden, ids):
        x = self.fc(torch.cat([self.hidden_norm(hidden), self.embed_tokens(ids)], -1))
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


def build(args):
    torch.manual_seed(args.seed)
    model = DraftModel(args.vocab, args.hidden)
    if args.fixed:
        ctx = lambda: torch.autocast("cpu", dtype=torch.bfloat16)
        return model, ctx, torch.float32
    return model.to(torch.bfloat16), contextlib.nullcontext, torch.bfloat16


@torch.no_grad()
def evaluate(model, ctx, dtype, batch):
    hidden, ids, target = batch
    with ctx():
        logits = model(hidden.to(dtype), ids)
    logits = logits.float()
    return (
        F.cross_entropy(logits.flatten(0, 1), target.flatten()).item(),
        (logits.argmax(-1) == target).float().mean().item(),
    )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=240)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--seq-len", type=int, default=24)
    ap.add_argument("--vocab", type=int, default=48)
    ap.add_argument("--hidden", type=int, default=64)
    ap.add_argument("--lr", type=float, default=1.5e-3)
    ap.add_argument("--warmup", type=int, default=20)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    verifier = Verifier(args.vocab, args.hidden)
    gen = torch.Generator().manual_seed(args.seed + 1)
    held_out = verifier.rollout(128, args.seq_len, torch.Generator().manual_seed(1234))
    model, ctx, dtype = build(args)
    opt = torch.optim.AdamW(
        model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.0
    )
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt,
        lambda s: min(
            (s + 1) / args.warmup,
            0.55 + 0.45 * math.cos(math.pi * min(1.0, s / args.steps)),
        ),
    )

    for step in range(args.steps):
        hidden, ids, target = verifier.rollout(args.batch_size, args.seq_len, gen)
        with ctx():
            logits = model(hidden.to(dtype), ids)
        loss = F.cross_entropy(logits.float().flatten(0, 1), target.flatten())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 40 == 0 or step == args.steps - 1:
            el, ea = evaluate(model, ctx, dtype, held_out)
            print(
                f"step {step:4d} | loss {loss.item():.4f} | grad norm {norm.item():.3f} | "
                f"held-out loss {el:.4f} acceptance {ea:.3f}"
            )

    if args.prove:
        flat = torch.cat(
            [
                p.detach().float().flatten()
                for n, p in model.named_parameters()
                if "norm" in n
            ]
        )
        still = float((flat == 1).float().mean())
        print(
            f"normalisation weights exactly at their start value: {100 * still:.1f}% of {len(flat)}"
        )
        print("fault shows:", "yes" if still > 0.25 else "no")


if __name__ == "__main__":
    main()
