"""Multi-turn chat tuning with an assistant-only loss.

The chat format has no separate end marker: a turn is over when the next role marker comes.
"""
import argparse
from typing import List, NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F

SPECIAL = ["<pad>", "<|user|>", "<|assistant|>"]
PAD, USER, ASSISTANT = range(3)
TOPICS, WORDS = 12, 24
TOPIC0 = len(SPECIAL)
WORD0 = TOPIC0 + TOPICS
VOCAB = WORD0 + WORDS


class Message(NamedTuple):
    role: str
    tokens: List[int]


class Facts:
    """Every topic has one answer of two to five words."""

    def __init__(self, seed):
        g = torch.Generator().manual_seed(seed)
        self.answers = []
        for _ in range(TOPICS):
            n = int(torch.randint(2, 6, (1,), generator=g))
            self.answers.append(
                (WORD0 + torch.randint(0, WORDS, (n,), generator=g)).tolist()
            )

    def conversation(self, g):
        turns = []
        for t in torch.randint(
            0, TOPICS, (int(torch.randint(2, 4, (1,), generator=g)),), generator=g
        ).tolist():
            filler = (WORD0 + torch.randint(0, WORDS, (1,), generator=g)).tolist()
            turns.append(Message("user", filler + [TOPIC0 + t]))
            turns.append(Message("assistant", self.answers[t]))
        return turns


class ChatTemplate:
    """Renders a conversation to token ids and to a mask of the assistant's tokens."""

    MARK = {"user": USER, "assistant": ASSISTANT}

    def __init__(self, marker_closes_turn):
        self.marker_closes_turn = marker_closes_turn

    def render(self, messages):
        ids, mask = [], []
        for i, msg in enumerate(messages):
            after_assistant = i > 0 and messages[i - 1].role == "assistant"
            if not (self.marker_closes_turn and after_assistant):
                ids.append(self.MARK[msg.role])
                mask.append(0)
            speaking = int(msg.role == "assistant")
            ids += msg.tokens
            mask += [speaking] * len(msg.tokens)
            if self.marker_closes_turn and speaking and i + 1 < len(messages):
                ids.append(self.MARK[messages[i + 1].role])
                mask.append(speaking)
        return ids, mask


def collate(rendered):
    width = max(len(ids) for ids, _ in rendered)
    ids = torch.full((len(rendered), width), PAD)
    labels = torch.full((len(rendered), width), -100)
    for r, (tok, mask) in enumerate(rendered):
        tok, mask = torch.tensor(tok), torch.tensor(mask)
        ids[r, : len(tok)] = tok
        labels[r, : len(tok)] = torch.where(mask.bool(), tok, -100)
    return ids, labels


class ChatModel(nn.Module):
    def __init__(self, width=80):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, width, padding_idx=PAD)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, VOCAB)

    def forward(self, ids):
        return self.head(self.rnn(self.emb(ids))[0])

    @torch.no_grad()
    def answer(self, prompt, stop, max_new_tokens=12):
        out, state = [], None
        x = torch.tensor([prompt])
        for _ in range(max_new_tokens):
            h, state = self.rnn(self.emb(x), state)
            nxt = int(self.head(h[:, -1]).argmax())
            if nxt == stop:
                return out, True
            out.append(nxt)
            x = torch.tensor([[nxt]])
        return out, False


def evaluate(model, facts, n=60, seed=50):
    g = torch.Generator().manual_seed(seed)
    model.eval()
    exact = stopped = begins = 0
    for _ in range(n):
        t = int(torch.randint(0, TOPICS, (1,), generator=g))
        filler = WORD0 + int(torch.randint(0, WORDS, (1,), generator=g))
        out, ended = model.answer([USER, filler, TOPIC0 + t, ASSISTANT], stop=USER)
        gold = facts.answers[t]
        exact += ended and out == gold
        begins += out[: len(gold)] == gold
        stopped += ended
    model.train()
    return exact / n, begins / n, stopped / n


def closed_turns(rendered):
    """Assistant turns followed by a message, and how many of them are trained to hand over."""
    turns = trained = 0
    for ids, mask in rendered:
        first = True
        for tok, m in zip(ids, mask):
            if tok == USER and not first:
                turns += 1
                trained += m
            first = False
    return turns, trained


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--lr", type=float, default=6e-3)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(14)
    facts, template = Facts(3), ChatTemplate(marker_closes_turn=args.fixed)
    g = torch.Generator().manual_seed(4)
    data = [template.render(facts.conversation(g)) for _ in range(600)]
    model = ChatModel()
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    for step in range(args.steps):
        pick = torch.randint(0, len(data), (args.batch_size,), generator=g).tolist()
        ids, labels = collate([data[i] for i in pick])
        loss = F.cross_entropy(
            model(ids)[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100
        )
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 20 == 0 or step == args.steps - 1:
            print(
                f"step {step:3d} | loss {loss.item():.4f} | trained tokens {(labels != -100).sum().item()}"
            )

    exact, begins, stopped = evaluate(model, facts)
    print(
        f"answers: exact {exact:.2f}, right beginning {begins:.2f}, ended by itself {stopped:.2f}"
    )
    if args.prove:
        turns, trained = closed_turns(data)
        print(
            f"assistant turns with a follow-up: {turns}, of which the hand-over is in the loss: {trained}"
        )
        print("fault shows:", "yes" if trained < turns else "no")


if __name__ == "__main__":
    main()
