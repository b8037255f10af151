"""The C++ half of the agent as its Python half (hooks/) sees it.

The extension module is built from agent/capture and loaded by the preloaded
library's import finder when `import torch` ends; it then runs the embedded
hook modules. Names of records, fields and state points are those of
proto/record_format.h.

No function here raises into user code: hooks run behind the wrapper, which
swallows, counts and logs what they raise. None takes a lock on the record
path. All may be called from any thread with the GIL held.
"""

from typing import Any, Callable, Dict, Optional, Sequence

# Called when the call begins, after its CallBegin record: (args, kwargs) -> token
Before = Callable[[tuple, dict], Any]
# Called before its CallEnd/CallRaised record: result is None if it raised.
After = Callable[[Any, tuple, dict, Any, Optional[BaseException]], None]

# State points, mark kinds, kinds of objects and variables, as ints.
POINT_WRAP_END: int  # ... POINT_CONSTRUCTION, POINT_FORWARD_BEGIN, POINT_BACKWARD_END,
# POINT_PRE_CLIP, POINT_POST_CLIP, POINT_PRE_STEP, POINT_POST_STEP, POINT_GRAD_CLEAR,
# POINT_STEP_END, POINT_SAVE, POINT_LOAD, POINT_STATE_DICT, POINT_LOAD_STATE_DICT,
# POINT_FETCH, POINT_WORKER_INIT
MARK_ITERATOR_CREATED: int  # ... MARK_BATCH_FETCHED, MARK_ITERATOR_EXHAUSTED,
# MARK_ITERATOR_ABANDONED, MARK_CLEAN_EXIT, MARK_USER_STEP, MARK_USER_STAGE,
# MARK_STEP_SKIPPED, MARK_PLAN_APPLIED
CAPTURE_OFF: int  # ... CAPTURE_ALL, CAPTURE_SKELETON
USER_STAGE_NONE: int  # ... USER_STAGE_INIT, USER_STAGE_TRAINING, USER_STAGE_EVALUATION
OBJECT_MODULE: int  # ... OBJECT_OPTIMIZER, OBJECT_LOADER, OBJECT_OTHER
VARIABLE_PARAMETER: int  # ... VARIABLE_BUFFER, VARIABLE_OPTIMIZER_STATE,
# VARIABLE_GENERATOR, VARIABLE_LOADER_STATE
PROCESS_MAIN: int  # ... PROCESS_WORKER, PROCESS_OTHER
PLACE_SINGLE: int  # ... PLACE_ENVIRONMENT, PLACE_PROCESS_GROUP
STATE_DATA: int  # digest the tensor itself
STATE_GRAD: int  # digest its .grad (None is recorded as such)
# Of what is digested: norm, largest magnitude, NaN and Inf; a digest of each
# slice of the first dimension.
STATE_DATA_STATISTICS: int
STATE_GRAD_STATISTICS: int
STATE_DATA_ROWS: int
STATE_GRAD_ROWS: int

def wrap(
    fn: Callable,
    name: str,
    category: str,
    roles: Sequence[str] = (),
    before: Optional[Before] = None,
    after: Optional[After] = None,
    outermost_only: bool = True,
    detail: bool = False,
) -> Callable:
    """Wraps fn: CallBegin, fn, CallEnd or CallRaised.

    name is the qualified name ("torch.optim.adam.Adam.step"); roles are the
    qualified names of the same method in base classes, narrow to general, plus
    nothing else. With outermost_only the callbacks run only where no call of
    the same category on the same self (first argument) is open on the thread;
    records are written for all. The wrapper binds as a method, keeps
    __name__, __qualname__, __doc__, __module__, __wrapped__, signature,
    pickling, and accepts attributes. fn's result and exceptions pass untouched.
    C functions, which do not bind, stay so. A detail (no part of the skeleton)
    can be switched off by switch, and has a call site only where user code
    itself calls it: what library code calls has that of the call around it.
    """

def type_modified(cls: type) -> None:
    """Its dictionary was changed from outside."""

def wrap_module_call(
    fn: Callable,
    before_root: Optional[Before] = None,
    after_root: Optional[After] = None,
) -> Callable:
    """Wraps torch.nn.Module.__call__.

    The function recorded is "<module>.<qualname of type(self)>.forward" with
    category "forward" and, as roles, "<class>.forward" of every class of its
    MRO that defines forward plus "torch.nn.modules.module.Module.forward".
    before_root/after_root run for calls that no other module call encloses on
    this thread. Flags of CallFlag and OutputFlag are filled in here.
    """

def set_content(wrapper: Callable, content: Optional[tuple]) -> None:
    """What calls of a wrapper tell from now on: see agent/capture/content_spec.h."""

def switch(wrapper: Callable, active: bool) -> None:
    """Switches a function beyond the skeleton on or off; a no-op for others.

    What is off records nothing and costs its caller under 30 ns.
    """

def tell_switch(wrapper: Callable) -> None:
    """Marks whether calls of the function are recorded from here on."""

def set_capture(mode: int, turns: int = 1, step: int = 0) -> None:
    """CAPTURE_*: what is recorded from here on; a mark says so if it changes.

    turns: large tensors are digested where (hash of their name + step) % turns
    is 0, and else recorded as unreadable.
    """

