"""A job of two nodes that end while their daemon is away: what they have spooled is
delivered once, from a home that both share and from disks of their own.

A node is a set of namespaces with a host name, a boot id and process ids of its own;
its processes are killed when its script ends, as those of a step of Slurm's are.
"""

import json
import subprocess
import sys
import unittest

import harness
import hosts_test

NODES = ("node7", "node8")
RANKS_A_NODE = 2
STEPS = 20
# $1: boot id. $2, $3: the first rank and the one behind the last. $4: a file: the
# daemon is back. $5: the spool. $6: traincheckctl. The rest: the training.
NODE = """
set -e
hostname "$0"
mount --bind "$1" /proc/sys/kernel/random/boot_id
first=$2 behind=$3 back=$4 spool=$5 ctl=$6
shift 6
ranks=
for rank in $(seq $first $((behind - 1))); do
  RANK=$rank LOCAL_RANK=$((rank - first)) "$@" >&2 &
  ranks="$ranks $!"
done
for rank in $ranks; do wait $rank; done
while grep -qs traincheck-rela /proc/[0-9]*/comm; do sleep 0.1; done
echo trained
while [ ! -e "$back" ]; do sleep 0.1; done
exec "$ctl" -o json spool send "$spool"
"""


def can_make_nodes() -> bool:
    done = subprocess.run(
        ["unshare", "-ump", "--fork", "--mount-proc", "hostname", NODES[0]],
        capture_output=True,
    )
    return done.returncode == 0


@unittest.skipUnless(can_make_nodes(), "only root makes namespaces")
class TwoNodes(hosts_test.HostsCase):
    def setUp(self):
        super().setUp()
        self.back = self.folder / "back"
        self.hosts = [
            hosts_test.Host(self, address) for address in hosts_test.HOSTS[: len(NODES)]
        ]
        for host in self.hosts:
            self.give_token(host)
            host.path.cut()

    def start_node(self, number: int, spool, port: str):
        boot_id = self.folder / f"boot-{number}"
        boot_id.write_text(f"00000000-0000-4000-8000-00000000000{number}\n")
        first = number * RANKS_A_NODE
        node = [NODES[number], boot_id, first, first + RANKS_A_NODE, self.back, spool]
        process = subprocess.Popen(
            [
                *("unshare", "-ump", "--fork", "--mount-proc", "--kill-child"),
                *("sh", "-c", NODE, *map(str, node)),
                str(harness.DIST / "traincheckctl"),
                *(sys.executable, str(harness.SCRIPTS / "drift_ddp.py")),
                *("--steps", str(STEPS), "--healthy"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.node_environment(number, spool, port),
            start_new_session=True,
        )
        self.addCleanup(self._end_group, process)
        return process

    def node_environment(self, number: int, spool, port: str) -> dict:
        return {
            **self.hosts[number].environment(self),
            "TRAINCHECK_SPOOL_DIR": str(spool),
            "TRAINCHECK_GRACE": "1",
            "WORLD_SIZE": str(len(NODES) * RANKS_A_NODE),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "GLOO_SOCKET_IFNAME": "lo",  # nobody knows the names of the nodes
        }

    def train_apart(self, spools: list) -> list:
        """Without the daemon, on both nodes; what each delivered afterwards."""
        port = hosts_test.free_port()
        nodes = [
            self.start_node(number, spool, port) for number, spool in enumerate(spools)
        ]
        for node in nodes:
            line = node.stdout.readline()
            if line != "trained\n":
                self.fail(f"{line}{node.communicate()[1]}")
        self.assertEqual(self.daemon.ctl("runs", "list"), [])
        self.assertEqual(len(self.left(spools)), len(NODES) * RANKS_A_NODE)
        for host in self.hosts:
            host.path.calm()
        self.back.touch()
        answers = []
        for node in nodes:
            out, err = node.communicate(timeout=harness.PATIENCE_S)
            self.assertEqual(node.returncode, 0, err)
            answers.append(json.loads(out))
        return answers

    @staticmethod
    def left(spools) -> list:
        return [path for spool in set(spools) for path in spool.rglob("*.spool")]

    def check_delivered(self, answers: list) -> None:
        for node, answer in zip(NODES, answers, strict=True):
            delivered = [row for row in answer if row["result"] == "delivered"]
            self.assertEqual({row["host"] for row in delivered}, {node}, answer)
            self.assertEqual(len(delivered), RANKS_A_NODE, answer)
        shown = self.daemon.run_ended("job")
        ranks = sorted((p["host"], p["rank"]) for p in shown["processes"])
        self.assertEqual(
            ranks,
            [
                (node, number * RANKS_A_NODE + rank)
                for number, node in enumerate(NODES)
                for rank in range(RANKS_A_NODE)
            ],
        )
        self.assertEqual((shown["lost"], shown["dropped"]), (0, 0))
        self.assertEqual(shown["last_step"], STEPS - 1)
        rings = [ring for process in shown["processes"] for ring in process["rings"]]
        self.assertEqual(
            [ring["stored"] for ring in rings], [ring["committed"] for ring in rings]
        )

    def test_a_home_that_both_share(self):
        home = self.folder / "home"
        home.mkdir()
        answers = self.train_apart([home, home])
        self.check_delivered(answers)
        self.assertEqual(self.left([home]), [])

    def test_disks_of_their_own(self):
        disks = [self.folder / f"disk-{node}" for node in NODES]
        for disk in disks:
            disk.mkdir()
        answers = self.train_apart(disks)
        self.check_delivered(answers)
        self.assertEqual([len(answer) for answer in answers], [RANKS_A_NODE] * 2)
        self.assertEqual(self.left(disks), [])


if __name__ == "__main__":
    unittest.main()
