"""HF-37830: the labels are shifted twice, and the model learns the token after next.

Source: https://github.com/huggingface/transformers/pull/37830 (same slip in users'
data sets: #32944). The model cuts the logits and the labels so that they are one
apart, as it always did, and hands them to the shared loss function, which has learned
to do that itself. The loss falls, since the token after next can be predicted too.
--fixed gives the whole logits and labels to the function.
"""

import argparse
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class MoEConfig:
    vocab_size: int = 24
    hidden_size: int = 32
    num_experts: int = 3
    context: int = 20
    shift_in_model: bool = True


def causal_lm_loss(logits, labels, vocab_size):
    """Of the shared loss functions: position t answers for token t + 1."""
    logits, labels = logits.float()[:, :-1], labels[:, 1:]
    return F.cross_entropy(logits.reshape(-1, vocab_size), labels.reshape(-1))


class SparseBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        size = config.hidden_size
        self.norm_1, self.norm_2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.mix = nn.GRU(size, size, batch_first=True)
        self.gate = nn.Linear(size, config.num_experts, bias=False)
        self.w_in = nn.Parameter(torch.randn(config.num_experts, size, size) * 0.1)
        self.w_out = nn.Parameter(torch.randn(config.num_experts, size, size) * 0.1)

    def forward(self, h):
        h = h + self.mix(self.norm_1(h))[0]
        x = self.norm_2(h)
        weight = self.gate(x).softmax(-1)
        inner = F.silu(torch.einsum("bth,ehk->btek", x, self.w_in))
        return h + torch.einsum("btek,ekh,bte->bth", inner, self.w_out, weight)


class MoEForCausalLM(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.block = SparseBlock(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, input_ids, labels=None):
        logits = self.lm_head(self.block(self.embed(input_ids)))
        if labels is None:
            return None, logits
        if self.config.shift_in_model:
            answer, wanted = logits[:, :-1].contiguous(), labels[:, 1:].contiguous()
        else:
            answer, wanted = logits, labels
        return causal_lm_loss(answer, wanted, self.config.vocab_size), logits


def counting(batch, config, generator):
    """Numbers that go up by a stride of the row's own, now and then by chance."""
    start = torch.randint(config.vocab_size, (batch, 1), generator=generator)
    stride = torch.randint(1, 4, (batch, 1), generator=generator)
    rows = (start + stride * torch.arange(config.context)) % config.vocab_size
    noise = torch.randint(config.vocab_size, rows.shape, generator=generator)
    return torch.where(torch.rand(rows.shape, generator=generator) < 0.04, noise, rows)


@torch.no_grad()
def continue_greedily(model, prompt, count):
    tokens = prompt
    for _ in range(count):
        _, logits = model(tokens)
        tokens = torch.cat([tokens, logits[:, -1:].argmax(-1)], dim=1)
    return tokens


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(1234)
    config = MoEConfig(shift_in_model=not args.fixed)
    model = MoEForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2, weight_decay=0.01)
    text = torch.Generator().manual_seed(5)
    apart = 0.0
    for step in range(args.steps):
        input_ids = counting(32, config, text)
        loss, logits = model(input_ids, labels=input_ids)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        shown = loss.item()
        print(f"step {step:2d} loss {shown:.4f} ppl {math.exp(shown):.2f}", flush=True)
        if args.prove:
            pairs = logits[:, :-1].flatten(0, 1), input_ids[:, 1:].flatten()
            apart = max(apart, abs(F.cross_entropy(*pairs).item() - shown))
    prompt = counting(2, config, text)[:, :8]
    for row in continue_greedily(model, prompt, 6).tolist():
        print("sample", *row)
    if args.prove:
        print("fault shows:", "yes" if apart > 1e-3 else "no")
