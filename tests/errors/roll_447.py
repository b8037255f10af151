"""PPO with a critic for a small recurrent language model (response-level reward)."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD, EOS, BOS, N_SYM = 0, 1, 2, 8
VOCAB = 3 + N_SYM


class Backbone(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, hidden)
        self.rnn = nn.GRU(hidden, hidden, batch_first=True)

    def forward(self, ids):
        return self.rnn(self.emb(ids))[0]


class Actor(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.body = Backbone(hidden)
        self.lm_head = nn.Linear(hidden, VOCAB)

    def forward(self, ids):
        logits = self.lm_head(self.body(ids))
        logits[..., PAD] = -1e9
        logits[..., BOS] = -1e9
        return logits


class Critic(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.body = Backbone(hidden)
        self.v_head = nn.Linear(hidden, 1)

    def forward(self, ids):
        return self.v_head(self.body(ids)).squeeze(-1)


def score(prompt, response, mask):
    """+1 for each wanted symbol (at most 3), a small cost for others, a bonus for a proper end."""
    real = mask.bool()
    hits = ((response == prompt[:, None]) & real).sum(1).clamp(max=3).float()
    wrong = ((response != prompt[:, None]) & (response != EOS) & real).sum(1).float()
    extra = (((response == prompt[:, None]) & real).sum(1) - 3).clamp(min=0).float()
    ended = ((response == EOS) & real).any(1).float()
    return hits - 0.1 * wrong - 0.3 * extra + 0.3 * ended * (hits > 0)


@torch.no_grad()
def generate(actor, prompts, max_new, gen, greedy=False):
    n = len(prompts)
    ids = torch.stack([torch.full((n,), BOS), prompts], dim=1)
    done = torch.zeros(n, dtype=torch.bool)
    masks = []
    for _ in range(max_new):
        logits = actor(ids)[:, -1]
        nxt = (
            logits.argmax(-1)
            if greedy
            else torch.multinomial(logits.softmax(-1), 1, generator=gen).squeeze(1)
        )
        nxt = torch.where(done, torch.full_like(nxt, PAD), nxt)
        masks.append((~done).float())
        done = done | (nxt == EOS)
        ids = torch.cat([ids, nxt[:, None]], dim=1)
    return ids, torch.stack(masks, dim=1)


def token_logps(actor, ids):
    logits = actor(ids[:, :-1])[:, 1:]
    logp = logits.log_softmax(-1)
    return logp.gather(2, ids[:, 2:, None]).squeeze(2), logp


def gae(rewards, values, gamma, lam):
    steps = rewards.shape[1]
    carry = torch.zeros(len(rewards))
    out = []
    for t in reversed(range(steps)):
        nxt = values[:, t + 1] if t < steps - 1 else torch.zeros(len(rewards))
        delta = rewards[:, t] + gamma * nxt - values[:, t]
        carry = delta + gamma * lam * carry
        out.append(carry)
    return torch.stack(out[::-1], dim=1)


def masked_mean(x, mask):
    return (x * mask).sum() / mask.sum().clamp(min=1)


def compute_advantage(batch, gamma, lam, fixed):
    mask = batch["mask"]
    rewards = batch["token_rewards"] * mask
    values = batch["values"]
    batch["values"] = values * mask
    if fixed:
        values = batch["values"]
    adv = gae(rewards, values, gamma, lam)
    batch["returns"] = (adv + values) * mask
    batch["raw_advantages"] = adv * mask
    mean = masked_mean(adv, mask)
    std = masked_mean((adv - mean) ** 2, mask).sqrt()
    batch["advantages"] = (adv - mean) / (std + 1e-6) * mask
    return batch


def make_experience(actor, critic, args, gen, fixed):
    prompts = torch.randint(3, VOCAB, (args.rollouts,), generator=gen)
    ids, mask = generate(actor, prompts, args.max_new, gen)
    reward = score(prompts, ids[:, 2:], mask)
    token_rewards = torch.zeros_like(mask)
    last = mask.sum(1).long() - 1
    token_rewards[torch.arange(len(ids)), last] = reward
    with torch.no_grad():
        logps, _ = token_logps(actor, ids)
        values = critic(ids[:, :-1])[:, 1:]
    batch = dict(
        ids=ids,
        mask=mask,
        token_rewards=token_rewards,
        old_logps=logps,
        values=values,
        reward=reward.mean().item(),
        raw_values=values.clone(),
    )
    return compute_advantage(batch, args.gamma, args.lam, fixed)


def update(actor, critic, opt, batch, args):
    logps, all_logps = token_logps(actor, batch["ids"])
    values = critic(batch["ids"][:, :-1])[:, 1:]
    mask, adv = batch["mask"], batch["advantages"]
    ratio = (logps - batch["old_logps"]).exp()
    pg = -torch.min(ratio * adv, ratio.clamp(1 - args.clip, 1 + args.clip) * adv)
    entropy = -(all_logps.exp() * all_logps).sum(-1)
    pg_loss, v_loss = masked_mean(pg, mask), masked_mean(
        (values - batch["returns"]) ** 2, mask
    )
    loss = pg_loss + 0.5 * v_loss - args.entropy * masked_mean(entropy, mask)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_([p for g in opt.param_groups for p in g["params"]], 1.0)
    opt.step()
    return pg_loss.item(), v_loss.item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=160)
    ap.add_argument("--rollouts", type=int, default=48)
    ap.add_argument("--ppo-epochs", type=int, default=2)
    ap.add_argument("--max-new", type=int, default=7)
    ap.add_argument("--gamma", type=float, default=1.0)
    ap.add_argument("--lam", type=float, default=0.95)
    ap.add_argument("--clip", type=float, default=0.2)
    ap.add_argument("--entropy", type=float, default=0.01)
    ap.add_argument("--lr", type=float, default=5e-3)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed)
    actor, critic = Actor(), Critic()
    opt = torch.optim.Adam(
        [
            {"params": actor.parameters(), "lr": args.lr},
            {"params": critic.parameters(), "lr": args.lr},
        ]
    )
    step = 0
    while step < args.steps:
        batch = make_experience(actor, critic, args, gen, args.fixed)
        for _ in range(args.ppo_epochs):
            pg_loss, v_loss = update(actor, critic, opt, batch, args)
            if step % 20 == 0:
                length = batch["mask"].sum(1).mean().item()
                print(
                    f"step {step:3d}  reward {batch['reward']:+.3f}  length {length:.2f}  "
                    f"pg {pg_loss:+.4f}  value {v_loss:.4f}"
                )
            step += 1

    prompts = torch.arange(3, VOCAB)
    ids, mask = generate(actor, prompts, args.max_new, gen, greedy=True)
    print(
        f"eval: greedy reward {score(prompts, ids[:, 2:], mask).mean().item():.3f} (best 3.3)"
    )
    if args.prove:
        batch = make_experience(actor, critic, args, gen, args.fixed)
        want = gae(
            batch["token_rewards"],
            batch["raw_values"] * batch["mask"],
            args.gamma,
            args.lam,
        )
        gap = masked_mean((want - batch["raw_advantages"]).abs(), batch["mask"]).item()
        print(
            f"mean gap of the advantages to those of response tokens alone: {gap:.5f}"
        )
        print("fault shows: " + ("yes" if gap > 1e-4 else "no"))


if __name__ == "__main__":
    main()
