"""Group-relative policy optimisation on a key -> code task.

Rollouts come from a cheaper engine whose weights are rounded to a coarse grid;
sequences on which the two engines disagree too much are left out of the update.
"""
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

KEYS, VOCAB, LENGTH = 8, 6, 4


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=70)
    p.add_argument("--prompts", type=int, default=16)
    p.add_argument("--group", type=int, default=8)
    p.add_argument("--lr", type=float, default=6e-3)
    p.add_argument("--clip", type=float, default=0.2)
    p.add_argument("--rs-threshold", type=float, default=0.05)
    p.add_argument("--levels", type=int, default=24)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    return p.parse_args()


class Policy(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.key = nn.Embedding(KEYS, width)
        self.tok = nn.Embedding(VOCAB + 1, width)
        self.cell = nn.GRUCell(width, width)
        self.out = nn.Linear(width, VOCAB)

    def logits(self, keys, tokens):
        """Teacher-forced next-token logits, (N, LENGTH, VOCAB)."""
        h = torch.tanh(self.key(keys))
        prev = torch.full_like(keys, VOCAB)
        rows = []
        for t in range(LENGTH):
            h = self.cell(self.tok(prev), h)
            rows.append(self.out(h))
            prev = tokens[:, t]
        return torch.stack(rows, 1)

    @torch.no_grad()
    def generate(self, keys, gen):
        h = torch.tanh(self.key(keys))
        prev = torch.full_like(keys, VOCAB)
        toks, lps = [], []
        for _ in range(LENGTH):
            h = self.cell(self.tok(prev), h)
            logp = F.log_softmax(self.out(h), -1)
            prev = torch.multinomial(logp.exp(), 1, generator=gen).squeeze(1)
            toks.append(prev)
            lps.append(logp.gather(1, prev[:, None]).squeeze(1))
        return torch.stack(toks, 1), torch.stack(lps, 1)


def refresh_rollout_engine(engine, policy, levels):
    with torch.no_grad():
        for dst, src in zip(engine.parameters(), policy.parameters()):
            scale = src.abs().max() / levels
            dst.copy_((src / scale).round() * scale)


def token_logp(policy, keys, tokens):
    return (
        F.log_softmax(policy.logits(keys, tokens), -1)
        .gather(2, tokens[..., None])
        .squeeze(-1)
    )


class Environment:
    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.codes = torch.from_numpy(rng.integers(0, VOCAB, size=(KEYS, LENGTH)))

    def score(self, keys, tokens):
        return (tokens == self.codes[keys]).float().mean(1)


def group_advantage(token_level_rewards, response_mask, index, accepted_only, eps=1e-6):
    scores = token_level_rewards.sum(-1)
    usable = (
        response_mask.any(-1)
        if accepted_only
        else torch.ones_like(scores, dtype=torch.bool)
    )
    adv = torch.zeros_like(scores)
    for uid in index.unique():
        rows = index == uid
        members = scores[rows & usable]
        if members.numel() == 0:
            continue
        if members.numel() == 1:
            mean, std = torch.tensor(0.0), torch.tensor(1.0)
        else:
            mean, std = members.mean(), members.std()
        adv[rows] = (scores[rows] - mean) / (std + eps)
    return adv[:, None] * response_mask


def reference_advantage(scores, kept, index, eps=1e-6):
    """The same quantity in plain numpy, row by row."""
    scores, kept, index = scores.numpy(), kept.numpy(), index.numpy()
    out = np.zeros(len(scores))
    for i in range(len(scores)):
        if not kept[i]:
            continue
        sib = [
            scores[j] for j in range(len(scores)) if index[j] == index[i] and kept[j]
        ]
        m, s = (0.0, 1.0) if len(sib) == 1 else (np.mean(sib), np.std(sib, ddof=1))
        out[i] = (scores[i] - m) / (s + eps)
    return out


# size: the whole run in one place, read from top to bottom
def main():
    args = parse()
    torch.manual_seed(11)
    gen = torch.Generator().manual_seed(12)
    env = Environment(13)
    policy, engine = Policy(), Policy()
    opt = torch.optim.Adam(policy.parameters(), lr=args.lr)
    worst, first, n_rejected = 0.0, None, 0

    for step in range(args.steps):
        refresh_rollout_engine(engine, policy, args.levels)
        keys = torch.randint(0, KEYS, (args.prompts,), generator=gen)
        uid = torch.arange(args.prompts).repeat_interleave(args.group)
        keys = keys.repeat_interleave(args.group)
        tokens, rollout_logp = engine.generate(keys, gen)

        with torch.no_grad():
            old_logp = token_logp(policy, keys, tokens)
        k1 = (rollout_logp - old_logp).sum(1)
        accepted = k1.abs() < args.rs_threshold
        response_mask = torch.ones(tokens.shape) * accepted[:, None]
        n_rejected += int((~accepted).sum())

        token_level_rewards = torch.zeros(tokens.shape)
        token_level_rewards[:, -1] = env.score(keys, tokens)
        adv = group_advantage(
            token_level_rewards, response_mask, uid, accepted_only=args.fixed
        )

        if args.prove:
            ref = reference_advantage(token_level_rewards.sum(1), accepted, uid)
            gap = float(np.abs(adv[:, 0].numpy() - ref).max())
            if gap > 1e-3 and first is None:
                first = step
            worst = max(worst, gap)

        for _ in range(2):
            logp = token_logp(policy, keys, tokens)
            ratio = (logp - old_logp).exp()
            surrogate = torch.minimum(
                ratio * adv, ratio.clamp(1 - args.clip, 1 + args.clip) * adv
            )
            loss = -(surrogate * response_mask).sum() / response_mask.sum().clamp(min=1)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            opt.step()

        if step % 10 == 0 or step == args.steps - 1:
            print(
                f"step {step:3d}  loss {loss.item():+.4f}  reward {token_level_rewards.sum(1).mean():.3f}"
                f"  accepted {accepted.float().mean():.2f}"
            )

    keys = torch.arange(KEYS).repeat_interleave(64)
    tokens, _ = policy.generate(keys, gen)
    print(f"final sampled reward {env.score(keys, tokens).mean():.3f}")
    if args.prove:
        print(
            f"responses left out {n_rejected}, largest advantage difference {worst:.4f}, first in iteration {first}"
        )
        print("fault shows:", "yes" if worst > 1e-3 else "no")


if __name__ == "__main__":
    main()
