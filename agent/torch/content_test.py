"""Digests and statistics of tensors' content, against a reference in Python."""

import ctypes
import math
import os
import sys
import unittest
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tensor_for_testing as core  # noqa: E402
import torch  # noqa: E402

BOUND = core.bind(torch)
warnings.simplefilter("ignore")  # ComplexHalf is experimental

MASK = (1 << 64) - 1
G, C1, C2 = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 0xC2B2AE3D27D4EB4F


def mix(x):
    x ^= x >> 32
    x = x * C1 & MASK
    x ^= x >> 32
    x = x * C2 & MASK
    return x ^ x >> 32


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 & MASK
    return value


def digest_of_bytes(content, dtype):
    words = [
        int.from_bytes(content[i : i + 8], "little") for i in range(0, len(content), 8)
    ]
    total = sum(mix(w ^ (i + 1) * G & MASK) for i, w in enumerate(words)) & MASK
    return mix(total ^ mix(len(content) ^ fnv1a(str(dtype)) * G & MASK))


INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def content_of(tensor):
    """Its elements' bytes in logical order."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    integer = INTEGERS.get(plain.element_size())
    if integer:  # torch copies few types with gaps
        bits = torch.empty(0, dtype=integer)
        plain = bits.set_(
            plain.untyped_storage(),
            plain.storage_offset(),
            plain.size(),
            plain.stride(),
        )
    plain = plain.contiguous()
    size = plain.numel() * plain.element_size()
    return ctypes.string_at(plain.data_ptr(), size) if size else b""


def reference(tensor):
    return digest_of_bytes(content_of(tensor), tensor.dtype)


def dtypes():
    found = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    return sorted(found, key=str)


def random_of(dtype, *shape):
    """Random bytes; None where torch has no such tensors."""
    try:
        empty = torch.empty(*shape, dtype=dtype)
        if empty.is_quantized:
            return None
        size = empty.numel() * empty.element_size()
        high = 2 if dtype is torch.bool else 256
        content = bytes(torch.randint(0, high, (size,), dtype=torch.uint8).tolist())
        ctypes.memmove(empty.data_ptr(), content, size)
        return empty
    except (RuntimeError, NotImplementedError):
        return None


FLOATS = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.complex128,
    torch.complex64,
    torch.complex32,
    torch.float8_e5m2,
    torch.float8_e4m3fn,
    torch.float8_e5m2fnuz,
    torch.float8_e4m3fnuz,
]


class DigestTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def check(self, tensor, note=""):
        expected = reference(tensor)
        self.assertEqual(core.digest(tensor), expected, note)
        digest, zero, _, _ = core.summarize(tensor)
        self.assertEqual(digest, expected, note)
        self.assertEqual(zero, not any(content_of(tensor)), note)
        core.use_shim(False)
        self.assertEqual(core.digest(tensor), expected, note)
        core.use_shim(True)

    def test_all_types_and_views(self):
        readable = []
        for dtype in dtypes():
            tensor = random_of(dtype, 5, 6, 7)
            if tensor is None:
                continue
            readable.append(dtype)
            views = {
                "whole": tensor,
                "transposed": tensor.transpose(0, 2),
                "permuted": tensor.permute(1, 2, 0),
                "offset": tensor.view(-1)[3:],
                "strided": tensor[:, ::2, 1:],
                "expanded": tensor[:1].expand(4, 6, 7),
                "inner expanded": tensor[..., :1].expand(5, 6, 3),
                "row": tensor[2, 3],
                "element": tensor[1, 2, 3],
                "empty": tensor[:0],
                "zeros": torch.zeros(9).to(torch.uint8).view(-1)[:0],
            }
            for name, view in views.items():
                with self.subTest(f"{dtype} {name}"):
                    self.check(view)
        self.assertGreaterEqual(len(readable), 26, readable)

    def test_a_view_and_its_copy_agree(self):
        big = torch.randn(300, 1001)
        for view in (big.t(), big[:, ::3], big[10:], big.view(3, 100, 1001)[:, ::7]):
            self.assertEqual(core.digest(view), core.digest(view.contiguous()))
            self.check(view)
        image = torch.randn(2, 3, 17, 19)
        last = image.to(memory_format=torch.channels_last)
        self.assertEqual(core.digest(image), core.digest(last))

    def test_lazy_signs_count(self):
        # Not random bits: torch changes the bits of NaN when it negates.
        for dtype in (torch.complex32, torch.complex64, torch.complex128):
            tensor = torch.randn(40, 60, dtype=torch.complex128).to(dtype)
            views = [tensor.conj(), tensor.conj().t(), tensor.conj()[3:, ::2]]
            if dtype is not torch.complex32:  # torch cannot read those back
                negative = torch._neg_view(tensor)
                views += [negative, negative.conj()]
            for view in views:
                content = view.resolve_conj().resolve_neg()
                self.assertEqual(core.digest(view), core.digest(content), dtype)
                self.assertNotEqual(core.digest(view), core.digest(tensor))
        imaginary = torch.randn(40, 60, dtype=torch.complex64).conj().imag
        self.assertTrue(imaginary.is_neg())
        self.check(imaginary)
        for dtype in (torch.float16, torch.bfloat16, torch.int8, torch.int32):
            numbers = torch.arange(-50, 50).to(dtype)
            self.check(torch._neg_view(numbers), dtype)
        for dtype in (torch.float32, torch.float64, torch.int16, torch.int64):
            self.check(torch._neg_view(torch.arange(-9, 30).to(dtype)), dtype)

    def test_quantised_bytes(self):
        values = torch.randn(8, 9)
        for dtype in (torch.qint8, torch.quint8, torch.qint32):
            tensor = torch.quantize_per_tensor(values, 0.1, 0, dtype)
            expected = digest_of_bytes(content_of(tensor.int_repr()), dtype)
            self.assertEqual(core.digest(tensor), expected)

    def test_what_has_no_content_here(self):
        freed = torch.ones(100)[10:]
        freed.untyped_storage().resize_(0)
        short = torch.ones(100)
        short.untyped_storage().resize_(396)
        overlong = torch.ones(10)
        for tensor in (
            freed,
            short,
            torch.ones(3, device="meta"),
            torch.eye(3).to_sparse(),
            torch._efficientzerotensor((3,)),
        ):
            self.assertIsNone(core.digest(tensor))
        for tensor in (overlong, torch.empty(0), torch.empty(3, 0)):
            self.assertIsNotNone(core.digest(tensor))

    def test_rows(self):
        for tensor in (
            torch.randn(7, 33),
            torch.randn(5, 3, 7).to(torch.bfloat16),
            torch.randn(40, 9000),
            torch.randint(0, 99, (1000, 3), dtype=torch.uint8),
            torch.randn(33, 7).t(),
            torch.randn(6, 5, dtype=torch.complex64).conj(),
            torch.randn(3),
            torch.empty(4, 0),
            torch.empty(0, 4),
        ):
            _, _, _, rows = core.summarize(tensor)
            self.assertEqual(rows, [reference(row) for row in tensor], tensor.shape)
        scalar = torch.tensor(5.0)
        self.assertEqual(core.summarize(scalar)[3], [reference(scalar)])

    def test_time(self):
        for count in (1, 100, 10000):
            tensor = torch.ones(count)
            quick = core.time_digest(tensor)[0]
            core.use_shim(False)
            slow = core.time_digest(tensor)[0]
            core.use_shim(True)
            print(
                f"digest of {count} elements: {quick:.0f} ns, "
                f"{slow:.0f} ns by attributes",
                file=sys.stderr,
            )


class StatisticsTest(unittest.TestCase):
    def check(self, tensor, exact=False):
        found = core.summarize(tensor)[2]
        plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
        if plain.is_complex():
            plain = torch.view_as_real(plain.to(torch.complex128))
        values = plain.to(torch.float64).reshape(-1)
        finite = values[torch.isfinite(values)]
        norm, absmax, nans, infs = found
        self.assertEqual(nans, int(values.isnan().sum()))
        self.assertEqual(infs, int(values.isinf().sum()))
        largest = float(finite.abs().max()) if len(finite) else 0.0
        self.assertEqual(absmax, largest)
        scaled = finite / largest if largest else finite
        expected = math.sqrt(math.fsum((scaled**2).tolist())) * largest
        self.assertTrue(math.isclose(norm, expected, rel_tol=1e-12), (norm, expected))

    def test_random_bits_of_all_floating_types(self):
        for dtype in FLOATS:
            for shape in ((1,), (7,), (1000,), (33, 65), (3, 0)):
                with self.subTest(f"{dtype} {shape}"):
                    tensor = random_of(dtype, *shape)
                    self.check(tensor)
                    if len(shape) == 2:
                        self.check(tensor.t())

    def test_every_value_of_16_bits_and_less(self):
        every = torch.arange(-(1 << 15), 1 << 15).to(torch.int16)
        self.check(every.view(torch.float16))
        self.check(every.view(torch.bfloat16))
        for dtype in FLOATS[7:]:
            self.check(torch.arange(256).to(torch.uint8).view(dtype))

    def test_large_tensors_with_a_few_bad_elements(self):
        for dtype in FLOATS[:4]:
            tensor = torch.randn(400_003).to(dtype)
            self.check(tensor)
            tensor[399_999] = math.nan
            tensor[5] = -math.inf
            tensor[6] = math.inf
            self.check(tensor)
            self.assertEqual(core.summarize(tensor)[2][2:], (1, 2))

    def test_doubles_whose_squares_leave_the_range(self):
        for scale in (1e300, 1e-300, 5e-324, 1e200, 1e-200):
            self.check(torch.tensor([3.0, 4.0, 1.0, 0.0]).double() * scale)
        self.check(torch.tensor([1e300, 1.0, 1e-300]).double())

    def test_flushing_denormals_changes_nothing_of_float16(self):
        small = torch.full((100,), 6e-8).half()
        before = core.summarize(small)
        torch.set_flush_denormal(True)
        try:
            self.assertEqual(core.summarize(small), before)
        finally:
            torch.set_flush_denormal(False)
        self.check(small)

    def test_other_types_have_none(self):
        for dtype in (torch.int32, torch.bool, torch.uint8):
            self.assertIsNone(core.summarize(torch.ones(4).to(dtype))[2])

    def test_float4_pairs(self):
        if not hasattr(torch, "float4_e2m1fn_x2"):
            self.skipTest("this torch has no 4-bit floats")
        # 0.5 and 6; -1.5 and 0.
        pairs = torch.tensor([0x71, 0x0B], dtype=torch.uint8)
        found = core.summarize(pairs.view(torch.float4_e2m1fn_x2))[2]
        self.assertEqual(found, (math.sqrt(0.25 + 36 + 2.25), 6.0, 0, 0))

    def test_exponents_alone(self):
        if not hasattr(torch, "float8_e8m0fnu"):
            self.skipTest("this torch has no exponent-only floats")
        bits = torch.tensor([127, 130, 0, 255], dtype=torch.uint8)
        found = core.summarize(bits.view(torch.float8_e8m0fnu))[2]
        self.assertEqual(found, (math.sqrt(1 + 64 + 2.0**-254), 8.0, 1, 0))


if __name__ == "__main__":
    unittest.main()
