# Group-relative policy gradient on a toy "write the digits of a+b" task.
# Actor produces groups of rollouts, the preprocessor attaches advantages,
# the learner consumes the flat list of rollouts (same stages as our cluster job, in one process).
import argparse
from collections import defaultdict
from dataclasses import dataclass, field

import torch
from torch import nn
import torch.nn.functional as F

VOCAB = 13  # 0-9 digits, 10 '+', 11 '=', 12 bos
MAX_NEW = 2


@dataclass
class Config:
    steps: int = 70
    group_size: int = 8
    prompts_per_step: int = 10
    lr: float = 8e-4
    ent_coef: float = 0.02
    clip: float = 1.0
    fixed: bool = False
    prove: bool = False


@dataclass
class Rollout:
    group_id: int
    tokens: torch.Tensor
    logps: torch.Tensor
    reward: float
    advantage: float = 0.0
    extra: dict = field(default_factory=dict)


class Policy(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, d)
        self.pos = nn.Parameter(torch.randn(8, d) * 0.1)
        layer = nn.TransformerEncoderLayer(
            d, 4, 96, dropout=0.0, batch_first=True, norm_first=True
        )
        self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(d, 10)

    def forward(self, ids):
        n = ids.size(1)
        mask = torch.full((n, n), float("-inf")).triu(1)
        return self.out(self.enc(self.tok(ids) + self.pos[:n], mask=mask))


def make_prompts(n, gen):
    a = torch.randint(0, 5, (n,), generator=gen)
    b = torch.randint(0, 5, (n,), generator=gen)
    p = torch.stack(
        [torch.full_like(a, 12), a, torch.full_like(a, 10), b, torch.full_like(a, 11)],
        1,
    )
    return p, a + b


def reward_fn(answer, target):
    tens, ones = divmod(int(target), 10)
    got = 0.5 * float(int(answer[0]) == tens) + 0.5 * float(int(answer[1]) == ones)
    # being close is worth something
    return got + 0.3 * (1 - abs(int(answer[1]) - ones) / 9)


@torch.no_grad()
def actor(policy, cfg, gen, first_group):
    prompts, targets = make_prompts(cfg.prompts_per_step, gen)
    ids = prompts.repeat_interleave(cfg.group_size, 0)
    logps = []
    for _ in range(MAX_NEW):
        probs = policy(ids)[:, -1].softmax(-1)
        nxt = torch.multinomial(probs, 1, generator=gen)
        logps.append(probs.gather(1, nxt).log())
        ids = torch.cat([ids, nxt], 1)
    logps = torch.cat(logps, 1)
    out = []
    for i in range(ids.size(0)):
        g = i // cfg.group_size
        out.append(
            Rollout(
                first_group + g, ids[i], logps[i], reward_fn(ids[i, -2:], targets[g])
            )
        )
    return out


def populate_rl_data(rollouts, cfg):
    """mean and std of the reward per group -> advantage of each rollout"""
    groups = defaultdict(list)
    for r in rollouts:
        if cfg.fixed or not groups[r.group_id]:
            groups[r.group_id].append(r.reward)
    stats = {}
    for gid, rewards in groups.items():
        t = torch.tensor(rewards)
        stats[gid] = (t.mean().item(), t.std(unbiased=False).item())
    for r in rollouts:
        mean, std = stats[r.group_id]
        r.advantage = (r.reward - mean) / (std + 0.3)
        r.extra["group_mean"] = mean
    return rollouts


def learner_step(policy, optimizer, rollouts, cfg):
    ids = torch.stack([r.tokens for r in rollouts])
    old = torch.stack([r.logps for r in rollouts])
    adv = torch.tensor([r.advantage for r in rollouts])[:, None]
    logits = policy(ids[:, :-1])[:, -MAX_NEW:]
    logp_all = F.log_softmax(logits, -1)
    logp = logp_all.gather(-1, ids[:, -MAX_NEW:, None]).squeeze(-1)
    entropy = -(logp_all.exp() * logp_all).sum(-1).mean()
    ratio = (logp - old).exp()
    loss = (
        -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
        - cfg.ent_coef * entropy
    )
    optimizer.zero_grad()
    loss.backward()
    gnorm = nn.utils.clip_grad_norm_(policy.parameters(), cfg.clip)
    optimizer.step()
    return loss.item(), gnorm.item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=Config.steps)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    cfg = Config(**vars(ap.parse_args()))
    torch.manual_seed(7)
    gen = torch.Generator().manual_seed(21)
    policy = Policy()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=cfg.lr, weight_decay=0.01)

    group_counter = 0
    worst_center = 0.0
    for step in range(cfg.steps):
        rollouts = actor(policy, cfg, gen, group_counter)
        group_counter += cfg.prompts_per_step
        rollouts = populate_rl_data(rollouts, cfg)
        loss, gnorm = learner_step(policy, optimizer, rollouts, cfg)
        per_group = defaultdict(list)
        for r in rollouts:
            per_group[r.group_id].append(r.advantage)
        center = max(abs(sum(v) / len(v)) for v in per_group.values())
        worst_center = max(worst_center, center)
        if step % 10 == 0 or step == cfg.steps - 1:
            rew = sum(r.reward for r in rollouts) / len(rollouts)
            print(
                f"step {step:3d} reward {rew:.3f} loss {loss:+.4f} grad_norm {gnorm:.3f}"
            )

    if cfg.prove:
        print(f"largest mean advantage within one group: {worst_center:.4f}")
        print("fault shows:", "yes" if worst_center > 1e-3 else "no")


if __name__ == "__main__":
    main()
