"""Running the official conformance suite against a URL, and reading what it found."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import IO, Any

from tests.conformance.fetch import SUITE_PACKAGE

SUITE_SECONDS = 200.0
"""The suite takes a few; what hangs in many scenarios is ended here."""

START_SECONDS = 30.0

GOOD = frozenset({"SUCCESS", "INFO"})
"""The suite itself lets warnings and skipped checks pass; against the fixture there are none of either."""

RESULT = re.compile(r"server-(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")
"""The folder of one scenario's results."""

ALSO_PASSED = {
    "2025-11-25": ("json-schema-2020-12", "server-session-lifecycle"),
    "2026-07-28": ("json-schema-2020-12", "http-header-validation", "http-custom-header-server-validation"),
}
"""Scenarios beyond the scored ones that concern a proxy, and that the fixture passes."""


def scored_scenarios(revision: str) -> list[str]:
    """The scenarios that a server has to pass to conform to a revision, as the suite lists them."""
    text = (SUITE_PACKAGE / "requirements" / f"{revision}.yaml").read_text(encoding="utf-8")
    listed = re.search(r"^server:\n((?:  - \S+\n)+)", text, re.MULTILINE)
    assert listed is not None, "the suite's requirements have another form than they had"
    return re.findall(r"- (\S+)", listed[1])


def failures(url: str, revision: str, results: Path) -> dict[str, list[str]]:
    """Run a revision's requirements against a server.

    Args:
        url: The server's endpoint.
        revision: Which set of requirements; it fixes the scenarios and the protocol they are run in.
        results: A folder for what the suite writes; made if it is missing.

    Returns:
        The scenarios that were not passed, with the reasons of each.
    """
    node = Path(sys.executable).with_name("node")
    options = ("--url", url, "--requirements", revision, "--output-dir", results)
    done = subprocess.run(
        [node, SUITE_PACKAGE / "dist" / "index.js", "server", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=SUITE_SECONDS,
        check=False,
    )
    found = {match["scenario"]: path for path in results.glob("*") if (match := RESULT.fullmatch(path.name))}
    assert found, f"the suite ended with code {done.returncode} and without results:\n{done.stdout}"
    wanted = [*scored_scenarios(revision), *ALSO_PASSED[revision]]
    reasons = {name: _reasons(found[name]) if name in found else ["it was not run"] for name in wanted}
    return {name: told for name, told in reasons.items() if told}


def _reasons(folder: Path) -> list[str]:
    checks: list[dict[str, Any]] = json.loads((folder / "checks.json").read_text(encoding="utf-8"))
    if not checks:
        return ["nothing was checked"]
    return [
        f"{check['id']}: {check['status']}: {check.get('errorMessage', '')}"
        for check in checks
        if check["status"] not in GOOD
    ]


@contextmanager
def listening(command: list[str], pattern: str) -> Generator[str]:
    """Run a server that tells its address on standard error, and read on: a full pipe would stop it.

    Args:
        command: Its command line.
        pattern: Finds the address as its group.
    """
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8"
    )
    assert process.stderr is not None
    address = Future[str]()
    reader = Thread(target=_read, args=(process.stderr, pattern, address))
    reader.start()
    try:
        yield address.result(START_SECONDS)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join()
        process.stderr.close()


def _read(stream: IO[str], pattern: str, address: Future[str]) -> None:
    said: list[str] = []
    for line in stream:
        if address.done():
            continue
        said.append(line)
        if match := re.search(pattern, line):
            address.set_result(match[1])
    if not address.done():
        address.set_exception(AssertionError(f"it ended without telling its address:\n{''.join(said)}"))
