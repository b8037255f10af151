"""Pretraining of a mixture-of-experts language model on synthetic multi-domain text."""
import argparse
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class MoEConfig:
    vocab: int = 48
    dim: int = 48
    heads: int = 4
    layers: int = 2
    hidden: int = 48
    n_experts: int = 8
    top_k: int = 2
    aux_loss_coeff: float = 0.1
    seq: int = 20
    chain: bool = False


class Domains:
    """Every document follows the transition table of one of several domains."""

    def __init__(self, cfg, seed, n_domains=6):
        g = torch.Generator().manual_seed(2024)
        self.tables = torch.stack(
            [
                torch.stack(
                    [
                        torch.randperm(cfg.vocab, generator=g)[:3]
                        for _ in range(cfg.vocab)
                    ]
                )
                for _ in range(n_domains)
            ]
        )
        self.cfg, self.n = cfg, n_domains
        self.g = torch.Generator().manual_seed(seed)

    def batch(self, size):
        domain = torch.randint(0, self.n, (size,), generator=self.g)
        ids = [torch.randint(0, self.cfg.vocab, (size,), generator=self.g)]
        for _ in range(self.cfg.seq):
            branch = torch.multinomial(
                torch.tensor([0.75, 0.15, 0.1]),
                size,
                replacement=True,
                generator=self.g,
            )
            ids.append(self.tables[domain, ids[-1], branch])
        return torch.stack(ids, 1)


class AuxLossAutoScaler(torch.autograd.Function):
    """Identity on the first input; its backward sends a constant gradient to the second."""

    @staticmethod
    def forward(ctx, output, aux_loss):
        ctx.save_for_backward(aux_loss)
        return output.view_as(output)

    @staticmethod
    def backward(ctx, grad_output):
        (aux_loss,) = ctx.saved_tensors
        return grad_output, torch.ones_like(aux_loss)


class Gate(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.weight = nn.Parameter(torch.randn(cfg.n_experts, cfg.dim) * 0.3)
        self.last_aux, self.last_load = None, None

    def balance_loss(self, scores, indices):
        load = (
            F.one_hot(indices, self.cfg.n_experts).float().sum(1).mean(0)
            / self.cfg.top_k
        )
        self.last_load = load.detach()
        return self.cfg.n_experts * (load * scores.mean(0)).sum()

    def forward(self, x):
        scores = F.linear(x, self.weight).softmax(-1)
        weights, indices = scores.topk(self.cfg.top_k, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        if self.training and self.cfg.aux_loss_coeff > 0:
            aux_loss = self.cfg.aux_loss_coeff * self.balance_loss(scores, indices)
            self.last_aux = aux_loss
            if self.cfg.chain:
                weights = AuxLossAutoScaler.apply(weights, aux_loss)
            else:
                AuxLossAutoScaler.apply(weights, aux_loss)
        return weights, indices


class MoE(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg, self.gate = cfg, Gate(cfg)
        self.up = nn.Parameter(
            torch.randn(cfg.n_experts, cfg.dim, cfg.hidden) * cfg.dim**-0.5
        )
        self.down = nn.Parameter(
            torch.randn(cfg.n_experts, cfg.hidden, cfg.dim) * cfg.hidden**-0.5
        )

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        weights, indices = self.gate(flat)
        out = torch.zeros_like(flat)
        for e in range(self.cfg.n_experts):
            token, slot = (indices == e).nonzero(as_tuple=True)
            if len(token):
                h = F.gelu(flat[token] @ self.up[e]) @ self.down[e]
                out = out.index_add(0, token, h * weights[token, slot, None])
        return out.view_as(x)


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(cfg.dim), nn.LayerNorm(cfg.dim)
        self.qkv, self.proj = nn.Linear(cfg.dim, 3 * cfg.dim), nn.Linear(
            cfg.dim, cfg.dim
        )
        self.heads, self.moe = cfg.heads, MoE(cfg)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        a = (
            F.scaled_dot_product_attention(q, k, v, is_causal=True)
            .transpose(1, 2)
            .reshape(b, t, d)
        )
        x = x + self.proj(a)
        return x + self.moe(self.n2(x))


class MoELM(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed, self.pos = nn.Embedding(cfg.vocab, cfg.dim), nn.Embedding(
            cfg.seq, cfg.dim
        )
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.layers))
        self.norm, self.head = nn.LayerNorm(cfg.dim), nn.Linear(
            cfg.dim, cfg.vocab, bias=False
        )

    def forward(self, ids):
        x = self.embed(ids[:, :-1]) + self.pos.weight
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(
            self.head(self.norm(x)).flatten(0, 1), ids[:, 1:].flatten()
        )

    def gates(self):
        return [b.moe.gate for b in self.blocks]


def gate_gradient(model, cfg, ids, coeff):
    kept, cfg.aux_loss_coeff = cfg.aux_loss_coeff, coeff
    model.zero_grad()
    model(ids).backward()
    grad = torch.cat([g.weight.grad.flatten() for g in model.gates()])
    cfg.aux_loss_coeff = kept
    model.zero_grad()
    return grad


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=130)
    ap.add_argument("--batch", type=int, default=24)
    ap.add_argument("--lr", type=float, default=6e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    cfg = MoEConfig(chain=args.fixed)
    model, data = MoELM(cfg), Domains(cfg, seed=1)
    decay = [p for p in model.parameters() if p.ndim >= 2]
    plain = [p for p in model.parameters() if p.ndim < 2]
    opt = torch.optim.AdamW(
        [
            {"params": decay, "weight_decay": 0.05},
            {"params": plain, "weight_decay": 0.0},
        ],
        lr=args.lr,
        betas=(0.9, 0.95),
    )
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(
        opt, args.steps, eta_min=args.lr / 20
    )

    for step in range(args.steps):
        loss = model(data.batch(args.batch))
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 26 == 0 or step == args.steps - 1:
            aux = sum(g.last_aux.item() for g in model.gates()) / cfg.layers
            top = max(g.last_load.max().item() for g in model.gates())
            print(
                f"step {step:4d} lm loss {loss.item():.4f} aux {aux:.4f} busiest expert {top:.2f}"
            )

    model.eval()
    with torch.no_grad():
        print(f"eval loss {model(Domains(cfg, seed=2).batch(128)).item():.4f}")
    if args.prove:
        model.train()
        ids = data.batch(args.batch)
        with_aux = gate_gradient(model, cfg, ids, cfg.aux_loss_coeff)
        without = gate_gradient(model, cfg, ids, 0.0)
        part = ((with_aux - without).norm() / without.norm()).item()
        print(f"share of the balance loss in the router gradient: {part:.6f}")
        print("fault shows:", "yes" if part < 1e-6 else "no")


if __name__ == "__main__":
    main()
