"""The network between relays and the daemon, through a proxy."""

import time

from faults.base import NOTHING, Cost, Fault
from proxy import DOWN, UP


class _Network(Fault):
    def prepare(self, s):
        s.use_proxy()

    def after(self, s):
        s.proxy.calm()


class Cut(_Network):
    name = "net-cut"
    what = "the connection is cut for up to 3 s"

    def strike(self, s):
        s.proxy.cut()
        time.sleep(self.draw.uniform(0, 3))
        s.proxy.calm()


class CutForGood(_Network):
    name = "net-cut-long"
    what = "the connection is cut until the training is over"

    def prepare(self, s):
        # A rank that is silent for longer than this counts as lost, which is no
        # fault: on a busy machine the training may take that long.
        s.set_lost_after(120)
        super().prepare(s)

    def strike(self, s):
        s.proxy.cut()


class Flapping(_Network):
    name = "net-flap"
    what = "the connection breaks ten times, by resets"

    def strike(self, s):
        for _ in range(10):
            s.proxy.drop(reset=True)
            time.sleep(self.draw.uniform(0, 0.3))


class Delay(_Network):
    name = "net-delay"
    what = "every packet takes up to half a second longer"

    def strike(self, s):
        s.proxy.delay(self.draw.uniform(0.05, 0.5))


class Throttle(_Network):
    name = "net-throttle"
    what = "the connection carries 2 to 20 kB a second"

    def strike(self, s):
        s.proxy.throttle(self.draw.randint(2000, 20000))


class StallUp(_Network):
    name = "net-stall-up"
    what = "nothing reaches the daemon any more, the connection stays"

    def strike(self, s):
        s.proxy.stall(UP)


class StallDown(_Network):
    name = "net-stall-down"
    what = "no acknowledgement comes back, the connection stays"

    def strike(self, s):
        s.proxy.stall(DOWN)


class HalfOpen(_Network):
    name = "net-half-open"
    what = "connections are accepted and never answered, from the start"

    def prepare(self, s):
        super().prepare(s)
        s.proxy.half_open()
        s.run_under = "preload"

    def strike(self, s):
        s.proxy.calm()


class _Once:
    """Alters one chunk that is large enough to carry records."""

    def __init__(self, alter):
        self._alter = alter
        self.done = False

    def __call__(self, direction, data):
        if self.done or direction != UP or len(data) < 300:
            return data
        self.done = True
        return self._alter(data)


class Corrupt(_Network):
    name = "net-corrupt"
    what = "a byte of a batch is changed on its way"
    # A changed batch is refused and kept apart, its records count as lost.
    cost = Cost(records="unknown", verdicts="unknown")

    def strike(self, s):
        def flip(data):
            at = self.draw.randrange(len(data) // 4, len(data))
            return data[:at] + bytes([data[at] ^ (1 + at % 255)]) + data[at + 1 :]

        s.proxy.edit(_Once(flip))


class Truncate(_Network):
    name = "net-truncate"
    what = "a batch is cut off in its middle and the connection ends"
    cost = NOTHING

    def strike(self, s):
        pieces = []

        def cut(direction, data):
            if pieces:
                return data if direction == DOWN else None
            if direction == UP and len(data) >= 300:
                pieces.append(data)
                return data[: self.draw.randrange(1, len(data))]
            return data

        s.proxy.edit(cut)
        time.sleep(0.5)
        s.proxy.drop()
        s.proxy.calm()
