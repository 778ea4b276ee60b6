"""Decides whether a shell command may run, and in which view of the machine.

The words decide which rule applies and what a person is asked; the view limits the command even if they were
misunderstood. Without a sandbox, only a short list of read-only commands runs without consent, unless a rule or the
mode allows more.

    denied by a rule                            refused
    only reads                                  reading view; needs consent if it names a path outside the workspace
    anything else in plan mode                  refused
    allowed by a rule                           working view
    names an auto-run file, a hidden file or
    a path outside the workspace                needs consent, which gives access to the path
    needs the network                           needs consent, which gives it network access
    any other                                   working view; needs consent unless the mode or a setting allows it
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tools.contract.call_options import ApprovalMode
from tools.contract.command_views import CommandView, Engine, FileRestrictions, Network, ViewKind
from tools.contract.permission_subjects import Access, CommandSubject, Needs
from tools.contract.tool_errors import ExecutionDeniedError, sandbox_unavailable
from tools.files.workspace import SCRATCH_NAME, Workspace, contains, is_inside, resolve_links
from tools.machine.unlocked_cached_property import cached_property
from tools.permissions import tool_names
from tools.permissions.command_paths import PRIVATE_FOLDERS, STREAMS, CommandPaths, NamedPath, why_in_scratch
from tools.permissions.command_rules import rule_about, rule_that_may_be_about
from tools.permissions.command_text import (
    CommandText,
    SimpleCommand,
    Words,
    joined,
    programs_run_by,
    read_command,
    syntax_error,
)
from tools.permissions.git_repositories import repositories_outside, runs_programs, work_tree_above
from tools.permissions.hidden_files import (
    ANY_NAME,
    HiddenFiles,
    HiddenFileScanner,
    LiftedLimits,
    remaining_parts,
    restrictions,
)
from tools.permissions.known_commands import (
    changes_by_git_alone,
    changes_scratch_alone,
    compares_folders,
    first_words,
    folder_of_git,
    is_on_short_list,
    is_reader,
    may_search_own_folder,
    needs_network,
    searches_folders,
    without_git_options,
)
from tools.permissions.permission_rules import (
    ANYTHING,
    CORE,
    PathSpecifier,
    Rule,
    Rules,
    literal_path,
)
from tools.permissions.protected_files import GuardedPaths
from tools.permissions.verdict import PLAN_MODE, Grant, Permission, Verdict, VerdictPart
from tools.text.file_names import shown_path

# Git commands that need consent, because they change git's settings, which are read-only for all other commands
_GIT_CHANGES_SETTINGS = ("config", "remote", "submodule", "worktree")
# Git commands whose options `-m` and `--message` take a message
_WITH_MESSAGE = (("git", "commit"), ("git", "tag"), ("git", "merge"))
_RUNS_MORE = "bash may run more than the command's words show"
_NAME_ITS_FOLDER = (
    "Write to the workspace or /tmp. Or name the file's folder in the command, unless that folder belongs to the "
    "system, or contains the home folder or the workspace."
)


@dataclass(frozen=True, slots=True)
class PolicyRequest:
    """A command, and the other facts on which the decision about it depends."""

    command: CommandSubject
    rules_now: Callable[[], Rules]  # returns the current rules, which may change before the command starts
    mode: ApprovalMode
    workspace: Workspace
    guarded_paths: GuardedPaths
    scanner: HiddenFileScanner
    home: str
    is_sandboxed: bool  # whether every command that stays in the sandbox runs without consent

    def hidden_files(self, rules: Rules) -> HiddenFiles:
        """Find the files that are now hidden from commands. In yolo mode, agent-ignore files hide nothing."""
        hidden_files = self.scanner.scan(self.workspace, rules)
        if self.mode is not ApprovalMode.YOLO:
            return hidden_files
        return replace(hidden_files, ignored=(), problem=hidden_files.problem if rules.are_about_files else "")


def judge_command(request: PolicyRequest) -> Permission:
    """Decide about a shell command. Blocking, because it resolves paths and looks for hidden files."""
    return _CommandPolicy(request, read_command(request.command.command)).judge()


@dataclass(slots=True)
class _Question:
    """The reasons to ask about a command, and what consent gives it access to."""

    reasons: dict[str, None] = field(default_factory=dict[str, None])
    settings: dict[str, None] = field(default_factory=dict[str, None])  # settings whose ask rules apply to the command
    refusal: str = ""  # why nobody can allow the command; empty if consent can allow it
    # Whether the command may change this server's own settings, trust record, lock file, audit log or stored data
    is_guarded: bool = False
    # Whether consent gives access to more than the usual view, so that no allow rule can replace consent
    widens_access: bool = False
    remarks: dict[str, None] = field(default_factory=dict[str, None])  # what consent does not include
    seen: dict[str, None] = field(default_factory=dict[str, None])
    writable: dict[str, None] = field(default_factory=dict[str, None])
    outside: dict[str, None] = field(default_factory=dict[str, None])  # paths outside the workspace that need consent
    lifted: LiftedLimits = field(default_factory=LiftedLimits)  # the limits that consent lifts
    grants: dict[Grant, None] = field(default_factory=dict[Grant, None])

    def add(self, reason: str, setting: str = "", *, widens_access: bool = False) -> None:
        self.reasons[reason] = None
        self.widens_access = self.widens_access or widens_access
        if setting:
            self.settings[setting] = None


class _CommandPolicy:
    def __init__(self, request: PolicyRequest, text: CommandText) -> None:
        self._request = request
        self._text = text
        self._all_commands = (*text.commands, *text.inner)
        self._paths = CommandPaths(request.command, text, request.workspace, request.home)
        self._rules = request.rules_now()
        self._site = request.command.site
        self._roots = request.workspace.roots
        self._is_plan = request.mode is ApprovalMode.PLAN
        self._is_yolo = request.mode is ApprovalMode.YOLO
        self._has_bubblewrap = self._site.engine is Engine.BUBBLEWRAP

    def judge(self) -> Permission:
        """Return the decision of the first step that makes one."""
        if (refusal := self._refusal()) is not None:
            return refusal
        if self._is_plan and (not self._is_reading or self._needs_network):
            return self._permission(Verdict.DENY, PLAN_MODE.reason, way_out=PLAN_MODE.way_out)
        question = self._collect_reasons()
        if question.refusal:
            return self._permission(Verdict.DENY, question.refusal, way_out=_NAME_ITS_FOLDER)
        exemption, is_asked_anyway = self._exemption(), bool(question.reasons) or self._needs_network
        if not exemption:
            self._ask_about_changes(question)
        network = self._network(question)
        if isinstance(network, Permission):
            return network
        view = self._view(network, question)
        if not question.reasons:
            view = self._with_restrictions(view, LiftedLimits())
            return replace(self._permission(Verdict.ALLOW, exemption), view=view)
        # The client's own dialog does not show what consent gives access to, so consent given there gives no access to
        # hidden files, auto-run files or git's settings.
        seen = tuple(path for path in view.seen if path in question.outside)
        writable = tuple(path for path in view.writable if path in question.outside)
        is_git = view.is_git and view.kind is ViewKind.READING
        dialog_view = replace(view, seen=seen, writable=writable, is_git=is_git, is_asked=False)
        is_explicit = bool(question.settings)
        may_last = not (is_explicit or question.widens_access)
        reason = "; ".join((*question.reasons, *question.remarks))
        return replace(
            self._permission(Verdict.ASK, reason, setting=" and ".join(question.settings)),
            grants=tuple(question.grants) if may_last else (),
            is_explicit=is_explicit,
            no_rule_allows=question.widens_access,
            is_guarded=question.is_guarded,
            view=self._with_restrictions(view, question.lifted),
            dialog_view=self._with_restrictions(dialog_view, LiftedLimits()),
            offers_sandboxed=self._has_bubblewrap and not (exemption or is_asked_anyway or self._must_be_asked),
        )

    def _exemption(self) -> str:
        """Return why the command may run without consent, or an empty string. Even so, there can be reasons to ask."""
        if self._is_reading:
            return "it is known to be read-only" if self._site.engine is Engine.NONE else "it only reads"
        if self._allowing_rules and not self._must_be_asked:
            return "; ".join(dict.fromkeys(map(str, self._allowing_rules.values())))
        if self._is_yolo:
            return "approval mode yolo"
        if self._request.is_sandboxed and self._has_bubblewrap and not self._must_be_asked:
            return "every command that stays in the sandbox may run"
        return ""

    def _refusal(self) -> Permission | None:
        for command in self._all_commands:
            if (rule := rule_about(command, self._rules.deny)) is not None:
                return self._permission(Verdict.DENY, str(rule), setting=rule.source, source=command.source)
        core = self._rules.core_commands()
        for command in self._text.commands if core else ():
            text = joined(command.words)
            if not any(rule.fits_command(text) for rule in core):
                reason = f"'{command.source}' is not among the commands that {CORE} allows"
                return self._permission(Verdict.DENY, reason, setting=CORE, source=command.source)
        for rule in self._rules.deny:
            if rule.specifier is None and rule.governs(Access.READ):
                return self._permission(Verdict.DENY, f"{rule}: any command can read files", setting=rule.source)
        if self._hidden.problem_of_deny:
            setting = next((file.setting for file in self._hidden.denied), "permissions.deny")
            reason = f"a rule in {setting} hides or protects files, but the sandbox cannot enforce it"
            return self._permission(Verdict.DENY, f"{reason}: {self._hidden.problem}", setting=setting)
        for named_path in self._paths.named_paths:
            for rule in self._rules_about(self._rules.deny, named_path):
                return self._permission(Verdict.DENY, f"{rule}: it names {named_path.word}", setting=rule.source)
        if self._paths.are_too_many and not self._has_bubblewrap:  # only the words show what is read and written
            for rule in self._rules.deny:
                if rule.governs(Access.READ) or rule.governs(Access.WRITE):
                    reason = f"{rule}: the command may name more paths than can be judged"
                    return self._permission(Verdict.DENY, reason, setting=rule.source, way_out="Name fewer paths.")
        if self._text.doubt and (error := syntax_error(self._request.command.command)):
            return self._permission(Verdict.DENY, f"bash cannot run it: {error}", way_out="Correct the command.")
        return None

    # Questions

    def _collect_reasons(self) -> _Question:
        """Collect the reasons to ask that apply even if `_exemption` would let the command run without consent."""
        question, guarded_paths = _Question(), self._request.guarded_paths
        # A command that a rule allows runs in the usual view without a question. A caller who wants more sets `needs`.
        is_allowed = self._allowing_rules and self._has_bubblewrap and self._request.command.needs is not Needs.WRITE
        self._ask_about_words(question)
        for rule in self._rules.ask:
            if rule.specifier is None and rule.governs(Access.READ):
                question.add(f"{rule}: any command can read files", rule.source)
        for named_path in self._paths.named_paths:
            self._ask_by_rules(question, named_path, "names")
            for file in self._hidden.asked:  # also files that the rule reaches through a link
                if contains(file.path, named_path.real_path) and named_path.real_path not in question.lifted.asked:
                    question.add(f"{file.reason}: it names {named_path.path}", file.setting)
                    self._lift_limits(question, named_path, reads=True, edits=False)
            # No rule can allow writing the server's own files, and mounts cannot protect symlinks to them.
            is_around = any(contains(named_path.path, root) for root in self._roots)
            can_change, paths = named_path.may_be_written and not is_around, (named_path.path, named_path.real_path)
            if can_change and (reason := guarded_paths.why(paths)) is not None:
                question.add(f"it names {named_path.path}: {reason}", widens_access=True)
                question.is_guarded = True
                question.writable[named_path.real_path] = None
            elif not (named_path.is_program or is_allowed):
                self._ask_about_path(question, named_path)
        if self._paths.are_too_many:
            question.add("it may name more paths than can be judged", widens_access=True)
        is_changing = self._has_bubblewrap and not self._is_reading
        if is_changing and (reason := guarded_paths.why_not_held(self._roots)):
            question.add(reason, widens_access=True)
            question.is_guarded = True
        self._ask_about_hidden(question)
        return question

    def _ask_by_rules(self, question: _Question, named_path: NamedPath, action: str) -> None:
        for rule in self._rules_about(self._rules.ask, named_path):
            question.add(f"{rule}: it {action} {named_path.path}", rule.source)
            reads, edits = rule.governs(Access.READ), rule.governs(Access.WRITE)
            self._lift_limits(question, named_path, reads=reads, edits=edits)

    def _lift_limits(self, question: _Question, named_path: NamedPath, *, reads: bool, edits: bool) -> None:
        """If a path exists or is in the workspace, let consent open it and lift the limits of ask rules about it.

        No consent makes system folders writable, or folders that contain the home folder or a workspace folder.
        """
        path = named_path.real_path
        can_be_written = is_inside(path, self._roots) or self._paths.can_be_writable(named_path)
        if named_path.is_written and not can_be_written:
            return
        if is_inside(path, self._roots) or os.path.lexists(path):
            to_write = (not self._is_reading or named_path.is_written) and can_be_written
            (question.writable if to_write else question.seen)[path] = None
            if reads:
                question.lifted.asked.add(path)
            if edits:
                question.lifted.protected.add(path)

    def _ask_about_words(self, question: _Question) -> None:
        text = self._text
        is_about_commands = any(rule.is_about_commands for rule in self._rules.strict)
        for command in self._all_commands:
            if (rule := rule_about(command, self._rules.ask)) is not None:
                question.add(str(rule), rule.source)
            elif is_about_commands:
                # A function may also be called `git`, and run its arguments.
                has_message = text.is_literal and command.words[:2] in _WITH_MESSAGE
                rule = rule_that_may_be_about(command, self._rules.strict, has_message=has_message)
                if rule is not None:
                    question.add(f"the {rule} may apply to it", widens_access=True)
        doubt = text.doubt or (_RUNS_MORE if text.may_run_more else "")
        if doubt and is_about_commands:
            question.add(f"{doubt}, so it is unclear which rules about commands apply", widens_access=True)
        if self._has_bubblewrap and not self._is_reading:
            for words, folder in self._git_commands:
                if not is_reader(words):
                    self._ask_about_git(question, words, folder)

    def _ask_about_git(self, question: _Question, words: Words, start: str | None) -> None:
        """Ask about a git command that changes git's settings, or a repository outside or around the workspace."""
        arguments = without_git_options(words[1:])
        if self._is_git_alone and arguments[:1] and arguments[0] in _GIT_CHANGES_SETTINGS:
            question.add(f"'git {arguments[0]}' changes git's own settings", widens_access=True)
        folder = self._paths.absolute(folder_of_git(words), start)
        if folder is None or (os.path.lexists(inner := self._paths.in_scratch(folder)) and inner != folder):
            return  # the folder is in the command's own `/tmp`
        # Make the repository writable, because git could not change it otherwise.
        for path in repositories_outside(folder, self._roots):
            if contains(path, self._paths.real_home) or path == SCRATCH_NAME or self._stays_unchanged(path):
                continue
            question.writable[path] = None
            is_around = any(contains(path, root) for root in self._roots)
            if not is_around:  # consent to all of it would lift limits on the workspace's own files
                self._ask_by_rules(question, NamedPath(path, path, "", may_be_written=True), "changes")
            if not self._is_allowed_path(path, Access.WRITE):
                relation = "contains" if is_around else "is outside"
                repository = f"the repository {shown_path(path)}, which {relation} the workspace"
                question.add(f"it works in {repository}", widens_access=True)

    def _ask_about_path(self, question: _Question, named_path: NamedPath) -> None:
        path, real_path = named_path.path, named_path.real_path
        for file in self._hidden.ignored:
            if contains(file.path, real_path):
                question.add(f"it names {path}, which {file.reason} hides from agents", widens_access=True)
                # Make the whole hidden folder readable if it contains too many other entries to hide one by one.
                parts = remaining_parts(file, (real_path,))
                visible_path = next((part.path for part in parts if contains(part.path, real_path)), real_path)
                question.seen[visible_path] = None
                question.lifted.ignored.add(visible_path)
                break
        in_workspace = is_inside(real_path, self._roots)
        in_scratch = self._has_bubblewrap and contains(SCRATCH_NAME, path) and not in_workspace
        # Without bubblewrap, a command can also create the path.
        may_exist = in_scratch or in_workspace or not self._has_bubblewrap or os.path.lexists(path)
        if named_path.may_be_written and may_exist and (reason := self._paths.why_protected(named_path)) is not None:
            question.add(f"it names {path}: {reason}", widens_access=True)
            if not in_scratch:  # the scratch folder is always writable
                question.writable[real_path] = None
            return
        # A command in the working view sees paths outside the workspace even without consent.
        is_shown = not self._is_reading and self._has_bubblewrap and not named_path.may_be_written
        is_shown = is_shown or self._is_own_output(named_path)
        if not is_shown and not (self._is_yolo and self._is_reading) and self._paths.is_outside(named_path):
            self._ask_about_outside(question, named_path)

    def _is_own_output(self, named_path: NamedPath) -> bool:
        """Return True if a path is an output that the client has already got. Any command may read it.

        The folder with all outputs does not count if there are rules about files, because none is applied inside it.
        """
        is_ruled = self._rules.are_about_files and named_path.real_path in self._site.outputs
        return is_inside(named_path.real_path, self._site.outputs) and not (named_path.is_written or is_ruled)

    def _ask_about_outside(self, question: _Question, named_path: NamedPath) -> None:
        name, real_path = named_path.path, named_path.real_path
        stays = named_path.may_be_written and self._has_bubblewrap and not self._is_reading
        if is_inside(real_path, question.writable) or (stays and self._stays_unchanged(real_path)):
            return
        may_write, is_absent = named_path.may_be_written, not os.path.lexists(name)
        can_be_written = may_write and self._paths.can_be_writable(named_path)
        if named_path.is_written and self._has_bubblewrap and (is_absent or not can_be_written):
            reason = "can never be made writable for a command" if not can_be_written else "does not exist"
            question.refusal = f"it would write {name}, which is outside the workspace and {reason}"
            return
        if is_absent and not (may_write and named_path.is_new_work_tree):  # the word may not even be a path
            if may_write and self._has_bubblewrap and not is_inside(name, PRIVATE_FOLDERS):
                limit = "outside the workspace, approval covers only existing paths"
                question.remarks[f"{limit}, so the command cannot create {name}"] = None
            return
        path = os.path.join(real_path, "") if is_absent else real_path  # a trailing separator: a folder to be created
        if can_be_written and self._has_bubblewrap and not is_absent:
            question.remarks[f"it can change {name}, but not remove it"] = None
        (question.writable if can_be_written else question.seen)[path] = None
        if self._is_allowed_path(real_path, Access.WRITE if may_write else Access.READ):
            return
        question.add(f"it names {name}, which is outside the workspace", widens_access=may_write)
        question.outside[path] = None
        is_whole = os.path.dirname(real_path) == os.sep or contains(real_path, self._paths.real_home)
        if not (may_write or is_whole) and (literal := literal_path(real_path)) is not None:
            question.grants[Grant(f"Read({literal})", f"reading {name}")] = None

    def _ask_about_hidden(self, question: _Question) -> None:
        if self._hidden.problem:
            reason = "some files must be hidden or protected from commands, but that cannot be enforced"
            question.add(f"{reason}: {self._hidden.problem}", widens_access=True)
        is_hiding = bool(self._hidden.unreadable)
        if self._has_bubblewrap:
            in_background = self._request.command.is_background or self._text.has_background
            if is_hiding and self._is_reading and in_background:
                reason = "it keeps running in the background, so it could read a hidden file that is replaced later"
                question.add(reason, widens_access=True)
            if self._uses_git and self._stores:
                question.add("git history contains hidden files, and git can show them", widens_access=True)
            return
        is_landlock = self._site.engine is Engine.LANDLOCK
        visible_paths = (*self._site.shown, *self._roots)
        if is_landlock and any(contains(path, self._paths.real_home) for path in visible_paths):
            reason = "it would see the home folder, where nothing can be hidden without bubblewrap"
            question.add(reason, widens_access=True)
        real_paths = {
            named_path.real_path
            for named_path in self._paths.named_paths
            if not named_path.is_program and os.path.lexists(named_path.real_path)
        }
        folders: set[str] = set()  # folders in which a command may read files that it does not name
        for command in self._all_commands:
            starts = (command.folder, *self._text.folders)
            own_folders = [self._paths.absolute(".", start) or self._request.command.directory for start in starts]
            if searches_folders(command):
                folders |= real_paths
                if not real_paths or may_search_own_folder(command):
                    folders.update(map(resolve_links, own_folders))
            elif compares_folders(command) and not (
                command.program == "git"
                and "--no-index" not in command.words
                and all(map(work_tree_above, own_folders))
            ):
                folders |= real_paths
        is_met = any(contains(folder, file.path) for folder in folders for file in self._hidden.unreadable)
        if is_met or (self._uses_git and self._stores):
            reason = "it may read files that are hidden from commands, and no sandbox prevents that"
            question.add(reason, widens_access=True)
        text = self._text
        is_literal = text.is_literal and not text.may_run_more and None not in text.folders
        if (is_hiding or self._rules.are_about_files) and (is_landlock or not is_literal):
            reason = "without bubblewrap, file rules apply only to paths written out in the command"
            question.add(reason, widens_access=True)

    def _ask_about_changes(self, question: _Question) -> None:
        """Add the reasons to ask about a command that no rule or mode allows, and the rules that would allow it."""
        reasons: list[str] = []
        grants: list[Grant] = []
        changing = [command for command in self._unlisted_commands if not self._reads(command)]
        if self._needs is not None:
            reasons = [f"it asks {'to change files' if self._needs is Needs.WRITE else 'for network access'}"]
        elif self._text.doubt:
            reasons = [self._text.doubt]
        elif self._all_read:  # the command only reads, so its output must be what needs consent
            reasons, grants = self._reasons_about_outputs()
        else:
            for command in changing or self._unlisted_commands:
                effect = "needs the network" if self._is_online(command) else "is not known to be read-only"
                problem = effect if changing else "would run where it can change files"
                name = first_words(command.words) or command.name
                subject = f"'{name}'" if name else "a program whose name is known only when it runs"
                is_of_workspace = self._paths.is_of_workspace(command)
                location = "" if is_of_workspace else ", and may work outside the workspace or use files in /tmp"
                reasons.append(f"{subject} {problem}{location}")
            if self._text.may_run_more:
                reasons = reasons or [_RUNS_MORE]
            else:
                grants = self._grants(self._unlisted_commands)
            # A rule covers the output of the commands that it names, but not that of other commands.
            unlisted_commands = set(self._unlisted_commands)
            listed_commands = (command for command in self._text.commands if command not in unlisted_commands)
            if not (self._writes_freely() or all(map(self._allowing_rule, listed_commands))):
                output_reasons, output_grants = self._reasons_about_outputs()
                reasons, grants = [*reasons, *output_reasons], [*grants, *output_grants]
        if len(grants) >= len(reasons):
            question.grants |= dict.fromkeys(grants)
        if not (reasons or question.reasons):
            named_paths = self._paths.named_paths
            paths = (named_path.path for named_path in named_paths if not is_inside(named_path.real_path, self._roots))
            reasons = ["it is not known to be read-only"]
            if outside_path := next(filter(os.path.lexists, paths), ""):
                reasons = [f"it names {outside_path}, which is outside the workspace"]
        question.reasons = question.reasons or dict.fromkeys(reasons)

    def _reasons_about_outputs(self) -> tuple[list[str], list[Grant]]:
        """Return the reasons to ask about redirections, and the rules that would allow them."""
        reasons: list[str] = []
        grants: list[Grant] = []
        outputs = (redirection for redirection in self._text.redirections if redirection.is_output)
        if any(self._paths.absolute(output.target, output.folder) is None for output in outputs):
            reasons.append("the target of its output is known only when it runs")
        for named_path in self._paths.named_paths:
            if named_path.is_written and named_path.path not in STREAMS:
                reasons.append(f"it writes {named_path.path}")
                is_certain = self._has_bubblewrap and not self._text.folders
                if is_certain and (literal := literal_path(named_path.real_path)) is not None:
                    grants.append(Grant(f"Edit({literal})", f"edits of {named_path.path}"))
        return reasons, grants

    @cached_property
    def _unlisted_commands(self) -> Sequence[SimpleCommand]:
        """The simple commands that neither a rule nor the short list allows."""
        commands = self._text.commands
        return [
            command for command in commands if not (self._allowing_rule(command) or is_on_short_list(command.words))
        ]

    def _grants(self, commands: Sequence[SimpleCommand]) -> list[Grant]:
        """Return rules that would allow these simple commands, or nothing if rules cannot allow all of them."""
        grants: list[Grant] = []
        # The rule may also cover commands that need the network although this one does not (`curl localhost`).
        access = "with network access" if self._needs_network else "also with network access"
        for command in commands:
            scope = first_words(command.words)
            if not (scope and self._paths.is_of_workspace(command)):
                return []
            # Rules cannot allow most subcommands of these git commands (such as `git worktree add`). If the subcommand
            # only reads (`git worktree list`), the rule names it.
            if scope in {f"git {name}" for name in _GIT_CHANGES_SETTINGS} and is_reader(command.words):
                subcommand = "".join(word or "" for word in command.words[2:3])
                scope += f" {subcommand}" if re.fullmatch("[a-z-]+", subcommand) else ""
            network = f" ({access})" if needs_network(tuple(scope.split())) else ""
            grants.append(Grant(f"Bash({scope} *)", f"'{scope} ...'{network}"))
        return grants

    # The view

    def _network(self, question: _Question) -> Network | Permission:
        """Return the network that the command may use, or a refusal. Adds a reason to ask if necessary."""
        site = self._site
        loopback = Network.SESSION_LOOPBACK if site.has_session and not self._is_plan else Network.OWN_LOOPBACK
        host_rules = [rule for rule in self._rules.strict if rule.governs(Access.FETCH)]
        network_commands = [*filter(self._is_online, self._text.commands)]
        if not self._needs_network:
            return Network.HOST if self._is_yolo and site.has_network and not host_rules else loopback
        for rule in host_rules:
            if rule.specifier is None and rule.verdict is Verdict.DENY:
                return self._permission(Verdict.DENY, f"{rule}: it needs the network", setting=rule.source)
        if not site.has_network:
            reason = "it needs the network, which commands may not use here"
            return self._permission(Verdict.DENY, reason, setting="shell.network")
        allowing = [self._allowing_rules.get(command) for command in network_commands]
        are_about_network = bool(allowing) and all(
            rule and needs_network(tuple(rule.command_pattern.partition(ANYTHING)[0].split())) for rule in allowing
        )
        if host_rules:
            problem = "cannot be applied to the hosts that a command contacts"
            question.add(f"it needs the network, but the {host_rules[0]} {problem}", host_rules[0].source)
        elif not (self._is_yolo or are_about_network or question.reasons):
            question.add("it needs the network")
            if self._needs is not Needs.NETWORK:
                commands = dict.fromkeys((*self._unlisted_commands, *network_commands))
                question.grants |= dict.fromkeys(self._grants([*commands]))
        return Network.HOST

    def _view(self, network: Network, question: _Question) -> CommandView:
        """Return the view that the command runs in after any necessary consent."""
        is_asked = bool(question.reasons)
        # A read-only command with network access sees an empty `/tmp`, because nobody was asked about what other
        # commands left in `/tmp`. If the command uses files in `/tmp`, it runs in the working view instead, which has
        # the client's `/tmp`.
        is_online = network is Network.HOST
        reads = self._is_reading and not self._is_yolo and not (is_online and self._paths.names_scratch)
        kind = ViewKind.READING if reads else ViewKind.WORKING
        if not self._has_bubblewrap and (self._site.engine is Engine.NONE or not reads or is_asked):
            if self._site.is_required:
                raise sandbox_unavailable(self._site.failure)
            kind, network = ViewKind.UNCONFINED, Network.HOST
        seen, writable = [*question.seen], [path for path in question.writable if not self._stays_unchanged(path)]
        if kind is ViewKind.READING:
            seen += allowed_reading(self._rules, self._request.home)
            targets = (
                named_path.real_path
                for named_path in self._paths.named_paths
                if named_path.is_written and is_inside(named_path.real_path, self._roots)
            )
            writable += (path for path in targets if not os.path.isdir(path))
            # If there are rules about files, or ignored files, do not show the repository that contains the workspace,
            # because other parts of the repository may also contain files to hide.
            is_hiding = self._rules.are_about_files or self._hidden.ignored
            is_around = any(work_tree_above(root) not in (None, root) for root in self._roots)
            is_git = self._uses_git and not (is_hiding and is_around)
        else:
            is_git = is_asked and self._is_git_alone and not self._paths.runs_private_hooks
        if question.widens_access and self._uses_git:
            seen += self._stores
        unresolved_paths = (
            named_path.path for named_path in self._paths.named_paths if named_path.path != named_path.real_path
        )
        paths = (tuple(dict.fromkeys(group)) for group in (seen, writable, unresolved_paths))
        return CommandView(
            self._site.engine,
            kind,
            network,
            *paths,
            outputs=self._site.outputs if any(map(self._is_own_output, self._paths.named_paths)) else (),
            is_git=is_git,
            is_asked=is_asked,
            is_plan=self._is_plan,
            # If every sandboxed command runs without consent, a command may use what other commands left in `/tmp`.
            has_new_tmp=(kind is ViewKind.READING and is_online)
            or (bool(self._allowing_rules) and not (is_asked or self._is_yolo or self._request.is_sandboxed)),
            may_take_shares=kind is not ViewKind.READING,
        )

    def _with_restrictions(self, view: CommandView, lifted: LiftedLimits) -> CommandView:
        """Add the current file restrictions to the view.

        Also add a function that looks them up again when the command is about to start. `lifted` contains the paths in
        which consent lifts the limits of ask rules and agent-ignore files.
        """
        if view.kind is ViewKind.UNCONFINED:
            return view
        file_rules = (rule for rule in self._rules.strict if isinstance(rule.specifier, PathSpecifier))
        is_about_reading = any(rule.governs(Access.READ) for rule in file_rules)
        # Consent for a git command includes the history that the repository stores.
        hides = is_about_reading or (view.kind is ViewKind.READING and self._hidden.ignored)
        stores = self._stores if hides and not (view.is_asked and self._uses_git) else ()
        restrict = partial(
            restrictions, roots=self._roots, kind=view.kind, stores=stores, lifted=lifted, is_asked=view.is_asked
        )
        request = self._request

        def current_restrictions() -> FileRestrictions:
            rules = request.rules_now()
            hidden_files = request.hidden_files(rules)
            if hidden_files.problem_of_deny or (hidden_files.problem and not view.is_asked):
                raise ExecutionDeniedError(
                    "The command was not run: some files must stay hidden from it, but that cannot be enforced: "
                    f"{hidden_files.problem}. Try again; if it keeps failing, tell the user."
                )
            return restrict(hidden_files, rules)

        restrictions_now = restrict(self._hidden, self._rules)
        return replace(view, restrictions=restrictions_now, current_restrictions=current_restrictions)

    # The meaning of the command's words

    @cached_property
    def _all_read(self) -> bool:
        """True if no simple command changes anything outside `/tmp`, apart from the targets of redirections."""
        return not self._text.doubt and all(map(self._reads, self._text.commands))

    def _reads(self, command: SimpleCommand) -> bool:
        # A workspace may be in `/tmp`. A command that changes the workspace's files does not count as one that reads.
        is_inner = any(is_inside(word, self._roots) for word in command.words if word)
        return is_reader(command.words) or (
            self._has_bubblewrap and changes_scratch_alone(command.words) and not is_inner
        )

    @cached_property
    def _only_reads(self) -> bool:
        return self._seems_to_read and self._request.command.needs is not Needs.WRITE

    @cached_property
    def _seems_to_read(self) -> bool:
        """True if the command only reads, judging by its words."""
        if self._site.engine is not Engine.NONE:
            return self._all_read and self._writes_freely()
        text, directory = self._text, self._request.command.directory
        return (
            bool(text.commands)
            and text.is_literal
            and not (text.doubt or text.may_run_more or text.has_assignments or text.has_background)
            # After a `cd`, which may fail, it is uncertain which files the words name.
            and all(part.folder == "" for part in (*text.commands, *text.redirections))
            and all(is_on_short_list(command.words) for command in text.commands)
            and all(not redirection.is_output or redirection.target == os.devnull for redirection in text.redirections)
            and not (self._uses_git and (top := work_tree_above(directory)) and runs_programs(top))
            and all(
                is_inside(named_path.real_path, (*self._roots, *self._site.outputs))
                for named_path in self._paths.named_paths
                if os.path.lexists(named_path.path)
            )
        )

    @cached_property
    def _is_reading(self) -> bool:
        return self._only_reads and not self._allowing_rules

    @cached_property
    def _needs_network(self) -> bool:
        return self._request.command.needs is Needs.NETWORK or self._names_network

    def _is_online(self, command: SimpleCommand) -> bool:
        """Return True if the words of a simple command show that it needs the network."""
        if self._paths.local_remotes(command):
            return False
        return needs_network(command.known_words, partial(self._paths.has_package_program, command.folder))

    @cached_property
    def _names_network(self) -> bool:
        return any(map(self._is_online, self._text.commands))

    @cached_property
    def _needs(self) -> Needs | None:
        """What the caller requests beyond what the command's words already show."""
        needs = self._request.command.needs
        is_shown = self._names_network if needs is Needs.NETWORK else not (self._seems_to_read or self._is_git_alone)
        return None if is_shown else needs

    @cached_property
    def _is_git_alone(self) -> bool:
        return changes_by_git_alone(self._text)

    @cached_property
    def _must_be_asked(self) -> bool:
        """True if the caller requests what only consent can give: the network, or writing to git's own settings."""
        return self._needs is Needs.NETWORK or (self._needs is Needs.WRITE and self._is_git_alone)

    def _writes_freely(self) -> bool:
        """Return True if no redirection writes to a path for which consent is needed."""
        may_edit = self._request.mode is ApprovalMode.AUTO_EDIT
        for redirection in (redirection for redirection in self._text.redirections if redirection.is_output):
            for folder in (redirection.folder, *self._text.folders):
                path = self._paths.absolute(redirection.target, folder)
                if path in STREAMS:
                    continue
                if path is None or not self._has_bubblewrap:
                    return False
                if not is_inside(path, self._roots):
                    is_free = contains(SCRATCH_NAME, path) and why_in_scratch(path) is None
                else:
                    is_free = not self._is_plan and (may_edit or self._is_allowed_path(path, Access.WRITE))
                if not is_free:
                    return False
        return True

    @cached_property
    def _allowing_rules(self) -> Mapping[SimpleCommand, Rule]:
        """The rule that allows each simple command, if these rules together allow the whole command; else empty."""
        if self._only_reads and not self._needs_network:
            return {}
        if self._text.doubt or self._text.may_run_more:
            bare = next((rule for rule in self._rules.allow if rule.specifier is None and rule.fits_command("")), None)
            return dict.fromkeys(self._text.commands, bare) if bare and not self._paths.names_scratch else {}
        commands = self._text.commands
        rules_by_command = {command: rule for command in commands if (rule := self._allowing_rule(command)) is not None}
        rest = [command for command in commands if command not in rules_by_command]
        if rest and not self._writes_freely():  # short-listed commands must not write anything without consent
            return {}
        return rules_by_command if rules_by_command and all(is_on_short_list(command.words) for command in rest) else {}

    def _allowing_rule(self, command: SimpleCommand) -> Rule | None:
        is_of_workspace = self._paths.is_of_workspace(command)
        return rule_about(command, self._rules.allow, allows=True) if is_of_workspace else None

    @cached_property
    def _uses_git(self) -> bool:
        return bool(self._git_commands)

    @cached_property
    def _git_commands(self) -> Sequence[tuple[Words, str | None]]:
        """The words of each git command, including those that wrappers run, and the folder in which it starts."""
        return [
            (words, command.folder)
            for command in self._all_commands
            for words in programs_run_by(command.words, loosely=True)
            if words and os.path.basename(words[0] or "") == "git"
        ]

    def _is_allowed_path(self, path: str, access: Access) -> bool:
        """Return True if a rule allows this path. Rules without a specifier apply only to the workspace."""
        rules = [rule for rule in self._rules.allow if rule.specifier is not None or is_inside(path, self._roots)]
        return any(rule.governs(access) and rule.fits_path((path,), self._roots) for rule in rules)

    def _stays_unchanged(self, path: str) -> bool:
        """Return whether a deny rule keeps a path unchanged, whatever the user consents to."""
        rules = (rule for rule in self._rules.deny if rule.governs(Access.READ) or rule.governs(Access.WRITE))
        return any(rule.specifier is None or rule.fits_path((path,), self._roots) for rule in rules)

    @cached_property
    def _hidden(self) -> HiddenFiles:
        return self._request.hidden_files(self._rules)

    @cached_property
    def _stores(self) -> tuple[str, ...]:
        return self._request.scanner.stores_hidden(self._request.workspace, self._hidden, self._rules)

    def _rules_about(self, rules: Sequence[Rule], named_path: NamedPath) -> Iterator[Rule]:
        """Yield the file rules about a named path. Ask rules also apply to a folder if they cover its whole content."""
        is_output = named_path.is_written and (
            is_inside(named_path.real_path, self._roots) or self._paths.is_outside(named_path)
        )
        for rule in rules:
            # A rule about all reading concerns every command, so it is handled elsewhere. A rule about all writing
            # applies only to redirections, because only their targets are certain to be written.
            if rule.specifier is None and is_output and rule.governs(Access.WRITE) and not rule.governs(Access.READ):
                yield rule
            is_asking = rule.verdict is Verdict.ASK
            is_changed = named_path.may_be_written if is_asking else named_path.is_written
            is_about = rule.governs(Access.READ) or (is_changed and rule.governs(Access.WRITE))
            paths = [named_path.path, named_path.real_path]
            paths += [os.path.join(named_path.real_path, ANY_NAME)] if is_asking else []
            if rule.specifier is not None and is_about and rule.fits_path(paths, self._roots):
                yield rule

    # Verdicts

    def _permission(
        self, verdict: Verdict, reason: str, *, setting: str = "", way_out: str = "", source: str = ""
    ) -> Permission:
        """Return a decision, with a reason for each simple command if there are several."""
        parts: list[VerdictPart] = []
        for command in self._text.commands if len(self._text.commands) > 1 else ():
            if command.source == source:
                parts.append(VerdictPart(source, verdict, reason))
                continue
            is_online, allowing = self._is_online(command), self._allowing_rule(command)
            if allowing is not None or (is_reader(command.words) and not is_online):
                parts.append(VerdictPart(command.source, Verdict.ALLOW, str(allowing or "it only reads")))
            else:
                part_reason = "it needs the network" if is_online else "it is not known to be read-only"
                part_verdict = Verdict.ALLOW if verdict is Verdict.ALLOW else Verdict.ASK
                parts.append(VerdictPart(command.source, part_verdict, part_reason))
        parts = parts if source and parts else [VerdictPart(source, verdict, reason), *parts]
        return Permission(verdict, reason, setting=setting, way_out=way_out, parts=tuple(parts))


def allowed_reading(rules: Rules, home: str) -> Iterator[str]:
    """Yield real paths outside the workspace to which rules grant full read access."""
    for rule in rules.allow:
        pattern = rule.text.partition("(")[2].rstrip(")").strip()
        if rule.tools & tool_names.READING and pattern.startswith(("//", "~/")):
            path = pattern.removesuffix("/**")
            path = home + path[1:] if path.startswith("~") else path[1:]
            if not set(path) & set("*?[\\") and os.path.lexists(path):
                yield resolve_links(path)
