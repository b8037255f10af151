"""TRL-976: the end of a text is never learned.

Source: huggingface/trl#976 (also huggingface/transformers#23530). The tokenizer has
no padding token, so it gets the end token; the collator masks all padding in the
labels, and with it each text's real end. --fixed pads with a token of its own.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader

LETTERS = "abcdefghijklmnop "
IGNORED = -100


class Tokenizer:
    def __init__(self):
        self.vocabulary = {letter: i for i, letter in enumerate(LETTERS)}
        self.eos_token_id = len(self.vocabulary)
        self.pad_token_id = None
        self.size = len(self.vocabulary) + 1

    def add_pad_token(self):
        self.pad_token_id = self.size
        self.size += 1

    def __call__(self, text):
        return [self.vocabulary[letter] for letter in text] + [self.eos_token_id]


class LanguageModelingCollator:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def __call__(self, texts):
        pad = self.tokenizer.pad_token_id
        rows = [torch.tensor(self.tokenizer(text)) for text in texts]
        ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad)
        labels = ids.clone()
        labels[labels == pad] = IGNORED
        return {"input_ids": ids, "labels": labels}


class TinyLM(nn.Module):
    def __init__(self, size, width=24):
        super().__init__()
        self.embed = nn.Embedding(size, width)
        self.positions = nn.Embedding(32, width)
        self.layer = nn.TransformerEncoderLayer(
            width, 4, 48, dropout=0.0, batch_first=True, norm_first=True
        )
        self.head = nn.Linear(width, size)

    def forward(self, ids):
        x = self.embed(ids) + self.positions.weight[: ids.size(1)]
        causal = nn.Transformer.generate_square_subsequent_mask(ids.size(1))
        return self.head(self.layer(x, src_mask=causal, is_causal=True))


def texts(count):
    generator = torch.Generator().manual_seed(3)
    for _ in range(count):
        length = int(torch.randint(4, 18, (1,), generator=generator))
        start = int(torch.randint(16, (1,), generator=generator))
        yield "".join(LETTERS[(start + i) % len(LETTERS)] for i in range(length))


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=18)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tokenizer = Tokenizer()
    if options.fixed:
        tokenizer.add_pad_token()
    else:
        tokenizer.pad_token_id = tokenizer.eos_token_id
    collator = LanguageModelingCollator(tokenizer)
    loader = DataLoader(
        list(texts(160)), batch_size=16, shuffle=True, collate_fn=collator
    )
    model = TinyLM(len(LETTERS) + 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    ends = step = 0
    while step < options.steps:
        for batch in loader:
            if step == options.steps:
                break
            logits = model(batch["input_ids"])[:, :-1]
            labels = batch["labels"][:, 1:]
            ends += int((labels == tokenizer.eos_token_id).sum())
            loss = nn.functional.cross_entropy(
                logits.flatten(0, 1), labels.ravel(), ignore_index=IGNORED
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
    if options.prove:
        print("fault shows:", "yes" if ends == 0 else "no")


if __name__ == "__main__":
    main()
