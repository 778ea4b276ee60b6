"""May this shell command run, and in which view of the machine? The rules about it, the matrix of modes, and why.

Words decide which rule a command is under and what a person is asked. What it can do is held by its view, whatever its
words turn out to mean; where nothing can hold it, everything but a short list of readers is asked about.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from tools.contract.command_views import SYSTEM, CommandView, Engine, FileRestrictions, Network, ViewKind
from tools.contract.errors import ExecutionDeniedError, sandbox_unavailable
from tools.contract.limits import ApprovalMode
from tools.contract.permission_subjects import Access, CommandSubject, Needs
from tools.files.opener import real_path
from tools.files.workspace import SCRATCH_NAME, Workspace, contains, is_inside
from tools.permissions import tool_names
from tools.permissions.auto_run_files import why_protected
from tools.permissions.command_lists import (
    changes_by_git_alone,
    first_words,
    is_on_short_list,
    is_reader,
    needs_network,
    plain_name,
    without_git_options,
)
from tools.permissions.command_text import (
    CONNECTIONS,
    CommandText,
    SimpleCommand,
    joined,
    programs_behind,
    read_command,
)
from tools.permissions.guarded_paths import GuardedPaths
from tools.permissions.hidden_files import HiddenFileLookout, HiddenFiles, restrictions
from tools.permissions.repositories import runs_programs, work_tree_above
from tools.permissions.rules import (
    ANYTHING,
    CORE,
    CommandSpecifier,
    PathSpecifier,
    Rule,
    Rules,
    literal_path,
)
from tools.permissions.verdict import Grant, Part, Permission, Verdict

_OF_THE_SYSTEM = (*SYSTEM, "/proc", "/dev", "/sys")
_PATH_OF_OPTION = re.compile(r"[/~].*", re.DOTALL)  # attached to one, or to several letters
_CODE = re.compile(r"[\n;(){}\"'<>|]")  # in code for an interpreter, in no usual path
_STREAMS = (os.devnull, "/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/2")
# What cannot work unless somebody was asked: git's settings are read-only to all other commands
_GIT_CHANGES_SETTINGS = ("config", "remote", "submodule", "worktree")
_QUIET_GIT_OPTIONS = ("--no-pager", "-P", "--no-optional-locks")
_NOT_IN_PLAN = "plan mode is on, and only reading and searching are possible"
_PLAN_WAY_OUT = (
    "Present your plan with exit_plan_mode; where that is not offered, the operator starts the server with another "
    "approval mode."
)


_NAME_ITS_FOLDER = (
    "Write it into the workspace or /tmp; or name its folder in the command, unless that holds the home folder, the "
    "workspace or the system."
)


@dataclass(frozen=True, slots=True)
class NamedPath:
    """A path that a literal word of a command names."""

    shown: str  # absolute, as named
    real: str  # the same with every link resolved
    is_written: bool  # whether output is directed to it
    is_program: bool  # whether it is what is run
    may_be_written: bool  # whether that, or the word of a command that may write it
    is_of_git: bool = False  # whether it is a word of a command of git


@dataclass(frozen=True, slots=True)
class Request:
    """What a command is judged by, beside its words."""

    command: CommandSubject
    rules: Rules
    mode: ApprovalMode
    workspace: Workspace
    guarded: GuardedPaths
    lookout: HiddenFileLookout
    home: str
    is_sandboxed: bool  # whether any command that stays in the sandbox runs unasked


def judge_command(request: Request) -> Permission:
    """Judge one shell command. Blocking: it looks where paths lead, and at what rules hide."""
    return _CommandPolicy(request, read_command(request.command.command)).judge()


@dataclass(slots=True)
class _Asking:
    """Why a command is asked about, and what a yes opens."""

    reasons: dict[str, None] = field(default_factory=dict[str, None])
    settings: dict[str, None] = field(default_factory=dict[str, None])  # rules of the operator that ask
    refused: str = ""  # why it can be given to nobody
    opens: bool = False  # whether a yes opens more than the usual view; no rule stands for it
    seen: dict[str, None] = field(default_factory=dict[str, None])
    writable: dict[str, None] = field(default_factory=dict[str, None])
    outside: dict[str, None] = field(default_factory=dict[str, None])  # of these the plain paths outside
    grants: dict[Grant, None] = field(default_factory=dict[Grant, None])

    def add(self, reason: str, setting: str = "", *, opens: bool = False) -> None:
        self.reasons[reason] = None
        self.opens = self.opens or opens
        if setting:
            self.settings[setting] = None


class _CommandPolicy:
    def __init__(self, request: Request, text: CommandText) -> None:
        self._request = request
        self._text = text
        self._rules = request.rules
        self._site = request.command.site
        self._roots = request.workspace.roots
        self._is_plan = request.mode is ApprovalMode.PLAN
        self._is_yolo = request.mode is ApprovalMode.YOLO
        self._is_held = self._site.engine is Engine.BUBBLEWRAP

    def judge(self) -> Permission:
        """The first of these that has something to say decides."""
        refusal = self._refused_by_words() or self._refused_by_files()
        if refusal is not None:
            return refusal
        is_reading = self._is_reading()
        if self._is_plan and not is_reading:
            return self._permission(Verdict.DENY, _NOT_IN_PLAN, way_out=_PLAN_WAY_OUT)
        allowed_by: Mapping[SimpleCommand, Rule] = {} if is_reading else self._allowed_by()
        asking = self._asking(is_reading=is_reading, is_allowed=bool(allowed_by))
        if asking.refused:
            return self._permission(Verdict.DENY, asking.refused, way_out=_NAME_ITS_FOLDER)
        if is_reading:
            reason = (
                "it only reads" if self._is_held or self._site.engine is Engine.LANDLOCK else "it is known to only read"
            )
        elif self._request.command.needs is None and allowed_by:
            reason = "; ".join(dict.fromkeys(map(str, allowed_by.values())))
        elif self._is_yolo:
            reason = "approval mode yolo"
        elif self._request.is_sandboxed and self._is_held and self._request.command.needs is not Needs.WRITE:
            reason = "any command that stays in the sandbox runs"
        else:
            reason = ""
            self._ask_about_changes(asking)
        network = self._network(asking, allowed_by)
        if isinstance(network, Permission):
            return network
        kind = ViewKind.READING if is_reading and not self._is_yolo else ViewKind.WORKING
        if not self._is_held and (self._site.engine is Engine.NONE or kind is ViewKind.WORKING or asking.reasons):
            if self._site.is_required:
                raise sandbox_unavailable(self._site.failure)
            kind, network = ViewKind.UNCONFINED, Network.HOST
        view = self._view(kind, network, asking)
        if not asking.reasons:
            return replace(
                self._permission(Verdict.ALLOW, reason),
                view=self._restricted(replace(view, is_git=view.is_git and kind is ViewKind.READING)),
            )
        view = replace(view, is_asked=True)
        dialog = replace(
            view,
            seen=tuple(path for path in view.seen if path in asking.outside),
            writable=tuple(path for path in view.writable if path in asking.outside),
        )
        is_explicit = bool(asking.settings)
        return replace(
            self._permission(Verdict.ASK, "; ".join(asking.reasons), setting=" and ".join(asking.settings)),
            grants=() if asking.opens or is_explicit else tuple(asking.grants),
            is_explicit=is_explicit,
            no_rule_allows=asking.opens,
            view=self._restricted(view),
            dialog_view=self._restricted(dialog),
            offers_sandboxed=self._is_held and not is_explicit and not asking.opens and not is_reading,
        )

    # What is refused

    def _refused_by_words(self) -> Permission | None:
        for command in (*self._text.commands, *self._text.inner):
            if (rule := self._rule_about(command, self._rules.deny)) is not None:
                return self._permission(Verdict.DENY, str(rule), setting=rule.source, source=command.source)
        core = self._rules.core_commands()
        for command in self._text.commands if core else ():
            text = joined(command.words)
            if not any(rule.fits_command(text) for rule in core):
                reason = f"'{command.source}' is not among the commands of {CORE}"
                return self._permission(Verdict.DENY, reason, setting=CORE, source=command.source)
        return None

    def _refused_by_files(self) -> Permission | None:
        bare = next((r for r in self._rules.deny if r.specifier is None and r.governs(Access.READ)), None)
        if bare is not None:
            return self._permission(Verdict.DENY, f"{bare}: a command would read files", setting=bare.source)
        if self._hidden.problem_of_deny:
            reason = f"a rule of permissions.deny hides files, and it cannot be kept: {self._hidden.problem}"
            return self._permission(Verdict.DENY, reason, setting="permissions.deny")
        for named in self._named:
            for rule in self._rules_about(self._rules.deny, named):
                return self._permission(Verdict.DENY, f"{rule}: it names {named.shown}", setting=rule.source)
        return None

    # What is asked about

    def _asking(self, *, is_reading: bool, is_allowed: bool) -> _Asking:
        """What is asked about whatever mode it is."""
        asking, rules, text = _Asking(), self._rules, self._text
        is_about_commands = any(rule.is_about_commands for rule in rules.strict)
        for command in (*text.commands, *text.inner):
            if (rule := self._rule_about(command, rules.ask)) is not None:
                asking.add(str(rule), rule.source)
            elif is_about_commands and (rule := self._possible_rule(command)) is not None:
                asking.add(f"it may be a command that the {rule} covers", opens=True)
        doubt = text.doubt or ("bash evaluates an expression in it" if text.has_arithmetic else "")
        if doubt and is_about_commands:
            asking.add(f"{doubt}, and there are rules about commands", opens=True)
        for rule in rules.ask:
            if rule.specifier is None and rule.governs(Access.READ):
                asking.add(f"{rule}: a command reads files", rule.source)
        for named in self._named:
            for rule in self._rules_about(rules.ask, named):
                asking.add(f"{rule}: it names {named.shown}", rule.source)
                (asking.seen if is_reading and not named.is_written else asking.writable)[named.real] = None
            # No rule allows to write the server's own files; a link to them cannot be held by a mount.
            if named.may_be_written and (why := self._why_guarded(named)) is not None:
                asking.add(f"it names {named.shown}: {why}", opens=True)
                asking.writable[named.real] = None
            elif not (is_allowed and self._is_held) and not named.is_program:
                self._ask_about_path(asking, named, is_reading=is_reading)
        self._ask_about_hidden(asking, is_reading=is_reading)
        for command in text.commands if self._is_held and changes_by_git_alone(text) and not is_reading else ():
            words = without_git_options(command.words[1:])
            if command.program == "git" and words and words[0] in _GIT_CHANGES_SETTINGS and not is_reader(command):
                asking.add(f"'git {words[0]}' changes settings that git obeys", opens=True)
        return asking

    def _ask_about_path(self, asking: _Asking, named: NamedPath, *, is_reading: bool) -> None:
        may_write = named.may_be_written
        ignored = (each for each in self._hidden.ignored if contains(each.path, named.real))
        if (hidden := next(ignored, None)) is not None:
            asking.add(f"it names {named.shown}, which {hidden.why} hides from agents", opens=True)
            asking.seen[named.real] = None
        in_scratch = self._is_held and contains(SCRATCH_NAME, named.shown) and not is_inside(named.real, self._roots)
        is_there = in_scratch or is_inside(named.real, self._roots) or os.path.lexists(named.shown)
        if may_write and is_there and (why := self._why_protected(named)) is not None:
            asking.add(f"it names {named.shown}: {why}", opens=True)
            if not in_scratch:  # which is writable in any case
                asking.writable[named.real] = None
        elif (may_write or is_reading or not self._is_held) and self._is_outside(named):
            # What can write sees what lies outside in any case.
            if self._is_yolo and is_reading:
                return
            self._ask_about_outside(asking, named, may_write=may_write)

    def _ask_about_outside(self, asking: _Asking, named: NamedPath, *, may_write: bool) -> None:
        access = Access.WRITE if may_write else Access.READ
        allowing = (rule for rule in self._rules.allow if rule.specifier is not None and rule.governs(access))
        is_allowed = any(rule.fits_path((named.real,), self._roots) for rule in allowing)
        # What holds the home or the workspace is not opened for writing: it holds all that is kept, too.
        is_too_much = any(contains(named.real, each) for each in (*self._roots, self._request.home))
        can_be_written = may_write and not is_too_much and not is_inside(named.real, _OF_THE_SYSTEM)
        opened = asking.writable if can_be_written else asking.seen
        is_absent = not os.path.lexists(named.shown)
        if named.is_written and self._is_held and (is_absent or not can_be_written):
            why = "is never opened to a command" if not can_be_written else "does not exist"
            asking.refused = f"it would write {named.shown}, which lies outside the workspace and {why}"
            return
        if is_absent and not (may_write and named.is_of_git):
            return  # it may be no path at all; git makes worktrees and clones
        opened[named.real] = None
        if is_allowed:
            return
        asking.add(f"it names {named.shown}, which lies outside the workspace", opens=may_write)
        asking.outside[named.real] = None
        if not may_write and (literal := literal_path(named.real)) is not None:
            asking.grants[Grant(f"Read({literal})", f"reading {named.shown}")] = None

    def _ask_about_hidden(self, asking: _Asking, *, is_reading: bool) -> None:
        hidden, text = self._hidden, self._text
        if hidden.problem:
            asking.add(f"files are hidden from commands, and that cannot be kept: {hidden.problem}", opens=True)
        is_hiding = bool(hidden.denied or hidden.asked or hidden.ignored)
        if not self._is_held:
            has_rules = is_hiding or any(isinstance(rule.specifier, PathSpecifier) for rule in self._rules.strict)
            is_landlock = self._site.engine is Engine.LANDLOCK
            home = self._request.home
            if is_landlock and any(contains(path, home) for path in (*self._site.shown, *self._roots)):
                asking.add("it would see the home folder, where nothing can be hidden without bubblewrap", opens=True)
            if has_rules and (is_landlock or not text.is_literal):
                said = "without bubblewrap, rules about files hold for the literal words of a command only"
                asking.add(said, opens=True)
            return
        if is_hiding and is_reading and (self._request.command.is_background or text.has_background):
            asking.add(
                "it keeps running in the background, where it could see a hidden file that is replaced", opens=True
            )
        if is_hiding and self._uses_git and self._stores:
            asking.add("git has stored files that are hidden, and can show them", opens=True)

    def _ask_about_changes(self, asking: _Asking) -> None:
        """What is asked because no rule and no mode allows it."""
        text, was_asked = self._text, bool(asking.reasons)
        reasons: list[str] = []
        grants: list[Grant] = []
        is_written = all(map(is_reader, text.commands)) and not text.doubt  # where it writes is all there is to ask
        for command in text.commands:
            if self._allowing(command) is not None or is_on_short_list(command) or is_written:
                continue
            scope, network = first_words(command.words), needs_network(command)
            what = "needs the network" if network else "may change files"
            if is_reader(command):
                what = "would run in a view in which files can be changed"
            reasons.append(f"'{scope or command.name or 'a program whose name is not literal'}' {what}")
            if scope:
                grants.append(Grant(f"Bash({scope} *)", f"'{scope} ...'{' (with the network)' if network else ''}"))
        if is_written:
            for named in (each for each in self._named if each.is_written and each.shown not in _STREAMS):
                reasons.append(f"it writes {named.shown}")
                if self._is_held and (literal := literal_path(named.real)) is not None:
                    grants.append(Grant(f"Edit({literal})", f"edits of {named.shown}"))
        needs = self._request.command.needs
        if needs is not None:
            reasons = [f"it asks {'to change files' if needs is Needs.WRITE else 'for the network'}"]
        elif text.doubt:
            reasons = [text.doubt]
        elif len(grants) == len(reasons):
            asking.grants |= dict.fromkeys(grants)
        if not was_asked:
            asking.reasons |= dict.fromkeys(reasons or ["it is not known to only read"])

    # The view

    def _network(self, asking: _Asking, allowed_by: Mapping[SimpleCommand, Rule]) -> Network | Permission:
        """What it may reach; asks where it has to, and refuses what may never be reached."""
        site, needs = self._site, self._request.command.needs
        loopback = Network.SESSION_LOOPBACK if site.has_session and not self._is_plan else Network.OWN_LOOPBACK
        about_hosts = [rule for rule in self._rules.strict if rule.governs(Access.FETCH)]
        needing = [command for command in self._text.commands if needs_network(command)]
        if not needing and needs is not Needs.NETWORK:
            return Network.HOST if self._is_yolo and site.has_network and not about_hosts else loopback
        denied = next((r for r in about_hosts if r.specifier is None and r.verdict is Verdict.DENY), None)
        if denied is not None:
            return self._permission(Verdict.DENY, f"{denied}: it needs the network", setting=denied.source)
        if not site.has_network:
            reason = "it needs the network, which commands are not given here"
            return self._permission(Verdict.DENY, reason, setting="shell.network")
        is_given = self._is_yolo or (
            needs is None and bool(allowed_by) and all(_gives_network(allowed_by.get(command)) for command in needing)
        )
        if about_hosts:
            said = "it needs the network, where a command cannot be limited to single hosts"
            asking.add(f"{said}, and there is the {about_hosts[0]}", about_hosts[0].source)
        elif not is_given and not asking.reasons:
            asking.add("it needs the network")
            scopes = [first_words(command.words) for command in needing]
            if needs is None and all(scopes):
                asking.grants |= {Grant(f"Bash({each} *)", f"'{each} ...' (with the network)"): None for each in scopes}
        return Network.HOST

    def _view(self, kind: ViewKind, network: Network, asking: _Asking) -> CommandView:
        shown = allowed_reading(self._rules, self._request.home) if kind is ViewKind.READING else ()
        directed = (n.real for n in self._named if n.is_written and is_inside(n.real, self._roots))
        written = directed if kind is ViewKind.READING else ()
        return CommandView(
            self._site.engine,
            kind,
            network,
            seen=tuple(
                dict.fromkeys((*asking.seen, *shown, *(self._stores if asking.opens and self._uses_git else ())))
            ),
            writable=tuple(dict.fromkeys((*asking.writable, *written))),
            is_git=(
                self._uses_git and not self._hides_by_rules
                if kind is ViewKind.READING
                else changes_by_git_alone(self._text)
            ),
            is_plan=self._is_plan,
        )

    def _restricted(self, view: CommandView) -> CommandView:
        """The view with what rules about files keep from it, now and once more when the command starts."""
        if view.kind is ViewKind.UNCONFINED:
            return view
        hides = self._hidden.denied or (view.kind is ViewKind.READING and (self._hidden.asked or self._hidden.ignored))
        stores = self._stores if hides and not view.is_asked else ()
        look = partial(_look_again, self._request, view, stores)
        return replace(view, restrictions=_restrictions(self._hidden, self._request, view, stores), look=look)

    # What its words say

    def _is_reading(self) -> bool:
        if self._text.doubt or self._request.command.needs is not None:
            return False
        if self._site.engine is Engine.NONE:
            return self._is_on_short_list()
        return all(map(is_reader, self._text.commands)) and all(
            not each.is_output or self._is_free_target(each.target, each.folder) for each in self._text.redirections
        )

    def _is_on_short_list(self) -> bool:
        """Whether it runs unasked where nothing holds it."""
        text = self._text
        places = (*text.commands, *text.redirections)
        return (
            text.is_literal
            and not text.has_assignments
            and all(each.folder == "" for each in places)  # `cd` may fail, or hold for a part alone
            and bool(text.commands)
            and all(map(is_on_short_list, text.commands))
            and not text.has_background
            and all(not each.is_output or each.target == os.devnull for each in text.redirections)
            and not (self._uses_git and self._git_runs_programs())
            and all(is_inside(each.real, self._roots) for each in self._named if os.path.lexists(each.shown))
        )

    def _git_runs_programs(self) -> bool:
        """Whether git may run programs of a repository: hooks, filters and the like, or those of an unknown one."""
        for command in self._text.commands:
            if command.program != "git":
                continue
            options = command.words[1 : len(command.words) - len(without_git_options(command.words[1:]))]
            if command.folder != "" or not all(word in _QUIET_GIT_OPTIONS for word in options):
                return True
        top = work_tree_above(self._request.command.directory)
        return top is not None and runs_programs(top)

    def _is_free_target(self, target: str | None, folder: str | None) -> bool:
        path = self._absolute(target, folder) if target is not None else None
        if path is None:
            return False
        if path in _STREAMS:
            return True
        if not is_inside(path, self._roots):
            return self._is_held and contains(SCRATCH_NAME, path) and self._why_in_scratch(path) is None
        if not self._is_held or self._is_plan:
            return False
        allowing = (rule for rule in self._rules.allow if rule.governs(Access.WRITE))
        return self._request.mode is ApprovalMode.AUTO_EDIT or any(r.fits_path((path,), self._roots) for r in allowing)

    def _allowed_by(self) -> Mapping[SimpleCommand, Rule]:
        """The rule for each simple command that one allows, if all of it is allowed; else nothing."""
        if self._text.doubt:
            bare = next((rule for rule in self._rules.allow if rule.specifier is None and rule.fits_command("")), None)
            return dict.fromkeys(self._text.commands, bare) if bare is not None else {}
        found = {command: rule for command in self._text.commands if (rule := self._allowing(command)) is not None}
        rest = [command for command in self._text.commands if command not in found]
        # What stands beside an allowed command could else write by its redirections, or run what an index holds.
        is_plain = all(
            not each.is_output or self._is_free_target(each.target, each.folder) for each in self._text.redirections
        )
        if (rest and not is_plain) or self._text.has_arithmetic:
            return {}
        return found if found and all(map(is_on_short_list, rest)) else {}

    def _allowing(self, command: SimpleCommand) -> Rule | None:
        for words in programs_behind(command.words, loosely=False):
            name = words[0] if words else None
            text = joined((name and (plain_name(name) or name), *words[1:]))
            for rule in self._rules.allow:
                if rule.fits_command(text) or rule.fits_command(joined(words)):
                    return rule
        return None

    def _rule_about(self, command: SimpleCommand, rules: Sequence[Rule]) -> Rule | None:
        for words in programs_behind(command.words, loosely=True):
            texts = (joined(words), joined((os.path.basename(words[0] or "\0"), *words[1:])) if words else "")
            for rule in rules:
                if any(map(rule.fits_command, texts)):
                    return rule
        return None

    def _possible_rule(self, command: SimpleCommand) -> Rule | None:
        """A rule that forbids or asks and may be about a command, as far as its words are known."""
        for words in programs_behind(command.words, loosely=True):
            for rule in self._rules.strict:
                if not isinstance(rule.specifier, CommandSpecifier):
                    continue
                spelled = rule.specifier.pattern.partition(ANYTHING)[0].split()
                named = (os.path.basename(words[0]), *words[1:]) if words and words[0] is not None else words
                pairs = list(zip(spelled, named, strict=False))
                is_open = any(word is None for _, word in pairs)
                if is_open and all(word is None or word == meant for meant, word in pairs):
                    return rule
        return None

    @cached_property
    def _named(self) -> list[NamedPath]:
        found: dict[NamedPath, None] = {}

        def take(
            word: str,
            folder: str | None,
            *,
            writes: bool,
            is_written: bool = False,
            is_program: bool = False,
            is_of_git: bool = False,
        ) -> None:
            path = self._absolute(word, folder)
            if path is None or "\0" in path or _CODE.search(word) or word.startswith(CONNECTIONS):
                return
            try:
                inner = self._in_scratch(path)
                real = real_path(inner if is_written or os.path.lexists(inner) else path)
            except (OSError, ValueError):
                real = path
            found[NamedPath(path, real, is_written, is_program, writes, is_of_git)] = None

        for command in (*self._text.commands, *self._text.inner):
            writes = not is_reader(command)
            for at, word in enumerate(command.words):
                if word is None or (at == 0 and "/" not in word):
                    continue
                attached = _PATH_OF_OPTION.search(word) if word[:1] == "-" else None
                for piece in dict.fromkeys(
                    (word, word.partition("=")[2], attached[0] if attached else "", word[2:] if word[:1] == "-" else "")
                ):
                    if piece and len(piece) < 4096 and not piece.startswith("-"):
                        take(
                            piece,
                            command.folder,
                            writes=writes and at > 0,
                            is_program=at == 0,
                            is_of_git=command.program == "git",
                        )
        for each in self._text.redirections:
            if each.target is not None:
                take(each.target, each.folder, writes=each.is_output, is_written=each.is_output)
        return list(found)

    def _absolute(self, word: str, folder: str | None) -> str | None:
        home = self._request.home
        path = home + word[1:] if word == "~" or word.startswith("~/") else word
        if not os.path.isabs(path):
            if folder is None:
                return None
            start = home + folder[1:] if folder == "~" or folder.startswith("~/") else folder
            path = os.path.join(self._request.command.directory, start, path)
        return os.path.normpath("/" + path.lstrip("/"))

    # Places

    def _in_scratch(self, path: str) -> str:
        """Where a path really is that commands and file tools find below `/tmp`."""
        scratch = self._site.scratch
        if scratch is None or not contains(SCRATCH_NAME, path) or is_inside(path, self._roots):
            return path
        return scratch + path[len(SCRATCH_NAME) :]

    def _why_in_scratch(self, path: str) -> str | None:
        return why_protected(os.path.relpath(path, SCRATCH_NAME))

    def _is_outside(self, named: NamedPath) -> bool:
        real, shown = named.real, named.shown
        if is_inside(real, self._roots) or shown in _STREAMS:
            return False
        if is_inside(shown, _OF_THE_SYSTEM):
            return named.is_written and self._is_held
        if contains(SCRATCH_NAME, shown) and self._is_held:
            is_elsewhere = self._site.scratch is not None and not os.path.lexists(self._in_scratch(shown))
            return is_elsewhere and shown != SCRATCH_NAME and os.path.lexists(shown) and not named.is_written
        if named.is_written:
            return self._is_held
        if any(contains(path, real) for path in self._site.shown):
            return False
        above = os.path.dirname(shown)
        return os.path.lexists(shown) or (above != os.sep and os.path.isdir(above))

    def _why_guarded(self, named: NamedPath) -> str | None:
        is_around = any(contains(named.shown, root) for root in self._roots)
        return None if is_around else self._request.guarded.why((named.shown, named.real))

    def _why_protected(self, named: NamedPath) -> str | None:
        for path in (named.shown, named.real):
            if is_inside(path, self._roots):
                why = why_protected(self._request.workspace.at(path).relative)
            elif contains(SCRATCH_NAME, path):
                why = self._why_in_scratch(path)
            else:
                why = why_protected(os.path.relpath(path, self._request.home))
            if why is not None:
                return why
        return None

    @cached_property
    def _hidden(self) -> HiddenFiles:
        found = self._request.lookout.look(self._request.workspace, self._rules)
        return replace(found, ignored=()) if self._is_yolo else found  # where nothing is asked, commands show these

    @cached_property
    def _hides_by_rules(self) -> bool:
        """Whether something may be hidden by its name, wherever it lies: then no more of a repository is shown."""
        rules = any(isinstance(rule.specifier, PathSpecifier) for rule in self._rules.strict)
        return rules or bool(self._hidden.ignored)

    @cached_property
    def _stores(self) -> tuple[str, ...]:
        return self._request.lookout.stores_hidden(self._request.workspace, self._hidden, self._rules)

    @cached_property
    def _uses_git(self) -> bool:
        commands = (*self._text.commands, *self._text.inner)
        names = (words[0] for each in commands for words in programs_behind(each.words, loosely=True) if words)
        return any(os.path.basename(name or "") == "git" for name in names)

    def _rules_about(self, rules: Sequence[Rule], named: NamedPath) -> Iterator[Rule]:
        """Those of some rules about files that are about a named one."""
        for rule in rules:
            is_about = rule.governs(Access.READ) or (named.is_written and rule.governs(Access.WRITE))
            if rule.specifier is not None and is_about and rule.fits_path((named.shown, named.real), self._roots):
                yield rule

    # Verdicts

    def _permission(
        self, verdict: Verdict, reason: str, *, setting: str = "", way_out: str = "", source: str = ""
    ) -> Permission:
        """A verdict, with what was said of each simple command where there are several."""
        parts: list[Part] = []
        for command in self._text.commands if len(self._text.commands) > 1 else ():
            if command.source == source:
                parts.append(Part(source, verdict, reason))
            elif (allowing := self._allowing(command)) is not None or is_reader(command):
                parts.append(Part(command.source, Verdict.ALLOW, str(allowing or "it only reads")))
            else:
                what = "it needs the network" if needs_network(command) else "it may change files"
                is_allowed = verdict is Verdict.ALLOW
                parts.append(Part(command.source, Verdict.ALLOW if is_allowed else Verdict.ASK, what))
        parts = parts if source and parts else [Part(source, verdict, reason), *parts]
        return Permission(verdict, reason, setting=setting, way_out=way_out, parts=tuple(parts))


def allowed_reading(rules: Rules, home: str) -> Iterator[str]:
    """Real paths of files and folders outside the workspace that rules allow to read as a whole."""
    for rule in rules.allow:
        written = rule.text.partition("(")[2].rstrip(")").strip()
        if rule.tools & tool_names.READING and written.startswith(("//", "~/")):
            path = written.removesuffix("/**")
            path = home + path[1:] if path.startswith("~") else path[1:]
            if not set(path) & set("*?[\\") and os.path.lexists(path):
                yield os.path.realpath(path)


def _gives_network(rule: Rule | None) -> bool:
    """Whether a rule that allows a command spells what needs the network."""
    if rule is None or not isinstance(rule.specifier, CommandSpecifier):
        return False
    spelled = tuple(rule.specifier.pattern.partition(ANYTHING)[0].split())
    return needs_network(SimpleCommand("", spelled))


def _look_again(request: Request, view: CommandView, stores: Sequence[str]) -> FileRestrictions:
    """What rules keep from a command that starts now, in the view that its verdict gave."""
    hidden = request.lookout.look(request.workspace, request.rules)
    hidden = replace(hidden, ignored=()) if request.mode is ApprovalMode.YOLO else hidden
    if hidden.problem_of_deny or (hidden.problem and not view.is_asked):
        raise ExecutionDeniedError(
            f"The command was not run: files are hidden from it by rules, and that cannot be kept: {hidden.problem}. "
            "Try again; if it stays so, tell the user."
        )
    return _restrictions(hidden, request, view, stores)


def _restrictions(hidden: HiddenFiles, request: Request, view: CommandView, stores: Sequence[str]) -> FileRestrictions:
    named = frozenset((*view.seen, *view.writable))
    found = restrictions(
        hidden, view.kind, named=named, is_asked=view.is_asked, rules=request.rules, workspace=request.workspace
    )
    masks = (os.path.join(store, name) for store in stores for name in ("objects", "index"))
    return replace(found, masked=(*found.masked, *(path for path in masks if os.path.lexists(path))))
