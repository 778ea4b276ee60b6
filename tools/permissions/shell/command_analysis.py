"""What the analysis of a shell command tells: all that it would run, what that touches, and what is not understood.

The command is bash's; the languages of `cmd.exe` and PowerShell are not read. Nothing is decided here. A policy holds
each sub-command against its rules: one that is denied denies the whole, and only a whole without doubt may be allowed.
An analysis errs on one side only: it may doubt what is harmless, it never vouches for what it does not understand.
"""

from __future__ import annotations

from dataclasses import dataclass

from tools.contract.permission_subjects import Access
from tools.permissions.shell.knowledge.program_files import Reach
from tools.permissions.shell.knowledge.running_options import OptionUse
from tools.permissions.shell.knowledge.unnamed_files import Links
from tools.permissions.shell.syntax.words import FOUND, names

# Reading or writing these touches no file
HARMLESS_FILES = frozenset(
    {"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/fd/0", "/dev/fd/1", "/dev/fd/2"}
)
# Commands whose words do not name files that they show
WITHOUT_FILES = names(": [ [[ basename dirname echo expr false history mktemp printf pwd read seq sleep test true")
# Commands that see the names of files in a folder, not what is in them
LISTING = names("cd du find ls pushd pwd readlink realpath stat test tree [")


@dataclass(frozen=True, slots=True)
class Effect:
    """A file, folder or host that a sub-command touches."""

    access: Access  # what it is touched for
    target: str | None  # a path as spelled (`~/x` and `$HOME/x` are kept), or a host; `None` if it cannot be known
    # Where a relative path starts from: a folder relative to the one the command starts in, `""` for that one itself,
    # or an absolute one. `None` if it cannot be known.
    folder: str | None = ""
    is_redirection: bool = False  # whether the shell itself opens the file
    beginning: str = ""  # where it lies for certain although it is not known: `.git/hooks` for `.git/hooks/$X`
    ending: str = ""  # what it ends with for certain: `.bashrc` for `$X/.bashrc`
    is_open: bool = False  # it is not known, and may be anywhere
    is_source: bool = False  # it is written only in that it gets another name, through which it can be
    # A word says which it is, known or not; not what an archive holds, or a word that may be an option.
    is_named: bool = True
    name_end: str = ""  # what its name ends with for certain: `.log` for `$X.log`
    reach: Reach = Reach.BELOW  # what of it is touched if it is a folder


@dataclass(frozen=True, slots=True, kw_only=True)
class SubCommand:
    """One simple command, wherever it stands: in a list, a pipeline, a substitution, a function, behind a wrapper.

    Redirections of a compound command (`{ ...; } > f`), and redirections and assignments without a command, are a
    sub-command without words.
    """

    words: tuple[str, ...]  # the name and the arguments, decoded. A word that is not literal is kept as it is written
    # What rules that allow are matched against: the words joined by blanks, the name without a standard folder, git
    # without options of its own that change nothing.
    text: str
    source: str
    scope: str = ""  # what a lasting permission may cover, as the beginning of `text`; empty if there can be none
    is_literal: bool = False
    # Whether it is known to change nothing, by its name and its arguments. What the shell itself writes for it, by a
    # redirection, is among its effects.
    is_read_only: bool = False
    effects: tuple[Effect, ...] = ()
    doubts: tuple[str, ...] = ()
    # What rules that forbid are matched against: `text`, and whatever else it could be called.
    spellings: tuple[str, ...] = ()
    # What is known of it before a word that is not; such a word may be what a rule is about.
    open_beginnings: tuple[str, ...] = ()
    # What its words and variables may name beyond `effects`, as no table knows all options of all programs.
    possible: tuple[Effect, ...] = ()
    links: Links = Links.NONE
    follows_links: bool = False
    options: tuple[OptionUse, ...] = ()

    @property
    def lists_names(self) -> bool:
        """Whether it sees names only, of files that its words tell."""
        return self.words[:1] != () and self.words[0] in LISTING and not self.follows_links

    @property
    def may_read_unnamed(self) -> bool:
        """Whether it only reads, and may read files that its words do not tell."""
        if not self.is_read_only or (self.words and self.words[0] in WITHOUT_FILES):
            return False
        return self.follows_links or (not self.is_literal and (not self.lists_names or FOUND in self.words))


@dataclass(frozen=True, slots=True)
class Analysis:
    """All sub-commands of a command, and what is not understood of the text as a whole."""

    commands: tuple[SubCommand, ...]
    doubts: tuple[str, ...]

    @property
    def is_read_only(self) -> bool:
        """Whether nothing in it changes anything, beyond doubt."""
        return not self.doubts and all(
            command.is_read_only
            and not command.doubts
            and all(effect.access is not Access.WRITE for effect in command.effects)
            for command in self.commands
        )

    @property
    def only_git_changes(self) -> bool:
        """Whether git is all in it that changes anything, beyond doubt, and its words say what it does."""
        changing = [command for command in self.commands if not command.is_read_only]
        return (
            not self.doubts
            and bool(changing)
            and all(command.words[:1] == ("git",) and not command.options for command in changing)
            and not any(command.doubts for command in self.commands)
        )
