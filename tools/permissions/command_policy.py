"""May this shell command run? Every simple command in it is judged by itself, and the strictest verdict counts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tools.contract.errors import ToolError
from tools.contract.limits import ApprovalMode
from tools.contract.subjects import Access, CommandSubject, Waiver
from tools.files.ignore_files import agent_ignore_file
from tools.files.workspace import Workspace, contains
from tools.permissions.agent_ignored_folders import agent_ignore_file_below, agent_ignore_file_hiding
from tools.permissions.auto_run_files import is_data
from tools.permissions.command_paths import Surroundings, repository_stored_at
from tools.permissions.hidden_paths import rules_about_what_is_in
from tools.permissions.own_settings import GuardedPaths
from tools.permissions.rules import ANYTHING, CORE, CommandSpecifier, Rule, Rules, literal_path
from tools.permissions.shell.analysis import HARMLESS_FILES, Analysis, Effect, Links, SubCommand
from tools.permissions.shell.expansion import NEW_FILE
from tools.permissions.shell.knowledge.file_programs import TAKEN, Reach
from tools.permissions.shell.possible_reads import lists_names, may_read_unnamed
from tools.permissions.verdict import Grant, Part, Permission, Verdict, summed

MAX_REASONS = 4
"""How many options of one command a question tells about."""


@dataclass(frozen=True, slots=True)
class CommandPolicy:
    """Judges the shell commands of one client. Blocking: it looks where links lead.

    Args:
        rules: What the operator and this client's person have said.
        mode: The client's approval mode.
        workspace: The folders of the workspace.
        home: The user's home folder.
        guarded: The server's own settings.
    """

    rules: Rules
    mode: ApprovalMode
    workspace: Workspace
    home: str
    guarded: GuardedPaths = field(default_factory=GuardedPaths)

    def judge(self, subject: CommandSubject, analysis: Analysis) -> Permission:
        """The verdict on a whole command."""
        parts = [Part("", self._verdict_on_doubt(), doubt) for doubt in analysis.doubts]
        around = Surroundings(self.workspace, self.home, subject.directory, self.guarded)
        around.note_links(analysis.commands)
        around.is_read_only = analysis.is_read_only
        parts += [self._part_of_command(command, around) for command in analysis.commands]
        if not parts:
            parts.append(Part("", Verdict.ASK, "nothing in it was recognised as a command"))
        whole = summed("", parts)
        return Permission(
            whole.verdict,
            whole.reason,
            grants=whole.grants,
            setting=whole.setting,
            is_explicit=whole.verdict is Verdict.ASK and bool(whole.setting),
            parts=tuple(parts),
            waiver=Waiver(tuple(dict.fromkeys(around.auto_run_files)), analysis.only_git_changes),
        )

    def _part_of_command(self, command: SubCommand, around: Surroundings) -> Part:
        """The strictest of what is said of the command itself and of all that it touches."""
        said = [self._part_of_words(command)]
        for effect in command.effects:
            said += self._parts_of_effect(effect, command, around)
        if may_read_unnamed(command):
            said += self._parts_of_unknown_reading(command)
        for effect in command.possible:
            said += self._parts_of_possible(effect, command, around)
        return summed(command.source, said)

    def _part_of_words(self, command: SubCommand) -> Part:
        source, text = command.source, command.text
        for rule in (*self.rules.deny, *self.rules.ask):
            if any(rule.fits_command(called) for called in (text, *command.spellings)):
                return _by_rule(rule, source)
        for rule in (*self.rules.deny, *self.rules.ask):
            if _may_fit(rule, command.open_beginnings):
                return Part(source, Verdict.ASK, f"it is not known whether it is what the {rule} is about")
        core = self.rules.core_commands()
        if core and not any(rule.fits_command(text) for rule in core):
            return Part(source, Verdict.DENY, f"'{text}' is not among the commands of {CORE}", setting=CORE)
        if command.doubts:
            return Part(source, self._verdict_on_doubt(), "; ".join(command.doubts))
        if command.options and not any(_names_options(rule, command) for rule in self.rules.allow):
            return Part(
                source, self._verdict_on_doubt(), "; ".join(use.reason for use in command.options[:MAX_REASONS])
            )
        return self._part_of_known(command)

    def _part_of_known(self, command: SubCommand) -> Part:
        """What is said of a command that no rule forbids, and that is understood."""
        source, text = command.source, command.text
        rule = self._allowed_by(command)
        if rule is not None:
            return Part(source, Verdict.ALLOW, str(rule))
        if command.is_read_only:
            return Part(source, Verdict.ALLOW, "it only reads")
        if self.mode is ApprovalMode.YOLO:
            return Part(source, Verdict.ALLOW, "approval mode yolo")
        scope = command.scope
        grants = (Grant(f"Bash({scope} *)", f"'{scope} ...'"),) if scope else ()
        return Part(source, Verdict.ASK, f"'{text}' may change something", grants)

    def _allowed_by(self, command: SubCommand) -> Rule | None:
        return next((rule for rule in self.rules.allow if rule.fits_command(command.text)), None)

    def _parts_of_effect(self, effect: Effect, command: SubCommand, around: Surroundings) -> Iterator[Part]:
        """What is said of one thing that a command touches."""
        source = command.source
        if effect.access is Access.FETCH:
            yield from self._parts_of_host(effect.target, command)
            return
        paths = around.paths(effect)
        if not paths:
            yield from self._parts_of_unknown_path(effect, command)
            if effect.access is Access.WRITE and (why := around.why_unknown_protected(effect)) is not None:
                yield Part(source, Verdict.ASK, f"it is not known which file it will write: {why}")
            yield from self._parts_of_beginning(effect, source, around)
        elif paths[0] not in HARMLESS_FILES:
            yield from self._parts_of_path(effect, paths, command, around)
            yield from self._parts_of_links(effect, paths, command, around)

    def _rules_about(self, access: Access) -> list[Rule]:
        return [rule for rule in (*self.rules.deny, *self.rules.ask) if rule.governs(access)]

    def _parts_about(self, access: Access, paths: Sequence[str], command: SubCommand) -> Iterator[Part]:
        """What is said of reading or writing a file that goes by these paths, by rules and by agent-ignore files."""
        for rule in self._rules_about(access):
            if rule.fits_path(paths, self.workspace.roots):
                yield _by_rule(rule, command.source)
        if access is Access.READ:
            if (why := self._hidden(paths[-1])) is not None:
                yield Part(command.source, Verdict.ASK, f"it reads {paths[0]}, {why}")
            yield from self._parts_of_store(paths, command)

    def _parts_of_store(self, paths: Sequence[str], command: SubCommand) -> Iterator[Part]:
        """What is said of reading what git has stored: it may be of any file of the repository."""
        top = next((top for path in paths if (top := repository_stored_at(path)) is not None), None)
        if top is not None and not lists_names(command):
            yield from self._parts_of_unknown_target(Access.READ, f"which files are stored at {paths[0]}", command, top)

    def _parts_of_unknown_target(
        self, access: Access, what: str, command: SubCommand, folder: str | None = None, *, is_as_now: bool = False
    ) -> Iterator[Part]:
        """What cannot be known may be what a rule is about, or hidden from agents.

        Args:
            access: What it is touched for.
            what: What is not known.
            command: What touches it.
            folder: Where it lies for certain, an absolute path; `None` if that is not known.
            is_as_now: Whether it is read as it lies in the folder now.
        """
        narrow = [rule for rule in self._rules_about(access) if rule.specifier is not None]
        if is_as_now and folder is not None:
            narrow = rules_about_what_is_in(folder, narrow, self.workspace.roots)
        if narrow:
            yield Part(command.source, Verdict.ASK, f"it is not known {what}, and there is the {narrow[0]}")
        if access is Access.READ and not lists_names(command):
            hidden_by = self._hiding_below(folder or os.sep, is_as_now=is_as_now)
            if hidden_by is not None:
                said = f"it is not known {what}, and {hidden_by} hides files from agents"
                yield Part(command.source, Verdict.ASK, said)

    def _parts_of_host(self, host: str | None, command: SubCommand) -> Iterator[Part]:
        if host is None:
            yield from self._parts_of_unknown_target(Access.FETCH, "which hosts it will reach", command)
        else:
            rules = self._rules_about(Access.FETCH)
            yield from (_by_rule(rule, command.source) for rule in rules if rule.fits_host(host))

    def _parts_of_unknown_path(self, effect: Effect, command: SubCommand) -> Iterator[Part]:
        what = f"which files it will {effect.access}"
        yield from self._parts_of_unknown_target(effect.access, what, command)
        if effect.access is Access.WRITE and effect.is_named and not is_data(effect.target or effect.name_end):
            said = "it is not known which file it will write, and it may be one that makes other programs run something"
            yield Part(command.source, Verdict.ASK, said)
        if effect.access is Access.WRITE and (effect.is_open or effect.target is not None):
            yield from self._parts_of_writing_outside(effect, command, "what is not known, and may lie", ())
        if effect.is_redirection:
            yield Part(command.source, self._ask_unless_yolo(), f"it is not known which file it will {effect.access}")
        elif effect.access is Access.READ and not lists_names(command):
            yield from self._parts_of_unknown_reading(command)

    def _parts_of_beginning(self, effect: Effect, source: str, around: Surroundings) -> Iterator[Part]:
        """What is said of something that is not known, in a folder that is."""
        if around.is_of_a_process(effect):
            yield Part(source, self._verdict_on_writing(effect), f"it {effect.access}s what a process has open")
        if effect.access is Access.WRITE and (why := around.why_ending_protected(effect)) is not None:
            yield Part(source, Verdict.ASK, f"it writes {effect.ending}: {why}")
        if effect.access is Access.WRITE and (folder := around.beginning(effect)) is not None:
            folder = os.path.normpath(folder)
            if (why := around.why_protected_in(folder)) is not None:
                yield Part(source, Verdict.ASK, f"it writes in {folder}: {why}")

    def _verdict_on_writing(self, effect: Effect) -> Verdict:
        return Verdict.ASK if effect.access is Access.WRITE else self._ask_unless_yolo()

    def _parts_of_links(
        self, effect: Effect, paths: Sequence[str], command: SubCommand, around: Surroundings
    ) -> Iterator[Part]:
        """What is said of a path through a link that another part of the whole may make."""
        links = around.links_on_the_way(paths[0], command)
        if links is Links.NONE:
            return
        said = f"where {paths[0]} leads is not known, as another part may make a link on the way"
        yield from self._parts_of_unknown_target(effect.access, f"which files it will {effect.access}", command)
        if effect.access is Access.WRITE:
            yield Part(command.source, Verdict.ASK if links is Links.MADE else self._ask_unless_yolo(), said)
        elif not lists_names(command) and self._allowed_by(command) is None:
            yield Part(command.source, self._ask_unless_yolo(), said)

    def _parts_of_path(
        self, effect: Effect, paths: Sequence[str], command: SubCommand, around: Surroundings
    ) -> Iterator[Part]:
        source = command.source
        # No allow rule shows what is hidden from agents, or lets auto-run files be written.
        yield from self._parts_about(effect.access, paths, command)
        if (
            (not effect.is_source or command.links is Links.MADE)
            and _may_be_folder(paths[-1], effect.reach)
            and not lists_names(command)
        ):
            what = f"which files in {paths[-1]} it will {effect.access}"
            # Another part of the whole may put something there.
            is_as_now = around.is_read_only and effect.reach is Reach.BELOW
            yield from self._parts_of_unknown_target(effect.access, what, command, paths[-1], is_as_now=is_as_now)
        if effect.access is Access.WRITE and (why := around.why_protected(paths)) is not None:
            around.auto_run_files.append(paths[-1])
            yield Part(source, Verdict.ASK, f"it writes {paths[0]}: {why}")
        if effect.is_source:
            return
        if _takes_folders(command, effect) and (below := around.first_below(paths[-1])) is not None:
            around.auto_run_files.append(paths[-1])
            yield Part(source, Verdict.ASK, f"it removes or moves {below[0]}: {below[1]}")
        if effect.reach in TAKEN and (taken := around.first_taken(paths[0], effect.reach)) is not None:
            around.auto_run_files.append(taken[0])
            yield Part(source, Verdict.ASK, f"it writes or removes {taken[0]}: {taken[1]}")
        allowing = (rule for rule in self.rules.allow if rule.governs(effect.access))
        if any(rule.fits_path(paths[-1:], self.workspace.roots) for rule in allowing):
            return
        if effect.access is Access.READ:
            yield from self._parts_of_reading(command, paths, around)
        elif effect.is_redirection:
            yield from self._parts_of_writing(source, paths, around)
        elif not around.is_inside(paths[-1]):
            grants = _grant_about("Edit", "edits of", paths[-1])
            yield from self._parts_of_writing_outside(effect, command, paths[0], grants)

    def _parts_of_possible(self, effect: Effect, command: SubCommand, around: Surroundings) -> Iterator[Part]:
        """What is said of something that a word of a command may name.

        A word may as well be none of it. So a file counts that is there, and one that a rule or a list is about.
        """
        if effect.access is Access.FETCH:
            yield from self._parts_of_host(effect.target, command)
            return
        paths = around.paths(effect)
        is_there = bool(paths) and os.path.lexists(paths[0])
        if effect.access is Access.WRITE:
            yield from self._parts_of_beginning(effect, command.source, around)
            yield from self._parts_of_possible_writing(paths or around.places(effect), command, around)
        elif command.is_read_only:
            if is_there or not paths:
                yield from self._parts_of_effect(effect, command, around)
        elif not paths:
            yield from self._parts_by_narrow_rules(around.places(effect), Access.READ, command)
        elif is_there:
            yield from self._parts_about(effect.access, paths, command)

    def _parts_of_possible_writing(
        self, paths: Sequence[str], command: SubCommand, around: Surroundings
    ) -> Iterator[Part]:
        yield from self._parts_by_narrow_rules(paths, Access.WRITE, command)
        if paths and (why := around.why_protected(paths, by_name=True)) is not None:
            around.auto_run_files.append(paths[-1])
            yield Part(command.source, Verdict.ASK, f"it may write {paths[0]}: {why}")

    def _parts_by_narrow_rules(self, paths: Sequence[str], access: Access, command: SubCommand) -> Iterator[Part]:
        for rule in self._rules_about(access) if paths else ():
            if rule.specifier is not None and rule.fits_path(paths, self.workspace.roots):
                said = f"it may {access} {paths[0]}, and there is the {rule}"
                yield Part(command.source, Verdict.ASK, said, setting=rule.source)
        yield from self._parts_of_store(paths if access is Access.READ else (), command)
        for path in paths if access is Access.READ else ():
            if (why := self._hidden(path)) is not None:
                yield Part(command.source, Verdict.ASK, f"it may read {path}, {why}")

    def _parts_of_unknown_reading(self, command: SubCommand) -> Iterator[Part]:
        if self._allowed_by(command) is None:
            yield Part(command.source, self._ask_unless_yolo(), "it is not known which files it will read")

    def _parts_of_reading(self, command: SubCommand, paths: Sequence[str], around: Surroundings) -> Iterator[Part]:
        if self._allowed_by(command) is not None:
            return
        if not around.is_inside(paths[-1]):
            said = f"it reads {paths[0]}, which lies outside the workspace"
            yield Part(command.source, self._ask_unless_yolo(), said, _grant_about("Read", "reading", paths[-1]))

    def _hidden(self, path: str) -> str | None:
        """Why agents are not to see what lies at an absolute path; in the mode that asks nothing commands show it."""
        if self.mode is ApprovalMode.YOLO or not any(contains(root, path) for root in self.workspace.roots):
            return None
        try:
            hidden_by = agent_ignore_file(self.workspace, self.workspace.at(path))
        except ToolError:
            return "of which it is not known whether it is hidden from agents"
        return f"which {hidden_by} hides from agents" if hidden_by else None

    def _hiding_below(self, folder: str, *, is_as_now: bool) -> str | None:
        """The agent-ignore file by which something in a folder is hidden from agents, or may be."""
        if self.mode is ApprovalMode.YOLO:
            return None
        roots = self.workspace.roots
        below = [root for root in roots if contains(folder, root)]
        inside = [folder] if any(contains(root, folder) for root in roots) else []
        try:
            look = agent_ignore_file_hiding if is_as_now else agent_ignore_file_below
            found = (look(self.workspace, self.workspace.at(path)) for path in (*inside, *below))
            return next((name for name in found if name is not None), None)
        except ToolError:
            return "an agent-ignore file that cannot be read"

    def _parts_of_writing(self, source: str, paths: Sequence[str], around: Surroundings) -> Iterator[Part]:
        """What is said of a file that the shell itself writes, and that no rule speaks of."""
        grants = _grant_about("Edit", "edits of", paths[-1])
        if paths[0].startswith(NEW_FILE):
            yield Part(source, self._ask_unless_yolo(), "it writes a new file, which lies outside the workspace")
        elif not around.is_inside(paths[-1]) and self.mode is not ApprovalMode.YOLO:
            said = f"its output would be written to {paths[0]}, outside the workspace"
            yield Part(source, Verdict.DENY, said, grants)
        elif self.mode is not ApprovalMode.AUTO_EDIT:
            yield Part(source, self._ask_unless_yolo(), f"it writes {paths[0]}", grants)

    def _parts_of_writing_outside(
        self, effect: Effect, command: SubCommand, what: str, grants: tuple[Grant, ...]
    ) -> Iterator[Part]:
        """A rule that allows a program is about the workspace, unless it names the very file."""
        if self.mode is ApprovalMode.YOLO or (rule := self._allowed_by(command)) is None:
            return
        named = rule.specifier.pattern.split() if isinstance(rule.specifier, CommandSpecifier) else ()
        target = effect.target
        if target is None or not {target, os.path.dirname(target)} & set(named):
            yield Part(command.source, Verdict.ASK, f"it writes {what} outside the workspace", grants)

    def _ask_unless_yolo(self) -> Verdict:
        """What needs consent runs all the same where the operator has switched questions off."""
        return Verdict.ALLOW if self.mode is ApprovalMode.YOLO else Verdict.ASK

    def _verdict_on_doubt(self) -> Verdict:
        """What is not understood may be what a rule forbids, and then no mode lets it pass."""
        rules = (*self.rules.deny, *self.rules.ask)
        is_open = self.mode is ApprovalMode.YOLO and all(rule.specifier is None for rule in rules)
        return Verdict.ALLOW if is_open else Verdict.ASK


def _takes_folders(command: SubCommand, effect: Effect) -> bool:
    """Whether what an effect is about is removed, or moved elsewhere, with all that is in it."""
    program = os.path.basename(command.words[0]) if command.words else ""
    is_moved = program == "mv" and any(
        other.access is Access.READ and other.target == effect.target for other in command.effects
    )
    # An empty name is that of nothing.
    is_named = effect.access is Access.WRITE and bool(effect.target)
    return is_named and (program in ("rm", "rmdir", "trash") or is_moved)


def _names_options(rule: Rule, command: SubCommand) -> bool:
    """Whether a rule that is about a command names those of its options that are asked about."""
    if not isinstance(rule.specifier, CommandSpecifier) or not rule.fits_command(command.text):
        return False
    pattern = rule.specifier.pattern
    return all(use.is_named_in(pattern) for use in command.options)


def _may_fit(rule: Rule, beginnings: Sequence[str]) -> bool:
    """Whether a rule may be about a command of which only the beginning is known."""
    if not isinstance(rule.specifier, CommandSpecifier):
        return False
    fixed, star, behind = rule.specifier.pattern.partition(ANYTHING)
    return any(
        fixed.startswith(beginning) or (bool(star and behind) and beginning.startswith(fixed))
        for beginning in beginnings
    )


def _may_be_folder(path: str, reach: Reach) -> bool:
    """Whether more than one file may be touched by a path: what is stored as a folder need not be there."""
    if reach is Reach.ITSELF:
        return False
    return not os.path.isfile(path) if reach in (Reach.STORED, Reach.NAMED) else os.path.isdir(path)


def _grant_about(name: str, what: str, path: str) -> tuple[Grant, ...]:
    """A rule that is about one path, if it can be written."""
    literal = literal_path(path)
    return (Grant(f"{name}({literal})", f"{what} {path}"),) if literal is not None else ()


def _by_rule(rule: Rule, source: str) -> Part:
    return Part(source, rule.verdict, str(rule), setting=rule.source)
