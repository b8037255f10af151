"""What the records of calls tell of arguments and results."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from records_for_testing import TORCH_PRELUDE  # noqa: E402
from records_for_testing import CoreCase, Recording  # noqa: E402

TEXT, DIGEST, AUTOGRAD = 1, 2, 4
# Field of record_format.h: names of values, then values.
ARGUMENT_NAME, PARAMETER, ARGUMENT, ELEMENT, KEY, RETURN = 5, 18, 20, 21, 22, 23
NAMES = (ARGUMENT_NAME, PARAMETER, ARGUMENT, ELEMENT, KEY, RETURN)
SIGNED, DOUBLE, STRING, BOOL, NONE, TENSOR = 7, 8, 9, 10, 11, 12
LENGTH, WORD, OBJECT, TYPE, CUT = 13, 14, 15, 16, 24
KINDS = {SIGNED: "int", DOUBLE: "float", BOOL: "bool", NONE: "none"}
KINDS |= {LENGTH: "length", WORD: "digest", OBJECT: "object"}

FULL = "([('x', 0, 4), ('y', 1, 5)], (2, 5), 4)"


def varints(data):
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield value
            value = shift = 0


def tensor(data):
    """(dtype number, device type, flags, identity, shape)"""
    identity, ndim, *shape = varints(data[5:])
    return data[0], data[1], data[4], identity, tuple(shape)


class ContentCase(CoreCase):
    PRELUDE = TORCH_PRELUDE

    def record(self, code):
        return super().record(code).process

    def told(self, process, record):
        """{name: [(kind, value)]}"""
        parameters = []
        if record.type == "begin":
            function = process.definitions["function"][record.function]
            names = function.fields.get(PARAMETER, [])
            parameters = [process.text(name) for name in names]
        told, name = {}, None
        for number, value in record.listed:
            if number in NAMES:
                name = self.name_of(process, number, value, parameters, name)
                told[name] = []
            elif number == CUT:
                told["cut"] = True
            elif number > 4:
                told[name].append(self.value_of(process, number, value))
        return told

    def name_of(self, process, number, value, parameters, before):
        if number == ARGUMENT:
            return parameters[value]
        if number == RETURN:
            return "return"
        if number in (ELEMENT, KEY):
            before = before.partition("[")[0]
            key = value if number == ELEMENT else process.text(value)
            return f"{before}[{key}]"
        return process.text(value)

    def value_of(self, process, number, value):
        if number == TENSOR:
            return "tensor", tensor(value)
        if number in (STRING, TYPE):
            return {STRING: "text", TYPE: "type"}[number], process.text(value)
        return KINDS[number], value

    def one(self, code, content=FULL, call="f(1, 2)"):
        """(arguments, result) of the first recorded call."""
        process = self.record(
            f"f = core.wrap({code}, 'm.f', 'other')\n"
            f"core.set_content(f, {content})\n{call}\n"
        )
        begin, end = process.of("begin")[0], process.of("end", "raised")[0]
        return self.told(process, begin), self.told(process, end)


class OutputTest(ContentCase):
    def test_a_search_that_leaves_something_out_says_nothing(self):
        process = self.record(
            "nn.Module.__call__ = core.wrap_module_call(nn.Module.__call__)\n"
            "class Net(nn.Module):\n"
            "    def forward(self, what): return what\n"
            "class Output:\n"
            "    def __init__(self, loss): self.loss = loss\n"
            "net = Net()\n"
            "w = nn.Parameter(torch.ones(1))\n"
            "d = w.detach()\n"
            "for value in ([{'loss': w * 2}], {'out': {'loss': w * 2}},\n"
            "              {'many': [d] * 17, 'loss': w * 2},\n"
            "              [{'loss': d}], ((d, 1.5, 'text'), None, True),\n"
            "              Output(w * 2), [Output(w * 2)], [[[w * 2]]],\n"
            "              [d] * 16 + [w * 2], dict.fromkeys(range(17), d)):\n"
            "    net(value)\n"
        )
        flags = [end.flags for end in process.of("end")]
        # Both bits of OutputFlag: found; the second alone: nothing is there.
        self.assertEqual(flags, [3] * 3 + [2] * 2 + [0] * 5)


class ArgumentTest(ContentCase):
    def test_positions_and_keywords_are_parameters(self):
        for call in ("f(1, True)", "f(1, y=True)", "f(y=True, x=1)"):
            arguments, result = self.one("lambda x, y: x", call=call)
            expected = {"x": [("int", 1)], "y": [("bool", 1)]}
            self.assertEqual(arguments, expected, call)
            self.assertEqual(result, {"return": [("int", 1)]})

    def test_a_default_stands_in_the_definition(self):
        process = self.record(
            "f = core.wrap(lambda x, y=0.5, z='mean', u=None, v=(): x, 'm.f', 'other')\n"
            "core.set_content(f, ([('x', 0, 0), ('y', 1, 0, 0.5), ('z', 2, 1, 'mean'),"
            " ('u', 3, 0, None), ('v', 4, 0, ())], None, None))\n"
            "f(-3)\n"
        )
        self.assertEqual(
            self.told(process, process.of("begin")[0]), {"x": [("int", -3)]}
        )
        (definition,) = process.definitions["function"].values()
        listed = [
            (number, process.text(value) if number in (PARAMETER, STRING) else value)
            for number, value in definition.listed[2:]
        ]
        self.assertEqual(
            listed,
            [(PARAMETER, "x"), (PARAMETER, "y"), (DOUBLE, 0.5), (PARAMETER, "z")]
            + [(STRING, "mean"), (PARAMETER, "u"), (NONE, 0), (PARAMETER, "v")],
        )

    def test_what_no_parameter_has(self):
        arguments, _ = self.one(
            "lambda *a, **k: None", call="f(1, 2, 3.5, z=None, api_key='hidden')"
        )
        self.assertEqual(arguments["args[0]"], [("float", 3.5)])
        self.assertEqual(arguments["z"], [("none", 0)])
        self.assertEqual(arguments["api_key"], [("type", "str"), ("length", 6)])

    def test_texts_only_where_they_are_asked_for(self):
        arguments, _ = self.one("lambda x, y: x", call="f('secret', 'a' * 1000)")
        self.assertEqual(arguments["x"], [("type", "str"), ("length", 6)])
        self.assertEqual(arguments["y"], [("text", "a" * 128)])

    def test_texts_of_secrets_are_told_nowhere(self):
        process = self.record(
            "f = core.wrap(lambda api_key, hub_token='hidden', mode='seen':"
            " None, 'm.f', 'other')\n"
            "core.set_content(f, ([('api_key', 0, 1), ('hub_token', 1, 1, 'hidden'),"
            " ('mode', 2, 1, 'seen'), ('other', -1, 0, 'unasked')], None, None))\n"
            "f('concealed')\n"
        )
        told = self.told(process, process.of("begin")[0])
        self.assertEqual(told["api_key"], [("type", "str"), ("length", 9)])
        strings = process.definitions["string"]
        texts = {process.text(number) for number in strings}
        self.assertIn("seen", texts)
        for text in ("hidden", "concealed", "unasked"):
            self.assertNotIn(text, texts)

    def test_constants_of_torch_are_told(self):
        arguments, _ = self.one(
            "lambda x, y: x", call="f(torch.float16, torch.device('cpu'))"
        )
        self.assertEqual(arguments["x"], [("text", "torch.float16")])
        self.assertEqual(arguments["y"], [("text", "cpu")])

    def test_containers_tell_their_first_elements(self):
        arguments, _ = self.one(
            "lambda x, y: x", call="f(list(range(20)), {'lr': 0.1, 'token': 'x'})"
        )
        self.assertEqual(arguments["x"], [("type", "list"), ("length", 20)])
        self.assertEqual(arguments["x[7]"], [("int", 7)])
        self.assertNotIn("x[8]", arguments)
        self.assertEqual(arguments["y[lr]"], [("float", 0.1)])
        self.assertEqual(arguments["y[token]"], [("type", "str"), ("length", 1)])

    def test_objects_by_number_or_class(self):
        process = self.record(
            "class A: pass\n"
            "a = A()\n"
            "f = core.wrap(lambda x, y: None, 'm.f', 'other')\n"
            f"core.set_content(f, {FULL})\n"
            "core.define_object(a, core.OBJECT_OTHER)\n"
            "f(a, A())\n"
        )
        told = self.told(process, process.of("begin")[0])
        self.assertEqual(told["y"], [("type", "__main__.A")])
        self.assertEqual(told["x"], [("object", 1)])

    def test_huge_numbers(self):
        arguments, _ = self.one("lambda x, y: None", call="f(2**70, -2**63)")
        self.assertEqual(arguments["x"], [("float", float(2**70))])
        self.assertEqual(arguments["y"], [("int", -(2**63))])
        # No double stands for these.
        arguments, _ = self.one("lambda x, y: None", call="f(2**1024, -2**1024)")
        self.assertEqual(arguments["x"], [("type", "int")])
        self.assertEqual(arguments["y"], [("type", "int")])

    def test_names_and_classes_are_bounded(self):
        process = self.record(
            "f = core.wrap(lambda x=0, y=0, **k: None, 'm.f', 'other')\n"
            f"core.set_content(f, {FULL})\n"
            "for i in range(6000):\n"
            "    f(**{f'name {i}': type(f'C{i}', (), {})()})\n"
            "f(late=1)\n"
            "f(**{'name 7': 1})\n"
        )
        strings = process.definitions["string"]
        self.assertLess(len(strings), 10_100)
        *_, late, known = process.of("begin")
        self.assertEqual(self.told(process, late), {"cut": True})
        self.assertEqual(self.told(process, known), {"name 7": [("int", 1)]})

    def test_content_is_bounded(self):
        many = "f(*[[float(i)] * 8 for i in range(100)])"
        arguments, _ = self.one("lambda *a: None", call=many)
        self.assertTrue(arguments["cut"])
        self.assertGreater(len(arguments), 20)

    def test_exceptions_and_plans_that_change(self):
        process = self.record(
            "def f(x, y): return 1 / x\n"
            "f = core.wrap(f, 'm.f', 'other')\n"
            f"core.set_content(f, {FULL})\n"
            "try: f(0, 1)\n"
            "except ZeroDivisionError: pass\n"
            "core.set_content(f, None)\n"
            "f(1, 2)\n"
        )
        self.assertEqual(
            [e.type for e in process.of("end", "raised")], ["raised", "end"]
        )
        first, second = process.of("begin")
        self.assertEqual(first.fields[ARGUMENT], [0, 1])
        self.assertEqual(second.listed, [])
        self.assertNotEqual(first.function, second.function)

    def test_no_code_of_the_users_runs(self):
        arguments, _ = self.one(
            "lambda x, y: None",
            call=(
                "class Loud:\n"
                "    def __getattribute__(self, name): raise SystemExit(3)\n"
                "    __len__ = __iter__ = __bool__ = __getattribute__\n"
                "class Odd(torch.Tensor):\n"
                "    @classmethod\n"
                "    def __torch_function__(cls, *a, **k): raise SystemExit(4)\n"
                "f(Loud(), torch.Tensor._make_subclass(Odd, torch.ones(2)))"
            ),
        )
        self.assertEqual(arguments["x"], [("type", "__main__.Loud")])
        self.assertEqual(arguments["y"][0][1][4], (2,))

    def test_malformed_content_raises(self):
        for content in ("1", "([], None)", "([('x',)], None, None)", "([1], None, 1)"):
            recording = Recording(
                "f = core.wrap(len, 'm.f', 'other')\n"
                "try: core.set_content(f, %s)\n"
                "except TypeError: print('refused')\n" % content
            )
            self.assertEqual(recording.result.stdout, "refused\n", content)


class TensorTest(ContentCase):
    def test_type_shape_and_autograd(self):
        arguments, result = self.one(
            "lambda x, y: x.sum() * y",
            call=(
                "w = torch.ones(3, 4, dtype=torch.float64, requires_grad=True)\n"
                "f(w, torch.tensor(True))"
            ),
        )
        ((_, x),), ((_, y),) = arguments["x"], arguments["y"]
        self.assertEqual((x[0], x[1], x[2], x[4]), (7, 0, 1 | 4, (3, 4)))
        self.assertEqual((y[0], y[2], y[4]), (11, 4, ()))
        ((_, sum_),) = result["return"]
        self.assertEqual((sum_[2], sum_[4]), (1 | 2 | 4, ()))

    def test_identity_is_of_the_storage(self):
        process = self.record(
            "f = core.wrap(lambda x, y: None, 'm.f', 'other')\n"
            f"core.set_content(f, {FULL})\n"
            "a = torch.ones(6)\n"
            "f(a, a.view(2, 3)[1])\n"
            "f(a.data, a.clone())\n"
            "for _ in range(6000): f(torch.ones(2), torch.ones(3))\n"
            "f(a, a.detach())\n"
            "assert core.storage_key(a) == 1, core.storage_key(a)\n"
        )
        told = [self.told(process, begin) for begin in process.of("begin")]
        pairs = [(t["x"][0][1][3], t["y"][0][1][3]) for t in told]
        self.assertEqual(pairs[0], (1, 1))
        self.assertEqual(pairs[1][0], 1)
        self.assertEqual(pairs[-1], (1, 1))
        others = [number for pair in pairs[2:-1] for number in pair]
        self.assertEqual(len(set(others)), len(others))

    def test_memory_is_freed_as_without_us(self):
        self.record(
            "import resource\n"
            "f = core.wrap(lambda x, y: None, 'm.f', 'other')\n"
            f"core.set_content(f, {FULL})\n"
            "for _ in range(200): f(torch.ones(1 << 20), 1)\n"
            "peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10\n"
            "size = int(open('/proc/self/statm').read().split()[1]) >> 8\n"
            "assert peak < 700 and size < 700, (peak, size)\n"
        )

    def test_digests_of_content(self):
        process = self.record(
            "f = core.wrap(lambda x, y: y, 'm.f', 'other')\n"
            "core.set_content(f, ([('x', 0, 2), ('y', 1, 0)], None, 2))\n"
            "a = torch.arange(6.).reshape(2, 3)\n"
            "f(a, a.t().contiguous().t())\n"
        )
        told = self.told(process, process.of("begin")[0])
        result = self.told(process, process.of("end")[0])
        self.assertEqual([kind for kind, _ in told["y"]], ["tensor"])
        self.assertEqual(told["x"][1], result["return"][1])


if __name__ == "__main__":
    unittest.main()
