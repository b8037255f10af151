"""Facial motion from speech: a small sequence model for blendshape weights.

Frames of audio features go in, weights of the blendshapes come out; the loss takes
positions and velocities of the motion.
"""

import argparse
import logging
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

logger = logging.getLogger("emage")

FACE_DIM, AUDIO_DIM, FPS = 24, 12, 15


class SpeechFaceDataset(Dataset):
    """Clips of speech features with the motion of the face, two speakers."""

    def __init__(self, args, count, seed, train):
        rng = np.random.default_rng(seed)
        basis = np.random.default_rng(3)
        self.mix = basis.normal(0, 0.6, (AUDIO_DIM, FACE_DIM))
        self.mood = basis.normal(0, 0.4, (2, FACE_DIM))
        self.clips = [self.make(rng, args.pose_length, train) for _ in range(count)]

    def make(self, rng, frames, train):
        t = np.arange(frames + 8) / FPS
        rate = rng.uniform(0.5, 1.6, AUDIO_DIM)
        phase = rng.uniform(0, 6.28, AUDIO_DIM)
        syllable = np.sin(6.28 * rate * t[:, None] + phase)
        energy = 0.6 + 0.4 * np.sin(6.28 * 0.3 * t + rng.uniform(0, 6.28))
        audio = syllable * energy[:, None]
        speaker = int(rng.integers(0, 2))
        kernel = np.hanning(9)[1:-1]
        kernel /= kernel.sum()
        drive = np.tanh(audio @ self.mix)
        face = np.stack(
            [np.convolve(drive[:, k], kernel, "same") for k in range(FACE_DIM)], 1
        )
        face = face + self.mood[speaker] * energy[:, None]
        if train:
            drift = np.cumsum(rng.normal(0, 0.12, face.shape), 0)
            face = face + drift + rng.normal(0, 0.5, FACE_DIM)
        audio = audio + rng.normal(0, 0.25, audio.shape)
        return (
            audio[4:-4].astype(np.float32),
            face[4:-4].astype(np.float32),
            speaker,
        )

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, item):
        audio, face, speaker = self.clips[item]
        return torch.from_numpy(audio), torch.from_numpy(face), speaker


class WavEncoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(AUDIO_DIM, dim, 5, padding=2),
            nn.LeakyReLU(0.1),
            nn.Conv1d(dim, dim, 3, padding=1),
            nn.LeakyReLU(0.1),
        )

    def forward(self, audio):
        return self.net(audio.transpose(1, 2)).transpose(1, 2)


class FaceModel(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.audio = WavEncoder(dim)
        self.speaker = nn.Embedding(2, 8)
        self.recurrent = nn.GRU(dim + 8, dim, bidirectional=True, batch_first=True)
        self.out = nn.Sequential(
            nn.Linear(2 * dim, dim), nn.LeakyReLU(0.1), nn.Linear(dim, FACE_DIM)
        )

    def forward(self, audio, speaker):
        hidden = self.audio(audio)
        tag = self.speaker(speaker)[:, None].expand(-1, hidden.shape[1], -1)
        hidden, _ = self.recurrent(torch.cat([hidden, tag], -1))
        return self.out(hidden)


class LossRecorder:
    def __init__(self):
        self.sums, self.counts = {}, {}

    def update(self, **values):
        for key, value in values.items():
            self.sums[key] = self.sums.get(key, 0.0) + float(value)
            self.counts[key] = self.counts.get(key, 0) + 1

    def text(self):
        return "  ".join(f"{k} {self.sums[k] / self.counts[k]:.5f}" for k in self.sums)


class CustomTrainer:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        train = SpeechFaceDataset(args, args.train_clips, args.seed, True)
        test = SpeechFaceDataset(args, args.test_clips, args.seed + 1, False)
        generator = torch.Generator().manual_seed(args.seed)
        self.train_loader = DataLoader(
            train, args.batch_size, shuffle=True, drop_last=True, generator=generator
        )
        self.test_loader = DataLoader(test, args.batch_size)
        self.model = FaceModel()
        self.opt = torch.optim.Adam(self.model.parameters(), lr=args.lr_base)
        self.opt_s = torch.optim.lr_scheduler.StepLR(self.opt, args.decay_epoch, 0.3)
        self.rec_loss = nn.MSELoss()
        self.vel_loss = nn.MSELoss()
        self.best = float("inf")

    def face_losses(self, rec_face, tar_face):
        loss_face = self.rec_loss(rec_face, tar_face)
        if self.args.fixed:
            rec_vel = rec_face[:, 1:] - rec_face[:, :-1]
        else:
            rec_vel = rec_face[:, 1:] - tar_face[:, :-1]
        tar_vel = tar_face[:, 1:] - tar_face[:, :-1]
        return loss_face, self.vel_loss(rec_vel, tar_vel)

    def train(self, epoch):
        self.model.train()
        recorder = LossRecorder()
        for audio, tar_face, speaker in self.train_loader:
            self.opt.zero_grad()
            rec_face = self.model(audio, speaker)
            loss_face, loss_vel = self.face_losses(rec_face, tar_face)
            loss = self.args.rec_weight * loss_face + self.args.vel_weight * loss_vel
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), self.args.grad_norm)
            self.opt.step()
            recorder.update(loss=loss, face=loss_face, vel=loss_vel)
        self.opt_s.step()
        logger.info("[%03d] train  %s", epoch, recorder.text())

    @torch.no_grad()
    def test(self, epoch):
        """Vertex-like error, error of the velocity and jitter of the motion."""
        self.model.eval()
        recorder = LossRecorder()
        for audio, tar_face, speaker in self.test_loader:
            rec_face = self.model(audio, speaker)
            lvd = (rec_face.diff(dim=1) - tar_face.diff(dim=1)).abs().mean()
            recorder.update(
                mse=F.mse_loss(rec_face, tar_face),
                velocity_error=lvd,
                jitter=rec_face.diff(n=2, dim=1).abs().mean(),
                target_jitter=tar_face.diff(n=2, dim=1).abs().mean(),
            )
        mse = recorder.sums["mse"] / recorder.counts["mse"]
        if mse < self.best:
            self.best = mse
            state = {"model_state": self.model.state_dict(), "epoch": epoch}
            torch.save(state, os.path.join(self.folder, "best_fgd.bin"))
        logger.info("[%03d] test   %s", epoch, recorder.text())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--pose_length", type=int, default=32)
    parser.add_argument("--train_clips", type=int, default=160)
    parser.add_argument("--test_clips", type=int, default=48)
    parser.add_argument("--lr_base", type=float, default=4e-3)
    parser.add_argument("--decay_epoch", type=int, default=7)
    parser.add_argument("--grad_norm", type=float, default=0.99)
    parser.add_argument("--rec_weight", type=float, default=1.0)
    parser.add_argument("--vel_weight", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        trainer = CustomTrainer(args, folder)
        for epoch in range(args.epochs):
            trainer.train(epoch)
            if epoch % 3 == 0 or epoch == args.epochs - 1:
                trainer.test(epoch)
        logger.info("best test mse %.5f", trainer.best)


if __name__ == "__main__":
    main()
