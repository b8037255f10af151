"""Mixture-of-experts regressor for bus delays (top-1 routing)."""
import argparse
import torch
import torch.nn as nn
import torch.nn.functional as F


def trips(n, seed):
    """Four kinds of line, each with its own law of delay."""
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(0, 4, (n,), generator=g)
    centre = torch.tensor([[1.5, 1.5], [1.5, -1.5], [-1.5, 1.5], [-1.5, -1.5]])
    place = centre[kind] + 0.5 * torch.randn(n, 2, generator=g)
    load = torch.randn(n, 6, generator=g)
    law = torch.randn(4, 6, generator=torch.Generator().manual_seed(99))
    delay = (law[kind] * load).sum(1) + torch.sin(2 * load[:, 0]) * (kind % 2)
    delay = delay + 0.15 * torch.randn(n, generator=g)
    return torch.cat([place, load], 1), delay / 2.5


class Expert(nn.Module):
    def __init__(self, d_in, hidden):
        super().__init__()
        self.fc1 = nn.Linear(d_in, hidden)
        self.fc2 = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x)))


class Router(nn.Module):
    def __init__(self, d_in, experts):
        super().__init__()
        self.gate = nn.Sequential(
            nn.Linear(d_in, 16), nn.Tanh(), nn.Linear(16, experts)
        )

    def forward(self, x):
        return self.gate(x).softmax(-1)


class BusMoE(nn.Module):
    def __init__(self, d_in=8, experts=4, hidden=12, balance=0.05, fixed=False):
        super().__init__()
        self.experts = nn.ModuleList(Expert(d_in, hidden) for _ in range(experts))
        self.router = Router(d_in, experts)
        self.balance = balance
        self.fixed = fixed
        self.extra_loss = 0.0

    def balance_loss(self, probs, chosen):
        k = len(self.experts)
        share = F.one_hot(chosen, k).float().mean(0)
        return k * (share * probs.mean(0)).sum()

    def forward(self, x):
        probs = self.router(x)
        weight, chosen = probs.max(-1)
        out = torch.zeros(len(x), 1)
        for k, expert in enumerate(self.experts):
            rows = (chosen == k).nonzero(as_tuple=True)[0]
            if len(rows):
                out = out.index_add(0, rows, expert(x[rows]) * weight[rows, None])
        aux = self.balance * self.balance_loss(probs, chosen)
        self.extra_loss = aux if self.fixed else aux.item()
        return out.squeeze(1)


@torch.no_grad()
def evaluate(model, x, y):
    err = (model(x) - y).pow(2).mean().sqrt().item()
    usage = torch.bincount(model.router(x).argmax(-1), minlength=len(model.experts))
    return err, (usage / len(x)).tolist()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--balance", type=float, default=0.1)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(4)
    x, y = trips(3000, 1)
    x_test, y_test = trips(1000, 2)
    model = BusMoE(balance=args.balance, fixed=args.fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    g = torch.Generator().manual_seed(8)

    for step in range(1, args.steps + 1):
        rows = torch.randint(0, len(x), (args.batch,), generator=g)
        task = F.mse_loss(model(x[rows]), y[rows])
        loss = task + model.extra_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            err, usage = evaluate(model, x_test, y_test)
            print(
                f"step {step:4d}  loss {loss.item():.4f} (task {task.item():.4f})  "
                f"test rmse {err:.4f}  usage " + " ".join(f"{u:.2f}" for u in usage)
            )

    err, usage = evaluate(model, x_test, y_test)
    print(f"test rmse {err:.4f}, least used expert {min(usage):.3f}")

    if args.prove:
        params = list(model.router.parameters())
        task = F.mse_loss(model(x[:256]), y[:256])
        total = task + model.extra_loss
        g_task = torch.autograd.grad(task, params, retain_graph=True)
        g_total = torch.autograd.grad(total, params)
        apart = sum((a - b).abs().sum().item() for a, b in zip(g_task, g_total))
        print(
            f"balance term {total.item() - task.item():.5f}, its pull on the router {apart:.3e}"
        )
        print("fault shows:", "yes" if apart == 0.0 else "no")


if __name__ == "__main__":
    main()
