"""Descriptors of tensors: by torch's C shim, by attributes, and what is true."""

import gc
import os
import sys
import unittest
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tensor_for_testing as core  # noqa: E402
import torch  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

BOUND = core.bind(torch)
META = 14


class Subclass(torch.Tensor):
    pass


class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError("dispatched")


class Loud(torch.Tensor):
    @classmethod
    def __torch_function__(cls, *args, **kwargs):
        raise RuntimeError("called")


def dtypes():
    found = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    return sorted(found, key=str)


def plain_tensors():
    """Name and tensor: dense ones with bytes of their own."""
    base = torch.arange(120.0).reshape(2, 3, 4, 5)
    views = {
        "base": base,
        "transposed": base.transpose(0, 3),
        "sliced": base[1:, ::2, 1:],
        "offset": base.view(-1)[7:],
        "expanded": torch.ones(3, 1).expand(3, 9),
        "scalar": torch.tensor(2.5),
        "empty": torch.empty(0),
        "empty 2": torch.empty(3, 0, 2),
        "parameter": torch.nn.Parameter(base.clone()),
        "leaf": torch.ones(3, requires_grad=True),
        "result": torch.ones(3, requires_grad=True) * 2,
        "buffer": torch.nn.Buffer(base.clone())
        if hasattr(torch.nn, "Buffer")
        else base,
        "subclass": base.as_subclass(Subclass),
        "loud": torch.ones(3).as_subclass(Loud),
        "conj": torch.ones(3, dtype=torch.complex64).conj(),
        "imag of conj": torch.ones(3, dtype=torch.complex64).conj().imag,
        "negative": torch._neg_view(base),
        "zeros that are not there": torch._efficientzerotensor((3,)),
        "uninitialized": torch.nn.parameter.UninitializedParameter(),
        "many dimensions": torch.ones([1] * 40),
        "large": torch.empty(1 << 40, device="meta"),
        "meta": torch.empty(3, 4, device="meta"),
        "channels last": torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "set": torch.empty(0).set_(base.untyped_storage(), 3, (2, 2), (5, 1)),
        "data": torch.nn.Parameter(base).data,
        "from numpy": torch.from_numpy(base.numpy()),
        "shared": torch.ones(5).share_memory_(),
    }
    with torch.inference_mode():
        views["inference"] = torch.ones(4)
        views["inference view"] = torch.ones(4, 4)[1:]
    freed = torch.ones(100)[10:]
    freed.untyped_storage().resize_(0)
    views["freed"] = freed
    with torch.autocast("cpu"):
        views["autocast"] = torch.mm(torch.ones(2, 2), torch.ones(2, 2))
    for dtype in dtypes():
        try:
            views[str(dtype)] = torch.empty(3, 5, dtype=dtype)
        except (RuntimeError, NotImplementedError):  # quantised ones are made below
            continue
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in (torch.qint8, torch.quint8, torch.qint32):
            views[f"quantised {dtype}"] = torch.quantize_per_tensor(base, 0.1, 0, dtype)
    views["deep copy"] = __import__("copy").deepcopy(views["parameter"])
    return views


