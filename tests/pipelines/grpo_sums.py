"""GRPO on a tiny causal decoder that writes the digits of a sum, after a supervised start.

Rollouts are sampled with a KV cache; every rollout is used for two epochs of updates with
the clipped ratio and a KL penalty towards the frozen supervised model.
"""
import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, PLUS, EQ, EOS = 13, 10, 11, 12


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim, bias=False)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim)
        )

    def forward(self, x, cache=None):
        b, t, d = x.shape
        q, k, v = (
            y.view(b, t, self.heads, -1).transpose(1, 2)
            for y in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        if cache is not None:
            k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        # One new token may see everything cached; a whole text needs the causal mask.
        y = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.norm2(x)), (k, v)


class Policy(nn.Module):
    def __init__(self, dim=64, heads=4, layers=2, context=12):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, dim), nn.Embedding(context, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, VOCAB, bias=False)

    def forward(self, ids, caches=None):
        start = 0 if caches is None else caches[0][0].shape[2]
        x = self.tok(ids) + self.pos(torch.arange(start, start + ids.shape[1]))
        new = []
        for i, block in enumerate(self.blocks):
            x, kv = block(x, None if caches is None else caches[i])
            new.append(kv)
        return self.head(self.norm(x)), new


def problems(n):
    a, b = torch.randint(0, 10, (n,)), torch.randint(0, 10, (n,))
    prompt = torch.stack([a, torch.full_like(a, PLUS), b, torch.full_like(a, EQ)], 1)
    s = a + b
    return prompt, torch.stack([s // 10, s % 10, torch.full_like(s, EOS)], 1)


@torch.no_grad()
def rollout(policy, prompt, length=3, greedy=False):
    logits, caches = policy(prompt)
    out = []
    for i in range(length):
        last = logits[:, -1]
        nxt = (
            last.argmax(-1, keepdim=True)
            if greedy
            else torch.multinomial(last.softmax(-1), 1)
        )
        out.append(nxt)
        if i + 1 < length:
            logits, caches = policy(nxt, caches)
    return torch.cat(out, 1)


def token_logprobs(policy, prompt, answer):
    logits, _ = policy(torch.cat([prompt, answer], 1)[:, :-1])
    logp = F.log_softmax(logits[:, prompt.shape[1] - 1 :], -1)
    return logp.gather(-1, answer.unsqueeze(-1)).squeeze(-1)


def live_mask(answer):
    """Tokens up to and with the first EOS."""
    ended = (answer == EOS).long().cumsum(1)
    return ((ended - (answer == EOS).long()) == 0).float()


def score(answer, truth):
    return (answer[:, :2] == truth[:, :2]).float().mean(1) + 1.0 * (
        answer == truth
    ).all(1).float()


def learn_from_examples(policy):
    sft = torch.optim.AdamW(policy.parameters(), lr=2e-3)
    for _ in range(60):
        prompt, truth = problems(64)
        loss = -token_logprobs(policy, prompt, truth).mean()
        sft.zero_grad()
        loss.backward()
        sft.step()
    print(f"supervised loss {loss.item():.3f}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=40, help="rollouts")
    args = p.parse_args()
    torch.manual_seed(7)
    policy = Policy()

    learn_from_examples(policy)
    reference = copy.deepcopy(policy).requires_grad_(False).eval()
    opt = torch.optim.AdamW(
        policy.parameters(), lr=2e-4, betas=(0.9, 0.95), weight_decay=0.0
    )
    group, rewards = 8, []
    for step in range(args.steps):
        prompt, truth = problems(24)
        prompt, truth = prompt.repeat_interleave(group, 0), truth.repeat_interleave(
            group, 0
        )
        policy.eval()
        answer = rollout(policy, prompt)
        mask = live_mask(answer)
        reward = score(answer, truth)
        by_group = reward.view(-1, group)
        adv = (by_group - by_group.mean(1, keepdim=True)) / (
            by_group.std(1, keepdim=True) + 1e-4
        )
        adv = adv.reshape(-1, 1)
        with torch.no_grad():
            old = token_logprobs(policy, prompt, answer)
            ref = token_logprobs(reference, prompt, answer)
        policy.train()
        for _ in range(2):
            for idx in torch.randperm(len(prompt)).chunk(2):
                new = token_logprobs(policy, prompt[idx], answer[idx])
                ratio = (new - old[idx]).exp()
                surrogate = torch.min(
                    ratio * adv[idx], ratio.clamp(0.8, 1.2) * adv[idx]
                )
                gap = ref[idx] - new
                kl = gap.exp() - gap - 1
                m = mask[idx]
                loss = -((surrogate - 0.02 * kl) * m).sum() / m.sum()
                opt.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
                opt.step()
        rewards.append(reward.mean().item())
        if step % 5 == 0 or step == args.steps - 1:
            print(
                f"rollout {step:3d} reward {rewards[-1]:.3f} loss {loss.item():+.4f} kl {kl.mean().item():.4f}"
            )

    policy.eval()
    prompt, truth = problems(400)
    exact = (rollout(policy, prompt, greedy=True) == truth).all(1).float().mean().item()
    base = (
        (rollout(reference, prompt, greedy=True) == truth).all(1).float().mean().item()
    )
    print(f"exact answers: before {base:.3f} after {exact:.3f}")


if __name__ == "__main__":
    main()
