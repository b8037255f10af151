"""Two dispensaries fit one adherence model without showing each other their gradients.

Each round both sides draw their own patients, and only masked integers travel: the two
masks cancel in the sum.  Feature statistics and scores are gathered in the same way.
"""
import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn

SCALE = 2**24
FEATURES = 14
SITES = {0: ("harbour", 1500, 0.6), 1: ("uplands", 700, -0.5)}


class SecureSum:
    """Fixed-point sums over two sites under pairwise additive masks."""

    def __init__(self, rank, shared_seed):
        self.sign = 1 if rank == 0 else -1
        self.pad = torch.Generator().manual_seed(shared_seed)

    def __call__(self, *tensors):
        flat = torch.cat([t.detach().double().reshape(-1) for t in tensors])
        wire = (flat * SCALE).round().long()
        mask = torch.randint(-(2**61), 2**61, wire.shape, generator=self.pad)
        wire += self.sign * mask
        dist.all_reduce(wire, op=dist.ReduceOp.SUM)
        total = wire.double() / SCALE
        parts = total.split([t.numel() for t in tensors])
        return [p.view(t.shape) for p, t in zip(parts, tensors)]


def agree_on_seed():
    """Each site contributes half of the secret."""
    mine = torch.tensor([7919 * (dist.get_rank() + 3)])
    both = [torch.zeros_like(mine) for _ in range(2)]
    dist.all_gather(both, mine)
    return int(both[0].item() * 104729 + both[1].item())


def patients(rank, part):
    """Prescription histories; the two sites serve different people."""
    _, count, lean = SITES[rank]
    count = count if part == "train" else count // 3
    g = torch.Generator().manual_seed(500 + 10 * rank + (part != "train"))
    law = torch.Generator().manual_seed(42)
    w = torch.randn(FEATURES, generator=law) / 2
    u = torch.randn(FEATURES, FEATURES, generator=law) / FEATURES
    z = torch.randn(count, FEATURES, generator=g)
    z[:, :4] += lean
    logit = 1.6 * (z @ w) + 2.0 * torch.tanh((z @ u * z).sum(1)) - 0.3
    y = torch.bernoulli(torch.sigmoid(2.0 * logit), generator=g)
    units = torch.logspace(-1, 2, FEATURES)
    return z * units + 3 * units, y


class AdherenceNet(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.register_buffer("mean", torch.zeros(FEATURES))
        self.register_buffer("std", torch.ones(FEATURES))
        self.stem = nn.Linear(FEATURES, width)
        self.norm = nn.LayerNorm(width)
        self.drop = nn.Dropout(0.1)
        self.mid = nn.Linear(width, width)
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        h = F.gelu(self.norm(self.stem((x - self.mean) / self.std)))
        h = h + self.drop(F.gelu(self.mid(h)))
        return self.out(h).squeeze(-1)


class Site:
    def __init__(self, rank, rounds, folder):
        self.rank, self.folder = rank, folder
        self.sum = SecureSum(rank, agree_on_seed())
        self.train, self.test = patients(rank, "train"), patients(rank, "test")
        torch.manual_seed(1)
        self.net = AdherenceNet()
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=8e-3)
        self.schedule = torch.optim.lr_scheduler.LinearLR(
            self.optimizer, 1.0, 0.1, total_iters=rounds
        )
        torch.manual_seed(1000 + rank)
        self.draw = torch.Generator().manual_seed(2000 + rank)

    @torch.no_grad()
    def standardise(self):
        x = self.train[0].double()
        count = torch.tensor(float(len(x)))
        s, n = self.sum(x.sum(0), count)
        mean = s / n
        (q,) = self.sum((x - mean).pow(2).sum(0))
        self.net.mean.copy_(mean)
        self.net.std.copy_((q / n).sqrt())

    def round(self, rate):
        """Poisson-sampled patients: every site's share differs from round to round."""
        x, y = self.train
        chosen = torch.rand(len(x), generator=self.draw) < rate
        logits = self.net(x[chosen])
        loss = F.binary_cross_entropy_with_logits(logits, y[chosen], reduction="sum")
        params = list(self.net.parameters())
        grads = torch.autograd.grad(loss, params)
        count = chosen.sum().double()
        *summed, total, n = self.sum(*grads, loss, count)
        n = n.clamp_min(1.0)
        for p, g in zip(params, summed):
            p.grad = (g / n).to(p.dtype)
        nn.utils.clip_grad_norm_(params, 1.0)
        self.optimizer.step()
        self.schedule.step()
        return (total / n).item(), int(n.item())

    @torch.no_grad()
    def score(self, data):
        self.net.eval()
        x, y = data
        logits = self.net(x)
        nll = F.binary_cross_entropy_with_logits(logits, y, reduction="sum")
        hits = ((logits > 0) == y.bool()).sum().double()
        self.net.train()
        nll, hits, n = self.sum(nll, hits, torch.tensor(float(len(y))))
        return (nll / n).item(), (hits / n).item()

    def run(self, rounds):
        self.standardise()
        for k in range(1, rounds + 1):
            loss, n = self.round(rate=0.1)
            if k % max(1, rounds // 6) == 0:
                nll, acc = self.score(self.test)
                if self.rank == 0:
                    print(
                        f"round {k:4d}  patients {n:3d}  loss {loss:.3f}  "
                        f"held-out nll {nll:.3f}  accuracy {acc:.3f}",
                        flush=True,
                    )
        torch.save(
            self.net.state_dict(), os.path.join(self.folder, f"site{self.rank}.pt")
        )


def work(rank, folder, rounds):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2
    )
    site = Site(rank, rounds, folder)
    site.run(rounds)
    dist.barrier()
    if rank == 0:
        other = torch.load(os.path.join(folder, "site1.pt"), weights_only=True)
        mine = site.net.state_dict()
        same = all(torch.equal(mine[k], other[k]) for k in mine)
        print(f"both sites hold the same model: {same}")
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120, help="communication rounds")
    args = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="dispensaries_")
    mp.start_processes(work, args=(folder, args.steps), nprocs=2, start_method="fork")


if __name__ == "__main__":
    main()
