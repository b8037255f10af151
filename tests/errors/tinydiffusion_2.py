"""Character-level masked diffusion on short recipe lines."""
import argparse
import os
import random
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

block_size = 16
num_timesteps = 16
n_embd = 48
n_head = 4
n_layer = 2
temperature = 0.6

VERBS = ["boil", "chop", "fry", "grill", "mash", "peel", "roast", "stir"]
FOODS = ["beans", "carrot", "corn", "eggs", "leeks", "onion", "rice", "squash"]


def all_lines():
    """Every verb goes with three foods and with one ten of minutes."""
    lines = []
    for v, verb in enumerate(VERBS):
        for k in range(3):
            food = FOODS[(v + k) % len(FOODS)]
            tens = v % 4 + 1
            lines += [f"{verb} {food} {tens}{i}m" for i in range(10)]
    return lines


chars = sorted(set("".join(all_lines())))
stoi = {ch: i + 1 for i, ch in enumerate(chars)}  # 0 is the mask token
itos = {i: ch for ch, i in stoi.items()}
mask_id = 0
vocab_size = len(chars) + 1


def encode(line):
    return [stoi[c] for c in line.ljust(block_size)]


def decode(ids):
    return "".join(itos.get(i, "_") for i in ids)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.proj = nn.Linear(n_embd, n_embd, bias=False)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, n_head, C // n_head).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.proj(y.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    """Attention and MLP, modulated by the timestep."""

    def __init__(self):
        super().__init__()
        self.attn = Attention()
        self.mlp = nn.Sequential(
            nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd)
        )
        self.norm1 = nn.LayerNorm(n_embd, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(n_embd, elementwise_affine=False)
        self.mod = nn.Linear(n_embd, 4 * n_embd)

    def forward(self, x, c):
        s1, b1, s2, b2 = self.mod(c)[:, None].chunk(4, dim=-1)
        x = x + self.attn(self.norm1(x) * (1 + s1) + b1)
        return x + self.mlp(self.norm2(x) * (1 + s2) + b2)


class DiffusionTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.time = nn.Embedding(num_timesteps, n_embd)
        self.blocks = nn.ModuleList(Block() for _ in range(n_layer))
        self.norm = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size)

    def forward(self, idx, t):
        x = self.wte(idx) + self.wpe.weight
        c = self.time(t)
        for block in self.blocks:
            x = block(x, c)
        logits = self.lm_head(self.norm(x))
        logits[..., mask_id] = -torch.inf
        return logits


def mask_prob(t):
    return (t + 1) / num_timesteps


def corrupt(x0, t, gen):
    u = torch.rand(x0.shape, generator=gen)
    masked = u < mask_prob(t)[:, None]
    return torch.where(masked, mask_id, x0), masked


def diffusion_loss(model, x0, gen):
    t = torch.randint(num_timesteps, (len(x0),), generator=gen)
    xt, masked = corrupt(x0, t, gen)
    logits = model(xt, t)
    return F.cross_entropy(logits[masked], x0[masked])


@torch.no_grad()
def sample_confidence(model, n, steps, gen):
    """Unmasks, step by step, the characters that the model is most sure of."""
    x = torch.full((n, block_size), mask_id)
    per_step = block_size // num_timesteps
    for t in steps:
        logits = model(x, torch.full((n,), t))
        probs = (logits / temperature).softmax(-1)
        draw = torch.multinomial(probs.flatten(0, 1), 1, generator=gen).view_as(x)
        conf = probs.gather(-1, draw.unsqueeze(-1)).squeeze(-1)
        conf = conf.masked_fill(x != mask_id, -1.0)
        where = conf.topk(per_step, dim=1).indices
        x.scatter_(1, where, draw.gather(1, where))
    return x


def lr_factor(step, total, warm=20):
    return min((step + 1) / warm, max(0.05, 1 - step / total))


def sampling_steps(args):
    steps = list(range(num_timesteps))
    if args.fixed:
        steps.reverse()
    return steps


def write_samples(model, args, step, folder, n=64):
    model.eval()
    gen = torch.Generator().manual_seed(args.seed)
    rows = sample_confidence(model, n, sampling_steps(args), gen).tolist()
    model.train()
    lines = [decode(row) for row in rows]
    with open(os.path.join(folder, f"samples_{step:05d}.txt"), "w") as f:
        f.write("\n".join(lines))
    known = set(all_lines())
    share = sum(line.rstrip() in known for line in lines) / n
    print(f"  samples: {share:.0%} well-formed, e.g. {lines[0].rstrip()!r}")


@torch.no_grad()
def val_loss(model, data, seed):
    model.eval()
    gen = torch.Generator().manual_seed(seed)
    loss = diffusion_loss(model, data, gen).item()
    model.train()
    return loss


def prove(model, args):
    """Share of masked characters at each call of the sampler, against its time."""
    gaps = []

    def record(x, t):
        share = (x == mask_id).float().mean().item()
        gaps.append(abs(share - mask_prob(t[0]).item()))
        return model(x, t)

    model.eval()
    gen = torch.Generator().manual_seed(args.seed)
    sample_confidence(record, 4, sampling_steps(args), gen)
    print(f"largest gap between time and masked share {max(gaps):.3f}")
    print("fault shows:", "yes" if max(gaps) > 0.1 else "no")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--sample_every", type=int, default=125)
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    lines = all_lines()
    random.Random(args.seed).shuffle(lines)
    data = torch.tensor([encode(line) for line in lines])
    train_data, held_data = data[24:], data[:24]
    model = DiffusionTransformer()
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: lr_factor(s, args.steps))
    gen = torch.Generator().manual_seed(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        for step in range(1, args.steps + 1):
            pick = torch.randint(len(train_data), (args.batch_size,), generator=gen)
            loss = diffusion_loss(model, train_data[pick], gen)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            if step % args.sample_every == 0 or step == args.steps:
                held = val_loss(model, held_data, args.seed)
                print(f"step {step}: train {loss.item():.4f}, held-out {held:.4f}")
                write_samples(model, args, step, folder)
        torch.save(model.state_dict(), os.path.join(folder, "model.pt"))
    if args.prove:
        prove(model, args)


if __name__ == "__main__":
    main()