def special_tensors():
    base = torch.ones(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        views = {
            "sparse": base.to_sparse(),
            "csr": base.to_sparse_csr(),
            "csc": base.to_sparse_csc(),
            "bsr": base.to_sparse_bsr((1, 1)),
            "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
            "jagged": torch.nested.nested_tensor(
                [torch.ones(2, 2), torch.ones(3, 2)], layout=torch.jagged
            ),
            "wrapper": Wrapper(torch.ones(3)),
        }
    if torch.backends.mkldnn.is_available():
        views["mkldnn"] = base.to_mkldnn()
    with FakeTensorMode():
        views["fake"] = torch.ones(3)
    return views


class DescriptorTest(unittest.TestCase):
    def setUp(self):
        core.use_shim(True)
        self.addCleanup(core.use_shim, True)

    def both(self, tensor):
        """The descriptor, the same both ways; is it the shim's?"""
        self.assertTrue(core.use_shim(True))
        quick, by_shim = core.describe(tensor), core.by_shim(tensor)
        self.assertFalse(core.use_shim(False))
        self.assertFalse(core.by_shim(tensor))
        slow = core.describe(tensor)
        self.assertEqual(quick, slow)
        return quick, by_shim

    def test_the_shim_is_found_in_this_torch(self):
        self.assertEqual(BOUND, "")

    def test_plain_tensors(self):
        for name, tensor in plain_tensors().items():
            with self.subTest(name):
                found, by_shim = self.both(tensor)
                special = name == "zeros that are not there"
                self.assertEqual(by_shim or special, True)
                self.check(found, tensor)

    def check(self, found, tensor):
        with torch._C.DisableTorchFunctionSubclass():
            if found["ndim"] >= 0:
                self.assertEqual(found["sizes"], tuple(tensor.size()))
                self.assertEqual(found["strides"], tensor.stride())
                self.assertEqual(found["ndim"], tensor.dim())
            if found["storage"]:
                self.assertEqual(found["data"], tensor.data_ptr())
                storage = tensor.untyped_storage()
                self.assertEqual(found["storage"], storage._cdata)
                self.assertEqual(found["storage_bytes"], storage.nbytes())
                self.assertEqual(found["offset"], tensor.storage_offset())
            self.assertEqual(found["dtype_name"], str(tensor.dtype))
            self.assertEqual(found["dtype_bytes"], tensor.element_size())
            self.assertEqual(found["device_type"] == 0, tensor.device.type == "cpu")
            self.assertEqual(found["device_type"] == META, tensor.is_meta)
            self.assertEqual(found["negative"], tensor.is_neg())
            self.assertEqual(found["conjugate"], tensor.is_conj())

    def test_special_tensors_have_no_bytes(self):
        for name, tensor in special_tensors().items():
            with self.subTest(name):
                found, by_shim = self.both(tensor)
                self.assertFalse(by_shim)
                self.assertEqual((found["data"], found["storage"]), (0, 0))
                self.assertEqual(found["storage_bytes"], -1)
                self.assertEqual(found["dtype_name"], str(tensor.dtype))
                if "sparse" in name:
                    self.assertEqual(found["sizes"], (3, 4))
                    self.assertEqual(found["strides"], None)

    def test_tensors_of_function_transforms(self):
        seen = []

        def look(x):
            found, by_shim = self.both(x)
            seen.append((by_shim, found["data"], found["sizes"]))
            return (x * 2).sum()

        torch.vmap(look)(torch.ones(3, 2))
        torch.func.grad(look)(torch.ones(4))
        torch.func.functionalize(look)(torch.ones(5))
        self.assertEqual(seen, [(False, 0, (2,)), (False, 0, (4,)), (False, 0, (5,))])

    def test_layouts_have_torch_s_numbers(self):
        tensors = special_tensors()
        names = ["sparse", "csr", "csc", "bsr", "jagged"]
        numbers = [core.describe(tensors[name])["layout"] for name in names]
        self.assertEqual(numbers, [1, 2, 4, 5, 7])

    def test_everything_alive(self):
        kept = [plain_tensors(), torch.nn.LSTM(3, 4).state_dict()]
        tensors = [
            item for item in gc.get_objects() if issubclass(type(item), torch.Tensor)
        ]
        self.assertGreater(len(tensors), 50)
        for tensor in tensors:
            self.both(tensor)
        del kept

    def test_what_is_no_tensor(self):
        for value in (None, 5, "x", torch, torch.float32, torch.Size([1]), object()):
            self.assertIsNone(core.describe(value))

    def test_nothing_of_the_user_runs_and_nothing_changes(self):
        from torch.overrides import TorchFunctionMode
        from torch.utils._python_dispatch import TorchDispatchMode

        class Function(TorchFunctionMode):
            def __torch_function__(self, *args, **kwargs):
                raise RuntimeError("called")

        class Dispatch(TorchDispatchMode):
            def __torch_dispatch__(self, *args, **kwargs):
                raise RuntimeError("dispatched")

        tensors = list(plain_tensors().values())
        with torch._C.DisableTorchFunctionSubclass():
            versions = [t._version for t in tensors if not t.is_inference()]
        for use in (True, False):
            core.use_shim(use)
            with Function(), Dispatch():
                found = [core.describe(tensor) for tensor in tensors]
            self.assertNotIn(None, found)
        with torch._C.DisableTorchFunctionSubclass():
            after = [t._version for t in tensors if not t.is_inference()]
        self.assertEqual(versions, after)

    def test_lazily_cloned_tensors_are_described(self):
        if not hasattr(torch, "_lazy_clone"):
            self.skipTest("this torch has no lazy clones")
        lazy = torch._lazy_clone(torch.ones(100))
        found = core.describe(lazy)
        self.assertEqual(found["storage_bytes"], 400)
        self.assertNotEqual(found["data"], 0)

    def test_quick(self):
        parameter = torch.nn.Parameter(torch.ones(3, 4))
        time_ns = core.time_describe(parameter)
        print(f"descriptor: {time_ns:.1f} ns", file=sys.stderr)
        self.assertLess(time_ns, 200)  # ten times the bound

    def test_a_torch_without_shim_is_read_by_attributes(self):
        class Torch:
            """Has all but the numbers of dispatch keys."""

            _C = None

            def __getattr__(self, name):
                return getattr(torch, name)

        try:
            self.assertIn("probe failed", core.bind_shim(Torch()))
            self.assertFalse(core.use_shim(True))
            found = core.describe(torch.ones(3))
            self.assertEqual(found["sizes"], (3,))
        finally:
            self.assertEqual(core.bind(torch), "")


if __name__ == "__main__":
    unittest.main()
