"""Group-relative policy optimization of a very small language model on two ranks.

After minimind, issue 853.
"""

import argparse
import os
import socket

import torch
import torch.distributed as dist
from torch import nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

VOCABULARY, PROMPT, REPLY, GROUP = 16, 4, 4, 8


class TinyLM(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.place = nn.Embedding(PROMPT + REPLY, width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 96, 0.0, batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, ids):
        length = ids.shape[1]
        causal = torch.ones(length, length).triu(1).bool()
        hidden = self.embed(ids) + self.place(torch.arange(length))
        return self.head(self.blocks(hidden, mask=causal))


@torch.no_grad()
def generate(model, prompt):
    ids = prompt
    for _ in range(REPLY):
        chance = model(ids)[:, -1].softmax(-1)
        ids = torch.cat([ids, torch.multinomial(chance, 1)], 1)
    return ids


def reward(ids):
    """The reply should repeat the prompt; numbers nearby count a part."""
    distance = (ids[:, PROMPT:] - ids[:, :PROMPT]).abs().float()
    return torch.exp(-distance / 2).mean(1)


def reply_logprobs(logits, ids):
    logprobs = F.log_softmax(logits[:, PROMPT - 1 : -1], -1)
    return logprobs.gather(2, ids[:, PROMPT:, None])[..., 0]


def grpo_epoch(model, optimizer, args, rank):
    model_unwrapped = model.module if isinstance(model, DistributedDataParallel) else model  # fmt: skip
    for step in range(args.steps):
        prompt = torch.randint(VOCABULARY, (8, PROMPT)).repeat_interleave(GROUP, 0)
        outputs = generate(model_unwrapped, prompt)
        with torch.no_grad():
            old = reply_logprobs(model_unwrapped(outputs), outputs)
        gain = reward(outputs)
        grouped = gain.view(-1, GROUP)
        advantage = (grouped - grouped.mean(1, keepdim=True)) / (
            grouped.std(1, keepdim=True) + 1e-4
        )
        advantage = advantage.view(-1, 1)
        policy = model if args.fixed else model_unwrapped
        new = reply_logprobs(policy(outputs), outputs)
        ratio = torch.exp(new - old)
        clipped = ratio.clamp(0.8, 1.2)
        loss = -torch.min(ratio * advantage, clipped * advantage).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss:.4f} reward {gain.mean():.4f}", flush=True)


def work(rank, args, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    model = DistributedDataParallel(TinyLM())
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    torch.manual_seed(args.seed + 1000 * (rank + 1))
    model.train()
    grpo_epoch(model, optimizer, args, rank)
    flat = nn.utils.parameters_to_vector(model.parameters()).detach()
    both = [torch.empty_like(flat) for _ in range(2)]
    dist.all_gather(both, flat)
    if rank == 0:
        apart = (both[0] - both[1]).norm().item()
        print(f"distance of the two ranks' weights {apart:.4f}", flush=True)
        if args.prove:
            print("fault shows:", "yes" if apart > 1e-3 else "no", flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    torch.multiprocessing.spawn(work, (args, port), nprocs=2)


if __name__ == "__main__":
    main()
