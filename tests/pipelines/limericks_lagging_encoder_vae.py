"""A sentence VAE whose encoder is trained far more often than its decoder, at first.

"Lagging inference networks" (He et al., 2019): while the mutual information of code and
sentence still grows, every decoder update is preceded by as many encoder updates as still lower
the loss. After that the two take steps together. The weight of the KL rises over the warm-up, so
the training loss may rise while the bound improves.
"""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, LENGTH, SCHEMES, START = 24, 12, 5, 0


def limericks(n, gen):
    """Each verse follows a scheme (its own grammar of words) and keeps a rhyme at fixed places."""
    rules = torch.Generator().manual_seed(41)
    lexicon = torch.stack(
        [1 + torch.randperm(VOCAB - 1, generator=rules)[:6] for _ in range(SCHEMES)]
    )
    order = torch.randint(6, (SCHEMES, LENGTH), generator=rules)
    scheme = torch.randint(SCHEMES, (n,), generator=gen)
    rhyme = torch.randint(6, (n,), generator=gen)
    pick = order[scheme]
    stray = torch.rand(n, LENGTH, generator=gen) < 0.15
    pick = torch.where(stray, torch.randint(6, (n, LENGTH), generator=gen), pick)
    pick[:, 3::4] = rhyme.unsqueeze(1)  # the last word of each line
    return torch.gather(lexicon[scheme], 1, pick)


class Encoder(nn.Module):
    def __init__(self, z_dim=8, width=40):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 24)
        self.rnn = nn.GRU(24, width, batch_first=True)
        self.head = nn.Linear(width, 2 * z_dim)

    def forward(self, words):
        _, h = self.rnn(self.emb(words))
        mu, logvar = self.head(h[0]).chunk(2, 1)
        return mu, logvar


class Decoder(nn.Module):
    def __init__(self, z_dim=8, width=40):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 24)
        self.first = nn.Linear(z_dim, width)
        self.rnn = nn.GRU(24 + z_dim, width, batch_first=True)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(width, VOCAB)

    def forward(self, words, z):
        shifted = F.pad(
            words[:, :-1], (1, 0), value=START
        )  # word 0 never occurs in a verse
        x = torch.cat(
            [self.drop(self.emb(shifted)), z.unsqueeze(1).expand(-1, LENGTH, -1)], 2
        )
        h, _ = self.rnn(x, torch.tanh(self.first(z)).unsqueeze(0))
        return self.out(self.drop(h))


def terms(enc, dec, words):
    mu, logvar = enc(words)
    z = mu + (0.5 * logvar).exp() * torch.randn_like(mu)
    nll = F.cross_entropy(dec(words, z).transpose(1, 2), words, reduction="none").sum(1)
    kl = 0.5 * (mu.square() + logvar.exp() - 1 - logvar).sum(1)
    return nll.mean(), kl.mean()


@torch.no_grad()
def mutual_information(enc, words):
    """I(x; z) under the aggregate posterior: E[log q(z|x)] - E[log q(z)], one z per verse."""
    mu, logvar = enc(words)
    z = mu + (0.5 * logvar).exp() * torch.randn_like(mu)
    diff = z.unsqueeze(1) - mu.unsqueeze(0)
    logq = -0.5 * (diff.square() / logvar.exp() + logvar + math.log(2 * math.pi)).sum(
        2
    )  # z_i under q(.|x_j)
    return (logq.diagonal() - (logq.logsumexp(1) - math.log(len(words)))).mean().item()


@torch.no_grad()
def validate(enc, dec, words):
    enc.eval(), dec.eval()
    nll, kl = terms(enc, dec, words)
    mi = mutual_information(enc, words[:300])
    spread = enc(words)[0].var(0)
    enc.train(), dec.train()
    return (nll + kl).item(), kl.item(), mi, int((spread > 0.02).sum())


class Batches:
    def __init__(self, data, size):
        self.data, self.size = data, size

    def next(self):
        return self.data[torch.randint(len(self.data), (self.size,))]


# size: the whole run in one place, read from top to bottom
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=150, help="decoder updates")
    ap.add_argument("--batch", type=int, default=48)
    ap.add_argument("--max-inner", type=int, default=8)
    args = ap.parse_args()
    torch.manual_seed(19)
    gen = torch.Generator().manual_seed(20)
    train, valid = limericks(4000, gen), limericks(600, gen)
    assert (train > 0).all() and train.max() < VOCAB
    enc, dec = Encoder(), Decoder()
    enc_opt = torch.optim.Adam(enc.parameters(), lr=3e-3)
    dec_opt = torch.optim.Adam(dec.parameters(), lr=3e-3)
    batches = Batches(train, args.batch)

    def update(words, beta, *opts):
        """One backward; only the optimisers named take a step, all gradients are wiped before."""
        nll, kl = terms(enc, dec, words)
        loss = nll + beta * kl
        enc_opt.zero_grad()
        dec_opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([*enc.parameters(), *dec.parameters()], 5.0)
        for o in opts:
            o.step()
        return loss.item(), nll.item(), kl.item()

    start = validate(enc, dec, valid)
    print(f"before: -ELBO {start[0]:.2f}")
    aggressive, last_mi, inner_total, warm = True, -1.0, 0, max(1, args.steps // 3)
    for step in range(args.steps):
        beta = min(1.0, 0.1 + 0.9 * step / warm)
        if aggressive:
            # encoder alone, on batches of its own, until a block of updates no longer lowers the loss
            previous, block = float("inf"), 0.0
            for inner in range(1, args.max_inner + 1):
                block += update(batches.next(), beta, enc_opt)[0]
                inner_total += 1
                if inner % 4 == 0:
                    if block > previous:
                        break
                    previous, block = block, 0.0
            loss, nll, kl = update(batches.next(), beta, dec_opt)
        else:
            loss, nll, kl = update(batches.next(), beta, enc_opt, dec_opt)

        if step % 15 == 14:
            bound, vkl, mi, active = validate(enc, dec, valid)
            print(
                f"step {step + 1:4d} beta {beta:.2f} loss {loss:6.2f} | -ELBO {bound:6.2f} kl {vkl:.2f} mi {mi:.2f} active {active}"
                + ("  (aggressive)" if aggressive else "")
            )
            if aggressive and step >= warm and mi < last_mi:
                aggressive = False  # it no longer climbs: walk together
            last_mi = mi

    bound, vkl, mi, active = validate(enc, dec, valid)
    print(
        f"after: -ELBO {bound:.2f}, kl {vkl:.2f}, mutual information {mi:.2f}, {active} active units, "
        f"{inner_total} encoder updates of its own"
    )
    assert inner_total >= min(4, args.max_inner)
    if args.steps >= 150:
        assert bound < 0.65 * start[0] and vkl > 0.3 and active >= 1, (
            start,
            bound,
            vkl,
            active,
        )


if __name__ == "__main__":
    main()
