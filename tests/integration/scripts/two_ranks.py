"""Starts a script once a rank, as torchrun does, without importing torch for it.

    if __name__ == "__main__":
        two_ranks.start_unless_started(arguments.nproc)
"""

import os
import socket
import subprocess
import sys
import time


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait(ranks):
    """Until all have ended; a failure ends the others and is the exit code."""
    while ranks:
        for rank in ranks:
            if rank.poll():
                for other in ranks:
                    other.terminate()
                return abs(rank.returncode)
        ranks = [rank for rank in ranks if rank.returncode is None]
        time.sleep(0.02)
    return 0


def start_unless_started(count=2):
    """Ends this process when its ranks have ended; returns in a rank."""
    if "RANK" in os.environ:
        return
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(free_port())
    os.environ["WORLD_SIZE"] = str(count)
    ranks = [
        subprocess.Popen(
            [sys.executable, *sys.argv], env={**os.environ, "RANK": str(rank)}
        )
        for rank in range(count)
    ]
    sys.exit(wait(ranks))
