"""A small causal language model on packed rows: several short texts in each row.

Texts are made-up arithmetic progressions of letters, each with its own start and
stride. Positions begin anew with each text of a row. huggingface/transformers#46634.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader

LETTERS = 26
BEGIN, PAD = LETTERS, LETTERS + 1
ROW = 48
IGNORED = -100


def texts(count, seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        length = int(torch.randint(5, 14, (1,), generator=generator))
        start = int(torch.randint(LETTERS, (1,), generator=generator))
        stride = int(torch.randint(1, 6, (1,), generator=generator))
        letters = (start + stride * torch.arange(length)) % LETTERS
        yield torch.cat([torch.tensor([BEGIN]), letters])


def pack(stream):
    """Fills rows with whole texts; what is left of a row is padding."""
    rows, parts = [], []
    for text in stream:
        if sum(map(len, parts)) + len(text) > ROW:
            rows.append(parts)
            parts = []
        parts.append(text)
    return rows


def collate(rows):
    shape = (len(rows), ROW)
    batch = {
        "input_ids": torch.full(shape, PAD),
        "labels": torch.full(shape, IGNORED),
        "position_ids": torch.zeros(shape, dtype=torch.long),
        "attention_mask": torch.ones(shape, dtype=torch.long),
    }
    for i, parts in enumerate(rows):
        at = 0
        for text in parts:
            span = slice(at, at + len(text))
            batch["input_ids"][i, span] = text
            batch["labels"][i, at + 1 : at + len(text)] = text[1:]
            batch["position_ids"][i, span] = torch.arange(len(text))
            at += len(text)
        batch["position_ids"][i, at:] = torch.arange(ROW - at)
    return batch


def text_numbers(position_ids):
    return (position_ids == 0).cumsum(1)


def create_causal_mask(attention_mask, position_ids, fixed):
    size = position_ids.size(1)
    mask = torch.ones(size, size, dtype=torch.bool).tril()[None]
    if position_ids is not None and (fixed or attention_mask is None):
        number = text_numbers(position_ids)
        mask = mask & (number[:, :, None] == number[:, None, :])
    if attention_mask is not None:
        mask = mask & attention_mask.bool()[:, None, :]
    return mask[:, None]


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        up, down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.mlp = nn.Sequential(up, nn.GELU(), down)

    def forward(self, x, mask):
        rows, size, width = x.shape
        q, k, v = (
            part.view(rows, size, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.norms[0](x)).chunk(3, -1)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(y.transpose(1, 2).reshape(rows, size, width))
        return x + self.mlp(self.norms[1](x))


class CausalLM(nn.Module):
    def __init__(self, fixed, width=48):
        super().__init__()
        self.fixed = fixed
        self.tokens = nn.Embedding(LETTERS + 2, width)
        self.positions = nn.Embedding(ROW, width)
        self.layers = nn.ModuleList(Layer(width, 4) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, LETTERS + 2, bias=False)

    def forward(self, input_ids, position_ids, attention_mask=None, labels=None):
        mask = create_causal_mask(attention_mask, position_ids, self.fixed)
        x = self.tokens(input_ids) + self.positions(position_ids)
        for layer in self.layers:
            x = layer(x, mask)
        logits = self.head(self.norm(x))
        if labels is None:
            return logits
        predicted, wanted = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
        return nn.functional.cross_entropy(predicted, wanted, ignore_index=IGNORED)


@torch.no_grad()
def mean_loss(model, loader):
    model.eval()
    losses = [model(**batch).item() for batch in loader]
    model.train()
    return sum(losses) / len(losses)


@torch.no_grad()
def influence(model, batch):
    """What another first text changes in the predictions for the others."""
    inputs = {k: v for k, v in batch.items() if k != "labels"}
    before = model(**inputs)
    first = text_numbers(inputs["position_ids"]) == 1
    letters = inputs["input_ids"] < LETTERS
    other = torch.randint_like(inputs["input_ids"], LETTERS)
    inputs["input_ids"] = inputs["input_ids"].where(~(first & letters), other)
    return (model(**inputs) - before)[~first].abs().max().item()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=120)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    train = DataLoader(pack(texts(2400, 1)), 16, shuffle=True, collate_fn=collate)
    valid = DataLoader(pack(texts(300, 2)), 16, collate_fn=collate)
    model = CausalLM(options.fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    step = 0
    while step < options.steps:
        for batch in train:
            if step == options.steps:
                break
            loss = model(**batch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        print(f"validation {mean_loss(model, valid):.4f}", flush=True)
    if options.prove:
        change = influence(model, next(iter(valid)))
        print(f"other texts' logits change by {change:.5f}", flush=True)
        print("fault shows:", "yes" if change > 1e-4 else "no")


if __name__ == "__main__":
    main()
