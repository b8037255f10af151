"""HF-34191: accumulated micro-batches count alike, whatever their length.

Source: huggingface/transformers#34191. With gradient accumulation each micro-batch's
loss is the mean over its own tokens, divided by the number of micro-batches; tokens
of short ones weigh more than in the large batch that is imitated. --fixed divides
the sum by the number of tokens in all micro-batches of the step.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PAD, IGNORED = 0, -100


class Sentences(Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(12)
        self.rows = []
        for _ in range(count):
            length = int(torch.randint(3, 22, (1,), generator=generator))
            start = int(torch.randint(1, 30, (1,), generator=generator))
            self.rows.append((start + 2 * torch.arange(length)) % 29 + 1)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, row):
        return self.rows[row]


def collate(rows):
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    labels = ids.masked_fill(ids == PAD, IGNORED)
    return {"input_ids": ids, "labels": labels}


class CausalLM(nn.Module):
    def __init__(self, words=30, width=20):
        super().__init__()
        self.embed = nn.Embedding(words, width, padding_idx=PAD)
        self.rnn = nn.LSTM(width, 28, batch_first=True)
        self.head = nn.Linear(28, words)

    def forward(self, input_ids, labels, num_items_in_batch=None):
        logits = self.head(self.rnn(self.embed(input_ids))[0])[:, :-1]
        logits, targets = logits.flatten(0, 1), labels[:, 1:].ravel()
        if num_items_in_batch is None:
            return nn.functional.cross_entropy(logits, targets, ignore_index=IGNORED)
        total = nn.functional.cross_entropy(
            logits, targets, ignore_index=IGNORED, reduction="sum"
        )
        return total / num_items_in_batch


class Trainer:
    def __init__(self, model, optimizer, accumulation, count_tokens):
        self.model, self.optimizer = model, optimizer
        self.accumulation = accumulation
        self.count_tokens = count_tokens

    def accumulate(self, micro_batches):
        """The gradient of one optimizer step; returns its loss."""
        tokens = None
        if self.count_tokens:
            tokens = sum(
                int((batch["labels"][:, 1:] != IGNORED).sum())
                for batch in micro_batches
            )
        total = 0.0
        for batch in micro_batches:
            loss = self.model(**batch, num_items_in_batch=tokens)
            if tokens is None:
                loss = loss / len(micro_batches)
            loss.backward()
            total += loss.item()
        return total

    def micro_batches(self, loader):
        while True:
            group = []
            for batch in loader:
                group.append(batch)
                if len(group) == self.accumulation:
                    yield group
                    group = []

    def train(self, loader, steps):
        groups = self.micro_batches(loader)
        for step in range(steps):
            self.optimizer.zero_grad()
            loss = self.accumulate(next(groups))
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            print(f"step {step} loss {loss:.4f}", flush=True)


def same_as_large_batch(trainer, data):
    """Do four micro-batches give the gradient of their union?"""
    model = trainer.model
    rows = [data[i] for i in range(16)]
    model.zero_grad()
    trainer.accumulate([collate(rows[i : i + 4]) for i in range(0, 16, 4)])
    split = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(**collate(rows)).backward()
    pairs = zip(split, model.parameters())
    return all(torch.allclose(a, p.grad, rtol=1e-3, atol=1e-5) for a, p in pairs)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=18)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = Sentences(160)
    loader = DataLoader(data, batch_size=4, shuffle=True, collate_fn=collate)
    model = CausalLM()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    trainer = Trainer(model, optimizer, 4, options.fixed)
    trainer.train(loader, options.steps)
    if options.prove:
        same = same_as_large_batch(trainer, data)
        print("fault shows:", "no" if same else "yes")


if __name__ == "__main__":
    main()
