"""Generators, samplers, schedulers and scalers."""

import pathlib
import pickle
import random
import sys
import unittest
import warnings

import numpy
import numpy.random  # numpy itself loads it when it is used
import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase, Net, train_step

GENERATORS = ["generator.python", "generator.numpy", "generator.torch.cpu"]


def scalars(name):
    return [r[3] for r in CORE.of("scalar") if r[2] == name]


class Generators(HooksCase):
    def read(self, point):
        """Names of the generators read at the point, in order."""
        names = []
        for record in CORE.of("bytes", "state"):
            name = record[2] if record[0] == "bytes" else record[3][0]
            if record[1] == point and name.startswith("generator."):
                names.append(name)
        return names

    def test_first_training_forwards(self):
        model = Net()
        with torch.no_grad():
            model(torch.ones(5, 3))
        self.assertEqual(self.read("FORWARD_BEGIN"), [])
        for _ in range(6):
            model(torch.ones(5, 3))
        # The later ones show which of them are drawn from.
        self.assertEqual(self.read("FORWARD_BEGIN"), GENERATORS * 4)
        self.assertEqual(CORE.facts["generator.numpy"][0], CORE.VARIABLE_GENERATOR)

    def test_they_are_not_advanced_and_content_tells_them_apart(self):
        def states():
            numpy_state = numpy.random.get_state()
            return (
                random.getstate(),
                (numpy_state[1].tolist(), numpy_state[2:]),
                torch.get_rng_state().tolist(),
            )

        content = []
        for seed in (1, 1, 2):
            random.seed(seed)
            numpy.random.seed(seed)
            random.gauss(0, 1)
            before = states()
            CORE.log.clear()
            next(
                iter(torch.utils.data.DataLoader(range(3), generator=torch.Generator()))
            )
            self.assertEqual(states(), before)
            self.assertEqual(self.read("FETCH"), GENERATORS)
            content.append([r[3] for r in CORE.of("bytes") if r[2] in GENERATORS])
        self.assertEqual(content[0], content[1])
        self.assertNotEqual(content[0][0], content[2][0])
        self.assertNotEqual(content[0][1], content[2][1])

    def test_once_a_pass_workers_kept_or_not(self):
        for options in (
            {},
            {"num_workers": 1},
            {"num_workers": 1, "persistent_workers": True},
        ):
            loader = torch.utils.data.DataLoader(range(4), **options)
            CORE.log.clear()
            for _ in range(2):
                for _ in loader:
                    pass
            self.assertEqual(self.read("FETCH"), GENERATORS * 2, options)

    def test_in_a_worker_after_its_init(self):
        class Told(torch.utils.data.IterableDataset):
            def __iter__(self):
                state = [r[3] for r in CORE.of("bytes") if r[1] == "WORKER_INIT"]
                yield len(state), state == [_python_state()], CORE.kind[0]

        def init(worker):
            random.seed(7)

        from _traincheck.generators import _python_state

        loader = torch.utils.data.DataLoader(
            Told(), num_workers=1, batch_size=None, worker_init_fn=init
        )
        ((count, _, kind),) = list(loader)
        self.assertEqual((int(count), int(kind)), (2, CORE.PROCESS_WORKER))


