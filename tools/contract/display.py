"""Renders text for people: questions, displays, and marks for invisible characters.

People must be able to trust what they read. Therefore, control characters, characters that change the text direction,
and characters without a visible shape are replaced by marks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from tools.contract.command_views import CommandView, Network, ViewKind
from tools.contract.confirmation import (
    AskUserConfirmation,
    ConfirmationDetails,
    EditConfirmation,
    ExecConfirmation,
    InfoConfirmation,
    McpConfirmation,
    PlanConfirmation,
    Question,
)
from tools.contract.tool_results import FileDiff, ReturnDisplay, TodoListDisplay, line_counts
from tools.text.file_names import UNSEEN

# A longer diff or argument is truncated, and the question says so. Clients truncate much earlier, or not at all.
MAX_QUESTION_BYTES = 32_000
# Limit for arguments and prompts. Rendering 10 MB in full would block every client for seconds.
MAX_BLOCK_CHARS = 400_000
CUT_HERE = "Cut here: it is too long to be shown in full."
# Limit for the display that accompanies a result, because most clients pass every content block to the model.
MAX_BLOCK_BYTES = 4_096
TOTALS_BYTES = 80  # bytes reserved in the block for the line with the totals
MAX_DROPPED_CHARS = 200  # an incomplete last line up to this length is dropped; a longer one is truncated
_BLANK = "[ \t\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]"
# Long runs of whitespace or empty lines, which push the text after them out of sight
_LONG_GAP = re.compile(f"(?:{_BLANK}*\n){{8,}}{_BLANK}*|\t{{20,}}|{_BLANK}{{40,}}")
# Runs of whitespace so long that they would fill a block. The lookbehind lets a match begin only where a run begins
_VAST_GAP = re.compile(f"(?<![{_BLANK[1:-1]}\n])[{_BLANK[1:-1]}\n]{{1000,}}+")
MAX_PURPOSE_CHARS = 1_000  # maximum length of the model's description of an action
MAX_HOST_CHARS = 253  # maximum length of a host and of a URL's user part (the limit for names in RFC 1035)
MAX_HOST_WARNINGS = 5  # maximum number of warnings about hosts
MAX_LISTED_PLACES = 8  # maximum number of files and folders that a question lists as changeable or visible

# The start of a URL. After a common scheme and its colon, browsers accept any number of slashes and backslashes, even
# none.
_URL = re.compile(
    r"(?i)(?P<usual>\b(?:https?|wss?|ftp):[/\\]*)|\b(?P<scheme>[a-z][a-z0-9+.-]{0,30}):[/\\]{2}|(?<![\w:/\\])[/\\]{2}"
)

# Browsers treat a backslash as a slash and other programs do not, so both readings are checked.
_AUTHORITY_ENDS = (re.compile(r"[\s/\\?#]"), re.compile(r"[\s/?#]"))
# Quotes may surround the host, because a shell removes quotes
_HOST = re.compile(r"[\"'`]*(\[[^\s\]]{1,64}\]|[^\s/\\?#:@\"'`<>)\]]{1,300})")
# Only a user part with one of these characters can be mistaken for a host, so `ssh://git@host` is not misleading
_HOST_LIKE = re.compile("[.%\u3002\uff0e\uff61]")


def visible(text: str) -> str:
    """Replace each character that a person would not see, or would misread, with a mark."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text  # the usual case

    def mark(match: re.Match[str]) -> str:
        code = ord(match.group())
        return chr(0x2400 + code) if code < 0x20 else f"<U+{code:04X}>"  # as a control picture, if there is one

    return UNSEEN.sub(mark, text)


def without_gaps(text: str) -> str:
    """Replace each long run of whitespace with a note of its length, so that nothing can hide behind it."""
    return _LONG_GAP.sub(_length_of_gap, text)


def _length_of_gap(match: re.Match[str]) -> str:
    gap = match.group()
    if line_breaks := gap.count("\n"):
        return f" <{line_breaks} line break{'s' if line_breaks > 1 else ''}> "
    return f" <{len(gap)} {'spaces' if gap.strip(chr(9)) else 'tabs'}> "


