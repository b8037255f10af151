"""Group-relative policy optimization of a small policy that repeats its prompts.

After R1-V, issue 67.
"""

import argparse
import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

VOCABULARY, PROMPT, COMPLETION = 24, 6, 6


class Prompts(Dataset):
    """Half of them are one token again and again, and so easier to meet."""

    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randint(2, VOCABULARY, (count, PROMPT), generator=generator)
        easy = torch.rand(count, generator=generator) < 0.5
        self.x[easy] = self.x[easy][:, :1].expand(-1, PROMPT)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index]


class Policy(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.emb = nn.Embedding(VOCABULARY, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, ids):
        return self.head(self.rnn(self.emb(ids))[0])

    @torch.no_grad()
    def generate(self, prompt, count, greedy=False):
        ids = prompt
        for _ in range(count):
            logits = self(ids)[:, -1]
            if greedy:
                token = logits.argmax(-1, keepdim=True)
            else:
                token = torch.multinomial(logits.softmax(-1), 1)
            ids = torch.cat([ids, token], 1)
        return ids


def reward_fn(prompts, completions):
    """The share of the completion's tokens that occur in the prompt."""
    hit = (completions[:, :, None] == prompts[:, None, :]).any(-1).float()
    return hit.mean(1)


def token_logps(model, ids):
    logp = model(ids[:, :-1]).log_softmax(-1)
    return logp.gather(-1, ids[:, 1:, None]).squeeze(-1)[:, -COMPLETION:]


class GRPOTrainer:
    def __init__(self, model, num_generations=4, beta=0.02, lr=3e-3, fixed=False):
        self.model, self.num_generations = model, num_generations
        self.beta, self.fixed = beta, fixed
        self.ref = copy.deepcopy(model).requires_grad_(False).eval()
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)

    def repeated(self, prompts):
        if self.fixed:
            return prompts.repeat_interleave(self.num_generations, dim=0)
        return prompts.repeat(self.num_generations, 1)

    def compute_loss(self, prompts):
        group = self.num_generations
        prompts = self.repeated(prompts)
        ids = self.model.generate(prompts, COMPLETION)
        rewards = reward_fn(prompts, ids[:, -COMPLETION:])
        grouped = rewards.view(-1, group)
        mean_grouped = grouped.mean(dim=1).repeat_interleave(group, dim=0)
        std_grouped = grouped.std(dim=1).repeat_interleave(group, dim=0)
        advantages = (rewards - mean_grouped) / (std_grouped + 1e-4)
        logps = token_logps(self.model, ids)
        with torch.no_grad():
            ref = token_logps(self.ref, ids)
        kl = torch.exp(ref - logps) - (ref - logps) - 1
        per_token = torch.exp(logps - logps.detach()) * advantages[:, None]
        loss = -(per_token - self.beta * kl).mean()
        return loss, rewards.mean().item(), kl.mean().item()

    def step(self, prompts):
        loss, reward, kl = self.compute_loss(prompts)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.item(), reward, kl


@torch.no_grad()
def evaluate(model, loader):
    rewards = []
    for prompts in loader:
        ids = model.generate(prompts, COMPLETION, greedy=True)
        rewards.append(reward_fn(prompts, ids[:, -COMPLETION:]))
    return torch.cat(rewards).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    trainer = GRPOTrainer(Policy(), fixed=args.fixed)
    data = Prompts(8 * args.steps, args.seed)
    train = DataLoader(data, batch_size=8, shuffle=True, drop_last=True)
    valid = DataLoader(Prompts(64, args.seed + 1), batch_size=32)
    for step, prompts in enumerate(train):
        loss, reward, kl = trainer.step(prompts)
        print(
            f"step {step} loss {loss:.4f} reward {reward:.3f} kl {kl:.4f}", flush=True
        )
        if step % 10 == 9:
            print(f"greedy reward {evaluate(trainer.model, valid):.3f}", flush=True)
    if args.prove:
        rows = torch.arange(8)[:, None]
        groups = trainer.repeated(rows).view(-1, trainer.num_generations)
        mixed = (groups != groups[:, :1]).any(1).float().mean().item()
        print(f"share of groups with several prompts {mixed:.4f}")
        print("fault shows:", "yes" if mixed > 0 else "no", flush=True)


if __name__ == "__main__":
    main()
