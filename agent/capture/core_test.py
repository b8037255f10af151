"""The core without torch: wrappers, rings, the relay's start, forks, threads."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from records_for_testing import CORE, Recording  # noqa: E402

# CallFlag of record_format.h
INSIDE_BACKWARD, OUTERMOST = 16, 32


class CoreTest(unittest.TestCase):
    def record(self, code, **options):
        recording = Recording(code, **options)
        self.assertEqual(recording.result.returncode, 0, recording.result.stderr)
        self.assertEqual(recording.result.stderr, "")
        return recording


class WrapperTest(CoreTest):
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


class CallTest(CoreTest):
    def test_calls_nest(self):
        process = self.record(
            "def f(n): return g(n - 1) if n else 0\n"
            "g = core.wrap(f, 'm.f', 'other', ['b.f'])\n"
            "h = core.wrap(lambda: g(1), 'm.h', 'other')\n"
            "h()\n"
            "h()\n"
        ).process
        names = [name for _, name in process.calls()]
        self.assertEqual(names, ["m.h", "m.f", "m.f", "m.f", "m.f", "m.h"] * 2)
        begins = process.of("begin")
        self.assertEqual([begin.call for begin in begins], [1, 2, 3, 4, 5, 6])
        self.assertEqual([begin.distance for begin in begins], [0, 1, 1, 0, 1, 1])
        self.assertEqual([end.call for end in process.of("end")], [3, 2, 1, 6, 5, 4])
        roles = process.definitions["function"][begins[1].function].fields[35]
        self.assertEqual([process.text(role) for role in roles], ["b.f"])

    def test_exceptions_pass_and_are_recorded(self):
        process = self.record(
            "class Odd(BaseException): pass\n"
            "error = Odd('x')\n"
            "def f(): raise error\n"
            "f = core.wrap(f, 'm.f', 'other')\n"
            "outer = core.wrap(lambda: f(), 'm.outer', 'other')\n"
            "try:\n"
            "    outer()\n"
            "except Odd as caught:\n"
            "    assert caught is error and caught.__context__ is None\n"
            "try:\n"
            "    raise KeyError('first')\n"
            "except KeyError:\n"
            "    try:\n"
            "        core.wrap(lambda: 1 / 0, 'm.zero', 'other')()\n"
            "    except ZeroDivisionError as caught:\n"
            "        assert isinstance(caught.__context__, KeyError)\n"
            "    assert isinstance(sys.exc_info()[1], KeyError)\n"
        ).process
        raised = process.of("raised")
        self.assertEqual(
            [process.text(record.fields[4][0]) for record in raised],
            ["__main__.Odd", "__main__.Odd", "ZeroDivisionError"],
        )
        self.assertEqual([record.call for record in raised], [2, 1, 3])

    def test_generators_and_coroutines_keep_the_stack(self):
        process = self.record(
            "def numbers(): yield from range(3)\n"
            "numbers = core.wrap(numbers, 'm.numbers', 'other')\n"
            "one = core.wrap(lambda x: x, 'm.one', 'other')\n"
            "assert [one(x) for x in numbers()] == [0, 1, 2]\n"
        ).process
        self.assertTrue(all(begin.distance == 0 for begin in process.of("begin")))

    def test_outermost_is_by_category_and_object(self):
        process = self.record(
            "class A:\n"
            "    def step(self): pass\n"
            "class B(A):\n"
            "    def step(self, other=None):\n"
            "        super().step()\n"
            "        if other: A.step(other)\n"
            "A.step = core.wrap(A.step, 'A.step', 'step')\n"
            "B.step = core.wrap(B.step, 'B.step', 'step')\n"
            "B().step(A())\n"
        ).process
        flags = [begin.flags & OUTERMOST for begin in process.of("begin")]
        self.assertEqual(flags, [OUTERMOST, 0, OUTERMOST])

    def test_calls_inside_backward_are_marked(self):
        process = self.record(
            "f = core.wrap(lambda: None, 'm.f', 'other')\n"
            "back = core.wrap(lambda: f(), 'm.backward', 'backward')\n"
            "back()\n"
            "f()\n"
        ).process
        flags = [begin.flags & INSIDE_BACKWARD for begin in process.of("begin")]
        self.assertEqual(flags, [0, INSIDE_BACKWARD, 0])

    def test_sites_are_the_users_lines(self):
        process = self.record(
            "import json\n"
            "class Odd:\n"
            "    pass\n"
            "f = core.wrap(lambda o: 'x', 'm.f', 'other')\n"
            "def user():\n"
            "    for _ in range(3): f(1)\n"
            "    json.dumps(Odd(), default=f)\n"
            "user()\n"
        ).process
        sites = [process.site(begin) for begin in process.of("begin")]
        lines = [line for _, line, _ in sites]
        self.assertEqual({(s[0], s[2]) for s in sites}, {("script.py", "user")})
        self.assertEqual(lines[0], lines[2])
        self.assertEqual(len(process.definitions["site"]), 2)

    def test_objects_have_numbers(self):
        process = self.record(
            "class Net: \n"
            "    def f(self): pass\n"
            "Net.f = core.wrap(Net.f, 'Net.f', 'other')\n"
            "net = Net()\n"
            "number = core.define_object(net, core.OBJECT_MODULE, 'layer', 3)\n"
            "assert core.object_id(net) == number != 0\n"
            "assert core.define_object(net, core.OBJECT_MODULE, 'layer', 3) == number\n"
            "net.f()\n"
            "Net().f()\n"
            "del net\n"
            "for _ in range(100): assert core.object_id(Net()) == 0\n"
            "assert core.object_id(5) == 0\n"
            "assert core.define_object(5, core.OBJECT_OTHER) == 0\n"
        ).process
        objects = [r for r in process.rings[0] if r.type == "object"]
        self.assertEqual(len(objects), 1)
        self.assertEqual(process.text(objects[0].fields[39][0]), "__main__.Net")
        self.assertEqual(process.text(objects[0].fields[42][0]), "layer")
        begins = process.of("begin")
        self.assertEqual(begins[0].fields[1], [objects[0].id])
        self.assertEqual(begins[1].fields, {})

    def test_switched_off_is_a_plain_call(self):
        recording = self.record(
            "core.set_recording(False)\n"
            "f = core.wrap(lambda x: x, 'm.f', 'other')\n"
            "assert f(4) == 4\n"
            "core.record_mark(core.MARK_CLEAN_EXIT, 0, 0)\n"
            "assert core.step_optimizer(1) is False\n"
        )
        self.assertEqual(recording.processes, [])


class HookTest(CoreTest):
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


class ProcessTest(CoreTest):
    def test_threads_have_their_own_rings(self):
        process = self.record(
            "import threading, time\n"
            "f = core.wrap(lambda: None, 'm.f', 'x')\n"
            "f()\n"
            "for _ in range(2):\n"
            "    thread = threading.Thread(target=lambda: [f() for _ in range(5)])\n"
            "    thread.start()\n"
            "    thread.join()\n"
            "while len(os.listdir('/proc/self/task')) > 1: time.sleep(0.001)\n"
        ).process
        self.assertEqual(sorted(process.rings), [0, 1, 2, 3])
        for ring, calls in ((1, 1), (2, 5), (3, 5)):
            self.assertEqual(process.rings[ring][0].type, "clock")
            self.assertEqual(len(process.of("begin", ring=ring)), calls)
            self.assertEqual(process.counters[ring]["closed"], 1)
        self.assertEqual(process.rings[0][0].type, "process")

    def test_more_threads_than_rings(self):
        recording = Recording(
            "import threading\n"
            "f = core.wrap(lambda: None, 'm.f', 'x')\n"
            "for _ in range(70):\n"
            "    thread = threading.Thread(target=f)\n"
            "    thread.start()\n"
            "    thread.join()\n"
            "core.exit_flush()\n"
        )
        self.assertEqual(recording.result.returncode, 0, recording.result.stderr)
        self.assertIn("more threads than rings", recording.result.stderr)
        self.assertEqual(len(recording.process.rings), 64)

    def test_forked_child_has_its_own_stream(self):
        recording = self.record(
            "f = core.wrap(lambda: None, 'm.f', 'x')\n"
            "def fork():\n"
            "    f()\n"
            "    pid = os.fork()\n"
            "    if pid == 0: f(); f()\n"
            "    return pid\n"
            "pid = core.wrap(fork, 'm.fork', 'x')()\n"
            "if pid == 0:\n"
            "    f()\n"
            "    core.exit_flush()\n"
            "    os._exit(0)\n"
            "os.waitpid(pid, 0)\n"
            "f()\n"
            "core.exit_flush()\n"
        )
        self.assertEqual(len(recording.relays), 1)
        parent, child = sorted(recording.processes, key=lambda p: p.calls()[0][1])[::-1]
        self.assertEqual(
            [name for _, name in parent.calls()],
            ["m.fork", "m.f", "m.f", "m.fork", "m.f", "m.f"],
        )
        self.assertEqual([name for _, name in child.calls()], ["m.f"] * 6)
        self.assertEqual([begin.call for begin in child.of("begin")], [1, 2, 3])
        (me,) = child.definitions["process"].values()
        (owner,) = parent.definitions["process"].values()
        self.assertEqual(me.fields[80], [owner.id])  # owner's pid
        self.assertEqual(me.fields[81], owner.fields[66])  # its start
        self.assertEqual(me.fields[70], owner.fields[70])  # the run
        for process in (parent, child):
            for counters in process.counters.values():
                self.assertEqual(counters["offered"], counters["committed"])

    def test_child_of_a_process_that_recorded_nothing_starts_its_own_relay(self):
        recording = self.record(
            "f = core.wrap(lambda: None, 'm.f', 'x')\n"
            "if os.fork() == 0:\n"
            "    f()\n"
            "    core.exit_flush()\n"
            "    os._exit(0)\n"
            "os.wait()\n"
        )
        self.assertEqual(len(recording.process.calls()), 2)

    def test_process_kind_is_written_again(self):
        process = self.record(
            "core.set_process_kind(core.PROCESS_MAIN)\n"
            "core.set_process_kind(core.PROCESS_MAIN)\n"
            "core.record_mark(core.MARK_CLEAN_EXIT, 0, 0)\n"
        ).process
        kinds = [r.fields[68] for r in process.rings[0] if r.type == "process"]
        self.assertEqual(kinds, [[3], [1]])

    def test_steps_close_with_a_mark_and_a_clock(self):
        process = self.record(
            "core.step_backward()\n"
            "assert core.step_optimizer(1) is False\n"
            "assert core.step_training_forward() is True\n"
            "assert core.step_optimizer(1) is False\n"
            "assert core.step_end() is True and core.step_end() is False\n"
        ).process
        kinds = [record.type for record in process.rings[1]]
        self.assertEqual(kinds, ["clock", "mark", "clock", "mark", "clock"])
        self.assertEqual([mark.value for mark in process.of("mark")], [0, 1])


class RelayTest(CoreTest):
    START = "core.wrap(lambda: None, 'm.f', 'x')()\n"

    def test_starts_where_nobody_sees_it(self):
        recording = self.record(
            "import signal\n"
            "seen = []\n"
            "signal.signal(signal.SIGCHLD, lambda *args: seen.append(args))\n"
            "signal.signal(signal.SIGUSR1, signal.SIG_IGN)\n"
            "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
            + self.START
            + "assert signal.pthread_sigmask(0, []) == {signal.SIGTERM}\n"
            "try:\n"
            "    os.waitpid(-1, os.WNOHANG)\n"
            "    raise SystemExit('there is a child')\n"
            "except ChildProcessError:\n"
            "    pass\n"
            "core.exit_flush()\n"
            "assert not seen\n",
            LD_PRELOAD="libc.so.6",
            ORDINARY="value",
        )
        (relay,) = recording.relays
        self.assertNotIn("LD_PRELOAD", relay["environment"])
        self.assertEqual(relay["environment"]["ORDINARY"], "value")
        pid = recording.process.rings[0][0].id
        self.assertEqual(relay["environment"]["TRAINCHECK_OWNER_PID"], str(pid))
        self.assertTrue(relay["session"])
        self.assertEqual(relay["stdout"], "/dev/null")
        self.assertEqual(relay["mask"], [])

    def test_inherits_no_descriptor(self):
        recording = self.record(
            "files = [os.dup(1) for _ in range(20)]\n"
            "for file in files: os.set_inheritable(file, True)\n" + self.START
        )
        self.assertEqual(recording.relays[0]["fds"][:5], [0, 1, 2, 3, 4])
        self.assertLess(max(recording.relays[0]["fds"]), 12)

    def test_absent_relay_is_one_line(self):
        recording = Recording(self.START * 3, with_relay=False)
        self.assertEqual(recording.result.returncode, 0)
        (line,) = recording.result.stderr.splitlines()
        self.assertIn("recording is off", line)
        self.assertIn("traincheck-relay", line)

    def test_exit_waits_for_a_relay_that_lags(self):
        recording = self.record(
            "import threading, time\n"
            "hold = os.path.join(os.environ['TRAINCHECK_TEST_OUT'], 'hold')\n"
            "open(hold, 'w').close()\n"
            + self.START
            + "threading.Timer(0.3, os.remove, [hold]).start()\n"
            "start = time.monotonic()\n"
            "core.exit_flush()\n"
            "assert 0.2 < time.monotonic() - start < 1.5\n"
        )
        self.assertEqual(len(recording.process.calls()), 2)

    def test_exit_waits_as_long_as_it_may(self):
        self.record(
            "import time\n"
            "hold = os.path.join(os.environ['TRAINCHECK_TEST_OUT'], 'hold')\n"
            "open(hold, 'w').close()\n" + self.START + "start = time.monotonic()\n"
            "core.exit_flush()\n"
            "assert 0.2 < time.monotonic() - start < 1.5\n",
            TRAINCHECK_EXIT_WAIT="0.25",
        )

    KILL = (
        "import json, signal, time\n"
        "out = os.environ['TRAINCHECK_TEST_OUT']\n"
        "def relay():\n"
        "    for name in os.listdir(out):\n"
        "        if name.startswith('relay.'): return int(name.split('.')[1])\n"
        "while not relay(): time.sleep(0.01)\n"
        "os.kill(relay(), signal.SIGKILL)\n"
        "while os.path.exists(f'/proc/{relay()}/fd/3'): time.sleep(0.01)\n"
    )

    def test_dead_relay_holds_nobody_up(self):
        self.record(
            self.START + self.KILL + "f = core.wrap(lambda: None, 'm.f', 'x')\n"
            "for _ in range(200000): f()\n"
            "start = time.monotonic()\n"
            "core.exit_flush()\n"
            "assert time.monotonic() - start < 1\n"
        )

    def test_full_rings_drop_and_count(self):
        process = self.record(
            "hold = os.path.join(os.environ['TRAINCHECK_TEST_OUT'], 'hold')\n"
            "open(hold, 'w').close()\n"
            "f = core.wrap(lambda: None, 'm.f', 'x')\n"
            "for _ in range(200000): f()\n"
            "os.remove(hold)\n"
            "core.exit_flush()\n"
            "f()\n"
            "core.exit_flush()\n"
        ).process
        counters = process.counters[1]
        self.assertGreater(counters["dropped"], 100000)
        self.assertEqual(
            counters["offered"], counters["committed"] + counters["dropped"]
        )
        (drops,) = process.of("drops")
        self.assertEqual(drops.dropped, counters["dropped"])
        self.assertEqual(process.calls()[-1], ("end", "m.f"))

    def test_program_that_closes_all_files_keeps_them(self):
        self.record(
            self.START + "os.closerange(3, 1024)\n"
            "mine = [os.open('/dev/null', os.O_RDONLY) for _ in range(120)]\n"
            "import threading\n"
            "f = core.wrap(lambda: None, 'm.f', 'x')\n"
            "thread = threading.Thread(target=f)\n"
            "thread.start()\n"
            "thread.join()\n"
            "core.exit_flush()\n"
            "if os.fork() == 0:\n"
            "    for fd in mine: os.fstat(fd)\n"
            "    os._exit(0)\n"
            "assert os.wait()[1] == 0\n"
        )


if __name__ == "__main__":
    unittest.main()
