# character level LSTM on (generated) recipes
# truncated backprop through time, the hidden state is carried over between chunks
import argparse, math, random, time
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--bptt", type=int, default=40)
parser.add_argument("--hidden", type=int, default=96)
parser.add_argument("--lr", type=float, default=4e-3)
parser.add_argument("--clip", type=float, default=1.0)
parser.add_argument("--eval-every", type=int, default=50)
parser.add_argument("--seed", type=int, default=1111)
args = parser.parse_args()

torch.manual_seed(args.seed)
rnd = random.Random(args.seed)

VERBS = ["chop", "fry", "boil", "mix", "bake", "grate", "season", "stir"]
FOOD = ["onions", "carrots", "rice", "butter", "flour", "garlic", "beans", "cheese"]
TAIL = ["for {} minutes", "until soft", "in a large bowl", "with salt", "and set aside"]


def recipe():
    lines = []
    for i in range(rnd.randint(3, 6)):
        t = rnd.choice(TAIL).format(rnd.randint(2, 30))
        lines.append(
            "%d. %s the %s %s." % (i + 1, rnd.choice(VERBS), rnd.choice(FOOD), t)
        )
    return "\n".join(lines) + "\n\n"


train_text = "".join(recipe() for _ in range(500))
valid_text = "".join(recipe() for _ in range(50))
test_text = "".join(recipe() for _ in range(50))

chars = sorted(set(train_text))
stoi = {c: i + 1 for i, c in enumerate(chars)}  # 0 is <unk>
itos = ["?"] + chars


def encode(s):
    return torch.tensor([stoi.get(c, 0) for c in s])


def batchify(ids, bsz):
    """[n] -> [n // bsz, bsz], every column is a continuous piece of text"""
    n = ids.numel() // bsz
    return ids[: n * bsz].view(bsz, n).t().contiguous()


def get_chunk(source, i):
    length = min(args.bptt, source.size(0) - 1 - i)
    return source[i : i + length], source[i + 1 : i + 1 + length]


train_data = batchify(encode(train_text), args.batch)
valid_data = batchify(encode(valid_text), 8)
test_data = batchify(encode(test_text), 8)
print(
    "train",
    tuple(train_data.shape),
    "valid",
    tuple(valid_data.shape),
    "vocab",
    len(itos),
)


class CharLSTM(nn.Module):
    def __init__(self, vocab, hidden, layers=1, p=0.1):
        super().__init__()
        self.emb = nn.Embedding(vocab, hidden)
        self.drop = nn.Dropout(p)
        self.lstm = nn.LSTM(hidden, hidden, layers)
        self.out = nn.Linear(hidden, vocab)
        nn.init.uniform_(self.emb.weight, -0.1, 0.1)
        self.out.weight = self.emb.weight  # tied
        nn.init.zeros_(self.out.bias)

    def forward(self, x, state=None):
        h, state = self.lstm(self.drop(self.emb(x)), state)
        return self.out(self.drop(h)), state


def detach(state):
    return tuple(s.detach() for s in state)


model = CharLSTM(len(itos), args.hidden)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
    optimizer, factor=0.5, patience=0
)


def evaluate(source):
    model.eval()
    total, count, state = 0.0, 0, None
    with torch.no_grad():
        for i in range(0, source.size(0) - 1, args.bptt):
            x, y = get_chunk(source, i)
            logits, state = model(x, state)
            total += criterion(logits.flatten(0, 1), y.flatten()).item() * y.numel()
            count += y.numel()
    model.train()
    return total / count


@torch.no_grad()
def sample(prefix="1. ", n=80, temperature=0.7):
    model.eval()
    x, state, text = encode(prefix).unsqueeze(1), None, prefix
    for _ in range(n):
        logits, state = model(x, state)
        probs = torch.softmax(logits[-1, 0] / temperature, -1)
        k = torch.multinomial(probs, 1)
        text += itos[k.item()]
        x = k.view(1, 1)
    model.train()
    return text


model.train()
pos, state = 0, None
log_loss, log_n, t0 = 0.0, 0, time.time()
for step in range(1, args.steps + 1):
    if pos >= train_data.size(0) - 1:  # end of the text, next pass
        pos, state = 0, None
    x, y = get_chunk(train_data, pos)
    pos += args.bptt
    if state is not None:
        state = detach(state)
    optimizer.zero_grad()
    logits, state = model(x, state)
    loss = criterion(logits.reshape(-1, len(itos)), y.reshape(-1))
    loss.backward()
    gnorm = nn.utils.clip_grad_norm_(model.parameters(), args.clip)
    optimizer.step()
    log_loss += loss.item() * y.numel()
    log_n += y.numel()

    if step % args.eval_every == 0 or step == args.steps:
        val = evaluate(valid_data)
        scheduler.step(val)
        print(
            "step %4d | train %.3f | valid %.3f | ppl %.2f | bpc %.3f | gnorm %.2f | lr %.1e | %.1fs"
            % (
                step,
                log_loss / log_n,
                val,
                math.exp(val),
                val / math.log(2),
                gnorm,
                optimizer.param_groups[0]["lr"],
                time.time() - t0,
            )
        )
        log_loss, log_n = 0.0, 0

print("-" * 40)
print(sample())
print("-" * 40)
test = evaluate(test_data)
print("test loss %.3f ppl %.2f" % (test, math.exp(test)))
