"""Runs of tests in forks of a process of pytest that has imported and collected them: a run costs what its tests do.

A changed function is changed in the fork, where it lives. A change of what runs at an import needs a run that imports.
What a run leaves behind is ended with it, in whatever session or group it is.
"""

from __future__ import annotations

import _thread
import ctypes
import gc
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

import pytest
from _pytest.main import pytest_runtestloop

PACKAGES = ("server", "tools", "tests", "docs", "bench")
MAX_MEMORY = 6 << 30
"""Of address space: a mutant may ask for memory without end."""
PR_SET_CHILD_SUBREAPER = 36
ALWAYS = ("-q", "-s", "-m", "not long", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0")


class Test(NamedTuple):
    """A test that passes.

    Args:
        name: For pytest.
        seconds: What it took, traced.
        lines: The lines that ran, by module.
    """

    name: str
    seconds: float
    lines: dict[str, list[int]]


class Recorder:
    """A plugin of pytest that records which lines of some modules run in this process, test by test.

    Args:
        root: The checkout.
        modules: Paths from there.
    """

    def __init__(self, root: Path, modules: Iterable[str]) -> None:
        self._modules = {str(root / module): module for module in modules}
        self._lines: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._left_out: set[str] = set()
        self._test = ""

    def tests(self) -> list[Test]:
        """Those that passed."""
        made: list[Test] = []
        for name, seconds in self._seconds.items():
            lines: defaultdict[str, list[int]] = defaultdict(list)
            for module, line in sorted(self._lines[name]):
                lines[module].append(line)
            if name not in self._left_out:
                made.append(Test(name, seconds, lines))
        return made

    def trace_threads(self) -> None:
        """Have threads that begin from now on traced, also those that nobody waits for."""
        begin = _thread.start_new_thread

        def begin_traced(work: Callable[..., Any], *given: Any) -> int:
            def traced(*arguments: Any, **named: Any) -> None:
                sys.settrace(self._called)
                work(*arguments, **named)

            return begin(traced, *given)

        _thread.start_new_thread = begin_traced
        threading.settrace(self._called)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if not self._test:
            self.trace_threads()
        self._test = nodeid
        sys.settrace(self._called)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        if report.outcome != "passed":
            self._left_out.add(report.nodeid)

    def _called(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        return self._ran if frame.f_code.co_filename in self._modules else None

    def _ran(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        self._lines[self._test].add((self._modules[frame.f_code.co_filename], frame.f_lineno))
        return self._ran


class FirstFailure:
    """A plugin that knows the first test that did not pass, or the first module of tests that could not be imported."""

    name = ""

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid or "an import"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid


class WarmRuns:
    """A plugin of pytest that, when all is collected, does something else than to run it.

    Args:
        root: The checkout.
        body: What to do; it may call `run`.
    """

    def __init__(self, root: Path, body: Callable[[WarmRuns], int]) -> None:
        self._root = root
        self._body = body
        self._items: dict[str, pytest.Item] = {}
        self._session: pytest.Session | None = None
        self._temporary = str(root.with_name("tmp"))
        self._functions: defaultdict[str, list[FunctionType]] = defaultdict(list)
        self._kept: set[int] = set()  # children that test modules have started when they were imported
        self.code = 2

    def serve(self, tests: Sequence[str]) -> int:
        """Collect these tests, and do it."""
        here = str(Path(__file__).resolve().parents[2])
        os.chdir(self._root)
        sys.path[:] = [str(self._root), *(path for path in sys.path if path not in ("", here))]
        os.environ["PYTHONPATH"] = str(self._root)
        self._use_temporary("imports")
        _forget_packages()
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        pytest.main([*ALWAYS, *tests], plugins=[self])
        return self.code

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._session = session
        self._items = {item.nodeid: item for item in session.items}
        self._kept = {*_children()}
        for each in gc.get_objects():
            if isinstance(each, FunctionType) and each.__code__.co_filename.startswith(str(self._root)):
                self._functions[each.__code__.co_filename].append(each)
        gc.freeze()
        self.code = self._body(self)
        return True

    def names(self, file: str) -> list[str]:
        """The tests of a file."""
        return [name for name in self._items if name.startswith(f"{file}::")]

    def run(
        self, tests: Sequence[str], plugin: Any, seconds: float, tell: Callable[[], str], change: Change | None = None
    ) -> str:
        """Run tests in a fork, with a change to begin with, and with that until the first failure.

        Args:
            tests: Their names.
            plugin: For pytest.
            seconds: How long it may take.
            tell: Makes in the fork what comes back.
            change: A changed module.

        Returns:
            What `tell` made; nothing where the process ended otherwise.

        Raises:
            TimeoutError: The time was over.
        """
        reading, writing = os.pipe()
        if not os.fork():
            os.close(reading)
            try:
                self._prepare()
                self._run_here(tests, plugin, change)
                sys.settrace(None)
                with os.fdopen(writing, "w") as pipe:
                    pipe.write(tell())
            except BaseException:  # noqa: BLE001 - it ends here, whatever it was
                traceback.print_exc()
            finally:
                os._exit(0)
        os.close(writing)
        ends, told = time.monotonic() + seconds, b""
        try:
            with os.fdopen(reading, "rb", buffering=0) as pipe:
                while select.select([pipe], [], [], max(0.0, ends - time.monotonic()))[0]:
                    chunk = pipe.read(1 << 16)
                    if not chunk:
                        return told.decode()
                    told += chunk
        finally:
            self._end_children()
            shutil.rmtree(os.path.join(self._temporary, "run"), ignore_errors=True)
        raise TimeoutError

    def _use_temporary(self, name: str) -> None:
        os.environ["TMPDIR"] = tempfile.tempdir = os.path.join(self._temporary, name)
        os.makedirs(tempfile.tempdir, exist_ok=True)

    def _end_children(self) -> None:
        """Kill what is a child of this process, or becomes one when its parent is gone, until none is left."""
        while children := {*_children()} - self._kept:
            for pid in children:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def _prepare(self) -> None:
        os.setsid()
        self._use_temporary("run")
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
        output = os.open(self._root.with_name("output.txt"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for number in (1, 2):
            os.dup2(output, number)

    def _run_here(self, tests: Sequence[str], plugin: Any, change: Change | None) -> None:
        if change is not None and not change.apply(self._functions[change.path]):
            _forget_packages()
            if pytest.main([*ALWAYS, "-x", *tests], plugins=[plugin]) not in (
                pytest.ExitCode.OK,
                pytest.ExitCode.TESTS_FAILED,
                pytest.ExitCode.INTERRUPTED,
            ):
                raise ImportError  # the change made of a conftest what cannot be imported
            return
        session = self._session
        assert session is not None
        session.config.option.maxfail = int(change is not None)
        session.config.pluginmanager.register(plugin)
        session.items = [self._items[name] for name in tests]
        session.testscollected = len(session.items)
        try:
            pytest_runtestloop(session)
        except session.Failed:
            """The plugin knows."""


class Change(NamedTuple):
    """A changed module.

    Args:
        path: Of its file.
        before: Its text.
        after: The changed one.
    """

    path: str
    before: str
    after: str

    def apply(self, functions: Iterable[FunctionType]) -> bool:
        """Change these functions of the module, unless something else than a function has changed."""
        before, after = (
            [*_codes(compile(text, self.path, "exec", dont_inherit=True))] for text in (self.before, self.after)
        )
        if [code.co_qualname for code in before] != [code.co_qualname for code in after]:
            return False
        pairs = [*zip(before, after, strict=True)]
        if any(_own(old) != _own(new) and not old.co_flags & CO_OPTIMIZED for old, new in pairs):
            return False
        swapped = {(old.co_qualname, old.co_firstlineno, old.co_code): new for old, new in pairs}
        for each in functions:
            code = each.__code__
            if (new := swapped.get((code.co_qualname, code.co_firstlineno, code.co_code))) is not None:
                each.__code__ = new
        return True


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _own(code: CodeType) -> object:
    """What a code is without those within it."""
    constants = [repr(each) for each in code.co_consts if not isinstance(each, CodeType)]
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars, code.co_exceptiontable


def _forget_packages() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES]:
        del sys.modules[name]


def _children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
