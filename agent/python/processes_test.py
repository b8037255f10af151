"""Loaders and workers, ranks, DistributedDataParallel, the end."""

import contextlib
import os
import pathlib
import sys
import tempfile
import threading
import traceback
import unittest
import unittest.mock
import warnings

import torch
import torch.testing._internal.distributed.fake_pg  # registers the backend
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase, Net, PARAMS, WATCH, train_step


class Loaders(HooksCase):
    def loader(self, **options):
        data = torch.utils.data.TensorDataset(torch.arange(6.0))
        return torch.utils.data.DataLoader(data, batch_size=2, **options)

    def marks(self):
        return [(kind, value) for _, kind, _, value in CORE.of("mark")]

    def test_whole_and_abandoned_pass(self):
        loader = self.loader()
        for _ in loader:
            pass
        for _ in loader:
            break
        WATCH.loaders.flush()
        self.assertEqual(
            self.marks(),
            [("ITERATOR_CREATED", 0)]
            + [("BATCH_FETCHED", index) for index in range(3)]
            + [("ITERATOR_EXHAUSTED", 0), ("ITERATOR_CREATED", 1)]
            + [("BATCH_FETCHED", 0), ("ITERATOR_ABANDONED", 1)],
        )
        self.assertEqual(
            [event for _, event in CORE.of("clock")],
            ["fetch"] * 3 + ["end", "fetch"],
        )

    def test_loader_of_an_evaluation_moves_no_clock(self):
        with torch.no_grad():
            for _ in self.loader():
                pass
        self.assertEqual(CORE.of("clock"), [])
        self.assertIn(("ITERATOR_EXHAUSTED", 0), self.marks())

    def test_persistent_workers_use_their_iterator_again(self):
        loader = self.loader(num_workers=1, persistent_workers=True)
        next(iter(loader))
        for _ in loader:
            pass
        kinds = [(k, v) for k, v in self.marks() if k.startswith("ITERATOR")]
        self.assertEqual(
            kinds,
            [
                ("ITERATOR_CREATED", 0),
                ("ITERATOR_ABANDONED", 0),
                ("ITERATOR_CREATED", 1),
                ("ITERATOR_EXHAUSTED", 1),
            ],
        )

    def test_worker_tells_what_it_is_and_ends_cleanly(self):
        class Told(torch.utils.data.Dataset):
            def __len__(self):
                return 2

            def __getitem__(self, index):
                return CORE.kind[0], CORE.kind[1], len(WATCH.models.all())

        model = Net()
        train_step(model, torch.optim.SGD(model.parameters(), lr=0.1))
        loader = torch.utils.data.DataLoader(Told(), num_workers=2)
        told = [tuple(int(value) for value in item) for item in loader]
        self.assertEqual(
            told, [(CORE.PROCESS_WORKER, 0, 0), (CORE.PROCESS_WORKER, 1, 0)]
        )


class Threads(HooksCase):
    def in_thread(self, function, *arguments):
        thread = threading.Thread(target=function, args=arguments)
        thread.start()
        thread.join()

    def test_gradients_of_another_thread_are_left_alone(self):
        mine, theirs = Net(), Net()
        train_step(mine, torch.optim.SGD(mine.parameters(), lr=0.1))
        optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
        loose = nn.Parameter(torch.ones(2))
        third = torch.optim.SGD([loose], lr=0.1)
        third.step()
        CORE.log.clear()
        self.in_thread(train_step, theirs, optimizer)
        others = [name.replace("Net.", "Net#2.") for name in PARAMS]
        for point in ("BACKWARD_END", "PRE_STEP", "POST_STEP"):
            self.assertEqual(CORE.states(point), [others], point)
        CORE.log.clear()
        mine(torch.ones(5, 3)).sum().backward()
        own = ["SGD.param_groups[0].params[0]"] + PARAMS
        self.assertEqual(CORE.states("BACKWARD_END"), [own])

    def test_model_that_two_threads_train(self):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train_step(model, optimizer)
        self.in_thread(train_step, model, optimizer)
        CORE.log.clear()
        train_step(model, optimizer)
        self.assertEqual(CORE.states("BACKWARD_END"), [])
        self.assertEqual(CORE.states("GRAD_CLEAR"), [])
        what = {r[2] for r in CORE.of("state") if r[1] == "PRE_STEP"}
        self.assertEqual(what, {CORE.STATE_DATA})

    def test_evaluation_elsewhere_takes_nothing(self):
        model = Net()
        with torch.no_grad():
            model(torch.ones(5, 3))
        self.in_thread(train_step, model, torch.optim.SGD(model.parameters(), lr=0.1))
        self.assertEqual(CORE.states("BACKWARD_END"), [PARAMS])


