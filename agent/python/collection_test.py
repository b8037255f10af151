"""Full collection: the catalogue, imports that come later, user code."""

import inspect
import math
import pathlib
import pickle
import sys
import tempfile
import types
import unittest

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase, WATCH
from _traincheck import catalogue, contexts, user_code, wrapping
from _traincheck.collection import Collection
from _traincheck.imports import Imports
from _traincheck.selection import Catalogue, read

WRAPPED_AT_START = dict(CORE.functions)


def fake_module(name, source):
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(source, module.__dict__)
    return module


SHAPES = """
def area(a, b=2, *, c=3):
    'doc'
    return a * b * c
def skipped(): return 1
def _private(): return 2
def many(n):
    started.append(n)
    yield from range(n)
started = []
from math import floor
class Box:
    def volume(self, x): return x ** 3
    capacity = volume
    @staticmethod
    def unit(): return 1
    @classmethod
    def make(cls): return cls()
    @property
    def side(self): return 1
    def hidden(self): return 0
    def forward(self): return 0
class Small(Box):
    def volume(self, x): return super().volume(x) + 1
"""
TABLE = """
fake_shapes  out  -  -  # for the test
    skipped
fake_shapes  full  operation  shape  # for the test
    *
fake_shapes:Box  full  method  -  # for the test
    volume unit make side
fake_shapes:*  full  method  -  # for the test
    hidden
"""


WATCH.planner.everything = True


class CatalogueTest(unittest.TestCase):
    def test_every_function_of_the_skeleton_is_listed_and_none_else(self):
        listed = {}
        for row in read(catalogue.TABLE):
            if row.mode == "skeleton" and row.category != "context":
                where = ".".join(filter(None, (row.module, row.cls)))
                for name in row.names:
                    listed[_class_of(row) + name] = row.category
        seen = set()
        for name, (category, roles) in WRAPPED_AT_START.items():
            names = [n for n in (name, *roles) if listed.get(n) == category]
            star = f"{name.rsplit('.', 2)[0]}.*.{name.rpartition('.')[2]}"
            if listed.get(star) == category:
                names.append(star)
            self.assertTrue(names, f"{name} ({category}) is in no skeleton entry")
            seen.update(names)
        # The module call has no wrapper of its own name.
        absent = set(listed) - seen - {"torch.nn.modules.module.Module.__call__"}
        absent = {name for name in absent if _is_there(name)}
        self.assertEqual(absent, set())

    def test_every_context_is_listed_and_none_else(self):
        listed = {
            (row.module, row.cls, name)
            for row in read(catalogue.TABLE)
            if row.mode == "skeleton" and row.category == "context"
            for name in row.names
        }
        observed = {
            (module.__name__, cls, method)
            for module, cls, _ in contexts.CLASSES
            for method in ("__enter__", "__exit__")
        }
        for owner, name in contexts.MANAGERS:
            is_class = isinstance(owner, type)
            module = owner.__module__ if is_class else owner.__name__
            observed.add((module, owner.__name__ if is_class else "", name))
        self.assertEqual(observed, listed)

    def test_entries_are_well_formed(self):
        tables = catalogue.TABLE + catalogue.BASES
        for row in read(tables):
            self.assertIn(row.mode, ("skeleton", "full", "out"), row.namespace)
            self.assertTrue(row.reason, row.namespace)
            top = row.module.partition(".")[0]
            self.assertIn(top, ("torch", *catalogue.FRAMEWORKS))
            if row.mode == "out":
                self.assertEqual(row.category, "-")

    def test_names_that_torch_has_not_are_few(self):
        unknown = []
        for row in read(catalogue.TABLE):
            module = sys.modules.get(row.module)
            if row.mode == "full" and module is not None and row.cls != "*":
                owner = getattr(module, row.cls) if row.cls else module
                for name in row.names:
                    if "*" not in name and not hasattr(owner, name):
                        unknown.append(f"{row.namespace} {name}")
        self.assertLess(len(unknown), 80, unknown)

    def test_states_that_are_put_back_are_no_seeds(self):
        table = Catalogue(catalogue.TABLE)
        for name, role in (("manual_seed", "seed"), ("set_rng_state", "rng_state")):
            self.assertEqual(table.find("torch.random", "", name).roles, (role,))

    def test_the_first_entry_decides(self):
        table = Catalogue(TABLE)
        self.assertIsNone(table.find("fake_shapes", "", "skipped"))
        self.assertIsNone(table.find("fake_shapes", "", "_private"))
        self.assertEqual(table.find("fake_shapes", "", "area").roles, ("shape",))
        self.assertIsNone(table.find("elsewhere", "", "area"))


