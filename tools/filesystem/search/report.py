"""The matches of a search as text: grouped by file, read through the workspace, within all limits."""

from __future__ import annotations

from dataclasses import dataclass

from tools.contract.context import ToolContext
from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.names import shown_whole_path
from tools.filesystem.descriptors import OpenedFile
from tools.filesystem.search.match_lines import Neighbours, excerpt, is_searchable
from tools.filesystem.search.run import FileHits


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """How matches are reported.

    Args:
        limit: Matches, or files with `names_only`, in all.
        per_file: Matches of each file, or `None`.
        neighbours: Lines shown beside each match.
        names_only: Only the paths of files.
        absolute: Paths are absolute, since several folders were searched.
    """

    limit: int
    per_file: int | None
    neighbours: Neighbours
    names_only: bool
    absolute: bool

    @property
    def most(self) -> int:
        """Matches that have to be known of each file: one more than can be shown, to tell that there are more."""
        return 1 if self.names_only else min(self.per_file or self.limit + 1, self.limit + 1)


class MatchReport:
    """Collects the matches of one file after the other.

    Args:
        context: Opens files and sets the limits.
        options: How matches are reported.
    """

    def __init__(self, context: ToolContext, options: ReportOptions) -> None:
        self._context = context
        self._room = context.limits.read_chars
        self.options = options
        self.blocks: list[str] = []
        self.matches = 0
        """Matching lines shown; with `names_only` files."""
        self.files = 0
        self.binary = 0
        """Files that match but are no text."""
        self.limited = False
        """There are more matches than were wanted."""
        self.cut = False
        """The text became too long."""
        self.per_file_reached = False
        """A file holds as many matches as were wanted of each."""

    def add(self, hits: FileHits) -> bool:
        """Add the matches of one file; whether more are wanted.

        Raises:
            ToolError: `cancelled`.
        """
        location = self._context.workspace.below(hits.folder, hits.path)
        name = shown_whole_path(location.path if self.options.absolute else hits.path)
        try:
            with self._context.workspace.open_file(location) as opened:
                return self._add(opened, hits, name)
        except OSError:
            return True
        except ToolError as error:
            if error.code is ToolErrorType.CANCELLED:
                raise
            return True  # it has gone meanwhile, or is not what was searched

    def _add(self, opened: OpenedFile, hits: FileHits, name: str) -> bool:
        if not is_searchable(opened):
            self.binary += 1
            return True
        wanted = hits.lines[: self.options.limit - self.matches]
        self.limited = len(wanted) < len(hits.lines)
        if not wanted:
            return False
        lines = [name] if self.options.names_only else [f"File: {name}"]
        self._room -= len(lines[0]) + len("\n---\n")
        shown = 1 if self.options.names_only else 0
        if self._room < 0 and self.blocks:
            self.cut = True
            return False
        if not self.options.names_only:
            chars = self._context.limits.line_chars
            for line in excerpt(opened, wanted, self.options.neighbours, chars, self._context.signal):
                text = f"L{line.number}{':' if line.is_match else '-'} {line.text}"
                self._room -= len(text) + 1
                if self._room < 0 and (self.blocks or shown):
                    self.cut = True
                    break
                lines.append(text)
                shown += line.is_match
            lines.append("---")
        if shown:
            self.blocks.append("\n".join(lines))
            self.matches += shown
            self.files += 1
            self.per_file_reached = self.per_file_reached or len(hits.lines) == self.options.per_file
        return not (self.limited or self.cut)
