"""Train a small classifier whose weights live in bfloat16 (no fp32 master copy).

The optimizer keeps its moments in float32 and writes the weights back with
stochastic rounding, so small steps are not lost on average.
"""
import argparse
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


def copy_stochastic_(target, source, generator):
    """target (bf16) <- source (fp32), rounding up or down at random."""
    bits = source.contiguous().view(torch.int32)
    noise = torch.randint(
        0, 1 << 16, source.shape, dtype=torch.int32, generator=generator
    )
    bits = (bits + noise) & -65536
    target.copy_(bits.view(torch.float32))


class AdamWBF16(torch.optim.Optimizer):
    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.99),
        eps=1e-8,
        weight_decay=0.0,
        decay_with_update=False,
        seed=0,
    ):
        defaults = dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        super().__init__(params, defaults)
        self.decay_with_update = decay_with_update
        self.generator = torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            lr, wd = group["lr"], group["weight_decay"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["exp_avg"] = torch.zeros_like(p, dtype=torch.float32)
                    state["exp_avg_sq"] = torch.zeros_like(p, dtype=torch.float32)
                state["step"] += 1
                grad = p.grad.float()
                state["exp_avg"].lerp_(grad, 1 - beta1)
                state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
                correct1 = 1 - beta1 ** state["step"]
                correct2 = 1 - beta2 ** state["step"]
                denom = (state["exp_avg_sq"] / correct2).sqrt_().add_(group["eps"])
                if not self.decay_with_update:
                    p.mul_(1 - lr * wd)
                value = p.float()
                if self.decay_with_update:
                    value.mul_(1 - lr * wd)
                value.addcdiv_(state["exp_avg"], denom, value=-lr / correct1)
                copy_stochastic_(p, value, self.generator)


class Net(nn.Module):
    def __init__(self, inputs, hidden, classes):
        super().__init__()
        self.fc1 = nn.Linear(inputs, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, classes)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


@dataclass
class Data:
    train_x: torch.Tensor
    train_y: torch.Tensor
    test_x: torch.Tensor
    test_y: torch.Tensor


def make_data(seed, n_train=400, n_test=1000, dim=32, classes=6, noise=0.25):
    g = torch.Generator().manual_seed(seed)
    basis = torch.randn(dim, classes, generator=g)
    x = torch.randn(n_train + n_test, dim, generator=g)
    clean = (x @ basis).argmax(1)
    y = clean.clone()
    flip = torch.rand(n_train, generator=g) < noise
    y[:n_train][flip] = torch.randint(0, classes, (int(flip.sum()),), generator=g)
    x = x.to(torch.bfloat16)
    return Data(x[:n_train], y[:n_train], x[n_train:], clean[n_train:])


def weight_norm(model):
    return (
        torch.stack(
            [
                p.float().norm()
                for n, p in model.named_parameters()
                if n.endswith("weight")
            ]
        )
        .norm()
        .item()
    )


@torch.no_grad()
def evaluate(model, x, y):
    logits = model(x).float()
    return (
        F.cross_entropy(logits, y).item(),
        (logits.argmax(1) == y).float().mean().item(),
    )


def idle_shrinkage(model, args, steps=100):
    """Norm of a copy of the weights after `steps` optimizer steps without any gradient."""
    copies = [
        nn.Parameter(p.detach().clone())
        for n, p in model.named_parameters()
        if n.endswith("weight")
    ]
    opt = AdamWBF16(
        copies,
        lr=args.lr,
        weight_decay=args.weight_decay,
        decay_with_update=args.fixed,
        seed=5,
    )
    before = torch.stack([c.detach().float().norm() for c in copies]).norm()
    for c in copies:
        c.grad = torch.zeros_like(c)
    for _ in range(steps):
        opt.step()
    after = torch.stack([c.detach().float().norm() for c in copies]).norm()
    return (after / before).item(), (1 - args.lr * args.weight_decay) ** steps


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--weight-decay", type=float, default=0.6)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    data = make_data(seed=11)
    model = Net(32, args.hidden, 6).to(torch.bfloat16)
    decay = [p for n, p in model.named_parameters() if n.endswith("weight")]
    no_decay = [p for n, p in model.named_parameters() if n.endswith("bias")]
    optimizer = AdamWBF16(
        [{"params": decay}, {"params": no_decay, "weight_decay": 0.0}],
        lr=args.lr,
        weight_decay=args.weight_decay,
        decay_with_update=args.fixed,
        seed=args.seed,
    )
    order = torch.Generator().manual_seed(args.seed + 1)

    for step in range(args.steps):
        pick = torch.randint(0, len(data.train_x), (args.batch_size,), generator=order)
        logits = model(data.train_x[pick])
        loss = F.cross_entropy(logits.float(), data.train_y[pick])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0 or step == args.steps - 1:
            test_loss, test_acc = evaluate(model, data.test_x, data.test_y)
            print(
                f"step {step:4d} | train loss {loss.item():.4f} | test loss {test_loss:.4f} "
                f"| test acc {test_acc:.3f} | weight norm {weight_norm(model):.2f}"
            )

    if args.prove:
        got, want = idle_shrinkage(model, args)
        print(
            f"weights after 100 steps without gradient: {got:.4f} of their norm, asked {want:.4f}"
        )
        print("fault shows:", "yes" if abs(got - want) > 0.02 else "no")


if __name__ == "__main__":
    main()
