"""Pictures and masks that are flipped or turned apart, and what comes close to it."""

import pathlib
import sys
import unittest

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase

COUNT = 16


def last():
    """The value that was written last."""
    said = [e[3] for e in CORE.log if e[0] == "scalar" and e[2] == NAME]
    return (said or [None])[-1]


NAME = "loader.moves_parts_apart"


def pictures(count=COUNT, side=16):
    """(pictures [count, 1, side, side], masks [count, side, side]): one blob each."""
    generator = torch.Generator().manual_seed(3)
    centres = 2 + torch.rand(count, 2, generator=generator) * (side - 4)
    axis = torch.arange(side)
    rows = (axis[None, :, None] - centres[:, :1, None]) ** 2
    columns = (axis[None, None, :] - centres[:, 1:, None]) ** 2 / 3
    masks = rows + columns < 9
    noise = torch.randn(count, side, side, generator=generator)
    return (masks + 0.2 * noise)[:, None], masks.long()


class Augmented(Dataset):
    """Pictures and masks, each moved as `moves(index)` says: two functions."""

    def __init__(self, moves, parts=None):
        self.pictures, self.masks = pictures() if parts is None else parts
        self.moves = moves

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        of_picture, of_mask = self.moves(index)
        return of_picture(self.pictures[index]), of_mask(self.masks[index])


def stays(part):
    return part


def mirrored(part):
    return part.flip(-1) if isinstance(part, torch.Tensor) else part[..., ::-1].copy()


def turned(part):
    return torch.rot90(part, 1, (-2, -1))


def every_second(first, second):
    return lambda index: (first, second) if index % 2 else (stays, stays)


