"""Bytes, checkpoint entries and sharded tensors, as the core records them."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from records_for_testing import PRELUDE, CoreCase  # noqa: E402

HAS_DATA, DATA_IS_ZERO, UNREADABLE = 1, 16, 64
# Fields of record_format.h
DTYPE, DIMENSION, VALUE, VARIABLE, SHADOW_OF, LEFT_OUT = 47, 49, 8, 53, 90, 91


class ContentTest(CoreCase):
    PRELUDE = (
        "import torch\n"
        + PRELUDE
        + "core.bind_torch()\n"
        + "def variable(tensor, name, root_class='Net', **more):\n"
        + "    return core.define_variable(tensor, name, root_class, 1, 1, '', 0, **more)\n"
    )

    def record(self, code):
        return super().record(code).process

    def test_bytes_have_the_digest_of_a_tensor_with_them(self):
        process = self.record(
            "import array\n"
            "v = core.define_variable(None, 'torch.cpu', 'generator', 0, 4, '', 0)\n"
            "data = array.array('q', range(100)).tobytes()\n"
            "core.record_bytes(core.POINT_FETCH, v, data, 'torch.int64')\n"
            "core.record_states(core.POINT_FETCH, core.STATE_DATA, [v], [torch.arange(100)])\n"
            "core.record_bytes(core.POINT_FETCH, v, data, 'torch.uint8')\n"
            "core.record_bytes(core.POINT_FETCH, v, b'', 'torch.int64')\n"
            "core.record_bytes(core.POINT_FETCH, 0, data, 'torch.int64')\n"
        )
        a, b, other, empty = process.of("state")
        self.assertEqual(a.digests, b.digests)
        self.assertNotEqual(a.digests, other.digests)
        self.assertEqual(empty.content, HAS_DATA | DATA_IS_ZERO)
        self.assertEqual(a.point, 15)
        self.assertEqual(process.definitions["variable"][a.variable].fields[45], [4])

    def test_digests_are_those_of_states(self):
        process = self.record(
            "tensors = [torch.arange(100), torch.ones(3, 2).t()]\n"
            "v = [variable(tensor, str(tensor.dtype)) for tensor in tensors]\n"
            "core.record_states(core.POINT_FETCH, core.STATE_DATA, v, tensors)\n"
            "data = core.digests(tensors)\n"
            "for i in range(2):\n"
            "    number = int.from_bytes(data[8 * i : 8 * i + 8], 'little')\n"
            "    core.record_scalar(1, core.POINT_FETCH, i, 'low', number % 2**32)\n"
            "assert len(data) == 16 and core.digests([]) == b''\n"
            "meta = torch.ones(3, device='meta')\n"
            "assert core.digests([tensors[0], meta]) is None\n"
            "assert core.digests([tensors[0], 'no tensor']) is None\n"
            "try:\n"
            "    core.digests(7)\n"
            "except TypeError:\n"
            "    core.record_scalar(1, core.POINT_FETCH, 2, 'raised', 1)\n"
        )
        digests = [state.digests[0] % 2**32 for state in process.of("state")]
        values = [scalar.value for scalar in process.of("scalar")]
        self.assertEqual(values, [*digests, 1])

    def test_statistics_and_rows_come_behind_their_state(self):
        process = self.record(
            "w = torch.tensor([[3., -4.], [float('nan'), 0.]], requires_grad=True)\n"
            "w.grad = torch.tensor([[1., float('inf')], [0., 0.]])\n"
            "counts, rows = torch.arange(3), [t for t in torch.ones(3, 2) * 0 + 5]\n"
            "long = torch.zeros(5000, 1)\n"
            "everything = (core.STATE_DATA | core.STATE_GRAD\n"
            "    | core.STATE_DATA_STATISTICS | core.STATE_GRAD_STATISTICS)\n"
            "more = core.STATE_DATA | core.STATE_DATA_STATISTICS | core.STATE_DATA_ROWS\n"
            "for what, *tensors in (\n"
            "    (everything, w), (more, counts, rows[0], long),\n"
            "    (core.STATE_DATA, w.detach()[0]),\n"
            "):\n"
            "    for t in tensors:\n"
            "        v = [variable(t, 'v')]\n"
            "        core.record_states(core.POINT_PRE_STEP, what, v, [t])\n"
        )
        records = process.of("state", "statistics", "rows")
        self.assertEqual(
            [record.type for record in records],
            ["state", "statistics", "statistics"]  # w: data, gradient
            + ["state", "rows"]  # integers have no statistics
            + ["state", "statistics", "rows"]
            + ["state", "statistics", "rows", "rows", "rows"]
            + ["state"],
        )
        data, grad = records[1:3]
        self.assertEqual((data.of, data.norm, data.absmax, data.nans), (1, 5, 4, 1))
        self.assertEqual((grad.of, grad.norm, grad.absmax, grad.infs), (2, 1, 1, 1))
        self.assertEqual({r.variable for r in records[:3]}, {data.variable})
        of_long = records[10:13]
        self.assertEqual([r.first for r in of_long], [0, 2048, 4096])
        self.assertEqual([len(r.digests) for r in of_long], [2048, 2048, 904])
        self.assertEqual({r.rows for r in of_long}, {5000})
        self.assertEqual(len({d for r in of_long for d in r.digests}), 1)

    def test_checkpoint_entries(self):
        process = self.record(
            "w = torch.ones(2, 3)\n"
            "v = variable(w, 'w')\n"
            "core.record_states(core.POINT_SAVE, core.STATE_DATA, [v], [w])\n"
            "values = [w, 3, True, 2.5, 1 << 5000, 'text', None,\n"
            "          torch.ones(2, device='meta'), torch.zeros(0)]\n"
            "keys = [f'k.{n}' for n in range(len(values))]\n"
            "variables = [v] + [0] * (len(values) - 1)\n"
            "core.record_checkpoint(core.POINT_SAVE, keys, values, variables, 7)\n"
        )
        (state,) = process.of("state")
        *entries, rest = process.of("checkpoint")
        self.assertEqual(
            [process.text(e.key) for e in entries], [f"k.{n}" for n in range(9)]
        )
        self.assertEqual(entries[0].digest, state.digests[0])
        self.assertEqual(entries[0].fields[DIMENSION], [2, 3])
        self.assertEqual(entries[0].fields[VARIABLE], [state.variable])
        self.assertEqual(process.text(entries[0].fields[DTYPE][0]), "torch.float32")
        numbers = [entry.fields.get(VALUE) for entry in entries]
        self.assertEqual(
            numbers, [None, [3.0], [1.0], [2.5], None, None, None, None, None]
        )
        self.assertEqual(
            [entry.content for entry in entries],
            [HAS_DATA, 0, 0, 0, 0, 0, 0, UNREADABLE, HAS_DATA | DATA_IS_ZERO],
        )
        self.assertEqual((rest.key, rest.fields[LEFT_OUT]), (0, [7]))

    def test_wrong_arguments_are_type_errors(self):
        self.record(
            "core.record_mark(1, 0, 0)\n"
            "for arguments in ((1, 2), (1, ['a'], 3, [0])):\n"
            "    try:\n"
            "        core.record_checkpoint(*arguments)\n"
            "    except TypeError:\n"
            "        continue\n"
            "    raise AssertionError(arguments)\n"
        )

    def test_local_shard_of_a_sharded_tensor(self):
        process = self.record(
            "import torch.distributed as dist\n"
            "from torch.testing._internal.distributed.fake_pg import FakeStore\n"
            "dist.init_process_group('fake', store=FakeStore(), rank=1, world_size=2)\n"
            "from torch.distributed.tensor import DTensor, Shard, init_device_mesh\n"
            "mesh = init_device_mesh('cpu', (2,))\n"
            "local = torch.arange(6.).reshape(2, 3)\n"
            "whole = DTensor.from_local(local, mesh, [Shard(0)], run_check=False)\n"
            "whole.requires_grad_()\n"
            "v = variable(whole, 'w')\n"
            "w = variable(local, 'local')\n"
            "core.record_states(1, core.STATE_DATA, [v, w], [whole, local])\n"
            "assert core.storage_key(whole) == core.storage_key(local) != 0\n"
        )
        sharded, plain = process.of("state")
        self.assertEqual(sharded.digests, plain.digests)
        definition = process.definitions["variable"][sharded.variable]
        self.assertEqual(definition.fields[DIMENSION], [4, 3])

    def test_shadows_and_states_of_several_roots_under_one_optimizer(self):
        process = self.record(
            "w = torch.ones(2)\n"
            "a = variable(w, 'w/exp_avg')\n"
            "b = variable(w, 'w/exp_avg', root_class='Net#2', shadow_of=a)\n"
            "assert a != b\n"
            "assert variable(w, 'w/exp_avg') == a\n"
        )
        first, second = process.definitions["variable"].values()
        self.assertNotIn(SHADOW_OF, first.fields)
        self.assertEqual(second.fields[SHADOW_OF], [first.id])


if __name__ == "__main__":
    unittest.main()
