"""Post-training of a small decoder with low-rank adapters in bfloat16.

Three sessions: pretraining of the base model in float32, adapter tuning on a
first domain, and a warm start on a second domain from the exported adapter.
"""
import argparse
import logging
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("posttrain")


@dataclass
class ModelConfig:
    vocab: int = 24
    dim: int = 32
    heads: int = 4
    seq_len: int = 24
    rank: int = 8
    alpha: float = 16.0


class LoraLinear(nn.Module):
    def __init__(self, cfg, d_in, d_out):
        super().__init__()
        self.base = nn.Linear(d_in, d_out)
        self.lora_a = nn.Parameter(torch.randn(cfg.rank, d_in) / d_in**0.5)
        self.lora_b = nn.Parameter(torch.zeros(d_out, cfg.rank))
        self.scale = cfg.alpha / cfg.rank

    def forward(self, x):
        return self.base(x) + self.scale * F.linear(
            F.linear(x, self.lora_a), self.lora_b
        )


class Decoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.tok = nn.Embedding(cfg.vocab, cfg.dim)
        self.pos = nn.Embedding(cfg.seq_len, cfg.dim)
        self.norm1 = nn.LayerNorm(cfg.dim)
        self.qkv = LoraLinear(cfg, cfg.dim, 3 * cfg.dim)
        self.proj = LoraLinear(cfg, cfg.dim, cfg.dim)
        self.norm2 = nn.LayerNorm(cfg.dim)
        self.up = LoraLinear(cfg, cfg.dim, 4 * cfg.dim)
        self.down = LoraLinear(cfg, 4 * cfg.dim, cfg.dim)
        self.head = LoraLinear(cfg, cfg.dim, cfg.vocab)

    def forward(self, ids):
        b, t = ids.shape
        x = self.tok(ids) + self.pos(torch.arange(t))
        q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        q, k, v = (z.view(b, t, self.cfg.heads, -1).transpose(1, 2) for z in (q, k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, -1))
        x = x + self.down(F.gelu(self.up(self.norm2(x))))
        return self.head(x)


def adapter_parameters(model):
    return {n: p for n, p in model.named_parameters() if "lora_" in n}


class MainParamOptimizer:
    """AdamW on float32 copies ("main params") of low-precision parameters."""

    def __init__(self, params, lr):
        self.model_params = list(params)
        self.main_params = [
            nn.Parameter(p.detach().float().clone()) for p in self.model_params
        ]
        self.inner = torch.optim.AdamW(self.main_params, lr=lr, weight_decay=0.0)

    def zero_grad(self):
        for p in self.model_params:
            p.grad = None

    @torch.no_grad()
    def refresh_main_params(self):
        for main, p in zip(self.main_params, self.model_params):
            main.copy_(p)

    def step(self, max_norm):
        for main, p in zip(self.main_params, self.model_params):
            main.grad = p.grad.float()
        nn.utils.clip_grad_norm_(self.main_params, max_norm)
        self.inner.step()
        with torch.no_grad():
            for main, p in zip(self.main_params, self.model_params):
                p.copy_(main)


class Corpus:
    """Second-order token chains; every domain has its own transition rule."""

    def __init__(self, cfg, mult, shift, seed):
        self.cfg, self.mult, self.shift = cfg, mult, shift
        self.gen = torch.Generator().manual_seed(seed)

    def batch(self, n):
        v = self.cfg.vocab
        seq = [torch.randint(v, (n,), generator=self.gen) for _ in range(2)]
        for _ in range(self.cfg.seq_len - 1):
            nxt = (self.mult * seq[-1] + seq[-2] // 4 + self.shift) % v
            noise = torch.randint(v, (n,), generator=self.gen)
            keep = torch.rand(n, generator=self.gen) < 0.9
            seq.append(torch.where(keep, nxt, noise))
        return torch.stack(seq, 1)


def lm_loss(model, ids):
    logits = model(ids[:, :-1])
    return F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())


def pretrain(cfg, args):
    model = Decoder(cfg)
    for p in adapter_parameters(model).values():
        p.requires_grad_(False)
    params = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=3e-3, weight_decay=0.01)
    corpus = Corpus(cfg, 5, 1, args.seed + 1)
    for step in range(args.steps):
        loss = lm_loss(model, corpus.batch(args.batch))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        if step % 40 == 0 or step == args.steps - 1:
            log.info("base     step %3d  loss %.4f", step, loss.item())
    return {n: p for n, p in model.state_dict().items() if "lora_" not in n}


def save_adapter(model, path):
    torch.save({n: p.detach() for n, p in adapter_parameters(model).items()}, path)


@torch.no_grad()
def load_adapter(model, path):
    stored = torch.load(path)
    for name, p in adapter_parameters(model).items():
        p.copy_(stored[name])


def open_session(cfg, args, base, adapter=None):
    torch.manual_seed(args.seed + 2)
    model = Decoder(cfg)
    model.load_state_dict(base, strict=False)
    model.to(torch.bfloat16)
    adapters = adapter_parameters(model)
    for name, p in model.named_parameters():
        p.requires_grad_(name in adapters)
    opt = MainParamOptimizer(adapters.values(), lr=args.lr)
    if adapter is not None:
        load_adapter(model, adapter)
        if args.fixed:
            opt.refresh_main_params()
    return model, opt


def tune(name, model, opt, corpus, args):
    for step in range(args.steps):
        loss = lm_loss(model, corpus.batch(args.batch))
        opt.zero_grad()
        loss.backward()
        opt.step(max_norm=1.0)
        if step % 20 == 0 or step == args.steps - 1:
            log.info("%-8s step %3d  loss %.4f", name, step, loss.item())


@torch.no_grad()
def evaluate(model, corpus):
    return lm_loss(model, corpus.batch(256)).item()


def prove(cfg, args, base, adapter):
    """How far one update moves a freshly restored adapter, in units of the lr."""
    model, opt = open_session(cfg, args, base, adapter)
    before = [p.detach().float().clone() for p in opt.model_params]
    loss = lm_loss(model, Corpus(cfg, 7, 5, 99).batch(args.batch))
    loss.backward()
    opt.step(max_norm=1.0)
    moved = [(p.float() - b).abs() for p, b in zip(opt.model_params, before)]
    room = [args.lr * 1.01 + b.abs() * 2**-7 for b in before]
    share = max((m - r).max().item() for m, r in zip(moved, room)) / args.lr
    log.info("largest excess of the first update: %.2f lr", share)
    print("fault shows:", "yes" if share > 0.5 else "no")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100, help="per session")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")

    torch.manual_seed(args.seed)
    cfg = ModelConfig()
    base = pretrain(cfg, args)
    with tempfile.TemporaryDirectory() as tmp:
        adapter = Path(tmp) / "adapter_domain1.pt"
        model, opt = open_session(cfg, args, base)
        tune("domain1", model, opt, Corpus(cfg, 7, 3, args.seed + 3), args)
        save_adapter(model, adapter)

        model, opt = open_session(cfg, args, base, adapter)
        tune("domain2", model, opt, Corpus(cfg, 7, 5, args.seed + 4), args)
        save_adapter(model, Path(tmp) / "adapter_domain2.pt")
        held_out = Corpus(cfg, 7, 5, args.seed + 5)
        log.info("held-out loss %.4f", evaluate(model, held_out))
        if args.prove:
            prove(cfg, args, base, adapter)


if __name__ == "__main__":
    main()
