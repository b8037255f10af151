"""Scripts in a root of their own (clean_root.sh), and what they print in parts."""

import pathlib
import shutil
import subprocess

import harness

HERE = pathlib.Path("tests/deploy").resolve()
DEB = next(pathlib.Path("deploy").resolve().glob("traincheckd_*.deb"), None)


def why_not(folder: pathlib.Path) -> str:
    """Why no root can be made here; empty: it can."""
    command = [HERE / "clean_root.sh", folder, "/bin/true"]
    done = harness.run_captured(command, harness.others_environment())
    if done.returncode == 127:  # a program is missing: not a reason to skip
        raise AssertionError(done.stderr)
    return f"{done.returncode}: {done.stderr}" if done.returncode != 0 else ""


def why_no_other_users(folder: pathlib.Path) -> str:
    """Why nobody but root can be in a root of its own; empty: others can."""
    if reason := why_not(folder):
        return f"no root of its own can be made: {reason}"
    command = [HERE / "clean_root.sh", folder, "/usr/bin/setpriv"]
    command += ["--reuid", "7471", "--clear-groups", "/bin/true"]
    done = harness.run_captured(command, harness.others_environment())
    return f"no other user can be in it: {done.stderr}" if done.returncode != 0 else ""


def run(folder: pathlib.Path, script: str, files: list, arguments: list, package=DEB):
    """Runs a script of this folder with the package and these files beside it.

    Its arguments are the package and those given; of them, names of files are
    those in `folder`. Returns what it printed below each line "== NAME".
    """
    for path in (package, HERE / script, *files):
        copy = shutil.copytree if path.is_dir() else shutil.copy
        copy(path, folder / path.name)
    names = {path.name for path in files}
    given = [folder / a if a in names else a for a in arguments]
    command = [HERE / "clean_root.sh", folder, folder / script, folder / package.name]
    done = subprocess.run(
        [*map(str, [*command, *given])],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=5 * harness.PATIENCE_S,
        env=harness.others_environment(),
    )
    if done.returncode != 0:
        raise AssertionError(f"{script}: {done.returncode}\n{done.stdout}")
    return _parts_of(done.stdout)


def _parts_of(text: str) -> dict:
    parts = {}
    for line in text.splitlines(keepends=True):
        if line.startswith("== "):
            name = line[3:].strip()
            parts[name] = ""
        elif parts:
            parts[name] += line
    return parts
