import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

# Direct preference optimisation of a tiny recurrent LM on made-up chat pairs.

PAD, BOS, SEP, EOS = 0, 1, 2, 3
LOW, HIGH = 4, 24
VOCAB = 24


def make_pairs(n, seed):
    g = torch.Generator().manual_seed(seed)
    pairs = []
    for _ in range(n):
        length = int(torch.randint(6, 40, (1,), generator=g))
        prompt = (
            [BOS] + torch.randint(LOW, HIGH, (length,), generator=g).tolist() + [SEP]
        )
        key = prompt[-2]
        base = torch.randint(LOW, HIGH, (4,), generator=g)
        up, down = base.sort()[0].tolist(), base.sort(descending=True)[0].tolist()
        good, bad = (up, down) if key % 2 == 0 else (down, up)
        pairs.append((prompt, good + [EOS], bad + [EOS]))
    return pairs


def encode_side(prompt, response, max_len, fixed):
    if fixed:
        room = max(1, max_len - len(response))
        prompt = prompt[-room:]
    ids = (prompt + response)[:max_len]
    mask = ([0] * len(prompt) + [1] * len(response))[:max_len]
    pad = max_len - len(ids)
    return ids + [PAD] * pad, mask + [0] * pad


class PreferenceLoader:
    def __init__(self, pairs, batch_size, max_len, fixed, seed=None):
        self.batch_size, self.seed = batch_size, seed
        sides = [
            [encode_side(p, r, max_len, fixed) for p, r in ((q, c), (q, d))]
            for q, c, d in pairs
        ]
        self.ids = torch.tensor([[s[0] for s in pair] for pair in sides])
        self.mask = torch.tensor([[s[1] for s in pair] for pair in sides]).float()
        self.prompt_len = torch.tensor([len(p) for p, _, _ in pairs])
        self.epoch = 0

    def __iter__(self):
        order = torch.arange(len(self.ids))
        if self.seed is not None:
            order = torch.randperm(
                len(self.ids),
                generator=torch.Generator().manual_seed(self.seed + self.epoch),
            )
            self.epoch += 1
        for i in range(0, len(order) - self.batch_size + 1, self.batch_size):
            j = order[i : i + self.batch_size]
            yield self.ids[j], self.mask[j], self.prompt_len[j]


class RecurrentLM(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, VOCAB)

    def forward(self, ids):
        h, _ = self.rnn(self.emb(ids))
        return self.head(h)


def sequence_logp(model, ids, mask):
    logp = F.log_softmax(model(ids[:, :-1]), dim=-1)
    tok = logp.gather(-1, ids[:, 1:, None]).squeeze(-1)
    return (tok * mask[:, 1:]).sum(-1)


def pair_logps(model, ids, mask):
    return sequence_logp(model, ids[:, 0], mask[:, 0]), sequence_logp(
        model, ids[:, 1], mask[:, 1]
    )


def dpo_loss(policy, ref, ids, mask, beta):
    pc, pr = pair_logps(policy, ids, mask)
    with torch.no_grad():
        rc, rr = pair_logps(ref, ids, mask)
    margin = beta * ((pc - rc) - (pr - rr))
    return -F.logsigmoid(margin).mean(), margin.detach()


@torch.no_grad()
def evaluate(policy, ref, loader, beta, cut):
    margins, lengths, losses = [], [], []
    for ids, mask, plen in loader:
        loss, m = dpo_loss(policy, ref, ids, mask, beta)
        losses.append(loss.item())
        margins.append(m)
        lengths.append(plen)
    m, n = torch.cat(margins), torch.cat(lengths)
    acc = (m > 0).float()
    print(
        f"  eval: loss {sum(losses) / len(losses):.4f}  reward accuracy {acc.mean():.3f} "
        f"(prompts under {cut} tokens {acc[n < cut].mean():.3f}, others {acc[n >= cut].mean():.3f})"
    )


def warm_start(seed):
    torch.manual_seed(seed)
    return RecurrentLM()


def main():
    ap = argparse.ArgumentParser(description="DPO on synthetic preference pairs")
    ap.add_argument("--steps", type=int, default=150)
    ap.add_argument("--batch_size", type=int, default=32)
    ap.add_argument("--max_len", type=int, default=32)
    ap.add_argument("--beta", type=float, default=0.3)
    ap.add_argument("--lr", type=float, default=5e-3)
    ap.add_argument("--seed", type=int, default=7)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    train = PreferenceLoader(
        make_pairs(2000, 11), args.batch_size, args.max_len, args.fixed, seed=args.seed
    )
    held = PreferenceLoader(make_pairs(256, 12), 64, args.max_len, args.fixed)

    policy = warm_start(args.seed)
    ref = copy.deepcopy(policy).eval()
    for p in ref.parameters():
        p.requires_grad_(False)
    opt = torch.optim.AdamW(policy.parameters(), lr=args.lr, weight_decay=0.0)

    step, idle, seen = 0, 0, 0
    cut = args.max_len - 5
    while step < args.steps:
        for ids, mask, _ in train:
            for group in opt.param_groups:
                group["lr"] = args.lr * min(1.0, (step + 1) / 20)
            loss, margin = dpo_loss(policy, ref, ids, mask, args.beta)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            opt.step()
            differs = (ids[:, 0] != ids[:, 1]).any(-1)
            idle += int((~differs).sum())
            seen += len(ids)
            if step % 40 == 0:
                print(
                    f"step {step:4d} loss {loss.item():.4f} margin {margin.mean():+.3f}"
                )
            if step % 75 == 74:
                evaluate(policy, ref, held, args.beta, cut)
            step += 1
            if step >= args.steps:
                break

    print("final")
    evaluate(policy, ref, held, args.beta, cut)
    if args.prove:
        share = idle / seen
        print(
            f"pairs whose two sides were the same token sequence: {100 * share:.1f}% of {seen}"
        )
        print("fault shows:", "yes" if share > 0.01 else "no")


if __name__ == "__main__":
    main()
