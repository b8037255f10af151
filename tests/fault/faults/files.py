"""Spool files and rings are damaged, full, or may not be written."""

import os
import signal
import subprocess
import time

import harness
from faults.base import COUNTED, NOT_STORED, UNKNOWN, Cost, Fault, Skipped, fill_disk


class _Spooling(Fault):
    """The daemon is away from the strike until the training is over."""

    last = 15

    def strike(self, s):
        s.daemon.kill()

    def after(self, s):
        s.daemon.start()


class SpoolFull(_Spooling):
    name = "disk-full-spool"
    what = "the spool's disk (2 MB) is full while the daemon is away"
    cost = COUNTED

    def prepare(self, s):
        try:
            s.mount_tmpfs(s.spool, "2m")
        except subprocess.CalledProcessError as error:
            raise Skipped(f"no tmpfs: {error.stderr.decode().strip()}") from None

    def strike(self, s):
        super().strike(s)
        fill_disk(s.spool / "filler")

    def after(self, s):
        (s.spool / "filler").unlink()
        super().after(s)


class SpoolLimit(_Spooling):
    name = "spool-limit"
    what = "the spool's limit (16 kB) is reached while the daemon is away"
    cost = COUNTED

    def prepare(self, s):
        s.environment["TRAINCHECK_SPOOL_LIMIT"] = "16K"


class SpoolReadOnly(_Spooling):
    name = "spool-read-only"
    what = "the spool's folder is read-only while the daemon is away"
    cost = COUNTED

    def prepare(self, s):
        try:
            s.mount_tmpfs(s.spool, "1m")
            subprocess.run(
                ["mount", "-o", "remount,ro", s.spool], check=True, capture_output=True
            )
        except subprocess.CalledProcessError as error:
            raise Skipped(f"no mount: {error.stderr.decode().strip()}") from None


class _DamagedSpool(_Spooling):
    cost = Cost(records="unknown", verdicts="unknown", spool=True)

    def damage(self, path) -> None:
        raise NotImplementedError

    def strike(self, s):
        super().strike(s)
        s.wait_step(self.step + 12)
        files = [
            p
            for p in s.spool.rglob("*.spool")
            if p.is_file() and p.stat().st_size > 256
        ]
        if files:
            self.damage(self.draw.choice(files))


class SpoolCorrupt(_DamagedSpool):
    name = "spool-corrupt"
    what = "three bytes of a spool file in use are changed"

    def damage(self, path):
        with open(path, "r+b") as file:
            for _ in range(3):
                at = self.draw.randrange(32, path.stat().st_size)
                file.seek(at)
                byte = file.read(1)[0]
                file.seek(at)
                file.write(bytes([byte ^ self.draw.randint(1, 255)]))


class SpoolTruncated(_DamagedSpool):
    name = "spool-truncated"
    what = "a spool file in use is truncated"

    def damage(self, path):
        os.truncate(path, self.draw.randrange(32, path.stat().st_size))


class SpoolDeleted(_DamagedSpool):
    name = "spool-deleted"
    what = "a spool file in use is deleted"

    def damage(self, path):
        path.unlink()


class _Ring(Fault):
    cost = UNKNOWN

    def ring(self, s) -> int:
        """A descriptor of the main ring of one rank, shared with its relay."""
        self.relay = s.relay_of(self.rank(s))
        found = []
        for entry in os.scandir(f"/proc/{self.relay}/map_files"):
            try:
                if "memfd:" in os.readlink(entry.path):
                    fd = os.open(entry.path, os.O_RDWR)
                    found.append((os.fstat(fd).st_size, fd))
            except OSError:
                continue
        if not found:
            raise Skipped("the rings of a relay cannot be opened here")
        found.sort()
        size, fd = found.pop()
        for _, other in found:
            os.close(other)
        return fd


class RingGarbage(_Ring):
    name = "ring-corrupt-records"
    what = "random bytes are written over records in a ring"

    def strike(self, s):
        fd = self.ring(s)
        # Stopped, so that what is overwritten has not been read yet.
        os.kill(self.relay, signal.SIGSTOP)
        time.sleep(0.3)
        head = int.from_bytes(os.pread(fd, 8, 64), "little")
        for _ in range(3):
            at = max(0, head - self.draw.randint(8, 600)) % (4 << 20)
            os.pwrite(fd, self.draw.randbytes(8), 4096 + at)
        os.kill(self.relay, signal.SIGCONT)
        os.close(fd)


class RingHeader(_Ring):
    name = "ring-corrupt-header"
    what = "the header of a ring (magic, sizes, head or tail) is overwritten"

    def strike(self, s):
        fd = self.ring(s)
        offset = self.draw.choice([0, 8, 16, 64, 72, 128])
        os.pwrite(fd, self.draw.randbytes(8), offset)
        os.close(fd)


class NoSpoolNoDaemon(Fault):
    name = "spool-home-missing"
    what = "no daemon, and a file where the spool's folder is to be"
    cost = NOT_STORED
    daemon_first = False

    def prepare(self, s):
        s.spool.write_text("a file stands in the way")
        s.environment["HOME"] = "/proc"
        s.environment["TRAINCHECK_GRACE"] = "1"
        # What is spooled in the node's own folder instead would be delivered by the
        # relays of the next faults, to their daemons.
        temporary = s.folder / "temporary"
        temporary.mkdir()
        s.environment["TMPDIR"] = str(temporary)

    def after(self, s):
        harness.wait_until(lambda: not s.relays(), "the end of the relays")
        s.daemon.start()
