"""Runs clang and clang-tidy over sources; see tools/clang_checks.sh."""

import argparse
import concurrent.futures
import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys

from include_graph import IncludeGraph

ROOT = pathlib.Path(__file__).resolve().parents[1]
CLANG, TIDY = "clang-19", "clang-tidy-19"  # of tools/packages.txt
CHECKS = ("locks", "tidy")
_SUFFIXES = (".c", ".cc", ".h")
_LOCKS = (
    "-fsyntax-only",
    "-Wthread-safety",
    "-Werror",
    # Pragmas and names of warnings that only GCC knows, and what libstdc++ uses
    # of itself.
    "-Wno-unknown-warning-option",
    "-Wno-unknown-pragmas",
    "-Wno-deprecated-declarations",
)


class ChecksError(Exception):
    """Nothing can be checked; the text says what to do."""


@dataclasses.dataclass(frozen=True)
class Job:
    """One run of a tool."""

    check: str
    file: str
    command: tuple


class Tree:
    """A checkout with its compile_commands.json."""

    def __init__(self, root: pathlib.Path):
        self.root = root
        path = root / "compile_commands.json"
        if not path.is_file():
            raise ChecksError(f"{path.name} is missing: tools/compile_commands.py")
        self.commands = {
            row["file"]: row["arguments"] for row in json.loads(path.read_text())
        }
        self.graph = IncludeGraph(root, self._built_folder())

    def _built_folder(self) -> str:
        """Where the commands look for headers that the build makes."""
        for command in self.commands.values():
            for option, folder in zip(command, command[1:]):
                if option == "-iquote" and folder.startswith("bazel-out/"):
                    return folder
        return "bazel-bin"

    def jobs(self, files: list, checks: list) -> list:
        """What has to run for these files, headers among them."""
        sources = {file for file in files if file in self.commands}
        made = []
        if "locks" in checks:
            headers = {file for file in files if file.endswith(".h")}
            for file in sorted(sources | self._users(headers)):
                command = (CLANG, *self.commands[file][1:], *_LOCKS)
                made.append(Job("locks", file, command))
        if "tidy" in checks:
            for file in sorted(sources | self._known_headers(files)):
                command = (TIDY, "--quiet", "-p", ".", self._header_filter(), file)
                made.append(Job("tidy", file, command))
        self._require_generated([job.file for job in made])
        return made

    def _header_filter(self) -> str:
        """Findings in headers of this tree count, those in generated ones do not."""
        folders = sorted({file.split("/")[0] for file in self.commands})
        here = rf"({self.root}/)?(\./)?"
        return f"--header-filter=^{here}({'|'.join(folders)})/"

    def _users(self, headers: set) -> set:
        """Sources to which a promise of these headers may be made."""
        locks = {header for header in headers if self.graph.sees_locks(header)}
        return {
            source
            for source in self.commands
            if not locks.isdisjoint(self.graph.includes(source))
        }

    def _known_headers(self, files: list) -> set:
        """Headers that a program of ours includes: the others have no command."""
        reached = set().union(*map(self.graph.reached, self.commands))
        return {file for file in files if file.endswith(".h") and file in reached}

    def _require_generated(self, files: list) -> None:
        for file in files:
            for header in self.graph.generated(file):
                if not self.graph.is_built(header):
                    raise ChecksError(
                        f"{file} includes {header}, which the build makes and which"
                        " is not there: tools/build.sh build //... comes first"
                    )

    def key(self, job: Job) -> str:
        """Names everything that decides the job's result, tools' version included."""
        digest = hashlib.sha256(repr((job.command, _version(job.command[0]))).encode())
        names = self.graph.contents(job.file)
        for name in names + [".clang-tidy"] * (job.check == "tidy"):
            digest.update(name.encode() + b"\0" + (self.root / name).read_bytes())
        return digest.hexdigest()


def _version(tool: str) -> str:
    path = shutil.which(tool)
    if path is None:
        raise ChecksError(f"{tool} is not installed: tools/setup.sh")
    return f"{os.path.realpath(path)} {os.stat(path).st_mtime_ns}"


def run_job(root: pathlib.Path, job: Job) -> str:
    """What the tool has to say; "" when nothing."""
    done = subprocess.run(
        job.command,
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode == 0:
        return ""
    return done.stdout or f"{job.command[0]} ended with {done.returncode}\n"


def run(tree: Tree, jobs: list, passed: pathlib.Path, again: bool) -> int:
    """Runs them, prints findings and a last line; returns how many have some.

    passed: a folder with one empty file for each result without a finding.
    again: also what is in there.
    """
    passed.mkdir(parents=True, exist_ok=True)
    keys = {job: passed / tree.key(job) for job in jobs}
    due = [job for job in jobs if again or not keys[job].exists()]
    found = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for job, text in zip(due, pool.map(lambda job: run_job(tree.root, job), due)):
            if text:
                found += 1
                print(text, end="", flush=True)
                print(f"clang_checks: {job.check} of {job.file}", flush=True)
            else:
                keys[job].touch()
    print(f"clang_checks: {len(jobs)} runs, {len(due)} of them due, {found} findings")
    return found


def _git(*arguments: str) -> list:
    done = subprocess.run(
        ["git", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    return done.stdout.splitlines() if done.returncode == 0 else []


def default_base() -> str:
    """Where this branch left main; on main itself the commit before; "": unknown."""
    head = _git("rev-parse", "HEAD")
    for main in ("origin/main", "main"):
        base = _git("merge-base", "HEAD", main)
        if base and base != head:
            return base[0]
    return "".join(_git("rev-parse", "--verify", "HEAD~1"))


def changed_files(base: str) -> list:
    """Since then, with what is not committed yet."""
    if not _git("rev-parse", "--verify", f"{base}^{{commit}}"):
        raise ChecksError(f"there is no revision {base!r} to compare with: --base")
    names = _git("diff", "--name-only", "--diff-filter=d", base)
    names += _git("ls-files", "--others", "--exclude-standard")
    return sorted(name for name in set(names) if name.endswith(_SUFFIXES))


def chosen_files(options: argparse.Namespace, tree: Tree) -> list:
    if options.all:
        return sorted(tree.commands)  # headers are read with them
    if options.files:
        for name in options.files:
            if not (ROOT / name).is_file():
                raise ChecksError(f"no file {name}, from the root of the tree")
        return options.files
    return changed_files(options.base or default_base())


def passed_folder() -> pathlib.Path:
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "traincheckd" / "clang_checks"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--base", metavar="REVISION")
    parser.add_argument("--only", choices=CHECKS)
    parser.add_argument("files", nargs="*", metavar="FILE")
    options = parser.parse_args()
    try:
        tree = Tree(ROOT)
        checks = [options.only] if options.only else list(CHECKS)
        jobs = tree.jobs(chosen_files(options, tree), checks)
        return 1 if run(tree, jobs, passed_folder(), again=options.all) else 0
    except ChecksError as error:
        print(f"clang_checks: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
