"""Direct preference optimization of a small language model on two ranks.

After huggingface/trl, issue 7245.
"""

import argparse
import copy
import os
import socket

import torch
import torch.distributed as dist
from torch import nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

VOCABULARY, PROMPT, RESPONSE = 64, 8, 12


class PreferenceDataset(Dataset):
    """Chosen answers repeat the prompt's tokens, rejected ones are random."""

    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        prompt = torch.randint(1, VOCABULARY, (count, PROMPT), generator=generator)
        index = torch.randint(0, PROMPT, (count, RESPONSE), generator=generator)
        rejected = torch.randint(1, VOCABULARY, (count, RESPONSE), generator=generator)
        self.chosen = torch.cat([prompt, prompt.gather(1, index)], 1)
        self.rejected = torch.cat([prompt, rejected], 1)

    def __len__(self):
        return len(self.chosen)

    def __getitem__(self, index):
        return {"chosen": self.chosen[index], "rejected": self.rejected[index]}


class TinyLM(nn.Module):
    def __init__(self, width=64, layers=2):
        super().__init__()
        self.tok = nn.Embedding(VOCABULARY, width)
        self.pos = nn.Embedding(PROMPT + RESPONSE, width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 128, dropout=0.0, batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, ids):
        length = ids.size(1)
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        hidden = self.tok(ids) + self.pos(torch.arange(length))
        return self.head(self.norm(self.blocks(hidden, mask=mask, is_causal=True)))


def sequence_logps(model, ids):
    logits = model(ids)[:, :-1]
    logp = logits.log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    return logp[:, PROMPT - 1 :].sum(-1)


class DPOTrainer:
    def __init__(self, model, ref_model, optimizer, beta=0.1, fixed=False):
        self.model, self.ref_model = model, ref_model
        self.optimizer, self.beta, self.fixed = optimizer, beta, fixed

    def compute_loss(self, batch):
        model = self.model if self.fixed else self.model.module
        ids = torch.cat([batch["chosen"], batch["rejected"]])
        policy = sequence_logps(model, ids)
        with torch.no_grad():
            reference = sequence_logps(self.ref_model, ids)
        chosen, rejected = (policy - reference).chunk(2)
        margin = chosen - rejected
        return -F.logsigmoid(self.beta * margin).mean(), (margin > 0).float().mean()

    def train_step(self, batch):
        self.model.train()
        loss, accuracy = self.compute_loss(batch)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.item(), accuracy.item()

    @torch.no_grad()
    def evaluate(self, loader):
        self.model.eval()
        accuracies = [self.compute_loss(batch)[1].item() for batch in loader]
        return sum(accuracies) / len(accuracies)


def work(rank, world, args, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    base = TinyLM()
    ref_model = copy.deepcopy(base).eval().requires_grad_(False)
    model = DDP(base)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    data = PreferenceDataset(512, args.seed + 1)
    sampler = DistributedSampler(data, world, rank, shuffle=True, seed=args.seed)
    loader = DataLoader(data, batch_size=16, sampler=sampler, drop_last=True)
    valid = DataLoader(PreferenceDataset(64, args.seed + 2), batch_size=32)
    trainer, step = DPOTrainer(model, ref_model, optimizer, fixed=args.fixed), 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            loss, accuracy = trainer.train_step(batch)
            if rank == 0:
                print(f"step {step} loss {loss:.4f} right {accuracy:.3f}", flush=True)
            step += 1
        if rank == 0:
            print(f"epoch {epoch} right {trainer.evaluate(valid):.3f}", flush=True)
        dist.barrier()
    if args.prove:
        flat = nn.utils.parameters_to_vector(model.parameters()).detach()
        both = [torch.empty_like(flat) for _ in range(world)]
        dist.all_gather(both, flat)
        if rank == 0:
            apart = (both[0] - both[1]).norm().item()
            print(f"distance of the two ranks' weights {apart:.4f}")
            print("fault shows:", "yes" if apart > 1e-3 else "no", flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    torch.multiprocessing.spawn(work, (2, args, port), nprocs=2)


if __name__ == "__main__":
    main()
