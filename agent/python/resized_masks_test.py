"""Tests of maps of classes that are interpolated (resized_masks.py)."""

import unittest

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from hooks_case import HooksCase, said

NAME = "loader.interpolates_classes"
SIDE = 16
INTERPOLATE = F.interpolate


def areas(kinds=4, factor=1):
    """Squares of classes, of which some lie beside others that are no neighbours."""
    squares = torch.randint(kinds, (4, 4)) * factor
    return squares.repeat_interleave(4, 0).repeat_interleave(4, 1)


def interpolated(mode, dtype=torch.float, finish=torch.round, size=24):
    def resize(mask):
        flat = mask[None, None].to(dtype)
        return finish(F.interpolate(flat, size, mode=mode))[0, 0].long()

    return resize


def warped(mode):
    def resize(mask):
        grid = F.affine_grid(
            torch.tensor([[[0.9, 0.2, 0.1], [-0.2, 0.9, 0.0]]]),
            (1,) * 2 + (24, 24),
            align_corners=False,
        )
        flat = F.grid_sample(mask[None, None].float(), grid, mode, align_corners=False)
        return flat[0, 0].round().long()

    return resize


class Masks(Dataset):
    def __init__(self, resize, mask=areas):
        self.resize = resize
        self.masks = [mask() for _ in range(32)]

    def __len__(self):
        return len(self.masks)

    def __getitem__(self, index):
        picture = torch.rand(1, 3, SIDE, SIDE)
        picture = F.interpolate(picture, 24, mode="bilinear")[0]
        return picture, self.resize(self.masks[index])


