# SPDX-License-Identifier: Apache-2.0
"""What the patches for TVM change, bugs first: texts of TVM's files and what takes their place."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

STRATEGIES = "python/tvm/s_tir/meta_schedule/search_strategy"


class Edit(NamedTuple):
    """A text of a file, there once, and what takes its place."""

    path: str
    old: str
    new: str


class Patch(NamedTuple):
    """One pull request.

    ``modules``: those of the published search that it adds. ``tests``: its test files, by their
    paths in ``upstream/tests`` and in TVM's ``tests/python``. ``needs``: the name of the patch
    before it that it builds on.
    """

    name: str
    title: str
    message: str
    tests: Sequence[str]
    edits: Sequence[Edit] = ()
    modules: Sequence[str] = ()
    needs: str | None = None


_ENTRIES = {
    "python/tvm/tirx/script/parser/entry.py": "outer_stack",
    "python/tvm/script/parser/ir/entry.py": "outer_stack",
    "python/tvm/relax/script/parser/entry.py": "orig_stack",
}
_UTILS = "python/tvm/script/parser/core/utils.py"

OUTER_STACK = Patch(
    "script-outer-stack",
    "[TVMScript] Take the stack without a search of sys.modules",
    """\
`import tvm.s_tir.tensor_intrin`, which the first `TuneContext` of a process and each build of a
`LocalBuilder` do, takes 14 s. `T.prim_func` calls `inspect.stack()` twice for each of 248
functions. For a frame without a file, and those of an import have none, `inspect` searches all of
`sys.modules` for its module, and caches nothing where it finds nothing.

The parser needs the frames, and the source line of one of them. `linecache` returns that line
without a module: the import takes 2 s.
""",
    tests=["tvmscript/test_tvmscript_outer_stack.py"],
    edits=[
        Edit(_UTILS, "import inspect\nfrom coll", "import inspect\nimport linecache\nfrom coll"),
        Edit(
            _UTILS,
            "def is_defined_in_class(",
            '''\
def outer_stack() -> list[inspect.FrameInfo]:
    """The caller's stack, as `inspect.stack()` returns it, without a search of `sys.modules`.

    `inspect.stack()` searches all modules for that of a frame without a file. The frames of an
    import have none, so that functions of modules that are being imported parse slowly.

    Returns
    -------
    res : List[inspect.FrameInfo]
        The frames, the caller's first, each with its source line.
    """
    stack = []
    frame = inspect.currentframe().f_back
    while frame is not None:
        filename, lineno = frame.f_code.co_filename, frame.f_lineno
        line = linecache.getline(filename, lineno, frame.f_globals)
        context = ([line], 0) if line else (None, None)
        stack.append(inspect.FrameInfo(frame, filename, lineno, frame.f_code.co_name, *context))
        frame = frame.f_back
    return stack


def is_defined_in_class(''',
        ),
        Edit(
            _UTILS,
            "The frame stack of the object, obtained by `inspect.stack()`.",
            "The frame stack of the object, obtained by `outer_stack()`.",
        ),
        *(
            Edit(path, f"    {name} = inspect.stack()\n", f"    {name} = utils.outer_stack()\n")
            for path, name in _ENTRIES.items()
        ),
    ],
)

_X86 = "python/tvm/s_tir/tensor_intrin/x86.py"

VNNI_OPERANDS = Patch(
    "x86-vnni-operands",
    "[S-TIR][x86] Pass vectors of bytes to vpdpbusd since LLVM 22",
    """\
`dot_16x4_vnni` passes vectors of 16 int32 to `llvm.x86.avx512.vpdpbusd.512`, which takes vectors of
64 bytes since LLVM 22. No kernel that has the intrinsic compiles: "Intrinsic has incorrect argument
type".
""",
    tests=["s_tir/test_s_tir_tensor_intrin_x86.py"],
    edits=[
        Edit(
            _X86,
            "from tvm.script import tirx as T\n",
            "from tvm.script import tirx as T\nfrom tvm.target.codegen import llvm_version_major\n",
        ),
        Edit(
            _X86,
            "# Equivalent to the ones in topi/x86/tensor_intrin.py\n",
            """\
# Equivalent to the ones in topi/x86/tensor_intrin.py

# The type of the vectors that vpdpbusd multiplies: those of bytes since LLVM 22.
VNNI_OPERAND = "int8x64" if llvm_version_major() >= 22 else "int32x16"
""",
        ),
        Edit(
            _X86,
            """\
        B_i32x16 = T.reinterpret(B_i8x64, dtype="int32x16")
        C_i32x16 =""",
            """\
        C_i32x16 =""",
        ),
        Edit(
            _X86,
            """\
            T.broadcast(A_i32, 16),
            B_i32x16,
