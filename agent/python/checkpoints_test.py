"""Content of checkpoints."""

import io
import pathlib
import sys
import tempfile
import types
import unittest
import warnings

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase, Net, PARAMS, train_step

NAMES = [name.removeprefix("Net.") for name in PARAMS] + [
    "norm.running_mean",
    "norm.running_var",
    "norm.num_batches_tracked",
]


def entries(point):
    return [record[2] for record in CORE.of("checkpoint") if record[1] == point]


class Saves(HooksCase):
    def trained(self):
        model = Net()
        optimizer = torch.optim.Adam(model.parameters())
        train_step(model, optimizer)
        CORE.log.clear()
        return model, optimizer

    def test_nested_checkpoint_and_its_live_variables(self):
        model, optimizer = self.trained()
        file = io.BytesIO()
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**states, "epoch": 3, "rng": torch.get_rng_state()}, file)
        (saved,) = entries("SAVE")
        for name in NAMES:
            self.assertIn(f"model.{name}", saved)
        self.assertEqual(saved["model.head.weight"][1], "Net.head.weight")
        moment = saved["optimizer.state.4.exp_avg"]
        self.assertEqual(moment[1], "Net.head.weight/exp_avg")
        self.assertEqual(saved["epoch"], (3, None))
        self.assertEqual(saved["optimizer.param_groups.0.betas.1"], (0.999, None))
        self.assertIsNone(saved["rng"][1])
        self.assertEqual(len(CORE.states("SAVE")), 1)
        file.seek(0)
        torch.load(file)
        (loaded,) = entries("LOAD")
        self.assertEqual(list(loaded), list(saved))
        self.assertTrue(torch.equal(loaded["model.head.weight"][0], model.head.weight))
        self.assertIsNone(loaded["model.head.weight"][1])

    def test_state_dict_once_a_step_and_not_for_each_part(self):
        model, optimizer = self.trained()
        for _ in range(3):
            model.state_dict()
        (given,) = entries("STATE_DICT")
        self.assertEqual(sorted(given), sorted(NAMES))
        CORE.closing = {"clear"}
        train_step(model, optimizer)
        model.state_dict()
        optimizer.state_dict()
        self.assertEqual(len(entries("STATE_DICT")), 3)

    def test_state_that_is_loaded(self):
        model, optimizer = self.trained()
        state = {name: value.clone() for name, value in model.state_dict().items()}
        model.load_state_dict(state)
        optimizer.load_state_dict(optimizer.state_dict())
        taken, of_optimizer = entries("LOAD_STATE_DICT")
        self.assertEqual(sorted(taken), sorted(NAMES))
        self.assertIsNone(taken["head.weight"][1])
        self.assertIn("state.0.exp_avg", of_optimizer)

    def test_whole_model_and_single_tensor(self):
        model, _ = self.trained()
        torch.save(model, io.BytesIO())
        self.assertEqual(sorted(entries("SAVE")[0]), sorted(NAMES))
        CORE.log.clear()
        torch.save(torch.ones(3), io.BytesIO())
        self.assertEqual(list(entries("SAVE")[0]), [""])
        # A tensor alone says nothing of the models.
        self.assertEqual(CORE.states("SAVE"), [])


class Flatten(HooksCase):
    def test_bounds_and_odd_containers(self):
        from _traincheck import checkpoint_content

        flatten = checkpoint_content.flatten
        limit = checkpoint_content._MAX_ENTRIES
        keys, _, left_out = flatten({str(n): n for n in range(limit + 7)})
        self.assertEqual((len(keys), left_out), (limit, 7))
        own = {"a": 1}
        own["own"] = own
        self.assertEqual(flatten(own)[0], ["a", "own"])
        deep = 5
        for _ in range(100):
            deep = [deep]
        self.assertEqual(len(flatten(deep)[0]), 1)

        class Key:
            def __str__(self):
                raise AssertionError("asked")

        class Sly(dict):
            def items(self):
                raise AssertionError("asked")

        self.assertEqual(flatten(Sly({Key(): 1}))[0], ["Key"])
        self.assertEqual(flatten([(1, 2), {}])[0], ["0.0", "0.1"])


