"""PARLAI-4384: the warm-up of the learning rate never ends.

Source: facebookresearch/ParlAI#4384 (came in with #4242). Whether the schedule still
warms up is told from the last rate being below one, as if every rate were relative;
with a usual rate that is so for ever, and after the warm-up the rate stays at its
peak instead of falling. --fixed counts the updates.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class LinearDecayWithWarmup:
    """A rate that rises over some updates and then falls to zero."""

    def __init__(self, optimizer, warmup_updates, max_updates, by_rate):
        self.warmup_updates = warmup_updates
        self.by_rate = by_rate
        self.updates = 0
        self.warmup = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda done: min(1.0, (done + 1) / warmup_updates)
        )
        left = max_updates - warmup_updates
        self.decay = lambda: max(0.0, 1 - (self.updates - warmup_updates) / left)
        self.peaks = [group["initial_lr"] for group in optimizer.param_groups]
        self.optimizer = optimizer

    def is_warming_up(self):
        if self.by_rate:
            return self.warmup.get_last_lr()[0] < 1.0
        return self.updates < self.warmup_updates

    def step(self):
        self.updates += 1
        if self.is_warming_up():
            self.warmup.step()
            return
        for group, peak in zip(self.optimizer.param_groups, self.peaks):
            group["lr"] = peak * self.decay()


class Ranker(nn.Module):
    """Scores replies to a message: two towers."""

    def __init__(self, words=90, width=24):
        super().__init__()
        self.message = nn.EmbeddingBag(words, width)
        self.reply = nn.EmbeddingBag(words, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, message, reply):
        return self.dropout(self.message(message)) @ self.reply(reply).T


def dialogues(count):
    topic = torch.randint(9, (count, 1))
    message = 10 * topic + torch.randint(10, (count, 7))
    reply = 10 * topic + torch.randint(10, (count, 5))
    return TensorDataset(message, reply)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=32)
    cli.add_argument("--warmup-updates", type=int, default=6)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = DataLoader(dialogues(256), batch_size=32, shuffle=True, drop_last=True)
    model = Ranker()
    optimizer = torch.optim.Adamax(model.parameters(), lr=0.03)
    scheduler = LinearDecayWithWarmup(
        optimizer, options.warmup_updates, options.steps, by_rate=not options.fixed
    )
    rates = []
    step = 0
    while step < options.steps:
        for message, reply in loader:
            if step == options.steps:
                break
            scores = model(message, reply)
            loss = nn.functional.cross_entropy(scores, torch.arange(len(scores)))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            rates.append(optimizer.param_groups[0]["lr"])
            scheduler.step()
            print(f"step {step} loss {loss.item():.4f} lr {rates[-1]:.5f}", flush=True)
            step += 1
    if options.prove:
        print("fault shows:", "yes" if rates[-1] == max(rates) else "no")


if __name__ == "__main__":
    main()
