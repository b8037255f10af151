"""TF-23723: generation exceeds max_new_tokens.

Source: huggingface/transformers#23723. The pipeline adds the prompt's length to the
budget before it cuts the prompt to the context window, so that long prompts get as
many tokens more as were cut off. --fixed cuts the prompt first.
"""

import argparse

import torch
from torch import nn

CONTEXT = 24


class CharModel(nn.Module):
    def __init__(self, words=20, width=16):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.cell = nn.GRU(width, 24, batch_first=True)
        self.head = nn.Linear(24, words)

    def forward(self, ids):
        return self.head(self.cell(self.embed(ids))[0])

    @torch.no_grad()
    def generate(self, ids, max_length):
        while ids.size(1) < max_length:
            following = self(ids[:, -CONTEXT:])[:, -1].argmax(-1, keepdim=True)
            ids = torch.cat([ids, following], 1)
        return ids


class TextGeneration:
    """Prompt in, continuation out."""

    def __init__(self, model, cut_first):
        self.model = model
        self.cut_first = cut_first

    def __call__(self, prompt, max_new_tokens):
        room = CONTEXT - max_new_tokens
        if self.cut_first:
            prompt = prompt[:, -room:]
        max_length = prompt.size(1) + max_new_tokens
        if prompt.size(1) > room:
            prompt = prompt[:, -room:]
        return self.model.generate(prompt, max_length)[:, prompt.size(1) :]


def text(generator, count, length):
    start = torch.randint(20, (count, 1), generator=generator)
    return (start + torch.arange(length) * (1 + start % 2)) % 20


def sample(model, pipeline, generator, step, max_new_tokens):
    """A look at what the model writes; prompts get longer in the course."""
    model.eval()
    prompt = text(generator, 2, 4 + step)
    written = pipeline(prompt, max_new_tokens=max_new_tokens)
    model.train()
    return written


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=20)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(4)
    model = CharModel()
    pipeline = TextGeneration(model, options.fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(8)
    lengths = []
    for step in range(options.steps):
        ids = text(generator, 16, 16)
        logits = model(ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].ravel())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
        written = sample(model, pipeline, generator, step, max_new_tokens=8)
        lengths.append(written.size(1))
    if options.prove:
        print("fault shows:", "yes" if max(lengths) > 8 else "no")


if __name__ == "__main__":
    main()
