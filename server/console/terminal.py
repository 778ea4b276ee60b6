"""The terminal of a command: coloured output, key presses, questions to the user, and links to open in a browser.

Text is shown literally, never as markup. `show` does not replace invisible characters: its callers must do that if the
text comes from another source.
"""

from __future__ import annotations

import asyncio
import html
import io
import json
import math
import os
import re
import sys
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Literal, Self, TextIO, cast
from urllib.parse import quote

import anyio
from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segments
from rich.style import Style
from rich.table import Table
from rich.text import Text

from server.administration.log import held_log
from server.console import CommandFailure
from server.questions.form import OTHER
from tools.contract.confirmation import Decision
from tools.contract.display import visible, visible_line
from tools.machine.threads import THREADS

if TYPE_CHECKING:
    from rich.live import Live

ColourChoice = Literal["auto", "always", "never"]

PATIENCE_SECONDS = 0.5  # shorter waits show no spinner
ANNOUNCEMENT_SECONDS = 2.0  # shorter waits are not announced if there is no terminal
MIN_LAST_COLUMN = 20  # minimum width of a table's last column; if the table is then too wide, the terminal wraps it
UNLIMITED_COLUMNS = 10_000  # the number of columns if the output is not a terminal, because programs read whole lines
DECISION = "decision"  # the form field for consent; the other fields are optional additions
KEYS = {Decision.ONCE.value: "y", Decision.SAVE.value: "a", Decision.DENY.value: "n"}
"""The keys for the answers. Answers for the rest of the session have no key: the session ends with the call."""

_SEQUENCE = re.compile(r"\x1b[\[o]?[0-9;]*.?")  # what keys such as the arrow keys send, in lower case
_FENCE = re.compile(r"(`{3,})(diff|bash|json|text|markdown)")
_choice: ColourChoice = "auto"


def choose_colour(choice: ColourChoice) -> None:
    """Set the colour mode for all later output, from the `--color` option."""
    global _choice  # noqa: PLW0603 - a process has one terminal
    _choice = choice


def has_colour(stream: TextIO, choice: ColourChoice, environ: Mapping[str, str]) -> bool:
    """Return whether to use colour: as the option says, or else the environment, or else only for terminals."""
    if choice != "auto":
        return choice == "always"
    if force_colour := environ.get("FORCE_COLOR"):
        return force_colour != "0"
    return not environ.get("NO_COLOR") and environ.get("TERM") != "dumb" and stream.isatty()


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704 - called while the error is being handled; `cli` handles it

    def show_cursor(self, show: bool = True) -> bool:
        del show
        return False  # never hidden, because a command that is killed or suspended could not show it again


def console(stream: TextIO) -> Console:
    """Return a console that prints styled text on a stream, at the stream's width."""
    is_coloured = has_colour(stream, _choice, os.environ)
    return _Console(
        file=stream,
        color_system="standard" if is_coloured else None,
        force_terminal=is_coloured or stream.isatty(),
        no_color=False,
        width=None if stream.isatty() else UNLIMITED_COLUMNS,
        markup=False,
        emoji=False,
        highlight=False,
        _environ={name: os.environ[name] for name in ("COLUMNS", "LINES", "TERM") if name in os.environ},
    )


def show(*lines: str | Text, stream: TextIO | None = None) -> None:
    """Print lines, by default to standard output. Lines are not wrapped, and tabs stay tabs."""
    out = console(stream or sys.stdout)
    for line in lines:
        text = Text(line) if isinstance(line, str) else line
        out.print(Segments(text.render(out, "\n")), crop=False)


def note(text: str) -> None:
    """Print a note to standard error, as one line even if names in it contain line breaks."""
    sys.stderr.write(f"coretools-mcp: {visible_line(text)}\n")


def show_json(value: Any) -> None:
    sys.stdout.write(f"{json.dumps(value, indent=2)}\n")