""",
            """\
            T.reinterpret(T.broadcast(A_i32, 16), dtype=VNNI_OPERAND),
            T.reinterpret(B_i8x64, dtype=VNNI_OPERAND),
""",
        ),
    ],
)

BLOCK_NAMES = Patch(
    "relax-block-names",
    "[Relax] Name the arguments of emit_te by their places",
    """\
TE names a reduction after what it reduces: the sum of a Relax variable `lv226` has the block
`lv226_red`. Structural equality and hashes leave names out, and traces find blocks by their names.
So one kernel behind variables of two names has one workload in a database of MetaSchedule, whose
records replay for one of the names only: `JSONDatabase` raises as it opens, and
`MetaScheduleApplyDatabase` raises "Cannot find a block with the specified name".

Arguments that are no variables are named by their places already (A, B); all are now.
""",
    tests=["relax/test_blockbuilder_emit_te_block_names.py"],
    edits=[
        Edit(
            "python/tvm/relax/utils.py",
            """\
                    if isinstance(arg, tvm.relax.Var):
                        name = arg.name
                    elif n_args""",
            """\
                    # Not by the name of a variable: TE names blocks after what they reduce, and
                    # the traces of a workload that two variables share find blocks by name.
                    if n_args""",
        ),
    ],
)

_DETECT = "python/tvm/target/detect_target.py"

HIDDEN_FEATURES = Patch(
    "target-hidden-features",
    "[Target] Leave out what the host hides of its CPU",
    """\
`Target.from_device("cpu")` names the CPU by its model, and LLVM takes a CPU of that name to have
all that the model has. A virtual machine may hide a part, AVX-512 for the most part: each kernel
with a vector then ends its process with an illegal instruction, and MetaSchedule reports that all
candidates failed.

LLVM knows what the host offers. What the name implies and the host does not offer is now turned off
in `mattr`, as `clang -march=native` does.
""",
    tests=["target/test_target_detect_cpu.py"],
    edits=[
        Edit(
            _DETECT,
            "from . import Target\n",
            "from . import Target\nfrom .codegen import llvm_get_cpu_features\n",
        ),
        Edit(
            _DETECT,
            '''\
    """Detect the host CPU architecture."""
    return Target(
        {
            "kind": "llvm",
            "mtriple": get_global_func(
                "tvm.codegen.llvm.GetDefaultTargetTriple",
                allow_missing=False,
            )(),
            "mcpu": get_global_func(
                "tvm.codegen.llvm.GetHostCPUName",
                allow_missing=False,
            )(),
        }
    )
''',
            '''\
    """Detect the host CPU architecture."""
    config = {
        "kind": "llvm",
        "mtriple": get_global_func(
            "tvm.codegen.llvm.GetDefaultTargetTriple",
            allow_missing=False,
        )(),
        "mcpu": get_global_func(
            "tvm.codegen.llvm.GetHostCPUName",
            allow_missing=False,
        )(),
    }
    hidden = _hidden_features(Target(config))
    return Target({**config, "mattr": [f"-{name}" for name in hidden]} if hidden else config)


def _hidden_features(target: Target) -> list[str]:
    """The features that the name of a CPU implies and the host does not offer.

    A virtual machine may hide a part of its CPU. An instruction of that part ends the process.
    """
    host_features = get_global_func(
        "tvm.codegen.llvm.GetHostCPUFeatures",
        allow_missing=True,
    )
    if host_features is None:
        return []
    # Where LLVM does not know a feature of the host, the name of the CPU decides.
    absent = {str(name) for name, is_offered in host_features().items() if not is_offered}
    return sorted(absent & {str(name) for name in llvm_get_cpu_features(target)})
''',
        ),
    ],
)

DROPLET_PARTS = Patch(
    "droplet-descent",
    "[MetaSchedule] Decisions of traces, and a coordinate descent over them",
    """\
The parts of a search strategy that goes on from the best schedule by coordinate descent, as in
"Explore as a Storm, Exploit as a Raindrop" (arXiv 2406.20037); the strategy itself follows.

A trace's sampled decisions are read as a point and written back. A step changes one decision by the
least amount: a prime factor of a tile moves, a choice, a compute location or a parallel extent goes
to the next one. A candidate is what a replay makes of a point, with the postprocessors run anew,
and is known by its structural hash. The descent goes on from the fastest neighbor that Student's
t-test finds faster, and ends where there is none.

