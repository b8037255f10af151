# Contrastive language-image pre-training of two small towers on two processes.
import argparse
import json
import math
import os
import tempfile
from collections import OrderedDict

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

SHAPES, COLOURS, PLACES, CONTEXT = 4, 5, 4, 5


def get_args_parser():
    parser = argparse.ArgumentParser(description="training", add_help=True)
    parser.add_argument("--epochs", default=6, type=int)
    parser.add_argument("--warmup-epochs", default=1, type=int)
    parser.add_argument("--batch-size", default=20, type=int, help="per process")
    parser.add_argument("--train-samples", default=800, type=int)
    parser.add_argument("--val-samples", default=80, type=int)
    parser.add_argument("--lr", default=3e-3, type=float)
    parser.add_argument("--wd", default=0.1, type=float)
    parser.add_argument("--embed-dim", default=32, type=int)
    parser.add_argument("--world-size", default=2, type=int)
    parser.add_argument("--seed", default=0, type=int)
    parser.add_argument("--fixed", action="store_true")
    return parser


# utils


def get_rank():
    return dist.get_rank()


def get_world_size():
    return dist.get_world_size()


def all_gather_batch(tensors):
    """Gathers each tensor of the list from all processes, in the order of ranks."""
    output = []
    for tensor in tensors:
        gathered = [torch.ones_like(tensor) for _ in range(get_world_size())]
        dist.all_gather(gathered, tensor.contiguous())
        output.append(torch.cat(gathered, dim=0))
    return output


class GatherLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        output = [torch.zeros_like(x) for _ in range(get_world_size())]
        dist.all_gather(output, x.contiguous())
        return tuple(output)

    @staticmethod
    def backward(ctx, *grads):
        all_gradients = torch.stack(grads)
        dist.all_reduce(all_gradients)
        return all_gradients[get_rank()]


def all_gather_batch_with_grad(tensors):
    return [torch.cat(GatherLayer.apply(tensor), dim=0) for tensor in tensors]


def cosine_scheduler(base, final, epochs, iters, warmup_epochs):
    warmup = np.linspace(1e-6, base, warmup_epochs * iters)
    rest = np.arange((epochs - warmup_epochs) * iters)
    cosine = final + 0.5 * (base - final) * (1 + np.cos(np.pi * rest / len(rest)))
    return np.concatenate([warmup, cosine])


# data


