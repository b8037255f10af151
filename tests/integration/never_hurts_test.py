"""A watched training does what it does unwatched, whatever it does and wherever.

Same output, same exit code, same numbers, and on stderr nothing but lines of
ours. Each case also shows that the agent was there, or says that it was not.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import unittest

import harness

AWKWARD = harness.SCRIPTS / "awkward.py"
PRELOAD = "libtraincheck_agent.so"
CORE = "libtraincheck_agent_core.so"
RELAY = "traincheck-relay"
QUICK = pathlib.Path("tests/quick").resolve()

OPTIONS = (
    ("-I", "-X", "faulthandler", "-u"),
    ("-W", "error::ResourceWarning", "-W", "error::RuntimeWarning"),
    ("-E", "-P", "-s", "-OO", "-B"),
)
if "TRAINCHECK_EACH_OPTION" in os.environ:
    # Slow: torch is compiled anew for -O, and each allocation of its import is kept.
    OPTIONS = (*OPTIONS, ("-O",), ("-X", "tracemalloc"))


# As allocators, profilers and fakers of time are: stands before functions of the C
# library that we call too. Says at the end of each process how often it was asked.
OTHERS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static atomic_long asked[3];
void* __libc_malloc(size_t);
void* malloc(size_t size) {
  ++asked[0];
  return __libc_malloc(size);
}
int clock_gettime(clockid_t clock, struct timespec* now) {
  static int (*next)(clockid_t, struct timespec*);
  if (next == NULL) *(void**)&next = dlsym(RTLD_NEXT, "clock_gettime");
  ++asked[1];
  return next(clock, now);
}
int close(int fd) {
  static int (*next)(int);
  if (next == NULL) *(void**)&next = dlsym(RTLD_NEXT, "close");
  ++asked[2];
  return next(fd);
}
__attribute__((destructor)) static void tell(void) {
  char line[100];
  int size = snprintf(line, sizeof line, "%%ld %%ld %%ld\n", asked[0], asked[1],
                      asked[2]);
  int fd = open("%s", O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (write(fd, line, size) != size) abort();
  close(fd);
}
"""


def ours(line: str) -> bool:
    return line.startswith("traincheck: ") or " traincheck-relay: " in line


def can(*command: str) -> bool:
    """May this user do that here? Sandboxes and containers differ."""
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return done.returncode == 0


