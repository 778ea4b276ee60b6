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
from tools.permissions.rule import Rule
from tools.permissions.rules import Rules
from tools.permissions.shell.analysis import Analysis, Effect, SubCommand
from tools.permissions.shell.possible_reads import lists_names, may_read_unnamed, possible_reads
from tools.permissions.specifiers import literal_path

HARMLESS_FILES = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin"})
"""Reading or writing these touches no file."""


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
        """What is said of one thing that a command touches."""
        source = command.source
        rules = [rule for rule in (*self.rules.deny, *self.rules.ask) if rule.governs(effect.access)]
        if effect.access is Access.FETCH:
            yield from self._of_host(effect.target, rules, source)
            return
        paths = self._paths(effect, directory)
        if not paths:
            yield from self._of_unknown_path(effect, rules, command)
        elif paths[0] not in HARMLESS_FILES:
            yield from self._of_path(effect, paths, rules, command)

    def _of_host(self, host: str | None, rules: Sequence[Rule], source: str) -> Iterator[Part]:
        if host is None:
            yield from self._of_unknown_target(rules, source, "which hosts it will reach")
        else:
            yield from (_by_rule(rule, source) for rule in rules if rule.fits_host(host))

    def _of_unknown_path(self, effect: Effect, rules: Sequence[Rule], command: SubCommand) -> Iterator[Part]:
        yield from self._of_unknown_target(rules, command.source, f"which files it will {effect.access}")
        if effect.is_redirection:
            yield Part(command.source, self._of_consent(), f"it is not known which file it will {effect.access}")
        elif effect.access is Access.READ and not lists_names(command):
            yield from self._of_unknown_reading(command)

    def _of_path(
        self, effect: Effect, paths: Sequence[str], rules: Sequence[Rule], command: SubCommand
    ) -> Iterator[Part]:
        source = command.source
        yield from (_by_rule(rule, source) for rule in rules if rule.fits_path(paths, self.workspace.roots))
        if os.path.isdir(paths[-1]) and not lists_names(command):
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
        if effect.access is Access.READ and self._is_inside(paths[-1]):
            if (why := self._hidden(command, paths[-1])) is not None:
                yield Part(command.source, self._of_consent(), f"it reads {paths[0]}, {why}")
        elif effect.access is Access.WRITE and (why := self._protected(paths)) is not None:
            yield Part(command.source, Verdict.ASK, f"it writes {paths[0]}: {why}")

    def _of_possible_reads(self, command: SubCommand, directory: str) -> Iterator[Part]:
        """What is said of files that the command may read beyond what it is known to."""
        if may_read_unnamed(command):
            yield from self._of_unknown_reading(command)
        for effect in possible_reads(command):
            paths = self._paths(effect, directory)
            if not paths or os.path.lexists(paths[0]):
                yield from self._of_effect(effect, command, directory)

    def _of_unknown_reading(self, command: SubCommand) -> Iterator[Part]:
        if self._allowed_by(command) is None:
            yield Part(command.source, self._of_consent(), "it is not known which files it will read")

    def _of_unknown_target(self, rules: Sequence[Rule], source: str, what: str) -> Iterator[Part]:
        """What cannot be known may be what a rule is about."""
        narrow = next((rule for rule in rules if rule.specifier is not None), None)
        if narrow is not None:
            yield Part(source, Verdict.ASK, f"it is not known {what}, and there is the {narrow}")

    def _of_reading(self, command: SubCommand, paths: Sequence[str]) -> Iterator[Part]:
        if self._allowed_by(command) is not None:
            return
        if not self._is_inside(paths[-1]):
            said = f"it reads {paths[0]}, which lies outside the workspace"
            yield Part(command.source, self._of_consent(), said, _rule_about("Read", paths[-1]))

    def _hidden(self, command: SubCommand, path: str) -> str | None:
        """Why a file is, or a folder may hold, what agents are not to see."""
        try:
            location = self.workspace.at(path)
            hidden_by = agent_ignore_file(self.workspace, location)
        except ToolError:
            return "of which it is not known whether it is hidden from agents"
        if hidden_by is not None:
            return f"which {hidden_by} hides from agents"
        if lists_names(command) or not self.workspace.respect_agent_ignore or not os.path.isdir(path):
            return None
        names = [name for name in AGENT_IGNORE_FILES if os.path.lexists(os.path.join(location.root, name))]
        return f"which may hold files that {names[0]} hides from agents" if names else None

    def _of_writing(self, source: str, paths: Sequence[str]) -> Iterator[Part]:
        """What is said of a file that the shell itself writes, and that no rule speaks of."""
        if not self._is_inside(paths[-1]) and self.mode is not ApprovalMode.YOLO:
            said = f"its output would be written to {paths[0]}, outside the workspace"
            yield Part(source, Verdict.DENY, said)
        elif self.mode is not ApprovalMode.AUTO_EDIT:
            yield Part(source, self._of_consent(), f"it writes {paths[0]}", _rule_about("Edit", paths[-1]))

    def _protected(self, paths: Sequence[str]) -> str | None:
        inside = (self.workspace.at(path).relative for path in paths if self._is_inside(path))
        return next((why for relative in inside if (why := is_protected(relative)) is not None), None)

    def _is_inside(self, path: str) -> bool:
        return any(contains(root, path) for root in self.workspace.roots)

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


_LASTING = re.compile(
    r"(?!(?:\S*/)?(?:python|pypy|node|ruby|perl|php|lua)[a-z0-9.]*\b)[\w./:@%+,=-]+(?: [\w./:@%+,=-]+)*"
)
"""Beginnings of commands that an answer may allow for good: no stars, and no interpreter, which runs any text."""


def _rule_about(name: str, path: str) -> tuple[str, ...]:
    """A rule that is about one path, if it can be written."""
    literal = literal_path(path)
    return (f"{name}({literal})",) if literal is not None else ()


def _by_rule(rule: Rule, source: str) -> Part:
    if rule.verdict is Verdict.DENY:
        return Part(source, Verdict.DENY, str(rule))
    return Part(source, Verdict.ASK, str(rule), is_explicit=True)


def _grants(parts: Sequence[Part]) -> tuple[str, ...]:
    """What would allow all of these parts; empty if one of them cannot be allowed by a rule."""
    if not all(part.grants for part in parts):
        return ()
    return tuple(dict.fromkeys(rule for part in parts for rule in part.grants))
