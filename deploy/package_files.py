"""What wheel and Debian package have in common: the files that go into them."""

import pathlib
import re
import subprocess
import tempfile

_VERSION = re.compile(r'kVersion\[\] = "([^"]+)"')
_GLIBC = re.compile(r"GLIBC_(\d+)\.(\d+)")


def version_of(header: pathlib.Path) -> str:
    """What base/version.h says."""
    return _VERSION.search(header.read_text())[1]


def is_elf(path: pathlib.Path) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def content_of(path: pathlib.Path) -> bytes:
    """A program's without the names that only a debugger reads."""
    if not is_elf(path):
        return path.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / path.name
        command = ["strip", "--strip-unneeded", "-o", str(copy), str(path)]
        subprocess.run(command, check=True)
        return copy.read_bytes()


def check_glibc(path: pathlib.Path, promised: tuple) -> None:
    """Raises ValueError if a file asks for a newer glibc than is promised."""
    text = subprocess.run(
        ["readelf", "-W", "-V", str(path)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    needed = max((tuple(map(int, v)) for v in _GLIBC.findall(text)), default=(0, 0))
    if needed > promised:
        raise ValueError(
            f"{path} needs glibc {needed}, the package promises {promised}"
        )
