"""Makes agent/device/digest_kernel.ptx: the kernel as the agent carries it.

    python3 tools/device_kernel.py            writes the file
    python3 tools/device_kernel.py --check    compares it, assembles it for chips

Compiles agent/device/digest_kernel.cu with NVRTC and assembles the result with
ptxas, both from PyPI's packages at the versions below, downloaded once (130 MB).
Neither needs a GPU or a driver.
"""

import argparse
import ctypes
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

VERSION = "12.9.86"
PACKAGES = ["nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvcc-cu12"]
# The oldest chip that it runs on, and the PTX version of a driver of 2019: NVRTC
# writes its own version, of which the kernel needs nothing.
ARCHITECTURE = "compute_75"
PTX_VERSION = "6.4"
CHIPS = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]
# More, and fewer than 4 blocks run on a multiprocessor at a time.
MAX_REGISTERS = 64

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "agent/device/digest_kernel.cu"
LAYOUT = "agent/device/digest_layout.h"
PTX = ROOT / "agent/device/digest_kernel.ptx"


def compilers():
    """The folder of NVIDIA's packages, installed if they are not there yet."""
    cache = os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")
    folder = Path(cache) / "traincheckd" / f"cuda-{VERSION}"
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            + ["--disable-pip-version-check", "--dest", f"{scratch}/wheels"]
            + [f"{package}=={VERSION}" for package in PACKAGES],
            check=True,
            stdout=sys.stderr,
        )
        for wheel in Path(scratch, "wheels").iterdir():
            zipfile.ZipFile(wheel).extractall(f"{scratch}/packages")
        ptxas = Path(scratch, "packages/nvidia/cuda_nvcc/bin/ptxas")
        ptxas.chmod(0o755)
        os.rename(f"{scratch}/packages", folder)
    return folder


class Nvrtc:
    """A program at a time; exits with the compiler's words if it fails."""

    def __init__(self, folder):
        library = folder / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"
        self.library = ctypes.CDLL(str(library))

    def call(self, function, *arguments):
        return getattr(self.library, "nvrtc" + function)(*arguments)

    def text(self, what, program):
        size = ctypes.c_size_t()
        self.call(f"Get{what}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self.call(f"Get{what}", program, text)
        return text.value.decode()

    def compile(self, source, name):
        program = ctypes.c_void_p()
        self.call(
            "CreateProgram",
            ctypes.byref(program),
            source.encode(),
            name.encode(),
            0,
            None,
            None,
        )
        options = [f"--gpu-architecture={ARCHITECTURE}", "--std=c++17"]
        array = (ctypes.c_char_p * len(options))(*[o.encode() for o in options])
        if self.call("CompileProgram", program, len(options), array) != 0:
            sys.exit(self.text("ProgramLog", program))
        return self.text("PTX", program)


def make_ptx(folder):
    source = SOURCE.read_text()
    include = f'#include "{LAYOUT}"\n'
    assert include in source
    source = source.replace(include, (ROOT / LAYOUT).read_text())
    ptx = Nvrtc(folder).compile(source, SOURCE.name)
    ptx, times = re.subn(r"(?m)^\.version .*$", f".version {PTX_VERSION}", ptx)
    assert times == 1
    # A hint that PTX 6.4 does not know.
    ptx = re.sub(r'(?m)^\s*\.pragma "used_bytes_mask [^"]*";\n', "", ptx)
    return "".join(line.rstrip() + "\n" for line in ptx.splitlines())


def assemble(folder, path):
    """Prints the registers on each chip; exits if it does not assemble."""
    ptxas = folder / "nvidia/cuda_nvcc/bin/ptxas"
    for chip in CHIPS:
        result = subprocess.run(
            [ptxas, "-v", f"-arch={chip}", "-o", "/dev/null", path],
            capture_output=True,
            text=True,
        )
        words = result.stdout + result.stderr
        if result.returncode != 0:
            sys.exit(f"{chip}: {words}")
        registers = int(re.search(r"Used (\d+) registers", words)[1])
        spilled = re.search(r"(\d+) bytes spill stores", words)[1]
        print(f"{chip}: {registers} registers, {spilled} bytes spilled")
        if registers > MAX_REGISTERS:
            sys.exit(f"{chip}: more than {MAX_REGISTERS} registers")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    options = parser.parse_args()
    folder = compilers()
    ptx = make_ptx(folder)
    if not options.check:
        PTX.write_text(ptx)
    elif PTX.read_text() != ptx:
        sys.exit(f"{PTX} is not what {SOURCE} gives: run tools/device_kernel.py")
    assemble(folder, PTX)


if __name__ == "__main__":
    main()
