"""Parts of different versions meet."""

import subprocess

from faults.base import NOT_STORED, NOTHING, Fault
from proxy import UP

# What a Hello begins with: format_version_min = 1, format_version_max = 1.
_RANGE = b"\x08\x01\x10\x01"
_NEWER = b"\x08\x63\x10\x63"
_RING_MAGIC = b"TRCRING1"


def _patch(path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    if old not in content:
        raise AssertionError(f"{path.name} does not contain {old!r}")
    path.write_bytes(content.replace(old, new))


class RelayNewer(Fault):
    name = "skew-relay-daemon"
    what = "the relay speaks only record formats that the daemon does not know"
    cost = NOT_STORED

    def prepare(self, s):
        s.use_proxy()
        s.environment["TRAINCHECK_GRACE"] = "1"
        s.proxy.edit(
            lambda direction, data: (
                data.replace(_RANGE, _NEWER, 1) if direction == UP else data
            )
        )

    def after(self, s):
        if "99" not in s.log():
            raise AssertionError("nobody told the versions: " + s.log()[-300:])


class RelayOtherRings(Fault):
    name = "skew-agent-relay"
    what = "the relay expects rings of another version than the agent's"
    cost = NOT_STORED

    def prepare(self, s):
        _patch(s.copy_dist() / "traincheck-relay", _RING_MAGIC, b"TRCRING9")


class CoreUnusable(Fault):
    name = "skew-preload-core"
    what = "the core library is no library"
    cost = NOT_STORED

    def prepare(self, s):
        core = s.copy_dist() / "libtraincheck_agent_core.so"
        core.write_bytes(b"not what it was\n")


class ToolNewer(Fault):
    name = "skew-ctl-daemon"
    what = "traincheckctl calls what the daemon does not know"
    cost = NOTHING

    def prepare(self, s):
        self.tool = s.folder / "traincheckctl.next"
        self.tool.write_bytes((s.dist / "traincheckctl").read_bytes())
        self.tool.chmod(0o755)
        name = b"/traincheck.v1.Control/GetStatus"
        _patch(self.tool, name, name[:-1] + b"z")

    def strike(self, s):
        done = subprocess.run(
            [self.tool, "--server", s.daemon.address, "status"],
            capture_output=True,
            text=True,
        )
        if done.returncode != 3 or not done.stderr.strip():
            raise AssertionError(f"status: {done.returncode} {done.stderr}")
