"""Where the system gives too little: recording is off, the program goes on."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from records_for_testing import Recording  # noqa: E402

PROGRAM = """
f = core.wrap(lambda x: x + 1, 'm.f', 'x')
import threading
threads = [threading.Thread(target=f, args=(1,)) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
for i in range(100): assert f(i) == i + 1
core.record_mark(core.MARK_BATCH_FETCHED, 0, 0)
core.exit_flush()
print("done")
"""
# A seccomp filter: system call `number` fails with `error`. x86-64 numbers.
DENY = """
import ctypes, struct
def deny(number, error):
    BPF_LD_W_ABS, BPF_JEQ, BPF_RET, ALLOW, ERRNO = 0x20, 0x15, 0x06, 0x7FFF0000, 0x50000
    program = b"".join(struct.pack("HBBI", *line) for line in (
        (BPF_LD_W_ABS, 0, 0, 0), (BPF_JEQ, 0, 1, number),
        (BPF_RET, 0, 0, ERRNO | error), (BPF_RET, 0, 0, ALLOW)))
    buffer = ctypes.create_string_buffer(program)
    filters = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", 4, ctypes.addressof(buffer)))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.byref(filters), 0, 0) == 0, ctypes.get_errno()
"""


def limited(resource, soft):
    return (
        "import resource\n"
        f"hard = resource.getrlimit(resource.RLIMIT_{resource})[1]\n"
        f"resource.setrlimit(resource.RLIMIT_{resource}, ({soft}, hard))\n"
    )


class LimitsTest(unittest.TestCase):
    def run_under(self, setup):
        recording = Recording(setup + PROGRAM)
        self.assertEqual(recording.result.returncode, 0, recording.result.stderr)
        self.assertEqual(recording.result.stdout, "done\n")
        return recording

    def assert_off(self, recording, why):
        (line,) = recording.result.stderr.splitlines()
        self.assertIn("recording is off", line)
        self.assertIn(why, line)

    def test_no_descriptor(self):
        for free in (0, 1, 2):
            with self.subTest(free=free):
                recording = self.run_under(
                    "import threading\n"
                    "low = max(map(int, os.listdir('/proc/self/fd')))\n"
                    + limited("NOFILE", f"low + {free}")
                )
                self.assert_off(recording, "Too many open files")

    def test_few_descriptors(self):
        for limit in (24, 64, 128, 300):
            with self.subTest(limit=limit):
                recording = self.run_under(limited("NOFILE", limit))
                self.assertEqual(recording.result.stderr, "")
                counters = recording.process.counters
                begins = [
                    b
                    for ring in counters
                    for b in recording.process.of("begin", ring=ring)
                ]
                self.assertEqual(len(begins), 103)

    def test_no_locked_memory(self):
        recording = self.run_under(limited("MEMLOCK", 0))
        self.assertEqual(recording.result.stderr, "")
        self.assertGreater(len(recording.process.of("begin")), 0)

    def test_no_large_files(self):
        self.assert_off(self.run_under(limited("FSIZE", 4096)), "File too large")

    def test_no_address_space(self):
        recording = self.run_under(
            "import threading\n"
            "threading.stack_size(64 * 1024)\n"
            "pages = int(open('/proc/self/statm').read().split()[0])\n"
            + limited("AS", "pages * 4096 + (1 << 20)")
        )
        self.assert_off(recording, "Cannot allocate memory")

    def test_system_calls_that_are_not_allowed(self):
        enosys, eperm = 38, 1
        for name, number, error, why in (
            ("memfd_create", 319, enosys, "Function not implemented"),
            ("memfd_create", 319, eperm, "Operation not permitted"),
            ("socket", 41, eperm, "Operation not permitted"),
            ("bind", 49, eperm, "Operation not permitted"),
            ("clone", 56, eperm, "Operation not permitted"),
            ("execve", 59, eperm, "Operation not permitted"),
        ):
            with self.subTest(name=name, error=error):
                setup = DENY + f"deny({number}, {error})\n"
                if name == "clone":  # pthread_create uses clone3 or clone
                    setup += "import threading\n"
                recording = self.run_under(setup)
                self.assert_off(recording, why)


if __name__ == "__main__":
    unittest.main()
