"""How the time and the memory of inference grow with the records.

Real trainings of one pipeline, each with another seed, are recorded in full
until ten times as many records are stored, and ten times as many again. For each
size: the time of `traincheckctl infer`, which reads the records from the store,
the memory of the job's process, and the invariants.

    tests/bench/run.sh inference_growth.py --powers 4,5,6,7
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import soak

PIPELINES = pathlib.Path(__file__).resolve().parents[1] / "pipelines"
# Records a step of this one, about: what is left over or missing shows.
PIPELINE, RECORDS_A_STEP = "denoiser.py", 450
# So many steps take about a minute.
STEPS_A_RUN = 12000


def record(setting: soak.Setting, run: str, steps: int, seed: int) -> int:
    """Trains and returns how many records are stored of it."""
    bare = {k: v for k, v in os.environ.items() if not k.startswith("TRAINCHECK_")}
    bare.update(OMP_NUM_THREADS="1", TRAINCHECK_BUDGET="off")
    bare["TRAINCHECK_SPOOL_DIR"] = str(setting.folder / "spool")
    command = [soak.DIST / "traincheckctl", "--server", setting.address, "run"]
    command += ["--run", run, "--collect", "--full", "--", sys.executable]
    command += [PIPELINES / PIPELINE, "--steps", str(steps), "--seed", str(seed)]
    with open(setting.folder / f"{run}.log", "wb") as log:
        subprocess.run(command, stdout=log, stderr=log, env=bare, check=True)
    return setting.ctl("runs", "show", run)["records"]


def infer(setting: soak.Setting, runs: list, name: str) -> dict:
    """The job's time and memory, and what it learned."""
    begin = time.perf_counter()
    learned = setting.ctl("infer", "--from", ",".join(runs), "--set", name)
    wall = time.perf_counter() - begin
    job = setting.ctl("jobs", "show", learned["job"])
    return {
        "seconds": wall,
        "mib": job["peak_bytes"] / 2**20,
        "invariants": learned["invariants"],
    }


def main():
    cli = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("--powers", default="4,5,6,7", help="of ten: records")
    options = cli.parse_args()
    print(f"{'records':>12}  {'s':>8}  {'times':>6}  {'MiB':>8}  invariants")
    with tempfile.TemporaryDirectory() as folder:
        setting = soak.Setting(pathlib.Path(folder))
        runs, records, before = [], 0, None
        try:
            for power in map(int, options.powers.split(",")):
                while records < 10**power:
                    left = (10**power - records) // RECORDS_A_STEP + 1
                    run = f"run-{len(runs)}"
                    steps = min(max(left, 8), STEPS_A_RUN)
                    records += record(setting, run, steps, seed=len(runs))
                    runs.append(run)
                done = infer(setting, runs, f"set-{power}")
                growth = f"{done['seconds'] / before:6.1f}" if before else f"{'':6}"
                before = done["seconds"]
                print(
                    f"{records:>12,}  {done['seconds']:8.2f}  {growth}  "
                    f"{done['mib']:8.0f}  {done['invariants']}",
                    flush=True,
                )
        finally:
            setting.daemon.terminate()
            setting.daemon.wait()


if __name__ == "__main__":
    main()
