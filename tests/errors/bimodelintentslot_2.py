# Joint intent detection and slot filling with two networks that read each other's states
# (bi-model with decoder), on made-up flight questions.
import argparse
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=80)
ap.add_argument("--batch", type=int, default=16)
ap.add_argument("--embedding_size", type=int, default=32)
ap.add_argument("--hidden", type=int, default=40)
ap.add_argument("--fixed", action="store_true")
ap.add_argument("--prove", action="store_true")
args = ap.parse_args()

random.seed(42)
torch.manual_seed(42)

MAX_LEN = 12
cities = ["boston", "denver", "oakland", "dallas", "miami", "atlanta"]
days = ["monday", "tuesday", "friday", "sunday"]
templates = [
    ("flight", "show flights from <from> to <to>"),
    ("flight", "i want to fly to <to> from <from> on <day>"),
    ("flight", "from <from> to <to> please"),
    ("fare", "how much is a ticket to <to> on <day>"),
    ("fare", "what is the fare from <from> to <to>"),
    ("airport", "which airport is near <city>"),
    ("time", "when does the plane leave <from> on <day>"),
    ("time", "arrival time in <to> on <day> please"),
]
slots = ["<PAD>", "O", "B-from", "B-to", "B-city", "B-day"]
intents = ["flight", "fare", "airport", "time"]


def make_sentence():
    intent, t = random.choice(templates)
    words, tags = [], []
    for w in t.split():
        if w.startswith("<"):
            kind = w[1:-1]
            words.append(random.choice(days if kind == "day" else cities))
            tags.append("B-" + kind)
        else:
            words.append(w)
            tags.append("O")
    return words, tags, intent


corpus = [make_sentence() for _ in range(700)]
vocab = {"<PAD>": 0}
for words, _, _ in corpus:
    for w in words:
        vocab.setdefault(w, len(vocab))


def to_batch(rows):
    x = torch.zeros(len(rows), MAX_LEN, dtype=torch.long)
    y = torch.zeros(len(rows), MAX_LEN, dtype=torch.long)
    z = torch.zeros(len(rows), dtype=torch.long)
    for i, (words, tags, intent) in enumerate(rows):
        x[i, : len(words)] = torch.tensor([vocab[w] for w in words])
        y[i, : len(words)] = torch.tensor([slots.index(t) for t in tags])
        z[i] = intents.index(intent)
    return x, y, z


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(len(vocab), args.embedding_size, padding_idx=0)
        self.lstm = nn.LSTM(
            args.embedding_size,
            args.hidden,
            num_layers=1,
            bidirectional=True,
            batch_first=True,
        )

    def forward(self, x):
        e = F.dropout(self.embedding(x), 0.2, self.training)
        out, _ = self.lstm(e)
        return out


class SlotDecoder(nn.Module):
    def __init__(self):
        super().__init__()
        size = args.hidden * 4 + len(slots)
        if args.fixed:
            self.lstm = nn.LSTM(
                input_size=size, hidden_size=args.hidden, batch_first=True
            )
        else:
            self.lstm = nn.LSTM(input_size=size, hidden_size=args.hidden)
        self.fc = nn.Linear(args.hidden, len(slots))

    def forward(self, hs, hi):
        batch = hs.size(0)
        both = F.dropout(torch.cat([hs, hi], dim=-1), 0.2, self.training).transpose(
            0, 1
        )  # 12 x batch x size
        prev = torch.zeros(batch, 1, len(slots))
        state, all_out = None, []
        for x in both:
            inp = torch.cat([x.unsqueeze(1), prev], dim=-1)
            out, state = self.lstm(inp, state)
            prev = self.fc(out)
            all_out.append(prev)
        return torch.cat(all_out, dim=1)


class IntentDecoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(args.hidden * 4, args.hidden, batch_first=True)
        self.fc = nn.Linear(args.hidden, len(intents))

    def forward(self, hi, hs, real_len):
        out, _ = self.lstm(torch.cat([hi, hs], dim=-1))
        return self.fc(out[torch.arange(len(out)), real_len - 1])


class Net(nn.Module):
    def __init__(self, decoder):
        super().__init__()
        self.enc = Encoder()
        self.dec = decoder


slot_model, intent_model = Net(SlotDecoder()), Net(IntentDecoder())
slot_opt = torch.optim.Adam(slot_model.parameters(), lr=3e-3)
intent_opt = torch.optim.Adam(intent_model.parameters(), lr=3e-3)
train, test = corpus[:600], corpus[600:]


def evaluate():
    slot_model.eval(), intent_model.eval()
    x, y, z = to_batch(test)
    with torch.no_grad():
        hs, hi = slot_model.enc(x), intent_model.enc(x)
        tag = slot_model.dec(hs, hi).argmax(-1)
        it = intent_model.dec(hi, hs, (x > 0).sum(1)).argmax(-1)
    keep = y > 1
    slot_model.train(), intent_model.train()
    return (tag[keep] == y[keep]).float().mean().item(), (it == z).float().mean().item()


for step in range(args.steps):
    x, y, z = to_batch(random.sample(train, args.batch))
    real_len = (x > 0).sum(1)

    hs = slot_model.enc(x)
    hi = intent_model.enc(x).detach()
    slot_logits = slot_model.dec(hs, hi)
    slot_loss = F.cross_entropy(
        slot_logits.reshape(-1, len(slots)), y.reshape(-1), ignore_index=0
    )
    slot_opt.zero_grad()
    slot_loss.backward()
    nn.utils.clip_grad_norm_(slot_model.parameters(), 5.0)
    slot_opt.step()

    hi = intent_model.enc(x)
    intent_loss = F.cross_entropy(
        intent_model.dec(hi, slot_model.enc(x).detach(), real_len), z
    )
    intent_opt.zero_grad()
    intent_loss.backward()
    nn.utils.clip_grad_norm_(intent_model.parameters(), 5.0)
    intent_opt.step()
    if step % 20 == 19:
        print(
            "step %d  slot loss %.4f  intent loss %.4f  slot acc %.3f  intent acc %.3f"
            % ((step + 1, slot_loss.item(), intent_loss.item()) + evaluate())
        )

if args.prove:
    slot_model.eval()
    x, _, _ = to_batch(test[:6])
    hs = slot_model.enc(x).detach().requires_grad_()
    out = slot_model.dec(hs, torch.zeros_like(hs))
    out[-1].sum().backward()
    influence = hs.grad[0].abs().sum().item()
    print("influence of the first sentence on the tags of the last: %.6f" % influence)
    print("fault shows:", "yes" if influence > 0 else "no")
