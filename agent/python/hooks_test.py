"""What the hooks record of ordinary training code, into a stand-in core."""

import contextlib
import copy
import gc
import inspect
import os
import pathlib
import pickle
import sys
import tempfile
import unittest
import warnings
import weakref

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import core_for_testing

core_for_testing.hooks_package()
from _traincheck import install

CORE = core_for_testing.RecordingCore()
WATCH = install.install(CORE)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.norm(self.body(x)))


PARAMS = [
    "Net.body.weight",
    "Net.body.bias",
    "Net.norm.weight",
    "Net.norm.bias",
    "Net.head.weight",
    "Net.head.bias",
]


def train_step(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(5, 3)).sum().backward()
    optimizer.step()


class HooksCase(unittest.TestCase):
    def setUp(self):
        gc.collect()
        CORE.clear()
        WATCH.reset()

    def tearDown(self):
        self.assertEqual(CORE.raised, [])


class Models(HooksCase):
    def test_hold_is_recorded_when_the_model_becomes_known(self):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.assertEqual(CORE.of("hold"), [])
        self.assertEqual(CORE.kind, (CORE.PROCESS_MAIN, 0))
        train_step(model, optimizer)
        self.assertEqual(CORE.of("hold"), [("hold", 0, PARAMS)])
        self.assertEqual(CORE.states("PRE_STEP"), [PARAMS])
        self.assertEqual(CORE.states("POST_STEP"), [PARAMS])
        self.assertEqual(CORE.states("BACKWARD_END"), [PARAMS])
        self.assertEqual(CORE.place, (0, 1, -1, CORE.PLACE_SINGLE))

    def test_order_of_a_step(self):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train_step(model, optimizer)
        CORE.log.clear()
        train_step(model, optimizer)
        kinds = [record[1] for record in CORE.of("clock", "state", "scalar")]
        self.assertEqual(
            kinds,
            ["clear", "GRAD_CLEAR", "forward", "FORWARD_BEGIN", "backward"]
            + ["BACKWARD_END", "step", "PRE_STEP", "PRE_STEP", "POST_STEP"],
        )

    def test_buffers_at_forward_begin_only_with_gradients(self):
        model = Net()
        with torch.no_grad():
            model(torch.ones(5, 3))
        self.assertEqual(CORE.states("FORWARD_BEGIN"), [])
        model(torch.ones(5, 3))
        (names,) = CORE.states("FORWARD_BEGIN")
        self.assertIn("Net.norm.running_mean", names)
        self.assertIn("Net.body.weight", names)
        self.assertEqual(CORE.facts["Net.norm.running_mean"][0], CORE.VARIABLE_BUFFER)

    def test_gradient_of_a_parameter_that_no_optimizer_holds_is_recorded(self):
        model = Net()
        optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)
        train_step(model, optimizer)
        self.assertEqual(CORE.states("BACKWARD_END"), [PARAMS])
        self.assertEqual(CORE.states("PRE_STEP"), [PARAMS[4:]])

    def test_second_instance_and_owner(self):
        first, second = Net(), Net()
        first(torch.ones(5, 3))
        second(torch.ones(5, 3))
        self.assertIn("Net#2.head.bias", CORE.facts)
        self.assertEqual(
            CORE.facts["Net.head.bias"][1], "torch.nn.modules.linear.Linear"
        )

    def test_tied_weights_share_an_alias_group_and_are_both_held(self):
        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(3, 3)
                self.b = nn.Linear(3, 3)
                self.b.weight = self.a.weight

            def forward(self, x):
                return self.b(self.a(x))

        model = Tied()
        optimizer = torch.optim.Adam(model.parameters())
        train_step(model, optimizer)
        self.assertEqual(CORE.facts["Tied.a.weight"][2], CORE.facts["Tied.b.weight"][2])
        held = ["Tied.a.weight", "Tied.b.weight", "Tied.a.bias", "Tied.b.bias"]
        self.assertEqual(CORE.of("hold"), [("hold", 0, held)])
        self.assertEqual(CORE.states("POST_STEP"), [held])

    def test_replaced_parameter_counts_an_epoch_and_leaves_the_hold(self):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train_step(model, optimizer)
        model.head.weight = nn.Parameter(torch.zeros(2, 4))
        CORE.log.clear()
        train_step(model, optimizer)
        self.assertEqual(CORE.facts["Net.head.weight"][3], 1)
        (hold,) = CORE.of("hold")
        self.assertNotIn("Net.head.weight", hold[2])
        self.assertIn("SGD.param_groups[0].params[4]", hold[2])
        self.assertIn("Net.head.weight", CORE.states("BACKWARD_END")[0])

    def test_replaced_submodule(self):
        model = Net()
        model(torch.ones(5, 3))
        model.head = nn.Linear(4, 7)
        model(torch.ones(5, 3))
        self.assertEqual(CORE.facts["Net.head.bias"][3], 1)
        model.extra = nn.Linear(1, 1)
        model(torch.ones(5, 3))
        self.assertIn("Net.extra.weight", CORE.facts)
        self.assertEqual(CORE.facts["Net.body.weight"][3], 0)

    def test_buffer_assigned_every_step_is_no_replacement(self):
        class Average(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(3))
                self.register_buffer("mean", torch.zeros(3))

            def forward(self, x):
                self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
                return x * self.weight

        model = Average()
        for _ in range(3):
            model(torch.ones(5, 3))
        self.assertEqual(CORE.facts["Average.mean"][3], 0)
        self.assertEqual(
            CORE.states("FORWARD_BEGIN")[-1], ["Average.weight", "Average.mean"]
        )

    def test_functional_call_replaces_nothing(self):
        model = Net()
        model(torch.ones(5, 3))
        CORE.log.clear()
        lent = {name: p.detach() * 2 for name, p in model.named_parameters()}
        torch.func.functional_call(model, lent, torch.ones(5, 3))
        self.assertEqual(CORE.states("FORWARD_BEGIN"), [])
        model(torch.ones(5, 3))
        self.assertEqual(len(CORE.states("FORWARD_BEGIN")), 1)
        self.assertEqual(CORE.facts["Net.head.weight"][3], 0)

    def test_tracing_and_scripting(self):
        model = Net().eval()
        x = torch.ones(5, 3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for made in (
                torch.jit.script(model),
                torch.jit.trace(model, x),
                torch.fx.symbolic_trace(model),
            ):
                self.assertTrue(torch.equal(made(x), model(x)))

    def test_parameters_of_no_model_are_named_by_their_optimizer(self):
        weight = nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        (weight * 2).sum().backward()
        optimizer.step()
        self.assertEqual(CORE.states("PRE_STEP"), [["SGD.param_groups[0].params[0]"]])
        (weight * 2).sum().backward()
        self.assertEqual(
            CORE.states("BACKWARD_END"), [["SGD.param_groups[0].params[0]"]]
        )

    def test_call_of_a_part_is_no_model_of_its_own(self):
        model = Net()
        model(torch.ones(5, 3))
        CORE.log.clear()
        model.body(torch.ones(5, 3))
        self.assertEqual(CORE.states("FORWARD_BEGIN"), [])
        self.assertEqual([n for n in CORE.facts if n.startswith("Linear")], [])

    def test_model_inside_a_later_model_keeps_its_names(self):
        inner = Net()
        inner(torch.ones(5, 3))
        outer = nn.Sequential(inner, nn.Linear(2, 2))
        CORE.log.clear()
        outer(torch.ones(5, 3))
        (names,) = CORE.states("FORWARD_BEGIN")
        self.assertIn("Net.body.weight", names)
        self.assertIn("Sequential.1.weight", names)

    def test_lazy_parameters_are_named_once_they_have_a_shape(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = nn.Sequential(nn.LazyLinear(4))
        model(torch.ones(5, 3))
        self.assertEqual(CORE.facts, {})
        model(torch.ones(5, 3))
        self.assertIn("Sequential.0.weight", CORE.facts)

    def test_modules_without_tensors_leave_nothing(self):
        for _ in range(3):
            nn.CrossEntropyLoss()(torch.ones(2, 2), torch.zeros(2, dtype=torch.long))
        self.assertEqual(CORE.objects, {})

    def test_nothing_is_kept_alive(self):
        model = Net()
        optimizer = torch.optim.Adam(model.parameters())
        train_step(model, optimizer)
        gone = [weakref.ref(model), weakref.ref(model.head), weakref.ref(optimizer)]
        gone.append(weakref.ref(model.head.weight))
        del model, optimizer
        gc.collect()
        self.assertEqual([reference() for reference in gone], [None] * 4)
        self.assertEqual(WATCH.models.all(), [])

    def test_tensors_have_no_weak_references(self):
        model = Net()
        train_step(model, torch.optim.SGD(model.parameters(), lr=0.1))
        for tensor in model.parameters():
            self.assertEqual(weakref.getweakrefs(tensor), [])


class Optimizers(HooksCase):
    def test_wrapping_keeps_torch_and_schedulers_working(self):
        model = Net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(2):
                train_step(model, optimizer)
                scheduler.step()
        self.assertEqual(
            CORE.of("scalar"),
            [("scalar", "PRE_STEP", "lr", 0.5), ("scalar", "PRE_STEP", "lr", 0.25)],
        )
        self.assertEqual(len(CORE.states("PRE_STEP")), 2)
        steps = [r for r in CORE.of("begin") if r[1].endswith(".step")]
        self.assertEqual(steps, [("begin", "torch.optim.adam.Adam.step")] * 2)

    def test_user_optimizer_that_calls_its_base(self):
        class Shy(torch.optim.SGD):
            def step(self, closure=None):
                return super().step(closure)

        model = Net()
        optimizer = Shy(model.parameters(), lr=0.1)
        train_step(model, optimizer)
        steps = [r[1] for r in CORE.of("begin") if r[1].endswith(".step")]
        self.assertEqual(len(steps), 2)
        self.assertTrue(steps[0].endswith("Shy.step"))
        self.assertEqual(len(CORE.states("PRE_STEP")), 1)
        self.assertEqual(CORE.of("clock").count(("clock", "step")), 1)

    def test_closure_is_inside_the_step(self):
        model = nn.Linear(3, 2)
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

        def closure():
            optimizer.zero_grad()
            loss = model(torch.ones(5, 3)).square().sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        clock = [event for _, event in CORE.of("clock") if event != "backward"]
        self.assertEqual(clock, ["step"])

    def test_group_added_later_is_held_before_its_gradient(self):
        model = Net()
        optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)
        train_step(model, optimizer)
        optimizer.add_param_group({"params": model.body.parameters()})
        CORE.log.clear()
        train_step(model, optimizer)
        kinds = [r[:2] for r in CORE.of("hold", "state")]
        self.assertLess(
            kinds.index(("hold", 1)), kinds.index(("state", "BACKWARD_END"))
        )

    def test_step_that_raises(self):
        class Broken(torch.optim.SGD):
            def step(self, closure=None):
                raise ZeroDivisionError

        model = Net()
        optimizer = Broken(model.parameters(), lr=0.1)
        for _ in range(2):
            with self.assertRaises(ZeroDivisionError):
                train_step(model, optimizer)
        self.assertEqual(CORE.states("POST_STEP"), [])
        self.assertEqual(CORE.of("clock").count(("clock", "clear")), 2)

    def test_copies(self):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        train_step(model, optimizer)
        pickle.loads(pickle.dumps(optimizer)).step()
        copied = copy.deepcopy(model)
        copied(torch.ones(5, 3))
        self.assertIn("Net#2.head.bias", CORE.facts)


class Calls(HooksCase):
    def test_forward_inside_backward_is_no_training_forward(self):
        from torch.utils.checkpoint import checkpoint

        model = Net()
        for reentrant in (False, True):
            CORE.log.clear()
            x = torch.ones(5, 3, requires_grad=True)
            checkpoint(model, x, use_reentrant=reentrant).sum().backward()
            self.assertLessEqual(CORE.of("clock").count(("clock", "forward")), 1)
            self.assertEqual(CORE.of("clock").count(("clock", "backward")), 1)
            self.assertEqual(len(CORE.states("BACKWARD_END")), 1)

    def test_backward_of_a_tensor_and_of_the_function(self):
        model = Net()
        torch.autograd.backward([model(torch.ones(5, 3)).sum()])
        self.assertEqual(len(CORE.states("BACKWARD_END")), 1)
        CORE.log.clear()
        model(torch.ones(5, 3)).sum().backward()
        self.assertEqual(len(CORE.states("BACKWARD_END")), 1)
        names = [n for _, n in CORE.of("begin") if "backward" in n]
        self.assertEqual(names, ["torch.Tensor.backward", "torch.autograd.backward"])

    def test_backward_that_raises(self):
        with self.assertRaises(RuntimeError):
            torch.ones(3).sum().backward()
        self.assertFalse(WATCH.clock.inside_backward())

    def test_clip_does_not_consume_a_generator(self):
        model = Net()
        model(torch.ones(5, 3)).sum().backward()
        for function in (
            nn.utils.clip_grad_norm_,
            nn.utils.clip_grad.clip_grad_norm_,
            nn.utils.clip_grad_value_,
        ):
            CORE.log.clear()
            function(model.parameters(), 1e-6)
            self.assertEqual(CORE.states("PRE_CLIP"), [PARAMS])
            self.assertEqual(CORE.states("POST_CLIP"), [PARAMS])
        self.assertLessEqual(model.head.weight.grad.abs().max().item(), 1e-6)

    def test_contexts(self):
        with torch.no_grad():
            pass
        with torch.inference_mode():
            pass
        name = "torch.autograd.grad_mode."
        self.assertEqual(
            CORE.of("context"),
            [
                ("context", True, name + "no_grad"),
                ("context", False, name + "no_grad"),
                ("context", True, name + "inference_mode"),
                ("context", False, name + "inference_mode"),
            ],
        )

    def test_zero_grad_of_a_module(self):
        model = Net()
        model(torch.ones(5, 3)).sum().backward()
        model.zero_grad()
        self.assertEqual(CORE.states("GRAD_CLEAR"), [PARAMS])

    def test_signatures_are_kept(self):
        self.assertIn("mode", inspect.signature(nn.Module.train).parameters)
        self.assertIn(
            "max_norm", inspect.signature(nn.utils.clip_grad_norm_).parameters
        )

    def test_same_function_in_all_namespaces(self):
        distributed = torch.distributed
        self.assertTrue(CORE.is_wrapper(distributed.all_reduce))
        self.assertIs(distributed.all_reduce, distributed.distributed_c10d.all_reduce)
        self.assertIs(torch.save, torch.serialization.save)
        self.assertTrue(CORE.is_wrapper(torch.load))

    def test_checkpoints(self):
        model = Net()
        model(torch.ones(5, 3))
        with tempfile.TemporaryFile() as file:
            torch.save([1, 2], file)
            self.assertEqual(CORE.states("SAVE"), [])
            torch.save({"model": model.state_dict()}, file)
        (names,) = CORE.states("SAVE")
        self.assertIn("Net.norm.running_var", names)
        model.load_state_dict(model.state_dict())
        self.assertEqual(CORE.states("LOAD"), [names])


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
        self.assertEqual([n for n in CORE.facts if not n.startswith("Net.")], [])

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
        self.assertEqual(inner, replicas)
        self.assertEqual(len(CORE.states("BACKWARD_END")[0]), 6 + 2)
        self.assertEqual(len(CORE.facts), 9 + 2)

    def test_end(self):
        train_step(model := Net(), torch.optim.SGD(model.parameters(), lr=0.1))
        CORE.log.clear()
        WATCH.process.ends(WATCH.clock)
        WATCH.process.ends(WATCH.clock)
        self.assertEqual(
            CORE.log, [("clock", "end"), ("mark", "CLEAN_EXIT", 0, 0), ("flush",)]
        )

    def test_process_that_did_nothing_ends_silently(self):
        WATCH.process.ends(WATCH.clock)
        self.assertEqual(CORE.log, [])


if __name__ == "__main__":
    unittest.main()