def _class_of(row):
    """As records name it: by the module that defines the class."""
    module = sys.modules.get(row.module)
    if row.cls in ("", "*") or module is None:
        return ".".join(filter(None, (row.module, row.cls))) + "."
    cls = getattr(module, row.cls)
    return f"{cls.__module__}.{cls.__qualname__}."


def _is_there(name):
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        value = sys.modules.get(".".join(parts[:end]))
        if value is not None:
            for part in parts[end:]:
                value = getattr(value, part, None)
            return value is not None
    return False


class CollectionTest(HooksCase):
    def setUp(self):
        super().setUp()
        self.module = fake_module("fake_shapes", SHAPES)
        self.addCleanup(sys.modules.pop, "fake_shapes")
        self.collection = Collection(WATCH, Catalogue(TABLE))
        known = set(WATCH.replaced)
        self.collection.add(self.module)
        self.added = {k: v for k, v in WATCH.replaced.items() if k not in known}
        for name, value in list(vars(self.module).items()):
            pair = self.added.get(id(value))
            if pair is not None:
                setattr(self.module, name, pair[1])

    def test_functions_that_only_the_plan_names(self):
        table = Catalogue(TABLE)
        names = "_private skipped absent Box.hidden Small.volume Box.forward"
        names = [f"fake_shapes.{name}" for name in names.split()]
        found = table.add_named([*names, "no.such.module", "word"], sys.modules)
        self.assertEqual(found, ["fake_shapes"])
        Collection(WATCH, table).add(self.module)
        private = self.module._private
        self.assertIn(id(private), WATCH.replaced)
        self.assertFalse(CORE.is_wrapper(self.module.skipped))  # out stays out
        small = self.module.Small()
        small.volume(2)
        small.forward()  # recorded by a module's call
        names = [name for _, name in CORE.of("begin")]
        self.assertEqual(names, ["fake_shapes.Small.volume", "fake_shapes.Box.volume"])

    def test_functions(self):
        self.assertEqual(self.module.area(2, c=1), 4)
        self.assertEqual(CORE.of("begin"), [("begin", "fake_shapes.area")])
        self.assertEqual(CORE.functions["fake_shapes.area"], ("operation", ("shape",)))
        for name in ("skipped", "_private", "floor"):
            self.assertFalse(CORE.is_wrapper(getattr(self.module, name)), name)

    def test_methods_of_all_kinds(self):
        box = self.module.Box()
        self.assertEqual((box.volume(2), box.unit(), box.side), (8, 1, 1))
        self.assertIsInstance(self.module.Small.make(), self.module.Small)
        self.assertIsInstance(inspect.getattr_static(box, "unit"), staticmethod)
        self.assertEqual(self.module.Small().volume(2), 9)
        self.module.Small().hidden()
        names = [name for _, name in CORE.of("begin")]
        self.assertEqual(
            names,
            ["fake_shapes.Box." + n for n in ("volume", "unit", "make", "volume")]
            + ["fake_shapes.Box.hidden"],
        )

    def test_two_names_of_one_method_stay_one(self):
        box = self.module.Box
        self.assertIs(box.capacity, box.volume)
        self.assertTrue(wrapping.is_wrapped(CORE, box.volume))

    def test_generators_are_not_consumed(self):
        values = self.module.many(3)
        self.assertEqual(self.module.started, [])
        self.assertEqual(list(values), [0, 1, 2])

    def test_adding_again_wraps_nothing_again(self):
        self.collection.add(self.module)
        self.module.Box().volume(1)
        self.module.area(1)
        self.assertEqual(len(CORE.of("begin")), 2)