class OtherFormats(HooksCase):
    def test_distributed_checkpoint_is_one(self):
        import torch.distributed.checkpoint as dcp

        model = Net()
        model(torch.ones(5, 3))
        CORE.log.clear()
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dcp.save({"model": model.state_dict()}, checkpoint_id=folder)
            self.assertEqual(len(entries("SAVE")), 1)
            self.assertEqual(len(CORE.states("SAVE")), 1)
            saved = entries("SAVE")[0]
            self.assertEqual(saved["model.head.weight"][1], "Net.head.weight")
            into = {"model": {"head.weight": torch.zeros(2, 4)}}
            dcp.load(into, checkpoint_id=folder)
        (loaded,) = entries("LOAD")
        self.assertTrue(torch.equal(loaded["model.head.weight"][0], model.head.weight))
        # What comes after is no part of it any more.
        torch.save({"x": torch.ones(1)}, io.BytesIO())
        self.assertEqual(len(entries("SAVE")), 2)

    def test_safetensors_imported_later(self):
        source = (
            "kept = {}\n"
            "def save_file(tensors, filename, metadata=None):\n"
            "    kept[filename] = dict(tensors)\n"
            "def load_file(filename, device='cpu'):\n"
            "    return kept[filename]\n"
            "def save_model(model, filename):\n"
            "    save_file(model.state_dict(), filename)\n"
        )
        with tempfile.TemporaryDirectory() as folder:
            package = pathlib.Path(folder, "safetensors")
            package.mkdir()
            (package / "__init__.py").write_text("")
            (package / "torch.py").write_text(source)
            sys.path.insert(0, folder)
            self.addCleanup(sys.path.remove, folder)
            from safetensors.torch import load_file, save_file, save_model
        self.addCleanup(sys.modules.pop, "safetensors.torch")
        self.addCleanup(sys.modules.pop, "safetensors")
        save_file({"w": torch.ones(3)}, "a")
        self.assertEqual(list(entries("SAVE")[0]), ["w"])
        load_file("a")
        self.assertEqual(list(entries("LOAD")[0]), ["w"])
        save_model(Net(), "b")
        self.assertEqual(sorted(entries("SAVE")[1]), sorted(NAMES))
        self.assertEqual(save_file.__name__, "save_file")
        with self.assertRaises(KeyError):
            load_file("none")
        load_file("b")
        self.assertEqual(len(entries("LOAD")), 2)

    def test_parts_under_longer_and_shorter_names(self):
        class Wrapped(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.head = nn.Linear(5, 5), nn.ModuleDict()
                self.head["inner"] = nn.Linear(5, 3)

        net = Wrapped()
        body = {"body.weight": torch.ones(5, 5)}
        inner = {"head.inner.bias": torch.ones(3)}
        for more, wrong in (
            ({"head.weight": torch.ones(3, 5)}, [1.0]),
            ({"head.a.inner.b.weight": torch.ones(3, 5)}, [1.0]),
            ({"head.weight": torch.ones(4, 5)}, [0.0]),  # of other classes
            ({"fc.weight": torch.ones(3, 5)}, [0.0]),
            ({"body.norm.weight": torch.ones(5, 5)}, [0.0]),  # body.weight is there
            ({"head.inner.gamma": torch.ones(3, 5)}, [1.0]),
            ({"head.inner.gamma": torch.ones(3, 5), **inner}, [0.0]),
            ({"head.gamma": torch.ones(3, 5)}, [0.0]),
            ({"body.scale": torch.ones(5)}, [0.0]),
            ({}, []),
        ):
            HooksCase.setUp(self)
            net.load_state_dict({**body, **more}, strict=False)
            name = "load.leaves_renamed"
            said = [e[3] for e in CORE.log if e[0] == "scalar" and e[2] == name]
            self.assertEqual(said, wrong, more)


class BestForgotten(HooksCase):
    FIRST = {"epoch": 6, "best_acc": 0.9}

    def resumed(self, first, *later, takes=True):
        """What is said once files with these numbers were written, one after another."""
        HooksCase.setUp(self)
        model = Net()
        optimizer = torch.optim.Adam(model.parameters())
        train_step(model, optimizer)
        file = io.BytesIO()
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**states, **first}, file)
        file.seek(0)
        content = torch.load(file)
        model.load_state_dict(content["model"])
        if takes:
            optimizer.load_state_dict(content["optimizer"])
        for numbers in later:
            train_step(model, optimizer)
            torch.save({**states, **numbers}, io.BytesIO())
        train_step(model, optimizer)
        name = "opt.best_forgotten"
        return [e[3] for e in CORE.log if e[0] == "scalar" and e[2] == name]

    def test_it_begins_anew(self):
        for first, next_one in (
            (self.FIRST, {"epoch": 7, "best_acc": 0.8}),
            (self.FIRST, {"epoch": 7, "best_acc": torch.tensor(0.8)}),
            ({"step": 60, "best_loss": 0.3}, {"step": 70, "best_loss": 0.4}),
            ({"epoch": 1, "max_accuracy": 0.9}, {"epoch": 2, "max_accuracy": 0.0}),
            (
                {"epoch": 1, "metrics": {"best_val_loss": 0.1}},
                {"epoch": 2, "metrics": {"best_val_loss": float("inf")}},
            ),
        ):
            self.assertEqual(self.resumed(first, next_one), [1.0], first)

    def test_it_goes_on(self):
        for first, next_one in (
            (self.FIRST, self.FIRST | {"epoch": 7}),
            (self.FIRST, {"epoch": 7, "best_acc": 0.95}),
            ({"step": 60, "best_loss": 0.3}, {"step": 70, "best_loss": 0.2}),
        ):
            self.assertEqual(self.resumed(first, next_one), [0.0], first)

    def test_what_says_nothing(self):
        for first, next_one in (
            (self.FIRST, {"epoch": 1, "best_acc": 0.5}),  # a stage of its own
            (self.FIRST, {"epoch": 6, "best_acc": 0.5}),  # written before it trains
            (self.FIRST, {"best_acc": 0.5}),  # no count
            (self.FIRST, {"epoch": 7, "acc": 0.5}),  # of this epoch
            ({"epoch": 6, "acc": 0.9}, {"epoch": 7, "acc": 0.5}),
            ({"epoch": 6, "best_score": 0.9}, {"epoch": 7, "best_score": 0.5}),
            ({"epoch": 6, "best_epoch": 5}, {"epoch": 7, "best_epoch": 1}),
            (
                {"epoch": 6, "step": 60, "best_acc": 0.9},
                {"epoch": 7, "step": 10, "best_acc": 0.5},
            ),
            (
                {"epoch": 6, "best_acc": float("nan")},
                {"epoch": 7, "best_acc": 0.5},
            ),
        ):
            self.assertEqual(self.resumed(first, next_one), [], (first, next_one))

    def test_weights_alone_begin_another_training(self):
        next_one = {"epoch": 7, "best_acc": 0.5}
        self.assertEqual(self.resumed(self.FIRST, next_one, takes=False), [])


if __name__ == "__main__":
    unittest.main()