class Samplers(HooksCase):
    def batches(self, loader):
        """The indices of each batch of one pass, as recorded."""
        CORE.log.clear()
        for _ in loader:
            pass
        return [
            numpy.frombuffer(r[3], numpy.int64).tolist()
            for r in CORE.of("bytes")
            if r[1] == "FETCH" and r[2].endswith(".indices")
        ]

    def test_batches_with_and_without_workers(self):
        for workers in (0, 2):
            loader = torch.utils.data.DataLoader(
                range(5), batch_size=2, num_workers=workers
            )
            self.assertEqual(self.batches(loader), [[0, 1], [2, 3], [4]])
            self.assertEqual(scalars("indices"), [2.0, 1.0])

    def test_shuffled_are_what_the_dataset_is_asked_for(self):
        loader = torch.utils.data.DataLoader(range(9), batch_size=3, shuffle=True)
        CORE.log.clear()
        asked = [batch.tolist() for batch in loader]
        recorded = [
            numpy.frombuffer(r[3], numpy.int64).tolist()
            for r in CORE.of("bytes")
            if r[2].endswith(".indices")
        ]
        self.assertEqual(recorded, asked)

    def test_kinds_of_indices(self):
        from _traincheck.samplers import content_of

        three = numpy.array([1, 2, 3]).tobytes()
        for indices in (
            [1, 2, 3],
            (1, 2, 3),
            list(numpy.array([1, 2, 3])),
            torch.tensor([1, 2, 3]),
        ):
            self.assertEqual(content_of(indices), (three, 3.0), indices)
        self.assertEqual(content_of(4), (numpy.array([4]).tobytes(), 1.0))
        for indices in (["a", "b"], [None, None], [1 << 70, 2], [(1, 2), (3, 4)]):
            self.assertEqual(content_of(indices), (None, 2.0), indices)
        self.assertEqual(content_of([]), (b"", 0.0))
        self.assertEqual(content_of("name"), (None, 1.0))

    def test_iterable_dataset_has_a_count_only(self):
        class Stream(torch.utils.data.IterableDataset):
            def __iter__(self):
                return iter(range(4))

        loader = torch.utils.data.DataLoader(Stream(), batch_size=2)
        self.assertEqual(self.batches(loader), [])
        self.assertEqual(scalars("indices"), [2.0])

    def test_exception_of_a_sampler_shows_no_frame_of_ours(self):
        class Fails(torch.utils.data.Sampler):
            def __iter__(self):
                raise ValueError("as asked")
                yield

        loader = torch.utils.data.DataLoader(range(2), sampler=Fails())
        with self.assertRaises(ValueError) as raised:
            next(iter(loader))
        files, frame = [], raised.exception.__traceback__
        while frame is not None:
            files.append(frame.tb_frame.f_code.co_filename)
            frame = frame.tb_next
        self.assertEqual([name for name in files if "/hooks/obs" in name], [])

    def test_names_of_loaders(self):
        loaders = [torch.utils.data.DataLoader(range(2)) for _ in range(2)]
        for loader in loaders * 2:
            list(loader)
        names = [name for name in CORE.facts if name.endswith("indices")]
        self.assertEqual(names, ["DataLoader.indices", "DataLoader#2.indices"])


class Schedulers(HooksCase):
    def test_epoch_and_rates(self):
        weight = nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([weight], lr=1.0)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(3):
                optimizer.step()
                scheduler.step()
        self.assertEqual(scalars("last_epoch"), [0.0, 1.0, 2.0, 3.0])
        self.assertEqual(scalars("last_lr"), [1.0, 0.5])
        (scheduler_row,) = [o for o in CORE.objects.values() if o[0] == "StepLR"]
        pickle.loads(pickle.dumps(scheduler.state_dict()))

    def test_schedulers_of_their_own_kind(self):
        class Mine(torch.optim.lr_scheduler.LRScheduler):
            def get_lr(self):
                return [0.25]

            def step(self, epoch=None):
                super().step(epoch)

        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(3))], lr=1.0)
        Mine(optimizer)
        self.assertEqual(scalars("last_lr"), [0.25])
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
        CORE.log.clear()
        for loss in (1.0, 2.0):
            plateau.step(loss)
        self.assertEqual(scalars("last_lr"), [0.25, 0.025])


class Scaling(HooksCase):
    def test_scale_and_a_gradient_that_is_not_finite(self):
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
        for factor in (1.0, float("inf"), 1.0, 1.0):
            optimizer.zero_grad()
            scaler.scale((model(torch.ones(1, 2)) * factor).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
        self.assertEqual(scalars("found_inf"), [0.0, 1.0, 0.0])
        self.assertEqual(scalars("scale"), [8.0, 4.0, 8.0])
        self.assertEqual(scalars("growth_tracker"), [1.0, 0.0, 1.0, 0.0])

    def test_scaler_that_is_off(self):
        scaler = torch.amp.GradScaler("cpu", enabled=False)
        scaler.update()
        self.assertEqual(scalars("scale"), [])


if __name__ == "__main__":
    unittest.main()