class StandInTest(HooksCase):
    def stand_in(self, fn):
        return wrapping.stand_in(fn, CORE.wrap(fn, "f", "user"))

    def test_looks_like_the_function(self):
        def scale(x, by: int = 2, *, plus=0):
            "doc"
            return x * by + plus

        call = self.stand_in(scale)
        self.assertEqual(call(3, plus=1), 7)
        self.assertEqual(inspect.signature(call), inspect.signature(scale))
        self.assertEqual(inspect.getsource(call), inspect.getsource(scale))
        self.assertEqual(
            (call.__name__, call.__doc__, call.__qualname__),
            (scale.__name__, "doc", scale.__qualname__),
        )

    def test_script_sees_globals_and_closure(self):
        activation = torch.relu

        def shifted(x: torch.Tensor) -> torch.Tensor:
            return activation(x) + 3 + math.floor(1.5)

        call = self.stand_in(shifted)
        scripted = torch.jit.script(call)
        self.assertEqual(scripted(torch.tensor([1.0])).item(), 5.0)

    def test_super_without_arguments(self):
        class Base:
            def m(self):
                return 1

        class Derived(Base):
            def m(self):
                return super().m() + 1

        Derived.m = self.stand_in(Derived.__dict__["m"])
        self.assertEqual(Derived().m(), 2)


