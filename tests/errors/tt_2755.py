"""Trains a small language model on chats, the replies being supervised only.

AdamW and one cycle of the learning rate. After torchtitan,
issue 2755.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

WORDS, USER, REPLY, END, PAD = 20, 20, 21, 22, 23
VOCABULARY, LONGEST, IGNORE = 24, 20, -100


class Block(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width)
        )

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class ChatModel(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.place = nn.Embedding(LONGEST, width)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY)

    def forward(self, ids):
        hidden = self.token(ids) + self.place(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(hidden)))


class Chats(Dataset):
    """The reply says the words of the prompt again, each one raised by one."""

    def __init__(self, count, seed, args):
        generator = torch.Generator().manual_seed(seed)
        self.samples = []
        for _ in range(count):
            size = torch.randint(2, 8, (), generator=generator)
            words = torch.randint(WORDS, (size,), generator=generator)
            prompt = [USER, *words.tolist(), REPLY]
            answer = [*((words + 1) % WORDS).tolist(), END]
            self.samples.append(self.pack(prompt, answer, args.fixed))

    @staticmethod
    def pack(prompt, answer, shifted):
        full = prompt + answer
        inputs, labels = full[:-1], full[1:]
        masked = len(prompt) - 1 if shifted else len(prompt)
        labels[:masked] = [IGNORE] * masked
        space = LONGEST - len(inputs)
        inputs, labels = inputs + [PAD] * space, labels + [IGNORE] * space
        return torch.tensor(inputs), torch.tensor(labels), len(prompt)

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


@torch.no_grad()
def exact(model, data):
    """The share of replies that are right from the first word to the end."""
    model.eval()
    right = 0
    for inputs, _, size in data.samples:
        words, ids = inputs[1 : size - 1], inputs[:size]
        while len(ids) < LONGEST and ids[-1] != END:
            ids = torch.cat([ids, model(ids[None])[0, -1].argmax()[None]])
        wanted = [*((words + 1) % WORDS).tolist(), END]
        right += ids[size:].tolist() == wanted
    return right / len(data)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    train, test = Chats(2048, args.seed, args), Chats(60, args.seed + 1, args)
    loader = DataLoader(train, batch_size=64, shuffle=True)
    model = ChatModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    total = args.epochs * len(loader)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total)
    step = 0
    for epoch in range(args.epochs):
        model.train()
        for inputs, labels, _ in loader:
            logits = model(inputs)
            loss = F.cross_entropy(
                logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE
            )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        print(f"epoch {epoch} right replies {exact(model, test):.4f}", flush=True)
    if args.prove:
        taught = [labels[size - 1] != IGNORE for _, labels, size in train.samples]
        share = torch.stack(taught).float().mean().item()
        print(f"share of replies whose first word is supervised {share:.4f}")
        print("fault shows:", "yes" if share < 1 else "no", flush=True)


if __name__ == "__main__":
    main()
