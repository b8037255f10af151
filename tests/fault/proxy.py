"""A TCP proxy between relays and a daemon that breaks the network on demand.

Threads: one that accepts and two a connection; all methods are safe on any.
"""

import socket
import struct
import threading
import time

UP, DOWN = "up", "down"  # to the daemon, from the daemon
_CHUNK = 16 << 10


class _Pair:
    """The two sockets of one connection."""

    def __init__(self, client, server):
        self.sockets = {UP: (client, server), DOWN: (server, client)}

    def close(self, reset: bool) -> None:
        for end in self.sockets[UP]:
            try:
                if reset:
                    linger = struct.pack("ii", 1, 0)
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the other side was first
            end.close()


class Proxy:
    def __init__(self, target: str, host: str = "127.0.0.1"):
        self.target = target
        self._listener = socket.create_server((host, 0))
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        self._lock = threading.Condition()
        self._pairs = set()
        self._closed = False
        self.calm()
        threading.Thread(target=self._accept, daemon=True).start()

    # Faults. Each lasts until calm().

    def calm(self) -> None:
        with self._lock:
            self._refuse = False
            self._half_open = False
            self._delay_s = 0.0
            self._bytes_per_s = 0
            self._stalled = set()
            self._edit = None
            self._lock.notify_all()

    def cut(self, reset: bool = False) -> None:
        """Breaks all connections; new ones are closed at once."""
        with self._lock:
            self._refuse = True
        self.drop(reset)

    def drop(self, reset: bool = False) -> None:
        """Breaks all connections once."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            pair.close(reset)

    def half_open(self) -> None:
        """Connections are accepted, nothing ever moves on old or new ones."""
        with self._lock:
            self._half_open = True
            self._stalled = {UP, DOWN}

    def delay(self, seconds: float) -> None:
        with self._lock:
            self._delay_s = seconds

    def throttle(self, bytes_per_s: int) -> None:
        with self._lock:
            self._bytes_per_s = bytes_per_s

    def stall(self, direction: str) -> None:
        with self._lock:
            self._stalled.add(direction)

    def edit(self, function) -> None:
        """function(direction, bytes) -> bytes to send on; None breaks off."""
        with self._lock:
            self._edit = function

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        self._listener.close()
        self.drop()

    # The work.

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                refuse = self._refuse
            if refuse:
                client.close()
                continue
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client) -> None:
        host, port = self.target.rsplit(":", 1)
        try:
            server = socket.create_connection((host, int(port)))
        except OSError:
            client.close()
            return
        pair = _Pair(client, server)
        with self._lock:
            self._pairs.add(pair)
        for direction in (UP, DOWN):
            threading.Thread(
                target=self._pump, args=(pair, direction), daemon=True
            ).start()

    def _pump(self, pair: _Pair, direction: str) -> None:
        source, sink = pair.sockets[direction]
        try:
            while data := source.recv(_CHUNK):
                data = self._through(direction, data)
                if data is None:
                    break
                sink.sendall(data)
        except OSError:
            pass  # either side is gone: so is the pair
        with self._lock:
            self._pairs.discard(pair)
        pair.close(reset=False)

    def _through(self, direction: str, data: bytes):
        """Waits as long as the network is made to; None: break off."""
        with self._lock:
            delay_s, rate, edit = self._delay_s, self._bytes_per_s, self._edit
            while direction in self._stalled and not self._closed:
                self._lock.wait()
        if rate:
            delay_s += len(data) / rate
        if delay_s:
            time.sleep(delay_s)
        return edit(direction, data) if edit else data
