"""Models and their variables are found and named."""

import gc
import pathlib
import sys
import unittest
import warnings
import weakref

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase, Net, PARAMS, WATCH, train_step
from _traincheck.tensor_marks import TensorMark


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
        for _ in range(7):  # what shows at the first steps has been said
            CORE.log.clear()
            train_step(model, optimizer)
        kinds = [record[1] for record in CORE.of("clock", "state", "scalar")]
        self.assertEqual(
            kinds,
            ["clear", "GRAD_CLEAR", "forward", "FORWARD_BEGIN", "backward"]
            # What the loss's graph says, and the gradients.
            + ["BACKWARD_END", "BACKWARD_END", "step", "PRE_STEP", "POST_STEP"],
        )

    def test_gradients_dropped_by_hand_are_seen_at_the_next_backward(self):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train_step(model, optimizer)
        for parameter in model.parameters():
            parameter.grad = None
        CORE.log.clear()
        model(torch.ones(5, 3)).sum().backward()
        self.assertEqual(CORE.states("GRAD_CLEAR"), [PARAMS])
        # Nothing is gone before the second backward of an accumulation: a few are looked
        # at, which may be zeros.
        optimizer.step()
        CORE.log.clear()
        model(torch.ones(5, 3)).sum().backward()
        self.assertEqual([len(names) for names in CORE.states("GRAD_CLEAR")], [3])

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
        (names,) = CORE.states("POST_STEP")
        self.assertEqual(names[:4], held)
        self.assertTrue(all("/" in name for name in names[4:]), names)

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

    def test_groups_that_an_optimizer_gets_in_turn(self):
        """As DeepSpeed gives them: each keeps its name and its number."""
        first, second = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2))
        groups = [{"params": [first]}, {"params": [second]}]
        optimizer = torch.optim.SGD(groups, lr=0.1)
        every = optimizer.param_groups
        for _ in range(3):
            (first.sum() + second.sum()).backward()
            for group in every:
                optimizer.param_groups = [group]
                optimizer.step()
            optimizer.param_groups = every
        names = [f"SGD.param_groups[{group}].params[0]" for group in (0, 1)]
        self.assertEqual([n for n in CORE.facts if n.startswith("SGD")], names)
        self.assertEqual(CORE.states("PRE_STEP"), [[name] for name in names * 3])
        holds = [(record[1], record[2]) for record in CORE.of("hold")]
        self.assertEqual(holds, [(0, [names[0]]), (1, [names[1]])])

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
        self.assertNotIn("Sequential.0.weight", CORE.facts)
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

    def test_no_python_code_runs_where_a_mark_goes(self):
        """What a signal handler raised in it would be lost to the training."""
        tensor = torch.zeros(3)
        mark = TensorMark(tensor)
        self.assertTrue(mark.is_of(tensor.view(3)))
        calls: list[str] = []
        sys.setprofile(lambda frame, event, _: calls.append(event))
        mark = None
        sys.setprofile(None)
        self.assertEqual(calls, ["c_call"])  # of sys.setprofile(None)

    def test_a_mark_tells_a_tensor_from_the_next_at_its_place(self):
        mark = TensorMark(torch.zeros(3))
        self.assertFalse(mark.is_of(torch.zeros(3)))


if __name__ == "__main__":
    unittest.main()
