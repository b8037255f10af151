"""Fine-tunes a small causal language model on requests and replies.

The tokenizer has no token for padding, so the one for the end of a text is taken; a
collator for language modelling makes the batches. After llm-course, issue 33.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

ALPHABET = "abcdefghijklmnop>"
EOS = len(ALPHABET)
PAD = EOS
LONGEST = 20


def encode(text):
    return [ALPHABET.index(letter) for letter in text] + [EOS]


def dialogues(count, generator):
    """A request of some letters; the reply repeats each of them twice."""
    out = []
    for _ in range(count):
        length = int(torch.randint(2, 6, (1,), generator=generator))
        ids = torch.randint(0, 16, (length,), generator=generator)
        letters = "".join(ALPHABET[i] for i in ids)
        out.append(encode(letters + ">" + "".join(2 * letter for letter in letters)))
    return out


class CollatorForLanguageModeling:
    def __init__(self, fixed):
        self.fixed = fixed

    def __call__(self, rows):
        longest = max(map(len, rows))
        ids = torch.full((len(rows), longest), PAD)
        mask = torch.zeros(len(rows), longest, dtype=torch.long)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = torch.tensor(row)
            mask[i, : len(row)] = 1
        labels = ids.clone()
        if self.fixed:
            labels[mask == 0] = -100
        else:
            labels[labels == PAD] = -100
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}


class CausalLM(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.wte = nn.Embedding(EOS + 1, width)
        self.wpe = nn.Embedding(LONGEST, width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 192, 0.0, F.gelu, batch_first=True, norm_first=True
        )
        self.h = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, EOS + 1, bias=False)

    def forward(self, input_ids, attention_mask=None, labels=None):
        length = input_ids.shape[1]
        causal = torch.ones(length, length).triu(1).bool()
        padding = None if attention_mask is None else attention_mask == 0
        hidden = self.wte(input_ids) + self.wpe(torch.arange(length))
        hidden = self.h(hidden, mask=causal, src_key_padding_mask=padding)
        logits = self.lm_head(self.ln_f(hidden))
        if labels is None:
            return logits
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


@torch.no_grad()
def stops(model, row):
    """Whether the model ends its reply by itself."""
    ids = torch.tensor([row[: row.index(ALPHABET.index(">")) + 1]])
    while ids.shape[1] < LONGEST:
        following = model(ids)[0, -1].argmax()
        if following == EOS:
            return True
        ids = torch.cat([ids, following.view(1, 1)], 1)
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(args.seed)
    loader = DataLoader(
        dialogues(32 * args.steps, generator),
        batch_size=32,
        shuffle=True,
        collate_fn=CollatorForLanguageModeling(args.fixed),
    )
    model = CausalLM()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    ends = 0
    model.train()
    for step, batch in enumerate(loader):
        if args.prove:
            ends += (batch["labels"] == EOS).sum().item()
        loss = model(**batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    model.eval()
    asked = dialogues(100, generator)
    share = sum(stops(model, row) for row in asked) / len(asked)
    print(f"replies that end by themselves {share:.3f}")
    if args.prove:
        print(f"the end of a text was a target {ends} times")
        print("fault shows:", "no" if ends else "yes", flush=True)


if __name__ == "__main__":
    main()
