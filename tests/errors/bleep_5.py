# Joint embedding of tissue patches and gene expression of the same spot (CLIP style),
# expression of new patches is read off the nearest training spots.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class CFG:
    temperature = 0.25
    projection_dim = 32
    dropout = 0.1
    lr = 2e-3
    weight_decay = 1e-3
    batch_size = 40
    n_genes = 60
    top_k = 8


class SpotDataset(Dataset):
    """hidden cell-type mixture -> texture of the patch and expression profile"""

    def __init__(self, n, seed):
        world = torch.Generator().manual_seed(99)
        textures = torch.randn(6, 3, 20, 20, generator=world)
        profiles = torch.randn(6, CFG.n_genes, generator=world).exp()
        g = torch.Generator().manual_seed(seed)
        mix = torch.distributions.Dirichlet(torch.full((6,), 0.4))
        torch.manual_seed(seed)
        self.mix = mix.sample((n,))
        self.image = torch.einsum(
            "nk,kchw->nchw", self.mix, textures
        ) + 0.7 * torch.randn(n, 3, 20, 20, generator=g)
        rate = self.mix @ profiles * 3
        self.expression = torch.log1p(torch.poisson(rate, generator=g))

    def __len__(self):
        return len(self.mix)

    def __getitem__(self, i):
        return {"image": self.image[i], "reduced_expression": self.expression[i]}


class ImageEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 25, 64),
        )

    def forward(self, x):
        return self.model(x)


class ProjectionHead(nn.Module):
    def __init__(self, embedding_dim):
        super().__init__()
        self.projection = nn.Linear(embedding_dim, CFG.projection_dim)
        self.gelu = nn.GELU()
        self.fc = nn.Linear(CFG.projection_dim, CFG.projection_dim)
        self.dropout = nn.Dropout(CFG.dropout)
        self.layer_norm = nn.LayerNorm(CFG.projection_dim)

    def forward(self, x):
        projected = self.projection(x)
        x = self.dropout(self.fc(self.gelu(projected)))
        return self.layer_norm(x + projected)


def cross_entropy(preds, targets, reduction="none"):
    loss = (-targets * F.log_softmax(preds, dim=-1)).sum(1)
    return loss if reduction == "none" else loss.mean()


class CLIPModel(nn.Module):
    def __init__(self, fixed=False):
        super().__init__()
        self.image_encoder = ImageEncoder()
        self.image_projection = ProjectionHead(64)
        self.spot_projection = ProjectionHead(CFG.n_genes)
        self.temperature = CFG.temperature
        self.fixed = fixed

    def embed(self, batch):
        image = self.image_projection(self.image_encoder(batch["image"]))
        spot = self.spot_projection(batch["reduced_expression"])
        return F.normalize(image, dim=-1), F.normalize(spot, dim=-1)

    def soft_targets(self, image_embeddings, spot_embeddings):
        images_similarity = image_embeddings @ image_embeddings.T
        spots_similarity = spot_embeddings @ spot_embeddings.T
        mean_similarity = (images_similarity + spots_similarity) / 2
        if self.fixed:
            return F.softmax(mean_similarity / self.temperature, dim=-1)
        return F.softmax(mean_similarity * self.temperature, dim=-1)

    def forward(self, batch):
        image_embeddings, spot_embeddings = self.embed(batch)
        logits = (spot_embeddings @ image_embeddings.T) / self.temperature
        targets = self.soft_targets(image_embeddings, spot_embeddings)
        spots_loss = cross_entropy(logits, targets)
        images_loss = cross_entropy(logits.T, targets.T)
        return ((images_loss + spots_loss) / 2.0).mean()


class AvgMeter:
    def __init__(self):
        self.sum = self.count = 0.0

    def update(self, val, count=1):
        self.sum += val * count
        self.count += count

    @property
    def avg(self):
        return self.sum / max(self.count, 1)


@torch.no_grad()
def impute(model, train_set, query_set):
    model.eval()
    _, keys = model.embed(
        {"image": train_set.image, "reduced_expression": train_set.expression}
    )
    image, _ = model.embed(
        {"image": query_set.image, "reduced_expression": query_set.expression}
    )
    near = (image @ keys.T).topk(CFG.top_k, dim=1).indices
    pred = train_set.expression[near].mean(1)
    model.train()
    a, b = pred - pred.mean(0), query_set.expression - query_set.expression.mean(0)
    corr = (a * b).sum(0) / (a.norm(dim=0) * b.norm(dim=0) + 1e-8)
    return corr.mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    train_set, test_set = SpotDataset(800, seed=1), SpotDataset(160, seed=2)
    torch.manual_seed(42)
    model = CLIPModel(args.fixed)
    loader = DataLoader(
        train_set,
        CFG.batch_size,
        shuffle=True,
        drop_last=True,
        generator=torch.Generator().manual_seed(42),
    )
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=CFG.lr, weight_decay=CFG.weight_decay
    )
    step, epoch = 0, 0
    while step < args.steps:
        meter = AvgMeter()
        for batch in loader:
            loss = model(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            meter.update(loss.item(), len(batch["image"]))
            step += 1
            if step >= args.steps:
                break
        epoch += 1
        print(
            f"epoch {epoch}  train loss {meter.avg:.4f}  gene correlation {impute(model, train_set, test_set):.4f}"
        )

    if args.prove:
        model.eval()
        with torch.no_grad():
            im, sp = model.embed(
                {
                    "image": train_set.image[:40],
                    "reduced_expression": train_set.expression[:40],
                }
            )
            used = model.soft_targets(im, sp)
            want = F.softmax((im @ im.T + sp @ sp.T) / 2 / model.temperature, dim=-1)
        gap = (used - want).abs().sum(1).mean().item()
        top = used.max(1).values.mean().item()
        print(
            f"gap between used and wanted targets {gap:.4f}, mean top target {top:.4f} of uniform {1 / 40:.4f}"
        )
        print("fault shows:", "yes" if gap > 1e-3 else "no")


if __name__ == "__main__":
    main()
