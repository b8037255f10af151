"""News topic classifier trained over two job slots (warm-up + linear decay)."""
import argparse
import pathlib
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, TOPICS, LEN = 400, 8, 24


def articles(n, seed):
    wg = torch.Generator().manual_seed(2024)
    table = torch.softmax(1.3 * torch.randn(TOPICS, VOCAB, generator=wg), dim=1)
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, TOPICS, (n,), generator=g)
    mix = 0.35 * table[y] + 0.65 / VOCAB
    return torch.multinomial(mix, LEN, replacement=True, generator=g), y


class BagNet(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.bag = nn.EmbeddingBag(VOCAB, dim, mode="mean")
        self.mlp = nn.Sequential(
            nn.LayerNorm(dim), nn.Linear(dim, 64), nn.ReLU(), nn.Linear(64, TOPICS)
        )

    def forward(self, ids):
        return self.mlp(self.bag(ids))


class Job:
    def __init__(self, args):
        torch.manual_seed(55)
        self.args = args
        self.step = 0
        self.model = BagNet()
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.sched = torch.optim.lr_scheduler.LambdaLR(self.opt, self.factor)
        self.rates = {}

    def factor(self, s):
        a = self.args
        if s < a.warmup:
            return (s + 1) / a.warmup
        return max(0.0, (a.steps - s) / (a.steps - a.warmup))

    def save(self, path):
        torch.save(
            {
                "step": self.step,
                "model": self.model.state_dict(),
                "opt": self.opt.state_dict(),
                "sched": self.sched.state_dict(),
            },
            path,
        )

    def restore(self, path):
        ck = torch.load(path, weights_only=True)
        self.step = ck["step"]
        self.model.load_state_dict(ck["model"])
        self.opt.load_state_dict(ck["opt"])
        if self.args.fixed:
            self.sched.load_state_dict(ck["sched"])

    def run(self, x, y, until):
        while self.step < until:
            g = torch.Generator().manual_seed(self.step)
            i = torch.randint(0, len(x), (self.args.batch,), generator=g)
            loss = F.cross_entropy(self.model(x[i]), y[i])
            self.opt.zero_grad()
            loss.backward()
            self.rates[self.step] = self.opt.param_groups[0]["lr"]
            self.opt.step()
            self.sched.step()
            if self.step % 25 == 0:
                print(f"  step {self.step:4d} loss {loss.item():.4f}")
            self.step += 1

    @torch.no_grad()
    def test(self, x, y):
        out = self.model(x)
        return (
            F.cross_entropy(out, y).item(),
            (out.argmax(1) == y).float().mean().item(),
        )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=300)
    ap.add_argument("--warmup", type=int, default=30)
    ap.add_argument("--batch", type=int, default=40)
    ap.add_argument("--lr", type=float, default=1.5e-2)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    x, y = articles(9000, 1)
    xt, yt = articles(1000, 2)
    slot_end = int(args.steps * 0.6)
    with tempfile.TemporaryDirectory() as d:
        ck = pathlib.Path(d) / "job.pt"
        print("slot 1")
        first = Job(args)
        first.run(x, y, slot_end)
        first.save(ck)
        print("slot 1 ends, test loss %.4f acc %.4f" % first.test(xt, yt))

        print("slot 2")
        second = Job(args)
        second.restore(ck)
        second.run(x, y, args.steps)
        print("slot 2 ends, test loss %.4f acc %.4f" % second.test(xt, yt))

    if args.prove:
        rates = {**first.rates, **second.rates}
        plan = {s: args.lr * first.factor(s) for s in rates}
        off = [s for s in sorted(rates) if abs(rates[s] - plan[s]) > 1e-9]
        last = args.steps - 1
        print(
            f"rate at the last step {rates[last]:.6f}, planned {plan[last]:.6f}; "
            f"{len(off)} steps off plan, first {off[0] if off else None}"
        )
        print("fault shows:", "yes" if off else "no")


if __name__ == "__main__":
    main()
