"""Elevator doors about to fail, from short sensor windows: a transformer whose weights exist in bfloat16 only.

There is no float32 master copy. The optimiser (AdamW, own) keeps for every weight the part of the
update that bfloat16 could not take up and adds it the next time (Kahan). The layers nearer to the
input learn more slowly (layer-wise rates). The logits go to float32 for the loss. The run is broken
off in the middle and resumed, bit by bit the same; a float32 copy is what gets evaluated and shipped.
"""
import argparse
import copy
import io
import math
from dataclasses import dataclass
import torch
import torch.nn as nn
import torch.nn.functional as F


SENSORS = 6


@dataclass(frozen=True)
class Config:
    steps: int = 240
    batch: int = 48
    tokens: int = 12
    dim: int = 32
    depth: int = 2
    lr: float = 4e-3
    layer_decay: float = 0.8
    weight_decay: float = 0.02
    warmup: int = 20
    eval_every: int = 40
    seed: int = 59


def windows(n, cfg, gen):
    """Motor current, vibration and so on; a failing door drags late in the cycle and shakes."""
    x = torch.randn(n, cfg.tokens, SENSORS, generator=gen)
    y = (torch.rand(n, generator=gen) < 0.4).float()
    t = torch.linspace(0, 1, cfg.tokens)
    drag = (
        y.unsqueeze(1)
        * torch.sigmoid(12 * (t - 0.6))
        * (0.6 + torch.rand(n, 1, generator=gen))
    )
    shake = y.unsqueeze(1) * torch.sin(math.pi * torch.arange(cfg.tokens) + 1.57) * 0.7
    x[:, :, 0] += drag
    x[:, :, 1] += shake
    x[:, :, 2] = 0.6 * x[:, :, 2] + 0.4 * x[:, :, 0].roll(1, 1)
    return x, y


class Block(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.n1, self.n2, self.heads = nn.LayerNorm(dim), nn.LayerNorm(dim), heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            self.qkv(self.n1(x))
            .view(b, t, 3, self.heads, d // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        x = x + self.proj(
            F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)
        )
        return x + self.down(F.gelu(self.up(self.n2(x))))


class DoorNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.inp = nn.Linear(SENSORS, cfg.dim)
        self.pos = nn.Parameter(0.02 * torch.randn(cfg.tokens, cfg.dim))
        self.blocks = nn.ModuleList(Block(cfg.dim) for _ in range(cfg.depth))
        self.norm, self.head = nn.LayerNorm(cfg.dim), nn.Linear(cfg.dim, 1)

    def forward(self, x):
        x = self.inp(x.to(self.pos.dtype)) + self.pos
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x.mean(1))).squeeze(1).float()

    def groups(self, cfg):
        """Depth 0 is the input; the head has the full rate. Vectors are not decayed."""

        def depth(name):
            if name.startswith(("inp", "pos")):
                return 0
            return (
                int(name.split(".")[1]) + 1
                if name.startswith("blocks")
                else cfg.depth + 1
            )

        return [
            {
                "params": [p],
                "weight_decay": cfg.weight_decay * (p.dim() > 1 and name != "pos"),
                "lr": cfg.lr * cfg.layer_decay ** (cfg.depth + 1 - depth(name)),
            }
            for name, p in self.named_parameters()
        ]


class KahanAdamW(torch.optim.Optimizer):
    def __init__(self, groups, betas=(0.9, 0.98), eps=1e-6):
        super().__init__(groups, dict(lr=1e-3, betas=betas, eps=eps, weight_decay=0.0))

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            b1, b2 = g["betas"]
            for p in g["params"]:
                s = self.state[p]
                if not s:
                    s["t"] = torch.zeros(())
                    s["m"], s["lost"] = torch.zeros_like(p), torch.zeros_like(p)
                    # float32 here: a decay of 0.98 would get lost in bfloat16's rounding
                    s["v"] = torch.zeros_like(p, dtype=torch.float32)
                s["t"] += 1
                t, grad = s["t"].item(), p.grad.float()
                m = s["m"].float().mul_(b1).add_(grad, alpha=1 - b1)
                s["m"].copy_(m)
                s["v"].mul_(b2).addcmul_(grad, grad, value=1 - b2)
                update = (
                    m / (1 - b1**t) / ((s["v"] / (1 - b2**t)).sqrt() + g["eps"])
                    + g["weight_decay"] * p.float()
                )
                wanted = (
                    s["lost"].float() - g["lr"] * update
                )  # what did not fit before, and the new
                before = p.float()
                p.copy_(before + wanted)  # rounds to bfloat16
                s["lost"].copy_(wanted - (p.float() - before))

    def load_state_dict(self, state):
        """The stock loader casts the state to the dtype of the weights; `v` and `t` must stay float32."""
        super().load_state_dict(state)
        flat = [p for g in self.param_groups for p in g["params"]]
        for i, s in state["state"].items():
            for k, val in s.items():
                self.state[flat[i]][k] = val.clone()


