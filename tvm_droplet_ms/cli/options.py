# SPDX-License-Identifier: Apache-2.0
"""The options of ``droplet-ms tune``, and their checks. Imports no TVM.

An option sets a parameter of ``tune``, of ``tune_kernel`` or of both. Its meaning, its default and
what it applies to are declared there once, by the signature and the docstring. They are read from
the source, because an import would need TVM. An option of another form or unit than its parameter
has a text of its own.
"""

import argparse
import ast
import inspect
import operator
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..session.archive import READ_ERRORS, load_arrays
from ..session.errors import first_line
from . import arguments

if TYPE_CHECKING:
    import numpy as np

TUNING = Path(__file__).parents[1] / "tuning"
SOURCES = {"tune": TUNING / "tuner.py", "tune_kernel": TUNING / "kernel" / "kernel_run.py"}

MODELS = (".onnx", ".pt2")
"""Suffixes of model files."""

REFERENCES = {".onnx": ("onnxruntime", "onnxruntime"), ".pt2": ("pytorch", "torch")}
"""The reference library to time a model against, by file suffix, and the package it needs."""


class OptionError(ValueError):
    """Options conflict or name something that does not exist; the message says what to do."""


def is_kernel(text: str) -> bool:
    """True if an argument names a kernel: a workload, a function or a saved module."""
    return Path(text).suffix not in MODELS


@dataclass(frozen=True)
class Parameter:
    """A keyword parameter of ``tune`` or ``tune_kernel``.

    ``code``: its default, as Python code. ``default``: its default in words. ``meaning``: its
    description without the default.
    """

    code: str
    default: str
    meaning: str