class Untouched(harness.TrainingCase):
    quick_programs = False

    def setUp(self):
        super().setUp()
        harness.expect_usual_torch(self)
        self.start_daemon()
        self.dist = self.folder / "traincheck-dist"
        self.dist.mkdir()
        for name in (PRELOAD, CORE, RELAY):
            os.symlink(harness.DIST / name, self.dist / name)
        self.runs = 0

    def replace(self, name: str, content: bytes | None) -> None:
        """Another file in the agent's folder; None: no file."""
        (self.dist / name).unlink(missing_ok=True)
        if content is not None:
            (self.dist / name).write_bytes(content)
            (self.dist / name).chmod(0o755)

    def environments(self, run: str, preload=(), **extra: str) -> dict:
        """Without us and with us."""
        plain = self.environment(**extra)
        if preload:
            plain["LD_PRELOAD"] = ":".join(preload).replace("OURS", "")
        watched = {
            **plain,
            "LD_PRELOAD": ":".join(preload or ["OURS"]).replace(
                "OURS", str(self.dist / PRELOAD)
            ),
            "TRAINCHECK_AGENT_DIR": str(self.dist),
            "TRAINCHECK_SERVER": self.daemon.address,
            "TRAINCHECK_RUN": run + "-traincheck",
            "TRAINCHECK_GRACE": "2",
        }
        watched.update({k: v for k, v in extra.items() if k.startswith("TRAINCHECK_")})
        return {"plain": plain, "watched": watched}

    def stored(self, run: str) -> int:
        """Records of the run so far."""
        rows = self.daemon.ctl("runs", "list")
        return sum(row["records"] for row in rows if row["id"] == run)

    def compare(
        self, *arguments: str, python=(), around=(), records=50, plain=None, **options
    ):
        """Runs awkward.py with and without us; returns what we said on stderr.

        records: how many have to be stored at least; None: nothing must be.
        plain: a dictionary that keeps what came without us for the next call,
        which has the same arguments.
        """
        self.runs += 1
        run = f"r{self.runs}"
        command = [*around, sys.executable, *python]
        if "-c" not in python:
            command.append(str(AWKWARD))
        kept = {} if plain is None else plain
        started = {
            name: subprocess.Popen(
                [*command, *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment,
            )
            for name, environment in self.environments(run, **options).items()
            if name not in kept
        }
        for name, process in started.items():
            out, err = process.communicate(timeout=5 * harness.PATIENCE_S)
            kept[name] = (process.returncode, out, err.splitlines())
        code, out, err = kept["plain"]
        watched_code, watched_out, watched_err = kept.pop("watched")
        told = [line for line in watched_err if ours(line)]
        self.assertEqual(watched_code, code, watched_err)
        self.assert_same_lines(out, watched_out)
        self.assertEqual([line for line in watched_err if not ours(line)], err)
        self.assertIn("loss", out, err)
        if records is not None:
            self.assertEqual(told, [])
            harness.wait_until(
                lambda: self.stored(run + "-traincheck") > records,
                f"{records} stored records",
            )
        return told

    def assert_same_lines(self, plain: str, watched: str) -> None:
        self.assertEqual(len(plain.splitlines()), len(watched.splitlines()), watched)
        for left, right in zip(plain.splitlines(), watched.splitlines()):
            if left.startswith("~"):
                name, number = left.rsplit(" ", 1)
                self.assertTrue(right.startswith(name), right)
                self.assertAlmostEqual(int(right.split()[-1]), int(number), delta=10)
            else:
                self.assertEqual(left, right)


class WhatTheProgramDoes(Untouched):
    def test_signals_children_and_descriptors(self):
        self.compare("signals", "children", "descriptors", records=100)

    def test_exceptions_recursion_and_generators(self):
        self.compare("exceptions", "recursion", "generators")

    def test_tracing_and_import_finders(self):
        self.compare("tracing", "finders")

    def test_endings(self):
        # The compiler has no part in them, so torch need not import it.
        quick = {"PYTHONPATH": str(QUICK)}
        for ending in (
            "normal",
            "exit-code",
            "exit-text",
            "os-exit",
            "abort",
            "segfault",
            "interrupt",
            "term",
            "exception",
            "exit-in-thread",
            "threads-remain",
        ):
            with self.subTest(ending):
                self.compare("--end", ending, records=30, **quick)


class HowPythonIsStarted(Untouched):
    def test_options(self):
        for options in OPTIONS:
            with self.subTest(options):
                self.compare("generators", python=options)

    def test_without_site(self):
        import torch

        site = os.path.dirname(os.path.dirname(torch.__file__))
        code = (
            "import runpy, sys\n"
            f"sys.path.append({site!r})\n"
            f"sys.argv[0] = {str(AWKWARD)!r}\n"
            "runpy.run_path(sys.argv[0], run_name='__main__')\n"
        )
        self.compare(python=("-I", "-S", "-c", code))

    def test_import_times_are_told_and_nothing_else(self):
        done = []
        for environment in self.environments("times").values():
            done.append(
                subprocess.run(
                    [sys.executable, "-X", "importtime", str(AWKWARD)],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    env=environment,
                )
            )
        self.assertEqual(done[0].stdout, done[1].stdout)
        lines = done[1].stderr.splitlines()
        self.assertEqual([l for l in lines if not l.startswith("import time:")], [])

    def test_beside_other_preloaded_libraries(self):
        library, counts = self.folder / "libothers.so", self.folder / "counts"
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-O1", "-o", library, "-x", "c", "-"],
            input=OTHERS % counts,
            text=True,
            check=True,
        )
        for preload in ((str(library), "OURS"), ("OURS", str(library))):
            with self.subTest(preload):
                counts.unlink(missing_ok=True)
                self.compare("children", preload=preload)
                # Without us and with us: all three were asked in both.
                lines = [line.split() for line in counts.read_text().splitlines()]
                self.assertGreaterEqual(len(lines), 2)
                self.assertNotIn("0", sum(lines, []))


