"""Visual-semantic embedding with hard negatives: made-up region features and captions."""
import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.nn.utils import clip_grad_norm_
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader, Dataset


def l2norm(x):
    return x / (x.norm(dim=1, keepdim=True) + 1e-8)


class PrecompDataset(Dataset):
    def __init__(self, n, seed, n_words=60, dim=128):
        world = np.random.RandomState(0)
        words = world.randn(n_words, dim).astype("float32")
        rng = np.random.RandomState(seed)
        self.caps, self.imgs = [], []
        for _ in range(n):
            cap = rng.choice(n_words - 1, rng.randint(4, 9), replace=False) + 1
            self.caps.append(torch.from_numpy(cap))
            self.imgs.append(
                torch.from_numpy(
                    words[cap].mean(0) + 0.15 * rng.randn(dim).astype("float32")
                )
            )

    def __len__(self):
        return len(self.imgs)

    def __getitem__(self, i):
        return self.imgs[i], self.caps[i], i


def collate_fn(data):
    data.sort(key=lambda d: len(d[1]), reverse=True)
    images, captions, ids = zip(*data)
    lengths = [len(c) for c in captions]
    targets = torch.zeros(len(captions), max(lengths), dtype=torch.long)
    for i, c in enumerate(captions):
        targets[i, : lengths[i]] = c
    return torch.stack(images), targets, lengths, ids


class EncoderImage(nn.Module):
    def __init__(self, dim, embed):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(dim, 256),
            nn.BatchNorm1d(256),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Linear(256, embed),
        )

    def forward(self, x):
        return l2norm(self.net(x))


class EncoderText(nn.Module):
    def __init__(self, vocab, word_dim, embed):
        super().__init__()
        self.embed = nn.Embedding(vocab, word_dim)
        self.drop = nn.Dropout(0.2)
        self.rnn = nn.GRU(word_dim, embed, batch_first=True)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(
            self.drop(self.embed(x)), lengths, batch_first=True
        )
        _, h = self.rnn(packed)
        return l2norm(h[0])


class ContrastiveLoss(nn.Module):
    def __init__(self, margin=0.2, max_violation=False):
        super().__init__()
        self.margin, self.max_violation = margin, max_violation

    def forward(self, im, s):
        scores = im @ s.t()
        diag = scores.diag().view(-1, 1)
        eye = torch.eye(len(scores)) > 0.5
        cost_s = (self.margin + scores - diag).clamp(min=0).masked_fill(eye, 0)
        cost_im = (self.margin + scores - diag.t()).clamp(min=0).masked_fill(eye, 0)
        if self.max_violation:
            cost_s, cost_im = cost_s.max(1)[0], cost_im.max(0)[0]
        return cost_s.sum() + cost_im.sum()


class VSE:
    def __init__(self, opt):
        self.img_enc = EncoderImage(128, opt.embed_size)
        self.txt_enc = EncoderText(60, 64, opt.embed_size)
        self.params = list(self.img_enc.parameters()) + list(self.txt_enc.parameters())
        self.criterion = ContrastiveLoss(opt.margin, opt.max_violation)
        self.optimizer = torch.optim.Adam(self.params, lr=opt.learning_rate)
        self.Eiters = 0
        self.modes = []

    def train_start(self):
        self.img_enc.train()
        self.txt_enc.train()

    def val_start(self):
        self.img_enc.eval()
        self.txt_enc.eval()

    def forward_emb(self, images, captions, lengths):
        return self.img_enc(images), self.txt_enc(captions, lengths)

    def train_emb(self, images, captions, lengths, ids):
        self.Eiters += 1
        self.modes.append(self.img_enc.training and self.txt_enc.training)
        img_emb, cap_emb = self.forward_emb(images, captions, lengths)
        self.optimizer.zero_grad()
        loss = self.criterion(img_emb, cap_emb)
        loss.backward()
        clip_grad_norm_(self.params, 2.0)
        self.optimizer.step()
        return loss.item()


def encode_data(model, loader):
    model.val_start()
    n = len(loader.dataset)
    img_embs, cap_embs = np.zeros((n, 64), "float32"), np.zeros((n, 64), "float32")
    with torch.no_grad():
        for images, captions, lengths, ids in loader:
            i, c = model.forward_emb(images, captions, lengths)
            img_embs[list(ids)], cap_embs[list(ids)] = i.numpy(), c.numpy()
    return img_embs, cap_embs


def recall(sims):
    ranks = np.array(
        [np.where(np.argsort(-row) == i)[0][0] for i, row in enumerate(sims)]
    )
    return tuple(100.0 * (ranks < k).mean() for k in (1, 5, 10))


def validate(opt, val_loader, model):
    i, c = encode_data(model, val_loader)
    r, ri = recall(i @ c.T), recall(c @ i.T)
    print(
        "    Image to text: %.1f, %.1f, %.1f" % r,
        " Text to image: %.1f, %.1f, %.1f" % ri,
    )
    return sum(r) + sum(ri)


def train(opt, train_loader, model, epoch, val_loader):
    model.train_start()
    losses = []
    for i, batch in enumerate(train_loader):
        if model.Eiters >= opt.steps:
            return
        losses.append(model.train_emb(*batch))
        if model.Eiters % opt.log_step == 0:
            print(
                "Epoch: [%d][%d/%d]\tEit %d  Le %.4f"
                % (
                    epoch,
                    i,
                    len(train_loader),
                    model.Eiters,
                    np.mean(losses[-opt.log_step :]),
                )
            )
        # validate at every val_step
        if model.Eiters % opt.val_step == 0:
            validate(opt, val_loader, model)
            if opt.fixed:
                model.train_start()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--margin", default=0.2, type=float)
    parser.add_argument("--embed_size", default=64, type=int)
    parser.add_argument("--batch_size", default=64, type=int)
    parser.add_argument("--learning_rate", default=0.002, type=float)
    parser.add_argument("--log_step", default=20, type=int)
    parser.add_argument("--val_step", default=15, type=int)
    parser.add_argument("--max_violation", action="store_true")
    parser.add_argument("--steps", default=160, type=int)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    opt = parser.parse_args()
    torch.manual_seed(2)
    train_loader = DataLoader(
        PrecompDataset(2560, 1), opt.batch_size, shuffle=True, collate_fn=collate_fn
    )
    val_loader = DataLoader(PrecompDataset(300, 2), 100, collate_fn=collate_fn)
    model = VSE(opt)
    best, epoch = 0, 0
    while model.Eiters < opt.steps:
        train(opt, train_loader, model, epoch, val_loader)
        best = max(best, validate(opt, val_loader, model))
        epoch += 1
    print("best rsum %.1f" % best)
    if opt.prove:
        print("fault shows:", "no" if all(model.modes) else "yes")


if __name__ == "__main__":
    main()