class MovedParts(HooksCase):
    def epoch(self, data, **options):
        for _ in DataLoader(data, batch_size=8, shuffle=True, **options):
            pass
        return last()

    def test_the_picture_alone(self):
        for moved in (mirrored, turned):
            self.assertEqual(self.epoch(Augmented(every_second(moved, stays))), 1.0)

    def test_the_mask_alone_and_each_by_a_draw_of_its_own(self):
        self.assertEqual(self.epoch(Augmented(every_second(stays, mirrored))), 1.0)
        apart = Augmented(lambda index: (mirrored if index % 2 else stays, mirrored))
        self.assertEqual(self.epoch(apart), 1.0)

    def test_in_another_brightness(self):
        def brighter(part):
            return 1.3 * mirrored(part) + 0.1

        self.assertEqual(self.epoch(Augmented(every_second(brighter, stays))), 1.0)

    def test_with_workers(self):
        data = Augmented(every_second(mirrored, stays))
        self.assertEqual(self.epoch(data, num_workers=2), 1.0)
        together = Augmented(every_second(turned, turned))
        self.assertEqual(self.epoch(together, num_workers=2), 0.0)

    def test_passes_that_are_left_early(self):
        """Workers have been asked for more than what has come."""
        data = Augmented(every_second(turned, turned), pictures(64))
        loader = DataLoader(
            data, batch_size=8, shuffle=True, num_workers=2, persistent_workers=True
        )
        for _ in range(3):
            for number, _ in enumerate(loader):
                if number == 1:
                    break
        self.assertEqual(last(), 0.0)

    def test_together(self):
        for moved in (mirrored, turned):
            self.assertEqual(self.epoch(Augmented(every_second(moved, moved))), 0.0)

    def test_not_at_all(self):
        self.assertIsNone(self.epoch(Augmented(every_second(stays, stays))))

    def test_arrays_of_numpy_and_a_part_of_the_data(self):
        parts = [part.numpy() for part in pictures()]
        data = Augmented(every_second(mirrored, stays), parts)
        self.assertEqual(self.epoch(Subset(data, list(range(8)))), 1.0)

    def test_lists_of_samples(self):
        class Listed(Dataset):
            def __init__(self, samples):
                self.samples = samples

            def __len__(self):
                return len(self.samples)

            def __getitem__(self, index):
                one = self.samples[index]
                first, second = one.values() if isinstance(one, dict) else one
                return mirrored(first), second

        samples = list(zip(*pictures()))
        self.assertEqual(self.epoch(Listed(samples)), 1.0)
        named = [{"picture": a, "mask": b} for a, b in samples]
        self.assertEqual(self.epoch(Listed(named)), 1.0)

    def test_around_another_data_set(self):
        class Around(Dataset):
            def __init__(self, inner):
                self.inner = inner

            def __len__(self):
                return len(self.inner)

            def __getitem__(self, index):
                picture, mask = self.inner[index]
                return mirrored(picture), mask

        self.assertEqual(self.epoch(Around(TensorDataset(*pictures()))), 1.0)

    def test_pictures_that_do_not_belong_together(self):
        others = pictures()[0].roll(5, 0)
        unpaired = (pictures()[0], others)
        data = Augmented(every_second(mirrored, stays), unpaired)
        self.assertIsNone(self.epoch(data))

    def test_two_views_of_one_picture(self):
        one = pictures()[0]
        self.assertIsNone(
            self.epoch(Augmented(every_second(mirrored, stays), (one, one)))
        )

    def test_symmetric_masks(self):
        parts = (pictures()[0], torch.ones(COUNT, 16, 16).long())
        parts[1][:, :4] = 0
        self.assertIsNone(self.epoch(Augmented(every_second(mirrored, stays), parts)))

    def test_arrays_that_are_no_tensors_as_they_are(self):
        """Mirrored views, another order of bytes, read-only memory."""
        images, masks = (part.numpy() for part in pictures())
        kept = images.astype(">f4")
        kept.flags.writeable = False

        class Views(Augmented):
            def __getitem__(self, index):
                image = np.ascontiguousarray(self.pictures[index], dtype="float32")
                mask = np.ascontiguousarray(self.masks[index])
                return torch.from_numpy(image), torch.from_numpy(mask).flip(-1)

        data = Views(None, (kept[..., ::-1], masks[..., ::-1].astype("uint16")))
        data.masks = masks[..., ::-1]
        self.assertEqual(self.epoch(data), 1.0)

    def test_lists_of_what_differs(self):
        class Ragged(Dataset):
            def __init__(self, samples):
                self.samples = samples

            def __len__(self):
                return COUNT

            def __getitem__(self, index):
                return torch.rand(1, 16, 16), torch.rand(16, 16)

        whole = list(zip(*pictures()))
        named = [{"picture": a, "mask": b} for a, b in whole]
        for last_ones in ([None] * 8, [(1,)] * 8, [{}] * 8, ["text"] * 8, []):
            self.assertIsNone(self.epoch(Ragged(whole[:8] + last_ones)))
            self.assertIsNone(self.epoch(Ragged(named[:8] + last_ones)))

    def test_parts_by_other_indices(self):
        data = Augmented(every_second(mirrored, stays))
        for few in (torch.arange(8), np.arange(8), list(np.arange(8)), range(8)):
            data = Augmented(every_second(mirrored, stays))
            self.assertEqual(self.epoch(Subset(data, few)), 1.0)

    def test_labels_beside_pictures(self):
        data = TensorDataset(pictures()[0], torch.arange(COUNT))
        self.assertIsNone(self.epoch(data))

    def test_of_other_sizes_and_kinds(self):
        odd = (
            torch.empty(COUNT, 0, 16),
            torch.zeros(COUNT, 16, 16, dtype=torch.complex64),
            torch.full((COUNT, 16, 16), float("nan")),
            np.zeros((COUNT, 16, 16), dtype="U1"),
        )
        for second in odd:
            data = Augmented(every_second(mirrored, stays), (pictures()[0], second))
            try:
                self.assertIsNone(self.epoch(data))
            except TypeError:  # of torch's: text is in no batch
                pass


if __name__ == "__main__":
    unittest.main()