Nothing uses these files yet.
""",
    tests=["s_tir/meta_schedule/test_meta_schedule_droplet_descent.py"],
    modules=["candidates", "coordinate_descent", "decision_kinds", "decisions", "neighborhood"],
)

_CREATE = f"{STRATEGIES}/search_strategy.py"

DROPLET = Patch(
    "droplet-strategy",
    "[MetaSchedule] Droplet as a search strategy",
    """\
`ms.tune_tir(..., strategy="droplet")`: `EvolutionarySearch` explores each task for 300 trials, or
half of the task's where that is less, and a coordinate descent goes on from the best schedule,
after "Explore as a Storm, Exploit as a Raindrop" (arXiv 2406.20037).

It is a `SearchStrategy`: within the trial budget, with the builder, runner, database, cost model,
callbacks and seed of the caller, for every target. Calls out of turn are refused.
""",
    tests=["s_tir/meta_schedule/test_meta_schedule_search_strategy_droplet.py"],
    modules=["evolution", "lifecycle", "search", "strategy"],
    needs=DROPLET_PARTS.name,
    edits=[
        Edit(
            f"{STRATEGIES}/__init__.py",
            "from .evolutionary_search import EvolutionarySearch\n",
            "from .droplet import DropletSearch\n"
            "from .evolutionary_search import EvolutionarySearch\n",
        ),
        Edit(
            _CREATE,
            """            "replay-trace",
            "evolutionary",
        ],
""",
            """            "replay-trace",
            "evolutionary",
            "droplet",
        ],
""",
        ),
        Edit(
            _CREATE,
            """        kind: Literal[
            "evolutionary",
""",
            """        kind: Literal[
            "droplet",
            "evolutionary",
""",
        ),
        Edit(
            _CREATE,
            """            EvolutionarySearch,
            ReplayFunc,
            ReplayTrace,
        )

        if kind""",
            """            DropletSearch,
            EvolutionarySearch,
            ReplayFunc,
            ReplayTrace,
        )

        if kind == "droplet":
            return DropletSearch(*args, **kwargs)
        if kind""",
        ),
    ],
)

SERIES = (OUTER_STACK, VNNI_OPERANDS, BLOCK_NAMES, HIDDEN_FEATURES, DROPLET_PARTS, DROPLET)

_EXPLORATION = '''\
class Exploration(Protocol):
    """The exploration of one run: proposes candidates that were never measured."""

    def enter(self, batch_size: int) -> None:
        """Begin to explore in batches of at most ``batch_size`` candidates."""

    def leave(self) -> None:
        """Release the resources of the exploration; a second call does nothing."""

    def ask(self, count: int) -> list[Candidate]:
        """At most ``count`` new candidates; empty when the space is exhausted."""

    def tell(self, candidates: Sequence[Candidate], results: Sequence[RunnerResult]) -> None:
        """Take the results of a batch from ``ask``."""


'''
_DESCENT = '''\
class Descent(Protocol):
    """Proposes batches from the best measured schedule."""

    def descend(self) -> Generator[Batch, None, bool]:
        """Yield batches of new candidates, each measured before the next is requested.

        Returns True at a local optimum, False if there are no new candidates for another reason.
        """


'''
_METHODS = [
    (head, head + documentation)
    for head, documentation in pairwise(_EXPLORATION.splitlines(keepends=True))
    if head.startswith("    def ")
]
"""The heads of the methods of ``Exploration``, without and with what they are documented by."""

OWN_EDITS: Mapping[str, Sequence[Edit]] = {
    "search": [
        Edit("search", "Literal, Protocol\n", "Literal\n"),
        Edit("search", _EXPLORATION, ""),
        Edit("search", _DESCENT, ""),
        Edit("search", "exploration: Exploration\n", "exploration: Evolution\n"),
        Edit("search", "descent: Descent\n", 'descent: "CoordinateDescent"\n'),
        Edit(
            "search",
            "from .decisions import DesignSpaces, Prober\n",
            "from .decisions import DesignSpaces, Prober\nfrom .evolution import Evolution\n",
        ),
        Edit(
            "search",
            '        """See ``Descent``."""\n',
            _DESCENT.partition("bool]:\n")[2].rstrip("\n") + "\n",
        ),
    ],
    "evolution": [Edit("evolution", old, new) for old, new in _METHODS],
}
"""In the published search, by its modules: protocols that have one implementation in TVM."""
