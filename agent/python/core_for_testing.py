"""A recording stand-in for the agent's C++ half, for tests of the hooks.

Every record is a tuple in `log`: ("begin", name), ("end", name),
("raised", name), ("state", point, what, names), ("scalar", point, name, value),
("mark", kind, object, value), ("context", enter, name), ("clock", event),
("bytes", point, name, data, dtype), ("capture", mode),
("checkpoint", point, {key: (value, alias)}, left_out).
Points and marks appear by their names, variables by "Root.name".
"""

import ctypes
import functools
import importlib.machinery
import os
import pathlib
import sys
import types
import weakref

import torch

HOOKS = pathlib.Path(__file__).resolve().parent / "hooks"

SITES_HERE = 1000

_POINTS = (
    "WRAP_END",
    "CONSTRUCTION",
    "FORWARD_BEGIN",
    "BACKWARD_END",
    "PRE_CLIP",
    "POST_CLIP",
    "PRE_STEP",
    "POST_STEP",
    "GRAD_CLEAR",
    "STEP_END",
    "SAVE",
    "LOAD",
    "STATE_DICT",
    "LOAD_STATE_DICT",
    "FETCH",
    "WORKER_INIT",
    "FORWARD_END",
)
_MARKS = (
    "ITERATOR_CREATED",
    "BATCH_FETCHED",
    "ITERATOR_EXHAUSTED",
    "ITERATOR_ABANDONED",
    "CLEAN_EXIT",
    "USER_STEP",
    "USER_STAGE",
    "STEP_SKIPPED",
    "OPTIMIZER_STEPS",
    "PLAN_APPLIED",
)


def hooks_package():
    """Makes `_traincheck` importable from the sources."""
    package = types.ModuleType("_traincheck")
    package.__path__ = [str(HOOKS)]
    package.__spec__ = importlib.machinery.ModuleSpec("_traincheck", None)
    sys.modules["_traincheck"] = package