def visible_line(text: str) -> str:
    """Like `visible`, for text that has to stay on one line: a path, a title or a name."""
    return visible(text).replace("\n", "␊")


def in_one_line(text: str) -> str:
    """Like `visible_line`, for text whose line breaks mean nothing: each run of whitespace becomes one space."""
    return visible(" ".join(text.split()))


def true_hosts(text: str) -> list[str]:
    """Return warnings about the URLs in `text` that lead to a different host than a reader would expect.

    The text before an `@` is only a user name and a password, but a reader can mistake it for the host. Letters of
    other scripts can look like Latin ones.
    """
    warnings: dict[str, None] = {}
    readings = [_Authorities(text, end) for end in _AUTHORITY_ENDS]
    for match in _URL.finditer(text):
        is_web = (match["usual"] or "")[:4].lower() == "http"
        seen_hosts: set[str] = set()
        for number, reading in enumerate(readings):
            user, host = reading.at(match.end())
            if not host or host in seen_hosts:
                continue
            seen_hosts.add(host)
            shown_host = _display_host(host)
            if user and (is_web or _HOST_LIKE.search(user)):
                programs = "some programs " if number else ""
                link = f"the link with {visible_line(user[:MAX_HOST_CHARS])} leads {programs}to"
                target = f"the host {shown_host}" if shown_host else "an invalid host name"
                warnings[f"Note: {link} {target}."] = None
            elif not host.isascii() and (match["usual"] or match["scheme"]):
                link = f"the host {visible_line(host[:MAX_HOST_CHARS])} in a link is"
                warnings[f"Note: {link} {shown_host or 'not a valid name'}."] = None
        if len(warnings) >= MAX_HOST_WARNINGS:
            break
    return list(warnings)[:MAX_HOST_WARNINGS]


class _Authorities:
    """The authority (user and host) of each URL in a text. Its end, a match of `end`, is searched for only once."""

    def __init__(self, text: str, end: re.Pattern[str]) -> None:
        self._text = text
        self._end = end
        self._last_end = self._last_at = -1

    def at(self, start: int) -> tuple[str, str]:
        """Return the user part and the host, each empty if missing. `start` must not decrease between calls."""
        if start > self._last_end:
            end_match = self._end.search(self._text, start)
            self._last_end = end_match.start() if end_match else len(self._text)
            self._last_at = self._text.rfind("@", start, self._last_end)
        name_end = self._last_at if self._last_at >= start else -1
        host = _HOST.match(self._text, name_end + 1 if name_end >= 0 else start, self._last_end)
        user = self._text[start : min(name_end, start + MAX_HOST_CHARS)] if name_end >= 0 else ""
        return user, host[1] if host else ""


def ascii_host(host: str) -> str:
    """Convert a host name to the ASCII form used for lookups. Raises a `UnicodeError` if the name has none."""
    if host.isascii():
        return host
    import idna  # noqa: PLC0415 - loads large tables that are rarely needed

    return idna.encode(host, uts46=True, transitional=False).decode("ascii")


def _display_host(host: str) -> str:
    """Show a host in ASCII, where no letter of another script can look like a Latin one. Empty for an invalid name."""
    try:
        return visible_line(ascii_host(host[:MAX_HOST_CHARS])[:MAX_HOST_CHARS])
    except UnicodeError:
        return ""


@dataclass(frozen=True, slots=True)
class QuestionParts:
    """The parts of a question that a person has to see: lines, a block, and more lines. Only the block may be long."""

    before: tuple[str, ...] = ()
    block: str = ""  # the action itself, such as a command, a diff or a plan
    language: str = ""  # language of the block for a Markdown fence; empty if there is no block
    is_cut: bool = False  # whether the block was truncated
    after: tuple[str, ...] = ()
    purpose: str = ""  # what the model says the action is for, in its own words


