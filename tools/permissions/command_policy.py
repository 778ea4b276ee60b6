"""May this shell command run? Every simple command in it is judged by itself, and the strictest verdict counts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tools.contract.context import ApprovalMode
from tools.contract.errors import ToolError
from tools.contract.subject import Access, CommandSubject
from tools.filesystem.ignore import AGENT_IGNORE_FILES, agent_ignore_file
from tools.filesystem.link_free import real_path
from tools.filesystem.workspace import Workspace, contains
from tools.permissions.permission import Part, Permission, Verdict, strictest
from tools.permissions.protected import is_protected
from tools.permissions.rule import Effect as RuleEffect
from tools.permissions.rule import Rule
from tools.permissions.rules import Rules
from tools.permissions.shell.analysis import Analysis, Effect, SubCommand
from tools.permissions.specifiers import literal_path

HARMLESS_FILES = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin"})
"""Reading or writing these touches no file."""

NO_FILES = frozenset(
    {":", "[", "[[", "basename", "dirname", "echo", "expr", "false", "printf", "pwd", "seq", "test", "true"}
)
"""Commands that only read and whose words are no files that they show."""

LISTING = frozenset({"cd", "du", "find", "ls", "pushd", "pwd", "readlink", "realpath", "stat", "test", "tree", "["})
"""Commands that see the names of files in a folder, not what is in them."""


@dataclass(frozen=True, slots=True)
class CommandPolicy:
    """Judges the shell commands of one client. Blocking: it looks where links lead.

    Args:
        rules: What the operator and this client's person have said.
        mode: The client's approval mode.
        workspace: The folders of the workspace.
        home: The user's home folder.
    """

    rules: Rules
    mode: ApprovalMode
    workspace: Workspace
    home: str

    def judge(self, subject: CommandSubject, analysis: Analysis) -> Permission:
        """The verdict on a whole command."""
        parts = [Part("", self._of_the_unknown(), doubt) for doubt in analysis.doubts]
        parts += [self._of_command(command, subject.directory) for command in analysis.commands]
        if not parts:
            parts.append(Part("", Verdict.ASK, "nothing in it was recognised as a command"))
        verdict = strictest(parts).verdict
        deciding = [part for part in parts if part.verdict is verdict]
        return Permission(
            verdict,
            "; ".join(dict.fromkeys(part.reason for part in deciding)),
            grants=_grants(deciding) if verdict is Verdict.ASK else (),
            is_explicit=any(part.is_explicit for part in deciding),
            parts=tuple(parts),
        )

    def _of_command(self, command: SubCommand, directory: str) -> Part:
        """The strictest of what is said of the command itself and of all that it touches."""
        said = [self._of_words(command)]
        for effect in command.effects:
            said += self._of_effect(effect, command, directory)
        said += self._of_possible_reads(command, directory)
        verdict = strictest(said).verdict
        deciding = [part for part in said if part.verdict is verdict]
        reason = "; ".join(dict.fromkeys(part.reason for part in deciding))
        grants = _grants(deciding) if verdict is Verdict.ASK else ()
        return Part(command.source, verdict, reason, grants, any(part.is_explicit for part in deciding))

    def _of_words(self, command: SubCommand) -> Part:
        source, text = command.source, command.text
        # A program by any path is still that program to a rule that forbids it.
        plain = " ".join((os.path.basename(command.words[0]), *command.words[1:])) if command.words else text
        for rule in (*self.rules.deny, *self.rules.ask):
            if rule.fits_command(text) or rule.fits_command(plain):
                return _by_rule(rule, source)
        core = self.rules.core_commands()
        if core and not any(rule.fits_command(text) for rule in core):
            return Part(source, Verdict.DENY, f"'{text}' is not among the commands of tools.core")
        if command.doubts:
            return Part(source, self._of_the_unknown(), "; ".join(command.doubts))
        return self._of_the_known(command)

    def _of_the_known(self, command: SubCommand) -> Part:
        """What is said of a command that no rule forbids, and that is understood."""
        source, text = command.source, command.text
        rule = self._allowed_by(command)
        if rule is not None:
            return Part(source, Verdict.ALLOW, str(rule))
        if command.is_read_only:
            return Part(source, Verdict.ALLOW, "it only reads")
        if self.mode is ApprovalMode.YOLO:
            return Part(source, Verdict.ALLOW, "approval mode yolo")
        grants = (f"Bash({command.root} *)",) if _LASTING.fullmatch(command.root) else ()
        return Part(source, Verdict.ASK, f"'{text}' may change something", grants)

    def _allowed_by(self, command: SubCommand) -> Rule | None:
        return next((rule for rule in self.rules.allow if rule.fits_command(command.text)), None)

    def _of_effect(self, effect: Effect, command: SubCommand, directory: str) -> Iterator[Part]:
        source = command.source
        rules = [rule for rule in (*self.rules.deny, *self.rules.ask) if rule.governs(effect.access)]
        if effect.access is Access.FETCH:
            if effect.target is None:
                yield from self._of_unknown_target(rules, source, "which hosts it will reach")
            else:
                yield from (_by_rule(rule, source) for rule in rules if rule.fits_host(effect.target))
            return
        paths = self._paths(effect, directory)
        if not paths:
            yield from self._of_unknown_target(rules, source, f"which files it will {effect.access}")
            if effect.is_redirection:
                yield Part(source, self._of_consent(), "it is not known which file it will write")
            return
        if paths[0] in HARMLESS_FILES:
            return
        yield from (_by_rule(rule, source) for rule in rules if rule.fits_path(paths, self.workspace.roots))
        if os.path.isdir(paths[-1]) and command.words[:1] not in _LISTING_WORDS:
            yield from self._of_unknown_target(rules, source, f"which files in {paths[-1]} it will {effect.access}")
        # No rule that allows opens what is hidden from agents, or what steers other programs.
        yield from self._of_what_is_guarded(effect, command, paths)
        allowing = (rule for rule in self.rules.allow if rule.governs(effect.access))
        if any(rule.fits_path(paths[-1:], self.workspace.roots) for rule in allowing):
            return
        if effect.access is Access.READ:
            yield from self._of_reading(command, paths)
        elif effect.is_redirection:
            yield from self._of_writing(source, paths)

    def _of_what_is_guarded(self, effect: Effect, command: SubCommand, paths: Sequence[str]) -> Iterator[Part]:
        inside = [path for path in paths if self._is_inside([path])]
        if effect.access is Access.READ and self._is_inside(paths):
            if (why := self._hidden(command, paths[-1])) is not None:
                yield Part(command.source, self._of_consent(), f"it reads {paths[0]}, {why}")
        elif effect.access is Access.WRITE and (why := self._protected(inside)) is not None:
            yield Part(command.source, Verdict.ASK, f"it writes {paths[0]}: {why}")

    def _of_possible_reads(self, command: SubCommand, directory: str) -> Iterator[Part]:
        """What a command that only reads may read by options that are not known here.

        Each of its words that is the path of something is taken for one that it reads.
        """
        if not command.is_read_only or command.words[:1] in _NO_FILES_WORDS:
            return
        is_listing = command.words[:1] in _LISTING_WORDS and "{}" not in command.words
        if not command.is_literal and not is_listing and self._allowed_by(command) is None:
            yield Part(command.source, self._of_consent(), "it is not known which files it will read")
        for folder in {effect.folder for effect in command.effects} or {""}:
            for text in (text for word in command.words[1:] for text in _possible_paths(word)):
                effect = Effect(Access.READ, text, folder)
                paths = self._paths(effect, directory)
                if paths and os.path.lexists(paths[0]):
                    yield from self._of_effect(effect, command, directory)

    def _of_unknown_target(self, rules: Sequence[Rule], source: str, what: str) -> Iterator[Part]:
        """What cannot be known may be what a rule is about."""
        narrow = next((rule for rule in rules if rule.specifier is not None), None)
        if narrow is not None:
            yield Part(source, Verdict.ASK, f"it is not known {what}, and there is the {narrow}")

    def _of_reading(self, command: SubCommand, paths: Sequence[str]) -> Iterator[Part]:
        if self._allowed_by(command) is not None:
            return
        grants = _rule_about("Read", paths[-1])
        if not self._is_inside(paths):
            said = f"it reads {paths[0]}, which lies outside the workspace"
            yield Part(command.source, self._of_consent(), said, grants)

    def _hidden(self, command: SubCommand, path: str) -> str | None:
        """Why a file is, or a folder may hold, what agents are not to see."""
        try:
            location = self.workspace.at(path)
            hidden_by = agent_ignore_file(self.workspace, location)
        except ToolError:
            return "of which it is not known whether it is hidden from agents"
        if hidden_by is not None:
            return f"which {hidden_by} hides from agents"
        if command.words[:1] in _LISTING_WORDS or not self.workspace.respect_agent_ignore or not os.path.isdir(path):
            return None
        names = [name for name in AGENT_IGNORE_FILES if os.path.lexists(os.path.join(location.root, name))]
        return f"which may hold files that {names[0]} hides from agents" if names else None

    def _of_writing(self, source: str, paths: Sequence[str]) -> Iterator[Part]:
        """What is said of a file that the shell itself writes, and that no rule speaks of."""
        if not self._is_inside(paths) and self.mode is not ApprovalMode.YOLO:
            said = f"its output would be written to {paths[0]}, outside the workspace"
            yield Part(source, Verdict.DENY, said)
        elif self.mode is not ApprovalMode.AUTO_EDIT:
            yield Part(source, self._of_consent(), f"it writes {paths[0]}", _rule_about("Edit", paths[-1]))

    def _protected(self, paths: Sequence[str]) -> str | None:
        for path in paths:
            location = self.workspace.at(path)
            if (why := is_protected(location.relative)) is not None:
                return why
        return None

    def _is_inside(self, paths: Sequence[str]) -> bool:
        return all(any(contains(root, path) for root in self.workspace.roots) for path in paths[-1:])

    def _paths(self, effect: Effect, directory: str) -> tuple[str, ...]:
        """The absolute path of what is touched, as named and with links resolved; empty if it is not known."""
        target = effect.target
        if target is None:
            return ()
        for prefix in ("~", "$HOME", "${HOME}"):
            if target == prefix or target.startswith(f"{prefix}/"):
                target = self.home + target[len(prefix) :]
                break
        if not os.path.isabs(target):
            if effect.folder is None:
                return ()
            target = os.path.join(directory, effect.folder, target)
        named = os.path.normpath(target)
        try:
            return named, real_path(target)
        except (OSError, ValueError):
            return (named,)

    def _of_consent(self) -> Verdict:
        """What needs consent runs all the same where the operator has switched questions off."""
        return Verdict.ALLOW if self.mode is ApprovalMode.YOLO else Verdict.ASK

    def _of_the_unknown(self) -> Verdict:
        """What is not understood may be what a rule forbids, and then no mode lets it pass."""
        rules = (*self.rules.deny, *self.rules.ask)
        is_open = self.mode is ApprovalMode.YOLO and all(rule.specifier is None for rule in rules)
        return Verdict.ALLOW if is_open else Verdict.ASK


_LISTING_WORDS = frozenset((name,) for name in LISTING)
_NO_FILES_WORDS = frozenset((name,) for name in NO_FILES)

_LASTING = re.compile(
    r"(?!(?:\S*/)?(?:python|pypy|node|ruby|perl|php|lua)[a-z0-9.]*\b)[\w./:@%+,=-]+(?: [\w./:@%+,=-]+)*"
)
"""Beginnings of commands that an answer may allow for good: no stars, and no interpreter, which runs any text."""


def _possible_paths(word: str) -> Iterator[str]:
    """The paths that an argument may name: itself, what follows `=`, what is attached to a letter."""
    if not word.startswith("-"):
        yield word
    _, equals, value = word.partition("=")
    if equals and value:
        yield value
    if len(word) > len("-x") and word[0] == "-" and word[1] != "-":
        yield word[2:]


def _rule_about(name: str, path: str) -> tuple[str, ...]:
    """A rule that is about one path, if it can be written."""
    literal = literal_path(path)
    return (f"{name}({literal})",) if literal is not None else ()


def _by_rule(rule: Rule, source: str) -> Part:
    if rule.effect is RuleEffect.DENY:
        return Part(source, Verdict.DENY, str(rule))
    return Part(source, Verdict.ASK, str(rule), is_explicit=True)


def _grants(parts: Sequence[Part]) -> tuple[str, ...]:
    """What would allow all of these parts; empty if one of them cannot be allowed by a rule."""
    if not all(part.grants for part in parts):
        return ()
    return tuple(dict.fromkeys(rule for part in parts for rule in part.grants))
