"""The daemon's disk is slow, full, damaged, and its clock jumps."""

import shutil
import subprocess
import time

import harness
from faults.base import COUNTED, NOTHING, UNKNOWN, Cost, Fault, Skipped, fill_disk
from setting import SET, TOOLS


class _Shimmed(Fault):
    """A daemon whose syncs and clock a file controls."""

    def control(self, s, fsync_ms: int, clock_s: int) -> None:
        (s.folder / "shim").write_text(f"{fsync_ms} {clock_s}\n")

    def prepare(self, s):
        self.control(s, 0, 0)
        s.daemon.environment = {
            "LD_PRELOAD": str(TOOLS / "daemon_shim.so"),
            "FAULT_SHIM": str(s.folder / "shim"),
        }

    def after(self, s):
        self.control(s, 0, 0)


class SlowDisk(_Shimmed):
    name = "disk-slow"
    what = "every sync of the daemon takes up to half a second"

    def strike(self, s):
        self.control(s, self.draw.randint(50, 500), 0)


class ClockJump(_Shimmed):
    name = "clock-jump"
    what = "the daemon's wall clock jumps by up to a day, either way"

    def strike(self, s):
        self.control(s, 0, self.draw.choice([-86400, -3600, 3600, 86400]))
        time.sleep(0.5)

    def after(self, s):
        """It stays where it is."""


class FullDisk(Fault):
    name = "disk-full-daemon"
    what = "the daemon's disk is full until the training is over"

    def prepare(self, s):
        held = s.folder / "held"
        shutil.move(s.daemon.data_dir, held)
        try:
            s.mount_tmpfs(s.daemon.data_dir, "400m")
        except subprocess.CalledProcessError as error:
            raise Skipped(f"no tmpfs: {error.stderr.decode().strip()}") from None
        subprocess.run(["cp", "-a", f"{held}/.", s.daemon.data_dir], check=True)
        shutil.rmtree(held)

    def strike(self, s):
        self.filler = s.daemon.data_dir / "filler"
        fill_disk(self.filler)

    def after(self, s):
        self.filler.unlink()


class TruncatedLog(Fault):
    name = "wal-truncated"
    what = "kill -9 of the daemon, and its log loses its last bytes"
    cost = UNKNOWN

    def strike(self, s):
        s.daemon.kill()
        log = max((s.daemon.data_dir / "db").glob("*.log"), key=lambda p: p.name)
        written = len(log.read_bytes().rstrip(b"\0"))
        with open(log, "r+b") as file:
            file.truncate(max(0, written - self.draw.randint(1, 20000)))
        s.daemon.start()


class DeletedStoreFile(Fault):
    name = "store-file-deleted"
    what = "a file of the store is deleted: the daemon refuses; an empty one comes"
    cost = COUNTED

    def strike(self, s):
        rules = s.folder / "rules.json"
        s.daemon.do("invariants", "export", "--set", SET, str(rules))
        s.daemon.stop()
        files = sorted((s.daemon.data_dir / "db").glob("*.sst"))
        self.draw.choice(files).unlink()
        s.daemon.spawn()
        code = s.daemon.wait(harness.PATIENCE_S)
        if code <= 0 or "critical" not in s.daemon.tail():
            raise AssertionError(f"no refusal: {code} {s.daemon.tail()}")
        shutil.move(s.daemon.data_dir, s.folder / "data.broken")
        s.daemon.start()
        s.daemon.do("invariants", "import", "--set", SET, str(rules))


class NewerStore(Fault):
    name = "skew-store-daemon"
    what = "the data directory's format is newer: refused; then as before"
    cost = NOTHING

    def strike(self, s):
        s.daemon.stop()
        marker = s.daemon.data_dir / "FORMAT"
        held = marker.read_bytes()
        marker.write_text("traincheck store 99\n")
        s.daemon.spawn()
        code = s.daemon.wait(harness.PATIENCE_S)
        if code <= 0 or "99" not in s.daemon.tail():
            raise AssertionError(f"no refusal: {code} {s.daemon.tail()}")
        marker.write_bytes(held)
        s.daemon.start()


class LostDirectory(Fault):
    name = "daemon-dir-away"
    what = "the data directory is away while the daemon starts, then back"
    cost = Cost()

    def strike(self, s):
        s.daemon.stop()
        away = s.folder / "data.away"
        shutil.move(s.daemon.data_dir, away)
        s.daemon.data_dir.write_text("a file stands in the way")
        s.daemon.spawn()
        code = s.daemon.wait(harness.PATIENCE_S)
        if code <= 0:
            raise AssertionError(f"no refusal: {code} {s.daemon.tail()}")
        s.daemon.data_dir.unlink()
        shutil.move(away, s.daemon.data_dir)
        s.daemon.start()
