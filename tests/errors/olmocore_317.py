"""Pretraining of a small decoder; the optimizer leaves out updates at loss spikes.

After allenai/OLMo-core, pull request 317.
"""

import argparse
from collections import deque
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    vocab: int = 32
    n_train: int = 1280
    n_val: int = 256
    seq_len: int = 24
    dim: int = 48
    heads: int = 4
    layers: int = 2
    batch_size: int = 32
    epochs: int = 3
    lr: float = 1.2e-2
    weight_decay: float = 0.1
    warmup: int = 12
    seed: int = 11


def adamw_step_v1(
    p, *, lr, betas, eps, weight_decay, exp_avg, exp_avg_sq, step, step_factor
):
    beta1, beta2 = betas
    p.mul_(1 - step_factor * (lr * weight_decay))
    exp_avg.lerp_(p.grad, step_factor * (1 - beta1))
    exp_avg_sq.mul_(1 - step_factor * (1 - beta2))
    exp_avg_sq.add_(step_factor * p.grad * p.grad, alpha=1 - beta2)
    bias_correction1 = 1 - beta1 ** (step + 1)
    bias_correction2 = 1 - beta2 ** (step + 1)
    denom = (exp_avg_sq.sqrt() / bias_correction2.sqrt()).add_(eps)
    p.add_(-(lr / bias_correction1) * step_factor * exp_avg / denom)


def adamw_step_v2(
    p, *, lr, betas, eps, weight_decay, exp_avg, exp_avg_sq, step, step_factor
):
    beta1, beta2 = betas
    p.mul_(1 - step_factor * (lr * weight_decay))
    exp_avg.lerp_(p.grad, step_factor * (1 - beta1))
    exp_avg_sq.mul_(1 - step_factor * (1 - beta2))
    exp_avg_sq.add_(step_factor * p.grad * p.grad, alpha=1 - beta2)
    step.add_(step_factor)
    bias_correction1 = 1 - beta1 ** step.clamp(min=1)
    bias_correction2 = 1 - beta2 ** step.clamp(min=1)
    denom = (exp_avg_sq.sqrt() / bias_correction2.sqrt()).add_(eps)
    p.add_(-(lr / bias_correction1) * step_factor * exp_avg / denom)


class SkipStepAdamW(torch.optim.Optimizer):
    def __init__(
        self,
        params,
        lr,
        betas=(0.9, 0.95),
        eps=1e-8,
        weight_decay=0.1,
        window=64,
        sigma=6.0,
        update_fn=adamw_step_v1,
    ):
        super().__init__(
            params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        )
        self.losses, self.sigma = deque(maxlen=window), sigma
        self.update_fn = update_fn
        self.latest_loss = None

    def step_factor(self):
        past = torch.tensor(list(self.losses))
        self.losses.append(self.latest_loss)
        if len(past) < 32:
            return torch.tensor(1.0)
        return (
            torch.tensor(self.latest_loss) - past.mean() <= self.sigma * past.std()
        ).float()

    @torch.no_grad()
    def step(self, closure=None):
        factor = self.step_factor()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = torch.zeros(())
                    state["exp_avg"] = torch.zeros_like(p)
                    state["exp_avg_sq"] = torch.zeros_like(p)
                self.update_fn(
                    p,
                    lr=group["lr"],
                    betas=group["betas"],
                    eps=group["eps"],
                    weight_decay=group["weight_decay"],
                    step_factor=factor,
                    **state,
                )


class MarkovText(Dataset):
    def __init__(self, n, cfg, seed):
        rule = torch.Generator().manual_seed(5)
        logits = 2.2 * torch.randn(cfg.vocab, cfg.vocab, generator=rule)
        shift = torch.randint(0, cfg.vocab, (cfg.vocab,), generator=rule)
        g = torch.Generator().manual_seed(seed)
        ids = torch.randint(0, cfg.vocab, (n, cfg.seq_len + 1), generator=g)
        for t in range(2, cfg.seq_len + 1):
            ctx = (
                ids[:, t - 1] + shift[ids[:, t - 2]] * (ids[:, t - 2] % 2)
            ) % cfg.vocab
            ids[:, t] = torch.multinomial(logits[ctx].softmax(-1), 1, generator=g)[:, 0]
        self.ids = ids

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i, :-1], self.ids[i, 1:]


class Decoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tok, self.pos = nn.Embedding(cfg.vocab, cfg.dim), nn.Embedding(
            cfg.seq_len, cfg.dim
        )
        nn.init.normal_(self.tok.weight, std=0.1)
        nn.init.normal_(self.pos.weight, std=0.1)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                cfg.dim, cfg.heads, 2 * cfg.dim, 0.0, batch_first=True, norm_first=True
            )
            for _ in range(cfg.layers)
        )
        self.norm, self.head = nn.LayerNorm(cfg.dim), nn.Linear(
            cfg.dim, cfg.vocab, bias=False
        )
        self.register_buffer(
            "mask",
            torch.triu(torch.ones(cfg.seq_len, cfg.seq_len, dtype=torch.bool), 1),
        )

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight
        for block in self.blocks:
            x = block(x, src_mask=self.mask)
        return self.head(self.norm(x))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    tot = sum(
        F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item() * len(x)
        for x, y in loader
    )
    return tot / len(loader.dataset)


def train(cfg, update_fn):
    torch.manual_seed(cfg.seed)
    loader = DataLoader(
        MarkovText(cfg.n_train, cfg, 1), cfg.batch_size, shuffle=True, drop_last=True
    )
    val_loader = DataLoader(MarkovText(cfg.n_val, cfg, 2), 128)
    model = Decoder(cfg)
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    opt = SkipStepAdamW(
        [{"params": decay}, {"params": rest, "weight_decay": 0.0}],
        lr=cfg.lr,
        weight_decay=cfg.weight_decay,
        update_fn=update_fn,
    )
    total = cfg.epochs * len(loader)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt,
        lambda s: min(
            (s + 1) / cfg.warmup, max(0.1, (total - s) / (total - cfg.warmup))
        ),
    )
    moved = []
    for epoch in range(cfg.epochs):
        model.train()
        running = 0.0
        for x, y in loader:
            opt.zero_grad()
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.latest_loss = loss.item()
            before = model.head.weight.detach().clone()
            opt.step()
            move = (model.head.weight.detach() - before).pow(2).mean().sqrt()
            moved.append(move.item() / sched.get_last_lr()[0])
            sched.step()
            running += loss.item()
        val = evaluate(model, val_loader)
        mean, last = running / len(loader), sum(moved[-len(loader) :]) / len(loader)
        print(
            f"epoch {epoch} train {mean:.4f} val {val:.4f} head update/lr {last:.3f}",
            flush=True,
        )
    count = opt.state[model.head.weight]["step"].item()
    return count, len(moved), sum(moved) / len(moved)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=Config.seed)
    parser.add_argument("--epochs", type=int, default=Config.epochs)
    parser.add_argument("--lr", type=float, default=Config.lr)
    args = parser.parse_args()
    torch.set_num_threads(1)
    cfg = Config(seed=args.seed, epochs=args.epochs, lr=args.lr)
    count, steps, moved = train(cfg, adamw_step_v2 if args.fixed else adamw_step_v1)
    if args.prove:
        print(f"updates of the head are {moved:.3f} of the rate")
        print(f"the optimizer's counter is {count:.0f} after {steps} steps")
        print("fault shows:", "yes" if count < steps / 2 else "no", flush=True)


if __name__ == "__main__":
    main()