class Places(HooksCase):
    @contextlib.contextmanager
    def group(self):
        with tempfile.TemporaryDirectory() as folder:
            torch.distributed.init_process_group(
                "gloo", init_method=f"file://{folder}/store", rank=0, world_size=1
            )
            self.addCleanup(torch.distributed.destroy_process_group)
            yield

    def test_environment_counts_once_the_process_trains(self):
        os.environ.update(RANK="1", WORLD_SIZE="4", LOCAL_RANK="1")
        try:
            nn.Linear(2, 2)(torch.ones(1, 2))
            self.assertIsNone(CORE.place)
            torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
        finally:
            for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
                del os.environ[name]
        self.assertEqual(CORE.place, (1, 4, 1, CORE.PLACE_ENVIRONMENT))

    def with_environment(self, **variables):
        self.addCleanup(lambda: [os.environ.pop(name, None) for name in variables])
        os.environ.update(variables)

    def train(self):
        train_step(model := Net(), torch.optim.SGD(model.parameters(), lr=0.1))

    def test_variables_of_a_rank_above_make_no_rank(self):
        self.with_environment(RANK="0", WORLD_SIZE="4")
        CORE.inherits = True
        self.train()
        self.assertEqual((CORE.kind, CORE.place), (None, None))
        WATCH.process.ends(WATCH.clock)
        kinds = [kind for _, kind, *_ in CORE.of("mark")]
        self.assertEqual(kinds, ["OPTIMIZER_STEPS", "CLEAN_EXIT"])

    def test_place_of_mpi_without_a_group(self):
        self.with_environment(OMPI_COMM_WORLD_RANK="2", OMPI_COMM_WORLD_SIZE="3")
        self.train()
        self.assertEqual(CORE.place, (2, 3, -1, CORE.PLACE_ENVIRONMENT))
        self.assertEqual(CORE.sign, (2, 3))

    def test_place_in_a_slurm_step_only(self):
        self.with_environment(SLURM_PROCID="1", SLURM_STEP_NUM_TASKS="2")
        self.train()
        self.assertEqual(CORE.place, (0, 1, -1, CORE.PLACE_SINGLE))
        self.assertIsNone(CORE.sign)
        WATCH.reset()
        self.with_environment(SLURM_STEP_ID="0")
        self.train()
        self.assertEqual(CORE.place, (1, 2, -1, CORE.PLACE_ENVIRONMENT))

    def test_run_is_final_with_the_first_step(self):
        self.assertTrue(CORE.provisional)
        self.train()
        self.assertFalse(CORE.provisional)
        self.assertEqual(CORE.run, "mine")

    def test_ranks_agree_on_a_run(self):
        store = torch.distributed.HashStore()
        store.set("traincheck/run", "theirs")  # another rank came first
        with unittest.mock.patch.object(
            torch.distributed.distributed_c10d, "_get_default_store", lambda: store
        ):
            torch.distributed.init_process_group(
                "fake", store=torch.distributed.HashStore(), rank=1, world_size=2
            )
        self.addCleanup(torch.distributed.destroy_process_group)
        self.assertEqual((CORE.run, CORE.provisional), ("theirs", False))
        self.assertEqual(CORE.place[:2], (1, 2))

    def start(self, store, **variables):
        """Makes a group of two with this store; the nonce that was recorded."""
        with (
            unittest.mock.patch.dict(os.environ, variables),
            unittest.mock.patch.object(
                torch.distributed.distributed_c10d, "_get_default_store", lambda: store
            ),
        ):
            torch.distributed.init_process_group(
                "fake", store=torch.distributed.HashStore(), rank=1, world_size=2
            )
        torch.distributed.destroy_process_group()
        return CORE.start

    def test_ranks_of_one_start_record_one_nonce(self):
        store = torch.distributed.HashStore()
        first = self.start(store)
        self.assertRegex(first, "^[0-9a-f]{32}$")
        WATCH.reset()  # another process
        self.assertEqual(self.start(store), first)
        WATCH.reset()
        self.assertNotEqual(self.start(torch.distributed.HashStore()), first)
        # torchrun may give the ranks that it restarts the store of those before.
        WATCH.reset()
        again = self.start(store, TORCHELASTIC_RESTART_COUNT="1")
        self.assertRegex(again, "^[0-9a-f]{32}$")
        self.assertNotEqual(again, first)

    def test_a_process_that_makes_its_group_anew_stays_in_its_start(self):
        first = self.start(torch.distributed.HashStore())
        store = torch.distributed.HashStore()
        self.assertEqual(self.start(store), first)
        # And who joins it belongs to it.
        WATCH.reset()
        self.assertEqual(self.start(store), first)

    def test_without_a_group_of_several_there_is_no_nonce(self):
        with self.group():
            self.assertEqual(CORE.start, "")

    def test_exception_in_ddp_shows_no_frame_of_ours(self):
        class Fails(Net):
            def forward(self, x):
                raise ValueError("as asked")

        with self.group():
            model = nn.parallel.DistributedDataParallel(Fails())
        files = []
        try:
            model(torch.ones(1, 3))
        except ValueError as error:
            frames = traceback.extract_tb(error.__traceback__)
            files = [frame.filename for frame in frames]
        self.assertTrue(files[-1].endswith("processes_test.py"))
        self.assertEqual([name for name in files if "/hooks/" in name], [])

    def test_ddp(self):
        with self.group():
            self.assertEqual(CORE.place, (0, 1, -1, CORE.PLACE_PROCESS_GROUP))
            inner = Net()
            model = nn.parallel.DistributedDataParallel(inner)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        everything = CORE.states("WRAP_END")[0]
        self.assertEqual(set(PARAMS) - set(everything), set())
        self.assertIn("Net.norm.running_mean", everything)
        self.assertEqual(
            [group[0] for group in CORE.replica_groups], ["DistributedDataParallel"]
        )
        (_, wrapper, ranks, variables) = CORE.replica_groups[0]
        self.assertEqual((ranks, set(variables)), ([0], set(everything)))
        self.assertEqual(CORE.objects[CORE.objects[wrapper][3]][0], "Net")
        CORE.log.clear()
        train_step(model, optimizer)
        self.assertEqual(CORE.states("FORWARD_BEGIN"), [everything])
        # The inner module called directly is the same model.
        CORE.log.clear()
        inner(torch.ones(5, 3)).sum().backward()
        self.assertEqual(CORE.states("FORWARD_BEGIN"), [everything])
        others = [n for n in CORE.facts if not n.startswith(("Net.", "generator."))]
        self.assertEqual(others, [])

    def test_buffers_that_ddp_does_not_broadcast(self):
        with self.group():
            model = nn.parallel.DistributedDataParallel(Net())
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                apart = nn.parallel.DistributedDataParallel(
                    Net(), broadcast_buffers=False
                )
        self.assertEqual([len(group[3]) for group in CORE.replica_groups], [9, 6])
        CORE.log.clear()
        with model.no_sync():
            for _ in range(2):
                model(torch.ones(5, 3)).sum().backward()
        model(torch.ones(5, 3))
        apart(torch.ones(5, 3))
        self.assertEqual(
            [len(names) for names in CORE.states("FORWARD_BEGIN")], [9, 6, 6, 6]
        )

    def test_parameters_that_were_replaced_before_they_are_wrapped(self):
        inner = Net()
        inner(torch.ones(5, 3))
        inner.head.weight = nn.Parameter(inner.head.weight.detach().clone())
        CORE.facts.clear()
        with self.group():
            nn.parallel.DistributedDataParallel(inner)
        (_, _, _, replicas) = CORE.replica_groups[0]
        self.assertEqual(len(replicas), 9)
        self.assertIn("Net.head.weight", CORE.facts)

    def test_part_of_a_known_model_under_ddp(self):
        model = nn.Sequential(Net(), nn.Linear(2, 2))
        model(torch.ones(5, 3))
        with self.group():
            model[0] = nn.parallel.DistributedDataParallel(model[0])
        (_, _, _, replicas) = CORE.replica_groups[0]
        self.assertEqual(len(replicas), 6 + 3)
        CORE.log.clear()
        model(torch.ones(5, 3)).sum().backward()
        outer, inner = CORE.states("FORWARD_BEGIN")
        self.assertEqual(outer, ["Sequential.1.weight", "Sequential.1.bias"])
        self.assertCountEqual(inner, replicas)
        self.assertEqual(len(CORE.states("BACKWARD_END")[0]), 6 + 2)
        named = [n for n in CORE.facts if not n.startswith("generator.")]
        self.assertEqual(len(named), 9 + 2)

    def test_end(self):
        train_step(model := Net(), torch.optim.SGD(model.parameters(), lr=0.1))
        CORE.log.clear()
        WATCH.process.ends(WATCH.clock)
        WATCH.process.ends(WATCH.clock)
        self.assertEqual(
            CORE.log, [("clock", "end"), ("mark", "CLEAN_EXIT", 0, 0), ("flush",)]
        )

    def test_end_by_an_exception(self):
        train_step(model := Net(), torch.optim.SGD(model.parameters(), lr=0.1))
        CORE.log.clear()
        self.addCleanup(delattr, sys, "last_value")
        sys.last_value = KeyboardInterrupt()
        WATCH.process.ends(WATCH.clock)
        self.assertEqual(CORE.log, [("unclean exit", "KeyboardInterrupt"), ("flush",)])

    def test_process_that_did_nothing_ends_silently(self):
        WATCH.process.ends(WATCH.clock)
        self.assertEqual(CORE.log, [])


if __name__ == "__main__":
    unittest.main()