class WhereItRuns(Untouched):
    def assert_one_line(self, told: list[str], *words: str) -> None:
        self.assertEqual(len(told), 1, told)
        for word in words:
            self.assertIn(word, told[0])

    def test_broken_installations(self):
        core = (harness.DIST / CORE).read_bytes()
        version = b"\x000.1.0\x00"
        self.assertIn(version, core)
        plain: dict = {}
        for name, content, words in (
            (CORE, None, [CORE, "not recorded"]),
            (CORE, bytes(100000), [CORE, "not recorded"]),
            (CORE, core[:5000], [CORE, "not recorded"]),
            (CORE, core.replace(version, b"\x009.9.9\x00"), ["9.9.9", "0.1.0"]),
            (RELAY, None, [RELAY, "No such file"]),
            (RELAY, b"no program", [RELAY]),
        ):
            with self.subTest(f"{name} of {content and len(content)} bytes"):
                self.replace(name, content)
                self.assert_one_line(self.compare(records=None, plain=plain), *words)
                self.replace(name, None)
                os.symlink(harness.DIST / name, self.dist / name)

    def test_few_descriptors_and_no_locked_memory(self):
        limits = 'ulimit -n 40 && ulimit -l 0 && exec "$@"'
        self.compare(around=("bash", "-c", limits, "bash"))

    def test_descriptors_run_out(self):
        # The agent asks for some in vain; what Python wants is left to it.
        limits = 'ulimit -n 9 && exec "$@"'
        told = self.compare(around=("bash", "-c", limits, "bash"), records=None)
        self.assertLessEqual(len(told), 2, told)

    def unshared(self, mounts: str) -> tuple:
        if not can("unshare", "-m", "sh", "-c", mounts):
            self.skipTest("mounts cannot be changed here")
        return ("unshare", "-m", "sh", "-c", f'{mounts} && exec "$@"', "sh")

    def test_without_dev_shm(self):
        self.compare(around=self.unshared("mount -t tmpfs -o ro none /dev/shm"))

    def test_read_only_file_systems(self):
        read_only = (
            "cut -d' ' -f2 /proc/mounts | grep -v '^/\\(proc\\|sys\\|dev\\)' | "
            "while read m; do mount -o remount,bind,ro $m 2>/dev/null; done; "
            f"! touch {self.folder}/x 2>/dev/null"
        )
        around = self.unshared(read_only)
        # torch itself wants a folder for temporary files.
        temporary = pathlib.Path("/dev/shm", self.folder.name)
        temporary.mkdir()
        self.addCleanup(shutil.rmtree, temporary)
        self.compare(around=around, TMPDIR=str(temporary))
        self.daemon.kill()
        # Relays spool there, too, unless something is in the way.
        (temporary / f"traincheck-{os.getuid()}").touch()
        told = self.compare(
            around=around,
            records=None,
            TMPDIR=str(temporary),
            TRAINCHECK_SERVER="127.0.0.1:9",
        )
        self.assertTrue(any("cannot spool" in line for line in told), told)

    def test_first_process_of_a_container(self):
        around = ("unshare", "-pf", "--mount-proc")
        if not can(*around, "true"):
            self.skipTest("no process namespace can be made here")
        self.compare("children", "--end", "exit-code", around=around)


if __name__ == "__main__":
    unittest.main()
