"""What the analysis of a shell command tells: all that it would run, what that touches, and what is not understood.

The command is bash's; the languages of `cmd.exe` and PowerShell are not read. Nothing is decided here. A policy holds
each sub-command against its rules: one that is denied denies the whole, and only a whole without doubt may be allowed.
An analysis errs on one side only: it may doubt what is harmless, it never vouches for what it does not understand.
"""

from __future__ import annotations

from dataclasses import dataclass

from tools.contract.subject import Access

__all__ = ["Access", "Analysis", "Effect", "SubCommand", "analyse"]


@dataclass(frozen=True, slots=True)
class Effect:
    """A file, folder or host that a sub-command touches.

    Args:
        access: What it is touched for.
        target: A path as spelled (`~/x` and `$HOME/x` are kept), or a host; `None` if it cannot be known.
        folder: Where a relative path starts from: a folder relative to the one the command starts in, `""` for that
            one itself, or an absolute one. `None` if it cannot be known.
        is_redirection: Whether the shell itself opens the file.
    """

    access: Access
    target: str | None
    folder: str | None = ""
    is_redirection: bool = False


@dataclass(frozen=True, slots=True)
class SubCommand:
    """One simple command, wherever it stands: in a list, a pipeline, a substitution, a function, behind a wrapper.

    Redirections of a compound command (`{ ...; } > f`), and redirections and assignments without a command, are a
    sub-command without words.

    Args:
        words: The name and the arguments, decoded. A word that is not literal is kept as it is written.
        text: What rules are matched against: the words joined by blanks, the name without a standard folder.
        source: As it stands in the command.
        root: What a lasting permission may cover, as the beginning of `text`; empty if there can be none.
        is_literal: Whether every word is known.
        is_read_only: Whether it is known to change nothing, by its name and its arguments. What the shell itself writes
            for it, by a redirection, is among its effects.
        effects: What it touches, as far as its arguments and redirections tell.
        doubts: Why it is not fully understood, a short phrase each.
    """

    words: tuple[str, ...]
    text: str
    source: str
    root: str
    is_literal: bool
    is_read_only: bool
    effects: tuple[Effect, ...] = ()
    doubts: tuple[str, ...] = ()


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


def analyse(command: str) -> Analysis:
    """Tell what a command would run. Nothing is run or looked at, and no text is an error.

    The cost is linear in the length of the command.
    """
    from tools.permissions.shell.analyser import analyse_command  # noqa: PLC0415 - tables load at the first command

    return analyse_command(command)
