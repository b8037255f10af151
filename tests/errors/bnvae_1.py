import argparse
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

PAD, BOS, EOS = 0, 1, 2


class Grammar:
    """Sentences from a little grammar: a hidden topic picks the subjects, verbs and objects."""

    def __init__(self, seed, topics=6):
        rng = np.random.default_rng(seed)
        self.rng = rng
        words = np.arange(3, 3 + 48)
        self.subj = [rng.choice(words[:16], 4, replace=False) for _ in range(topics)]
        self.verb = [rng.choice(words[16:28], 3, replace=False) for _ in range(topics)]
        self.obj = [rng.choice(words[28:], 4, replace=False) for _ in range(topics)]
        self.topics = topics
        self.vocab = 3 + 48

    def sentence(self):
        k = self.rng.integers(self.topics)
        out = [BOS]
        for _ in range(self.rng.integers(2, 4)):
            out += [
                self.rng.choice(self.subj[k]),
                self.rng.choice(self.verb[k]),
                self.rng.choice(self.obj[k]),
            ]
        return out + [EOS]

    def batches(self, n, size):
        by_len = {}
        for _ in range(n):
            s = self.sentence()
            by_len.setdefault(len(s), []).append(s)
        res = []
        for group in by_len.values():
            for i in range(0, len(group) - size + 1, size):
                res.append(
                    torch.tensor(np.array(group[i : i + size]), dtype=torch.long)
                )
        return res


class TextVAE(nn.Module):
    def __init__(self, vocab, emb=24, hid=48, nz=8):
        super().__init__()
        self.emb = nn.Embedding(vocab, emb)
        self.enc = nn.GRU(emb, hid, batch_first=True)
        self.stats = nn.Linear(hid, 2 * nz)
        self.z2h = nn.Linear(nz, hid)
        self.dec = nn.GRU(emb + nz, hid, batch_first=True)
        self.out = nn.Linear(hid, vocab)
        self.drop = nn.Dropout(0.3)

    def encode(self, x):
        _, h = self.enc(self.emb(x))
        mu, logvar = self.stats(h[0]).chunk(2, dim=-1)
        return mu, logvar

    def decode(self, x, z):
        e = self.drop(self.emb(x[:, :-1]))
        e = torch.cat([e, z[:, None].expand(-1, e.shape[1], -1)], dim=-1)
        h, _ = self.dec(e, torch.tanh(self.z2h(z))[None])
        logits = self.out(h)
        return (
            F.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten(), reduction="none")
            .view(x.shape[0], -1)
            .sum(1)
        )

    def loss(self, x, kl_weight):
        mu, logvar = self.encode(x)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp() if self.training else mu
        rec = self.decode(x, z)
        kl = 0.5 * (mu.pow(2) + logvar.exp() - 1 - logvar).sum(1)
        return (rec + kl_weight * kl).mean(), rec.mean().item(), kl.mean().item()


def evaluate(model, batches):
    model.eval()
    rec = kl = words = sents = 0.0
    mus = []
    with torch.no_grad():
        for x in batches:
            _, r, k = model.loss(x, 1.0)
            rec += r * len(x)
            kl += k * len(x)
            sents += len(x)
            words += x[:, 1:].numel()
            mus.append(model.encode(x)[0])
    active = int((torch.cat(mus).var(0) > 0.01).sum())
    model.train()
    return rec / sents, kl / sents, float(np.exp((rec + kl) / words)), active


def expected_weights(args, per_epoch, anneal_rate):
    w, out = args.kl_start, []
    for epoch in range(args.epochs):
        if args.cycle > 0 and (epoch - 1) % args.cycle == 0:
            w = args.kl_start
        for _ in range(per_epoch):
            w = min(1.0, w + anneal_rate)
            out.append(w)
    return out


def main(args):
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    grammar = Grammar(args.seed)
    train = grammar.batches(900, args.batch_size)
    valid = grammar.batches(200, args.batch_size)
    model = TextVAE(grammar.vocab)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)

    kl_weight = args.kl_start
    anneal_rate = (1.0 - args.kl_start) / (args.warm_up * len(train))
    used = []
    print(f"{len(train)} batches per epoch, anneal rate {anneal_rate:.4f}")
    for epoch in range(args.epochs):
        report_rec = report_kl = report_n = 0.0
        if args.fixed and args.cycle > 0 and (epoch - 1) % args.cycle == 0:
            kl_weight = args.kl_start
        for i in np.random.permutation(len(train)):
            x = train[i]
            kl_weight = min(1.0, kl_weight + anneal_rate)
            if not args.fixed and args.cycle > 0 and (epoch - 1) % args.cycle == 0:
                kl_weight = args.kl_start
            loss, rec, kl = model.loss(x, kl_weight)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            used.append(kl_weight)
            report_rec += rec * len(x)
            report_kl += kl * len(x)
            report_n += len(x)
        v_rec, v_kl, ppl, au = evaluate(model, valid)
        print(
            f"epoch {epoch:2d}  train rec {report_rec / report_n:.3f} kl {report_kl / report_n:.3f} "
            f"| valid rec {v_rec:.3f} kl {v_kl:.3f} ppl {ppl:.3f} active units {au}"
        )

    v_rec, v_kl, ppl, au = evaluate(model, valid)
    print(f"final: nll {v_rec + v_kl:.3f}  ppl {ppl:.3f}")
    if args.prove:
        want = expected_weights(args, len(train), anneal_rate)
        off = [i for i, (a, b) in enumerate(zip(used, want)) if abs(a - b) > 1e-9]
        print(
            f"steps whose KL weight is not the scheduled one: {len(off)} of {len(used)}"
            + (
                f", first {off[0]}, largest gap {max(abs(a - b) for a, b in zip(used, want)):.3f}"
                if off
                else ""
            )
        )
        print("fault shows:", "yes" if off else "no")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument(
        "--warm_up", type=float, default=2.0, help="epochs until the KL weight is 1"
    )
    parser.add_argument("--kl_start", type=float, default=0.1)
    parser.add_argument(
        "--cycle",
        type=int,
        default=3,
        help="restart the annealing every so many epochs",
    )
    parser.add_argument("--seed", type=int, default=783)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    main(parser.parse_args())
