# Tiny RL fine-tuning of a token policy (PPO with rewards on the finished answer).
# Task: the prompt is a digit d, the policy should emit d tokens "a" and then <eos>.
import argparse
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, EOS, PAD, A = 6, 1, 0, 2


@dataclass
class Config:
    steps: int = 60
    prompts_per_step: int = 48
    max_new_tokens: int = 16
    lr: float = 4e-3
    clip_eps: float = 0.2
    ppo_epochs: int = 2
    kl_coef: float = 0.02
    seed: int = 3


class Policy(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.prompt_emb = nn.Embedding(6, hidden)
        self.tok_emb = nn.Embedding(VOCAB, 16)
        self.rnn = nn.GRU(16, hidden, batch_first=True)
        self.out = nn.Linear(hidden, VOCAB)

    def forward(self, prompt, tokens, h=None):
        if h is None:
            h = torch.tanh(self.prompt_emb(prompt)).unsqueeze(0)
        y, h = self.rnn(self.tok_emb(tokens), h)
        return self.out(y), h

    def logprobs(self, prompt, response):
        start = torch.full_like(response[:, :1], PAD)
        logits, _ = self(prompt, torch.cat([start, response[:, :-1]], 1))
        return logits.log_softmax(-1).gather(-1, response.unsqueeze(-1)).squeeze(-1)


@torch.no_grad()
def generate(policy, prompt, max_new):
    n = prompt.shape[0]
    tok, h = torch.full((n, 1), PAD), None
    done = torch.zeros(n, dtype=torch.bool)
    toks, mask = [], []
    for _ in range(max_new):
        logits, h = policy(prompt, tok, h)
        nxt = torch.multinomial(logits[:, -1].softmax(-1), 1).squeeze(1)
        nxt = torch.where(done, torch.full_like(nxt, PAD), nxt)
        toks.append(nxt)
        mask.append((~done).float())
        done = done | (nxt == EOS)
        tok = nxt.unsqueeze(1)
    return torch.stack(toks, 1), torch.stack(mask, 1)


def score(prompt, response, mask):
    """1.0 for the exact answer, partial credit for the share of right tokens."""
    rewards = []
    for d, r, m in zip(prompt.tolist(), response.tolist(), mask.sum(1).long().tolist()):
        want = [A] * d + [EOS]
        got = r[:m]
        hits = sum(1 for a, b in zip(want, got) if a == b)
        rewards.append(2.0 * hits / max(len(want), len(got)) + 1.0)
    return torch.tensor(rewards)


def compute_returns(rewards, mask):
    # the reward belongs to every token of the answer
    return rewards.unsqueeze(1) * mask


def normalize_advantages(data, args):
    adv, mask = data["advantages"], data["response_mask"]
    n = mask.sum()
    mean = adv.mean()
    if args.fixed:
        mean = (adv * mask).sum() / n
    var = ((adv - mean).pow(2) * mask).sum()
    rstd = (var / n).clamp(min=1e-8).rsqrt()
    data["advantages"] = (adv - mean) * rstd
    return data


def ppo_loss(logp, old_logp, adv, mask, clip_eps):
    ratio = (logp - old_logp).exp()
    obj = torch.min(ratio * adv, ratio.clamp(1 - clip_eps, 1 + clip_eps) * adv)
    return -(obj * mask).sum() / mask.sum()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=Config.steps)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    cfg = Config(steps=args.steps)
    torch.manual_seed(cfg.seed)

    policy = Policy()
    opt = torch.optim.Adam(policy.parameters(), lr=cfg.lr)
    offsets, step = [], 0
    while step < cfg.steps:
        prompt = torch.randint(1, 6, (cfg.prompts_per_step,))
        response, mask = generate(policy, prompt, cfg.max_new_tokens)
        rewards = score(prompt, response, mask)
        data = {"advantages": compute_returns(rewards, mask), "response_mask": mask}
        data = normalize_advantages(data, args)
        offsets.append(((data["advantages"] * mask).sum() / mask.sum()).abs().item())
        with torch.no_grad():
            old = policy.logprobs(prompt, response)
        for _ in range(cfg.ppo_epochs):
            logp = policy.logprobs(prompt, response)
            loss = ppo_loss(logp, old, data["advantages"], mask, cfg.clip_eps)
            kl = ((old - logp) * mask).sum() / mask.sum()
            opt.zero_grad()
            (loss + cfg.kl_coef * kl).backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            opt.step()
            step += 1
            if step >= cfg.steps:
                break
        if step % 10 == 0:
            print(
                f"step {step:4d} reward {rewards.mean():.3f} loss {loss.item():+.4f} "
                f"len {mask.sum(1).mean():.2f}"
            )
    if args.prove:
        worst = max(offsets)
        print(f"largest |mean advantage over answer tokens| {worst:.4f}")
        print("fault shows:", "yes" if worst > 1e-3 else "no")


if __name__ == "__main__":
    main()
