"""The C++ half of the agent as its Python half (hooks/) sees it.

The extension module is built from agent/capture and loaded by the preloaded
library's import finder when `import torch` ends; it then runs the embedded
hook modules. Names of records, fields and state points are those of
proto/record_format.h.

No function here raises into user code: hooks run behind the wrapper, which
swallows, counts and logs what they raise. None takes a lock on the record
path. All may be called from any thread with the GIL held.
"""

from typing import Any, Callable, Dict, Optional, Protocol, Sequence

# Of a call, as the hooks get them.
Args = tuple[Any, ...]
Kwargs = dict[str, Any]
# (name, group) -> value
Scalars = dict[tuple[str, int], float]
# What calls of a function tell: agent/capture/content_spec.h.
Content = tuple[Any, ...]

# Called when the call begins, after its CallBegin record: (args, kwargs) -> token
Before = Callable[[Args, Kwargs], Any]
# Called before its CallEnd/CallRaised record: result is None if it raised.
After = Callable[[Any, Args, Kwargs, Any, Optional[BaseException]], None]

class Core(Protocol):
    """The extension module itself."""

    # State points, as plans have them in lower case.
    POINT_CONSTRUCTION: int
    POINT_WRAP_END: int
    POINT_FORWARD_BEGIN: int
    POINT_FORWARD_END: int
    POINT_BACKWARD_END: int
    POINT_PRE_CLIP: int
    POINT_POST_CLIP: int
    POINT_PRE_STEP: int
    POINT_POST_STEP: int
    POINT_GRAD_CLEAR: int
    POINT_STEP_END: int
    POINT_SAVE: int
    POINT_LOAD: int
    POINT_STATE_DICT: int
    POINT_LOAD_STATE_DICT: int
    POINT_FETCH: int
    POINT_WORKER_INIT: int

    MARK_ITERATOR_CREATED: int
    MARK_BATCH_FETCHED: int
    MARK_ITERATOR_EXHAUSTED: int
    MARK_ITERATOR_ABANDONED: int
    MARK_CLEAN_EXIT: int
    MARK_USER_STEP: int
    MARK_USER_STAGE: int
    MARK_STEP_SKIPPED: int
    SKIPPED_BY_SCALER: int
    SKIPPED_MADE_BY_OTHER_RANKS: int
    MARK_PLAN_APPLIED: int
    MARK_OPTIMIZER_STEPS: int

    CAPTURE_OFF: int
    CAPTURE_ALL: int
    CAPTURE_SKELETON: int

    USER_STAGE_NONE: int
    USER_STAGE_INIT: int
    USER_STAGE_TRAINING: int
    USER_STAGE_EVALUATION: int

    OBJECT_MODULE: int
    OBJECT_OPTIMIZER: int
    OBJECT_LOADER: int
    OBJECT_OTHER: int

    VARIABLE_PARAMETER: int
    VARIABLE_BUFFER: int
    VARIABLE_OPTIMIZER_STATE: int
    VARIABLE_GENERATOR: int
    VARIABLE_LOADER_STATE: int
    VARIABLE_INPUTS: int

    PROCESS_MAIN: int
    PROCESS_WORKER: int
    PROCESS_OTHER: int

    PLACE_SINGLE: int
    PLACE_ENVIRONMENT: int
    PLACE_PROCESS_GROUP: int

    STATE_DATA: int  # digest the tensor itself
    STATE_GRAD: int  # digest its .grad (None is recorded as such)
    # Of what is digested: norm, largest magnitude, NaN and Inf; a digest of each
    # slice of the first dimension.
    STATE_DATA_STATISTICS: int
    STATE_GRAD_STATISTICS: int
    STATE_DATA_ROWS: int
    STATE_GRAD_ROWS: int

    def wrap(
        self,
        fn: Callable[..., Any],
        name: str,
        category: str,
        roles: Sequence[str] = (),
        before: Optional[Before] = None,
        after: Optional[After] = None,
        outermost_only: bool = True,
        detail: bool = False,
    ) -> Any:
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
    def type_modified(self, cls: type[Any]) -> None:
        """Its dictionary was changed from outside."""
    def wrap_module_call(
        self,
        fn: Callable[..., Any],
        before_root: Optional[Before] = None,
        after_root: Optional[After] = None,
    ) -> Any:
        """Wraps torch.nn.Module.__call__.

        The function recorded is "<module>.<qualname of type(self)>.forward" with
        category "forward" and, as roles, "<class>.forward" of every class of its
        MRO that defines forward plus "torch.nn.modules.module.Module.forward".
        before_root/after_root run for calls that no other module call encloses on
        this thread. Flags of CallFlag and OutputFlag are filled in here.
        """
    def set_content(self, wrapper: Any, content: Optional[Content]) -> None:
        """What calls of a wrapper tell from now on: see agent/capture/content_spec.h."""
    def switch(self, wrapper: Any, active: bool) -> None:
        """Switches a function beyond the skeleton on or off; a no-op for others.

        What is off records nothing and costs its caller under 30 ns.
        """
    def tell_switch(self, wrapper: Any) -> None:
        """Marks whether calls of the function are recorded from here on."""
    def set_capture(self, mode: int, turns: int = 1, step: int = 0) -> None:
        """CAPTURE_*: what is recorded from here on; a mark says so if it changes.

        turns: large tensors are digested where (hash of their name + step) % turns
        is 0, and else recorded as unreadable.
        """
    def next_plan(self) -> Optional[tuple[int, int, bytes]]:
        """(version, first step, JSON) of the newest change of plan that the relay has
        sent since the last call."""
    def zoom_in_on(self, variables: Sequence[str]) -> None:
        """Statistics and rows of these variables are recorded too, by name."""
    def open_step(self) -> int:
        """Number of the step that is open: of steps closed so far."""
    def times(self) -> tuple[int, int]:
        """(the agent's own, all) so far, in ticks of one clock. Devices' are not in it."""
    def end_period(self) -> int:
        """The number of the period that ends now, for device_time."""
    def device_time(self, period: int) -> Optional[int]:
        """For how many of these ticks devices worked on what the agent began up to the end
        of the period, and no call has told before. None: they have not ended yet."""
    def hook_begins(self) -> int:
        """For hooks that no wrapper runs: what hook_ends takes, so that times() knows."""
    def hook_ends(self, begin: int) -> None: ...
    def content_of(self, module: Any) -> tuple[bytes, bytes]:
        """Which parameters a module holds, and which children and names of buffers: equal
        as long as these are the same."""
    def changed_parts(self, parts: list[Any]) -> list[Any]:
        """Those whose module has another content than when they were made."""
    def collect_parameters(
        self,
        parts: list[Any],
        variables: list[int],
        tensors: list[Any],
        mine: bool = False,
    ) -> None:
        """Appends the parts' parameters that are there; `mine`: of parts that this thread
        alone trains."""
    def count_trained(self, parts: list[Any]) -> int:
        """How many of their parameters require a gradient."""
    def addresses(self, lists: Sequence[Sequence[Any]]) -> bytes:
        """Which objects they hold: equal as long as these are the same, and live."""
    def code_place(self, torch: str) -> int:
        """Where in the code the caller's caller is: equal for equal places. Frames of
        files below `torch` do not count."""
    def plan_forwards(
        self, callback: Optional[Callable[[type[Any]], Optional[Content]]]
    ) -> None:
        """Who says, once a class, what calls of its modules tell."""
    def is_wrapper(self, value: Any) -> bool: ...
    def is_users(self, error: BaseException) -> bool:
        """Did a signal handler of the user's raise it, wherever it came up?"""
    def object_id(self, value: Any) -> int:
        """Number of an object defined before (held weakly), else 0."""
    def define_object(
        self, value: Any, kind: int, path: str = "", root: int = 0, wrapped: int = 0
    ) -> int:
        """Defines value (class and MRO names from its type) and returns its number.
        An object defined before keeps its number; changed facts are written again.
        """
    def define_variable(
        self,
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
    def define_hold(
        self, optimizer: int, group: int, variables: Sequence[int]
    ) -> None: ...
    def define_replica_group(
        self,
        group: int,
        evidence: str,
        wrapper: int,
        ranks: Sequence[int],
        variables: Sequence[int],
    ) -> None: ...
    def define_process_group(
        self,
        group: int,
        name: str,
        backend: str,
        ranks: Sequence[int],
        mesh: int = 0,
        mesh_dimension: int = 0,
        mesh_name: str = "",
    ) -> None:
        """mesh: number of the DeviceMesh of which it is a dimension; 0: none."""
    def set_process_kind(
        self, kind: int, worker_id: int = 0, pass_seed: int = 0
    ) -> None: ...
    def rank_is_inherited(self) -> bool:
        """Are RANK and WORLD_SIZE those of a rank that this process descends from?"""
    def provisional_run(self) -> str | None:
        """The name of this process's run as long as it may change."""
    def settle_run(self, run: str = "") -> None:
        """The name is final: run, or the provisional one."""
    def show_rank(self, rank: int, world_size: int) -> None:
        """Processes below this one see that it is this rank."""
    def record_place(
        self, rank: int, world_size: int, local_rank: int, source: int, start: str
    ) -> None: ...
    def record_states(
        self, point: int, what: int, variables: Sequence[int], tensors: Sequence[Any]
    ) -> None:
        """One State record a variable, and what else `what` asks for, STATE_* added
        up. Tensors whose bytes cannot be read here are recorded as unreadable."""
    def record_bytes(self, point: int, variable: int, data: bytes, dtype: str) -> None:
        """A State record of a variable that is no tensor: the digest that a tensor of
        these bytes and this element type ("torch.int64") would have."""
    def digests(self, tensors: Sequence[Any]) -> Optional[bytes]:
        """Eight bytes a tensor: the digest that a State record would have. None: one
        cannot be read here."""
    def cpu_is_device(self) -> bool:
        """Does a driver for tests take this process's memory for a device's?"""
    def copy_to_host(self, tensors: Sequence[Any]) -> int:
        """Begins copies of tensors of one device, of at most 1 MiB together, and
        returns their number. 0: they will not come."""
    def copies(self) -> list[tuple[int, Optional[list[bytes]]]]:
        """(number, the elements of each tensor in logical order) of those that have
        come since; None: they never will."""
    def record_checkpoint(
        self,
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
        self, obj: int, point: int, group: int, name: str, value: float
    ) -> None: ...
    def site_at(self, file: str, line: int, function: str) -> int:
        """Number of a line of the user's code that does not run now; 0: too many are
        known. What a scalar says is wrong stands there if it is the value of a second
        scalar, whose name has ".site" behind it."""
    def site_here(self) -> int:
        """As site_at, of the innermost line of the user's code that runs now; 0: none
        does, or too many are known."""
    def record_mark(self, kind: int, obj: int, value: int) -> None: ...
    def record_unclean_exit(self, exception: BaseException) -> None: ...
    def record_collective(self, group: int, sequence: int) -> None:
        """The innermost open call is this collective of the group."""
    def record_context(
        self, enter: bool, name: str, arguments: Optional[Dict[str, Any]] = None
    ) -> None:
        """arguments: what the context was made with; texts in it are recorded."""
    def storage_key(self, tensor: Any) -> int:
        """Number given once to the tensor's storage (held weakly); 0: unreadable. Of a
        DTensor: of its local shard."""
    # The step rule (proto/step_rule.h), one per thread that trains; each returns
    # True when a step closed, after writing the StepClosed mark and a ClockSync.
    def step_optimizer(self, optimizer: int) -> bool: ...
    def step_optimizer_made(self) -> None: ...
    def step_batch_fetched(self, loader: int) -> bool: ...
    def step_iterator_end(self, loader: int) -> bool: ...
    def step_grad_clear(self) -> bool: ...
    def step_training_forward(self) -> bool: ...
    def step_backward(self) -> None: ...
    def step_user(self) -> bool: ...
    def step_end(self) -> bool: ...
    def step_exit(self) -> bool:
        """Ends the open steps of all threads."""
    def setting(self, name: str) -> str:
        """Value of TRAINCHECK_<...>, from the environment, else from the file of
        settings; "": what holds without it."""
    def log_once(self, key: str, message: str) -> None:
        """One line on stderr the first time for each key, if the log level allows."""
    def finish_states(self) -> None:
        """Waits until the digests that devices compute have come and are written, at
        most TRAINCHECK_EXIT_WAIT seconds, GIL released; then no longer."""
    def exit_flush(self) -> None:
        """Waits until the relay holds all (acknowledged or spooled), at most
        TRAINCHECK_EXIT_WAIT seconds, GIL released."""
