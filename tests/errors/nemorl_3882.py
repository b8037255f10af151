"""Group-relative policy optimisation of a small captioning policy.

The policy sees a picture of tiles and a question and answers with three tokens.
A verifier scores the answers; several answers per item give the baseline.
"""
import argparse
import copy
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

PICTURE = 20  # <picture> placeholder
QUESTIONS = torch.tensor([[1, PICTURE, PICTURE, 2, 5], [1, PICTURE, PICTURE, 3, 6]])
N_COLORS, N_SHAPES, MAX_COUNT = 6, 5, 6
COLOR0, SHAPE0, COUNT0, VOCAB = 21, 27, 32, 40
ANSWER_LEN = 3


@dataclass
class Items:
    prompt: torch.Tensor
    picture: torch.Tensor
    color: torch.Tensor
    shape: torch.Tensor
    count: torch.Tensor

    def repeat_interleave(self, n):
        return Items(*(v.repeat_interleave(n, 0) for v in vars(self).values()))


class TilePictures:
    def __init__(self, seed):
        self.gen = torch.Generator().manual_seed(seed)

    def draw(self, n):
        g = self.gen
        color = torch.randint(N_COLORS, (n,), generator=g)
        shape = torch.randint(N_SHAPES, (n,), generator=g)
        count = torch.randint(1, MAX_COUNT + 1, (n,), generator=g)
        clutter = torch.rand(n, 1, generator=g) * 1.2
        pic = clutter * torch.randn(n, 24, generator=g)
        pic[:, :6] += 3 * F.one_hot(color, N_COLORS)
        pic[:, 6:11] += 3 * F.one_hot(shape, N_SHAPES)
        pic[:, 11:17] += 3 * (torch.arange(6) < count[:, None])
        prompt = QUESTIONS[torch.randint(len(QUESTIONS), (n,), generator=g)]
        return Items(prompt, pic, color, shape, count)


def verify(items, answers):
    """Partial credit per attribute; the second question asks count first."""
    color, shape = COLOR0 + items.color, SHAPE0 + items.shape
    count = COUNT0 + items.count
    first = torch.stack([color, shape, count], 1)
    second = torch.stack([count, color, shape], 1)
    wanted = torch.where((items.prompt[:, 3] == 2)[:, None], first, second)
    return (answers == wanted).float().mean(1)


class Policy(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, dim)
        self.vision = nn.Sequential(nn.Linear(24, dim), nn.GELU(), nn.Linear(dim, dim))
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.lm_head = nn.Linear(2 * dim, VOCAB)

    def forward(self, items, answers):
        """Logits for every answer token given the ones before it."""
        seen = self.vision(items.picture)
        prompt = self.tok(items.prompt)
        slot = (items.prompt == PICTURE).unsqueeze(-1)
        prompt = torch.where(slot, seen[:, None, :].expand_as(prompt), prompt)
        x = torch.cat([prompt, self.tok(answers)], 1)
        h = self.rnn(x)[0][:, items.prompt.shape[1] - 1 :]
        return self.lm_head(torch.cat([h, seen[:, None].expand_as(h)], -1))

    @torch.no_grad()
    def generate(self, items, gen):
        answers = items.prompt[:, :0]
        for _ in range(ANSWER_LEN):
            probs = self(items, answers)[:, -1].softmax(-1)
            nxt = torch.multinomial(probs, 1, generator=gen)
            answers = torch.cat([answers, nxt], 1)
        return answers

    def logprobs(self, items, answers):
        logits = self(items, answers[:, :-1])
        return logits.log_softmax(-1).gather(-1, answers.unsqueeze(-1)).squeeze(-1)


def warm_start(policy, data, steps):
    """Imitation of loosely labelled answers, to have something to improve."""
    opt = torch.optim.Adam(policy.parameters(), lr=3e-3)
    for _ in range(steps):
        items = data.draw(64)
        answers = torch.stack([items.color, items.shape, items.count], 1)
        answers = answers + torch.tensor([COLOR0, SHAPE0, COUNT0])
        rolled = answers.roll(1, dims=1)
        answers = torch.where((items.prompt[:, 3] == 2)[:, None], answers, rolled)
        stray = torch.randint(COLOR0, VOCAB, answers.shape, generator=data.gen)
        keep = torch.rand(answers.shape, generator=data.gen) < 0.6
        loss = -policy.logprobs(items, torch.where(keep, answers, stray)).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()


