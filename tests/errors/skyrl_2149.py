"""LoRA tuning in bf16 with fp32 master weights, with a roll-back to the best adapter.

Phase 1 tunes the adapter, phase 2 tries an aggressive learning rate, phase 3 loads the
adapter saved after phase 1 (weights only) and goes on with a low rate.
"""
import argparse
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

FEATURES, CLASSES = 24, 6


class LoRALinear(nn.Module):
    def __init__(self, base, rank=6, alpha=12):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.A = nn.Parameter(
            torch.randn(rank, base.in_features) / base.in_features**0.5
        )
        self.B = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scaling = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scaling * (x @ self.A.T) @ self.B.T


class Net(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.inp = LoRALinear(nn.Linear(FEATURES, width))
        self.mid = LoRALinear(nn.Linear(width, width))
        self.out = LoRALinear(nn.Linear(width, CLASSES))

    def forward(self, x):
        return self.out(torch.tanh(self.mid(torch.tanh(self.inp(x))))).float()

    def adapter(self):
        return {n: p for n, p in self.named_parameters() if p.requires_grad}


class MasterAdam:
    """Adam on fp32 copies of low-precision parameters; copies go back after every update."""

    def __init__(self, params, lr):
        self.live = list(params)
        self.masters = [p.detach().float().clone().requires_grad_() for p in self.live]
        self.inner = torch.optim.Adam(self.masters, lr=lr)

    def set_lr(self, lr):
        for g in self.inner.param_groups:
            g["lr"] = lr

    def zero_grad(self):
        for p in self.live:
            p.grad = None

    @torch.no_grad()
    def reload_model_params(self):
        for m, p in zip(self.masters, self.live):
            m.copy_(p.float())

    @torch.no_grad()
    def step(self):
        for m, p in zip(self.masters, self.live):
            m.grad = p.grad.float()
        self.inner.step()
        for m, p in zip(self.masters, self.live):
            p.copy_(m.to(p.dtype))

    def state_dict(self):
        return dict(
            inner=self.inner.state_dict(),
            masters=[m.detach().clone() for m in self.masters],
        )

    @torch.no_grad()
    def load_state_dict(self, state):
        self.inner.load_state_dict(state["inner"])
        for m, s in zip(self.masters, state["masters"]):
            m.copy_(s)


class Worker:
    def __init__(self, lr, fixed):
        self.model = Net().to(torch.bfloat16)
        self.optimizer = MasterAdam(self.model.adapter().values(), lr)
        self.fixed = fixed

    def save_checkpoint(self, path):
        torch.save(
            dict(
                adapter={
                    n: p.detach().clone() for n, p in self.model.adapter().items()
                },
                optimizer=self.optimizer.state_dict(),
            ),
            path,
        )

    @torch.no_grad()
    def load_checkpoint(self, path, load_optimizer_states):
        ckpt = torch.load(path, weights_only=True)
        for n, p in self.model.adapter().items():
            p.copy_(ckpt["adapter"][n])
        if load_optimizer_states:
            self.optimizer.load_state_dict(ckpt["optimizer"])
        elif self.fixed:
            self.optimizer.reload_model_params()

    def train_step(self, x, y):
        loss = F.cross_entropy(self.model(x.to(torch.bfloat16)), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def evaluate(self, x, y):
        logits = self.model(x.to(torch.bfloat16))
        return (
            F.cross_entropy(logits, y).item(),
            (logits.argmax(1) == y).float().mean().item(),
        )


def make_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.Generator().manual_seed(500)
    w1, w2 = torch.randn(FEATURES, 16, generator=t), torch.randn(
        16, CLASSES, generator=t
    )
    x = torch.randn(n, FEATURES, generator=g)
    y = (
        torch.tanh(x @ w1 / 3) @ w2 + 0.3 * torch.randn(n, CLASSES, generator=g)
    ).argmax(1)
    return x, y


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument(
        "--steps", type=int, default=180, help="total over the three phases"
    )
    ap.add_argument("--batch-size", type=int, default=64)
    ap.add_argument("--lr", type=float, default=1e-2)
    ap.add_argument("--probe-lr", type=float, default=8e-2)
    ap.add_argument("--final-lr", type=float, default=5e-4)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(1)
    train, val = make_data(2048, 2), make_data(512, 3)
    worker = Worker(args.lr, args.fixed)
    g = torch.Generator().manual_seed(4)
    third = max(args.steps // 3, 1)
    moved = None

    with tempfile.TemporaryDirectory() as folder:
        best = os.path.join(folder, "after_phase1.pt")
        for step in range(args.steps):
            if step == third:
                worker.save_checkpoint(best)
                print("saved; val loss %.4f acc %.3f" % worker.evaluate(*val))
                worker.optimizer.set_lr(args.probe_lr)
            elif step == 2 * third:
                print(
                    "after the probe phase: val loss %.4f acc %.3f"
                    % worker.evaluate(*val)
                )
                worker.load_checkpoint(best, load_optimizer_states=False)
                worker.optimizer.set_lr(args.final_lr)
                print("restored; val loss %.4f acc %.3f" % worker.evaluate(*val))
                restored = [p.detach().float().clone() for p in worker.optimizer.live]
            idx = torch.randint(0, len(train[0]), (args.batch_size,), generator=g)
            loss = worker.train_step(train[0][idx], train[1][idx])
            if step == 2 * third:
                moved = max(
                    (p.detach().float() - r).abs().max().item()
                    for p, r in zip(worker.optimizer.live, restored)
                )
            if step % 15 == 0 or step == args.steps - 1:
                print(f"step {step:3d} loss {loss:.4f}")

    print("final val loss %.4f acc %.3f" % worker.evaluate(*val))
    if args.prove:
        bound = 10 * args.final_lr + 2**-8 * max(
            r.abs().max().item() for r in restored
        )
        print(
            f"largest move of a weight in the first update after the restore: {moved:.5f} (at most {bound:.5f} expected)"
        )
        print("fault shows:", "yes" if moved > bound else "no")


if __name__ == "__main__":
    main()
