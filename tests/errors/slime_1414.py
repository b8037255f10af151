"""Group-relative policy optimization on prompts of unlike difficulty.

After THUDM/slime, issue 1414.
"""

import argparse
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, LENGTH = 8, 4


@dataclass
class Sample:
    group: int
    prompt: int
    tokens: torch.Tensor
    logprobs: torch.Tensor
    reward: float


class Policy(nn.Module):
    """Writes four tokens after a prompt."""

    def __init__(self, prompts, hidden=32):
        super().__init__()
        self.prompts = nn.Embedding(prompts, hidden)
        self.tokens = nn.Embedding(VOCAB + 1, hidden)
        self.rnn = nn.GRU(hidden, hidden, batch_first=True)
        self.head = nn.Linear(hidden, VOCAB)

    def logits(self, prompt, inputs):
        return self.head(self.rnn(self.tokens(inputs), self.prompts(prompt)[None])[0])

    def logprobs(self, prompt, tokens):
        inputs = torch.cat([torch.full((len(tokens), 1), VOCAB), tokens[:, :-1]], 1)
        logp = F.log_softmax(self.logits(prompt, inputs), -1)
        return logp.gather(-1, tokens[..., None]).squeeze(-1)

    @torch.no_grad()
    def sample(self, prompt):
        tokens = torch.empty(len(prompt), 0, dtype=torch.long)
        for _ in range(LENGTH):
            inputs = torch.cat([torch.full((len(prompt), 1), VOCAB), tokens], 1)
            probs = self.logits(prompt, inputs)[:, -1].softmax(-1)
            tokens = torch.cat([tokens, torch.multinomial(probs, 1)], 1)
        return tokens, self.logprobs(prompt, tokens)


class Task:
    """The share of right tokens, and more for half of the prompts."""

    def __init__(self, prompts):
        gen = torch.Generator().manual_seed(4)
        self.answers = torch.randint(VOCAB, (prompts, LENGTH), generator=gen)
        self.base = torch.where(torch.arange(prompts) % 2 == 0, 0.0, 3.0)

    def reward(self, prompt, tokens):
        right = (tokens == self.answers[prompt]).float().mean()
        return (self.base[prompt] + right).item()


class RolloutManager:
    def __init__(self, args, task):
        self.args, self.task = args, task
        self.gen = torch.Generator().manual_seed(args.seed + 1)

    def generate(self, policy):
        """Some samples are aborted, but at least two of a prompt are not."""
        samples = []
        order = torch.randperm(self.args.prompts, generator=self.gen)
        chosen = order[: self.args.rollout_batch_size]
        for group, prompt in enumerate(chosen.tolist()):
            count = self.args.n_samples_per_prompt
            tokens, logprobs = policy.sample(torch.full((count,), prompt))
            aborted = torch.rand(count, generator=self.gen) < self.args.abort
            for i in range(count):
                if not aborted[i] or i < 2:
                    reward = self.task.reward(prompt, tokens[i])
                    sample = Sample(group, prompt, tokens[i], logprobs[i], reward)
                    samples.append(sample)
        return samples

    def post_process_rewards(self, samples):
        rewards = torch.tensor([s.reward for s in samples])
        size = self.args.n_samples_per_prompt
        if rewards.shape[-1] == size * self.args.rollout_batch_size:
            rewards = rewards.reshape(-1, size)
        else:
            rewards = rewards.view(-1, rewards.shape[-1])
        rewards = rewards - rewards.mean(dim=-1, keepdim=True)
        return (rewards / (rewards.std(dim=-1, keepdim=True) + 1e-6)).flatten()


class GroupedRolloutManager(RolloutManager):
    def post_process_rewards(self, samples):
        rewards = torch.tensor([s.reward for s in samples])
        groups = torch.tensor([s.group for s in samples])
        result = torch.zeros_like(rewards)
        for group in groups.unique():
            own = groups == group
            centred = rewards[own] - rewards[own].mean()
            result[own] = centred / (centred.std() + 1e-6)
        return result


def policy_loss(policy, samples, advantages):
    prompt = torch.tensor([s.prompt for s in samples])
    tokens = torch.stack([s.tokens for s in samples])
    old = torch.stack([s.logprobs for s in samples])
    ratio = (policy.logprobs(prompt, tokens) - old).exp()
    advantages = advantages[:, None]
    clipped = ratio.clamp(0.8, 1.2) * advantages
    return -torch.min(ratio * advantages, clipped).mean()


@torch.no_grad()
def solved(policy, task):
    prompt = torch.arange(len(task.answers)).repeat_interleave(8)
    tokens, _ = policy.sample(prompt)
    return (tokens == task.answers[prompt]).float().mean().item()


def train(args, manager, policy):
    optimizer = torch.optim.Adam(policy.parameters(), lr=args.lr)
    for step in range(args.steps):
        samples = manager.generate(policy)
        advantages = manager.post_process_rewards(samples)
        for _ in range(args.updates):
            loss = policy_loss(policy, samples, advantages)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
        if step % 10 == 0:
            mean = sum(s.reward for s in samples) / len(samples)
            print(
                f"rollout {step} samples {len(samples)} reward {mean:.3f} "
                f"loss {loss.item():.4f}",
                flush=True,
            )
    print(f"right tokens {solved(policy, manager.task):.3f}", flush=True)


def mean_advantages(manager, policy):
    """Of each prompt of a rollout; where prompts are normalised apart, it is 0."""
    samples = manager.generate(policy)
    advantages = manager.post_process_rewards(samples)
    groups = torch.tensor([s.group for s in samples])
    return [advantages[groups == group].mean().item() for group in groups.unique()]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60, help="rollouts")
    parser.add_argument("--updates", type=int, default=2)
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--rollout-batch-size", type=int, default=8)
    parser.add_argument("--n-samples-per-prompt", type=int, default=8)
    parser.add_argument("--abort", type=float, default=0.15)
    parser.add_argument("--lr", type=float, default=1e-2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    task, policy = Task(args.prompts), Policy(args.prompts)
    manager = (GroupedRolloutManager if args.fixed else RolloutManager)(args, task)
    train(args, manager, policy)
    if args.prove:
        means = [abs(mean) for mean in mean_advantages(manager, policy)]
        print(f"mean advantages of prompts are up to {max(means):.4f} from 0")
        print("fault shows:", "yes" if max(means) > 0.01 else "no", flush=True)


if __name__ == "__main__":
    main()
