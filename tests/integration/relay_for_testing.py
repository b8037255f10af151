"""A relay that delivers to files: what an agent recorded, for tests.

The agent starts it as it starts the real one (listening socket on descriptor
3). For each process it writes $TRAINCHECK_DUMP_DIR/PID.json: the bytes of each
ring, in hex, with the ring's counters, once the process is gone.
"""

import array
import json
import mmap
import os
import pathlib
import select
import socket
import struct
import time

HEADER_BYTES = 4096
HANDOVER = struct.Struct("<QIIQII")
HAS_RING = struct.pack("<I", 0x474E4952)


class Ring:
    def __init__(self, number, fd, capacity):
        self.number = number
        self._capacity = capacity
        self._map = mmap.mmap(fd, HEADER_BYTES + capacity)
        self._tail = 0
        self.content = bytearray()

    def _word(self, offset):
        return struct.unpack_from("<Q", self._map, offset)[0]

    def drain(self):
        head = self._word(64)
        while self._tail < head:
            start = self._tail % self._capacity
            size = min(head - self._tail, self._capacity - start)
            begin = HEADER_BYTES + start
            self.content += self._map[begin : begin + size]
            self._tail += size
        struct.pack_into("<Q", self._map, 128, self._tail)

    def report(self):
        return {
            "ring": self.number,
            "offered": self._word(72),
            "committed": self._word(80),
            "dropped": self._word(88),
            "content": self.content.hex(),
        }


class Process:
    def __init__(self, connection):
        self.connection = connection
        self.rings = []
        self.pid = 0
        self.gone = False

    def receive(self):
        size = array.array("i", [0]).itemsize
        try:
            message, extra, _, _ = self.connection.recvmsg(64, socket.CMSG_SPACE(size))
        except ConnectionResetError:  # gone without having read our answers
            message = b""
        if not message:
            self.gone = True
            return
        _, _, number, capacity, self.pid, _ = HANDOVER.unpack(message)
        (fd,) = array.array("i", extra[0][2])
        self.rings.append(Ring(number, fd, capacity))
        os.close(fd)
        try:
            self.connection.send(HAS_RING)
        except OSError:
            pass  # dead already; the end of the connection comes next

    def drain(self):
        for ring in self.rings:
            ring.drain()

    def write(self, folder):
        self.drain()
        target = folder / f"{self.pid}.json"
        partial = target.with_suffix(".part")
        partial.write_text(json.dumps([ring.report() for ring in self.rings]))
        partial.rename(target)


def serve(listener, folder):
    processes, seen = [], False
    quiet_since = time.monotonic()
    while processes or not seen or time.monotonic() - quiet_since < 0.3:
        sources = [listener] + [process.connection for process in processes]
        ready, _, _ = select.select(sources, [], [], 0.01)
        if listener in ready:
            processes.append(Process(listener.accept()[0]))
            seen = True
        for process in list(processes):
            if process.connection in ready:
                process.receive()
            process.drain()
            if process.gone:
                processes.remove(process)
                process.write(folder)
                quiet_since = time.monotonic()


if __name__ == "__main__":
    serve(socket.socket(fileno=3), pathlib.Path(os.environ["TRAINCHECK_DUMP_DIR"]))