class Captions(Dataset):
    def __init__(self, count, seed, size=12):
        rng = np.random.default_rng(seed)
        self.size = size
        self.facts = np.stack(
            [rng.integers(0, n, count) for n in (SHAPES, COLOURS, PLACES, 3)], 1
        )
        self.noise = rng.integers(0, 2**31, count)

    def __len__(self):
        return len(self.facts)

    def __getitem__(self, index):
        shape, colour, place, level = self.facts[index]
        rng = np.random.default_rng(self.noise[index])
        half = self.size // 2
        yy, xx = np.mgrid[0:half, 0:half] - (half - 1) / 2
        stamp = [
            (np.hypot(yy, xx) < 2.2),
            (np.abs(yy) < 1),
            (np.abs(xx) < 1),
            (np.abs(yy - xx) < 1),
        ][shape]
        hue = np.array([np.cos(colour * 1.257 + k * 2.09) for k in range(3)])
        image = rng.normal(0, 0.12, (3, self.size, self.size))
        top, left = (place // 2) * half, (place % 2) * half
        patch = stamp[None] * hue[:, None, None] * (0.6 + 0.4 * level)
        image[:, top : top + half, left : left + half] += patch
        words = np.cumsum([0, SHAPES, COLOURS, PLACES])[:4] + self.facts[index] + 2
        text = np.concatenate([[0], rng.permutation(words)])
        return torch.tensor(image, dtype=torch.float32), torch.tensor(text)


# models


class CLIP(nn.Module):
    def __init__(self, embed_dim, width=48):
        super().__init__()
        self.visual = nn.Sequential(
            OrderedDict(
                conv1=nn.Conv2d(3, 24, 3, padding=1),
                act1=nn.GELU(),
                conv2=nn.Conv2d(24, 32, 3, stride=2, padding=1),
                act2=nn.GELU(),
                flat=nn.Flatten(),
                proj=nn.Linear(32 * 36, width),
            )
        )
        vocab = 2 + SHAPES + COLOURS + PLACES + 3
        self.token_embedding = nn.Embedding(vocab, width)
        self.positional_embedding = nn.Parameter(0.01 * torch.randn(CONTEXT, width))
        self.transformer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.ln_final = nn.LayerNorm(width)
        self.image_projection = nn.Linear(width, embed_dim, bias=False)
        self.text_projection = nn.Linear(width, embed_dim, bias=False)
        self.logit_scale = nn.Parameter(torch.ones([]) * math.log(1 / 0.07))

    def encode_image(self, image):
        return self.image_projection(self.visual(image))

    def encode_text(self, text):
        x = self.token_embedding(text) + self.positional_embedding
        return self.text_projection(self.ln_final(self.transformer(x)[:, 0]))

    def forward(self, image, text):
        return {
            "image_embed": self.encode_image(image),
            "text_embed": self.encode_text(text),
            "logit_scale": self.logit_scale.exp(),
        }


# losses


class CLIPLoss(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.labels, self.last_local_batch_size = None, None
        self.fixed = args.fixed

    def forward(self, outputs):
        image_embed = F.normalize(outputs["image_embed"], dim=-1, p=2)
        text_embed = F.normalize(outputs["text_embed"], dim=-1, p=2)
        local_batch_size = image_embed.size(0)
        if local_batch_size != self.last_local_batch_size:
            offset = local_batch_size * get_rank()
            self.labels = offset + torch.arange(local_batch_size)
            self.last_local_batch_size = local_batch_size
        gather = all_gather_batch_with_grad if self.fixed else all_gather_batch
        image_embed_all, text_embed_all = gather([image_embed, text_embed])
        logit_scale = outputs["logit_scale"]
        logits_per_image = logit_scale * image_embed @ text_embed_all.t()
        logits_per_text = logit_scale * text_embed @ image_embed_all.t()
        loss = (
            F.cross_entropy(logits_per_image, self.labels)
            + F.cross_entropy(logits_per_text, self.labels)
        ) / 2
        with torch.no_grad():
            pred = torch.argmax(logits_per_image, dim=-1)
            acc = 100 * pred.eq(self.labels).float().mean()
        return {"loss": loss, "clip_acc": acc}


@torch.no_grad()
def validate(model, dataset):
    model.eval()
    images, texts = zip(*[dataset[i] for i in range(len(dataset))])
    out = model(torch.stack(images), torch.stack(texts))
    image_embed = F.normalize(out["image_embed"], dim=-1)
    text_embed = F.normalize(out["text_embed"], dim=-1)
    similarity = image_embed @ text_embed.t()
    place = (similarity >= similarity.diag()[:, None] - 1e-6).sum(1)
    alignment = similarity.diag().mean().item()
    uniformity = (image_embed @ image_embed.t()).triu(1).square().sum().item()
    uniformity /= len(images) * (len(images) - 1) / 2
    model.train()
    return {
        "recall@1": round((place <= 1).float().mean().item(), 4),
        "recall@5": round((place <= 5).float().mean().item(), 4),
        "alignment": round(alignment, 4),
        "uniformity": round(uniformity, 4),
    }


def main_worker(rank, args, folder):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=args.world_size,
    )
    torch.manual_seed(args.seed)
    model = nn.parallel.DistributedDataParallel(CLIP(args.embed_dim))
    criterion = CLIPLoss(args)
    decay = [p for p in model.parameters() if p.ndim > 1]
    no_decay = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": decay, "weight_decay": args.wd},
            {"params": no_decay, "weight_decay": 0},
        ],
        lr=args.lr,
        betas=(0.9, 0.98),
    )
    train_dataset = Captions(args.train_samples, args.seed)
    val_dataset = Captions(args.val_samples, args.seed + 1)
    sampler = DistributedSampler(train_dataset, seed=args.seed)
    loader = DataLoader(train_dataset, args.batch_size, sampler=sampler, drop_last=True)
    schedule = cosine_scheduler(
        args.lr, 1e-5, args.epochs, len(loader), args.warmup_epochs
    )
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        meters = {"loss": 0.0, "clip_acc": 0.0}
        for data_iter, (image, text) in enumerate(loader):
            it = len(loader) * epoch + data_iter
            for group in optimizer.param_groups:
                group["lr"] = schedule[it]
            loss_dict = criterion(model(image, text))
            optimizer.zero_grad()
            loss_dict["loss"].backward()
            optimizer.step()
            model.module.logit_scale.data.clamp_(0, 4.6052)
            for key in meters:
                meters[key] += loss_dict[key].item() / len(loader)
        if rank == 0:
            stats = {"epoch": epoch, **{k: round(v, 4) for k, v in meters.items()}}
            stats.update(validate(model.module, val_dataset))
            stats["logit_scale"] = round(model.module.logit_scale.exp().item(), 3)
            print(json.dumps(stats), flush=True)
            state = {"epoch": epoch, "state_dict": model.state_dict()}
            torch.save(state, os.path.join(folder, "checkpoint.pt"))
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    args = get_args_parser().parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(main_worker, args=(args, folder), nprocs=args.world_size)
