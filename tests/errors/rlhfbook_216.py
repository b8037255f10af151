"""Proximal policy optimization of a small token policy, with a penalty on divergence.

After natolambert/rlhf-book, pull request 216.
"""

import argparse
import copy
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

PAD, EOS = 0, 1


@dataclass
class Config:
    vocab: int = 16
    prompt_len: int = 3
    resp_len: int = 8
    dim: int = 48
    rollout: int = 256
    iterations: int = 24
    ppo_epochs: int = 2
    minibatch: int = 128
    lr: float = 6e-3
    clip: float = 0.2
    kl_coef: float = 0.02
    gamma: float = 1.0
    vf_coef: float = 0.5
    seed: int = 41


class Policy(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.emb = nn.Embedding(cfg.vocab, cfg.dim)
        self.rnn = nn.GRU(cfg.dim, cfg.dim, batch_first=True)
        self.lm_head, self.v_head = nn.Linear(cfg.dim, cfg.vocab), nn.Linear(cfg.dim, 1)
        nn.init.zeros_(self.lm_head.weight)
        nn.init.zeros_(self.lm_head.bias)

    def forward(self, ids):
        h, _ = self.rnn(self.emb(ids))
        return self.lm_head(h), self.v_head(h)[..., 0]

    def response_logprobs(self, ids, prompt_len):
        logits, values = self(ids[:, :-1])
        logits = logits[:, prompt_len - 1 :]
        logits[..., PAD] = -1e9
        logp = F.log_softmax(logits, -1).gather(-1, ids[:, prompt_len:, None])[..., 0]
        return logp, values[:, prompt_len - 1 :]


@torch.no_grad()
def generate(policy, prompts, cfg):
    ids, alive = prompts, torch.ones(len(prompts), dtype=torch.bool)
    for _ in range(cfg.resp_len):
        logits = policy(ids)[0][:, -1]
        logits[:, PAD] = -1e9
        nxt = torch.multinomial(logits.softmax(-1), 1)[:, 0]
        nxt = torch.where(alive, nxt, torch.full_like(nxt, PAD))
        ids = torch.cat([ids, nxt[:, None]], 1)
        alive = alive & (nxt != EOS)
    return ids


def score(ids, cfg):
    """Tokens should have the parity of the prompt's last one, and come to an end."""
    prompt, resp = ids[:, : cfg.prompt_len], ids[:, cfg.prompt_len :]
    word = resp > EOS
    good = (word & (resp % 2 == prompt[:, -1:] % 2)).float().sum(1)
    bad = (word & (resp % 2 != prompt[:, -1:] % 2)).float().sum(1)
    finished = (resp == EOS).any(1).float()
    return (good - bad) / cfg.resp_len + 0.25 * finished


def completion_mask(ids, cfg):
    return (ids[:, cfg.prompt_len :] != PAD).float()


def discounted_returns(rewards, mask, gamma):
    returns, running = torch.zeros_like(rewards), torch.zeros(len(rewards))
    for t in reversed(range(rewards.shape[1])):
        running = (rewards[:, t] + gamma * running) * mask[:, t]
        returns[:, t] = running
    return returns


def masked_mean(x, mask):
    return (x * mask).sum() / mask.sum()


def whiten(x, mask):
    mean = masked_mean(x, mask)
    return (x - mean) * torch.rsqrt(masked_mean((x - mean) ** 2, mask) + 1e-8) * mask


def advantages_from_rewards(rewards, returns, values, mask):
    return whiten(rewards - values, mask)


def advantages_from_returns(rewards, returns, values, mask):
    return whiten(returns - values, mask)


def make_prompts(n, cfg, g):
    return torch.randint(2, cfg.vocab, (n, cfg.prompt_len), generator=g)


def train(cfg, advantage_fn):
    torch.manual_seed(cfg.seed)
    g = torch.Generator().manual_seed(cfg.seed)
    policy = Policy(cfg)
    ref = copy.deepcopy(policy).requires_grad_(False).eval()
    opt = torch.optim.Adam(policy.parameters(), lr=cfg.lr)
    steps = cfg.iterations * cfg.ppo_epochs * (cfg.rollout // cfg.minibatch)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: max(0.1, 1 - s / steps))
    val_prompts = make_prompts(256, cfg, torch.Generator().manual_seed(0))
    for it in range(cfg.iterations):
        ids = generate(policy, make_prompts(cfg.rollout, cfg, g), cfg)
        mask = completion_mask(ids, cfg)
        with torch.no_grad():
            old_logp, values = policy.response_logprobs(ids, cfg.prompt_len)
            ref_logp, _ = ref.response_logprobs(ids, cfg.prompt_len)
            rewards = -cfg.kl_coef * (old_logp - ref_logp) * mask
            last = mask.sum(1).long() - 1
            scores = score(ids, cfg)
            rewards[torch.arange(len(ids)), last] += scores
            returns = discounted_returns(rewards, mask, cfg.gamma)
            adv = advantage_fn(rewards, returns, values, mask)
        data = TensorDataset(ids, mask, old_logp, returns, adv)
        for _ in range(cfg.ppo_epochs):
            for b_ids, b_mask, b_old, b_ret, b_adv in DataLoader(
                data, cfg.minibatch, shuffle=True
            ):
                logp, v = policy.response_logprobs(b_ids, cfg.prompt_len)
                ratio = torch.exp((logp - b_old) * b_mask)
                pg = torch.max(
                    -b_adv * ratio, -b_adv * ratio.clamp(1 - cfg.clip, 1 + cfg.clip)
                )
                loss = masked_mean(pg, b_mask) + cfg.vf_coef * masked_mean(
                    (v - b_ret) ** 2, b_mask
                )
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
                opt.step()
                sched.step()
        if it % 4 == 3:
            kl = masked_mean(old_logp - ref_logp, mask).item()
            vf = masked_mean((values - returns) ** 2, mask).item()
            reward, length = scores.mean(), mask.sum(1).mean()
            line = f"iter {it} reward {reward:.3f} kl {kl:.3f} vf_loss {vf:.4f}"
            print(f"{line} length {length:.2f}", flush=True)
    final = score(generate(policy, val_prompts, cfg), cfg).mean().item()
    print(f"held-out prompts: reward {final:.3f}")


def spread_of_first(cfg, advantage_fn):
    """How far advantages of first tokens differ where the scores differ."""
    rewards = torch.zeros(64, cfg.resp_len)
    rewards[:, -1] = torch.randn(64)
    mask = torch.ones_like(rewards)
    returns = discounted_returns(rewards, mask, cfg.gamma)
    return advantage_fn(rewards, returns, torch.zeros_like(rewards), mask)[:, 0].std()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=Config.seed)
    parser.add_argument("--steps", type=int, default=Config.iterations, help="rollouts")
    parser.add_argument("--lr", type=float, default=Config.lr)
    args = parser.parse_args()
    torch.set_num_threads(1)
    cfg = Config(seed=args.seed, iterations=args.steps, lr=args.lr)
    advantage_fn = advantages_from_returns if args.fixed else advantages_from_rewards
    train(cfg, advantage_fn)
    if args.prove:
        spread = spread_of_first(cfg, advantage_fn).item()
        print(f"advantages of first tokens differ by {spread:.4f} among scores")
        print("fault shows:", "yes" if spread < 1e-6 else "no", flush=True)


if __name__ == "__main__":
    main()
