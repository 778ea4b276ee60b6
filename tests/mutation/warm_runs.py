"""Runs tests in forks of a pytest process that has already imported and collected them, so that a run starts at once.

A changed function is replaced in the fork. A change of code that runs at import needs a run that imports everything.
Processes that a run leaves behind are ended with it, in whatever session or group they are.
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
from contextlib import suppress
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

import pytest
from _pytest.main import pytest_runtestloop

PACKAGES = ("server", "tools", "tests", "docs", "bench")
MAX_MEMORY = 6 << 30
"""Limit of the address space in bytes: a mutant may allocate memory without end."""
PR_SET_CHILD_SUBREAPER = 36
ALWAYS = ("-q", "-s", "-m", "not long", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0")


class Test(NamedTuple):
    """A test that passes.

    Args:
        name: The test's node ID in pytest.
        seconds: Duration with tracing.
        lines: The executed lines, by module.
    """

    name: str
    seconds: float
    lines: dict[str, list[int]]


class Recorder:
    """A pytest plugin that records for each test which lines of some modules run in this process.

    Args:
        root: The checkout.
        modules: Paths from the checkout.
    """

    def __init__(self, root: Path, modules: Iterable[str]) -> None:
        self._modules = {str(root / module): module for module in modules}
        self._lines: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._left_out: set[str] = set()
        self._test = ""

    def tests(self) -> list[Test]:
        """Return the tests that passed."""
        passing_tests: list[Test] = []
        for name, seconds in self._seconds.items():
            lines: defaultdict[str, list[int]] = defaultdict(list)
            for module, line in sorted(self._lines[name]):
                lines[module].append(line)
            if name not in self._left_out:
                passing_tests.append(Test(name, seconds, lines))
        return passing_tests

    def trace_threads(self) -> None:
        """Trace all threads that start from now on, including those started without `threading`."""
        start_new_thread = _thread.start_new_thread

        def start_traced_thread(work: Callable[..., Any], *thread_arguments: Any) -> int:
            def run_traced(*arguments: Any, **keywords: Any) -> None:
                sys.settrace(self._trace_call)
                work(*arguments, **keywords)

            return start_new_thread(run_traced, *thread_arguments)

        _thread.start_new_thread = start_traced_thread
        threading.settrace(self._trace_call)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if not self._test:
            self.trace_threads()
        self._test = nodeid
        sys.settrace(self._trace_call)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        if report.outcome != "passed":
            self._left_out.add(report.nodeid)

    def _trace_call(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        return self._trace_line if frame.f_code.co_filename in self._modules else None

    def _trace_line(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        self._lines[self._test].add((self._modules[frame.f_code.co_filename], frame.f_lineno))
        return self._trace_line


class FirstFailure:
    """A plugin that records the first test that failed, or the first test module that could not be imported."""

    name = ""

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid or "an import"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid


class WarmRuns:
    """A pytest plugin that runs something else instead of the collected tests.

    Args:
        root: The checkout.
        body: The function to run; it may call `run`.
    """

    def __init__(self, root: Path, body: Callable[[WarmRuns], int]) -> None:
        self._root = root
        self._body = body
        self._items: dict[str, pytest.Item] = {}
        self._session: pytest.Session | None = None
        self._temporary = str(root.with_name("tmp"))
        self._functions: defaultdict[str, list[FunctionType]] = defaultdict(list)
        self._kept: set[int] = set()  # children that test modules started at import
        self.code = 2

    def serve(self, tests: Sequence[str]) -> int:
        """Collect these tests, and then run the body."""
        own_root = str(Path(__file__).resolve().parents[2])
        os.chdir(self._root)
        sys.path[:] = [str(self._root), *(path for path in sys.path if path not in ("", own_root))]
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
        for function in gc.get_objects():
            if isinstance(function, FunctionType) and function.__code__.co_filename.startswith(str(self._root)):
                self._functions[function.__code__.co_filename].append(function)
        gc.freeze()
        self.code = self._body(self)
        return True

    def names(self, file: str) -> list[str]:
        """Return the tests of a file."""
        return [name for name in self._items if name.startswith(f"{file}::")]

    def run(
        self, tests: Sequence[str], plugin: Any, seconds: float, tell: Callable[[], str], change: Change | None = None
    ) -> str:
        """Run tests in a fork. With a change, apply it first and stop at the first failure.

        Args:
            tests: Names of the tests.
            plugin: A plugin for pytest.
            seconds: Time limit.
            tell: Called in the fork; returns the result as text.
            change: A changed module.

        Returns:
            The result of `tell`, or an empty string if the process ended early.

        Raises:
            TimeoutError: The run took too long.
        """
        read_end, write_end = os.pipe()
        if not os.fork():
            os.close(read_end)
            try:
                self._prepare()
                self._run_here(tests, plugin, change)
                sys.settrace(None)
                with os.fdopen(write_end, "w") as pipe:
                    pipe.write(tell())
            except BaseException:  # noqa: BLE001 - the fork ends here in any case
                traceback.print_exc()
            finally:
                os._exit(0)
        os.close(write_end)
        deadline, output = time.monotonic() + seconds, b""
        try:
            with os.fdopen(read_end, "rb", buffering=0) as pipe:
                while select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
                    chunk = pipe.read(1 << 16)
                    if not chunk:
                        return output.decode()
                    output += chunk
        finally:
            self._end_children()
            shutil.rmtree(os.path.join(self._temporary, "run"), ignore_errors=True)
        raise TimeoutError

    def _use_temporary(self, name: str) -> None:
        os.environ["TMPDIR"] = tempfile.tempdir = os.path.join(self._temporary, name)
        os.makedirs(tempfile.tempdir, exist_ok=True)

    def _end_children(self) -> None:
        """Kill all children of this process, and orphans that become its children, until none is left."""
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
                raise ImportError  # with the change, a conftest module cannot be imported
            return
        session = self._session
        assert session is not None
        session.config.option.maxfail = int(change is not None)
        session.config.pluginmanager.register(plugin)
        session.items = [self._items[name] for name in tests]
        session.testscollected = len(session.items)
        with suppress(session.Failed):  # the plugin has recorded the failure
            pytest_runtestloop(session)


class Change(NamedTuple):
    """A changed module.

    Args:
        path: Path of its file.
        before: Its original text.
        after: Its changed text.
    """

    path: str
    before: str
    after: str

    def apply(self, functions: Iterable[FunctionType]) -> bool:
        """Replace the changed functions, and return True; return False if anything outside functions has changed."""
        before, after = (
            [*_codes(compile(text, self.path, "exec", dont_inherit=True))] for text in (self.before, self.after)
        )
        if [code.co_qualname for code in before] != [code.co_qualname for code in after]:
            return False
        pairs = [*zip(before, after, strict=True)]
        if any(_own_content(old) != _own_content(new) and not old.co_flags & CO_OPTIMIZED for old, new in pairs):
            return False
        new_codes = {(old.co_qualname, old.co_firstlineno, old.co_code): new for old, new in pairs}
        for function in functions:
            code = function.__code__
            if (new := new_codes.get((code.co_qualname, code.co_firstlineno, code.co_code))) is not None:
                function.__code__ = new
        return True


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _own_content(code: CodeType) -> object:
    """Return the content of a code object without the code objects inside it."""
    constants = [repr(constant) for constant in code.co_consts if not isinstance(constant, CodeType)]
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars, code.co_exceptiontable


def _forget_packages() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES]:
        del sys.modules[name]


def _children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