def show_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns to standard output; only the last column wraps if the terminal is too narrow."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for head in heads[:-1]:
        table.add_column(head, no_wrap=True)
    table.add_column(heads[-1], overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    out = console(sys.stdout)
    columns = list(zip(heads, *rows, strict=True))
    widths = [max(cell_len(cell) + 2 for cell in column) for column in columns[:-1]]
    out.width = max(out.width, sum(widths) + MIN_LAST_COLUMN)
    with out.capture() as capture:
        out.print(table)
    out.file.write(re.sub(r" +$", "", capture.get(), flags=re.MULTILINE))


def marked(mark: str, colour: str, text: str | Text) -> Text:
    """Return a line that begins with a coloured mark."""
    return Text.assemble((mark, colour), text)


def linked(path: str, text: str) -> Text:
    """Return a path as a clickable link, if colour is on."""
    escaped_path = re.sub(r"[^\w/.~-]", lambda sign: quote(sign[0], errors="surrogateescape"), path)
    return Text(text, Style(link=f"file://{escaped_path}"))


def diff_text(diff: str) -> Text:
    styles = {"+": "green", "-": "red", "@": "cyan"}
    text = Text()
    for line in diff.splitlines(keepends=True):
        text.append(line, "bold" if line.startswith(("+++", "---")) else styles.get(line[:1], ""))
    return text


def question_text(message: str) -> Text:
    """Return a server's question in colour, with Markdown code blocks indented instead of fenced."""
    text, lines = Text(), message.splitlines()
    at = 0
    while at < len(lines):
        line, opening = lines[at], _FENCE.fullmatch(lines[at])
        at += 1
        if opening is None or opening[1] not in lines[at:]:
            text.append(f"{line}\n", "bold" if at == 1 else "yellow" if line.startswith("Asked because:") else "")
            continue
        end = lines.index(opening[1], at)
        block = "\n".join(lines[at:end])
        styled_block = diff_text(block) if opening[2] == "diff" else Text(block, "bold" if opening[2] == "bash" else "")
        for part in styled_block.split("\n", allow_blank=True):
            text.append("  ").append_text(part).append("\n")
        at = end + 1
    text.rstrip()
    return text


class Spinner:
    """A line on standard error that says what the command is waiting for, shown on a terminal after half a second.

    Elsewhere, if `announces` is set, the text is written once, after two seconds. Other output to standard error
    appears above the line; before output to standard output, call `stop`.
    """

    def __init__(self, text: str = "", *, announces: bool = False) -> None:
        self.text = text
        self._announces = announces
        self._is_drawn = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._due: float | None = None  # when to show the line; `None` outside of the context
        self._timer: asyncio.TimerHandle | None = None
        self._live: Live | None = None

    def __enter__(self) -> Self:
        seconds = PATIENCE_SECONDS if self._is_drawn else ANNOUNCEMENT_SECONDS
        self._due = asyncio.get_running_loop().time() + seconds
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._due = None
        self.stop()

    def start(self) -> None:
        """Show the line once it is due."""
        if self._due is not None:
            self._timer = asyncio.get_running_loop().call_at(self._due, self._show)

    def stop(self) -> None:
        """Erase the line. It appears again only after `start`."""
        if self._timer is not None:
            self._timer.cancel()
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _show(self) -> None:
        if not self._is_drawn:
            if self._announces:
                note(self.text)
            self._announces = False
            return
        from rich.live import Live  # noqa: PLC0415 - few commands run long enough to need these
        from rich.spinner import Spinner as Frames  # noqa: PLC0415

        out = console(sys.stderr)
        out.soft_wrap = True  # by default, Rich would wrap the lines of other output
        frames = Frames("dots" if "utf" in out.encoding else "line")

        def line() -> Text:
            text = visible(self.text.partition("\n")[0])
            return Text(f"{frames.render(out.get_time())} {text}", no_wrap=True, overflow="ellipsis")

        # By default, Rich would redirect standard output to standard error.
        self._live = Live(
            console=out, get_renderable=line, refresh_per_second=10, transient=True, redirect_stdout=False
        )
        self._live.start(refresh=True)


async def read_line() -> str:
    """Read a line from standard input; raise `EOFError` at its end.

    On POSIX, no thread waits, so Ctrl-C works at once.
    """
    if sys.platform == "win32":
        line = await THREADS.run(sys.stdin.readline)
    else:
        await anyio.wait_readable(0)  # a terminal delivers whole lines
        line = os.read(0, io.DEFAULT_BUFFER_SIZE).decode("utf-8", "replace")
    if not line:
        raise EOFError
    return line.strip()


async def read_key(prompt: str, keys: Container[str], default: str) -> str:
    """Read one of `keys`, in lower case, without waiting for Enter.

    Enter selects the default; Ctrl-D raises `EOFError`. On Windows, the first letter of a line is used. Keys typed
    before the prompt are discarded, because they cannot answer a question that was not visible yet.
    """
    if sys.platform == "win32":
        sys.stderr.write(prompt)
        sys.stderr.flush()
        while (line := (await read_line()).lower()[:1] or default) not in keys:
            pass
        return line
    import termios  # noqa: PLC0415 - loaded only on POSIX
    import tty  # noqa: PLC0415

    old_attributes = termios.tcgetattr(0)
    try:
        tty.setcbreak(0, termios.TCSAFLUSH)
        sys.stderr.write(prompt)
        sys.stderr.flush()
        while True:
            await anyio.wait_readable(0)
            data = os.read(0, io.DEFAULT_BUFFER_SIZE).decode("ascii", "replace").lower()
            if not data or data.startswith("\x04"):
                raise EOFError
            for sign in _SEQUENCE.sub("", data):
                if (key := default if sign in "\r\n" else sign) in keys:
                    return key
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, old_attributes)


