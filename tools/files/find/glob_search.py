"""`glob`: compiles its patterns, and those of other tools, into matchers that a walk applies folder by folder.

Supports `*`, `?`, `[...]`, `{a,b}`, `{1..3}`, `**`, and the alternatives `@(a|b)` and `?(a|b)`. If a pattern begins
with an existing path, that part is taken literally, so `app/[id]/(group)/page.tsx` finds the file with this path.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from tools.contract.call_options import Deadline
from tools.contract.tool_errors import InvalidToolParamsError, ToolError, ToolErrorType
from tools.contract.tool_results import ToolResult
from tools.files.find.folder_walk import Filters, Walk, count, excluded_folders, list_page, visible_kind, walk_notes
from tools.files.find.path_suggestions import missing_path_error
from tools.files.ignore_files import refuse_hidden
from tools.files.path_opener import PathKind
from tools.files.workspace import Location, Workspace, contains, explain
from tools.text.file_names import brief, one_line, sendable_name, shown_path, shown_whole_path
from tools.text.look_alikes import visible_form

MAX_ALTERNATIVES = 256  # maximum number of patterns that braces may expand to
# Maximum total length of the expanded patterns: eight of maximum length, or 128 characters for each of 256
MAX_EXPANDED_CHARS = 32_768
_BRACE = re.compile(r"\\.|[{},]", re.DOTALL)  # braces and commas, and escaped characters
_RANGE = re.compile(r"(-?\d{1,6})\.\.(-?\d{1,6})|([A-Za-z])\.\.([A-Za-z])")


class PatternRefusedError(ValueError):
    """A pattern is not accepted. The message is the reason, phrased for the model."""


def expand_braces(pattern: str) -> list[str]:
    """Expand `{a,b}` and `{1..3}`. Other braces stay literal. Raises a `PatternRefusedError` above the limits."""
    # Positions of special braces and commas. A range is recorded at the position of its opening brace.
    marks: dict[int, str | re.Match[str]] = {}
    open_braces: list[tuple[int, list[int]]] = []
    for token in _BRACE.finditer(pattern):
        index = token.start()
        match token.group():
            case "{":
                open_braces.append((index, []))
            case "," if open_braces:
                open_braces[-1][1].append(index)
            case "}" if open_braces:
                start, commas = open_braces.pop()
                if commas:
                    marks |= {start: "{", index: "}"} | dict.fromkeys(commas, ",")
                elif values := _RANGE.fullmatch(pattern, start + 1, index):
                    marks[start] = values
            case _:
                pass

    # For the whole pattern and each open pair of braces: the finished choices, and the expansions of the current one
    groups: list[tuple[list[str], list[str]]] = [([], [""])]

    def append(ends: Sequence[str]) -> None:
        choices, current = groups[-1]
        chars = sum(map(len, current)) * len(ends) + sum(map(len, ends)) * len(current)
        _check_size(len(current) * len(ends), chars)
        groups[-1] = choices, [start + end for start in current for end in ends]

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
            choices, current = groups.pop()
            choices = choices + current
            _check_size(len(choices), sum(map(len, choices)))
            if mark == "}":
                append(choices)
            else:
                groups.append((choices, [""]))
    append([pattern[position:]])
    return list(dict.fromkeys(groups[0][1]))


def _check_size(pattern_count: int, chars: int) -> None:
    if pattern_count > MAX_ALTERNATIVES:
        raise PatternRefusedError(f"its braces expand to more than {MAX_ALTERNATIVES} patterns; use fewer")
    if chars > MAX_EXPANDED_CHARS:
        raise PatternRefusedError(f"its braces expand to more than {MAX_EXPANDED_CHARS} characters; use fewer")


MAX_PATTERN_CHARS = 4_096  # length of the longest possible path
_EXTENDED = re.compile(r"[@?]\(([^()/]*+)\)")
_UNKNOWN_EXTENDED = re.compile(r"!\([^()/]*+\)|[+*]\([^()/|]*+\|[^()/]*+\)")
_LOOKS_ALONE = re.compile(r"[^ '\"-]*")  # a part without any character that has look-alikes
_WILDCARDS = re.compile(r"[*?\[\\]")
_ESCAPE_OR_BRACKET = re.compile(r"\\(.)|\[\^?", re.DOTALL)
Names = Callable[[str], bool]  # tests a name, or a path with several components


class _PatternTree:
    """`**`: any number of folders."""


@dataclass(frozen=True, slots=True)
class _Name:
    """A part without wildcards."""

    text: str  # converted to lower case if case is ignored
    ignore_case: bool
    look_alikes: _Name | None = None  # tests the visible form of a name; `None` if no other name looks like this one

    def __call__(self, name: str) -> bool:
        if (name.lower() if self.ignore_case else name) == self.text:
            return True
        return self.look_alikes is not None and self.look_alikes(visible_form(name))


_TREE = _PatternTree()
_Step = Names | _PatternTree


@dataclass(slots=True, eq=False)
class PatternPosition:
    """The position of a folder in a pattern, with the possible next steps. Equivalent folders share one position."""

    # The possible next steps: the matcher of each, its number, and whether it is the last step
    steps: tuple[tuple[_Step, int, bool], ...]
    pattern: PathPattern  # the pattern that the steps belong to

    def select(self, names: list[str]) -> list[str]:
        last = [step for step, _, is_last in self.steps if is_last]
        matchers = [step for step in last if not isinstance(step, _PatternTree)]
        if len(matchers) < len(last):
            return names
        if len(matchers) == 1:
            return list(filter(matchers[0], names))
        return [name for name in names if any(step(name) for step in matchers)]

    def enter(self, name: str) -> PatternPosition | None:
        """Return the position of a subfolder, or `None` if nothing in it can match."""
        numbers: set[int] = set()
        for step, number, _ in self.steps:
            if isinstance(step, _PatternTree):
                numbers.update(self.pattern.reachable(number))
            elif step(name):
                numbers.update(self.pattern.reachable(number + 1))
        return self.pattern.position(frozenset(numbers)) if numbers else None

    def enter_link(self, name: str) -> PatternPosition | None:
        """Like `enter`, for a symlink to a folder. A symlink that matches only a wildcard is not followed."""
        is_named = any(isinstance(step, _Name) and step(name) for step, _, is_last in self.steps if not is_last)
        return self.enter(name) if is_named else None

    @property
    def leads_to_links(self) -> bool:
        """True if the rest of the pattern names a folder, which may be a symlink."""
        return any(number <= self.pattern.last_named_folder(number) for _, number, _ in self.steps)

    def covers(self, name: str) -> bool:
        """Return True if a folder with this name, or everything in it, matches. A walk then skips the folder."""
        if self.select([name]):
            return True
        position = self.enter(name)
        steps = position.steps if position is not None else ()
        return any(is_last and isinstance(step, _PatternTree) for step, _, is_last in steps)


class PathPattern:
    """One or more alternative patterns for paths relative to a folder."""

    def __init__(self, alternatives: Sequence[Sequence[_Step]]) -> None:
        self.alternatives = alternatives
        # Parts without wildcards, in lower case
        self.literals = frozenset(
            step.text.lower() for steps in alternatives for step in steps if isinstance(step, _Name)
        )
        self._positions: dict[frozenset[int], PatternPosition] = {}
        # The steps of all alternatives, one alternative after another. `None` ends each alternative
        self._steps: list[_Step | None] = []
        first_numbers: list[int] = []
        for steps in alternatives:
            first_numbers.append(len(self._steps))
            self._steps += [*steps, None]
        self.start = self.position(frozenset(number for first in first_numbers for number in self.reachable(first)))

    def last_named_folder(self, number: int) -> int:
        """Return the number of the last step that names a folder, in the alternative that contains step `number`.

        If no step does, the result is less than the number of the alternative's first step.
        """
        end = self._steps.index(None, number)
        earlier_numbers = range(end - 2, -1, -1)
        return next((at for at in earlier_numbers if self._steps[at] is None or isinstance(self._steps[at], _Name)), -1)

    def reachable(self, number: int) -> Iterator[int]:
        """Yield the number of a step, and of later steps that may also come next, because `**` can match nothing."""
        while self._steps[number] is not None:
            yield number
            if not isinstance(self._steps[number], _PatternTree):
                return
            number += 1

    def position(self, numbers: frozenset[int]) -> PatternPosition:
        """Return the position with these next steps; equal sets of steps share one position."""
        if numbers not in self._positions:
            steps = ((self._steps[number], number, self._steps[number + 1] is None) for number in sorted(numbers))
            next_steps = tuple((step, number, is_last) for step, number, is_last in steps if step is not None)
            self._positions[numbers] = PatternPosition(next_steps, self)
        return self._positions[numbers]

    def matches(self, path: str) -> bool:
        """Return True if a file matches. `path` is its relative path, with forward slashes."""
        *folders, name = path.split("/")
        position: PatternPosition | None = self.start
        for folder in folders:
            position = position and position.enter(folder)
        return position is not None and bool(position.select([name]))


def compile_patterns(
    patterns: Sequence[str], *, ignore_case: bool, exists: Names | None = None, at_any_depth: bool = False
) -> PathPattern:
    """Compile alternative relative patterns. Raises a `PatternRefusedError` for an unusable pattern.

    Leading parts for which `exists` returns True are taken literally. If `at_any_depth` is true, a pattern without a
    slash matches names in any folder, as in ignore files.
    """

    def braces_of(match: re.Match[str]) -> str:
        choices = match.group(1).replace(",", "\\,").split("|")
        if match.group().startswith("?"):
            choices.insert(0, "")
        return choices[0] if len(choices) == 1 else f"{{{','.join(choices)}}}"

    def literal_parts(parts: Sequence[str]) -> int:
        """Return how many leading parts name something that exists."""
        if exists is None:
            return 0
        return next((n for n in range(len(parts)) if not exists("/".join(parts[: n + 1]))), len(parts))

    alternatives: list[list[_Step]] = []
    for pattern in patterns:
        pattern_parts = _parts(pattern)
        if literal_parts(pattern_parts) == len(pattern_parts):
            expansions = [(pattern_parts, len(pattern_parts))]
        else:
            unknown_match = _UNKNOWN_EXTENDED.search(pattern)
            if unknown_match:
                raise PatternRefusedError(
                    f"'{unknown_match.group()}' is not supported; list alternatives in braces, like {{a,b}}"
                )
            part_lists = map(_parts, expand_braces(_EXTENDED.sub(braces_of, pattern)))
            expansions = [(parts, literal_parts(parts)) for parts in part_lists]
        for parts, literal in expansions:
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
    suggestion, reason = _GROUP.sub(lambda match: f"{{{match[1].replace('|', ',')}}}", pattern), ""
    if suggestion != pattern:
        reason = "alternatives are written in braces"
    rest, pair_count = suggestion, 1
    while pair_count:  # from the innermost pair outwards
        rest, pair_count = _BRACED.subn("", rest)
    parts = [part for part in _SEVERAL.split(rest) if part]
    if "}" in rest:
        return "In a glob, an opening brace belongs to each closing one."
    if "{" in rest:
        suggestion += "}" * rest.count("{")
        reason = "a closing brace belongs to each opening one"
    elif len(parts) > 1:
        suggestion = f"{{{','.join(part for part in _SEVERAL.split(suggestion) if part)}}}"
        reason = "several patterns go in braces"
    if "\\" in suggestion and os.sep != "\\":
        suggestion = suggestion.replace("\\", "/")
        reason = "a slash separates folders, and a backslash makes a character literal"
    return f"In a glob, {reason}. Did you mean '{one_line(suggestion)}'?" if reason else ""


def _parts(pattern: str) -> list[str]:
    if len(pattern) > MAX_PATTERN_CHARS:
        raise PatternRefusedError(f"it is longer than {MAX_PATTERN_CHARS} characters")
    if not pattern.strip():
        raise PatternRefusedError("it is blank; give a pattern such as **/*.py")
    if "\0" in pattern:
        raise PatternRefusedError("it contains a NUL character; no file name can")
    slash_pattern = pattern.replace("\\", "/") if os.sep == "\\" else pattern
    if slash_pattern.startswith("/") or os.path.isabs(pattern):
        raise PatternRefusedError("it is absolute; give the folder as the path and a pattern relative to it")
    parts = [part for part in slash_pattern.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise PatternRefusedError("it leaves the folder with '..'; give the folder to search as the path instead")
    if slash_pattern.endswith("/") or not parts:
        parts.append("**")
    return [part for n, part in enumerate(parts) if not (part == "**" and n > 0 and parts[n - 1] == "**")]


def _step(part: str, *, ignore_case: bool, literal: bool) -> _Step:
    """Return the matcher of one part between slashes. It also accepts look-alikes of matching names."""
    if part == "**" and not literal:
        return _TREE
    matcher = _part_matcher(part, ignore_case=ignore_case, literal=literal)
    if part.isascii() and _LOOKS_ALONE.fullmatch(part):
        return matcher
    visible_part = visible_form(part)
    visible_matcher = _part_matcher(visible_part, ignore_case=ignore_case, literal=literal)
    if isinstance(matcher, _Name) and isinstance(visible_matcher, _Name):
        return replace(matcher, look_alikes=visible_matcher)
    if visible_part == part:
        return lambda name: matcher(name) or (not name.isascii() and matcher(visible_form(name)))
    return lambda name: matcher(name) or visible_matcher(visible_form(name))


def _part_matcher(part: str, *, ignore_case: bool, literal: bool) -> Names:
    """Return a function that tests a name. A name that equals `part` always matches, even if `part` has brackets."""
    folded_part = part.lower() if ignore_case else part
    if literal or not _WILDCARDS.search(part):
        return _Name(folded_part, ignore_case)
    if part == "*":
        return bool
    if part.startswith("*") and not _WILDCARDS.search(part[1:]):
        ending = folded_part[1:]
        return (lambda name: name.lower().endswith(ending)) if ignore_case else (lambda name: name.endswith(ending))

    @cache
    def matcher() -> Callable[[str], object]:
        # Compile the pattern only when the first name is tested, because compiling takes time and a walk runs in a
        # thread. `fnmatch` makes stars atomic, so the time to match is at most proportional to the product of the
        # lengths of the part and the name. `fnmatch` has no backslash escapes, negates only with `!`, and may take a
        # long time to find the end of a `[`.
        end = part.rfind("]")

        def rewrite(match: re.Match[str]) -> str:
            if character := match[1]:
                return f"[{character}]" if character in "*?[" else character
            return f"[[]{match[0][1:]}" if match.start() > end else match[0].replace("^", "!")

        expression = fnmatch.translate(_ESCAPE_OR_BRACKET.sub(rewrite, part))
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
    is_named = path is not None and bool(path.strip())
    starts: list[Location] = []
    is_file = False
    for name in (path or "",) if is_named else (root.name for root in workspace.root_locations()):
        location = workspace.locate(name, by_look=is_named)  # a root may have been replaced by a link
        info = workspace.stat(location)
        if info is None:
            consequence, code = ", so nothing was searched", ToolErrorType.SEARCH_PATH_NOT_FOUND
            raise missing_path_error(
                workspace, location, deadline.signal, folders=True, consequence=consequence, code=code
            )
        is_file = stat.S_ISREG(info.st_mode)
        if not stat.S_ISDIR(info.st_mode) and not is_file:
            raise ToolError(
                ToolErrorType.SEARCH_PATH_NOT_A_DIRECTORY,
                f"'{location.shown}' is a device, pipe or socket; these are never opened.",
            )
        if is_file and not is_named:
            raise ToolError(
                ToolErrorType.SEARCH_PATH_NOT_FOUND,
                f"The workspace folder '{location.shown}' is now a file, so nothing was searched.",
            )
        starts.append(location)
    if agent and is_named:
        refuse_hidden(workspace, starts[0], "searched")
    return starts, is_file


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
    patterns = [compile_glob(pattern, ignore_case=ignore_case, exists=walk.names_below(start)) for start in starts]
    literal_names = frozenset[str]().union(*(path_pattern.literals for path_pattern in patterns))
    walk.filters = replace(walk.filters, folders=excluded_folders(starts, literal_names))
    roots = [start.path for start in starts]
    recent_files: list[tuple[float, str]] = []
    older_files: list[str] = []
    try:
        for start, path_pattern in zip(starts, patterns, strict=True):
            for folder, selection in walk.through_links(start, path_pattern.start):
                base = os.path.join(folder.name, "")
                for relative_path, is_link, info in walk.files(folder, selection, roots):
                    if info is None:
                        continue  # the file has been removed since it was found
                    file_path = base + relative_path.replace("/", os.sep)
                    # A symlink counts only if it leads to a visible regular file.
                    if is_link and (
                        walk.is_out_of_time() or visible_kind(workspace, file_path, agent=agent) is not PathKind.FILE
                    ):
                        continue
                    if info.st_mtime > recent_since:
                        recent_files.append((-info.st_mtime, file_path))
                    else:
                        older_files.append(file_path)
    except OSError as error:
        raise explain(error, starts[0].shown, ToolErrorType.GLOB_EXECUTION_ERROR) from None
    # A symlink's target may also have been found directly.
    files = list(dict.fromkeys([file_path for _, file_path in sorted(recent_files)] + sorted(older_files)))

    total, shown_pattern = len(files), one_line(pattern)
    location_text = "in the workspace directory" if len(starts) == 1 else f"across {len(starts)} workspace directories"
    location_text = f"within {shown_whole_path(starts[0].name)}" if path else location_text
    description = f'{count(total, "file")} matching "{shown_pattern}" {location_text}'
    order = ", those changed in the last 24 hours first (newest first), then by path" if total > 1 else ""
    head = [f"Found {description}{order}:", "---"]
    if not total:
        head = [f'No files found matching pattern "{shown_pattern}" {location_text}.']
        if any(visible_kind(workspace, pattern, within=root) is PathKind.FOLDER for root in roots):
            glob = f"{shown_pattern.rstrip('/')}/**"
            head.append(f"The pattern is a folder: use '{glob}' for the files in it, or list_directory.")
        elif hint := glob_hint(pattern):
            head.append(hint)
        elif "/" not in pattern and pattern != "**" and os.sep not in pattern:
            head.append(
                f"This pattern matches only names directly in {'the' if len(starts) == 1 else 'each'} searched folder; "
                f"'**/{brief(shown_pattern)}' searches subfolders too."
            )
        if walk.has_passed_links:
            head.append("Symlinks to folders are followed only if the pattern names them.")
    page = files[offset : offset + limit]
    lines = [shown_whole_path(file_path) for file_path in page]
    text, shown_count, next_offset = list_page(head, lines, offset, total, "file")
    notes = walk_notes(walk)
    if notes:
        text += ["", " ".join(notes)]
    ignored_count = walk.hidden_counts.total()
    summary = f"Found {count(total, 'matching file')}" if total else "No files found"
    summary += f" ({ignored_count} ignored)" if ignored_count else ""
    return ToolResult(
        llm_content="\n".join(text),
        return_display=summary + (" (truncated)" if next_offset is not None else ""),
        structured={
            "files": [sendable_name(file_path) for file_path in page[:shown_count]],
            "total": total,
            "ignored": ignored_count,
            "partial": walk.timed_out,
            "next_offset": next_offset,
        },
    )