class ImportsTest(HooksCase):
    def test_frameworks_are_wrapped_when_they_are_imported(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        package = pathlib.Path(folder.name) / "accelerate"
        package.mkdir()
        (package / "__init__.py").write_text(
            "from accelerate.accelerator import Accelerator\n"
        )
        (package / "accelerator.py").write_text(
            "class Accelerator:\n"
            "    def prepare(self, *args): return args\n"
            "    def prepare_model(self, model): return model\n"
            "    def print(self, text): return text\n"
        )
        sys.path.insert(0, folder.name)
        self.addCleanup(sys.path.remove, folder.name)
        collection = Collection(WATCH, Catalogue())
        finder = Imports(CORE, collection.modules(), collection.add)
        finder.install()
        self.addCleanup(sys.meta_path.remove, finder)
        import accelerate

        self.addCleanup(sys.modules.pop, "accelerate")
        self.addCleanup(sys.modules.pop, "accelerate.accelerator")
        accelerator = accelerate.Accelerator()
        self.assertEqual(accelerator.prepare(1, 2), (1, 2))
        accelerator.prepare_model(1)
        accelerator.print("x")
        name = "accelerate.accelerator.Accelerator."
        self.assertEqual(
            CORE.of("begin"),
            [("begin", name + "prepare"), ("begin", name + "prepare_model")],
        )
        self.assertEqual(accelerate.accelerator.__spec__.loader.name, name[:-13])

    def test_modules_that_nobody_wants_are_not_touched(self):
        finder = Imports(CORE, {"wanted"}, None)
        self.assertIsNone(finder.find_spec("json.tool"))

    def test_a_module_that_fails_fails_as_before(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        (pathlib.Path(folder.name) / "fails_here.py").write_text("1 / 0\n")
        sys.path.insert(0, folder.name)
        self.addCleanup(sys.path.remove, folder.name)
        finder = Imports(CORE, {"fails_here"}, self.fail)
        finder.install()
        self.addCleanup(sys.meta_path.remove, finder)
        with self.assertRaises(ZeroDivisionError):
            import fails_here


def asked_for(x):
    return x + 1


def make_batch(samples):
    return torch.stack(samples)


class Batches:
    def __init__(self):
        self.count = 0

    def __call__(self, samples):
        self.count += 1
        return torch.stack(samples)


USERS = user_code.UserCode(WATCH)
user_code.install(WATCH, USERS)


class Numbers(Dataset):
    def __getitem__(self, index):
        return torch.tensor(index)

    def __len__(self):
        return 4


class UserCodeTest(HooksCase):
    def test_methods_of_user_classes(self):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(2, 2)

            def helper(self, x, k=2):
                return self.layer(x) * k

            def _private(self):
                return 0

            def forward(self, x):
                self._private()
                return self.helper(x)

        Net()(torch.ones(1, 2))
        name = f"{__name__}.{Net.__qualname__}"
        own = [n for _, n in CORE.of("begin") if n.startswith(name)]
        # The stand-in names forward by qualname alone.
        self.assertEqual(own, [name + ".helper"])

        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                return grad * 2

        x = torch.ones(1, requires_grad=True)
        Double.apply(x).sum().backward()
        self.assertEqual(x.grad.item(), 2)
        own = [n.rpartition(".")[2] for _, n in CORE.of("begin") if "Double" in n]
        self.assertEqual(own, ["forward", "backward"])

    def test_class_arguments_reach_who_takes_them(self):
        class Keeps(nn.Module):
            def __init_subclass__(cls, mark=None, **kwargs):
                super().__init_subclass__(**kwargs)
                cls.mark = mark

        class Marked(Keeps, mark=5):
            pass

        self.assertEqual(Marked.mark, 5)
        message = r"takes no keyword arguments"
        with self.assertRaisesRegex(TypeError, message):

            class Bad(nn.Module, mark=5):
                pass

    def test_a_scheduler_of_a_recorded_method_is_saved_as_without_us(self):
        class Model(nn.Linear):
            def rate(self, step):
                return 0.5**step

        self.assertTrue(wrapping.is_wrapped(CORE, Model.rate))
        Model.rate.unit = "share"  # the user's own
        model = Model(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for kind in ("LambdaLR", "MultiplicativeLR"):
            scheduler = getattr(torch.optim.lr_scheduler, kind)(optimizer, model.rate)
            state = scheduler.state_dict()
            self.assertEqual(state["lr_lambdas"], [{"unit": "share"}])
            scheduler.load_state_dict(pickle.loads(pickle.dumps(state)))

    def test_callables_handed_to_a_loader(self):
        loader = DataLoader(Numbers(), batch_size=2, collate_fn=make_batch)
        self.assertEqual([b.tolist() for b in loader], [[0, 1], [2, 3]])
        self.assertIs(loader.collate_fn.__wrapped__, make_batch)
        self.assertIn(make_batch.__name__, str(CORE.of("begin")))
        self.assertEqual(
            CORE.functions[f"{__name__}.make_batch"], ("data", ("collate",))
        )
        batches = Batches()
        loader = DataLoader(Numbers(), batch_size=2, collate_fn=batches)
        list(loader)
        self.assertIs(loader.collate_fn, batches)
        self.assertEqual(batches.count, 2)
        self.assertIn("Batches.__call__", str(CORE.of("begin")))

    def test_loaders_without_callables_stay_as_they_are(self):
        loader = DataLoader(Numbers(), batch_size=4)
        self.assertEqual(next(iter(loader)).tolist(), [0, 1, 2, 3])
        self.assertIsNone(loader.worker_init_fn)

    def test_functions_that_are_asked_for(self):
        USERS.asked = user_code._asked(
            f"{__name__}:asked_for, {__name__}:Batches.__call__,x:y,bad"
        )
        module = sys.modules[__name__]
        original = asked_for
        self.addCleanup(setattr, module, "asked_for", original)
        USERS.wrap_asked(module)
        self.assertEqual(asked_for(1), 2)
        self.assertIn(("begin", f"{__name__}.asked_for"), CORE.of("begin"))
        self.assertEqual(USERS.asked[__name__], set())


if __name__ == "__main__":
    unittest.main()
