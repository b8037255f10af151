"""Policy training on answers with rewards, a global batch in several mini-batches.

The rate warms up and falls along a cosine over all updates. After cosmos-rl, pull
request 207.
"""

import argparse
import math

import torch
from torch import nn

VOCABULARY, LENGTH = 24, 8


class Policy(nn.Module):
    """Reads a list of numbers and answers with one of them at each place."""

    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.place = nn.Parameter(0.02 * torch.randn(LENGTH, width))
        layer = nn.TransformerEncoderLayer(width, 4, 128, 0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, prompt):
        return self.head(self.encoder(self.embed(prompt) + self.place))


def prompts(count, generator):
    return torch.randint(VOCABULARY, (count, LENGTH), generator=generator)


def reward(prompt, answer):
    """The list backwards is what is wanted; nearly right counts a little."""
    distance = (answer - prompt.flip(1)).abs()
    return (distance == 0).float() + 0.3 * (distance == 1).float()


def rate(total, warmup):
    def factor(update):
        if update < warmup:
            return (update + 1) / warmup
        progress = min(1.0, (update - warmup) / (total - warmup))
        return 0.5 * (1 + math.cos(math.pi * progress))

    return factor


class Trainer:
    def __init__(self, args):
        self.args = args
        self.model = Policy()
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=args.lr, weight_decay=0.01
        )
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, rate(args.steps, args.warmup)
        )

    def loss(self, prompt, answer, target):
        log_chance = self.model(prompt).log_softmax(-1)
        chosen = log_chance.gather(2, answer[..., None])[..., 0]
        demonstration = log_chance.gather(2, target[..., None])[..., 0]
        gain = reward(prompt, answer)
        advantage = gain - gain.mean()
        return -(advantage * chosen).mean() - 0.5 * demonstration.mean()

    def step_training(self, prompt, generator):
        with torch.no_grad():
            chance = self.model(prompt).softmax(-1).flatten(0, 1)
            answer = torch.multinomial(chance, 1, generator=generator)
            answer = answer.view_as(prompt)
        parts, total = self.args.mini_batches, 0.0
        self.optimizer.zero_grad()
        for part, drawn in zip(prompt.chunk(parts), answer.chunk(parts)):
            loss = self.loss(part, drawn, part.flip(1)) / parts
            loss.backward()
            total += loss.item()
            if not self.args.fixed:
                self.all_reduce_states()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        if self.args.fixed:
            self.all_reduce_states()
        return total

    def all_reduce_states(self):
        self.lr_scheduler.step()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--warmup", type=int, default=4)
    parser.add_argument("--mini-batches", type=int, default=4)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(args.seed)
    trainer = Trainer(args)
    for step in range(args.steps):
        loss = trainer.step_training(prompts(64, generator), generator)
        print(f"step {step} loss {loss:.4f}", flush=True)
    trainer.model.eval()
    with torch.no_grad():
        prompt = prompts(500, generator)
        gain = reward(prompt, trainer.model(prompt).argmax(-1)).mean()
    print(f"mean reward of greedy answers {gain.item():.4f}")
    if args.prove:
        place = trainer.lr_scheduler.last_epoch
        print(f"the schedule is at {place} after {args.steps} updates")
        print("fault shows:", "yes" if place != args.steps else "no", flush=True)


if __name__ == "__main__":
    main()
