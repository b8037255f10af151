"""The core with torch but without hooks: tensors, modules, autograd."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from records_for_testing import TORCH_PRELUDE, CoreCase  # noqa: E402

# CallFlag, OutputFlag, StateContent of record_format.h
FOREIGN_PARENT, ROOT, TRAINING, GRAD_ENABLED, INSIDE_BACKWARD = 1, 2, 4, 8, 16
HAS_GRAD_FN, SEARCHED = 1, 2
HAS_DATA, HAS_GRAD, GRAD_IS_NONE, GRAD_IS_ZERO, DATA_IS_ZERO = 1, 2, 4, 8, 16
REQUIRES_GRAD, UNREADABLE, IS_LEAF = 32, 64, 128


class TorchTest(CoreCase):
    PRELUDE = TORCH_PRELUDE

    def record(self, code):
        return super().record(code).process


class StateTest(TorchTest):
    def digests(self, tensors):
        process = self.record(f"states([{tensors}])\n")
        for state in process.of("state"):
            self.assertTrue(state.content & HAS_DATA, state)
        return [state.digests[0] for state in process.of("state")]

    def test_digest_is_of_the_content_in_logical_order(self):
        base = "torch.arange(60.).reshape(3, 4, 5)"
        digests = self.digests(
            f"{base}, {base}.contiguous().clone(), "
            f"{base}.transpose(0, 2).contiguous().transpose(0, 2), "
            f"{base}.permute(1, 2, 0).contiguous().permute(2, 0, 1), "
            f"torch.arange(120.).reshape(3, 4, 10)[:, :, ::2] / 2, "
            f"torch.stack([{base}, {base}], 1)[:, 1]"
        )
        self.assertEqual(len(set(digests)), 1, digests)

    def test_digest_differs_with_order_type_and_value(self):
        base = "torch.arange(60.).reshape(3, 4, 5)"
        digests = self.digests(
            f"{base}, {base}.transpose(0, 2), {base}.double(), {base}.int(), "
            f"{base} + 1e-6, {base}.flip(0), {base}[:2], {base}.bfloat16()"
        )
        self.assertEqual(len(set(digests)), 8, digests)

    def test_digest_of_odd_shapes(self):
        digests = self.digests(
            "torch.tensor(1.), torch.empty(0), torch.empty(0, 3), torch.ones(3, 1, 1), "
            "torch.ones(1).expand(3), torch.ones(3, dtype=torch.bool), "
            "torch.ones(3, dtype=torch.complex64), torch.ones(1000, 1001).t()"
        )
        self.assertEqual(digests[1], digests[2])
        self.assertEqual(digests[3], digests[4])
        self.assertEqual(len(set(digests)), 6)

    def test_content_flags(self):
        process = self.record(
            "w = nn.Parameter(torch.ones(3))\n"
            "both = core.STATE_DATA | core.STATE_GRAD\n"
            "states([w], both)\n"
            "w.grad = torch.zeros(3)\n"
            "states([w], both)\n"
            "w.grad.fill_(2)\n"
            "states([w], core.STATE_GRAD)\n"
            "states([torch.zeros(3)])\n"
            "import warnings\n"
            "warnings.simplefilter('error')\n"
            "states([w * 2], both)\n"
            "states([nn.Parameter(torch.ones(2), requires_grad=False)])\n"
        )
        contents = [state.content for state in process.of("state")]
        self.assertEqual(
            contents,
            [
                HAS_DATA | GRAD_IS_NONE | REQUIRES_GRAD | IS_LEAF,
                HAS_DATA | HAS_GRAD | GRAD_IS_ZERO | REQUIRES_GRAD | IS_LEAF,
                HAS_GRAD | REQUIRES_GRAD | IS_LEAF,
                HAS_DATA | DATA_IS_ZERO | IS_LEAF,
                HAS_DATA | GRAD_IS_NONE | REQUIRES_GRAD,
                HAS_DATA | IS_LEAF,
            ],
        )
        self.assertEqual([len(s.digests) for s in process.of("state")][:3], [1, 2, 1])

    def test_what_cannot_be_read_is_unreadable(self):
        process = self.record(
            "from torch._subclasses.fake_tensor import FakeTensorMode\n"
            "with FakeTensorMode() as mode: fake = torch.ones(3)\n"
            "freed = torch.ones(1000)\n"
            "freed.untyped_storage().resize_(0)\n"
            "short = torch.ones(1000)\n"
            "short.untyped_storage().resize_(100)\n"
            "sparse = torch.eye(3).to_sparse()\n"
            "class Wrapped(torch.Tensor):\n"
            "    @classmethod\n"
            "    def __torch_dispatch__(cls, func, types, args, kwargs=None):\n"
            "        raise RuntimeError('seen')\n"
            "wrapped = torch.Tensor._make_wrapper_subclass(Wrapped, (3,))\n"
            "core.record_states(7, 1, [1] * 9, [fake, freed, short, sparse, wrapped,\n"
            "    torch.ones(3, device='meta'), None, 5, torch._efficientzerotensor(3)])\n"
            "w = nn.Parameter(torch.ones(3, 3))\n"
            "w.grad = sparse\n"
            "core.record_states(7, 3, [1], [w])\n"
        )
        contents = [state.content & ~IS_LEAF for state in process.of("state")]
        self.assertEqual(contents[:9], [UNREADABLE] * 9)
        self.assertEqual(contents[9], HAS_DATA | UNREADABLE | REQUIRES_GRAD)
        self.assertEqual(len(process.of("state")[9].digests), 1)

    def test_reading_changes_nothing(self):
        self.record(
            "w = nn.Parameter(torch.randn(100, 100))\n"
            "(w * 2).sum().backward()\n"
            "before = (w._version, w.grad._version, torch.get_rng_state().tolist(),\n"
            "    torch.is_grad_enabled(), w.data_ptr(), w.grad_fn)\n"
            "variable(w)\n"
            "core.storage_key(w)\n"
            "states([w], 3)\n"
            "after = (w._version, w.grad._version, torch.get_rng_state().tolist(),\n"
            "    torch.is_grad_enabled(), w.data_ptr(), w.grad_fn)\n"
            "assert before == after\n"
        )

    def test_no_override_of_the_user_is_called(self):
        process = self.record(
            "class Loud(torch.Tensor):\n"
            "    @classmethod\n"
            "    def __torch_function__(cls, *args, **kwargs):\n"
            "        raise RuntimeError('called')\n"
            "from torch.overrides import TorchFunctionMode\n"
            "class Mode(TorchFunctionMode):\n"
            "    def __torch_function__(self, *args, **kwargs):\n"
            "        raise RuntimeError('called')\n"
            "plain = torch.ones(3)\n"
            "loud = plain.as_subclass(Loud)\n"
            "number = variable(plain)\n"
            "with Mode():\n"
            "    core.record_states(7, 3, [number] * 2, [plain, loud])\n"
            "    variable(loud, 'l')\n"
            "    assert core.storage_key(loud)\n"
        )
        first, second = process.of("state")
        self.assertEqual(first.digests, second.digests)

    def test_large_tensors_are_digested_without_the_gil(self):
        self.record(
            "import threading, time\n"
            "big = torch.ones(64 << 20)\n"
            "number = variable(big)\n"
            "ticks = []\n"
            "def tick():\n"
            "    while not done:\n"
            "        ticks.append(time.monotonic())\n"
            "        time.sleep(0.0005)\n"
            "done = False\n"
            "thread = threading.Thread(target=tick)\n"
            "thread.start()\n"
            "start = time.monotonic()\n"
            "core.record_states(7, 1, [number], [big])\n"
            "end = time.monotonic()\n"
            "done = True\n"
            "thread.join()\n"
            "assert sum(start < t < end for t in ticks) >= 3, (end - start, ticks)\n"
        )


class DefinitionTest(TorchTest):
    def test_variables_are_defined_again_where_they_differ(self):
        process = self.record(
            "w = nn.Parameter(torch.ones(3, 4))\n"
            "first = variable(w, 'a.w', identity_epoch=0)\n"
            "assert variable(w, 'a.w') == first\n"
            "w.requires_grad_(False)\n"
            "assert variable(w, 'a.w') == first\n"
            "assert variable(w, 'a.v') != first\n"
        )
        variables = [r for r in process.rings[0] if r.type == "variable"]
        self.assertEqual(len(variables), 3)
        fields = variables[0].fields
        self.assertEqual(process.text(fields[33][0]), "a.w")
        self.assertEqual(process.text(fields[47][0]), "torch.float32")
        self.assertEqual(process.text(fields[48][0]), "cpu")
        self.assertEqual(fields[49], [3, 4])
        self.assertEqual([v.fields[50] for v in variables], [[1], [0], [0]])

    def test_storage_keys_follow_the_storage(self):
        self.record(
            "w = nn.Parameter(torch.ones(4, 4))\n"
            "key = core.storage_key(w)\n"
            "assert key and key == core.storage_key(w.data)\n"
            "assert key == core.storage_key(w[1:]) == core.storage_key(w.t())\n"
            "assert key != core.storage_key(w.clone())\n"
            "seen = {core.storage_key(torch.ones(4, 4)) for _ in range(50)}\n"
            "assert len(seen) == 50 and key not in seen\n"
            "assert core.storage_key(torch.eye(2).to_sparse()) == 0\n"
            "assert core.storage_key(3) == 0\n"
            "a, b = nn.Parameter(torch.ones(2)), nn.Parameter(torch.zeros(2))\n"
            "core.storage_key(a); variable(a)\n"
            "torch.utils.swap_tensors(a, b)\n"
        )

    def test_holds_and_replica_groups(self):
        process = self.record(
            "core.define_hold(4, 1, [1, 2, 300])\n"
            "core.define_replica_group(1, 'ddp', 9, [0, 1], [5, 6])\n"
        )
        (hold,) = process.definitions["hold"].values()
        self.assertEqual((hold.id, hold.aux, hold.fields[53]), (4, 1, [1, 2, 300]))
        (group,) = process.definitions["replica_group"].values()
        self.assertEqual(process.text(group.fields[54][0]), "ddp")
        self.assertEqual(group.fields[55], [0, 1])
        self.assertEqual(group.fields[56], [9])


class PartTest(TorchTest):
    """What hooks/parts.py has the core do for it."""

    PRELUDE = (
        TORCH_PRELUDE
        + """