class ResizedMasks(HooksCase):
    def read(self, data, **options):
        HooksCase.setUp(self)
        for _ in range(2):
            for _ in DataLoader(data, 8, **options):
                pass
        return set(said(NAME))

    def test_interpolated(self):
        for resize in (
            interpolated("bilinear"),
            interpolated("bilinear", finish=torch.trunc),
            interpolated("bicubic"),
            interpolated("area", size=22),
            warped("bilinear"),
        ):
            self.assertEqual(self.read(Masks(resize)), {1.0})
        data = Subset(Masks(interpolated("bilinear")), range(3, 30))
        self.assertEqual(self.read(data), {1.0})

    def test_samples_that_are_no_pair(self):
        class Named(Masks):
            def __getitem__(self, index):
                picture, mask = super().__getitem__(index)
                return {"picture": picture, "mask": mask[None]}

        data = Named(interpolated("bilinear"))
        self.assertEqual(self.read(data), {1.0})
        self.assertEqual(self.read(data, collate_fn=list), {1.0})

    def test_nearest(self):
        for resize in (
            interpolated("nearest"),
            interpolated("nearest-exact"),
            warped("nearest"),
        ):
            self.assertEqual(self.read(Masks(resize)), {0.0})

    def test_bytes_that_are_made_smaller(self):
        """The classes in between may have lain there."""

        def resize(mask):
            flat = mask[None, None].to(torch.uint8)
            return F.interpolate(flat, 11, mode="bilinear")[0, 0].long()

        self.assertEqual(self.read(Masks(resize)), set())
        data = Masks(resize, lambda: areas(4, 20))
        self.assertEqual(self.read(data), {1.0})

    def test_bytes_that_are_made_larger(self):
        resize = interpolated("bilinear", torch.uint8, lambda given: given, 40)

        def bars():  # 1 and 3 beside each other, and 2 elsewhere
            return (
                torch.tensor([1, 3, 1, 0, 2, 0, 1, 3])
                .repeat_interleave(2)[None]
                .repeat(16, 1)
            )

        self.assertEqual(self.read(Masks(resize, bars)), {1.0})

    def test_bytes_by_the_nearest(self):
        resize = interpolated("nearest", torch.uint8, lambda given: given)
        self.assertEqual(self.read(Masks(resize)), {0.0})

    def test_one_hot(self):
        def resize(mask):
            hot = F.one_hot(mask, 4).permute(2, 0, 1)[None].float()
            return F.interpolate(hot, 24, mode="bilinear")[0].argmax(0)

        self.assertEqual(self.read(Masks(resize)), set())

    def test_each_class_alone(self):
        def resize(mask):
            return torch.stack(
                [
                    interpolated("bilinear", finish=lambda x: x)((mask == k).long())
                    for k in range(4)
                ]
            ).argmax(0)

        self.assertEqual(self.read(Masks(resize)), set())

    def test_two_classes(self):
        data = Masks(interpolated("bilinear"), lambda: areas(2))
        self.assertEqual(self.read(data), set())

    def test_trimaps_that_are_told_apart_again(self):
        def resize(mask):
            flat = F.interpolate(mask[None, None].float(), 24, mode="bilinear")[0, 0]
            return torch.bucketize(flat, torch.tensor([64.0, 192.0]))

        data = Masks(resize, lambda: areas(3, 100))
        self.assertEqual(self.read(data), set())

    def test_soft_targets(self):
        def resize(mask):
            return F.interpolate(mask[None, None].float(), 24, mode="bilinear")[0, 0]

        self.assertEqual(self.read(Masks(resize)), set())

    def test_heights(self):
        """Whole numbers that rise and fall by one."""

        def slope():
            line = torch.arange(SIDE) // 2
            return line + line[:, None]

        data = Masks(interpolated("bilinear"), slope)
        self.assertEqual(self.read(data), set())

    def test_pictures_of_bytes(self):
        class Bytes(Masks):
            def __getitem__(self, index):
                few = areas(6, 40).to(torch.uint8)[None, None]
                picture = F.interpolate(few, 24, mode="bilinear")[0]
                mask = interpolated("nearest")(self.masks[index])
                return picture, mask

        self.assertEqual(self.read(Bytes(None)), {0.0})

    def test_noise(self):
        data = Masks(interpolated("bilinear"), lambda: torch.randint(9, (SIDE, SIDE)))
        self.assertEqual(self.read(data), set())

    def test_outside_of_a_fetch(self):
        masks = [interpolated("bilinear")(areas()) for _ in range(32)]

        class Made(Masks):
            def __getitem__(self, index):
                return masks[index]

        self.assertEqual(self.read(Made(None)), set())

    def test_what_raises(self):
        class Raises(Masks):
            def __getitem__(self, index):
                raise KeyError(index)

        with self.assertRaises(KeyError) as raised:
            self.read(Raises(None))
        self.assertIs(F.interpolate, INTERPOLATE)
        frames, trace = [], raised.exception.__traceback__
        while trace is not None:
            frames.append(trace.tb_frame.f_code.co_filename)
            trace = trace.tb_next
        self.assertFalse([name for name in frames if "resized_masks.py" in name])

    def test_streams_are_left_alone(self):
        class Stream(IterableDataset):
            def __iter__(self):
                for _ in range(16):
                    yield interpolated("bilinear")(
                        areas()
                    ), F.interpolate is INTERPOLATE

        for _, is_alone in DataLoader(Stream(), 8):
            self.assertTrue(is_alone.all())

    def test_compiled_data_sets(self):
        """Compiled while it is looked at, and called later."""
        whole = torch.compile(
            interpolated("bilinear"), backend="eager", fullgraph=True, dynamic=False
        )
        self.read(Masks(whole))
        self.assertIs(F.interpolate, INTERPOLATE)

    def test_scripts(self):
        class Scripted(Masks):
            def __getitem__(self, index):
                script = torch.jit.script(torch.nn.Upsample(24, mode="bilinear"))
                mask = self.masks[index][None, None].float()
                return script(mask).round().long()[0, 0]

        self.read(Scripted(None))

    def test_data_sets_within_each_other(self):
        inner = DataLoader(Masks(interpolated("nearest")), 8)

        class Outer(Masks):
            def __getitem__(self, index):
                next(iter(inner))
                return super().__getitem__(index)

        self.assertNotIn(1.0, self.read(Outer(interpolated("nearest"))))
        self.assertIs(F.interpolate, INTERPOLATE)


if __name__ == "__main__":
    unittest.main()
