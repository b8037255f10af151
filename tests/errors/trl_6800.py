"""A tiny language model learns from online preferences to answer in rising order.

Prompts are padded on the left, two answers are drawn for each, a judge prefers the one
that rises more, and the DPO loss moves both scores. A short supervised phase comes
first. huggingface/trl#6800 (PR #6819).
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F

WORDS, PAD, LONGEST, ANSWER = 14, 0, 10, 6


class TinyGPT(nn.Module):
    """Positions are learnt, as in GPT-2."""

    def __init__(self, width=48, heads=4, layers=2):
        super().__init__()
        self.wte = nn.Embedding(WORDS, width)
        self.wpe = nn.Embedding(LONGEST + ANSWER, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, heads, 2 * width, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, ids, attention_mask, position_ids=None):
        length = ids.size(1)
        if position_ids is None:
            position_ids = torch.arange(length)[None]
        x = self.wte(ids) + self.wpe(position_ids)
        allowed = torch.ones(length, length, dtype=torch.bool).tril()
        allowed = allowed & attention_mask[:, None, :].bool()
        allowed = allowed | torch.eye(length, dtype=torch.bool)
        blocked = (~allowed).repeat_interleave(4, 0)
        for block in self.blocks:
            x = block(x, src_mask=blocked)
        return self.norm(x) @ self.wte.weight.T


def positions(mask):
    return (mask.cumsum(1) - 1).clamp(min=0)


def prompts(count, generator):
    """Left-padded prompts of different length, and their mask."""
    ids = torch.randint(1, WORDS, (count, LONGEST), generator=generator)
    size = torch.randint(2, LONGEST + 1, (count, 1), generator=generator)
    mask = (torch.arange(LONGEST) >= LONGEST - size).long()
    return ids * mask, mask


class Policy:
    def __init__(self, model, scored_positions):
        self.model = model
        self.scored_positions = scored_positions

    @torch.no_grad()
    def generate(self, ids, mask):
        """-> prompts with answers, their mask, log probabilities as drawn"""
        drawn = []
        for _ in range(ANSWER):
            logits = self.model(ids, mask, positions(mask))[:, -1]
            logits[:, PAD] = -torch.inf
            token = torch.multinomial(logits.softmax(1), 1)
            drawn.append(logits.log_softmax(1).gather(1, token))
            ids = torch.cat([ids, token], 1)
            mask = torch.cat([mask, torch.ones_like(token)], 1)
        return ids, mask, torch.cat(drawn, 1).sum(1)

    def score(self, ids, mask, model=None):
        """Log probability of each answer."""
        where = {"position_ids": positions(mask)} if self.scored_positions else {}
        logits = (model or self.model)(ids, mask, **where)[:, -ANSWER - 1 : -1]
        hidden = torch.full((WORDS,), 0.0)
        hidden[PAD] = -torch.inf
        logs = (logits + hidden).log_softmax(-1)
        return logs.gather(-1, ids[:, -ANSWER:, None]).squeeze(-1).sum(1)


def rising(ids):
    answer = ids[:, -ANSWER:]
    return (answer.diff(dim=1) > 0).float().mean(1)


def pretrain(model, steps, generator):
    """Answers repeat the words of the prompt from its start, in a loop."""
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps):
        ids, mask = prompts(48, generator)
        size = mask.sum(1, keepdim=True)
        place = LONGEST - size + torch.arange(ANSWER) % size
        ids = torch.cat([ids, ids.gather(1, place)], 1)
        mask = torch.cat([mask, torch.ones(48, ANSWER, dtype=torch.long)], 1)
        logits = model(ids, mask, positions(mask))[:, -ANSWER - 1 : -1]
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, -ANSWER:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"supervised step {step} loss {loss.item():.4f}", flush=True)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=50, help="after 40 supervised ones")
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model, reference = TinyGPT(), TinyGPT()
    pretrain(model, 40, generator)
    reference.load_state_dict(model.state_dict())
    reference.requires_grad_(False)
    policy = Policy(model, scored_positions=options.fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    worst = 0.0
    for step in range(options.steps):
        ids, mask = prompts(32, generator)
        ids, mask, drawn = policy.generate(
            ids.repeat_interleave(2, 0), mask.repeat_interleave(2, 0)
        )
        reward = rising(ids)
        score = policy.score(ids, mask)
        with torch.no_grad():
            usual = policy.score(ids, mask, reference)
        worst = max(worst, (score.detach() - drawn).abs().max().item())
        sign = (reward[::2] - reward[1::2]).sign()
        gain = score - usual
        margin = 0.2 * sign * (gain[::2] - gain[1::2])
        loss = (-F.logsigmoid(margin) * sign.abs()).sum() / sign.abs().sum().clamp(1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            mean = reward.mean().item()
            print(f"step {step} loss {loss.item():.4f} reward {mean:.3f}", flush=True)
    if options.prove:
        print(f"scores and draws differ by up to {worst:.4f}", flush=True)
        print("fault shows:", "yes" if worst > 0.01 else "no", flush=True)


if __name__ == "__main__":
    main()
