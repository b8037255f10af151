# Runs inside the interpreter when it starts, before any user code. Puts an
# import finder before all others; it waits for torch, lets torch's own loader
# work, loads the agent's core from this library's folder and is gone.
#
# Only names that are there at interpreter start are used at the top level.
# Nothing in here may raise into the program: a failure is one line on stderr.
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # for mypy alone, which knows the name
    from collections.abc import Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_LIBRARY = "libtraincheck_agent.so"
_OLDEST_TORCH = (2, 4)
# Of the core that belongs to this library: agent/capture/version.h.
_VERSION = "0.1.0"


def _say(text: str) -> None:
    import os

    if os.environ.get("TRAINCHECK_LOG", "warning") != "off":
        try:
            os.write(2, ("traincheck: " + text + "; not recorded\n").encode())
        except OSError:
            pass  # nobody to tell


def _agent_folder() -> str:
    import os

    folder = os.environ.get("TRAINCHECK_AGENT_DIR")
    if folder:
        return folder
    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")[2]
            if path.endswith("/" + _LIBRARY):
                return os.path.dirname("/" + path)
    raise OSError(_LIBRARY + " is not among this process's mappings")


def _torch_is_too_old(torch: "ModuleType") -> bool:
    import re

    parts = re.match(r"(\d+)\.(\d+)", getattr(torch, "__version__", ""))
    return not parts or tuple(map(int, parts.groups())) < _OLDEST_TORCH


def _is_whole(path: str) -> bool:
    """Does the file reach as far as its header says?

    The loader maps what is missing and dies of it.
    """
    import os

    with open(path, "rb") as file:
        header = file.read(64)
        size = os.fstat(file.fileno()).st_size
    at, entry, count = (
        int.from_bytes(header[first:last], "little")
        for first, last in ((40, 48), (58, 60), (60, 62))
    )
    return header[:4] == b"\x7fELF" and at + entry * count <= size


def _start_core(torch: "ModuleType") -> None:
    from importlib.machinery import ExtensionFileLoader
    from importlib.util import module_from_spec, spec_from_file_location

    if _torch_is_too_old(torch):
        version = getattr(torch, "__version__", "of unknown version")
        _say("torch %s is older than %d.%d" % ((version,) + _OLDEST_TORCH))
        return
    path = _agent_folder() + "/libtraincheck_agent_core.so"
    if not _is_whole(path):
        _say("%s is damaged or incomplete" % path)
        return
    loader = ExtensionFileLoader("traincheck_core", path)
    spec = spec_from_file_location("traincheck_core", path, loader=loader)
    if spec is None:
        raise ImportError(path)
    core = module_from_spec(spec)
    loader.exec_module(core)
    if core.__version__ != _VERSION:
        versions = (path, core.__version__, _VERSION)
        _say("%s is of version %s, the preloaded library of %s" % versions)
        return
    core.start()


class _TorchFinder:
    def __init__(self) -> None:
        self._busy = False

    def find_spec(
        self,
        name: str,
        path: "Sequence[str] | None" = None,
        target: "ModuleType | None" = None,
    ) -> "ModuleSpec | None":
        if name != "torch" or self._busy:
            return None
        self._busy = True
        try:
            spec = self._real_spec(name, path, target)
        finally:
            self._busy = False
        loader = spec.loader if spec is not None else None
        if loader is not None and hasattr(loader, "exec_module"):
            self._stand_before(loader)
        return spec

    def _real_spec(
        self,
        name: str,
        path: "Sequence[str] | None",
        target: "ModuleType | None",
    ) -> "ModuleSpec | None":
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None

    def _stand_before(self, loader: "Loader") -> None:
        real = loader.exec_module

        def exec_module(module: "ModuleType") -> None:
            setattr(loader, "exec_module", real)
            real(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            try:
                _start_core(module)
            except Exception as error:
                kind = type(error).__name__
                _say("the agent could not start: %s: %s" % (kind, error))

        try:
            setattr(loader, "exec_module", exec_module)
        except AttributeError:
            _say("cannot hook torch's import loader %r" % loader)


sys.meta_path.insert(0, _TorchFinder())
