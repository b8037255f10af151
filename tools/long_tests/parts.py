"""The parts of the long tier: one command each, at most half an hour on two
processors. A new part is a new entry; no name is used for something else later.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Part:
    name: str
    what: str  # for people
    command: str  # for bash, in the repository's root; $SEED where it draws

    @property
    def draws(self) -> bool:
        return "$SEED" in self.command


_TEST = "tools/build.sh test --noshow_progress --nocache_test_results"
_DRAWN = "--test_env=TRAINCHECK_SEED=$SEED"
FAULT_SLICES = 8
ERROR_SLICES = 4
FUZZ_TARGETS = (
    *("record", "ring", "batch", "session", "set"),
    *("spool", "spool_load", "checker", "checker_state"),
    *("http", "token", "certificate", "private_file", "settings"),
)
FUZZ_S = 1200


def _seeds(name: str, what: str, targets: str, seeds: int = 0) -> Part:
    many = f" --test_env=TRAINCHECK_SEEDS={seeds}" if seeds else ""
    options = f"{_DRAWN}{many} --test_timeout=1700"
    return Part(f"seeds-{name}", what, f"{_TEST} {options} {targets}")


_SEEDS = [
    _seeds(
        "checks",
        "30,000 random runs, orders and restarts of a check",
        "//tests/engine:recovery_test",
        30000,
    ),
    _seeds(
        "daemon",
        "1,000 random runs with the real store, kills and reconnects",
        "//server/checking:recovery_test",
        1000,
    ),
    _seeds(
        "engine",
        "5,000 random programs with seeded errors, 20,000 orders of batches",
        "//tests/engine:engine_test",
        5000,
    ),
    _seeds(
        "gaps",
        "facts of the programs of tests/clocks, with records taken away 1,000 times",
        "//tests/clocks:gaps_test",
        1000,
    ),
    _seeds(
        "rings",
        "20,000 kills of a writer, 50 of relays",
        "//agent/ring:ring_kill_test //agent/relay:takeover_test",
        20000,
    ),
    _seeds(
        "trainings",
        "the suite's trainings, faults and kills from another seed",
        "//tests/integration:detection_test //tests/fault:all",
    ),
]
_FAULTS = [
    Part(
        f"faults-{number}",
        "an eighth of all kinds of fault, twice on two ranks and on four",
        f"tests/fault/run.sh --seed $SEED --repeats 4 --ranks 2,4 "
        f"--slice {number}/{FAULT_SLICES}",
    )
    for number in range(1, FAULT_SLICES + 1)
]
_KILLS = [
    Part(
        f"kills-{number}",
        "500 kills, 64 of them in 8 trainings",
        "tests/fault/kills.sh --kills 500 --trainings 8 --seed $SEED",
    )
    for number in (1, 2)
]
_OPTIONS = [
    Part(
        "options",
        "what a training says and does under more of Python's options",
        f"{_TEST} --test_env=TRAINCHECK_EACH_OPTION=1 --test_timeout=1700 "
        "//tests/integration:never_hurts_test",
    ),
]
_FUZZ = [
    Part(
        f"fuzz-{target}",
        f"{FUZZ_S // 60} minutes of libFuzzer under asan and ubsan",
        f"tests/fuzz/run.sh -s {FUZZ_S} {target}",
    )
    for target in FUZZ_TARGETS
]
_SANITIZERS = [
    Part("asan", "the C++ tests under asan and ubsan", "tools/sanitize.sh asan"),
    Part("tsan", "the C++ tests under tsan", "tools/sanitize.sh tsan"),
    Part(
        "asan-training",
        "the agent in real trainings under asan and ubsan",
        "tools/sanitize.sh training",
    ),
]
_ERRORS = [
    Part(
        f"errors-{number}",
        "a quarter of tests/errors: errors show without us, and not where they are "
        "fixed",
        f"{_TEST} --test_env=TRAINCHECK_SLICE={number}/{ERROR_SLICES} "
        "//tests/errors:prove_test",
    )
    for number in range(1, ERROR_SLICES + 1)
]
_RULES = [
    Part(
        "rules-alone",
        "each mistake that breaks a built-in rule, in a process of its own; each fact "
        "under a plan of its own",
        f"{_TEST} --test_env=TRAINCHECK_EACH_ALONE=1 --test_timeout=1700 "
        "//tests/integration:built_in_rules_test //tests/integration:facts_test",
    ),
]
_CHECKS = [
    Part(
        "clang-locks",
        "clang's -Wthread-safety over all sources",
        "tools/clang_checks.sh --all --only locks",
    ),
    Part(
        "clang-tidy",
        "clang-tidy over all sources",
        "tools/clang_checks.sh --all --only tidy",
    ),
    Part(
        "coverage",
        "what of the engine the relations' scripts reach",
        "tools/coverage.sh",
    ),
]
_DEVICE = [
    Part(
        "device-kernel",
        "the kernel's text is what its source gives, and assembles for all chips",
        "python3 tools/device_kernel.py --check",
    ),
    Part(
        "gpu",
        "digests, losses, an error and speed on a device, if there is one",
        "tests/gpu/run.sh",
    ),
]
_VERSIONS = [
    Part(
        "torch-versions",
        "the agent in every torch version that it takes",
        "tools/torch_versions.sh --all && "
        f"{_TEST} //tests/integration:other_torch_versions_test",
    ),
]
_DEPLOYMENTS = [
    Part(
        "launchers",
        "torchrun, spawn, Open MPI, and two node daemons of Slurm",
        "tools/setup.sh slurm-wlm openmpi-bin && "
        f"{_TEST} //tests/deploy:launchers_test //tests/deploy:slurm_test",
    ),
    Part(
        "hosts",
        "a job of three hosts, each of which goes down once; two nodes",
        f"{_TEST} --test_env=TRAINCHECK_EACH_HOST=1 --test_timeout=1700 "
        "//tests/integration:hosts_test //tests/integration:nodes_test",
    ),
    Part(
        "upgrade",
        "agents and daemons of this version beside those of the one before",
        "tests/upgrade/run.sh",
    ),
    Part(
        "manifests",
        "deploy/kubernetes against the schemas of its objects",
        "tests/deploy/manifests.sh",
    ),
    Part(
        "wheel-tag",
        "what auditwheel finds that the wheel's files ask for",
        "deploy/build.sh wheel && "
        "tests/deploy/wheel_tag.sh deploy/out/traincheckd-*.whl",
    ),
    Part(
        "service",
        "the Debian package under systemd, in a container",
        "tools/setup.sh mmdebstrap systemd-container && deploy/build.sh deb && "
        "tests/deploy/service.sh deploy/out/traincheckd_*.deb",
    ),
]
_BENCHES = [
    Part(
        "soak",
        "two ranks for 28 minutes, the daemon's memory",
        "tests/bench/soak.sh --minutes 28 --most-growth 16",
    ),
    Part(
        "soak-ranks",
        "64 simulated ranks for 25 minutes with 4 restarts: memory and verdicts",
        "tests/bench/run.sh ranks_soak 25 4",
    ),
    Part(
        "bench-cost",
        "what the agent costs ten trainings",
        "tests/bench/cost.sh --pairs 3 --modes bare,full",
    ),
    Part("bench-ingest", "records a second", "tests/bench/run.sh ingest_bench 2 500"),
    Part("bench-checker", "checks a second", "tests/bench/run.sh checker_bench"),
]

PARTS = [
    *(_SEEDS + _FAULTS + _KILLS + _ERRORS + _RULES + _OPTIONS),
    *(_FUZZ + _SANITIZERS + _CHECKS + _DEVICE + _VERSIONS),
    *(_DEPLOYMENTS + _BENCHES),
]