def next_plan() -> Optional[tuple[int, int, bytes]]:
    """(version, first step, JSON) of the newest change of plan that the relay has
    sent since the last call."""

def open_step() -> int:
    """Number of the step that is open: of steps closed so far."""

def times() -> tuple[int, int]:
    """(the agent's own, all) so far, in ticks of one clock."""

def hook_begins() -> int:
    """For hooks that no wrapper runs: what hook_ends takes, so that times() knows."""

def hook_ends(begin: int) -> None: ...
def plan_forwards(callback: Optional[Callable[[type], Optional[tuple]]]) -> None:
    """Who says, once a class, what calls of its modules tell."""

def is_wrapper(value: Any) -> bool: ...
def is_users(error: BaseException) -> bool:
    """Did a signal handler of the user's raise it, wherever it came up?"""

def object_id(value: Any) -> int:
    """Number of an object defined before (held weakly), else 0."""

def define_object(
    value: Any, kind: int, path: str = "", root: int = 0, wrapped: int = 0
) -> int:
    """Defines value (class and MRO names from its type) and returns its number.
    An object defined before keeps its number; changed facts are written again.
    """

def define_variable(
    tensor: Any,
    name: str,
    root_class: str,
    root: int,
    kind: int,
    owner_class: str,
    alias_group: int,
    identity_epoch: int = 0,
    attributes: Sequence[str] = (),
    shadow_of: int = 0,
) -> int:
    """Defines a variable; dtype, device, shape and requires_grad from the
    tensor, which may be None. (root, root_class, name) defined before keeps its number and is written again
    where something differs."""

def define_hold(optimizer: int, group: int, variables: Sequence[int]) -> None: ...
def define_replica_group(
    group: int,
    evidence: str,
    wrapper: int,
    ranks: Sequence[int],
    variables: Sequence[int],
) -> None: ...
def define_process_group(
    group: int,
    name: str,
    backend: str,
    ranks: Sequence[int],
    mesh: int = 0,
    mesh_dimension: int = 0,
    mesh_name: str = "",
) -> None:
    """mesh: number of the DeviceMesh of which it is a dimension; 0: none."""

def set_process_kind(kind: int, worker_id: int = 0, pass_seed: int = 0) -> None: ...
def rank_is_inherited() -> bool:
    """Are RANK and WORLD_SIZE those of a rank that this process descends from?"""

def provisional_run() -> str | None:
    """The name of this process's run as long as it may change."""

def settle_run(run: str = "") -> None:
    """The name is final: run, or the provisional one."""

def show_rank(rank: int, world_size: int) -> None:
    """Processes below this one see that it is this rank."""

def record_place(rank: int, world_size: int, local_rank: int, source: int) -> None: ...
def record_states(
    point: int, what: int, variables: Sequence[int], tensors: Sequence[Any]
) -> None:
    """One State record a variable, and what else `what` asks for, STATE_* added
    up. Tensors whose bytes cannot be read here are recorded as unreadable."""

def record_bytes(point: int, variable: int, data: bytes, dtype: str) -> None:
    """A State record of a variable that is no tensor: the digest that a tensor of
    these bytes and this element type ("torch.int64") would have."""

def record_checkpoint(
    point: int,
    keys: Sequence[str],
    values: Sequence[Any],
    variables: Sequence[int],
    left_out: int = 0,
) -> None:
    """One CheckpointEntry record a key: digest, type and shape of a tensor, the
    value of a number, else the key alone. variables: the live variable in whose
    storage an entry lies, or 0. left_out: further entries, not given here."""

def record_scalar(
    obj: int, point: int, group: int, name: str, value: float
) -> None: ...
def record_mark(kind: int, obj: int, value: int) -> None: ...
def record_collective(group: int, sequence: int) -> None:
    """The innermost open call is this collective of the group."""

def record_context(
    enter: bool, name: str, arguments: Optional[Dict[str, Any]] = None
) -> None:
    """arguments: what the context was made with; texts in it are recorded."""

def storage_key(tensor: Any) -> int:
    """Number given once to the tensor's storage (held weakly); 0: unreadable. Of a
    DTensor: of its local shard."""

# The step rule (proto/step_rule.h), one per thread that trains; each returns
# True when a step closed, after writing the StepClosed mark and a ClockSync.
def step_optimizer(optimizer: int) -> bool: ...
def step_optimizer_made() -> None: ...
def step_batch_fetched(loader: int) -> bool: ...
def step_iterator_end(loader: int) -> bool: ...
def step_grad_clear() -> bool: ...
def step_training_forward() -> bool: ...
def step_backward() -> None: ...
def step_user() -> bool: ...
def step_end() -> bool: ...
def step_exit() -> bool:
    """Ends the open steps of all threads."""

def setting(name: str) -> str:
    """Value of TRAINCHECK_<...>, from the environment, else from the file of
    settings; "": what holds without it."""

def log_once(key: str, message: str) -> None:
    """One line on stderr the first time for each key, if the log level allows."""

def exit_flush() -> None:
    """Waits until the relay holds all (acknowledged or spooled), at most
    TRAINCHECK_EXIT_WAIT seconds, GIL released."""
