"""What calls, threads and forks leave in the rings, without torch."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from records_for_testing import CoreCase, Recording  # noqa: E402

# CallFlag of record_format.h
FOREIGN_PARENT, INSIDE_BACKWARD, OUTERMOST = 1, 16, 32


class CallTest(CoreCase):
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

    def test_calls_on_autograds_threads_have_a_foreign_parent(self):
        # Stands in for torch: this thread runs a graph, as engine threads do.
        process = self.record(
            "import threading, time, types\n"
            "torch = sys.modules['torch'] = types.ModuleType('torch')\n"
            "torch.is_grad_enabled, torch.Tensor, torch.strided = bool, type, 1\n"
            "torch.__file__ = '/nowhere/torch/__init__.py'\n"
            "torch._C = types.SimpleNamespace(DisableTorchFunction=object,\n"
            "    _current_graph_task_id=lambda: graph)\n"
            "graph = -1\n"
            "assert core.bind_torch()\n"
            "f = core.wrap(lambda: None, 'm.f', 'other')\n"
            "def on_another_thread():\n"
            "    thread = threading.Thread(target=f)\n"
            "    thread.start()\n"
            "    thread.join()\n"
            "    while len(os.listdir('/proc/self/task')) > 1: time.sleep(0.001)\n"
            "f()\n"
            "back = core.wrap(on_another_thread, 'm.backward', 'backward')\n"
            "back()\n"
            "graph = 7\n"
            "back()\n"
            "on_another_thread()\n",
            TRAINCHECK_LOG="error",  # that torch has no fast way to its tensors
        ).process
        begins = process.of("begin", ring=2)
        foreign = FOREIGN_PARENT | INSIDE_BACKWARD
        self.assertEqual([b.flags & foreign for b in begins], [0, foreign, 0])
        self.assertEqual(begins[1].fields, {2: [1], 3: [3]})

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
        # Those of the two lines, and of the one that calls their function.
        self.assertEqual(len(process.definitions["site"]), 3)

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

    def test_calls_of_generated_code_share_sites(self):
        calls = 1500
        recording = Recording(
            "f = core.wrap(lambda: None, 'm.f', 'x')\n"
            "def run(text, name):\n"
            "    exec(compile(text, name, 'exec'), names)\n"
            "names = {'f': f}\n"
            f"run('def many():\\n' + '  f()\\n' * {calls}, 'big.py')\n"
            "names['many']()\n"
            "names['many']()\n"
            "for _ in range(100): run('f()', 'again.py')\n"
        )
        (line,) = recording.result.stderr.splitlines()
        self.assertIn("more call sites than can be numbered", line)
        process = recording.process
        sites = [process.site(begin) for begin in process.of("begin")]
        self.assertEqual(sites[:1024], [("big.py", 2 + i, "many") for i in range(1024)])
        self.assertEqual(set(sites[1024:calls]), {("big.py", 1, "many")})
        self.assertEqual(sites[calls : 2 * calls], sites[:calls])
        self.assertEqual(set(sites[2 * calls :]), {("again.py", 1, "<module>")})
        # Of the two files, and the lines of their callers.
        self.assertEqual(len(process.definitions["site"]), 1024 + 2 + 3)

    def test_switched_off_is_a_plain_call(self):
        recording = self.record(
            "core.set_recording(False)\n"
            "f = core.wrap(lambda x: x, 'm.f', 'other')\n"
            "assert f(4) == 4\n"
            "core.record_mark(core.MARK_CLEAN_EXIT, 0, 0)\n"
            "assert core.step_optimizer(1) is False\n"
        )
        self.assertEqual(recording.processes, [])


class ProcessTest(CoreCase):
    def test_threads_have_their_own_rings(self):
        process = self.record(
            "import threading, time\n"
            "f = core.wrap(lambda: None, 'm.f', 'x')\n"
            "f()\n"
            "both = threading.Barrier(2)\n"
            "def work():\n"
            "    for _ in range(5): f()\n"
            "    both.wait()\n"
            "threads = [threading.Thread(target=work) for _ in range(2)]\n"
            "for thread in threads: thread.start()\n"
            "for thread in threads: thread.join()\n"
            "while len(os.listdir('/proc/self/task')) > 1: time.sleep(0.001)\n"
        ).process
        self.assertEqual(sorted(process.rings), [0, 1, 2, 3])
        for ring, calls in ((1, 1), (2, 5), (3, 5)):
            self.assertEqual(process.rings[ring][0].type, "clock")
            self.assertEqual(len(process.of("begin", ring=ring)), calls)
            self.assertEqual(process.counters[ring]["closed"], 1)
        self.assertEqual(process.rings[0][0].type, "process")

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

    def test_child_of_a_fork_that_nobody_sees_is_not_recorded(self):
        # What a system call forks runs no handler of the C library or Python.
        recording = Recording(
            "import ctypes\n"
            "fork = lambda: ctypes.CDLL(None).syscall(57)\n"
            "f = core.wrap(lambda: None, 'm.f', 'x')\n"
            "hooked = core.wrap(lambda: None, 'm.g', 'x', before=lambda a, k: None)\n"
            "f()\n"
            "pid = core.wrap(fork, 'm.fork', 'x')()\n"
            "for _ in range(3): f(); hooked()\n"
            "core.record_mark(core.MARK_BATCH_FETCHED, 0, 0)\n"
            "core.step_optimizer(1)\n"
            "core.step_end()\n"
            "core.exit_flush()\n"
            "if pid:\n"
            "    assert os.waitpid(pid, 0)[1] == 0, 'the child died'\n"
            "elif os.fork() == 0:\n"  # seen again
            "    f()\n"
            "    core.exit_flush()\n"
            "    os._exit(0)\n"
            "else:\n"
            "    assert os.wait()[1] == 0\n"
        )
        self.assertEqual(recording.result.returncode, 0, recording.result.stderr)
        (line,) = recording.result.stderr.splitlines()
        self.assertIn("is not recorded", line)
        parent, grandchild = sorted(
            recording.processes, key=lambda p: -len(p.of("begin"))
        )
        self.assertEqual(len(parent.of("begin")), 8)
        self.assertEqual(grandchild.calls(), [("begin", "m.f"), ("end", "m.f")])

    def test_daemon_threads_end_with_the_interpreter(self):
        self.record(
            "import threading, time\n"
            "f = core.wrap(time.sleep, 'm.f', 'x', before=lambda a, k: object())\n"
            "threading.Thread(target=lambda: [f(0.001) for _ in range(10000)],\n"
            "    daemon=True).start()\n"
            "f(0.05)\n"
        )

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

    def test_an_unclean_exit_says_why(self):
        process = self.record(
            "class Odd(KeyboardInterrupt): pass\n"
            "core.record_unclean_exit(RuntimeError('x'))\n"
            "core.record_unclean_exit(Odd())\n"
        ).process
        marks = process.of("mark")
        self.assertEqual([mark.flags for mark in marks], [15, 15])
        self.assertEqual([mark.value for mark in marks], [1, 2])
        names = [mark.fields[32] for mark in marks]
        self.assertEqual(names, [[b"RuntimeError"], [b"__main__.Odd"]])

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


if __name__ == "__main__":
    unittest.main()
