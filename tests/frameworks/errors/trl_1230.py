"""TRL-1230: texts of a packed row attend to the texts before them.

A small Llama learns texts that count upwards, several of which are packed into a row;
positions begin anew with each text. transformers finds the borders of texts by these
positions, but only if it gets no attention mask. The collator passes one of ones along,
so that attention goes over all that stands before in the row.

Source: https://github.com/huggingface/trl/issues/1230 (also
https://github.com/huggingface/transformers/pull/46634). --fixed passes no mask.
"""

import argparse

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import LlamaConfig, LlamaForCausalLM, get_cosine_schedule_with_warmup

LETTERS, MAX_LENGTH, BEGIN, END = 128, 96, 1, 2


def documents(count, seed):
    """Each counts with a stride of its own from a start of its own."""
    g = torch.Generator().manual_seed(seed)
    for _ in range(count):
        length = int(torch.randint(8, 40, (1,), generator=g))
        start, stride = torch.randint(0, 100, (2,), generator=g).tolist()
        stride = 1 + stride % 7
        body = [(start + stride * i) % 120 + 4 for i in range(length)]
        yield [BEGIN, *body, END]


def pack(texts, max_length):
    """The longest first, each into the fullest row that still has room."""
    rows = []
    for text in sorted(texts, key=len, reverse=True):
        text = text[:max_length]
        fit = [row for row in rows if sum(map(len, row)) + len(text) <= max_length]
        if fit:
            max(fit, key=lambda row: sum(map(len, row))).append(text)
        else:
            rows.append([text])
    return rows


class PackedDataset(Dataset):
    def __init__(self, texts, max_length=MAX_LENGTH):
        self.rows = pack(texts, max_length)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = {"input_ids": [], "position_ids": [], "labels": []}
        for text in self.rows[index]:
            row["input_ids"] += text
            row["position_ids"] += range(len(text))
            row["labels"] += [-100] + text[1:]
        return row


class Collator:
    """Rows of a batch become one long row, without padding."""

    def __init__(self, return_mask):
        self.return_mask = return_mask

    def __call__(self, rows):
        batch = {
            name: torch.tensor([sum((row[name] for row in rows), [])])
            for name in rows[0]
        }
        if self.return_mask:
            batch["attention_mask"] = torch.ones_like(batch["input_ids"])
        return batch


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    total = count = 0
    for batch in loader:
        tokens = (batch["labels"][:, 1:] != -100).sum().item()
        total += model(**batch, use_cache=False).loss.item() * tokens
        count += tokens
    model.train()
    return total / count


@torch.no_grad()
def reach(model, data, collator):
    """How far another letter of the first text moves the outputs for later texts."""
    row = next(row for row in data if row["position_ids"].count(0) > 1)
    batch = collator([row])
    begin = row["position_ids"].index(0, 1)
    other = {**batch, "input_ids": batch["input_ids"].clone()}
    other["input_ids"][0, 3] = other["input_ids"][0, 3] % 100 + 10
    model.eval()
    outputs = [
        model(**one, use_cache=False).logits[:, begin:] for one in (batch, other)
    ]
    model.train()
    return (outputs[0] - outputs[1]).abs().max().item()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=50)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=LETTERS,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=256,
        attn_implementation="sdpa",
    )
    model = LlamaForCausalLM(config).train()
    collator = Collator(return_mask=not options.fixed)
    data, held = PackedDataset(documents(900, 0)), PackedDataset(documents(60, 1))
    train = DataLoader(data, batch_size=4, shuffle=True, collate_fn=collator)
    valid = DataLoader(held, batch_size=4, collate_fn=collator)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    scheduler = get_cosine_schedule_with_warmup(optimizer, 5, options.steps)
    step = 0
    while step < options.steps:
        for batch in train:
            loss = model(**batch, use_cache=False).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
            if step % 10 == 0:
                print(f"validation {evaluate(model, valid):.4f}", flush=True)
            if step == options.steps:
                break
    if options.prove:
        moved = reach(model, held, collator)
        print(f"a letter of the first text moves later texts' logits by {moved:.6f}")
        print("fault shows:", "yes" if moved > 1e-3 else "no")


if __name__ == "__main__":
    main()