def ask(question: str, failure: str) -> None:
    """Ask whether to continue. Unless the user says yes, the command fails; `failure` says what did not happen."""
    anyio.run(confirm, question, failure)


async def confirm(question: str, failure: str) -> None:
    """Ask a question like `ask`, but let other tasks run during the wait."""
    if not sys.stdin.isatty():
        raise CommandFailure(f"{failure}: nobody can answer here (standard input is not a terminal). Use --yes.")
    with held_log():
        is_sure = await says_yes(question)
    if not is_sure:
        raise CommandFailure(f"{failure}.")


async def says_yes(question: str) -> bool:
    """Ask a question that a single key answers, `y` or `n`; Enter means no."""
    try:
        key = await read_key(f"{question} [y/N] ", "yn", default="n")
    except EOFError:
        key = ""
    sys.stderr.write(f"{key}\n")
    return key == "y"


def is_consent(schema: Mapping[str, Any]) -> bool:
    """Return whether a form asks for consent to a call.

    The options of its `decision` field are checked too, because an upstream's form may also have a field of that name.
    """
    fields = schema.get("properties", {})
    values = set(dict(_choices(fields[DECISION]))) if DECISION in fields else set[str]()
    return {Decision.ONCE.value, Decision.DENY.value} <= values <= {decision.value for decision in Decision}


