"""Sequence level policy optimisation (GSPO) for a tiny language model with a critic.

The model writes sequences of its own length (it may stop at any time); the reward counts
how often the prompt token is repeated and fines long answers.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, EOS, MAX_LEN = 12, 0, 10


class PolicyAndCritic(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 24)
        self.rnn = nn.GRU(24, hidden, batch_first=True)
        self.lm_head = nn.Linear(hidden, VOCAB)
        self.value_head = nn.Linear(hidden, 1)

    def forward(self, tokens):
        h, _ = self.rnn(self.emb(tokens))
        return self.lm_head(h).log_softmax(-1), self.value_head(h.detach()).squeeze(-1)


@torch.no_grad()
def rollout(model, prompts):
    """Returns padded token ids [B, 1 + MAX_LEN] and the mask of the written tokens."""
    tokens = prompts[:, None]
    alive = torch.ones(len(prompts), dtype=torch.bool)
    masks = []
    for _ in range(MAX_LEN):
        logp, _ = model(tokens)
        nxt = torch.multinomial(logp[:, -1].exp(), 1).squeeze(1)
        nxt = torch.where(alive, nxt, torch.full_like(nxt, EOS))
        masks.append(alive.clone())
        alive = alive & (nxt != EOS)
        tokens = torch.cat([tokens, nxt[:, None]], 1)
    return tokens, torch.stack(masks, 1)


def reward_fn(prompts, tokens, mask):
    written = tokens[:, 1:]
    hits = ((written == prompts[:, None]) & mask).sum(1).float()
    return hits - 0.35 * mask.sum(1).float()


def gae(rewards, values, mask, gamma=1.0, lam=0.95):
    """Rewards sit on the last written token of each row."""
    token_rewards = torch.zeros_like(values)
    last = mask.sum(1).long() - 1
    token_rewards[torch.arange(len(last)), last] = rewards
    adv, out = torch.zeros(len(last)), []
    for t in reversed(range(values.size(1))):
        nxt = (
            values[:, t + 1] * mask[:, t + 1]
            if t + 1 < values.size(1)
            else torch.zeros(len(last))
        )
        delta = token_rewards[:, t] + gamma * nxt - values[:, t]
        adv = delta + gamma * lam * adv * (
            mask[:, t + 1] if t + 1 < values.size(1) else 0
        )
        out.append(adv)
    advantages = torch.stack(out[::-1], 1)
    return advantages, (advantages + values).detach()


def sequence_advantages(advantages, loss_mask, args):
    """One advantage per answer, spread over its tokens again."""
    seq = advantages.mean(dim=1, keepdim=True)
    if args.fixed:
        seq = (advantages * loss_mask).sum(1, keepdim=True) / loss_mask.sum(
            1, keepdim=True
        )
    return seq.expand_as(advantages) * loss_mask


def actor_loss_fn(logp, old_logp, advantages, loss_mask, args, eps_clip=0.2):
    mask = loss_mask.float()
    log_ratio = ((logp - old_logp) * mask).sum(1, keepdim=True) / mask.sum(
        1, keepdim=True
    )
    ratio = log_ratio.exp().expand_as(logp)
    adv = sequence_advantages(advantages, mask, args)
    clipped = ratio.clamp(1 - eps_clip, 1 + eps_clip)
    loss = -torch.min(ratio * adv, clipped * adv) * mask
    return loss.sum() / mask.sum()


def token_logp(model, tokens):
    logp, values = model(tokens[:, :-1])
    return logp.gather(-1, tokens[:, 1:, None]).squeeze(-1), values, logp


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--minibatches", type=int, default=2)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(11)

    model = PolicyAndCritic()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.0)
    step = 0
    while step < args.steps:
        prompts = torch.randint(1, VOCAB, (args.batch,))
        tokens, mask = rollout(model, prompts)
        rewards = reward_fn(prompts, tokens, mask)
        with torch.no_grad():
            old_logp, values, _ = token_logp(model, tokens)
            advantages, returns = gae(rewards, values, mask.float())
            written = advantages[mask]
            advantages = (advantages - written.mean()) / (written.std() + 1e-5)
        for rows in torch.randperm(args.batch).chunk(args.minibatches):
            logp, v, full = token_logp(model, tokens[rows])
            m = mask[rows]
            policy_loss = actor_loss_fn(logp, old_logp[rows], advantages[rows], m, args)
            value_loss = F.mse_loss(v[m], returns[rows][m])
            entropy = -(full.exp() * full).sum(-1)[m].mean()
            loss = policy_loss + 0.5 * value_loss - 0.01 * entropy
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            if step == args.steps:
                break
        if step % 20 == 0:
            print(
                f"step {step} reward {rewards.mean():.3f} length {mask.sum(1).float().mean():.2f} "
                f"policy loss {policy_loss.item():.4f} value loss {value_loss.item():.4f}"
            )

    if args.prove:
        tokens, mask = rollout(model, torch.randint(1, VOCAB, (256,)))
        with torch.no_grad():
            logp, _, _ = token_logp(model, tokens)
            adv = torch.randn(mask.shape)
            a = actor_loss_fn(logp, logp, adv, mask, args).item()
            b = actor_loss_fn(
                logp, logp, adv.masked_fill(~mask, 10.0), mask, args
            ).item()
        print(
            f"padding in the rollouts: {(~mask).float().mean():.2f}; policy loss {a:.4f}, "
            f"with other values behind the end {b:.4f}"
        )
        print("fault shows:", "yes" if abs(a - b) > 1e-6 else "no")


if __name__ == "__main__":
    main()
