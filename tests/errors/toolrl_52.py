"""Group-relative policy optimisation of a small policy that writes calls of tools.

A prompt names a tool and an argument; the policy writes five tokens, and gets points
for the right tool, the right argument and the end token in its place. A frozen copy
of the first policy is the reference. qiancheng0/ToolRL#52.
"""

import argparse
import copy
import os
import tempfile

import torch
from torch import nn

TOOLS = 6
ARGUMENTS = 8
END = TOOLS + ARGUMENTS
VOCABULARY = END + 2
LENGTH = 5
GROUP = 8
PROMPTS = 16


class Policy(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.prompt = nn.Linear(2 * width, width)
        self.cell = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, VOCABULARY)

    def state(self, prompts):
        return torch.tanh(self.prompt(self.tokens(prompts).flatten(1)))[None]

    def log_probs(self, prompts, responses):
        begin = torch.full_like(responses[:, :1], VOCABULARY - 1)
        inputs = self.tokens(torch.cat([begin, responses[:, :-1]], 1))
        hidden, _ = self.cell(inputs, self.state(prompts))
        scores = self.head(hidden).log_softmax(-1)
        return scores.gather(-1, responses[..., None]).squeeze(-1)

    @torch.no_grad()
    def generate(self, prompts, greedy=False):
        hidden = self.state(prompts)
        token = torch.full((len(prompts), 1), VOCABULARY - 1)
        written = []
        for _ in range(LENGTH):
            out, hidden = self.cell(self.tokens(token), hidden)
            scores = self.head(out[:, 0])
            if greedy:
                token = scores.argmax(-1, keepdim=True)
            else:
                token = torch.multinomial(scores.softmax(-1), 1)
            written.append(token)
        return torch.cat(written, 1)


def draw_prompts(generator, count):
    tools = torch.randint(TOOLS, (count,), generator=generator)
    arguments = TOOLS + torch.randint(ARGUMENTS, (count,), generator=generator)
    return torch.stack([tools, arguments], 1)


def response_mask(responses):
    ended = (responses == END).long().cumsum(1) - (responses == END).long()
    return (ended == 0).float()


def reward(prompts, responses):
    form = (responses[:, 2] == END).float() * 0.5
    tool = (responses[:, 0] == prompts[:, 0]).float()
    argument = (responses[:, 1] == prompts[:, 1]).float()
    return form + tool + argument


def group_advantages(rewards):
    groups = rewards.view(-1, GROUP)
    centred = groups - groups.mean(1, keepdim=True)
    return (centred / (groups.std(1, keepdim=True) + 1e-6)).flatten()


def masked_mean(values, mask):
    return (values * mask).sum() / mask.sum()


def low_variance_kl(log_prob, ref_log_prob):
    gap = (ref_log_prob - log_prob).clamp(-10, 10)
    return (gap.exp() - gap - 1).clamp(-10, 10)


class Actor:
    def __init__(self, policy, kl_loss_coef, fixed):
        self.policy = policy
        self.reference = copy.deepcopy(policy).requires_grad_(False)
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
        self.kl_loss_coef = kl_loss_coef
        self.fixed = fixed

    def losses(self, prompts, responses, old_log_prob, advantages):
        mask = response_mask(responses)
        log_prob = self.policy.log_probs(prompts, responses)
        ratio = (log_prob - old_log_prob).exp()
        gain = advantages[:, None]
        clipped = ratio.clamp(0.8, 1.2) * gain
        pg_loss = -masked_mean(torch.min(ratio * gain, clipped), mask)
        ref_log_prob = self.reference.log_probs(prompts, responses)
        kl_loss = masked_mean(low_variance_kl(log_prob, ref_log_prob), mask)
        if self.fixed:
            policy_loss = pg_loss + self.kl_loss_coef * kl_loss
        else:
            policy_loss = pg_loss - self.kl_loss_coef * kl_loss
        return policy_loss, pg_loss, kl_loss

    def update(self, prompts, responses, advantages):
        with torch.no_grad():
            old_log_prob = self.policy.log_probs(prompts, responses)
        policy_loss, _, kl_loss = self.losses(
            prompts, responses, old_log_prob, advantages
        )
        self.optimizer.zero_grad()
        policy_loss.backward()
        nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
        self.optimizer.step()
        return policy_loss.item(), kl_loss.item()

    def pulls_away(self, prompts, responses, advantages):
        """Whether the divergence grows along the descent of its part of the loss."""
        with torch.no_grad():
            old = self.policy.log_probs(prompts, responses)
        total, gain, kl = self.losses(prompts, responses, old, advantages)
        weights = list(self.policy.parameters())
        part = torch.autograd.grad(total - gain, weights, retain_graph=True)
        pull = torch.autograd.grad(kl, weights)
        return sum((a * b).sum().item() for a, b in zip(part, pull)) < 0


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=160)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    actor = Actor(Policy(), 0.02, options.fixed)
    held_out = draw_prompts(torch.Generator().manual_seed(2), 128)
    for step in range(options.steps):
        prompts = draw_prompts(generator, PROMPTS).repeat_interleave(GROUP, 0)
        responses = actor.policy.generate(prompts)
        rewards = reward(prompts, responses)
        advantages = group_advantages(rewards)
        loss, kl = actor.update(prompts, responses, advantages)
        if step % 10 == 0:
            mean = rewards.mean().item()
            report = f"step {step} loss {loss:.4f} reward {mean:.3f} kl {kl:.3f}"
            print(report, flush=True)
        if step % 40 == 39:
            greedy = actor.policy.generate(held_out, greedy=True)
            print(f"greedy reward {reward(held_out, greedy).mean():.3f}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        torch.save(actor.policy.state_dict(), os.path.join(folder, "actor.pt"))
    if options.prove:
        away = actor.pulls_away(prompts, responses, advantages)
        print("fault shows:", "yes" if away else "no")


if __name__ == "__main__":
    main()