def effects_of(view: CommandView, roots: Sequence[str]) -> str:
    """Describe for a person what a command can do in its view, in one sentence."""
    if view.kind is ViewKind.UNCONFINED:
        return "It runs without a sandbox: it can do whatever you can."
    read_only_paths = view.restrictions.read_only
    folders = [root for root in roots if view.kind is ViewKind.WORKING and root not in read_only_paths]
    places = list(dict.fromkeys((*folders, *view.writable)))
    places = [place for place in places if not any(place.startswith(f"{parent}/") for parent in places)]
    files = f"may change files in {_places_text(places)}" if places else "cannot change files"
    seen_clause = f"; it also sees {_places_text(view.seen)}" if view.seen else ""
    network = "it has network access" if view.network is Network.HOST else "it has no network access"
    return f"It {files}{seen_clause}; {network}."


def _places_text(places: Sequence[str]) -> str:
    remainder = f" and {len(places) - MAX_LISTED_PLACES} more" if len(places) > MAX_LISTED_PLACES else ""
    return ", ".join(map(visible_line, places[:MAX_LISTED_PLACES])) + remainder


def question_parts(details: ConfirmationDetails) -> QuestionParts:
    """Split a question into its parts, for every kind of display. The lines are escaped, but the block is not."""
    match details:
        case EditConfirmation():
            file = f"File: {visible_line(details.file_path)} ({line_counts(details.added, details.removed)} lines)"
            before = file, *map(visible_line, details.notes)
            return QuestionParts(before, details.file_diff or "(no content)", "diff", details.truncated)
        case ExecConfirmation():
            after = [f"Folder: {visible_line(details.directory)}"]
            if details.view is not None:
                after.append(effects_of(details.view, details.roots))
            if details.is_background:
                has_local_servers = details.view is not None and details.view.network is Network.SESSION_LOOPBACK
                servers = "Later commands can use its local servers without another question; browsers cannot use them."
                note = "It keeps running in the background after this call."
                after.append(f"{note} {servers}" if has_local_servers else note)
            purpose = without_gaps(details.description[:MAX_PURPOSE_CHARS])
            if len(details.description) > MAX_PURPOSE_CHARS:
                purpose += f" ... [{len(details.description):,} characters]"
            command = without_gaps(details.command)
            return QuestionParts(block=command, language="bash", after=tuple(after), purpose=purpose)
        case PlanConfirmation():
            return QuestionParts(block=details.plan, language="markdown")
        case McpConfirmation():
            tool = f"Server: {visible_line(details.server_name)}, tool: {visible_line(details.tool_name)}"
            encoder = json.JSONEncoder(indent=2, ensure_ascii=False, default=str)
            pieces = encoder.iterencode(dict(details.arguments))
            if details.changes:
                pieces = chain([details.changes, "\nThe arguments of this call: "], pieces)
            block, is_cut = _join_limited(pieces)
            return QuestionParts((tool,), without_gaps(block), "text" if details.changes else "json", is_cut)
        case InfoConfirmation():
            prompt, is_cut = _join_limited([details.prompt])
            return QuestionParts(block=without_gaps(prompt), language="text", is_cut=is_cut)
        case AskUserConfirmation():
            # The questions are shown in full, because the tool accepts only short ones.
            lines: list[str] = []
            for number, query in enumerate(details.questions, start=1):
                hint = " (several may be chosen)" if query.is_multiple else ""
                lines.append(f"{number}. {in_one_line(query.header)}: {in_one_line(query.question)}{hint}")
                for option in query.options:
                    description = f": {in_one_line(option.description)}" if option.description else ""
                    lines.append(f"   - {in_one_line(option.label)}{description}")
            return QuestionParts(tuple(lines))


def _join_limited(pieces: Iterable[str]) -> tuple[str, bool]:
    """Join pieces of text up to the limit of a block. Returns the text and whether it was truncated.

    Very long runs of whitespace are replaced with a note of their length first, so that they cause no truncation.
    """
    parts: list[str] = []
    room = MAX_BLOCK_CHARS
    for piece in pieces:
        for start in range(0, len(piece), MAX_BLOCK_CHARS):
            part = _VAST_GAP.sub(_length_of_gap, piece[start : start + MAX_BLOCK_CHARS])
            parts.append(part[:room])
            room -= len(part)
            if room < 0:
                return "".join(parts), True
    return "".join(parts), False


