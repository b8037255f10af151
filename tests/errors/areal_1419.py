"""Group-relative policy optimisation on a toy sequence environment.

Every prompt is a pair (task, offset); the policy writes four symbols and is paid per
correct symbol.  Several episodes are rolled out per prompt, and an episode that hits
the tool timeout returns nothing.
"""
import argparse
from dataclasses import dataclass, field
from typing import List, Optional

import torch
import torch.nn as nn
import torch.nn.functional as F

N_TASK, N_OFF, LEN, SYM = 6, 4, 4, 8


@dataclass
class Episode:
    prompt: torch.Tensor
    tokens: torch.Tensor
    logp: torch.Tensor
    reward: float


@dataclass
class RolloutBatch:
    prompts: torch.Tensor
    tokens: torch.Tensor
    old_logp: torch.Tensor
    rewards: torch.Tensor
    sizes: List[int] = field(default_factory=list)


class Policy(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.task = nn.Embedding(N_TASK, dim)
        self.off = nn.Embedding(N_OFF, dim)
        self.sym = nn.Embedding(SYM + 1, dim)
        self.cell = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, SYM)

    def forward(self, prompts, inputs):
        ctx = self.task(prompts[:, 0]) + self.off(prompts[:, 1])
        h, _ = self.cell(self.sym(inputs) + ctx[:, None], torch.tanh(ctx)[None])
        return self.out(h)

    def logprobs(self, prompts, tokens):
        start = torch.full((len(tokens), 1), SYM)
        logits = self(prompts, torch.cat([start, tokens[:, :-1]], 1))
        return F.log_softmax(logits, -1).gather(-1, tokens[..., None]).squeeze(-1)

    @torch.no_grad()
    def sample(self, prompts, gen, greedy=False):
        seq = torch.full((len(prompts), 1), SYM)
        for _ in range(LEN):
            p = F.softmax(self(prompts, seq)[:, -1], -1)
            nxt = (
                p.argmax(-1, keepdim=True)
                if greedy
                else torch.multinomial(p, 1, generator=gen)
            )
            seq = torch.cat([seq, nxt], 1)
        return seq[:, 1:]


class Env:
    def __init__(self, timeout_rate, seed):
        self.timeout_rate = timeout_rate
        self.gen = torch.Generator().manual_seed(seed)
        self.easy = torch.tensor([1.0, 1.0, 0.6, 0.6, 0.3, 0.3])

    def target(self, prompt):
        t, o = int(prompt[0]), int(prompt[1])
        return torch.tensor([(t + o + (t % 3 + 1) * i) % SYM for i in range(LEN)])

    def score(self, prompt, tokens):
        hits = (tokens == self.target(prompt)).float().mean()
        return float(hits + self.easy[int(prompt[0])])

    def episode(self, prompt, tokens, logp) -> Optional[Episode]:
        if torch.rand((), generator=self.gen) < self.timeout_rate:
            return None
        return Episode(prompt, tokens, logp, self.score(prompt, tokens))


def collect(policy, env, n_prompts, group_size, gen):
    prompts = torch.stack(
        [
            torch.randint(N_TASK, (n_prompts,), generator=gen),
            torch.randint(N_OFF, (n_prompts,), generator=gen),
        ],
        1,
    )
    rep = prompts.repeat_interleave(group_size, 0)
    tokens = policy.sample(rep, gen)
    with torch.no_grad():
        logp = policy.logprobs(rep, tokens)
    kept, sizes = [], []
    for i in range(n_prompts):
        rows = range(i * group_size, (i + 1) * group_size)
        eps = [
            e
            for e in (env.episode(rep[r], tokens[r], logp[r]) for r in rows)
            if e is not None
        ]
        if eps:
            kept += eps
            sizes.append(len(eps))
    return RolloutBatch(
        torch.stack([e.prompt for e in kept]),
        torch.stack([e.tokens for e in kept]),
        torch.stack([e.logp for e in kept]),
        torch.tensor([e.reward for e in kept]),
        sizes,
    )


class Normalization:
    def __init__(self, group_size, use_sizes, eps=1e-5):
        self.group_size, self.use_sizes, self.eps = group_size, use_sizes, eps

    def spans(self, n, sizes):
        if self.use_sizes:
            start = 0
            for s in sizes:
                yield slice(start, start + s)
                start += s
        else:
            for i in range(n // self.group_size):
                yield slice(i * self.group_size, (i + 1) * self.group_size)

    def __call__(self, x, sizes):
        mean, std = torch.zeros_like(x), torch.ones_like(x)
        for s in self.spans(len(x), sizes):
            mean[s] = x[s].mean()
            std[s] = x[s].std(unbiased=False)
        return (x - mean) / (std + self.eps)


def evaluate(policy, env):
    grid = torch.cartesian_prod(torch.arange(N_TASK), torch.arange(N_OFF))
    out = policy.sample(grid, None, greedy=True)
    want = torch.stack([env.target(p) for p in grid])
    return (out == want).float().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--n-prompts", type=int, default=16)
    ap.add_argument("--group-size", type=int, default=8)
    ap.add_argument("--timeout-rate", type=float, default=0.12)
    ap.add_argument("--clip", type=float, default=0.2)
    ap.add_argument("--lr", type=float, default=5e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(3)
    gen = torch.Generator().manual_seed(4)
    policy, env = Policy(), Env(args.timeout_rate, seed=5)
    opt = torch.optim.Adam(policy.parameters(), lr=args.lr)
    norm = Normalization(args.group_size, use_sizes=args.fixed)
    worst = 0.0
    for step in range(args.steps):
        batch = collect(policy, env, args.n_prompts, args.group_size, gen)
        adv = norm(batch.rewards, batch.sizes)
        if args.prove:
            parts = torch.split(batch.rewards, batch.sizes)
            want = torch.cat(
                [(r - r.mean()) / (r.std(unbiased=False) + norm.eps) for r in parts]
            )
            worst = max(worst, float((adv - want).abs().max()))
        for _ in range(2):
            ratio = (
                policy.logprobs(batch.prompts, batch.tokens) - batch.old_logp
            ).exp()
            a = adv[:, None]
            loss = -torch.minimum(
                ratio * a, ratio.clamp(1 - args.clip, 1 + args.clip) * a
            ).mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            opt.step()
        if step % 20 == 0 or step == args.steps - 1:
            print(
                f"iter {step:3d}  reward {batch.rewards.mean():.3f}  episodes {len(batch.rewards)}  "
                f"loss {loss.item():+.4f}  greedy accuracy {evaluate(policy, env):.3f}"
            )
    print(f"final greedy accuracy {evaluate(policy, env):.3f}")
    if args.prove:
        print(f"largest |advantage - per-prompt advantage| over the run: {worst:.4f}")
        print("fault shows:", "yes" if worst > 1e-3 else "no")


if __name__ == "__main__":
    main()
