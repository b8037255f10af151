"""Writes the Debian package: programs, unit, configuration, manuals, completion.

    make_deb.py --out traincheckd_0.1.0_amd64.deb --glibc 2.28 --version-header F
        --third-party F --documents F... --files F...

The same files give the same bytes. Debian's dpkg-deb packs them. Manuals and
completion are what the programs among the files print.
"""

import argparse
import gzip
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

_HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(_HERE.parent), str(_HERE.parent / "manual")]
import manual  # noqa: E402
import package_files  # noqa: E402

_TIME = 315532800  # 1980-01-01, as in the wheel
_LIBRARY = "usr/lib/traincheckd"
_DOC = "usr/share/doc/traincheckd"
_MAINTAINER = "The traincheckd authors <traincheckd@localhost>"

# libc6 for the agent's libraries; the programs need none.
_CONTROL = """\
Package: traincheckd
Version: {version}
Architecture: {architecture}
Maintainer: {maintainer}
Installed-Size: {size}
Depends: libc6 (>= {glibc})
Suggests: python3 (>= 3.11)
Section: science
Priority: optional
Description: watches PyTorch trainings for silent errors
 A silent error crashes nothing and hides behind a plausible loss curve. The
 daemon traincheckd has rules that every healthy training obeys, learns further
 ones from healthy runs, and checks both while a training runs. The agent that
 traincheckctl loads into trainings needs no change of their scripts.
"""
_COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: traincheckd
Comment: The programs contain parts of Debian's packages; THIRD_PARTY.gz has
 their licences, BUILD_INFO their versions.

Files: *
Copyright: 2025-2026 The traincheckd authors
License: Apache-2.0
 On Debian systems the whole text of the Apache License, version 2.0, is in
 /usr/share/common-licenses/Apache-2.0.
"""
_CHANGELOG = """\
traincheckd ({version}) unstable; urgency=medium

  * See CHANGELOG.gz.

 -- {maintainer}  Tue, 01 Jan 1980 00:00:00 +0000
"""
_COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/traincheckctl",
    "zsh": "usr/share/zsh/vendor-completions/_traincheckctl",
    "fish": "usr/share/fish/vendor_completions.d/traincheckctl.fish",
}
_COMMANDS = ("traincheckctl", "traincheckd")
_SCRIPTS = ("postinst", "prerm", "postrm")


class Tree:
    """The files of the package below a folder."""

    def __init__(self, root: pathlib.Path):
        self.root = root

    def add(self, name: str, content: bytes, mode: int = 0o644) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)

    def add_compressed(self, name: str, content: bytes) -> None:
        self.add(name + ".gz", gzip.compress(content, 9, mtime=0))

    def link(self, name: str, target: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    def finish(self) -> int:
        """Fixes modes of folders and times; returns the size in KiB."""
        size = 0
        for path in sorted(self.root.rglob("*"), reverse=True):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
            size += (path.lstat().st_size + 1023) // 1024
            os.utime(path, (_TIME, _TIME), follow_symlinks=False)
        self.root.chmod(0o755)
        return size


def add_programs(tree: Tree, files: list, glibc: str) -> None:
    promised = tuple(map(int, glibc.split(".")))
    for path in files:
        mode = 0o644
        if package_files.is_elf(path):
            package_files.check_glibc(path, promised)
            mode = 0o644 if path.suffix == ".so" else 0o755
        tree.add(f"{_LIBRARY}/{path.name}", package_files.content_of(path), mode)
    for name in _COMMANDS:
        tree.link(f"usr/bin/{name}", f"../lib/traincheckd/{name}")
    module = "traincheckd.py"
    tree.link(f"usr/lib/python3/dist-packages/{module}", f"../../traincheckd/{module}")


def add_documents(tree: Tree, options, version: str) -> None:
    changelog = _CHANGELOG.format(version=version, maintainer=_MAINTAINER)
    tree.add(f"{_DOC}/copyright", _COPYRIGHT.encode())
    overrides = (_HERE / "lintian-overrides").read_bytes()
    tree.add("usr/share/lintian/overrides/traincheckd", overrides)
    tree.add_compressed(f"{_DOC}/changelog", changelog.encode())
    tree.add_compressed(f"{_DOC}/THIRD_PARTY", options.third_party.read_bytes())
    for path in options.documents:
        tree.add_compressed(f"{_DOC}/{path.name}", path.read_bytes())


def add_help(tree: Tree, programs: dict, version: str) -> None:
    """Manuals and completion."""
    ctl, daemon = (programs[name].resolve() for name in _COMMANDS)
    for name, text in manual.pages(str(ctl), str(daemon), version).items():
        section = name.rpartition(".")[2]
        tree.add_compressed(f"usr/share/man/man{section}/{name}", text.encode())
    for shell, name in _COMPLETIONS.items():
        script = subprocess.run(
            [ctl, "completion", shell], stdout=subprocess.PIPE, check=True
        ).stdout
        tree.add(name, script)


def add_service(tree: Tree) -> None:
    unit = (_HERE / "traincheckd.service").read_bytes()
    tree.add("lib/systemd/system/traincheckd.service", unit)
    configuration = "etc/traincheck/traincheckd.toml"
    tree.add(configuration, (_HERE / "traincheckd.toml").read_bytes())
    tree.add("DEBIAN/conffiles", f"/{configuration}\n".encode())
    for name in _SCRIPTS:
        tree.add(f"DEBIAN/{name}", (_HERE / name).read_bytes(), 0o755)


def make(options) -> None:
    version = package_files.version_of(options.version_header)
    name = pathlib.Path(options.out).name
    architecture = name.removesuffix(".deb").split("_")[-1]
    if name != f"traincheckd_{version}_{architecture}.deb":
        raise ValueError(f"{name} is not a name for a package of {version}")
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(pathlib.Path(folder) / "root")
        add_programs(tree, options.files, options.glibc)
        add_documents(tree, options, version)
        add_help(tree, {path.name: path for path in options.files}, version)
        add_service(tree)
        control = _CONTROL.format(
            version=version,
            architecture=architecture,
            maintainer=_MAINTAINER,
            size=tree.finish(),
            glibc=options.glibc,
        )
        tree.add("DEBIAN/control", control.encode())
        tree.finish()
        # xz gives other bytes on another number of threads.
        command = ["dpkg-deb", "--root-owner-group", "--threads-max=1"]
        command += ["-Zxz", "-z1", "--build"]
        subprocess.run(
            [*command, tree.root, pathlib.Path(folder) / name],
            env={**os.environ, "SOURCE_DATE_EPOCH": str(_TIME)},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        shutil.copyfile(pathlib.Path(folder) / name, options.out)


def parse_options(arguments):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    parser.add_argument("--glibc", required=True, help="of the agent's libraries")
    for name in ("version-header", "third-party"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--documents", type=pathlib.Path, nargs="+", required=True)
    parser.add_argument("--files", type=pathlib.Path, nargs="+", required=True)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    try:
        make(parse_options(sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"make_deb: {error}")
