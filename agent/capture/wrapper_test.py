"""Wrappers and the hooks around them, without torch."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from records_for_testing import CoreCase, Recording  # noqa: E402


class WrapperTest(CoreCase):
    """What a wrapper shows of the function below it. One process for all."""

    def check(self, code):
        self.record(
            "import copy, functools, inspect, pickle, types, weakref\n"
            "def plain(a, b=2, *, c=3):\n"
            "    'doc'\n"
            "    return a, b, c\n"
            "original = plain\n"
            "plain = core.wrap(plain, 'm.plain', 'other')\n" + code
        )

    def test_passes_arguments_and_results(self):
        self.check(
            "assert plain(1) == (1, 2, 3)\n"
            "assert plain(1, 5, c=6) == (1, 5, 6)\n"
            "assert plain(*[1], **{'b': 7}) == (1, 7, 3)\n"
            "try:\n"
            "    plain()\n"
            "except TypeError as error:\n"
            "    assert 'missing 1 required' in str(error)\n"
        )

    def test_looks_like_the_function(self):
        self.check(
            "assert plain.__name__ == 'plain' and plain.__doc__ == 'doc'\n"
            "assert plain.__qualname__ == 'plain'\n"
            "assert plain.__module__ == '__main__'\n"
            "assert plain.__wrapped__ is original\n"
            "assert plain.__class__ is types.FunctionType\n"
            "assert inspect.isfunction(plain)\n"
            "assert inspect.signature(plain) == inspect.signature(original)\n"
            "assert inspect.getsource is not None\n"
            "assert plain.__code__ is original.__code__\n"
            "assert plain.__defaults__ == (2,)\n"
            "assert repr(plain) == repr(original)\n"
            "assert functools.wraps(plain)(lambda: 0).__name__ == 'plain'\n"
        )

    def test_equals_the_function_in_tables(self):
        self.check(
            "assert plain == original and original == plain\n"
            "assert not plain != original\n"
            "assert {original: 1}[plain] == 1 and {plain: 1}[original] == 1\n"
            "assert plain != len\n"
        )

    def test_exceptions_of_handlers_arrive_out_of_what_the_core_asks(self):
        self.check(
            "import signal\n"
            "class Timeout(Exception): pass\n"
            "def expire(number, frame): raise Timeout\n"
            "signal.signal(signal.SIGUSR1, expire)\n"
            "class Interrupted(Exception):\n"
            "    @property\n"
            "    def __traceback__(self):\n"
            "        signal.raise_signal(signal.SIGUSR1)\n"
            "arrived = 0\n"
            "for _ in range(100):\n"
            "    try:\n"
            "        core.is_users(Interrupted())\n"
            "    except Timeout:\n"
            "        arrived += 1\n"
            "assert arrived == 100, arrived\n"
            "assert not core.is_users(AttributeError())\n"
        )

    def test_takes_attributes_and_weak_references(self):
        self.check(
            "plain.mark = 5\n"
            "assert plain.mark == 5 and not hasattr(original, 'mark')\n"
            "plain.__name__ = 'other'\n"
            "assert plain.__name__ == 'other' and original.__name__ == 'plain'\n"
            "original.seen = 6\n"
            "assert plain.seen == 6\n"
            "assert not hasattr(plain, 'nothing')\n"
            "reference = weakref.ref(plain)\n"
            "assert reference() is plain\n"
            "del plain\n"
            "assert reference() is None\n"
        )

    def test_pickles_and_copies(self):
        self.check(
            "assert pickle.loads(pickle.dumps(plain)) is plain\n"
            "assert copy.deepcopy(plain) is plain and copy.copy(plain) is plain\n"
            "assert copy.deepcopy({'f': plain})['f'] is plain\n"
        )

    def test_binds_as_a_method(self):
        self.check(
            "class Base:\n"
            "    def m(self, x=1): return self, x\n"
            "    @classmethod\n"
            "    def c(cls): return cls\n"
            "class Derived(Base):\n"
            "    def m(self, x=1): return super().m(x + 1)\n"
            "Base.m = core.wrap(Base.m, 'Base.m', 'method')\n"
            "Derived.m = core.wrap(Derived.m, 'Derived.m', 'method')\n"
            "Base.c = classmethod(core.wrap(Base.__dict__['c'].__func__, 'c', 'c'))\n"
            "d = Derived()\n"
            "assert d.m() == (d, 2) and d.m(x=4) == (d, 5)\n"
            "assert Derived.m(d) == (d, 2)\n"
            "assert inspect.ismethod(d.m) and d.m.__self__ is d\n"
            "assert d.m.__func__ is Derived.__dict__['m']\n"
            "assert str(inspect.signature(d.m)) == '(x=1)'\n"
            "assert Derived.c() is Derived\n"
            "bound = functools.partial(d.m, 3)\n"
            "assert bound() == (d, 4)\n"
        )

    def test_is_wrapper(self):
        self.check(
            "assert core.is_wrapper(plain) and not core.is_wrapper(original)\n"
            "assert not core.is_wrapper(None)\n"
        )

    def test_c_functions_do_not_become_methods(self):
        self.check(
            "size = core.wrap(len, 'm.len', 'other')\n"
            "class Holds: count = size\n"
            "assert Holds().count([1, 2]) == 2 and core.is_wrapper(size)\n"
            "assert inspect.isbuiltin(size) and pickle.loads(pickle.dumps(size)) is len\n"
            "upper = core.wrap(str.__dict__['upper'], 'm.upper', 'other')\n"
            "class Text(str): shout = upper\n"
            "assert Text('a').shout() == 'A' and inspect.ismethoddescriptor(upper)\n"
            "assert pickle.loads(pickle.dumps(upper)) is str.__dict__['upper']\n"
        )

    def test_what_no_name_leads_to_is_pickled_as_the_function(self):
        self.check(
            "def handed(): return 1\n"
            "wrapper = core.wrap(handed, 'm.handed', 'other')\n"
            "assert pickle.loads(pickle.dumps(wrapper)) is handed\n"
        )

    def test_cannot_be_made_by_hand(self):
        self.check(
            "try:\n"
            "    type(plain)()\n"
            "    raise SystemExit('made')\n"
            "except TypeError:\n"
            "    pass\n"
        )

    def test_does_not_leak(self):
        self.check(
            "import gc, sys\n"
            "class Big: pass\n"
            "def cycle():\n"
            "    big = Big()\n"
            "    def fn(x): return big, inner[0]\n"
            "    inner = [core.wrap(fn, 'm.fn', 'x', before=lambda a, k: big)]\n"
            "    inner[0](1)\n"
            "    return weakref.ref(big)\n"
            "reference = cycle()\n"
            "gc.collect()\n"
            "assert reference() is None\n"
            "argument = object()\n"
            "hooked = core.wrap(original, 'm.h', 'x', before=lambda a, k: a,\n"
            "    after=lambda t, a, k, r, e: None)\n"
            "before = sys.getrefcount(argument)\n"
            "for _ in range(1000): plain(argument); hooked(argument, b=argument)\n"
            "assert sys.getrefcount(argument) == before\n"
        )


class SwitchTest(CoreCase):
    def test_details_are_switched_and_say_so(self):
        process = self.record(
            "def make(name, **more):\n"
            "    return core.wrap(lambda: None, name, 'x', **more)\n"
            "a, b = make('m.a', detail=True), make('m.b', detail=True)\n"
            "kept = make('m.kept')\n"
            "for wrapper in (a, b, kept):\n"
            "    core.switch(wrapper, False)\n"
            "    core.tell_switch(wrapper)\n"
            "a(); b(); kept()\n"
            "core.switch(a, True)\n"
            "core.tell_switch(a)\n"
            "a(); b()\n"
        ).process
        names = [name for kind, name in process.calls() if kind == "begin"]
        self.assertEqual(names, ["m.kept", "m.a"])
        on, off = 12, 13
        told = [
            (mark.flags, process.function_name(mark.value))
            for mark in process.of("mark")
        ]
        self.assertEqual(
            told, [(off, "m.a"), (off, "m.b"), (on, "m.kept"), (on, "m.a")]
        )

    def test_a_detail_has_a_site_where_user_code_calls_it(self):
        process = self.record(
            "import functools\n"
            "f = core.wrap(lambda *a: 0, 'm.f', 'x', detail=True)\n"
            "f()\n"
            "exec(compile('g = lambda: f()', os.__file__, 'exec'))\n"
            "g()\n"
        ).process
        sites = [begin.site != 0 for begin in process.of("begin")]
        self.assertEqual(sites, [True, False])


class HookTest(CoreCase):
    def test_hooks_see_the_call(self):
        self.record(
            "log = []\n"
            "def before(args, kwargs):\n"
            "    log.append((args, kwargs))\n"
            "    return 'token'\n"
            "def after(token, args, kwargs, result, error):\n"
            "    log.append((token, args, kwargs, result, error))\n"
            "f = core.wrap(lambda a, b=0: a + b, 'm.f', 'x', (), before, after)\n"
            "assert f(1, b=2) == 3\n"
            "assert log == [((1,), {'b': 2}), ('token', (1,), {'b': 2}, 3, None)]\n"
            "del log[:]\n"
            "error = ValueError('x')\n"
            "def bad(): raise error\n"
            "try:\n"
            "    core.wrap(bad, 'm.bad', 'x', after=after)()\n"
            "except ValueError as caught:\n"
            "    assert caught is error\n"
            "assert log == [(None, (), {}, None, error)]\n"
        )

    def test_records_of_hooks_lie_inside_the_call(self):
        process = self.record(
            "def mark(*args): core.record_mark(core.MARK_BATCH_FETCHED, 0, 0)\n"
            "core.wrap(lambda: None, 'm.f', 'x', (), mark, mark)()\n"
        ).process
        kinds = [record.type for record in process.rings[1]]
        self.assertEqual(kinds, ["clock", "begin", "mark", "mark", "end"])

    def test_hooks_run_for_outermost_calls_only(self):
        self.record(
            "log = []\n"
            "def f(n, depth): return g(n, depth - 1) if depth else n\n"
            "hook = lambda args, kwargs: log.append(args)\n"
            "g = core.wrap(f, 'm.f', 'x', before=hook)\n"
            "one = object()\n"
            "g(one, 3)\n"
            "assert log == [(one, 3)]\n"
            "g = core.wrap(f, 'm.f', 'x', before=hook, outermost_only=False)\n"
            "g(one, 2)\n"
            "assert len(log) == 4\n"
        )

    def test_what_hooks_call_is_not_recorded(self):
        process = self.record(
            "inner = core.wrap(lambda: None, 'm.inner', 'x')\n"
            "hook = lambda *args: inner()\n"
            "core.wrap(lambda: inner(), 'm.f', 'x', (), hook, hook)()\n"
        ).process
        names = [name for _, name in process.calls()]
        self.assertEqual(names, ["m.f", "m.inner", "m.inner", "m.f"])

    def test_failing_hooks_are_logged_once_and_nothing_else(self):
        recording = Recording(
            "def bad(*args): raise ValueError('of the hook')\n"
            "f = core.wrap(lambda x: x, 'm.f', 'x', (), bad, bad)\n"
            "assert f(1) == 1 and f(2) == 2\n"
            "def raises(): raise KeyError('user')\n"
            "try:\n"
            "    core.wrap(raises, 'm.r', 'x', (), bad, bad)()\n"
            "except KeyError as error:\n"
            "    assert error.args == ('user',) and error.__context__ is None\n"
        )
        self.assertEqual(recording.result.returncode, 0, recording.result.stderr)
        lines = recording.result.stderr.splitlines()
        self.assertEqual(len(lines), 2, lines)
        self.assertIn("ValueError: of the hook", lines[0])

    def test_interrupts_that_arrive_in_a_hook_are_the_users(self):
        for where in ("before", "after"):
            with self.subTest(where=where):
                self.record(
                    "def interrupt(*args): raise KeyboardInterrupt\n"
                    f"f = core.wrap(lambda: 1, 'm.f', 'x', {where}=interrupt)\n"
                    "try:\n"
                    "    f()\n"
                    "except KeyboardInterrupt:\n"
                    "    pass\n"
                    "else:\n"
                    "    raise AssertionError('swallowed')\n"
                )


if __name__ == "__main__":
    unittest.main()
