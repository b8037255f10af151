"""Stands in for traincheck-relay: takes rings over as it does and keeps what
they held as files <pid>.<ring> in TRAINCHECK_TEST_OUT.

A file holds the bytes of positions 0, 1, ... of its ring; a relay that takes
rings over goes on at their tail. A ring is given free as it is read, unless the
file "hold" is there. A file plan.VERSION.STEP there is sent as a change of plan, one
time; sent.VERSION tells that it is on its way. Ends when nobody is connected any
more.
"""

import array
import fcntl
import json
import mmap
import os
import selectors
import socket
import struct
import time

HEADER_BYTES = 4096
HANDOVER = struct.Struct("<QIIQII")
POLL_SECONDS = 0.002
PLAN = struct.Struct("<4sIQQ")


class Ring:
    def __init__(self, fd, handover, folder):
        _, _, self.number, self.capacity, self.pid, self.tid = handover
        self.memory = mmap.mmap(fd, HEADER_BYTES + self.capacity)
        self.path = os.path.join(folder, f"{self.pid}.{self.number}")
        self.read = self.word(128)
        self.file = open(os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600), "wb")
        self.file.seek(self.read)

    def word(self, offset):
        return struct.unpack_from("<Q", self.memory, offset)[0]

    def drain(self, release):
        head = self.word(64)
        while self.read < head:
            at = self.read % self.capacity
            size = min(head - self.read, self.capacity - at)
            self.file.write(self.memory[HEADER_BYTES + at : HEADER_BYTES + at + size])
            self.read += size
        self.file.flush()
        if release:
            struct.pack_into("<Q", self.memory, 128, self.read)

    def finish(self):
        self.drain(True)
        self.file.close()
        counters = ("offered", "committed", "dropped", "closed")
        facts = dict(zip(counters, struct.unpack_from("<QQQI", self.memory, 72)))
        facts["tid"] = self.tid
        with open(self.path + ".json", "w") as file:
            json.dump(facts, file)


class Relay:
    def __init__(self):
        self.folder = os.environ["TRAINCHECK_TEST_OUT"]
        self.listener = socket.socket(fileno=3)
        self.listener.setblocking(False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.rings = {}  # by connection
        self.note("started", self.describe())

    def describe(self):
        return {
            "environment": dict(os.environ),
            "session": os.getsid(0) == os.getpid(),
            "fds": sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:-1],
            "stdout": os.readlink("/proc/self/fd/1"),
            "pid": os.getpid(),
            "mask": sorted(__import__("signal").pthread_sigmask(0, [])),
        }

    def note(self, name, facts):
        path = os.path.join(self.folder, f"relay.{os.getpid()}.{name}.json")
        unfinished = os.path.join(self.folder, f"unfinished.{os.getpid()}")
        with open(unfinished, "w") as file:
            json.dump(facts, file)
        os.rename(unfinished, path)

    def run(self):
        deadline = time.monotonic() + 10
        while self.rings or time.monotonic() < deadline:
            for key, _ in self.selector.select(POLL_SECONDS):
                if key.fileobj is self.listener:
                    self.accept()
                elif key.data is not None:
                    self.bury(key.fileobj, key.data)
                else:
                    self.receive(key.fileobj)
                if not self.rings:
                    deadline = 0
            self.send_plans()
            release = not os.path.exists(os.path.join(self.folder, "hold"))
            for rings in self.rings.values():
                for ring in rings:
                    ring.drain(release)

    def accept(self):
        connection, _ = self.listener.accept()
        self.rings[connection] = []
        self.selector.register(connection, selectors.EVENT_READ)

    def receive(self, connection):
        rights = socket.CMSG_LEN(array.array("i").itemsize)
        try:
            data, control, _, _ = connection.recvmsg(HANDOVER.size, rights)
        except ConnectionResetError:
            return  # it died with answers unread; what it sent comes next
        if not data:
            self.selector.unregister(connection)
            self.await_death(connection)
            return
        fds = array.array("i")
        fds.frombytes(control[0][2])
        ring = Ring(fds[0], HANDOVER.unpack(data), self.folder)
        os.close(fds[0])
        self.rings[connection].append(ring)
        try:
            connection.send(b"RING")
        except (BrokenPipeError, ConnectionResetError):
            pass  # it is gone already

    def send_plans(self):
        for name in sorted(os.listdir(self.folder)):
            if name.startswith("plan.") and self.rings:
                self.send_plan(name)

    def send_plan(self, name):
        path = os.path.join(self.folder, name)
        with open(path, "rb") as file:
            text = file.read()
        os.remove(path)
        _, version, step = name.split(".")
        memory = os.memfd_create("plan", os.MFD_ALLOW_SEALING)
        os.write(memory, text)
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, seals)
        message = PLAN.pack(b"PLAN", len(text), int(version), int(step))
        for connection in self.rings:
            socket.send_fds(connection, [message], [memory])
        os.close(memory)
        open(os.path.join(self.folder, f"sent.{version}"), "w").close()

    def await_death(self, connection):
        """A program may close our socket; its end is its death."""
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        try:
            death = os.pidfd_open(struct.unpack("3i", peer)[0])
        except ProcessLookupError:
            self.finish(connection)
        else:
            self.selector.register(death, selectors.EVENT_READ, connection)

    def bury(self, death, connection):
        self.selector.unregister(death)
        os.close(death)
        self.finish(connection)

    def finish(self, connection):
        for ring in self.rings.pop(connection):
            ring.finish()
        connection.close()


if __name__ == "__main__":
    Relay().run()