class Trainer:
    def __init__(self, cfg, data):
        self.cfg, self.data = cfg, data
        torch.manual_seed(cfg.seed)
        self.model = DoorNet(cfg).to(torch.bfloat16)
        self.opt = KahanAdamW(self.model.groups(cfg))
        self.sched = torch.optim.lr_scheduler.LambdaLR(
            self.opt,
            lambda s: min(
                (s + 1) / cfg.warmup,
                0.5 * (1 + math.cos(math.pi * min(1.0, s / cfg.steps))) + 0.02,
            ),
        )
        self.gen = torch.Generator().manual_seed(cfg.seed + 1)
        self.step, self.log = 0, []

    def run(self, until):
        x, y = self.data["train"]
        while self.step < until:
            rows = torch.randint(len(x), (self.cfg.batch,), generator=self.gen)
            loss = F.binary_cross_entropy_with_logits(self.model(x[rows]), y[rows])
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.sched.step()
            self.step += 1
            self.log.append(loss.item())
            if self.step % self.cfg.eval_every == 0:
                v = evaluate(shipped(self.model), *self.data["valid"])
                print(
                    f"step {self.step:4d} loss {sum(self.log[-20:]) / len(self.log[-20:]):.4f} valid {v[0]:.4f} AUC {v[1]:.4f}"
                )

    def state(self):
        return {
            "model": self.model.state_dict(),
            "opt": self.opt.state_dict(),
            "sched": self.sched.state_dict(),
            "gen": self.gen.get_state(),
            "step": self.step,
            "log": list(self.log),
        }

    def restore(self, s):
        for part in ("model", "opt", "sched"):
            getattr(self, part).load_state_dict(s[part])
        self.gen.set_state(s["gen"])
        self.step, self.log = s["step"], s["log"]


def shipped(model):
    return copy.deepcopy(model).float().eval().requires_grad_(False)


def evaluate(model, x, y):
    with torch.no_grad():
        z = model(x)
    ranks = z.argsort().argsort().float() + 1
    pos = y.sum()
    auc = (ranks[y > 0].sum() - pos * (pos + 1) / 2) / (pos * (len(y) - pos))
    return F.binary_cross_entropy_with_logits(z, y).item(), auc.item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=Config.steps)
    cfg = Config(steps=ap.parse_args().steps)
    gen = torch.Generator().manual_seed(cfg.seed + 2)
    data = {"train": windows(2400, cfg, gen), "valid": windows(600, cfg, gen)}
    first = Trainer(cfg, data)
    start = evaluate(shipped(first.model), *data["valid"])
    first.run(half := cfg.steps // 2)
    file = io.BytesIO()
    torch.save(first.state(), file)
    first.run(min(half + 5, cfg.steps))  # a few steps more, to compare with
    file.seek(0)
    second = Trainer(cfg, data)
    second.restore(torch.load(file))
    second.run(min(half + 5, cfg.steps))
    assert second.log == first.log, "the resumed run must be the same run"
    assert all(
        torch.equal(a, b)
        for a, b in zip(first.model.parameters(), second.model.parameters())
    )
    second.run(cfg.steps)
    end = evaluate(shipped(second.model), *data["valid"])
    assert {p.dtype for p in second.model.parameters()} == {torch.bfloat16}
    assert len({g["lr"] for g in second.opt.param_groups}) == cfg.depth + 2
    print(
        f"valid loss {start[0]:.4f} -> {end[0]:.4f}, AUC {start[1]:.4f} -> {end[1]:.4f}"
    )
    if cfg.steps >= Config.steps:
        assert end[0] < 0.7 * start[0] and end[1] > 0.9, (start, end)


if __name__ == "__main__":
    main()
