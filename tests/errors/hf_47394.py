"""Profile-conditioned text generation: a few prefix vectors computed from a
feature vector, followed by the tokens of a short description."""
import argparse
from dataclasses import dataclass
from typing import Optional

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    vocab_size: int = 36
    hidden: int = 48
    layers: int = 2
    heads: int = 4
    num_prefix: int = 3
    feature_dim: int = 12
    max_text: int = 16
    bos: int = 0
    eos: int = 1


def for_causal_lm_loss(
    logits,
    labels,
    vocab_size,
    shift_labels: Optional[torch.Tensor] = None,
    ignore_index: int = -100,
):
    logits = logits.float()
    if shift_labels is None:
        labels = F.pad(labels, (0, 1), value=ignore_index)
        shift_labels = labels[..., 1:].contiguous()
    return F.cross_entropy(
        logits.reshape(-1, vocab_size),
        shift_labels.reshape(-1),
        ignore_index=ignore_index,
    )


class Layer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.attn = nn.MultiheadAttention(cfg.hidden, cfg.heads, batch_first=True)
        self.n1, self.n2 = nn.LayerNorm(cfg.hidden), nn.LayerNorm(cfg.hidden)
        self.mlp = nn.Sequential(
            nn.Linear(cfg.hidden, 4 * cfg.hidden),
            nn.GELU(),
            nn.Linear(4 * cfg.hidden, cfg.hidden),
        )

    def forward(self, x, mask):
        h = self.n1(x)
        x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.n2(x))


class PrefixLM(nn.Module):
    def __init__(self, cfg: Config, fixed: bool = False):
        super().__init__()
        self.cfg, self.fixed = cfg, fixed
        self.project = nn.Linear(cfg.feature_dim, cfg.num_prefix * cfg.hidden)
        self.tokens = nn.Embedding(cfg.vocab_size, cfg.hidden)
        self.positions = nn.Embedding(cfg.num_prefix + cfg.max_text, cfg.hidden)
        self.layers = nn.ModuleList([Layer(cfg) for _ in range(cfg.layers)])
        self.norm = nn.LayerNorm(cfg.hidden)
        self.output = nn.Linear(cfg.hidden, cfg.vocab_size)

    def forward(self, features, input_ids, labels=None):
        c = self.cfg
        prefix = self.project(features).view(-1, c.num_prefix, c.hidden)
        x = torch.cat([prefix, self.tokens(input_ids)], dim=1)
        n = x.shape[1]
        x = x + self.positions(torch.arange(n))
        mask = torch.triu(torch.ones(n, n, dtype=torch.bool), 1)
        mask[: c.num_prefix, : c.num_prefix] = False
        for layer in self.layers:
            x = layer(x, mask)
        logits = self.output(self.norm(x))
        loss = None
        if labels is not None:
            shifted_logits = logits[:, c.num_prefix : -1, :].contiguous()
            if self.fixed:
                shift_labels = labels[:, 1:].contiguous()
                loss = for_causal_lm_loss(
                    shifted_logits, None, c.vocab_size, shift_labels=shift_labels
                )
            else:
                labels = labels[:, 1:].contiguous()
                loss = for_causal_lm_loss(
                    shifted_logits.view(-1, c.vocab_size), labels.view(-1), c.vocab_size
                )
        return loss, logits[:, c.num_prefix :]


class Descriptions:
    """Feature sign pattern picks words from slots; connectives depend on the word before."""

    def __init__(self, cfg, seed):
        self.cfg = cfg
        self.g = torch.Generator().manual_seed(seed)
        gw = torch.Generator().manual_seed(99)
        self.slot_words = (torch.randperm(24, generator=gw) + 2).view(6, 2, 2)
        self.link = torch.randint(26, 36, (cfg.vocab_size,), generator=gw)

    def batch(self, n):
        feats = torch.randn(n, self.cfg.feature_dim, generator=self.g)
        ids = torch.full((n, self.cfg.max_text), self.cfg.eos)
        ids[:, 0] = self.cfg.bos
        pos = 1
        for slot in range(6):
            first = (feats[:, 2 * slot] > 0).long()
            second = (feats[:, 2 * slot + 1] > 0).long()
            word = self.slot_words[slot][first, second]
            ids[:, pos] = word
            ids[:, pos + 1] = self.link[word]
            pos += 2
        labels = ids.clone()
        labels[:, pos + 1 :] = -100
        return feats, ids, labels, pos


@torch.no_grad()
def evaluate(model, data, n=64):
    model.eval()
    feats, ids, _, length = data.batch(n)
    out = torch.full((n, 1), model.cfg.bos)
    for _ in range(length - 1):
        _, logits = model(feats, out)
        out = torch.cat([out, logits[:, -1].argmax(-1, keepdim=True)], dim=1)
    tokens = (out[:, 1:] == ids[:, 1:length]).float().mean().item()
    _, logits = model(feats, ids)
    nll = F.cross_entropy(
        logits[:, : length - 1].flatten(0, 1), ids[:, 1:length].flatten()
    ).item()
    model.train()
    return tokens, nll


def prove(model, data):
    model.eval()
    feats, ids, labels, _ = data.batch(64)
    with torch.no_grad():
        loss, logits = model(feats, ids, labels)
        own = F.cross_entropy(
            logits[:, :-1].transpose(1, 2), labels[:, 1:], ignore_index=-100
        )
    gap = abs(loss.item() - own.item())
    print(
        f"loss of the model {loss.item():.4f}, next-token cross entropy {own.item():.4f}, gap {gap:.4f}"
    )
    print("fault shows: " + ("yes" if gap > 0.02 else "no"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=180)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    cfg = Config()
    model = PrefixLM(cfg, fixed=args.fixed)
    train_data, test_data = Descriptions(cfg, args.seed), Descriptions(
        cfg, args.seed + 1000
    )
    opt = torch.optim.Adam(model.parameters(), lr=args.lr, betas=(0.9, 0.98))
    warmup = 15
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min((s + 1) / warmup, max(0.05, 1 - s / args.steps))
    )
    running = 0.0
    for step in range(1, args.steps + 1):
        feats, ids, labels, _ = train_data.batch(args.batch)
        loss, _ = model(feats, ids, labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        running = loss.item() if step == 1 else 0.9 * running + 0.1 * loss.item()
        if step % 30 == 0 or step == 1:
            print(f"step {step}/{args.steps} train loss {running:.4f}")
    tokens, nll = evaluate(model, test_data)
    print(f"generation token accuracy {tokens:.3f}, teacher-forced nll {nll:.3f}")
    if args.prove:
        prove(model, test_data)


if __name__ == "__main__":
    main()
