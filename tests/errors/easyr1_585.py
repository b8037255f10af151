"""Group-relative policy optimisation with the pass@k objective on a toy puzzle.

A prompt is a start value and a target; the policy writes operations, and the verifier pays for
how near the result comes to the target, plus a part for a properly ended answer. Several answers are sampled per prompt.
"""
import argparse
from collections import defaultdict

import torch
import torch.nn as nn
import torch.nn.functional as F

OPS = [lambda v: v + 1, lambda v: v + 3, lambda v: v - 2, lambda v: v * 2, lambda v: v]
BASE = 21
MAX_LEN = 4
STOP = len(OPS)


class Policy(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.start, self.goal = nn.Embedding(BASE, dim), nn.Embedding(BASE, dim)
        self.token = nn.Embedding(len(OPS) + 2, dim)
        self.cell = nn.GRUCell(dim, dim)
        self.mix = nn.Sequential(nn.Linear(2 * dim, dim), nn.Tanh())
        self.head = nn.Linear(dim, len(OPS) + 1)

    def initial(self, prompt):
        return self.mix(
            torch.cat([self.start(prompt[:, 0]), self.goal(prompt[:, 1])], -1)
        )

    def forward(self, prompt, tokens):
        h = self.initial(prompt)
        inp = torch.full((len(prompt),), len(OPS) + 1)
        logits = []
        for t in range(tokens.shape[1]):
            h = self.cell(self.token(inp), h)
            logits.append(self.head(h))
            inp = tokens[:, t]
        return torch.stack(logits, 1)

    @torch.no_grad()
    def sample(self, prompt, generator=None):
        h = self.initial(prompt)
        inp = torch.full((len(prompt),), len(OPS) + 1)
        out = []
        for _ in range(MAX_LEN):
            h = self.cell(self.token(inp), h)
            if generator is None:
                inp = self.head(h).argmax(-1)
            else:
                inp = torch.multinomial(
                    self.head(h).softmax(-1), 1, generator=generator
                )[:, 0]
            out.append(inp)
        return torch.stack(out, 1)


def response_mask(tokens):
    stopped = (tokens == STOP).cumsum(1) - (tokens == STOP).long()
    return (stopped == 0).float()


def verify(prompt, tokens):
    rewards = []
    for (value, goal), row in zip(prompt.tolist(), tokens.tolist()):
        for t in row:
            if t == STOP:
                break
            value = max(-30, min(60, OPS[t](value)))
        accuracy = 1.0 if value == goal else 0.5 / (1 + abs(value - goal))
        layout = 1.0 if STOP in row else 0.0
        rewards.append((0.7 * accuracy + 0.3 * layout, accuracy))
    return torch.tensor(rewards).unbind(1)


@torch.no_grad()
def passk_advantages(token_rewards, mask, uid, fixed, eps=1e-6):
    """Outcome advantage: best minus second best, spread over the tokens of the response."""
    scores = token_rewards.sum(-1)
    groups = defaultdict(list)
    for i, u in enumerate(uid.tolist()):
        groups[u].append(i)
    if fixed:
        out = torch.zeros_like(scores)
    else:
        out = scores.clone()
    for members in groups.values():
        r = scores[members]
        top, where = r.topk(2)
        out[members[where[0].item()]] = (top[0] - top[1]) / (r.std() + eps)
    return out.unsqueeze(-1) * mask


def policy_loss(logp, old_logp, adv, mask, clip=0.2):
    ratio = (logp - old_logp).exp()
    per_token = -torch.min(ratio * adv, ratio.clamp(1 - clip, 1 + clip) * adv)
    return (per_token * mask).sum() / mask.sum()


def token_logps(policy, prompt, tokens):
    logits = policy(prompt, tokens)
    logp_all = logits.log_softmax(-1)
    entropy = -(logp_all.exp() * logp_all).sum(-1)
    return logp_all.gather(2, tokens.unsqueeze(-1)).squeeze(-1), entropy


def evaluate(policy, k=8):
    g = torch.Generator().manual_seed(77)
    prompt = torch.randint(0, BASE, (200, 2), generator=g)
    solved = torch.stack(
        [verify(prompt, policy.sample(prompt, g))[1] == 1 for _ in range(k)]
    )
    return solved.float().mean().item(), solved.any(0).float().mean().item()


# size: the whole run in one place, read from top to bottom
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=160)
    ap.add_argument("--prompts", type=int, default=24, help="prompts per rollout")
    ap.add_argument("--n", type=int, default=8, help="answers per prompt")
    ap.add_argument("--ppo-epochs", type=int, default=2)
    ap.add_argument("--entropy", type=float, default=0.01)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    policy = Policy()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=args.lr)
    g = torch.Generator().manual_seed(1)
    paid_others = rows = 0

    step = 0
    while step < args.steps:
        prompt = torch.randint(0, BASE, (args.prompts, 2), generator=g)
        prompt = prompt.repeat_interleave(args.n, 0)
        uid = torch.arange(args.prompts).repeat_interleave(args.n)
        tokens = policy.sample(prompt, g)
        mask = response_mask(tokens)
        reward, _ = verify(prompt, tokens)
        last = mask.sum(1).long() - 1
        token_rewards = F.one_hot(last, MAX_LEN) * reward[:, None]
        adv = passk_advantages(token_rewards, mask, uid, args.fixed)
        with torch.no_grad():
            old_logp, _ = token_logps(policy, prompt, tokens)

        per_row = adv[:, 0].view(args.prompts, args.n)
        best = F.one_hot(reward.view(args.prompts, args.n).argmax(1), args.n).bool()
        paid_others += int((per_row[~best] != 0).sum())
        rows += int((~best).sum())

        for _ in range(args.ppo_epochs):
            if step >= args.steps:
                break
            logp, entropy = token_logps(policy, prompt, tokens)
            loss = policy_loss(logp, old_logp, adv, mask)
            total = loss - args.entropy * (entropy * mask).sum() / mask.sum()
            optimizer.zero_grad()
            total.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
            if step % 30 == 0:
                print(
                    f"step {step:4d} loss {loss.item():+.4f} reward {reward.mean():.3f} "
                    f"entropy {(entropy * mask).sum().item() / mask.sum().item():.3f}"
                )
            step += 1

    mean, passed = evaluate(policy)
    print(f"solved: mean {mean:.3f}  pass@8 {passed:.3f}")
    if args.prove:
        print(
            f"answers other than the best with a non-zero advantage: {paid_others} of {rows}"
        )
        print("fault shows:", "yes" if paid_others > 0 else "no")


if __name__ == "__main__":
    main()
