import argparse
import torch
import torch.nn as nn
import torch.nn.functional as F

# ---------------------------------------------------------------------------
# Toy TTS: phonemes in, discrete codec frames out. Every phoneme is spoken as
# three frames of its own, the frame ids depend on the speaker.
# ---------------------------------------------------------------------------
N_PHONE, FRAMES, N_SPK = 10, 3, 2
PAD, BOS, EOS = 0, 1, 2
CODE0 = 3
N_CODE = CODE0 + N_PHONE * FRAMES * N_SPK
IGNORE = -100


def speak(phones, spk):
    out = []
    for p in phones:
        base = CODE0 + (spk * N_PHONE + p) * FRAMES
        out += [base, base + 1, base + 2]
    return out


def make_corpus(n, seed):
    g = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(n):
        k = int(torch.randint(4, 7, (1,), generator=g))
        phones = torch.randint(0, N_PHONE, (k,), generator=g).tolist()
        spk = int(torch.randint(0, N_SPK, (1,), generator=g))
        rows.append((phones, spk, speak(phones, spk)))
    return rows


def collate(rows, max_text=6):
    """text | BOS codes EOS, text left padded so that the codec part starts at one place."""
    longest = max(len(c) for _, _, c in rows) + 2
    text = torch.full((len(rows), max_text), N_PHONE)
    spk = torch.tensor([s for _, s, _ in rows])
    codes = torch.full((len(rows), longest), PAD)
    for i, (ph, _, c) in enumerate(rows):
        text[i, max_text - len(ph) :] = torch.tensor(ph)
        codes[i, : len(c) + 2] = torch.tensor([BOS] + c + [EOS])
    codec_mask = codes != PAD
    labels = torch.cat(
        [torch.full_like(text, IGNORE), codes.masked_fill(~codec_mask, IGNORE)], dim=1
    )
    labels[:, max_text] = IGNORE
    return text, spk, codes, labels


def causal_lm_loss(logits, labels):
    """Token n predicts token n + 1."""
    labels = F.pad(labels, (0, 1), value=IGNORE)[:, 1:]
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE)


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
        self.heads = heads

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.n2(x))


class Talker(nn.Module):
    def __init__(self, d=64, layers=2, heads=4, max_len=40):
        super().__init__()
        self.text_emb = nn.Embedding(N_PHONE + 1, d)
        self.code_emb = nn.Embedding(N_CODE, d)
        self.spk_emb = nn.Embedding(N_SPK, d)
        self.pos = nn.Parameter(torch.randn(1, max_len, d) * 0.02)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, N_CODE)

    def embed(self, text, spk, codes):
        x = torch.cat([self.text_emb(text), self.code_emb(codes)], dim=1)
        return x + self.spk_emb(spk)[:, None] + self.pos[:, : x.shape[1]]

    def forward(self, inputs_embeds, labels=None):
        h = inputs_embeds
        for b in self.blocks:
            h = b(h)
        logits = self.head(self.norm(h))
        loss = causal_lm_loss(logits, labels) if labels is not None else None
        return loss, logits

    @torch.no_grad()
    def generate(self, text, spk, limit=26):
        codes = torch.full((text.shape[0], 1), BOS)
        done = torch.zeros(text.shape[0], dtype=torch.bool)
        for _ in range(limit):
            nxt = self.forward(self.embed(text, spk, codes))[1][:, -1].argmax(-1)
            nxt = torch.where(done, torch.full_like(nxt, PAD), nxt)
            codes = torch.cat([codes, nxt[:, None]], dim=1)
            done |= nxt == EOS
            if done.all():
                break
        return codes[:, 1:]


def train(model, corpus, args):
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 20))
    g = torch.Generator().manual_seed(args.seed)
    for step in range(args.steps):
        pick = torch.randint(0, len(corpus), (args.batch,), generator=g).tolist()
        text, spk, codes, labels = collate([corpus[i] for i in pick])
        embeds = model.embed(text, spk, codes)
        if args.fixed:
            loss, _ = model(embeds, labels=labels)
        else:
            loss, _ = model(embeds[:, :-1], labels=labels[:, 1:])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 25 == 0 or step == args.steps - 1:
            print(
                f"step {step}: loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.2e}"
            )


def evaluate(model, rows):
    model.eval()
    text, spk, _, _ = collate(rows)
    out = model.generate(text, spk)
    hits = total = length = 0
    for seq, (_, _, ref) in zip(out.tolist(), rows):
        seq = [c for c in seq if c > EOS]
        length += len(seq) / len(ref)
        hits += sum(a == b for a, b in zip(seq, ref))
        total += len(ref)
    print(
        f"generated frames that match: {hits / total:.3f}, duration ratio {length / len(rows):.3f}"
    )


@torch.no_grad()
def entropy_at(model, rows, ahead):
    text, spk, codes, labels = collate(rows)
    logits = model(model.embed(text, spk, codes))[1]
    start = text.shape[1]
    logits, target = logits[:, start:-ahead], labels[:, start + ahead :]
    return F.cross_entropy(
        logits.flatten(0, 1), target.flatten(), ignore_index=IGNORE
    ).item()


def main():
    ap = argparse.ArgumentParser(
        description="supervised fine-tuning of a small codec language model"
    )
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    corpus = make_corpus(1500, args.seed + 1)
    test = make_corpus(64, args.seed + 2)
    model = Talker()
    train(model, corpus, args)
    evaluate(model, test)
    if args.prove:
        near, far = entropy_at(model, test, 1), entropy_at(model, test, 2)
        print(
            f"cross entropy against frame j+1: {near:.3f}, against frame j+2: {far:.3f}"
        )
        print("fault shows: " + ("yes" if far < near else "no"))


if __name__ == "__main__":
    main()
