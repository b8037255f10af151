"""Heartbeat classifier that can stop early (patches, transformer, an exit after each block).

For the first half of the training the exits are trained jointly with the trunk (deep
supervision); from then on they read detached features, and only the last one shapes the
trunk. The pooler is kept for compatibility with older checkpoints; nothing here uses it.
The positions are frozen at first.
"""

import argparse
import dataclasses
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


@dataclasses.dataclass
class ModelConfig:
    samples: int = 192
    patch: int = 12
    width: int = 48
    depth: int = 4
    heads: int = 4
    classes: int = 5
    drop_path: float = 0.15


@dataclasses.dataclass
class TrainConfig:
    steps: int = 160
    batch_size: int = 48
    lr: float = 4e-3
    warmup: float = 0.1
    weight_decay: float = 0.05
    smoothing: float = 0.1
    mixup: float = 0.2
    positions_from: float = 0.25
    ema: float = 0.97
    confidence: float = 0.7
    seed: int = 42


def beats(n, seed, cfg):
    """P, QRS and T waves; the classes differ in what is missing, wide, late or upside down."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, cfg.classes, (n,), generator=g)
    t = torch.linspace(0, 1, cfg.samples)
    shift = 0.04 * torch.randn(n, 1, generator=g).clamp(-2, 2)
    p_size = torch.where(y == 1, 0.0, 0.25)[:, None]
    width = torch.where(y == 2, 0.035, 0.015)[:, None]
    t_size = torch.where(y == 3, -0.35, 0.35)[:, None]
    late = torch.where(y == 4, 0.08, 0.0)[:, None]

    def bump(at, spread):
        return torch.exp(-(((t - shift - at) / spread) ** 2) / 2)

    x = p_size * bump(0.35 - late, 0.025) + bump(0.5, width)
    x = x - 0.3 * bump(0.54, width) + t_size * bump(0.7, 0.05)
    x = x * (0.7 + 0.6 * torch.rand(n, 1, generator=g))
    wander = 0.1 * torch.sin(2 * math.pi * (t + torch.rand(n, 1, generator=g)))
    return x + wander + 0.06 * torch.randn(x.shape, generator=g), y


class DropPath(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        if not self.training or self.p == 0:
            return x
        keep = 1 - self.p
        return x * x.new_empty(len(x), 1, 1).bernoulli_(keep) / keep


class Block(nn.Module):
    def __init__(self, cfg, drop):
        super().__init__()
        w = cfg.width
        self.norm1, self.norm2 = nn.LayerNorm(w), nn.LayerNorm(w)
        self.attn = nn.MultiheadAttention(w, cfg.heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(w, 2 * w), nn.GELU(), nn.Linear(2 * w, w))
        self.drop_path = DropPath(drop)

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.drop_path(self.attn(h, h, h, need_weights=False)[0])
        return x + self.drop_path(self.mlp(self.norm2(x)))


class EarlyExitNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.embed = nn.Conv1d(1, cfg.width, cfg.patch, cfg.patch)
        count = cfg.samples // cfg.patch
        self.positions = nn.Parameter(0.5 * torch.randn(1, count, cfg.width))
        rates = torch.linspace(0, cfg.drop_path, cfg.depth).tolist()
        self.blocks = nn.ModuleList(Block(cfg, r) for r in rates)
        self.exits = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(cfg.width), nn.Linear(cfg.width, cfg.classes))
            for _ in range(cfg.depth)
        )
        self.pooler = nn.Linear(cfg.width, cfg.width)

    def forward(self, x, detach_exits=False):
        x = self.embed(x[:, None]).transpose(1, 2) + self.positions
        logits = []
        for block, leave in zip(self.blocks, self.exits):
            x = block(x)
            last = len(logits) == self.cfg.depth - 1
            features = x.mean(1)
            logits.append(
                leave(features.detach() if detach_exits and not last else features)
            )
        return logits, torch.tanh(self.pooler(features))


def param_groups(model, weight_decay):
    decay, rest = [], []
    for name, p in model.named_parameters():
        (rest if p.ndim < 2 or name == "positions" else decay).append(p)
    return [
        {"params": rest, "weight_decay": 0.0},
        {"params": decay, "weight_decay": weight_decay},
    ]


@torch.inference_mode()
def evaluate(model, loader, confidence):
    """Accuracy of each exit, and with stopping at the first exit that is sure."""
    model.eval()
    right, early, used, n = torch.zeros(model.cfg.depth), 0, 0, 0
    for x, y in loader:
        p = torch.stack(model(x)[0]).softmax(-1)
        right += (p.argmax(-1) == y).sum(1)
        sure = p.amax(-1) > confidence
        sure[-1] = True
        first = sure.int().argmax(0)
        early += (p[first, torch.arange(len(y))].argmax(-1) == y).sum().item()
        used += (first + 1).sum().item()
        n += len(y)
    exits = " ".join(f"{v:.3f}" for v in (right / n).tolist())
    return f"exits {exits} early {early / n:.3f} with {used / n:.2f} blocks"


def main(cfg):
    torch.manual_seed(cfg.seed)
    torch.set_num_threads(1)
    mcfg = ModelConfig()
    train = DataLoader(
        TensorDataset(*beats(960, 1, mcfg)),
        cfg.batch_size,
        shuffle=True,
        drop_last=True,
    )
    test = DataLoader(TensorDataset(*beats(400, 2, mcfg)), 150)
    model = EarlyExitNet(mcfg)
    model.positions.requires_grad_(False)
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(cfg.ema)
    )
    optimizer = torch.optim.AdamW(param_groups(model, cfg.weight_decay), lr=cfg.lr)
    warmup = max(1, int(cfg.warmup * cfg.steps))

    step = 0
    while step < cfg.steps:
        model.train()
        for x, y in train:
            if step < warmup:
                lr = cfg.lr * (step + 1) / warmup
            else:
                done = (step - warmup) / (cfg.steps - warmup)
                lr = 0.5 * cfg.lr * (1 + math.cos(math.pi * done))
            for group in optimizer.param_groups:
                group["lr"] = lr
            if step == int(cfg.positions_from * cfg.steps):
                model.positions.requires_grad_(True)
            joint = step < cfg.steps // 2

            target = F.one_hot(y, mcfg.classes).float()
            target = target * (1 - cfg.smoothing) + cfg.smoothing / mcfg.classes
            lam = torch.distributions.Beta(cfg.mixup, cfg.mixup).sample()
            x = lam * x + (1 - lam) * x.flip(0)
            target = lam * target + (1 - lam) * target.flip(0)

            logits, _ = model(x, detach_exits=not joint)
            losses = torch.stack([F.cross_entropy(z, target) for z in logits])
            weights = torch.ones(len(losses))
            if joint:
                weights[:-1] = 0.3
            loss = (weights * losses).sum() / weights.sum()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            average.update_parameters(model)
            step += 1
            if step % 10 == 0:
                print(
                    f"step {step} loss {loss.item():.4f} last {losses[-1].item():.4f}"
                )
            if step == cfg.steps:
                break
        if step % 40 == 0 or step == cfg.steps:
            print(evaluate(average.module, test, cfg.confidence))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    main(TrainConfig(steps=parser.parse_args().steps))