async def fill_in(message: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Ask for each field of a flat form. Return the form's content, or `None` if the user left it unanswered."""
    show("", question_text(message), stream=sys.stderr)
    fields: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
    try:
        if is_consent(schema):
            by_key = {KEYS[value]: (value, title) for value, title in _choices(fields[DECISION]) if value in KEYS}
            lines = [f"  {key}  {visible_line(title)}" for key, (_, title) in by_key.items()]
            show("", *lines, stream=sys.stderr)
            no = KEYS[Decision.DENY.value]
            key_list = "/".join(key.upper() if key == no else key for key in by_key)
            value, title = by_key[await read_key(f"[{key_list}] ", by_key, default=no)]
            show(visible_line(title), stream=sys.stderr)
            return {DECISION: value}
        show("Press Ctrl-D to leave the question unanswered.", stream=sys.stderr)
        content: dict[str, Any] = {}
        for name, field in fields.items():
            # A free-text field is unnecessary if another answer to its question was chosen.
            other_answers = [
                value for key, value in content.items() if field.get("title") == f"{fields[key].get('title')}: {OTHER}"
            ]
            if all(value in (None, OTHER) or (isinstance(value, list) and OTHER in value) for value in other_answers):
                content[name] = await _value(field, is_required=name in schema.get("required", ()))
    except EOFError:
        sys.stderr.write("\n")
        return None
    return {name: value for name, value in content.items() if value not in (None, "", [None])}


def _choices(field: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the possible values, each with its title; empty for a text field."""
    items: Mapping[str, Any] = field.get("items", field)
    options: Sequence[Mapping[str, str]] = items.get("oneOf") or items.get("anyOf") or ()
    values: Sequence[str] = items.get("enum", ())
    choices = [(option["const"], option.get("title", option["const"])) for option in options]
    return choices or list(zip(values, items.get("enumNames", values), strict=True))


async def _value(field: Mapping[str, Any], *, is_required: bool) -> Any:
    title = visible_line(str(field.get("title", "")))
    description = visible_line(str(field.get("description", "")))
    sys.stderr.write(f"\n{title}: {description}\n" if description else "")
    default = field.get("default")
    if field.get("type") == "boolean":
        key = await read_key(f"{title} [{'Y/n' if default is True else 'y/N'}] ", "yn", "y" if default is True else "n")
        sys.stderr.write(f"{key}\n")
        return key == "y"
    has_default = default not in (None, "", []) and _is_valid(default, field)
    choices = _choices(field)
    if not choices:
        limits = "" if field.keys().isdisjoint(("minimum", "maximum", "format")) else f" ({_expected(field)})"
        default_text = f" [{visible_line(str(default))}]" if has_default else ""
        while True:
            line = await _line(f"{title}{limits}{default_text}: ")
            if not line and (has_default or not is_required):
                return default if has_default else line
            kind = field.get("type")
            with suppress(ValueError, OverflowError):
                value = int(line) if kind == "integer" else float(line) if kind == "number" else line
                if line and (isinstance(value, str) or math.isfinite(value)) and _is_valid(value, field):
                    return value
            sys.stderr.write(f"The answer must be {_expected(field)}.\n" if line else "This needs an answer.\n")
    for number, (_, choice_title) in enumerate(choices, start=1):
        sys.stderr.write(f"  {number}  {visible_line(choice_title)}\n")
    several = field.get("type") == "array"
    defaults = cast("list[Any]", default if isinstance(default, list) else [default]) if has_default else []
    values = [value for value, _ in choices]
    is_choosable = all(value in values for value in defaults)
    numbers = [str(values.index(value) + 1) for value in defaults] if is_choosable else []
    default_text = f"; default {', '.join(numbers)}" if numbers else ""
    prompt = f"{title} [1-{len(choices)}{', several separated by commas' if several else ''}{default_text}]: "
    by_word = {choice_title.casefold(): value for value, choice_title in choices}
    by_word |= {str(number): value for number, (value, _) in enumerate(choices, start=1)}
    by_word |= {value.casefold(): value for value, _ in choices}
    while True:
        line = await _line(prompt)
        if not line and numbers:
            return defaults if several else defaults[0]
        words = [word.strip().casefold() for word in (line.split(",") if several else [line])]
        if all(word in by_word for word in words):
            chosen_values = [by_word[word] for word in dict.fromkeys(words)]
            if not several or _is_valid(chosen_values, field):
                return chosen_values if several else chosen_values[0]
        if not (line or is_required):
            return [None] if several else None
        expected = _expected(field) if several else f"a number from 1 to {len(choices)}, or one of these words"
        sys.stderr.write(f"The answer must be {expected}.\n" if line else "This needs an answer.\n")


_FORMATS = {
    "email": "an email address",
    "uri": "a complete address such as https://example.org",
    "date": "a date such as 2026-01-31",
    "date-time": "a date and time such as 2026-01-31T12:00:00Z",
}


def _expected(field: Mapping[str, Any]) -> str:
    """Return which answers to a field are valid, as the end of "must be ..."."""
    kinds = {"integer": "a whole number", "number": "a number", "array": "some of these choices"}
    kind = kinds.get(str(field.get("type"))) or _FORMATS.get(str(field.get("format")), "text")
    limits: list[str] = []
    for suffix, unit in (("imum", ""), ("Length", " character"), ("Items", " choice")):
        bounds = (("at least", field.get(f"min{suffix}")), ("at most", field.get(f"max{suffix}")))
        limits += [
            f"{word} {visible_line(str(bound))}{unit}{'s' if unit and bound != 1 else ''}"
            for word, bound in bounds
            if bound is not None
        ]
    return f"{kind}, {' and '.join(limits)}" if limits else kind


def _is_valid(value: Any, field: Mapping[str, Any]) -> bool:
    """Return whether a value is a valid answer. Patterns are left to the server, because a match could take forever."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - slow to import, and rarely needed
    from jsonschema.exceptions import UnknownType  # noqa: PLC0415

    keys = ("type", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "enum")
    validator: Any = Draft202012Validator({key: field[key] for key in keys if key in field})
    try:
        if not validator.is_valid(value):
            return False
    except UnknownType:
        raise TypeError("the type of this field does not exist") from None
    with suppress(ValueError):
        match field.get("format"):
            case "email":
                return re.fullmatch(r"[^@\s]+@[^@\s]+", value) is not None
            case "uri":
                return re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:\S+", value) is not None
            case "date":
                return date.fromisoformat(value).isoformat() == value
            case "date-time":
                return datetime.fromisoformat(value).tzinfo is not None
            case _:
                return True
    return False


async def _line(prompt: str) -> str:
    sys.stderr.write(prompt)
    sys.stderr.flush()
    return await read_line()


def open_in_browser(link: str, file: str) -> bool:
    """Open a link in the browser through a private file, and return whether that worked.

    The link is not passed as an argument, because other users can see a program's arguments. The file must
    exist until the browser has read it; the caller ensures that it is removed later.
    """
    import webbrowser  # noqa: PLC0415 - few commands open a browser

    refresh = f'<meta http-equiv="refresh" content="0;url={html.escape(link)}">'
    with suppress(OSError, webbrowser.Error):
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0), 0o600)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(f"<!doctype html><title>coretools-mcp</title>{refresh}")
        return webbrowser.open(f"file://{file}")
    return False
