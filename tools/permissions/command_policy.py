"""May this shell command run? Every simple command in it is judged by itself, and the strictest verdict counts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tools.contract.errors import ToolError
from tools.contract.limits import ApprovalMode
from tools.contract.permission_subjects import Access, Waiver
from tools.files.ignore_files import agent_ignore_file
from tools.files.workspace import Workspace, contains, is_inside
from tools.permissions import auto_run_files
from tools.permissions.auto_run_files import why_protected, why_system_protected
from tools.permissions.command_paths import (
    CommandPaths,
    agent_ignore_file_below,
    first_below,
    first_taken,
    repository_stored_at,
    rules_about_what_is_in,
)
from tools.permissions.guarded_paths import GuardedPaths
from tools.permissions.rules import ANYTHING, CORE, CommandSpecifier, Rule, Rules, literal_path
from tools.permissions.shell.command_analysis import HARMLESS_FILES, Analysis, Effect, Links, SubCommand
from tools.permissions.shell.expansion import NEW_FILE
from tools.permissions.shell.knowledge.program_files import TAKEN, Reach
from tools.permissions.verdict import Grant, Part, Permission, Verdict, summed

MAX_REASONS = 4  # how many options of one command a question tells about


@dataclass(slots=True)
class CommandPolicy:
    """Judges one shell command. Blocking: it looks where links lead."""

    analysis: Analysis
    rules: Rules
    mode: ApprovalMode
    workspace: Workspace
    paths: CommandPaths
    guarded: GuardedPaths
    _auto_run_files: list[str] = field(default_factory=list[str])
    """Real paths of those that the whole was seen to write."""
    _link_makers: dict[str | None, list[SubCommand]] = field(default_factory=dict[str | None, list[SubCommand]])
    """By a path, the commands that may put a link there; `None` for a place that is not known."""
    _reasons: dict[tuple[tuple[str, ...], bool], str | None] = field(
        default_factory=dict[tuple[tuple[str, ...], bool], str | None]
    )
    """What `_why_protected` has said already."""

    def judge(self) -> Permission:
        analysis = self.analysis
        for command in analysis.commands:
            for effect in command.effects:
                if command.links is not Links.NONE and effect.access is Access.WRITE and not effect.is_source:
                    paths = self.paths.of(effect)
                    makers = self._link_makers.setdefault(paths[0] if paths else None, [])
                    # Two tell that there is another one than the command that is asked about.
                    if len(makers) < 2 and command not in makers:
                        makers.append(command)
        parts = [Part("", self._verdict_on_doubt, doubt) for doubt in analysis.doubts]
        parts += [self._judge_command(command) for command in analysis.commands]
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
            waiver=Waiver(tuple(dict.fromkeys(self._auto_run_files)), analysis.only_git_changes, analysis.is_read_only),
        )

    def _judge_command(self, command: SubCommand) -> Part:
        """The strictest of what is said of the command itself and of all that it touches."""
        said = [self._judge_words(command)]
        for effect in command.effects:
            said += self._judge_effect(effect, command)
        if command.may_read_unnamed:
            said += self._unknown_reading(command)
        for effect in command.possible:
            said += self._judge_possible(effect, command)
        return summed(command.source, said)

    def _judge_words(self, command: SubCommand) -> Part:
        source, text = command.source, command.text
        for rule in self.rules.strict:
            if any(rule.fits_command(called) for called in (text, *command.spellings)):
                return Part(source, rule.verdict, str(rule), setting=rule.source)
        for rule in self.rules.strict:
            if not isinstance(rule.specifier, CommandSpecifier):
                continue
            fixed, star, behind = rule.specifier.pattern.partition(ANYTHING)
            if any(
                fixed.startswith(beginning) or (star and behind and beginning.startswith(fixed))
                for beginning in command.open_beginnings
            ):
                return Part(source, Verdict.ASK, f"it is not known whether it is what the {rule} is about")
        core = self.rules.core_commands()
        if core and not any(rule.fits_command(text) for rule in core):
            return Part(source, Verdict.DENY, f"'{text}' is not among the commands of {CORE}", setting=CORE)
        if command.doubts:
            return Part(source, self._verdict_on_doubt, "; ".join(command.doubts))
        allowing = [rule for rule in self.rules.allow if rule.fits_command(text)]
        # A rule allows options that are asked about only where it names them.
        if command.options and not any(
            isinstance(rule.specifier, CommandSpecifier)
            and all(use.is_named_in(rule.specifier.pattern) for use in command.options)
            for rule in allowing
        ):
            reasons = "; ".join(use.reason for use in command.options[:MAX_REASONS])
            return Part(source, self._verdict_on_doubt, reasons)
        if allowing:
            return Part(source, Verdict.ALLOW, str(allowing[0]))
        if command.is_read_only:
            return Part(source, Verdict.ALLOW, "it only reads")
        if self.mode is ApprovalMode.YOLO:
            return Part(source, Verdict.ALLOW, "approval mode yolo")
        scope = command.scope
        grants = (Grant(f"Bash({scope} *)", f"'{scope} ...'"),) if scope else ()
        return Part(source, Verdict.ASK, f"'{text}' may change something", grants)

    def _judge_effect(self, effect: Effect, command: SubCommand) -> Iterator[Part]:
        if effect.access is Access.FETCH:
            yield from self._judge_host(effect.target, command)
            return
        paths = self.paths.of(effect)
        if not paths:
            yield from self._judge_unknown_path(effect, command)
            yield from self._judge_beginning(effect, command.source)
        elif paths[0] not in HARMLESS_FILES:
            yield from self._judge_path(effect, paths, command)
            yield from self._judge_links(effect, paths, command)

    def _judge_possible(self, effect: Effect, command: SubCommand) -> Iterator[Part]:
        """What is said of something that a word of a command may name.

        A word may as well be none of it. So a file counts that is there, and one that a rule or a list is about.
        """
        if effect.access is Access.FETCH:
            yield from self._judge_host(effect.target, command)
            return
        paths = self.paths.of(effect)
        if effect.access is Access.WRITE:
            yield from self._judge_beginning(effect, command.source)
            paths = paths or self.paths.possible(effect)
            yield from self._narrow_rules(paths, Access.WRITE, command)
            if paths and (why := self._why_protected(paths, by_name=True)) is not None:
                self._auto_run_files.append(paths[-1])
                yield Part(command.source, Verdict.ASK, f"it may write {paths[0]}: {why}")
        elif command.is_read_only:
            if not paths or os.path.lexists(paths[0]):
                yield from self._judge_effect(effect, command)
        elif not paths:
            yield from self._narrow_rules(self.paths.possible(effect), Access.READ, command)
        elif os.path.lexists(paths[0]):
            yield from self._rules_about(effect.access, paths, command)

    def _judge_host(self, host: str | None, command: SubCommand) -> Iterator[Part]:
        if host is None:
            yield from self._unknown_target(Access.FETCH, "which hosts it will reach", command)
            return
        for rule in self.rules.strict:
            if rule.governs(Access.FETCH) and rule.fits_host(host):
                yield Part(command.source, rule.verdict, str(rule), setting=rule.source)

    def _judge_unknown_path(self, effect: Effect, command: SubCommand) -> Iterator[Part]:
        source, what = command.source, f"which files it will {effect.access}"
        is_writing = effect.access is Access.WRITE
        yield from self._unknown_target(effect.access, what, command)
        if is_writing and effect.is_named and not auto_run_files.is_data(effect.target or effect.name_end):
            said = "it is not known which file it will write, and it may be one that makes other programs run something"
            yield Part(source, Verdict.ASK, said)
        if is_writing and (effect.is_open or effect.target is not None):
            yield from self._writing_outside(effect, command, "what is not known, and may lie", ())
        if effect.is_redirection:
            yield Part(source, self._ask_unless_yolo, f"it is not known which file it will {effect.access}")
        elif effect.access is Access.READ and not command.lists_names:
            yield from self._unknown_reading(command)
        if is_writing and not effect.beginning:
            # The server's own settings may lie in the workspace.
            why = self.guarded.why_among(self.workspace.roots, effect.ending)
            if why is not None:
                yield Part(source, Verdict.ASK, f"it is not known which file it will write: {why}")

    def _judge_beginning(self, effect: Effect, source: str) -> Iterator[Part]:
        """What is said of something that is not known, in a folder that is."""
        is_writing = effect.access is Access.WRITE
        if self.paths.is_of_a_process(effect):
            verdict = Verdict.ASK if is_writing else self._ask_unless_yolo
            yield Part(source, verdict, f"it {effect.access}s what a process has open")
        if is_writing and effect.ending and (why := why_protected(effect.ending)) is not None:
            yield Part(source, Verdict.ASK, f"it writes {effect.ending}: {why}")
        if is_writing and (folder := self.paths.folder_of(effect)) is not None:
            home = self.paths.home
            if folder in (os.sep, home, *(os.path.join(home, name) for name in auto_run_files.HOLDING_FOLDERS)):
                why = "programs start what lies there"
            else:
                why = self._why_protected((folder, os.path.join(folder, "x")))
            if why is not None:
                yield Part(source, Verdict.ASK, f"it writes in {folder}: {why}")

    def _judge_path(self, effect: Effect, paths: tuple[str, ...], command: SubCommand) -> Iterator[Part]:
        source, access, reach = command.source, effect.access, effect.reach
        is_writing = access is Access.WRITE
        # No allow rule shows what is hidden from agents, or lets auto-run files be written.
        yield from self._rules_about(access, paths, command)
        if reach in (Reach.STORED, Reach.NAMED):
            may_be_folder = not os.path.isfile(paths[-1])  # what is stored as a folder need not be there
        else:
            may_be_folder = reach is not Reach.ITSELF and os.path.isdir(paths[-1])
        if (not effect.is_source or command.links is Links.MADE) and may_be_folder and not command.lists_names:
            what = f"which files in {paths[-1]} it will {access}"
            # Another part of the whole may put something there.
            is_as_now = self.analysis.is_read_only and reach is Reach.BELOW
            yield from self._unknown_target(access, what, command, paths[-1], is_as_now=is_as_now)
        if is_writing and (why := self._why_protected(paths)) is not None:
            self._auto_run_files.append(paths[-1])
            yield Part(source, Verdict.ASK, f"it writes {paths[0]}: {why}")
        if effect.is_source:
            return
        if is_writing and (below := self._first_moved(effect, paths[-1], command)) is not None:
            self._auto_run_files.append(paths[-1])
            yield Part(source, Verdict.ASK, f"it removes or moves {below[0]}: {below[1]}")
        if reach in TAKEN and is_inside(paths[0], self.workspace.roots):
            taken = first_taken(self.workspace, paths[0], reach, lambda file: self._why_protected((file,)))
            if taken is not None:
                self._auto_run_files.append(taken[0])
                yield Part(source, Verdict.ASK, f"it writes or removes {taken[0]}: {taken[1]}")
        allowing = (rule for rule in self.rules.allow if rule.governs(access))
        if any(rule.fits_path(paths[-1:], self.workspace.roots) for rule in allowing):
            return
        lies_inside = is_inside(paths[-1], self.workspace.roots)
        literal = literal_path(paths[-1])
        rule_name, title = ("Edit", "edits of") if is_writing else ("Read", "reading")
        grants = () if literal is None else (Grant(f"{rule_name}({literal})", f"{title} {paths[-1]}"),)
        if access is Access.READ:
            if not lies_inside and self._allowed_by(command) is None:
                said = f"it reads {paths[0]}, which lies outside the workspace"
                yield Part(source, self._ask_unless_yolo, said, grants)
        elif not effect.is_redirection:
            if not lies_inside:
                yield from self._writing_outside(effect, command, paths[0], grants)
        elif paths[0].startswith(NEW_FILE):
            yield Part(source, self._ask_unless_yolo, "it writes a new file, which lies outside the workspace")
        elif not lies_inside and self.mode is not ApprovalMode.YOLO:
            said = f"its output would be written to {paths[0]}, outside the workspace"
            yield Part(source, Verdict.DENY, said, grants)
        elif self.mode is not ApprovalMode.AUTO_EDIT:
            yield Part(source, self._ask_unless_yolo, f"it writes {paths[0]}", grants)

    def _first_moved(self, effect: Effect, folder: str, command: SubCommand) -> tuple[str, str] | None:
        """The first auto-run file or folder in a folder that is removed, or moved elsewhere, and why it is one."""
        program = os.path.basename(command.words[0]) if command.words else ""
        is_moved = program == "mv" and any(
            other.access is Access.READ and other.target == effect.target for other in command.effects
        )
        # An empty name is that of nothing.
        if not effect.target or not (is_moved or program in ("rm", "rmdir", "trash")):
            return None
        if (
            not is_inside(folder, self.workspace.roots)
            or os.path.basename(folder) in auto_run_files.FETCHED_FOLDERS
            or not os.path.isdir(folder)
        ):
            return None
        return first_below(folder, lambda path: self._why_protected((path,)))

    def _judge_links(self, effect: Effect, paths: tuple[str, ...], command: SubCommand) -> Iterator[Part]:
        """What is said of a path through a link that another part of the whole may make."""
        if not self._link_makers:
            return
        makers = self._link_makers.get(None, ()) if is_inside(paths[0], self.workspace.roots) else ()
        found = {Links.MAYBE for maker in makers if maker is not command}
        path = paths[0]
        while True:
            found |= {maker.links for maker in self._link_makers.get(path, ()) if maker is not command}
            if path == (path := os.path.dirname(path)):
                break
        links = max(found, key=list(Links).index, default=Links.NONE)
        if links is Links.NONE:
            return
        said = f"where {paths[0]} leads is not known, as another part may make a link on the way"
        yield from self._unknown_target(effect.access, f"which files it will {effect.access}", command)
        if effect.access is Access.WRITE:
            yield Part(command.source, Verdict.ASK if links is Links.MADE else self._ask_unless_yolo, said)
        elif not command.lists_names and self._allowed_by(command) is None:
            yield Part(command.source, self._ask_unless_yolo, said)

    def _rules_about(self, access: Access, paths: Sequence[str], command: SubCommand) -> Iterator[Part]:
        """What is said of reading or writing a file that goes by these paths, by rules and by agent-ignore files."""
        for rule in self.rules.strict:
            if rule.governs(access) and rule.fits_path(paths, self.workspace.roots):
                yield Part(command.source, rule.verdict, str(rule), setting=rule.source)
        if access is Access.READ:
            if (why := self._why_hidden(paths[-1])) is not None:
                yield Part(command.source, Verdict.ASK, f"it reads {paths[0]}, {why}")
            yield from self._reading_stored(paths, command)

    def _narrow_rules(self, paths: Sequence[str], access: Access, command: SubCommand) -> Iterator[Part]:
        """What rules about some paths say of a file that is perhaps touched."""
        for rule in self.rules.strict if paths else ():
            if rule.specifier is not None and rule.governs(access) and rule.fits_path(paths, self.workspace.roots):
                said = f"it may {access} {paths[0]}, and there is the {rule}"
                yield Part(command.source, Verdict.ASK, said, setting=rule.source)
        if access is Access.READ:
            yield from self._reading_stored(paths, command)
            for path in paths:
                if (why := self._why_hidden(path)) is not None:
                    yield Part(command.source, Verdict.ASK, f"it may read {path}, {why}")

    def _reading_stored(self, paths: Sequence[str], command: SubCommand) -> Iterator[Part]:
        """What is said of reading what git has stored: it may be of any file of the repository."""
        top = next((top for path in paths if (top := repository_stored_at(path)) is not None), None)
        if top is not None and not command.lists_names:
            yield from self._unknown_target(Access.READ, f"which files are stored at {paths[0]}", command, top)

    def _unknown_target(
        self, access: Access, what: str, command: SubCommand, folder: str | None = None, *, is_as_now: bool = False
    ) -> Iterator[Part]:
        """What cannot be known may be what a rule is about, or hidden from agents.

        It lies in `folder` for certain, an absolute path, if that is known, and may be read as it lies there now.
        """
        roots = self.workspace.roots
        narrow = [rule for rule in self.rules.strict if rule.specifier is not None and rule.governs(access)]
        if is_as_now and folder is not None:
            narrow = rules_about_what_is_in(folder, narrow, roots)
        if narrow:
            yield Part(command.source, Verdict.ASK, f"it is not known {what}, and there is the {narrow[0]}")
        if access is not Access.READ or command.lists_names or self.mode is ApprovalMode.YOLO:
            return
        start = folder or os.sep
        folders = [start] if any(contains(root, start) for root in roots) else []
        folders += [root for root in roots if contains(start, root)]
        try:
            found = (
                agent_ignore_file_below(self.workspace, self.workspace.at(path), is_as_now=is_as_now)
                for path in folders
            )
            hidden_by = next((name for name in found if name is not None), None)
        except ToolError:
            hidden_by = "an agent-ignore file that cannot be read"
        if hidden_by is not None:
            said = f"it is not known {what}, and {hidden_by} hides files from agents"
            yield Part(command.source, Verdict.ASK, said)

    def _unknown_reading(self, command: SubCommand) -> Iterator[Part]:
        if self._allowed_by(command) is None:
            yield Part(command.source, self._ask_unless_yolo, "it is not known which files it will read")

    def _writing_outside(
        self, effect: Effect, command: SubCommand, what: str, grants: tuple[Grant, ...]
    ) -> Iterator[Part]:
        """A rule that allows a program is about the workspace, unless it names the very file."""
        if self.mode is ApprovalMode.YOLO or (rule := self._allowed_by(command)) is None:
            return
        named = rule.specifier.pattern.split() if isinstance(rule.specifier, CommandSpecifier) else ()
        target = effect.target
        if target is None or not {target, os.path.dirname(target)} & set(named):
            yield Part(command.source, Verdict.ASK, f"it writes {what} outside the workspace", grants)

    def _why_hidden(self, path: str) -> str | None:
        """Why agents are not to see what lies at an absolute path; in the mode that asks nothing commands show it."""
        if self.mode is ApprovalMode.YOLO or not is_inside(path, self.workspace.roots):
            return None
        try:
            hidden_by = agent_ignore_file(self.workspace, self.workspace.at(path))
        except ToolError:
            return "of which it is not known whether it is hidden from agents"
        return f"which {hidden_by} hides from agents" if hidden_by else None

    def _why_protected(self, paths: tuple[str, ...], *, by_name: bool = False) -> str | None:
        """Why a file may not be written without a question by all of its absolute paths, or `None`.

        By name, it does not count that a path lies in a folder of the system.
        """
        if (paths, by_name) not in self._reasons:
            self._reasons[paths, by_name] = self._reason_to_protect(paths, by_name=by_name)
        return self._reasons[paths, by_name]

    def _reason_to_protect(self, paths: tuple[str, ...], *, by_name: bool) -> str | None:
        roots, home = self.workspace.roots, self.paths.home
        # A word that names the whole workspace does not mean the server's settings in it.
        named = [path for path in paths if not by_name or not any(contains(path, root) for root in roots)]
        if (why := self.guarded.why(named)) is not None:
            return why
        for path in paths:
            if is_inside(path, self.workspace.roots):
                why = why_protected(self.workspace.at(path).relative)
            elif contains(home, path):
                why = why_protected(os.path.relpath(path, home))
            else:
                why = (None if by_name else why_system_protected(path)) or why_protected(path)
            if why is not None:
                return why
        return None

    def _allowed_by(self, command: SubCommand) -> Rule | None:
        return next((rule for rule in self.rules.allow if rule.fits_command(command.text)), None)

    @property
    def _ask_unless_yolo(self) -> Verdict:
        """What needs consent runs all the same where the operator has switched questions off."""
        return Verdict.ALLOW if self.mode is ApprovalMode.YOLO else Verdict.ASK

    @property
    def _verdict_on_doubt(self) -> Verdict:
        """What is not understood may be what a rule forbids, and then no mode lets it pass."""
        is_open = self.mode is ApprovalMode.YOLO and all(rule.specifier is None for rule in self.rules.strict)
        return Verdict.ALLOW if is_open else Verdict.ASK
