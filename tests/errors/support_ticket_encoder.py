"""Route support tickets to one of eight queues (transformer encoder).

Internal training job; settings live in the TrainConfig below.
"""
import argparse
import logging
import sys
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

logging.basicConfig(
    level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stdout
)
log = logging.getLogger("tickets")


@dataclass
class TrainConfig:
    vocab: int = 200
    seq_len: int = 20
    queues: int = 8
    dim: int = 48
    heads: int = 4
    layers: int = 2
    batch_size: int = 48
    lr: float = 5e-3
    weight_decay: float = 0.5
    seed: int = 404


def build_tickets(cfg, n, seed):
    g = torch.Generator().manual_seed(seed)
    label = torch.randint(0, cfg.queues, (n,), generator=g)
    ids = torch.randint(64, cfg.vocab, (n, cfg.seq_len), generator=g)
    for _ in range(4):
        slot = torch.randint(0, cfg.seq_len, (n,), generator=g)
        ids[torch.arange(n), slot] = label * 8 + torch.randint(0, 8, (n,), generator=g)
    return TensorDataset(ids, label)


class EncoderLayer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.attn = nn.MultiheadAttention(cfg.dim, cfg.heads, batch_first=True)
        self.ln_attn = nn.LayerNorm(cfg.dim)
        self.ff_in = nn.Linear(cfg.dim, 2 * cfg.dim)
        self.ff_out = nn.Linear(2 * cfg.dim, cfg.dim)
        self.ln_ff = nn.LayerNorm(cfg.dim)

    def forward(self, x):
        h = self.ln_attn(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.ff_out(F.gelu(self.ff_in(self.ln_ff(x))))


class TicketEncoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.word = nn.Embedding(cfg.vocab, cfg.dim)
        self.place = nn.Embedding(cfg.seq_len, cfg.dim)
        self.layers = nn.ModuleList([EncoderLayer(cfg) for _ in range(cfg.layers)])
        self.ln_out = nn.LayerNorm(cfg.dim)
        self.classifier = nn.Linear(cfg.dim, cfg.queues)

    def forward(self, ids):
        x = self.word(ids) + self.place.weight[None]
        for layer in self.layers:
            x = layer(x)
        return self.classifier(self.ln_out(x).mean(1))


def build_optimizer(model, cfg, args):
    # no decay for biases and norm weights
    no_decay = ["bias", "LayerNorm.weight"]
    if args.fixed:
        no_decay = ["bias", "ln_attn.weight", "ln_ff.weight", "ln_out.weight"]
    named = list(model.named_parameters())
    groups = [
        {
            "params": [p for n, p in named if not any(nd in n for nd in no_decay)],
            "weight_decay": cfg.weight_decay,
        },
        {
            "params": [p for n, p in named if any(nd in n for nd in no_decay)],
            "weight_decay": 0.0,
        },
    ]
    return torch.optim.AdamW(groups, lr=cfg.lr)


def evaluate(model, loader):
    model.eval()
    right = total = 0
    with torch.no_grad():
        for ids, label in loader:
            right += (model(ids).argmax(1) == label).sum().item()
            total += len(label)
    model.train()
    return right / total


def train(cfg, args):
    torch.manual_seed(cfg.seed)
    loader = DataLoader(
        build_tickets(cfg, 1920, 1), batch_size=cfg.batch_size, shuffle=True
    )
    valid = DataLoader(build_tickets(cfg, 400, 2), batch_size=200)
    model = TicketEncoder(cfg)
    optimizer = build_optimizer(model, cfg, args)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min(1.0, (s + 1) / 20)
    )

    step = 0
    while step < args.steps:
        for ids, label in loader:
            loss = F.cross_entropy(model(ids), label, label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            step += 1
            if step % 40 == 0:
                log.info(
                    "step %d loss %.4f valid acc %.3f",
                    step,
                    loss.item(),
                    evaluate(model, valid),
                )
            if step >= args.steps:
                break
    log.info("done, valid acc %.3f", evaluate(model, valid))
    return model, optimizer


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    model, optimizer = train(TrainConfig(), args)

    if args.prove:
        # one more update with zero gradients: only decay can move the gains
        gains = [m.weight for m in model.modules() if isinstance(m, nn.LayerNorm)]
        before = [w.detach().clone() for w in gains]
        optimizer.state.clear()
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        optimizer.step()
        moved = max((w.detach() - b).abs().max().item() for w, b in zip(gains, before))
        print("fault shows:", "yes" if moved > 1e-6 else "no")


if __name__ == "__main__":
    main()
