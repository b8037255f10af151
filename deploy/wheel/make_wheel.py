"""Writes the wheel: the module, the programs, the agent's libraries.

    make_wheel.py --out traincheckd-0.1.0-py3-none-PLATFORM.whl --version-header H
        --readme F --licence F --third-party F --module F --programs-module F
        FILE...

The same files give the same bytes. The platform is checked: no FILE may ask for
a newer glibc than the wheel's name promises.
"""

import argparse
import base64
import hashlib
import pathlib
import re
import sys
import zipfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import package_files  # noqa: E402

_TIME = (1980, 1, 1, 0, 0, 0)  # the first that a zip file can hold
_PACKAGE = "traincheckd"
_NAME = re.compile(r"traincheckd-([\d.]+)-py3-none-manylinux_(\d+)_(\d+)_(\w+)\.whl")

_METADATA = """\
Metadata-Version: 2.1
Name: traincheckd
Version: {version}
Summary: Watches PyTorch trainings for silent errors
License: Apache-2.0
Platform: Linux
Classifier: Development Status :: 4 - Beta
Classifier: Environment :: Console
Classifier: Intended Audience :: Developers
Classifier: Intended Audience :: Science/Research
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C++
Classifier: Programming Language :: Python :: 3 :: Only
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Keywords: pytorch,training,monitoring,distributed
Requires-Python: >=3.11
License-File: LICENSE
License-File: THIRD_PARTY
Description-Content-Type: text/markdown

{readme}"""
_WHEEL = """\
Wheel-Version: 1.0
Generator: traincheckd
Root-Is-Purelib: false
Tag: py3-none-{platform}
"""
_ENTRY_POINTS = """\
[console_scripts]
traincheckctl = traincheckd.programs:traincheckctl
traincheckd = traincheckd.programs:traincheckd
"""


class Wheel:
    """A zip file whose bytes depend on nothing but its content."""

    def __init__(self, path: str, info: str):
        self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self._info = info
        self._record = []

    def add(self, name: str, content: bytes, mode: int = 0o644) -> None:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
        text = digest.rstrip(b"=").decode()
        self._record.append(f"{name},sha256={text},{len(content)}\n")
        self._write(name, content, mode)

    def close(self) -> None:
        name = f"{self._info}/RECORD"
        lines = "".join(self._record) + f"{name},,\n"
        self._write(name, lines.encode(), 0o644)
        self._zip.close()

    def _write(self, name: str, content: bytes, mode: int) -> None:
        entry = zipfile.ZipInfo(name, _TIME)
        entry.create_system = 3  # unix: it has modes
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self._zip.writestr(entry, content)


def make(options) -> None:
    name = _NAME.fullmatch(pathlib.Path(options.out).name)
    version = package_files.version_of(options.version_header)
    if name is None or name[1] != version:
        raise ValueError(f"{options.out} is not a name for a wheel of {version}")
    info = f"{_PACKAGE}-{version}.dist-info"
    wheel = Wheel(options.out, info)
    wheel.add(f"{_PACKAGE}/__init__.py", options.module.read_bytes())
    wheel.add(f"{_PACKAGE}/programs.py", options.programs_module.read_bytes())
    wheel.add(f"{_PACKAGE}/py.typed", b"")
    for path in sorted(options.files, key=lambda path: path.name):
        mode = 0o644
        if package_files.is_elf(path):
            package_files.check_glibc(path, (int(name[2]), int(name[3])))
            mode = 0o755
        content = package_files.content_of(path)
        wheel.add(f"{_PACKAGE}/bin/{path.name}", content, mode)
    readme = options.readme.read_text()
    metadata = _METADATA.format(version=version, readme=readme)
    platform = f"manylinux_{name[2]}_{name[3]}_{name[4]}"
    wheel.add(f"{info}/METADATA", metadata.encode())
    wheel.add(f"{info}/WHEEL", _WHEEL.format(platform=platform).encode())
    wheel.add(f"{info}/entry_points.txt", _ENTRY_POINTS.encode())
    wheel.add(f"{info}/LICENSE", options.licence.read_bytes())
    wheel.add(f"{info}/THIRD_PARTY", options.third_party.read_bytes())
    wheel.close()


def parse_options(arguments):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    for name in ("version-header", "readme", "licence", "third-party"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    for name in ("module", "programs-module"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("files", type=pathlib.Path, nargs="+")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    try:
        make(parse_options(sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"make_wheel: {error}")
