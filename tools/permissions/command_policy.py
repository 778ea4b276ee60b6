"""Decides whether a shell command may run, and in which view of the machine.

The words of a command decide which rule applies and what a person is asked. The view limits what the command can do,
even if the words were misunderstood. Without a sandbox, only a short list of read-only commands runs without consent,
unless a rule or the mode allows more.

    denied by a rule                            refused
    only reads                                  reading view; needs consent if it names a path outside the workspace
    anything else in plan mode                  refused
    allowed by a rule                           working view
    names an auto-run file, a hidden file or
    a path outside the workspace                needs consent, which opens the path
    needs the network                           needs consent, which gives it the network
    any other                                   working view; needs consent unless the mode or a setting allows it
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tools.contract.command_views import CommandView, Engine, FileRestrictions, Network, ViewKind
from tools.contract.limits import ApprovalMode
from tools.contract.permission_subjects import Access, CommandSubject, Needs
from tools.contract.tool_errors import ExecutionDeniedError, sandbox_unavailable
from tools.files.workspace import SCRATCH_NAME, Workspace, contains, is_inside
from tools.machine.cached_properties import cached_property
from tools.permissions import tool_names
from tools.permissions.command_lists import (
    changes_by_git_alone,
    changes_scratch_alone,
    first_words,
    is_on_short_list,
    is_reader,
    needs_network,
    plain_name,
    searches_folders,
    without_git_options,
)
from tools.permissions.command_paths import STREAMS, CommandPaths, NamedPath, why_in_scratch
from tools.permissions.command_text import CommandText, SimpleCommand, Words, joined, programs_behind, read_command
from tools.permissions.git_store import with_stored
from tools.permissions.hidden_files import ANY_NAME, HiddenFileLookout, HiddenFiles, beside, restrictions
from tools.permissions.permission_rules import (
    ANYTHING,
    CORE,
    CommandSpecifier,
    PathSpecifier,
    Rule,
    Rules,
    literal_path,
)
from tools.permissions.protected_files import GuardedPaths
from tools.permissions.repositories import runs_programs, work_tree_above
from tools.permissions.verdict import PLAN_MODE, Grant, Permission, Verdict, VerdictPart
from tools.text.file_names import shown_path

# Git commands that need consent, because git's settings are read-only for all other commands
_GIT_CHANGES_SETTINGS = ("config", "remote", "submodule", "worktree")
_MORE = "bash may run more than its words show"
_NAME_ITS_FOLDER = (
    "Write to the workspace or /tmp. Or name the file's folder in the command, unless that folder contains the home "
    "folder, the workspace or the system."
)


@dataclass(frozen=True, slots=True)
class PolicyRequest:
    """A command, and the other facts on which the decision about it depends."""

    command: CommandSubject
    rules: Rules
    mode: ApprovalMode
    workspace: Workspace
    guarded: GuardedPaths
    lookout: HiddenFileLookout
    home: str
    rules_now: Callable[[], Rules]  # returns the current rules, which may change before the command starts
    is_sandboxed: bool  # whether every command that stays in the sandbox runs without consent

    def look(self) -> HiddenFiles:
        """Find what is hidden from commands now. In yolo mode, agent-ignore files hide nothing from them."""
        found = self.lookout.look(self.workspace, self.rules)
        if self.mode is not ApprovalMode.YOLO:
            return found
        return replace(found, ignored=(), problem=found.problem if self.rules.are_about_files else "")


def judge_command(request: PolicyRequest) -> Permission:
    """Decide about a shell command. Blocking, because it resolves paths and looks for hidden files."""
    return _CommandPolicy(request, read_command(request.command.command)).judge()


@dataclass(slots=True)
class _Asking:
    """The reasons to ask about a command, and what consent opens."""

    reasons: dict[str, None] = field(default_factory=dict[str, None])
    settings: dict[str, None] = field(default_factory=dict[str, None])  # settings whose ask rules apply to the command
    refused: str = ""  # why nobody can allow the command; empty if consent can allow it
    is_guarded: bool = False  # whether the command may change this server's own settings
    opens: bool = False  # whether consent opens more than the usual view, so no allow rule can replace the consent
    remarks: dict[str, None] = field(default_factory=dict[str, None])  # what consent does not include
    seen: dict[str, None] = field(default_factory=dict[str, None])
    writable: dict[str, None] = field(default_factory=dict[str, None])
    outside: dict[str, None] = field(default_factory=dict[str, None])  # paths outside the workspace that need consent
    grants: dict[Grant, None] = field(default_factory=dict[Grant, None])

    def add(self, reason: str, setting: str = "", *, opens: bool = False) -> None:
        self.reasons[reason] = None
        self.opens = self.opens or opens
        if setting:
            self.settings[setting] = None


class _CommandPolicy:
    def __init__(self, request: PolicyRequest, text: CommandText) -> None:
        self._request = request
        self._text = text
        self._all_commands = (*text.commands, *text.inner)
        self._paths = CommandPaths(request.command, text, request.workspace, request.home)
        self._needs = request.command.needs
        self._rules = request.rules
        self._site = request.command.site
        self._roots = request.workspace.roots
        self._is_plan = request.mode is ApprovalMode.PLAN
        self._is_yolo = request.mode is ApprovalMode.YOLO
        self._is_held = self._site.engine is Engine.BUBBLEWRAP

    def judge(self) -> Permission:
        """Return the decision of the first step that makes one."""
        if (refusal := self._refusal()) is not None:
            return refusal
        if self._is_plan and (not self._is_reading or self._needs_network):
            return self._permission(Verdict.DENY, PLAN_MODE.reason, way_out=PLAN_MODE.way_out)
        asking = self._asking()
        if asking.refused:
            return self._permission(Verdict.DENY, asking.refused, way_out=_NAME_ITS_FOLDER)
        reason = self._why_unasked()
        if not reason:
            self._ask_about_changes(asking)
        network = self._network(asking)
        if isinstance(network, Permission):
            return network
        view = self._view(network, asking)
        if not asking.reasons:
            return replace(self._permission(Verdict.ALLOW, reason), view=self._restricted(view))
        # The client's own dialog does not show what consent opens, so consent given there opens neither hidden files
        # nor git's settings.
        dialog_view = replace(
            view,
            seen=tuple(path for path in view.seen if path in asking.outside),
            writable=tuple(path for path in view.writable if path in asking.outside),
            is_git=view.is_git and view.kind is ViewKind.READING,
            is_asked=False,
        )
        is_explicit = bool(asking.settings)
        may_last = not (is_explicit or asking.opens)
        why = "; ".join((*asking.reasons, *asking.remarks))
        return replace(
            self._permission(Verdict.ASK, why, setting=" and ".join(asking.settings)),
            grants=tuple(asking.grants) if may_last else (),
            is_explicit=is_explicit,
            no_rule_allows=asking.opens,
            is_guarded=asking.is_guarded,
            view=self._restricted(view),
            dialog_view=self._restricted(dialog_view),
            offers_sandboxed=self._is_held and may_last and (self._needs_network or not self._is_reading),
        )

    def _why_unasked(self) -> str:
        """Return why the command may run without consent, or an empty string if it may not.

        Even if it may, there can be other reasons to ask.
        """
        if self._is_reading:
            return "it is known to only read" if self._site.engine is Engine.NONE else "it only reads"
        if self._allowed_by and self._needs is None:
            return "; ".join(dict.fromkeys(map(str, self._allowed_by.values())))
        if self._is_yolo:
            return "approval mode yolo"
        is_sandboxed = self._request.is_sandboxed and self._is_held and self._needs is not Needs.WRITE
        return "every command that stays in the sandbox may run" if is_sandboxed else ""

    def _refusal(self) -> Permission | None:
        for command in self._all_commands:
            if (rule := _rule_about(command, self._rules.deny)) is not None:
                return self._permission(Verdict.DENY, str(rule), setting=rule.source, source=command.source)
        core = self._rules.core_commands()
        for command in self._text.commands if core else ():
            text = joined(command.words)
            if not any(rule.fits_command(text) for rule in core):
                reason = f"'{command.source}' is not among the commands that {CORE} allows"
                return self._permission(Verdict.DENY, reason, setting=CORE, source=command.source)
        for rule in self._rules.deny:
            if rule.specifier is None and rule.governs(Access.READ):
                return self._permission(Verdict.DENY, f"{rule}: a command would read files", setting=rule.source)
        if self._hidden.problem_of_deny:
            setting = next((hidden.setting for hidden in self._hidden.denied), "permissions.deny")
            reason = f"a rule in {setting} hides files, but the sandbox cannot enforce it: {self._hidden.problem}"
            return self._permission(Verdict.DENY, reason, setting=setting)
        for named in self._paths.named:
            for rule in self._rules_about(self._rules.deny, named):
                return self._permission(Verdict.DENY, f"{rule}: it names {named.word}", setting=rule.source)
        return None

    # Questions

    def _asking(self) -> _Asking:
        """Collect the questions that are asked in every mode."""
        asking = _Asking()
        self._ask_about_words(asking)
        for rule in self._rules.ask:
            if rule.specifier is None and rule.governs(Access.READ):
                asking.add(f"{rule}: a command reads files", rule.source)
        for named in self._paths.named:
            for rule in self._rules_about(self._rules.ask, named):
                asking.add(f"{rule}: it names {named.shown}", rule.source)
                if is_inside(named.real, self._roots) or os.path.lexists(named.real):
                    (asking.seen if self._is_reading and not named.is_written else asking.writable)[named.real] = None
            # No rule can allow writing the server's own files, and mounts cannot protect symlinks to them.
            is_around = any(contains(named.shown, root) for root in self._roots)
            can_change = named.may_be_written and not is_around
            if can_change and (why := self._request.guarded.why((named.shown, named.real))) is not None:
                asking.add(f"it names {named.shown}: {why}", opens=True)
                asking.is_guarded = True
                asking.writable[named.real] = None
            elif not (self._allowed_by and self._is_held) and not named.is_program:
                self._ask_about_path(asking, named)
        if self._is_held and not self._is_reading and (why := self._request.guarded.why_not_held(self._roots)):
            asking.add(why, opens=True)
            asking.is_guarded = True
        self._ask_about_hidden(asking)
        return asking

    def _ask_about_words(self, asking: _Asking) -> None:
        text = self._text
        is_about_commands = any(rule.is_about_commands for rule in self._rules.strict)
        for command in self._all_commands:
            if (rule := _rule_about(command, self._rules.ask)) is not None:
                asking.add(str(rule), rule.source)
            elif is_about_commands and (rule := _rule_that_may_be_about(command, self._rules.strict)) is not None:
                asking.add(f"the {rule} may apply to it", opens=True)
        doubt = text.doubt or (_MORE if text.may_run_more else "")
        if doubt and is_about_commands:
            asking.add(f"{doubt}, so it is unclear which rules about commands apply", opens=True)
        if self._is_held and not self._is_reading and changes_by_git_alone(text):
            for command in text.commands:
                if command.program != "git" or is_reader(command.words):
                    continue
                words = without_git_options(command.words[1:])
                if words[:1] and words[0] in _GIT_CHANGES_SETTINGS:
                    asking.add(f"'git {words[0]}' changes settings that git obeys", opens=True)
                # Make a repository outside or around the workspace writable, because git could not change it otherwise.
                folder = self._paths.absolute(".", command.folder)
                top = work_tree_above(os.path.realpath(folder)) if folder is not None else None
                if top is None or is_inside(top, self._roots) or contains(top, self._request.home):
                    continue
                asking.writable[top] = None
                if not self._is_allowed_path(top, Access.WRITE):
                    where = f"the repository {shown_path(top)}, which is outside the workspace"
                    asking.add(f"it works in {where}", opens=True)

    def _ask_about_path(self, asking: _Asking, named: NamedPath) -> None:
        for hidden in self._hidden.ignored:
            if contains(hidden.path, named.real):
                asking.add(f"it names {named.shown}, which {hidden.why} hides from agents", opens=True)
                # Open the whole hidden folder if it has too many other entries to hide each of them.
                closed = (each.path for each in beside(hidden, (named.real,)) if contains(each.path, named.real))
                asking.seen[next(closed, named.real)] = None
                break
        in_scratch = self._is_held and contains(SCRATCH_NAME, named.shown) and not is_inside(named.real, self._roots)
        is_there = in_scratch or is_inside(named.real, self._roots) or os.path.lexists(named.shown)
        if named.may_be_written and is_there and (why := self._paths.why_protected(named)) is not None:
            asking.add(f"it names {named.shown}: {why}", opens=True)
            if not in_scratch:  # the scratch folder is always writable
                asking.writable[named.real] = None
            return
        # A command in the working view sees paths outside the workspace even without consent.
        is_shown = not self._is_reading and self._is_held and not named.may_be_written
        if not is_shown and not (self._is_yolo and self._is_reading) and self._paths.is_outside(named):
            self._ask_about_outside(asking, named)

    def _ask_about_outside(self, asking: _Asking, named: NamedPath) -> None:
        if is_inside(named.real, asking.writable):
            return
        may_write, is_absent = named.may_be_written, not os.path.lexists(named.shown)
        can_be_written = may_write and self._paths.is_ever_written(named)
        if named.is_written and self._is_held and (is_absent or not can_be_written):
            why = "is never opened to a command" if not can_be_written else "does not exist"
            asking.refused = f"it would write {named.shown}, which is outside the workspace and {why}"
            return
        if is_absent and not (may_write and named.is_new_work_tree):  # the word may not even be a path
            if may_write and self._is_held:
                said = (
                    "outside the workspace, approval covers only existing paths, so the command cannot create "
                    f"{named.shown}"
                )
                asking.remarks[said] = None
            return
        # A trailing separator marks a folder to be created.
        path = os.path.join(named.real, "") if is_absent else named.real
        (asking.writable if can_be_written else asking.seen)[path] = None
        if self._is_allowed_path(named.real, Access.WRITE if may_write else Access.READ):
            return
        asking.add(f"it names {named.shown}, which is outside the workspace", opens=may_write)
        asking.outside[path] = None
        is_whole = os.path.dirname(named.real) == os.sep or contains(named.real, self._request.home)
        if not (may_write or is_whole) and (literal := literal_path(named.real)) is not None:
            asking.grants[Grant(f"Read({literal})", f"reading {named.shown}")] = None

    def _ask_about_hidden(self, asking: _Asking) -> None:
        if self._hidden.problem:
            said = f"some files must stay hidden from commands, but that cannot be enforced: {self._hidden.problem}"
            asking.add(said, opens=True)
        is_hiding = bool(self._hidden.unreadable)
        if self._is_held:
            in_background = self._request.command.is_background or self._text.has_background
            if is_hiding and self._is_reading and in_background:
                said = "it keeps running in the background, so it could read a hidden file that is replaced later"
                asking.add(said, opens=True)
            if self._uses_git and self._stores:
                asking.add("git history contains hidden files, and git can show them", opens=True)
            return
        is_landlock = self._site.engine is Engine.LANDLOCK
        shown = (*self._site.shown, *self._roots)
        if is_landlock and any(contains(path, self._request.home) for path in shown):
            asking.add("it would see the home folder, where nothing can be hidden without bubblewrap", opens=True)
        named = {named.real for named in self._paths.named if not named.is_program and os.path.lexists(named.real)}
        folders = named or {self._request.command.directory}
        is_met = any(contains(folder, hidden.path) for folder in folders for hidden in self._hidden.unreadable)
        searches = any(searches_folders(each.words) for each in self._all_commands)
        if (is_met and searches) or (self._uses_git and self._stores):
            asking.add("it may read files that are hidden from commands, and no sandbox prevents that", opens=True)
        if (is_hiding or self._rules.are_about_files) and (is_landlock or not self._text.is_literal):
            said = "without bubblewrap, file rules apply only to paths written out in the command"
            asking.add(said, opens=True)

    def _ask_about_changes(self, asking: _Asking) -> None:
        """Add the question for a command that no rule or mode allows, with the rules that would allow it."""
        reasons: list[str] = []
        grants: list[Grant] = []
        changing = [each for each in self._unlisted if not self._reads(each)]
        if self._needs is not None:
            reasons = [f"it asks {'to change files' if self._needs is Needs.WRITE else 'for network access'}"]
        elif self._text.doubt:
            reasons = [self._text.doubt]
        elif self._all_read:  # the command only reads, so its output must be what needs consent
            outputs = (each for each in self._text.redirections if each.is_output)
            if any(each.target is None or self._paths.absolute(each.target, each.folder) is None for each in outputs):
                reasons.append("the target of its output is known only when it runs")
            for named in self._paths.named:
                if named.is_written and named.shown not in STREAMS:
                    reasons.append(f"it writes {named.shown}")
                    if self._is_held and (literal := literal_path(named.real)) is not None:
                        grants.append(Grant(f"Edit({literal})", f"edits of {named.shown}"))
        else:
            for command in changing or self._unlisted:
                network = "needs the network" if needs_network(command.known) else "is not known to only read"
                what = network if changing else "would run where it can change files"
                name = first_words(command.words) or command.name or "a program whose name is not literal"
                is_of_workspace = self._paths.is_of_workspace(command)
                beside = "" if is_of_workspace else ", and works outside the workspace or uses files in /tmp"
                reasons.append(f"'{name}' {what}{beside}")
            if self._text.may_run_more:
                reasons = reasons or [_MORE]
            else:
                grants = self._grants(self._unlisted)
        if len(grants) >= len(reasons):
            asking.grants |= dict.fromkeys(grants)
        if not asking.reasons:
            outside = (each.shown for each in self._paths.named if not is_inside(each.real, self._roots))
            named = next(filter(os.path.lexists, outside), "")
            said = f"it names {named}, which is outside the workspace" if named else "it is not known to only read"
            asking.reasons |= dict.fromkeys(reasons or [said])

    @cached_property
    def _unlisted(self) -> Sequence[SimpleCommand]:
        """The simple commands that neither a rule nor the short list allows."""
        return [each for each in self._text.commands if not (self._allowing(each) or is_on_short_list(each.words))]

    def _grants(self, commands: Sequence[SimpleCommand]) -> list[Grant]:
        """Return rules that would allow these simple commands, or nothing if rules cannot allow all of them."""
        scopes = [first_words(each.words) for each in commands if self._paths.is_of_workspace(each)]
        if len(scopes) < len(commands) or not all(scopes):
            return []
        grants: list[Grant] = []
        for scope in scopes:
            network = " (with network access)" if needs_network(tuple(scope.split())) else ""
            grants.append(Grant(f"Bash({scope} *)", f"'{scope} ...'{network}"))
        return grants

    # The view

    def _network(self, asking: _Asking) -> Network | Permission:
        """Return the network that the command gets, or a refusal. Adds a question if necessary."""
        site = self._site
        loopback = Network.SESSION_LOOPBACK if site.has_session and not self._is_plan else Network.OWN_LOOPBACK
        about_hosts = [rule for rule in self._rules.strict if rule.governs(Access.FETCH)]
        needing = [command for command in self._text.commands if needs_network(command.known)]
        if not self._needs_network:
            return Network.HOST if self._is_yolo and site.has_network and not about_hosts else loopback
        for rule in about_hosts:
            if rule.specifier is None and rule.verdict is Verdict.DENY:
                return self._permission(Verdict.DENY, f"{rule}: it needs the network", setting=rule.source)
        if not site.has_network:
            reason = "it needs the network, which commands do not get here"
            return self._permission(Verdict.DENY, reason, setting="shell.network")
        allowing = [self._allowed_by.get(command) for command in needing] if self._needs is None else []
        is_given = self._is_yolo or (
            bool(allowing) and all(rule and needs_network(_spelled(rule)) for rule in allowing)
        )
        if about_hosts:
            said = "cannot be applied to the hosts that a command contacts"
            asking.add(f"it needs the network, but the {about_hosts[0]} {said}", about_hosts[0].source)
        elif not is_given and not asking.reasons:
            asking.add("it needs the network")
            if self._needs is None:
                asking.grants |= dict.fromkeys(self._grants([*dict.fromkeys((*self._unlisted, *needing))]))
        return Network.HOST

    def _view(self, network: Network, asking: _Asking) -> CommandView:
        """Return the view that the command runs in after any necessary consent."""
        is_asked = bool(asking.reasons)
        # A read-only command with network access gets an empty `/tmp`, because nobody was asked about what other
        # commands left in `/tmp`. If its words name files in `/tmp`, it gets the working view, with caches and
        # temporary files.
        is_online = network is Network.HOST
        reads = self._is_reading and not self._is_yolo and not (is_online and self._paths.names_scratch)
        kind = ViewKind.READING if reads else ViewKind.WORKING
        if not self._is_held and (self._site.engine is Engine.NONE or not reads or is_asked):
            if self._site.is_required:
                raise sandbox_unavailable(self._site.failure)
            kind, network = ViewKind.UNCONFINED, Network.HOST
        seen, writable = [*asking.seen], [*asking.writable]
        if kind is ViewKind.READING:
            seen += allowed_reading(self._rules, self._request.home)
            targets = (each.real for each in self._paths.named if each.is_written and is_inside(each.real, self._roots))
            writable += (path for path in targets if not os.path.isdir(path))
            # If there are rules about files, or ignored files, do not show the repository that contains the workspace,
            # because the rest of the repository may contain files to hide too.
            is_hiding = self._rules.are_about_files or self._hidden.ignored
            is_around = any(work_tree_above(root) not in (None, root) for root in self._roots)
            is_git = self._uses_git and not (is_hiding and is_around)
        else:
            is_git = is_asked and changes_by_git_alone(self._text)
        if asking.opens and self._uses_git:
            seen += self._stores
        spelled = (named.shown for named in self._paths.named if named.shown != named.real)
        paths = (tuple(dict.fromkeys(each)) for each in (seen, writable, spelled))
        return CommandView(
            self._site.engine,
            kind,
            network,
            *paths,
            is_git=is_git,
            is_asked=is_asked,
            is_plan=self._is_plan,
            # If every sandboxed command runs without consent, a command may use what other commands left in `/tmp`.
            has_new_tmp=(kind is ViewKind.READING and is_online)
            or (bool(self._allowed_by) and not (is_asked or self._is_yolo or self._request.is_sandboxed)),
            may_take_shares=kind is not ViewKind.READING,
        )

    def _restricted(self, view: CommandView) -> CommandView:
        """Add to the view what file rules deny to the command, now and when it starts."""
        if view.kind is ViewKind.UNCONFINED:
            return view
        about_files = (rule for rule in self._rules.strict if isinstance(rule.specifier, PathSpecifier))
        is_about_reading = any(rule.governs(Access.READ) for rule in about_files)
        # Consent for a git command includes the history that the repository stores.
        hides = is_about_reading or (view.kind is ViewKind.READING and self._hidden.ignored)
        stores = self._stores if hides and not (view.is_asked and self._uses_git) else ()
        found = _restrictions(self._hidden, self._request, view, stores)
        return replace(view, restrictions=found, look=partial(_look_again, self._request, view, stores))

    # The meaning of the command's words

    @cached_property
    def _all_read(self) -> bool:
        """True if no simple command changes anything outside `/tmp`, apart from the targets of redirections."""
        return not self._text.doubt and all(map(self._reads, self._text.commands))

    def _reads(self, command: SimpleCommand) -> bool:
        # A workspace may also be in `/tmp`, and changes to its files do not count as reading.
        is_inner = any(is_inside(word, self._roots) for word in command.words if word)
        return is_reader(command.words) or (self._is_held and changes_scratch_alone(command.words) and not is_inner)

    @cached_property
    def _only_reads(self) -> bool:
        if self._needs is Needs.WRITE:
            return False
        if self._site.engine is not Engine.NONE:
            return self._all_read and self._writes_freely()
        text, directory = self._text, self._request.command.directory
        return (
            bool(text.commands)
            and text.is_literal
            and not (text.doubt or text.may_run_more or text.has_assignments or text.has_background)
            # After a `cd`, which may fail, it is uncertain which files the words name.
            and all(each.folder == "" for each in (*text.commands, *text.redirections))
            and all(is_on_short_list(each.words) for each in text.commands)
            and all(not each.is_output or each.target == os.devnull for each in text.redirections)
            and not (self._uses_git and (top := work_tree_above(directory)) and runs_programs(top))
            and all(is_inside(each.real, self._roots) for each in self._paths.named if os.path.lexists(each.shown))
        )

    @cached_property
    def _is_reading(self) -> bool:
        return self._only_reads and not self._allowed_by

    @cached_property
    def _needs_network(self) -> bool:
        return self._needs is Needs.NETWORK or any(needs_network(each.known) for each in self._text.commands)

    def _writes_freely(self) -> bool:
        """Return True if no redirection writes to a place that needs consent."""
        may_edit = self._request.mode is ApprovalMode.AUTO_EDIT
        for each in (each for each in self._text.redirections if each.is_output):
            path = self._paths.absolute(each.target, each.folder) if each.target is not None else None
            if path in STREAMS:
                continue
            if path is None or not self._is_held:
                return False
            if not is_inside(path, self._roots):
                is_free = contains(SCRATCH_NAME, path) and why_in_scratch(path) is None
            else:
                is_free = not self._is_plan and (may_edit or self._is_allowed_path(path, Access.WRITE))
            if not is_free:
                return False
        return True

    @cached_property
    def _allowed_by(self) -> Mapping[SimpleCommand, Rule]:
        """The rule that allows each simple command, if these rules together allow the whole command; else empty."""
        if self._only_reads and not self._needs_network:
            return {}
        if self._text.doubt or self._text.may_run_more:
            bare = next((rule for rule in self._rules.allow if rule.specifier is None and rule.fits_command("")), None)
            return dict.fromkeys(self._text.commands, bare) if bare and not self._paths.names_scratch else {}
        found = {command: rule for command in self._text.commands if (rule := self._allowing(command)) is not None}
        rest = [command for command in self._text.commands if command not in found]
        if rest and not self._writes_freely():  # short-listed commands must not write anything without consent
            return {}
        return found if found and all(is_on_short_list(each.words) for each in rest) else {}

    def _allowing(self, command: SimpleCommand) -> Rule | None:
        is_of_workspace = self._paths.is_of_workspace(command)
        return _rule_about(command, self._rules.allow, allows=True) if is_of_workspace else None

    @cached_property
    def _uses_git(self) -> bool:
        commands = (words for each in self._all_commands for words in programs_behind(each.words, loosely=True))
        return any(os.path.basename(words[0] or "") == "git" for words in commands if words)

    def _is_allowed_path(self, path: str, access: Access) -> bool:
        """Return True if a rule allows this path. Rules without a specifier apply only to the workspace."""
        rules = [rule for rule in self._rules.allow if rule.specifier is not None or is_inside(path, self._roots)]
        return any(rule.governs(access) and rule.fits_path((path,), self._roots) for rule in rules)

    @cached_property
    def _hidden(self) -> HiddenFiles:
        return self._request.look()

    @cached_property
    def _stores(self) -> tuple[str, ...]:
        return self._request.lookout.stores_hidden(self._request.workspace, self._hidden, self._rules)

    def _rules_about(self, rules: Sequence[Rule], named: NamedPath) -> Iterator[Rule]:
        """Yield the file rules that apply to a named path. For rules that ask, a match inside the path is enough."""
        for rule in rules:
            is_asking = rule.verdict is Verdict.ASK
            is_changed = named.may_be_written if is_asking else named.is_written
            is_about = rule.governs(Access.READ) or (is_changed and rule.governs(Access.WRITE))
            paths = (named.shown, named.real, *([os.path.join(named.real, ANY_NAME)] if is_asking else ()))
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
            is_online, allowing = needs_network(command.known), self._allowing(command)
            if allowing is not None or (is_reader(command.words) and not is_online):
                parts.append(VerdictPart(command.source, Verdict.ALLOW, str(allowing or "it only reads")))
            else:
                what = "it needs the network" if is_online else "it is not known to only read"
                own = Verdict.ALLOW if verdict is Verdict.ALLOW else Verdict.ASK
                parts.append(VerdictPart(command.source, own, what))
        parts = parts if source and parts else [VerdictPart(source, verdict, reason), *parts]
        return Permission(verdict, reason, setting=setting, way_out=way_out, parts=tuple(parts))


def allowed_reading(rules: Rules, home: str) -> Iterator[str]:
    """Yield real paths outside the workspace to which rules grant full read access."""
    for rule in rules.allow:
        written = rule.text.partition("(")[2].rstrip(")").strip()
        if rule.tools & tool_names.READING and written.startswith(("//", "~/")):
            path = written.removesuffix("/**")
            path = home + path[1:] if path.startswith("~") else path[1:]
            if not set(path) & set("*?[\\") and os.path.lexists(path):
                yield os.path.realpath(path)


def _rule_about(command: SimpleCommand, rules: Sequence[Rule], *, allows: bool = False) -> Rule | None:
    """Return a rule about a simple command, or about a program that it runs.

    For allow rules (`allows`), look only through the usual wrappers, and ignore a program's folder only if it is a
    system folder.
    """
    for words in programs_behind(command.words, loosely=not allows):
        name = words[0] if words else None
        short = name and ((plain_name(name) or name) if allows else os.path.basename(name))
        texts = {joined(words), joined((short, *words[1:]))}
        for rule in rules:
            if any(map(rule.fits_command, texts)):
                return rule
    return None


def _rule_that_may_be_about(command: SimpleCommand, rules: Sequence[Rule]) -> Rule | None:
    """Return a rule that may apply to a simple command with unknown words."""
    for words in programs_behind(command.words, loosely=True):
        named = (os.path.basename(words[0]), *words[1:]) if words and words[0] is not None else words
        for rule in rules:
            pairs = list(zip(_spelled(rule), named, strict=False))
            if any(word is None for _, word in pairs) and all(word in (None, meant) for meant, word in pairs):
                return rule
    return None


def _spelled(rule: Rule) -> Words:
    """Return the words of a command rule before its first star."""
    pattern = rule.specifier.pattern if isinstance(rule.specifier, CommandSpecifier) else ""
    return tuple(pattern.partition(ANYTHING)[0].split())


def _look_again(request: PolicyRequest, view: CommandView, stores: Sequence[str]) -> FileRestrictions:
    """Look up again what rules deny to a command that is about to start in the view chosen for it."""
    request = replace(request, rules=request.rules_now())
    hidden = request.look()
    if hidden.problem_of_deny or (hidden.problem and not view.is_asked):
        raise ExecutionDeniedError(
            f"The command was not run: rules hide files from it, but that cannot be enforced: {hidden.problem}. Try "
            "again; if it keeps failing, tell the user."
        )
    return _restrictions(hidden, request, view, stores)


def _restrictions(
    hidden: HiddenFiles, request: PolicyRequest, view: CommandView, stores: Sequence[str]
) -> FileRestrictions:
    named = frozenset((*view.seen, *view.writable))
    found = restrictions(
        hidden, view.kind, named=named, is_asked=view.is_asked, rules=request.rules, workspace=request.workspace
    )
    return with_stored(found, stores)