@cache
def parameters(function: str) -> Mapping[str, Parameter]:
    """The keyword parameters of ``tune`` or ``tune_kernel``, in their order."""
    (node,) = (
        node
        for node in ast.parse(SOURCES[function].read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name == function
    )
    section = inspect.cleandoc(ast.get_docstring(node) or "").split("----------\n")[1]
    texts = {
        name: " ".join(body.split())
        for names, body in re.findall(r"^(\w[\w, ]*) : .*\n((?:    .*\n)+)", section, re.MULTILINE)
        for name in names.split(", ")
    }
    found = {}
    for argument, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        code, text = ast.unparse(value or ast.Constant(None)), texts[argument.arg]
        told = re.search(r" ?\bNone for (.+?)\.(?= |$)", text) if code == "None" else None
        meaning = text.replace(told[0], "") if told else text
        shown = code.replace("'", '"')
        default = told[1] if told else "none" if code == "None" else f"``{shown}``"
        found[argument.arg] = Parameter(code, default, meaning)
    return found


@dataclass(frozen=True)
class Option:
    """An option of ``droplet-ms tune``.

    - ``parameter``: the parameter that it sets; empty for an option of the command alone.
    - ``settings``: arguments of ``add_argument``. The default is the parameter's if it is missing.
    - ``value``: makes the argument of the function.
    - ``about``: the meaning of an option of the command alone, or one of another form than its
      parameter.
    - ``unit``: the unit of an option whose parameter is in seconds.
    - ``function``: the only function that the option is for; empty for all that have it.
    """

    flag: str
    parameter: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    value: Callable[[Any], Any] = lambda value: value
    about: str = ""
    unit: str = ""
    function: str = ""

    @property
    def name(self) -> str:
        """Its name among the parsed options."""
        return self.flag.removeprefix("--").replace("-", "_")

    @property
    def default(self) -> Any:
        """The value of the option that is not given."""
        if self.settings.get("action") == "store_true":
            return False
        known = parameters("tune").get(self.parameter)
        return self.settings.get("default", None if known is None else ast.literal_eval(known.code))

    @property
    def applies_to(self) -> set[str]:
        """The functions that it is for."""
        if self.function:
            return {self.function}
        return {name for name in SOURCES if self.parameter in {"", *parameters(name)}}

    @property
    def sets(self) -> str:
        """The parameter's value that the option stands for, as code; "" for one with a value."""
        is_switch = self.parameter and self.settings.get("action") == "store_true"
        return repr(self.value(True)).replace("'", '"') if is_switch else ""

    @property
    def help(self) -> str:
        """The meaning of the option and its default, as plain text."""
        return self.described()

    def described(self, has_default: bool = True) -> str:
        """The meaning of the option, as plain text; with its default or without."""
        texts = {name: self._meaning(name) for name in sorted(self.applies_to)}
        if has_default and self.parameter and not self.sets:
            defaults = {name: self._told_default(name) for name in texts}
            if len(set(defaults.values())) == 1 or len(set(texts.values())) > 1:
                texts = {name: text + defaults[name] for name, text in texts.items()}
        again = " May be repeated." if self.settings.get("action") == "append" else ""
        text = " Kernels: ".join(dict.fromkeys(texts.values())) + again
        if len(texts) == 1:
            text = f"{'Models' if 'tune' in texts else 'Kernels'}: {text}"
        return _in_flags(text).replace("`", "").replace("%", "%%")

    def _meaning(self, function: str) -> str:
        """What the option does for a function."""
        text = self.about or parameters(function)[self.parameter].meaning
        return text.replace(" in seconds", f" in {self.unit}") if self.unit else text

    def _told_default(self, function: str) -> str:
        declared = parameters(function)[self.parameter].default.replace('"', "")
        default = str(self.settings.get("default") or declared)
        return f" (default: {default})" * (default != "none")

    def add_to(self, parser: argparse.ArgumentParser, **settings: Any) -> None:
        """Add the option to a parser. ``settings``: replace its own."""
        given = {"default": self.default, **self.settings, **settings}
        parser.add_argument(self.flag, help=self.described("default" not in settings), **given)


def _in_flags(text: str) -> str:
    """A text about parameters in the words of the command: with flags, and values as given."""
    for option in OPTIONS:
        if not option.parameter:
            continue
        text = text.replace(f"``{option.parameter}={option.sets}``", option.flag)
        text = re.sub(f"(?<!`)`{option.parameter}`(?!`)", option.flag, text)
    return text.replace("None (``none``)", "none")


_FLAG = {"action": "store_true"}


def _repeated(parse: Callable[[str], object], metavar: str) -> dict[str, Any]:
    return {"action": "append", "default": [], "type": parse, "metavar": metavar}


def _by_name(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any] | None:
    return dict(pairs) or None


OPTIONS = (
    Option(
        "--shape",
        "shapes",
        _repeated(arguments.shape, "NAME=1,3,224,224"),
        lambda pairs: by_bucket("--shape", pairs) or None,
        "Shape of an input with dynamic extents. Several (x=1,3|2,3) make one library for them.",
    ),
    Option(
        "--dim",
        "dims",
        _repeated(arguments.dim, "NAME=320"),
        lambda pairs: by_bucket("--dim", pairs) or None,
        "Extent by its name in an ONNX model or a Relax module; it applies to all inputs. Several "
        "(width=320|640) make one library for them.",
    ),
    Option("--shares", "shares", {"type": arguments.shares, "metavar": "3,1"}),
    Option(
        "--constant",
        "constants",
        _repeated(arguments.constant, "NAME=16000"),
        _by_name,
        "Value of an input of an ONNX model. The tuned model does not have this input, and an If "
        "that depends on it is resolved.",
    ),
    Option(
        "--in-place",
        "in_place",
        _repeated(arguments.in_place, "INPUT=OUTPUT"),
        _by_name,
        "Input of an ONNX model that the model may overwrite, and the output to write into it, "
        'such as "past_key_values.*=present.*" for a decoder\'s cache.',
    ),
    Option(
        "--minutes", "time_budget_s", {"type": arguments.minutes, "default": 5.0}, unit="minutes"
    ),
    Option("--trials", "trials", {"type": arguments.trials}),
    Option(
        "--stop",
        "stop",
        {"type": arguments.stop_gain, "metavar": "SHARE"},
        about="Minimum expected gain of a kernel's next 32 trials, as a share of its best time. "
        "Below it, a kernel's search ends, and a model's trials go to other kernels until none is "
        "left. none uses all time and trials; auto is 0.008.",
    ),
    Option("--patience", "patience", {"type": arguments.positive}),
    Option("--target", "target", {"default": None}, function="tune_kernel"),
    Option("--target-us", "target_latency_us", {"type": float}),
    Option("--tracker", "tracker", {"metavar": "HOST:PORT"}),
    Option("--key", "key"),
    Option("--threads", "threads", {"type": arguments.positive}),
    Option("--seed", "seed", {"type": arguments.seed}),
    Option(
        "--allow-winograd",
        "exact",
        _FLAG,
        operator.not_,
        "Compute convolutions by Winograd's algorithm where it is faster: less exact.",
    ),
    Option(
        "--allow-bfloat16",
        "precision",
        _FLAG,
        lambda asked: "bfloat16" if asked else "float32",
        "Round the inputs and weights of products to eight significant bits, on CPUs with "
        "AVX512_BF16: less exact, and up to twice as fast.",
    ),
    Option("--tolerance", "tolerance", {"type": float}),
    Option(
        "--inputs",
        "inputs",
        {"metavar": "FILE.npz"},
        about="File of numpy.savez with values of inputs by name, such as indices, for the check, "
        "and for the measurements of a kernel. Other inputs are random.",
    ),
    Option("--work-dir", "work_dir"),
    Option(
        "--quiet", "progress", _FLAG, lambda asked: None if asked else "auto", "Print no progress."
    ),
    Option("--json", settings=_FLAG, about="Print the result as JSON."),
    Option("--out", settings={"metavar": "MODEL.so"}, about="Write the executable here too."),
    Option(
        "--against",
        settings={"choices": [name for name, _ in REFERENCES.values()]},
        about="Time the model beside what it came from.",
        function="tune",
    ),
)


def arguments_of(function: str, options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of ``tune`` or ``tune_kernel`` that the options set.

    An option that is not given and has no default is left to the function.
    """
    return {
        option.parameter: option.value(given)
        for option in OPTIONS
        if option.parameter in parameters(function)
        if (given := getattr(options, option.name)) is not None or option.default is not None
    }


def check_options(options: argparse.Namespace) -> None:
    """Refuse, before the tuning, options that would fail or be ignored after it.

    Raises ``OptionError`` if an option does not apply to the model or kernel, or if ``--out``
    cannot be written.
    """
    one, function = ("a kernel", "tune_kernel") if is_kernel(options.model) else ("a model", "tune")
    for option in OPTIONS:
        given = getattr(options, option.name)
        if function not in option.applies_to and (given or given == ""):
            raise OptionError(
                f"{option.flag} does not apply to {one}, which {options.model!r} is: leave it out"
            )
    _check_against(options)
    if options.out is not None:
        _check_out(Path(options.out))


def _check_against(options: argparse.Namespace) -> None:
    if options.against is None:
        return
    name, package = REFERENCES[Path(options.model).suffix]
    if options.against != name:
        raise OptionError(
            f"--against {options.against} does not apply to {options.model!r}: a model is timed "
            f"beside what it came from, pass --against {name}"
        )
    if find_spec(package) is None:
        raise OptionError(f"--against {name} needs the package {package}: pip install it")


def _check_out(out: Path) -> None:
    if os.path.isdir(out):
        raise OptionError(f"--out {str(out)!r} is a directory: name a file in it")
    if not os.path.isdir(out.parent):
        raise OptionError(
            f"--out {str(out)!r} cannot be written: there is no directory {str(out.parent)!r}"
        )
    if not os.access(out.parent, os.W_OK):
        raise OptionError(
            f"--out {str(out)!r} cannot be written: permit writing in {str(out.parent)!r}"
        )


def by_bucket(
    option: str, pairs: Sequence[tuple[str, Any]]
) -> dict[str, Any] | list[dict[str, Any]]:
    """The values of a repeated option by name; a list of such dicts if a name has several values.

    ``pairs``: each name with its value or a list of values. The last value of a repeated name
    counts. Raises ``OptionError`` if two names have lists of different lengths.
    """
    values = dict(pairs)
    several = {name: value for name, value in values.items() if _is_several(option, value)}
    counts = {name: len(value) for name, value in several.items()}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{count} for {name}" for name, count in counts.items())
        raise OptionError(f"{option} has {told}: give as many for each, or one for all")
    buckets = [
        {name: value[number] if name in several else value for name, value in values.items()}
        for number in range(max(counts.values(), default=0))
    ]
    return buckets or values


def _is_several(option: str, value: Any) -> bool:
    """True for a list of values: integers for ``--dim``, shapes for ``--shape``."""
    if option == "--dim":
        return isinstance(value, list)
    return any(isinstance(each, list | tuple) for each in value)


def read_inputs(path: str | None) -> "dict[str, np.ndarray[Any, Any]] | None":
    """Read the arrays of an input file, by name; None if there is no file.

    ``path``: an ``.npz`` file that stores each array under its input's name. Raises ``OptionError``
    if it cannot be read or holds no array.
    """
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            arrays = load_arrays(file)
    except READ_ERRORS as error:
        raise OptionError(
            f"--inputs {path!r} cannot be read: {first_line(error)}; expected a file .npz of "
            "numpy.savez(FILE, NAME=array), with the names of the inputs"
        ) from error
    if not arrays:
        raise OptionError(f"--inputs {path!r} holds no array: expected one by the name of an input")
    return arrays
