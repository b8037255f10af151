"""Group-relative policy optimisation of a small causal LM on a counting task.

The prompt is a start digit and a stride; the completion should continue the
arithmetic sequence modulo 6.  Reward: share of right digits.
"""
import argparse
import copy
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB = 8  # six digits, <sep>, <bos>
SEP, BOS = 6, 7
PROMPT_LEN = 4


class CausalLM(nn.Module):
    def __init__(self, hidden=32, heads=2, layers=1, max_len=12):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, hidden)
        self.wpe = nn.Embedding(max_len, hidden)
        layer = nn.TransformerEncoderLayer(
            hidden,
            heads,
            3 * hidden,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.h = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.ln_f = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, VOCAB)

    def forward(self, ids):
        t = ids.shape[1]
        mask = torch.full((t, t), float("-inf")).triu(1)
        x = self.wte(ids) + self.wpe(torch.arange(t))
        return self.head(self.ln_f(self.h(x, mask=mask)))


class Prompts:
    def __init__(self, seed):
        self.rng = random.Random(seed)

    def draw(self, n):
        rows, strides = [], []
        for _ in range(n):
            start, stride = self.rng.randrange(6), self.rng.randint(1, 2)
            rows.append([BOS, start, stride, SEP])
            strides.append((start, stride))
        return torch.tensor(rows), strides


def digit_reward(completions, specs):
    rewards = []
    for row, (start, stride) in zip(completions.tolist(), specs):
        gold = [(start + stride * (i + 1)) % 6 for i in range(len(row))]
        rewards.append(sum(a == b for a, b in zip(row, gold)) / len(row))
    return torch.tensor(rewards)


class GRPOTrainer:
    def __init__(self, args):
        self.args = args
        torch.manual_seed(args.seed)
        self.model = CausalLM()
        self.ref_model = copy.deepcopy(self.model).requires_grad_(False)
        self.temperature = args.temperature
        self.prompts = Prompts(args.seed)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=args.lr, weight_decay=0.0
        )
        self.generator = torch.Generator().manual_seed(args.seed)
        self.last_rollout = None

    @torch.no_grad()
    def generate(self, prompt_ids, greedy=False):
        ids, picked = prompt_ids, []
        for _ in range(self.args.completion_len):
            scores = self.model(ids)[:, -1] / self.temperature
            logp = scores.log_softmax(-1)
            if greedy:
                nxt = scores.argmax(-1, keepdim=True)
            else:
                nxt = torch.multinomial(logp.exp(), 1, generator=self.generator)
            picked.append(logp.gather(1, nxt))
            ids = torch.cat([ids, nxt], dim=1)
        return ids, torch.cat(picked, dim=1)

    def get_per_token_logps(self, model, ids):
        logits = model(ids)[:, PROMPT_LEN - 1 : -1]
        if self.args.fixed:
            logits = logits / self.temperature
        return logits.log_softmax(-1).gather(2, ids[:, PROMPT_LEN:, None]).squeeze(2)

    def rollout(self):
        a = self.args
        prompt_ids, specs = self.prompts.draw(a.prompts_per_step)
        prompt_ids = prompt_ids.repeat_interleave(a.num_generations, dim=0)
        specs = [s for s in specs for _ in range(a.num_generations)]
        ids, sampled_logps = self.generate(prompt_ids)
        rewards = digit_reward(ids[:, PROMPT_LEN:], specs)
        groups = rewards.view(-1, a.num_generations)
        adv = (groups - groups.mean(1, keepdim=True)) / (
            groups.std(1, keepdim=True) + 1e-4
        )
        with torch.no_grad():
            old_logps = self.get_per_token_logps(self.model, ids)
            ref_logps = self.get_per_token_logps(self.ref_model, ids)
        self.last_rollout = (sampled_logps, old_logps)
        return ids, adv.reshape(-1, 1), old_logps, ref_logps, rewards.mean().item()

    def compute_loss(self, ids, adv, old_logps, ref_logps):
        a = self.args
        logps = self.get_per_token_logps(self.model, ids)
        ratio = torch.exp(logps - old_logps)
        clipped = ratio.clamp(1 - a.epsilon, 1 + a.epsilon)
        loss = -torch.min(ratio * adv, clipped * adv)
        delta = ref_logps - logps
        kl = delta.exp() - delta - 1
        return (loss + a.beta * kl).mean(), kl.mean().item()

    def train(self):
        a, step = self.args, 0
        while step < a.steps:
            batch = self.rollout()
            for _ in range(a.num_iterations):
                loss, kl = self.compute_loss(*batch[:4])
                self.optimizer.zero_grad()
                loss.backward()
                norm = nn.utils.clip_grad_norm_(
                    self.model.parameters(), a.max_grad_norm
                )
                self.optimizer.step()
                if step % 20 == 0:
                    print(
                        f"step {step:3d} | loss {loss.item():+.4f} | reward {batch[4]:.3f} "
                        f"| kl {kl:.4f} | grad_norm {norm.item():.3f}"
                    )
                step += 1

    def evaluate(self, n=100):
        prompts, specs = Prompts(12345).draw(n)
        greedy, _ = self.generate(prompts, greedy=True)
        sampled, _ = self.generate(prompts)
        return (
            digit_reward(greedy[:, PROMPT_LEN:], specs).mean().item(),
            digit_reward(sampled[:, PROMPT_LEN:], specs).mean().item(),
        )

    def prove(self):
        gaps = []
        for _ in range(4):
            self.rollout()
            sampled, used = self.last_rollout
            gaps.append((sampled - used).abs().mean().item())
        gap = sum(gaps) / len(gaps)
        print(
            f"mean difference between sampler and trainer log-probabilities: {gap:.5f}"
        )
        print("fault shows:", "yes" if gap > 1e-3 else "no")


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=240)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--temperature", type=float, default=0.8)
    p.add_argument("--num-generations", type=int, default=10)
    p.add_argument("--num-iterations", type=int, default=2)
    p.add_argument("--prompts-per-step", type=int, default=10)
    p.add_argument("--completion-len", type=int, default=3)
    p.add_argument("--epsilon", type=float, default=0.2)
    p.add_argument("--beta", type=float, default=0.01)
    p.add_argument("--max-grad-norm", type=float, default=1.0)
    p.add_argument("--seed", type=int, default=3)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    return p.parse_args()


if __name__ == "__main__":
    args = get_args()
    trainer = GRPOTrainer(args)
    trainer.train()
    greedy, sampled = trainer.evaluate()
    print(f"eval reward: greedy {greedy:.3f}, sampled {sampled:.3f}")
    if args.prove:
        trainer.prove()
