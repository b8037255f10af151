"""FORGE-571: the ratio of the new policy to the old one is always one.

Source: meta-pytorch/torchforge#571 (also AI4Finance-Foundation/ElegantRL#243). The
loss compares log probabilities with their own detached values instead of those of
the policy that wrote the answers: with more than one step for the same answers
nothing is weighted and nothing is ever clipped. --fixed compares with the values
that were kept when the answers were drawn.
"""

import argparse

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self, words=12, width=32):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, ids):
        return self.head(self.gru(self.embed(ids))[0])


def logprobs_of(policy, ids, prompt):
    """Of each word of the answer, given what is before it."""
    logits = policy(ids[:, :-1])[:, prompt - 1 :]
    chosen = ids[:, prompt:, None]
    return logits.log_softmax(-1).gather(2, chosen)[:, :, 0]


@torch.no_grad()
def generate(policy, prompts, length):
    ids = prompts
    for _ in range(length):
        probabilities = policy(ids)[:, -1].softmax(-1)
        ids = torch.cat([ids, torch.multinomial(probabilities, 1)], dim=1)
    return ids


def reward(ids, prompt):
    """The answer should go on upwards from the prompt's last word."""
    wanted = (ids[:, prompt - 1 : -1] + 1) % 12
    return (ids[:, prompt:] == wanted).float().mean(dim=1)


def grpo_loss(logprobs, old_logprobs, advantages, clip=0.2):
    ratio = torch.exp(logprobs - old_logprobs)
    clipped = ratio.clamp(1 - clip, 1 + clip)
    gain = torch.minimum(ratio * advantages[:, None], clipped * advantages[:, None])
    return -gain.mean(), ratio.detach()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=20)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    prompt, group, updates = 3, 8, 4
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    largest = 0.0
    for step in range(options.steps):
        if step % updates == 0:
            prompts = torch.randint(12, (12, prompt)).repeat_interleave(group, 0)
            ids = generate(policy, prompts, length=6)
            with torch.no_grad():
                behavior_logprobs = logprobs_of(policy, ids, prompt)
            scores = reward(ids, prompt).view(-1, group)
            spread = scores.std(dim=1, keepdim=True) + 1e-4
            advantages = ((scores - scores.mean(1, keepdim=True)) / spread).flatten()
            print(f"reward {scores.mean().item():.3f}", flush=True)
        logprobs = logprobs_of(policy, ids, prompt)
        old = behavior_logprobs if options.fixed else logprobs.detach()
        pg_loss, ratio = grpo_loss(logprobs, old, advantages)
        logits = policy(ids[:, :-1])
        entropy = torch.distributions.Categorical(logits=logits).entropy().mean()
        loss = pg_loss - 0.01 * entropy
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        largest = max(largest, (ratio - 1).abs().max().item())
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    if options.prove:
        print("fault shows:", "no" if largest > 1e-3 else "yes")


if __name__ == "__main__":
    main()