import threading, types, weakref
class Part:
    def __init__(self, module, sharded=()):
        self.module = weakref.ref(module)
        self.content = core.content_of(module)
        self.params = [(key, 10 + i) for i, key in enumerate(module._parameters)]
        self.sharded = set(sharded)
        self.claim = types.SimpleNamespace(thread=threading.get_ident())
        self.asked = 0
    def changed(self):
        self.asked += 1
        return True
    def collect_params(self, variables, tensors):
        variables.append(99)
        tensors.append("sharded")
def collected(parts, *mine):
    variables, tensors = [], []
    core.collect_parameters(parts, variables, tensors, *mine)
    return variables, tensors
layer, norm = nn.Linear(2, 3), nn.BatchNorm1d(3)
parts = [Part(layer), Part(norm)]
"""
    )

    def record(self, code):
        return CoreCase.record(self, code)  # nothing is recorded

    def test_a_module_that_holds_something_else_has_changed(self):
        self.record(
            "assert core.changed_parts(parts) == []\n"
            "norm.running_mean = torch.ones(3)\n"  # an update of a buffer
            "assert core.changed_parts(parts) == []\n"
            "former, layer.bias = layer.bias, None\n"
            "assert core.changed_parts(parts) == parts[:1]\n"
            "layer.bias = former\n"
            "assert core.changed_parts(parts) == []\n"
            "layer.weight = nn.Parameter(torch.ones(3, 2))\n"
            "norm.register_buffer('more', torch.ones(1))\n"
            "assert core.changed_parts(parts) == parts\n"
            "norm.more = None\n"
            "assert core.changed_parts(parts) == parts[:1]\n"
            "norm.child = nn.ReLU()\n"
            "assert core.changed_parts(parts) == parts\n"
        )

    def test_a_module_that_is_gone_has_not_changed(self):
        self.record(
            "gone = Part(nn.Linear(2, 2))\n"
            "assert core.changed_parts([gone]) == []\n"
            "assert collected([gone]) == ([], [])\n"
        )

    def test_parameters_that_are_there_are_collected(self):
        self.record(
            "layer.bias = None\n"
            "variables, tensors = collected(parts)\n"
            "assert variables == [10, 10, 11], variables\n"
            "assert tensors[0] is layer.weight and tensors[2] is norm.bias\n"
            "del norm._parameters['bias']\n"
            "assert collected(parts)[0] == [10, 10]\n"
        )

    def test_those_that_require_a_gradient_are_counted(self):
        self.record(
            "assert core.count_trained(parts) == 4\n"
            "layer.weight.requires_grad_(False)\n"
            "layer.bias = None\n"
            "gone = Part(nn.Linear(2, 2))\n"
            "assert core.count_trained([*parts, gone]) == 2\n"
            "assert core.count_trained([]) == 0\n"
        )

    def test_parts_of_other_threads_are_left_out(self):
        self.record(
            "parts[1].claim.thread = None\n"
            "assert collected(parts)[0] == [10, 11, 10, 11]\n"
            "assert collected(parts, True)[0] == [10, 11]\n"
            "parts[0].claim.thread = 0\n"
            "assert collected(parts, True)[0] == []\n"
        )

    def test_sharded_parts_are_asked(self):
        self.record(
            "parts[0].sharded.add('weight')\n"
            "assert core.changed_parts(parts) == parts[:1] and parts[0].asked == 1\n"
            "assert collected(parts)[1][0] == 'sharded'\n"
        )

    def test_what_is_no_part_is_an_error(self):
        self.record(
            "some = core.changed_parts, core.count_trained, collected\n"
            "for call in some:\n"
            "    for wrong in (None, [None]):\n"
            "        try:\n"
            "            call(wrong)\n"
            "        except (AttributeError, SystemError, TypeError):\n"
            "            continue\n"
            "        raise AssertionError(wrong)\n"
        )

    def test_addresses_are_those_of_the_objects(self):
        self.record(
            "a, b = torch.ones(1), torch.ones(1)\n"
            "known = core.addresses([[a], [b]])\n"
            "assert known == core.addresses([[a], [b]])\n"
            "assert known != core.addresses([[a, b]])\n"
            "assert known != core.addresses([[b], [a]])\n"
            "assert known != core.addresses([[a], [b], []])\n"
        )

    def test_a_place_in_the_code(self):
        self.record(
            "def here():\n"
            "    return core.code_place('/torch')\n"
            "def other():\n"
            "    return here()\n"
            "places = [here() for _ in range(3)]\n"
            "assert len(set(places)) == 1\n"
            "assert other() not in places and here() not in places\n"
        )


class ModuleTest(TorchTest):
    PATCH = "nn.Module.__call__ = core.wrap_module_call(nn.Module.__call__)\n"

    def test_a_sharded_module_has_the_class_of_its_author(self):
        process = self.record(
            self.PATCH + "import torch.distributed as dist\n"
            "from torch.distributed.fsdp import fully_shard\n"
            "dist.init_process_group('gloo', store=dist.HashStore(), rank=0,\n"
            "                        world_size=1)\n"
            "class Net(nn.Linear): pass\n"
            "net = Net(2, 2)\n"
            "fully_shard(net)\n"
            "assert type(net) is not Net\n"
            "core.define_object(net, core.OBJECT_MODULE)\n"
            "net(torch.ones(1, 2))\n"
            "dist.destroy_process_group()\n"
        )
        names = [name for kind, name in process.calls() if kind == "begin"]
        self.assertEqual(names[0], "__main__.Net.forward")
        (net,) = process.definitions["object"].values()
        self.assertEqual(process.text(net.fields[39][0]), "__main__.Net")
        bases = [process.text(base) for base in net.fields[40]]
        self.assertIn("torch.nn.modules.linear.Linear", bases)
        self.assertNotIn("__main__.Net", bases)

    def test_modules_are_recorded_by_class(self):
        process = self.record(
            self.PATCH + "class Net(nn.Sequential):\n"
            "    def forward(self, x): return super().forward(x)\n"
            "Net(nn.Linear(2, 2), nn.ReLU())(torch.ones(1, 2))\n"
        )
        self.assertEqual(
            [name for kind, name in process.calls() if kind == "begin"],
            [
                "__main__.Net.forward",
                "torch.nn.modules.linear.Linear.forward",
                "torch.nn.modules.activation.ReLU.forward",
            ],
        )
        roles = process.definitions["function"][1].fields[35]
        self.assertEqual(
            [process.text(role) for role in roles],
            [
                "torch.nn.modules.container.Sequential.forward",
                "torch.nn.modules.module.Module.forward",
            ],
        )

    def test_flags(self):
        process = self.record(
            self.PATCH + "net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())\n"
            "net(torch.ones(1, 2))\n"
            "net.eval()\n"
            "with torch.no_grad(): net(torch.ones(1, 2))\n"
        )
        flags = [b.flags & ~32 for b in process.of("begin")]
        inner = TRAINING | GRAD_ENABLED
        self.assertEqual(flags, [ROOT | inner, inner, inner, ROOT, 0, 0])
        ends = [end.flags for end in process.of("end")]
        self.assertEqual(ends, [0, 0, SEARCHED | HAS_GRAD_FN, 0, 0, SEARCHED])
        sites = [begin.site != 0 for begin in process.of("begin")]
        self.assertEqual(sites, [True, False, False] * 2)

    def test_outputs_are_searched_in_containers(self):
        process = self.record(
            self.PATCH + "class Net(nn.Module):\n"
            "    def forward(self, what): return what\n"
            "net = Net()\n"
            "w = nn.Parameter(torch.ones(1))\n"
            "for value in ((1, w * 2), [w * 2], {'a': w * 2}, w * 2,\n"
            "              w, None, (), {'a': w.detach()}):\n"
            "    net(value)\n"
        )
        flags = [end.flags for end in process.of("end")]
        self.assertEqual(flags, [SEARCHED | HAS_GRAD_FN] * 4 + [SEARCHED] * 4)

    def test_root_hooks(self):
        self.record(
            "log = []\n"
            "def before(args, kwargs): log.append(('before', type(args[0]).__name__))\n"
            "def after(token, args, kwargs, result, error):\n"
            "    log.append(('after', tuple(result.shape)))\n"
            "nn.Module.__call__ = core.wrap_module_call(\n"
            "    nn.Module.__call__, before, after)\n"
            "nn.Sequential(nn.Linear(2, 3))(torch.ones(1, 2))\n"
            "assert log == [('before', 'Sequential'), ('after', (1, 3))], log\n"
        )

    def test_a_traced_model_is_one_and_a_graph_is_none(self):
        process = self.record(
            self.PATCH + "from torch import fx\n"
            "graph = fx.Graph()\n"
            "graph.output(graph.placeholder('x'))\n"
            "fx.GraphModule({}, graph)(torch.ones(1))\n"
            "fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2)))(torch.ones(1, 2))\n"
        )
        roots = [b for b in process.of("begin") if b.flags & ROOT]
        self.assertEqual(len(roots), 1)
        self.assertIn("GraphModule", process.function(roots[0]))

    def test_recomputation_is_a_root_inside_backward(self):
        process = self.record(
            self.PATCH + "from torch.utils.checkpoint import checkpoint\n"
            "torch.Tensor.backward = core.wrap(\n"
            "    torch.Tensor.backward, 'torch.Tensor.backward', 'backward')\n"
            "net = nn.Linear(2, 2)\n"
            "x = torch.ones(1, 2, requires_grad=True)\n"
            "checkpoint(net, x, use_reentrant=True).sum().backward()\n"
        )
        begins = [b for b in process.of("begin") if "Linear" in process.function(b)]
        self.assertEqual(
            [begin.flags & (ROOT | INSIDE_BACKWARD) for begin in begins],
            [ROOT, ROOT | INSIDE_BACKWARD],
        )

    def test_wrapped_functions_work_in_torch(self):
        self.record(
            self.PATCH + "import copy, io, pickle\n"
            "import torch.nn.functional as F\n"
            "original = F.relu\n"
            "F.relu = core.wrap(F.relu, 'torch.nn.functional.relu', 'other')\n"
            "from torch.overrides import get_testing_overrides, is_tensor_method_or_property\n"
            "assert F.relu in get_testing_overrides() or original not in "
            "get_testing_overrides()\n"
            "class Net(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.layer, self.act = nn.Linear(2, 2), F.relu\n"
            "    def forward(self, x): return self.act(self.layer(x))\n"
            "net = Net()\n"
            "x = torch.ones(1, 2)\n"
            "expected = net(x)\n"
            "file = io.BytesIO()\n"
            "torch.save(net, file)\n"
            "file.seek(0)\n"
            "assert torch.equal(torch.load(file, weights_only=False)(x), expected)\n"
            "assert torch.equal(copy.deepcopy(net)(x), expected)\n"
            "assert torch.equal(torch.jit.trace(net, x)(x), expected)\n"
            "assert torch.equal(torch.fx.symbolic_trace(net)(x), expected)\n"
            "compiled = torch.compile(net, backend='eager')\n"
            "assert torch.equal(compiled(x), expected)\n"
        )


if __name__ == "__main__":
    unittest.main()