def leave_one_out_advantages(rewards, group_ids, eps=1e-4):
    n_groups = int(group_ids.max()) + 1
    size = torch.zeros(n_groups).index_add_(0, group_ids, torch.ones_like(rewards))
    total = torch.zeros(n_groups).index_add_(0, group_ids, rewards)
    n, s = size[group_ids], total[group_ids]
    baseline = (s - rewards) / (n - 1)
    centred = rewards - s / n
    var = torch.zeros(n_groups).index_add_(0, group_ids, centred**2) / (size - 1)
    return (rewards - baseline) / (var.sqrt()[group_ids] + eps)


class GRPO:
    def __init__(self, policy, data, args):
        self.policy, self.data, self.args = policy, data, args
        self.reference = copy.deepcopy(policy).eval().requires_grad_(False)
        self.opt = torch.optim.AdamW(policy.parameters(), lr=args.lr)
        self.gen = torch.Generator().manual_seed(args.seed + 1)

    def group_ids(self, items):
        ids = torch.unique(items.prompt, dim=0, return_inverse=True)[1]
        if self.args.fixed:
            ids = torch.arange(len(ids)) // self.args.generations
        return ids

    def rollout(self):
        items = self.data.draw(self.args.prompts).repeat_interleave(
            self.args.generations
        )
        answers = self.policy.generate(items, self.gen)
        rewards = verify(items, answers)
        advantages = leave_one_out_advantages(rewards, self.group_ids(items))
        with torch.no_grad():
            old = self.policy.logprobs(items, answers)
            ref = self.reference.logprobs(items, answers)
        return items, answers, rewards, advantages, old, ref

    def update(self, items, answers, advantages, old, ref):
        new = self.policy.logprobs(items, answers)
        ratio = (new - old).exp()
        adv = advantages[:, None]
        low, high = 1 - self.args.clip, 1 + self.args.clip
        surrogate = torch.minimum(ratio * adv, ratio.clamp(low, high) * adv)
        kl = (ref - new).exp() - (ref - new) - 1
        loss = -(surrogate - self.args.kl * kl).mean()
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
        self.opt.step()
        return loss.item(), kl.mean().item()

    def train(self):
        smooth = None
        for step in range(self.args.steps):
            items, answers, rewards, advantages, old, ref = self.rollout()
            for _ in range(self.args.inner):
                loss, kl = self.update(items, answers, advantages, old, ref)
            r = rewards.mean().item()
            smooth = r if smooth is None else 0.9 * smooth + 0.1 * r
            if step % 15 == 0 or step == self.args.steps - 1:
                print(
                    f"step {step:3d}  loss {loss:+.4f}  kl {kl:.4f}  "
                    f"reward {smooth:.3f}"
                )


@torch.no_grad()
def evaluate(policy, seed):
    items = TilePictures(seed).draw(1000)
    gen = torch.Generator().manual_seed(seed)
    return verify(items, policy.generate(items, gen)).mean().item()


def prove(trainer):
    """Mean advantage within the answers to one item, over a fresh rollout."""
    advantages = trainer.rollout()[3]
    per_item = advantages.view(-1, trainer.args.generations).mean(1)
    print(f"largest mean advantage of one item {per_item.abs().max():.3f}")
    print("fault shows:", "yes" if per_item.abs().max() > 0.05 else "no")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--generations", type=int, default=8)
    parser.add_argument("--inner", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--clip", type=float, default=0.2)
    parser.add_argument("--kl", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=8)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    data = TilePictures(args.seed)
    policy = Policy()
    warm_start(policy, data, steps=60)
    print(f"before: mean score {evaluate(policy, 500):.3f}")
    trainer = GRPO(policy, data, args)
    trainer.train()
    print(f"after: mean score {evaluate(policy, 500):.3f}")
    if args.prove:
        prove(trainer)


if __name__ == "__main__":
    main()