class RecordingCore:
    STATE_DATA, STATE_GRAD = 1, 2
    STATE_DATA_STATISTICS, STATE_GRAD_STATISTICS = 4, 8
    STATE_DATA_ROWS, STATE_GRAD_ROWS = 16, 32
    OBJECT_MODULE, OBJECT_OPTIMIZER, OBJECT_LOADER, OBJECT_OTHER = 1, 2, 3, 4
    VARIABLE_PARAMETER, VARIABLE_BUFFER, VARIABLE_OPTIMIZER_STATE = 1, 2, 3
    VARIABLE_GENERATOR, VARIABLE_LOADER_STATE, VARIABLE_INPUTS = 4, 5, 6
    USER_STAGE_NONE, USER_STAGE_INIT = 0, 1
    USER_STAGE_TRAINING, USER_STAGE_EVALUATION = 2, 3
    PROCESS_MAIN, PROCESS_WORKER, PROCESS_OTHER = 1, 2, 3
    CAPTURE_OFF, CAPTURE_ALL, CAPTURE_SKELETON = 0, 1, 2
    SKIPPED_BY_SCALER, SKIPPED_MADE_BY_OTHER_RANKS = 0, 1
    PLACE_SINGLE, PLACE_ENVIRONMENT, PLACE_PROCESS_GROUP = 0, 1, 2

    def __init__(self):
        for point in _POINTS:
            setattr(self, f"POINT_{point}", point)
        for mark in _MARKS:
            setattr(self, f"MARK_{mark}", mark)
        self.raised = []  # exceptions of hooks
        self.switched = {}  # function -> is it recorded?
        self.capture = (1, 1, 0)  # mode, turns, step
        self.steps = 0  # closed
        self.plans = []  # that the relay has sent
        self.clocks = (0, 0)  # own time, all
        self.periods = 0  # that have ended
        self.device_times = {}  # period -> a device's time; None: still to come
        self.device = False  # is this process's memory a device's?
        self.contents = {}  # function -> what its calls tell
        self.functions = {}  # name -> (category, roles) of all wrappers
        self.clear()

    def clear(self):
        self.log = []
        self.sites_at = []  # (file, line, function), numbered from 1
        self.sites_here = []  # (file, line), numbered from SITES_HERE + 1
        self.objects = {}  # number -> (class name, path, root, wrapped)
        self.variables = {}  # number -> "Root.name"
        self.facts = {}  # "Root.name" -> (kind, owner, alias group, epoch)
        self.shadows = {}  # "Root.name" -> the one of which it is a copy
        self.holds = {}  # (optimizer, group) -> names
        self.replica_groups = []
        self.closing = set()  # clock events that close a step
        self.process_groups = {}  # number -> (name, backend, ranks, mesh)
        self.attributes = {}  # "Root.name" -> ["partition_dim=0"]
        self.kind = None
        self.place = None
        self.start = None
        self.inherits, self.sign = False, None
        self.run, self.provisional = "mine", True
        self.copied = []  # (number, contents) that copies() has not given
        self.copying = 0
        self._numbers = {}  # id -> (weak reference, number)
        self._open = []

    # Records.

    def names(self, variables):
        return [self.variables[number] for number in variables]

    def of(self, *kinds):
        return [record for record in self.log if record[0] in kinds]

    def states(self, point):
        """Names of each record_states at the point, those of generators left out."""
        found = [record[3] for record in self.log if record[:2] == ("state", point)]
        return [names for names in found if not names[0].startswith("generator.")]

    # The interface of traincheck_core.pyi.

    def wrap(
        self,
        fn,
        name,
        category,
        roles=(),
        before=None,
        after=None,
        outermost_only=True,
        detail=False,
    ):
        self.functions[name] = (category, tuple(roles))
        return self._wrap(
            fn, lambda args: name, category, before, after, outermost_only
        )

    def wrap_module_call(self, fn, before_root=None, after_root=None):
        def name(args):
            return f"{type(args[0]).__qualname__}.forward"

        return self._wrap(fn, name, "forward", before_root, after_root, None)

    def set_content(self, wrapper, content):
        self.contents[wrapper.__wrapped__] = content

    def switch(self, wrapper, active):
        self.switched[wrapper.__wrapped__] = active

    def tell_switch(self, wrapper):
        on = self.switched.get(wrapper.__wrapped__, True)
        self.log.append(("switch", wrapper.__wrapped__, on))

    def set_capture(self, mode, turns=1, step=0):
        if mode != self.capture[0]:
            self.log.append(("capture", mode))
        self.capture = (mode, turns, step)

    def next_plan(self):
        return self.plans.pop(0) if self.plans else None

    def zoom_in_on(self, variables):
        self.zoomed = list(variables)

    def open_step(self):
        return self.steps

    def times(self):
        return self.clocks

    def end_period(self):
        self.periods += 1
        return self.periods

    def device_time(self, period):
        return self.device_times.get(period, 0)

    def hook_begins(self):
        return 0

    def hook_ends(self, begin):
        pass

    def plan_forwards(self, callback):
        self.forward_plan = callback

    def _wrap(self, fn, name_of, category, before, after, outermost_only):
        @functools.wraps(fn)
        def wrapper(*args, **kwargs):
            name = name_of(args)
            key = (category, id(args[0]) if args else 0)
            if outermost_only is None:
                observed = not any(kind == category for kind, _ in self._open)
            else:
                observed = not outermost_only or key not in self._open
            self.log.append(("begin", name))
            token = None
            if observed and before:
                token = self._guarded(before, args, kwargs)
            self._open.append(key)
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                self._open.pop()
                if observed and after:
                    self._guarded(after, token, args, kwargs, None, error)
                self.log.append(("raised", name))
                raise
            self._open.pop()
            if observed and after:
                self._guarded(after, token, args, kwargs, result, None)
            self.log.append(("end", name))
            return result

        wrapper.is_wrapper_of_core = True
        return wrapper

    def _guarded(self, callback, *args):
        try:
            return callback(*args)
        except Exception as error:
            self.raised.append(error)

    def content_of(self, module):
        buffers = module._buffers.items()
        return (
            repr(list(map(id, module._parameters.values()))).encode(),
            repr(
                (
                    [key for key, value in buffers if value is not None],
                    list(map(id, module._modules.values())),
                )
            ).encode(),
        )

    def changed_parts(self, parts):
        return [part for part in parts if part.changed()]

    def collect_parameters(self, parts, variables, tensors, mine=False):
        for part in parts:
            if not mine or part.claim.is_mine():
                part.collect_params(variables, tensors)

    def count_trained(self, parts):
        modules = [part.module() for part in parts]
        return sum(
            tensor is not None and tensor.requires_grad
            for module in modules
            if module is not None
            for tensor in module._parameters.values()
        )

    def addresses(self, lists):
        return repr([list(map(id, some)) for some in lists]).encode()

    def code_place(self, torch):
        found, frame = [], sys._getframe(1)
        while frame is not None and len(found) < 4:
            name = frame.f_code.co_filename
            ours = frame.f_globals.get("__package__") == "_traincheck"
            if not ours and not name.startswith(torch):
                found.append((name, frame.f_lineno))
            frame = frame.f_back
        return hash(tuple(found))

    def is_wrapper(self, value):
        return "is_wrapper_of_core" in getattr(value, "__dict__", {})

    def type_modified(self, cls):
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(cls))

    def object_id(self, value):
        row = self._numbers.get(id(value))
        return row[1] if row is not None and row[0]() is value else 0

    def define_object(self, value, kind, path="", root=0, wrapped=0):
        number = self.object_id(value) or len(self.objects) + 1
        self._numbers[id(value)] = (weakref.ref(value), number)
        self.objects[number] = (type(value).__name__, path, root, wrapped)
        return number

    def define_variable(
        self,
        tensor,
        name,
        root_class,
        root,
        kind,
        owner_class,
        alias_group,
        identity_epoch=0,
        attributes=(),
        shadow_of=0,
    ):
        full = f"{root_class}.{name}"
        self.attributes[full] = list(attributes)
        self.facts[full] = (kind, owner_class, alias_group, identity_epoch)
        self.shadows[full] = self.variables.get(shadow_of)
        for number, known in self.variables.items():
            if known == full:
                return number
        number = len(self.variables) + 1
        self.variables[number] = full
        return number

    def define_hold(self, optimizer, group, variables):
        self.holds[(optimizer, group)] = self.names(variables)
        self.log.append(("hold", group, self.names(variables)))

    def define_replica_group(self, group, evidence, wrapper, ranks, variables):
        self.replica_groups.append(
            (evidence, wrapper, list(ranks), self.names(variables))
        )

    def define_process_group(
        self, group, name, backend, ranks, mesh=0, mesh_dimension=0, mesh_name=""
    ):
        place = (mesh, mesh_dimension, mesh_name)
        self.process_groups[group] = (name, backend, list(ranks), place)

    def is_users(self, error):
        return False

    def rank_is_inherited(self):
        return self.inherits

    def provisional_run(self):
        return self.run if self.provisional else None

    def settle_run(self, run=""):
        self.run, self.provisional = run or self.run, False

    def show_rank(self, rank, world_size):
        self.sign = (rank, world_size)

    def set_process_kind(self, kind, worker_id=0, pass_seed=0):
        self.kind = (kind, worker_id)

    def record_place(self, rank, world_size, local_rank, source, start):
        self.place = (rank, world_size, local_rank, source)
        self.start = start
        self.log.append(("place",) + self.place)

    def record_states(self, point, what, variables, tensors):
        assert len(variables) == len(tensors)
        self.log.append(("state", point, what, self.names(variables)))

    def record_bytes(self, point, variable, data, dtype):
        name = self.variables[variable]
        self.log.append(("bytes", point, name, data, dtype))

    def digests(self, tensors):
        if any(tensor.is_meta for tensor in tensors):
            return None
        return b"".join(tensor.numpy().tobytes() for tensor in tensors)

    def cpu_is_device(self):
        return self.device

    def copy_to_host(self, tensors):
        assert self.device and tensors
        self.copying += 1
        contents = []
        for tensor in tensors:
            plain = tensor.detach().resolve_conj().resolve_neg().reshape(-1)
            # A single element of an expanded tensor is contiguous, too, but no view.
            plain = plain.clone(memory_format=torch.contiguous_format)
            contents.append(plain.view(torch.uint8).numpy().tobytes())
        self.copied.append((self.copying, contents))
        return self.copying

    def copies(self):
        copied, self.copied = self.copied, []
        return copied

    def record_checkpoint(self, point, keys, values, variables, left_out=0):
        assert len(keys) == len(values) == len(variables)
        aliases = [self.variables.get(number) for number in variables]
        self.log.append(
            ("checkpoint", point, dict(zip(keys, zip(values, aliases))), left_out)
        )

    def record_scalar(self, obj, point, group, name, value):
        self.log.append(("scalar", point, name, value))

    def record_mark(self, kind, obj, value):
        self.log.append(("mark", kind, obj, value))

    def record_unclean_exit(self, exception):
        self.log.append(("unclean exit", type(exception).__name__))

    def record_collective(self, group, sequence):
        self.log.append(("collective", group, sequence))

    def record_context(self, enter, name, arguments=None):
        told = () if arguments is None else (arguments,)
        self.log.append(("context", enter, name, *told))

    def site_at(self, file, line, function):
        self.sites_at.append((file, line, function))
        return len(self.sites_at)

    def site_here(self):
        frame = sys._getframe(1)
        while frame is not None:
            path = frame.f_code.co_filename
            ours = path.startswith(str(HOOKS)) or path == __file__
            if not ours and not path.startswith("<") and "-packages/" not in path:
                self.sites_here.append((path, frame.f_lineno))
                return SITES_HERE + len(self.sites_here)
            frame = frame.f_back
        return 0

    def storage_key(self, tensor):
        tensor = getattr(tensor, "_local_tensor", tensor)
        try:
            return 0 if tensor.is_meta else tensor.untyped_storage()._cdata
        except NotImplementedError:  # within torch.func
            return 0

    def step_optimizer(self, optimizer):
        return self._clock("step")

    def step_optimizer_made(self):
        pass

    def step_batch_fetched(self, loader):
        return self._clock("fetch")

    def step_iterator_end(self, loader):
        return self._clock("end")

    def step_grad_clear(self):
        return self._clock("clear")

    def step_training_forward(self):
        return self._clock("forward")

    def _clock(self, event):
        self.log.append(("clock", event))
        closes = event in self.closing
        self.steps += closes
        return closes

    def step_backward(self):
        self.log.append(("clock", "backward"))

    def step_user(self):
        return self._clock("user")

    def step_end(self):
        return self._clock("end")

    def step_exit(self):
        return self.step_end()

    def setting(self, name):
        return os.environ.get(name, "")

    def log_once(self, key, message):
        self.raised.append(AssertionError(f"{key}: {message}"))

    def finish_states(self):
        pass

    def exit_flush(self):
        self.log.append(("flush",))
