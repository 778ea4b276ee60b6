"""`glob`: compiles patterns, and finds the files that match.

Patterns from models become matchers that a walk follows folder by folder. The patterns of other tools are compiled here
too.

Supports `*`, `?`, `[...]`, `{a,b}`, `{1..3}`, `**`, and the alternatives `@(a|b)` and `?(a|b)`. A part that exists
literally as a name stands for that name, so `app/[id]/(group)/page.tsx` finds that file.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from tools.contract.limits import Deadline
from tools.contract.tool_errors import InvalidToolParamsError, ToolError, ToolErrorType
from tools.contract.tool_results import ToolResult
from tools.files.find.folder_walk import Filters, Walk, count, excluded_folders, list_page, visible_kind, walk_notes
from tools.files.find.path_suggestions import not_there
from tools.files.ignore_files import refuse_hidden
from tools.files.path_opener import PathKind
from tools.files.workspace import Location, Workspace, contains, explain
from tools.text.file_names import brief, one_line, sendable_name, shown_path, shown_whole_path, visible_form

MAX_ALTERNATIVES = 256  # maximum number of patterns that braces may expand to
# Maximum total length of these patterns: eight of the longest patterns, or 128 characters for each of 256 patterns
MAX_EXPANDED_CHARS = 32_768
_BRACE = re.compile(r"\\.|[{},]", re.DOTALL)  # parts of braces; a backslash escapes the next character
_RANGE = re.compile(r"(-?\d{1,6})\.\.(-?\d{1,6})|([A-Za-z])\.\.([A-Za-z])")


class PatternRefusedError(ValueError):
    """A pattern is not accepted. The message is the reason, phrased for the model."""


def expand_braces(pattern: str) -> list[str]:
    """Expand `{a,b}` and `{1..3}`. Braces without a comma or a range are literal.

    Raises a `PatternRefusedError` if the expansion is too large.
    """
    # Positions of special braces and commas. A range is recorded at the position of its opening brace.
    marks: dict[int, str | re.Match[str]] = {}
    opened: list[tuple[int, list[int]]] = []
    for found in _BRACE.finditer(pattern):
        index = found.start()
        match found.group():
            case "{":
                opened.append((index, []))
            case "," if opened:
                opened[-1][1].append(index)
            case "}" if opened:
                start, commas = opened.pop()
                if commas:
                    marks |= {start: "{", index: "}"} | dict.fromkeys(commas, ",")
                elif values := _RANGE.fullmatch(pattern, start + 1, index):
                    marks[start] = values
            case _:
                pass

    # For the whole pattern and each open pair of braces: the finished choices, and the current choice as expanded so
    # far.
    groups: list[tuple[list[str], list[str]]] = [([], [""])]

    def append(ends: Sequence[str]) -> None:
        finished, current = groups[-1]
        chars = sum(map(len, current)) * len(ends) + sum(map(len, ends)) * len(current)
        _check_size(len(current) * len(ends), chars)
        groups[-1] = finished, [start + end for start in current for end in ends]

    position = 0
    for index in sorted(marks):
        append([pattern[position:index]])
        mark, position = marks[index], index + 1
        if isinstance(mark, re.Match):
            is_number = mark[1] is not None
            first, last = (int(mark[1]), int(mark[2])) if is_number else (ord(mark[3]), ord(mark[4]))
            _check_size(abs(last - first) + 1, 0)
            step = 1 if first <= last else -1
            append([str(value) if is_number else chr(value) for value in range(first, last + step, step)])
            position = mark.end() + 1
        elif mark == "{":
            groups.append(([], [""]))
        else:
            finished, current = groups.pop()
            finished = finished + current
            _check_size(len(finished), sum(map(len, finished)))
            if mark == "}":
                append(finished)
            else:
                groups.append((finished, [""]))
    append([pattern[position:]])
    return list(dict.fromkeys(groups[0][1]))


def _check_size(count: int, chars: int) -> None:
    if count > MAX_ALTERNATIVES:
        raise PatternRefusedError(f"its braces expand to more than {MAX_ALTERNATIVES} patterns; use fewer")
    if chars > MAX_EXPANDED_CHARS:
        raise PatternRefusedError(f"its braces expand to more than {MAX_EXPANDED_CHARS} characters; use fewer")


MAX_PATTERN_CHARS = 4_096  # length of the longest possible path
_EXTENDED = re.compile(r"[@?]\(([^()/]*+)\)")
_UNKNOWN_EXTENDED = re.compile(r"!\([^()/]*+\)|[+*]\([^()/|]*+\|[^()/]*+\)")
_LOOKS_ALONE = re.compile(r"[^ '\"-]*")  # a part without any character that has look-alikes
_WILDCARDS = re.compile(r"[*?\[\\]")
_ESCAPE_OR_BRACKET = re.compile(r"\\(.)|\[\^?", re.DOTALL)
Names = Callable[[str], bool]  # tests a name, or a path of several names


@dataclass(frozen=True, slots=True)
class _PatternTree:
    """`**`: any number of folders."""


@dataclass(frozen=True, slots=True)
class _Name:
    """A part without wildcards."""

    text: str  # lower case if case is ignored
    ignore_case: bool

    def __call__(self, name: str) -> bool:
        return (name.lower() if self.ignore_case else name) == self.text


_TREE = _PatternTree()
_Step = Names | _PatternTree


@dataclass(slots=True, eq=False)
class PatternPosition:
    """The position of a folder in a pattern, with the possible next steps. Equivalent folders share one position."""

    # The possible next steps: the matcher of each, the number of the step after it, and whether it is the last step
    steps: tuple[tuple[_Step, int, bool], ...]
    pattern: PathPattern  # the pattern that the steps belong to

    def accepts(self, name: str) -> bool:
        """Return True if a file with this name in the folder matches the pattern."""
        return bool(self.chosen([name]))

    def chosen(self, names: list[str]) -> list[str]:
        last = [step for step, _, is_last in self.steps if is_last]
        fits = [step for step in last if not isinstance(step, _PatternTree)]
        if len(fits) < len(last):
            return names
        if len(fits) == 1:
            return list(filter(fits[0], names))
        return [name for name in names if any(step(name) for step in fits)]

    def enter(self, name: str) -> PatternPosition | None:
        """Return the position of a subfolder, or `None` if nothing in it can match."""
        reached: set[int] = set()
        for step, behind, _ in self.steps:
            if isinstance(step, _PatternTree):
                reached.update(self.pattern.reachable(behind - 1))
            elif step(name):
                reached.update(self.pattern.reachable(behind))
        return self.pattern.position(frozenset(reached))

    def linked(self, name: str) -> PatternPosition | None:
        """Like `enter`, for a symlink to a folder. A symlink that matches only a wildcard is not followed."""
        is_named = any(isinstance(step, _Name) and step(name) for step, _, is_last in self.steps if not is_last)
        return self.enter(name) if is_named else None

    @property
    def leads_to_links(self) -> bool:
        """True if the rest of the pattern names a folder, which may be a symlink."""
        return any(behind - 1 <= self.pattern.last_folder_named(behind - 1) for _, behind, _ in self.steps)

    def covers(self, name: str) -> bool:
        """Return True if a folder with this name, or everything in it, matches. An exclusion then skips the folder."""
        if self.accepts(name):
            return True
        below = self.enter(name)
        return below is not None and any(is_last and isinstance(step, _PatternTree) for step, _, is_last in below.steps)


class PathPattern:
    """One or more alternative patterns for paths relative to a folder."""

    def __init__(self, alternatives: Sequence[Sequence[_Step]]) -> None:
        self.alternatives = alternatives
        # Parts without wildcards, in lower case
        self.literals = frozenset(
            step.text.lower() for steps in alternatives for step in steps if isinstance(step, _Name)
        )
        self._positions: dict[frozenset[int], PatternPosition] = {}
        # The parts of all alternatives in sequence. Each alternative ends with `None`
        self._steps: list[_Step | None] = []
        firsts: list[int] = []
        for steps in alternatives:
            firsts.append(len(self._steps))
            self._steps += [*steps, None]
        self._starts = frozenset(number for first in firsts for number in self.reachable(first))

    def start(self) -> PatternPosition | None:
        return self.position(self._starts)

    def last_folder_named(self, number: int) -> int:
        """Return the number of the last step that names a folder, in the alternative that contains step `number`.

        If there is none, return a number before the first step of that alternative.
        """
        end = self._steps.index(None, number)
        before = range(end - 2, -1, -1)
        return next((at for at in before if self._steps[at] is None or isinstance(self._steps[at], _Name)), -1)

    def reachable(self, number: int) -> Iterator[int]:
        """Yield the number of a step, and of later steps that may also come next, because `**` can match nothing."""
        while self._steps[number] is not None:
            yield number
            if not isinstance(self._steps[number], _PatternTree):
                return
            number += 1

    def position(self, numbers: frozenset[int]) -> PatternPosition | None:
        """Return the shared position that has these next steps."""
        if not numbers:
            return None
        if numbers not in self._positions:
            steps = ((self._steps[number], number + 1, self._steps[number + 1] is None) for number in sorted(numbers))
            known = tuple((step, behind, is_last) for step, behind, is_last in steps if step is not None)
            self._positions[numbers] = PatternPosition(known, self)
        return self._positions[numbers]

    def matches(self, path: str) -> bool:
        """Return True if a file matches. `path` is its relative path, with forward slashes."""
        *folders, name = path.split("/")
        position = self.start()
        for folder in folders:
            position = position and position.enter(folder)
        return position is not None and position.accepts(name)


def compile_patterns(
    patterns: Sequence[str], *, ignore_case: bool, exists: Names | None = None, at_any_depth: bool = False
) -> PathPattern:
    """Compile alternative relative patterns. Raises a `PatternRefusedError` for an unusable pattern.

    Leading parts for which `exists` returns True are taken literally. If `at_any_depth` is true, a pattern without a
    slash matches names in any folder, as in ignore files.
    """

    def braces_of(found: re.Match[str]) -> str:
        choices = found.group(1).replace(",", "\\,").split("|")
        if found.group().startswith("?"):
            choices.insert(0, "")
        return choices[0] if len(choices) == 1 else f"{{{','.join(choices)}}}"

    def literal_parts(parts: Sequence[str]) -> int:
        """Return how many leading parts name something that exists."""
        places = range(len(parts) if exists is not None else 0)
        return next((at for at in places if exists is None or not exists("/".join(parts[: at + 1]))), len(places))

    alternatives: list[list[_Step]] = []
    for pattern in patterns:
        whole = _parts(pattern)
        if literal_parts(whole) == len(whole):
            expanded = [(whole, len(whole))]
        else:
            unknown = _UNKNOWN_EXTENDED.search(pattern)
            if unknown:
                raise PatternRefusedError(
                    f"'{unknown.group()}' is not supported; list alternatives in braces, like {{a,b}}"
                )
            each = map(_parts, expand_braces(_EXTENDED.sub(braces_of, pattern)))
            expanded = [(parts, literal_parts(parts)) for parts in each]
        for parts, literal in expanded:
            steps = [_step(part, ignore_case=ignore_case, literal=n < literal) for n, part in enumerate(parts)]
            if at_any_depth and len(parts) == 1:
                steps.insert(0, _TREE)
            alternatives.append(steps)
        _check_size(len(alternatives), 0)
    return PathPattern(alternatives)


_OF_REGEX = re.compile(r"\.[*+]|\\[.dws]|^\^|\$$")
_GROUP = re.compile(r"[@?+*!]?\(([^()]*\|[^()]*)\)")
_BRACED = re.compile(r"\{[^{}]*\}")
_SEVERAL = re.compile(r"\s*[,;|]\s*|(?<=\S)\s+(?=\S*[*?])")


def glob_hint(pattern: str) -> str:
    """Return a hint about a likely mistake in a pattern that matched nothing. Usually empty."""
    if _OF_REGEX.search(pattern):
        return "This is a glob, not a regular expression: '*' matches any characters, and '.' only itself."
    meant, why = _GROUP.sub(lambda found: f"{{{found[1].replace('|', ',')}}}", pattern), ""
    if meant != pattern:
        why = "alternatives are written in braces"
    parts = [part for part in _SEVERAL.split(_BRACED.sub("", meant)) if part]
    if len(parts) > 1:
        meant, why = f"{{{','.join(part for part in _SEVERAL.split(meant) if part)}}}", "several patterns go in braces"
    if "\\" in meant and os.sep != "\\":
        meant, why = meant.replace("\\", "/"), "a slash separates folders, and a backslash makes a character literal"
    return f"In a glob, {why}. Did you mean '{one_line(meant)}'?" if why else ""


def _parts(pattern: str) -> list[str]:
    if len(pattern) > MAX_PATTERN_CHARS:
        raise PatternRefusedError(f"it is longer than {MAX_PATTERN_CHARS} characters")
    if not pattern.strip():
        raise PatternRefusedError("it is blank; give a pattern such as **/*.py")
    if "\0" in pattern:
        raise PatternRefusedError("it contains a NUL character; no file name can")
    slashed = pattern.replace("\\", "/") if os.sep == "\\" else pattern
    if slashed.startswith("/") or os.path.isabs(pattern):
        raise PatternRefusedError("it is absolute; give the folder as the path and a pattern relative to it")
    parts = [part for part in slashed.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise PatternRefusedError("it leaves the folder with '..'; give the folder to search as the path instead")
    if slashed.endswith("/") or not parts:
        parts.append("**")
    return [part for n, part in enumerate(parts) if not (part == "**" and n > 0 and parts[n - 1] == "**")]


def _step(part: str, *, ignore_case: bool, literal: bool) -> _Step:
    """Return the matcher of one part between slashes. It also accepts look-alikes of matching names."""
    if part == "**" and not literal:
        return _TREE
    fits = _fit(part, ignore_case=ignore_case, literal=literal)
    if part.isascii() and _LOOKS_ALONE.fullmatch(part):
        return fits
    plain = visible_form(part)
    if plain == part:
        return lambda name: fits(name) or (not name.isascii() and fits(visible_form(name)))
    alike = _fit(plain, ignore_case=ignore_case, literal=literal)
    return lambda name: fits(name) or alike(visible_form(name))


def _fit(part: str, *, ignore_case: bool, literal: bool) -> Names:
    """Return a function that tests a name. A name that equals `part` always matches, even if `part` has brackets."""
    same = part.lower() if ignore_case else part
    if literal or not _WILDCARDS.search(part):
        return _Name(same, ignore_case)
    if part == "*":
        return bool
    if part.startswith("*") and not _WILDCARDS.search(part[1:]):
        ending = same[1:]
        return (lambda name: name.lower().endswith(ending)) if ignore_case else (lambda name: name.endswith(ending))

    @cache
    def matcher() -> Callable[[str], object]:
        # Compile the pattern only when the first name is tested, because compiling takes time and a walk runs in a
        # thread. `fnmatch` makes stars atomic, so the time to match is at most proportional to the length of the part
        # times that of the name. `fnmatch` has no backslash escapes, negates only with `!`, and may take a long time to
        # find the end of a `[`.
        end = part.rfind("]")

        def rewritten(found: re.Match[str]) -> str:
            if escaped := found[1]:
                return f"[{escaped}]" if escaped in "*?[" else escaped
            return f"[[]{found[0][1:]}" if found.start() > end else found[0].replace("^", "!")

        expression = fnmatch.translate(_ESCAPE_OR_BRACKET.sub(rewritten, part))
        return re.compile(expression, re.IGNORECASE if ignore_case else 0).match

    return lambda name: name == part or matcher()(name) is not None


def compile_glob(pattern: str, *, ignore_case: bool, exists: Names | None = None) -> PathPattern:
    try:
        return compile_patterns([pattern], ignore_case=ignore_case, exists=exists)
    except PatternRefusedError as error:
        raise InvalidToolParamsError("glob", f"the pattern '{pattern[:200]}' cannot be used: {error}.") from None


def search_starts(
    workspace: Workspace, path: str | None, deadline: Deadline, *, agent: bool
) -> tuple[list[Location], bool]:
    """Return where a search starts (the given folder or file, or every root), and whether it is a single file."""
    if path is None or not path.strip():
        return workspace.root_locations(), False
    location = workspace.locate(path, by_look=True)
    info = workspace.stat(location)
    if info is None:
        so, code = ", so nothing was searched", ToolErrorType.SEARCH_PATH_NOT_FOUND
        raise not_there(workspace, location, deadline.signal, folders=True, so=so, code=code)
    if not stat.S_ISDIR(info.st_mode) and not stat.S_ISREG(info.st_mode):
        raise ToolError(
            ToolErrorType.SEARCH_PATH_NOT_A_DIRECTORY,
            f"'{location.shown}' is a device, pipe or socket; these are never opened.",
        )
    if agent:
        refuse_hidden(workspace, location, "searched")
    return [location], stat.S_ISREG(info.st_mode)


def find_files(
    workspace: Workspace,
    pattern: str,
    path: str | None,
    *,
    ignore_case: bool,
    git: bool,
    agent: bool,
    offset: int,
    limit: int,
    recent_since: float,
    deadline: Deadline,
) -> ToolResult:
    """Find files whose path relative to a folder, or to any root, matches a pattern. Blocking.

    An absolute pattern must be inside the folder to search. Files changed after `recent_since` come first, newest
    first, then the others by path.
    """
    if os.path.isabs(pattern):
        absolute = workspace.locate(pattern)
        path = workspace.locate(path).name if path else workspace.at(absolute.root).name
        if not contains(path, absolute.name) or path == absolute.name:
            raise InvalidToolParamsError(
                "glob",
                f"the pattern '{brief(pattern)}' is absolute and outside '{shown_path(path)}', the folder to search; "
                "give a pattern relative to it.",
            )
        pattern = os.path.relpath(absolute.name, path).replace(os.sep, "/")
    starts, is_file = search_starts(workspace, path, deadline, agent=agent)
    if is_file:
        raise ToolError(
            ToolErrorType.SEARCH_PATH_NOT_A_DIRECTORY,
            f"'{starts[0].shown}' is a file. Give the folder to search as path, and the name as pattern.",
        )
    walk = Walk(workspace, Filters(git=git, agent=agent, links=True, stats=True), deadline)
    compiled = [compile_glob(pattern, ignore_case=ignore_case, exists=walk.names_below(start)) for start in starts]
    named = frozenset[str]().union(*(each.literals for each in compiled))
    walk.filters = replace(walk.filters, folders=excluded_folders(starts, named))
    roots = [start.path for start in starts]
    recent: list[tuple[float, str]] = []
    others: list[str] = []
    try:
        for start, each in zip(starts, compiled, strict=True):
            position = each.start()
            if position is None:
                continue
            for folder, wanted in walk.through_links(start, position):
                base = os.path.join(folder.name, "")
                for below, is_link, info in walk.files(folder, wanted, roots):
                    if info is None:
                        continue  # the file has been removed since it was found
                    found = base + below.replace("/", os.sep)
                    # A symlink counts only if it leads to a visible regular file.
                    if is_link and (
                        walk.is_out_of_time() or visible_kind(workspace, found, agent=agent) is not PathKind.FILE
                    ):
                        continue
                    if info.st_mtime > recent_since:
                        recent.append((-info.st_mtime, found))
                    else:
                        others.append(found)
    except OSError as error:
        raise explain(error, starts[0].shown, ToolErrorType.GLOB_EXECUTION_ERROR) from None
    # A symlink's target may also have been found directly.
    files = list(dict.fromkeys([found for _, found in sorted(recent)] + sorted(others)))

    total, shown_pattern = len(files), one_line(pattern)
    where = "in the workspace directory" if len(starts) == 1 else f"across {len(starts)} workspace directories"
    where = f"within {shown_whole_path(starts[0].name)}" if path else where
    what = f'{count(total, "file")} matching "{shown_pattern}" {where}'
    head = [f"Found {what}, changed in the last 24 hours first (newest first), then by path:", "---"]
    if not total:
        head = [f'No files found matching pattern "{shown_pattern}" {where}.']
        if any(visible_kind(workspace, pattern, within=root) is PathKind.FOLDER for root in roots):
            glob = f"{shown_pattern.rstrip('/')}/**"
            head.append(f"The pattern is a folder: use '{glob}' for the files in it, or list_directory.")
        elif hint := glob_hint(pattern):
            head.append(hint)
        elif "/" not in pattern and "*" in pattern and pattern != "**" and os.sep not in pattern:
            head.append(
                f"This pattern matches only names directly in {'the' if len(starts) == 1 else 'each'} searched folder; "
                f"'**/{shown_pattern}' searches subfolders too."
            )
        if walk.has_passed_links:
            head.append("Symlinks to folders are followed only if the pattern names them.")
    page = files[offset : offset + limit]
    text, shown, next_offset = list_page(head, [shown_whole_path(found) for found in page], offset, total, "file")
    notes = walk_notes(walk)
    if notes:
        text += ["", " ".join(notes)]
    ignored = walk.hidden.total()
    summary = f"Found {count(total, 'matching file')}" if total else "No files found"
    summary += f" ({ignored} ignored)" if ignored else ""
    return ToolResult(
        llm_content="\n".join(text),
        return_display=summary + (" (truncated)" if next_offset is not None else ""),
        structured={
            "files": [sendable_name(found) for found in page[:shown]],
            "total": total,
            "ignored": ignored,
            "partial": walk.timed_out,
            "next_offset": next_offset,
        },
    )