def render_question(question: Question) -> str:
    """Render the whole action as text, for the message of an elicitation form or a terminal."""
    parts = question_parts(question.details)
    # A command needs no description, because it is shown in full. The description of an edit says more than its title.
    head = [] if isinstance(question.details, ExecConfirmation) else [visible_line(question.description), ""]
    title = [] if isinstance(question.details, EditConfirmation) else [visible_line(question.details.title)]
    lines = [*head, *title, *parts.before]
    if parts.language:
        text, is_cut_here = cut_at_line(visible(parts.block).rstrip("\n"), MAX_QUESTION_BYTES, is_cut=parts.is_cut)
        block = fenced(text, parts.language)
        lines.append(f"{block}\n{CUT_HERE}" if parts.is_cut or is_cut_here else block)
    lines += parts.after
    if parts.purpose:
        lines.append(f"The model says: {visible_line(parts.purpose)}")
    if question.reason:
        lines.append(f"Asked because: {visible_line(question.reason)}")
    return "\n".join([*lines, *true_hosts("\n".join(lines))])


def can_be_shown(command: str) -> bool:
    """Return True if a question can show the whole command. A person cannot judge a truncated command."""
    return len(visible(without_gaps(command)).encode("utf-8", "replace")) <= MAX_QUESTION_BYTES


def fenced(text: str, language: str) -> str:
    """Return the text in a Markdown fence that the text itself cannot close."""
    fence = max(re.findall(r"`{3,}", text), key=len, default="``") + "`"
    return f"{fence}{language}\n{text}\n{fence}"


def cut_at_line(text: str, size: int, *, is_cut: bool = False) -> tuple[str, bool]:
    """Keep as many whole lines as fit into `size` bytes of UTF-8. Return the text and whether it was truncated.

    A single line that is too long is truncated, and its length is stated. `is_cut` is true if the end of the text is
    already missing.
    """
    data = text.encode("utf-8", "replace")
    if len(data) <= size:
        return text, False
    head = data[:size].decode("utf-8", "ignore")
    whole, _, part = head.rpartition("\n")
    if whole and len(part) <= MAX_DROPPED_CHARS:
        return whole, True
    start = len(head) - len(part)
    end = text.find("\n", start)
    minimum = "more than " if is_cut and end < 0 else ""
    note = f"... [a line of {minimum}{(len(text) if end < 0 else end) - start:,} characters]"
    return data[: max(size - len(note), 0)].decode("utf-8", "ignore") + note, True


# The symbol of each todo status; an empty box means open
_BOXES = {"completed": "[x]", "cancelled": "[-]", "in_progress": "[>]", "blocked": "[!]"}


def display_block(display: ReturnDisplay) -> str | None:
    """Return the display as a small block next to the result, or `None` if it would add nothing to the model's text."""
    is_cut = False  # whether the display itself is already truncated
    if isinstance(display, TodoListDisplay):
        lines = [f"{_BOXES.get(todo['status'], '[ ]')} {visible_line(todo['content'])}" for todo in display.todos]
        whole, totals = "\n".join(lines), f"the list goes on: {len(display.todos)} todos in all"
    elif isinstance(display, FileDiff):
        whole, is_cut = visible(display.file_diff), display.truncated
        totals = f"the diff goes on: {line_counts(display.added, display.removed)} lines in all"
    else:
        return None
    text, is_cut_here = cut_at_line(whole, MAX_BLOCK_BYTES - TOTALS_BYTES)
    return f"{text}\n[{totals}]" if whole and (is_cut or is_cut_here) else text or None


def display_object(display: ReturnDisplay) -> dict[str, object] | str | None:
    """Return the display in machine-readable form, for `_meta`, or `None` if there is none."""
    if isinstance(display, TodoListDisplay):
        return {"type": "todo_list", "todos": [dict(todo) for todo in display.todos]}
    if not isinstance(display, FileDiff):
        return display or None
    return {
        "type": "file_diff",
        "fileName": display.file_name,
        "fileDiff": display.file_diff,
        "truncated": display.truncated,
        "added": display.added,
        "removed": display.removed,
        "isNewFile": display.is_new_file,
    }
