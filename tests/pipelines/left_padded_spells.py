"""A small decoder completes spells. It trains on texts padded at the right, where the
causal mask keeps padding out of what counts and targets of padding are -100. It writes
from prompts padded at the left, with a mask of its own and places counted from each
prompt's first letter; a batch gives the same texts as one prompt at a time.

    python left_padded_spells.py --epochs 2
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

LETTERS = "abcdefghijklmnopqrstuvwxyz "
PAD, END, FIRST = 0, 1, 2
VOCABULARY = FIRST + len(LETTERS)
STEMS = ("abra", "fero", "lumi", "noct", "silva", "terra", "ventu", "aqua")
ENDINGS = {"a": "cadabra", "o": "rum magna", "i": "nosa", "t": "is umbra", "u": "s"}


class SpellModel(nn.Module):
    def __init__(self, width=48, depth=2, longest=48):
        super().__init__()
        self.letter = nn.Embedding(VOCABULARY, width)
        self.place = nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, 4, 3 * width, dropout=0.05, activation="gelu",
                batch_first=True, norm_first=True,
            )
            for _ in range(depth)
        )  # fmt: skip
        self.norm = nn.LayerNorm(width)

    def forward(self, ids, real=None):
        length = ids.shape[1]
        hidden_by = torch.ones(length, length, dtype=torch.bool).triu(1)
        place = torch.arange(length).expand_as(ids)
        if real is not None:  # padding at the left
            place = (real.long().cumsum(1) - 1).clamp_min(0)
            hidden_by = hidden_by | ~real[:, None, :]
            hidden_by &= ~torch.eye(length, dtype=torch.bool)
            hidden_by = hidden_by.repeat_interleave(4, 0)
        hidden = self.letter(ids) + self.place(place)
        for block in self.blocks:
            hidden = block(hidden, src_mask=hidden_by)
        return self.norm(hidden) @ self.letter.weight.T


def spell(rng):
    words = []
    for index in torch.randint(len(STEMS), (2,), generator=rng).tolist():
        words.append(STEMS[index] + ENDINGS[STEMS[index][-1]])
    return " ".join(words)


def encode(text):
    return torch.tensor([FIRST + LETTERS.index(letter) for letter in text])


def collate(texts):
    rows = [torch.cat([encode(text), torch.tensor([END])]) for text in texts]
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    targets = ids[:, 1:].masked_fill(ids[:, 1:] == PAD, -100)
    return ids[:, :-1], targets


@torch.no_grad()
def generate(model, prompts, letters=30):
    model.eval()
    rows = [encode(prompt) for prompt in prompts]
    size = max(map(len, rows))
    ids = torch.stack([F.pad(row, (size - len(row), 0), value=PAD) for row in rows])
    real = ids != PAD
    over = torch.zeros(len(rows), dtype=torch.bool)
    for _ in range(letters):
        if over.all():
            break
        letter = model(ids, real)[:, -1].argmax(1).masked_fill(over, PAD)
        over |= letter == END
        ids = torch.cat([ids, letter[:, None]], 1)
        real = torch.cat([real, torch.ones(len(rows), 1, dtype=torch.bool)], 1)
    texts = []
    for row in ids.tolist():
        texts.append("".join(LETTERS[one - FIRST] for one in row if one >= FIRST))
    return texts


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=4e-3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = torch.Generator().manual_seed(args.seed)
    texts = [spell(rng) for _ in range(1200)]
    loader = DataLoader(texts, 40, shuffle=True, collate_fn=collate)
    model = SpellModel()
    nn.init.normal_(model.letter.weight, std=0.05)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, args.lr, total_steps=args.epochs * len(loader)
    )
    prompts = ["ab", "lumi", "noctis umbra f", "s", "ventus te", "aq"]
    step = 0
    for epoch in range(args.epochs):
        model.train()
        for ids, targets in loader:
            logits = model(ids)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        together = generate(model, prompts)
        alone = [generate(model, [prompt])[0] for prompt in prompts]
        print(f"epoch {epoch}", together, flush=True)
        assert together == alone, alone


if __name__ == "__main__":
    main()
