"""Finds skills, which are folders with a `SKILL.md`, in the workspace and in the user's home folder.

Like a workspace's settings, a skill in a workspace is used only after a person has trusted its current text. Skills
in the home folder, outside any workspace, are the user's own and need no trust. `Skills.problems` says why other
skills cannot be used, for the log and for models that ask for a skill that is not available.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tools.contract.call_options import AbortSignal
from tools.contract.tool_errors import PathNotInWorkspaceError, ToolError, ToolErrorType
from tools.files.ignore_files import refuse_hidden
from tools.files.workspace import Location, Workspace, contains, is_inside
from tools.text.file_names import brief, sendable_name, shortened_line, shown_name, shown_path, shown_whole_path

PLACES = (".qwen/skills", ".gemini/skills", ".claude/skills", ".agents/skills")
MAIN_FILE = "SKILL.md"
MAX_SKILL_BYTES = 100_000  # maximum size of a skill's main file
MAX_FOLDERS = 200  # maximum number of folders examined per place
MAX_ENTRIES = 1_000  # number of entries in a skill's folder after which the search for its files ends
MAX_FILES = 100  # maximum number of files listed for a skill
MAX_NAME_CHARS = 64  # maximum length of a skill's name
MAX_ABOUT_CHARS = 1_000  # maximum length of a skill's description
_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?)^---[ \t]*$\n?", re.DOTALL | re.MULTILINE)
_KEY = re.compile(r"([A-Za-z_][\w-]*)[ \t]*:(?:[ \t]+(.*))?$")
_BLOCK = re.compile(r"[|>][-+0-9]*(?:\s+#.*)?")
_QUOTED = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')(?:\s+#.*)?""")
_NOT_SET = ("", "false", "no", "off", "n", "0", "null", "~")  # values of a field that mean false
_PLACE_NAME = "skills"  # the name of folders that contain skills


@dataclass(frozen=True, slots=True)
class Skill:
    name: str
    description: str  # what the skill does and when to use it
    text: str
    location: Location  # the location of the skill's main file
    workspace: Workspace  # opens the main file
    is_in_skills_folder: bool  # false if the skill is a symlink to a folder outside any `skills` folder

    @property
    def place(self) -> str:
        return shown_whole_path(self.folder)

    @property
    def folder(self) -> str:
        return os.path.dirname(self.location.path)

    def files(self, signal: AbortSignal) -> tuple[list[str], bool]:
        """Return up to `MAX_FILES` other files of the skill, without symlinks, and whether there are more. Blocking."""
        from tools.files.find.folder_walk import visible_kind  # noqa: PLC0415 - loaded on first use

        paths: list[str] = []
        pending, entry_count = [self.folder], 0
        while pending and entry_count < MAX_ENTRIES and len(paths) <= MAX_FILES:
            signal.raise_if_aborted()
            folder = pending.pop(0)
            try:
                with self.workspace.open_folder(folder) as handle:
                    entries = handle.entries()
            except (OSError, ToolError):
                continue
            entry_count += entries.total
            pending += [os.path.join(folder, name) for name in sorted(entries.folders)[:MAX_ENTRIES]]
            for name in sorted(entries.files)[:MAX_ENTRIES]:
                path = os.path.join(folder, name)
                if path != self.location.path and len(paths) <= MAX_FILES:
                    paths += [path[len(self.folder) + 1 :]] if visible_kind(self.workspace, path) else []
        return paths[:MAX_FILES], bool(pending) or entry_count > MAX_ENTRIES or len(paths) > MAX_FILES


@dataclass(frozen=True, slots=True)
class RelayedSkill:
    """A skill from an upstream server."""

    name: str
    description: str
    uri: str
    files: Sequence[str]  # URIs of the skill's other files
    read: Callable[[], Awaitable[str]]

    @property
    def place(self) -> str:
        return brief(self.uri)


@dataclass(slots=True)
class Skills:
    by_name: dict[str, Skill | RelayedSkill] = field(default_factory=dict[str, "Skill | RelayedSkill"])
    problems: list[str] = field(default_factory=list[str])  # sentences that say why other skills are not used

    def add(self, skill: Skill | RelayedSkill) -> None:
        if (first := self.by_name.setdefault(skill.name, skill)).place != skill.place:
            self.problems.append(f"{skill.place} is not used: the skill {first.place} has the same name, {skill.name}.")


@dataclass(frozen=True, slots=True)
class SkillFolders:
    home: str | None = None  # the user's home folder, if known
    # Returns the trusted skills of each folder: the SHA-256 of the main file's trusted content, keyed by relative path
    trusted_skills: Callable[[], Mapping[str, Mapping[str, str]]] = dict

    def find(self, workspace: Workspace, *, with_home: bool, signal: AbortSignal | None = None) -> Skills:
        """Return the skills in the workspace, followed by those in the home folder if `with_home` is true. Blocking."""
        skills, trusted_skills = Skills(), self.trusted_skills()
        bases = dict.fromkeys(workspace.roots, workspace)
        if with_home and self.home:
            home = os.path.realpath(self.home)
            # Agent-ignore files belong in projects, so none are read in the home folder.
            bases.setdefault(home, Workspace([home], respect_agent_ignore=False, forbidden=workspace.forbidden))
        for base, opener in bases.items():
            trusted_digests, untrusted_count = trusted_skills.get(sendable_name(base), {}), 0
            for name, data, skill in skills_below(opener, base, skills.problems, signal):
                # Anyone who works in the workspace may have written a skill there, so it needs trust even if a symlink
                # in the home folder leads to it.
                is_own = not is_inside(skill.location.path, workspace.roots)
                if is_own or trusted_digests.get(sendable_name(name)) == hashlib.sha256(data).hexdigest():
                    skills.add(skill)
                else:
                    untrusted_count += 1
            if untrusted_count:
                skills.problems.append(
                    f"Skills in {shown_whole_path(base)} that a person must review first, by running coretools-mcp "
                    f"trust there: {untrusted_count}."
                )
        return skills


def skills_below(
    workspace: Workspace, base: str, problems: list[str], signal: AbortSignal | None = None
) -> Iterator[tuple[str, bytes, Skill]]:
    """Yield the skills in a folder's `PLACES`, each with the relative path and content of its main file. Blocking.

    Reasons why other skills cannot be used are added to `problems`.
    """
    for place in PLACES:
        try:
            folder = workspace.locate(os.path.join(base, place))
            with workspace.open_folder(folder.path) as handle:
                names = sorted(handle.names())
        except PathNotInWorkspaceError:
            problems.append(
                f"'{place}' in {shown_whole_path(base)} is a symlink that leads out of that folder, so it is not used."
            )
            continue
        except (OSError, ToolError):
            continue
        if len(names) > MAX_FOLDERS:
            problems.append(
                f"'{place}' has {len(names):,} entries; only the first {MAX_FOLDERS} are searched for skills."
            )
        for name in names[:MAX_FOLDERS]:
            relative = f"{place}/{name}/{MAIN_FILE}"
            try:
                data, skill = _read_skill(workspace, base, relative, signal or AbortSignal())
            except PathNotInWorkspaceError:
                problems.append(
                    f"The skill '{shown_name(name)}' in {place} is not used: it is a symlink to a folder that may "
                    f"not be used, or its {MAIN_FILE} is a symlink into another folder."
                )
            except ToolError as error:
                if error.code is ToolErrorType.CANCELLED:
                    raise
                if error.code is not ToolErrorType.FILE_NOT_FOUND:
                    problems.append(error.message)
            except OSError:
                continue
            else:
                yield relative, data, skill


def _read_skill(workspace: Workspace, base: str, relative: str, signal: AbortSignal) -> tuple[bytes, Skill]:
    """Return a skill's main file and the skill. Raises a `ToolError` that says why the skill cannot be used."""
    location = workspace.locate(os.path.join(base, *relative.split("/")))
    refuse_hidden(workspace, location, "used as a skill")
    skill_folder = os.path.dirname(os.path.join(base, *relative.split("/")))
    folder, place = workspace.locate(skill_folder).path, os.path.realpath(os.path.dirname(skill_folder))
    not_used = f"The skill '{shown_path(relative)}' is not used"
    if (rule := workspace.rule_about_reading(location)) is not None:
        raise ToolError(ToolErrorType.PATH_IGNORED, f"{not_used}: {rule} forbids reading it.")
    # A client may read the folder of a skill's main file. Therefore, refuse a folder that is a symlink to one of its
    # parent folders, and a main file that is a symlink into another folder.
    if contains(folder, place) or os.path.dirname(location.path) != folder:
        raise PathNotInWorkspaceError(location.raw_path, (base,), by_link=True)
    with workspace.open_file(location) as file:
        if file.info.st_size > MAX_SKILL_BYTES:
            raise ToolError(
                ToolErrorType.FILE_TOO_LARGE,
                f"{not_used}: its text is {file.info.st_size:,} bytes long; the limit is {MAX_SKILL_BYTES:,}. Its "
                "author can move parts to separate files.",
            )
        data = file.whole(signal)
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    front = _FRONT_MATTER.match(text)
    fields = front_matter(front[1]) if front else {}
    description = " ".join(filter(None, (fields.get("description"), fields.get("when_to_use"))))
    if front is None or not description:
        raise ToolError(
            ToolErrorType.READ_CONTENT_FAILURE,
            f"{not_used}: it does not begin with front matter (between lines of ---) that has a description.",
        )
    if fields.get("disable_model_invocation", "").lower() not in _NOT_SET:
        raise ToolError(ToolErrorType.EXECUTION_DENIED, f"{not_used}: its own settings forbid models from loading it.")
    name = shortened_line(fields.get("name") or relative.split("/")[-2], MAX_NAME_CHARS)
    description = shortened_line(description, MAX_ABOUT_CHARS)
    is_in_skills_folder = os.path.dirname(folder) == place or os.path.basename(os.path.dirname(folder)) == _PLACE_NAME
    return data, Skill(name, description, text[front.end() :].strip("\n"), location, workspace, is_in_skills_folder)


def front_matter(text: str) -> dict[str, str]:
    """Return the fields of the front matter, each as text on one line.

    Supports the YAML that skills use: a value on the line of its key or on indented lines, either plain, quoted or a
    block (`|` or `>`). Nested values are not needed and count as text.
    """
    fields: dict[str, list[str]] = {}
    last: list[str] = []
    for line in text.splitlines():
        match = _KEY.match(line)
        if match is not None:
            last = fields[match[1].replace("-", "_")] = [(match[2] or "").strip()]
        elif last and (not line.strip() or line[0] in " \t"):
            last.append(line.strip())
    texts: dict[str, str] = {}
    for key, lines in fields.items():
        text = " ".join(filter(None, lines))
        quoted_value = _QUOTED.fullmatch(text)
        if _BLOCK.fullmatch(lines[0]):
            text = " ".join(" ".join(lines[1:]).split())
        elif quoted_value is None:
            text = re.split(r"(?:^|\s)#", text, maxsplit=1)[0].strip()
        elif text[0] == "'":
            text = quoted_value[1][1:-1].replace("''", "'")
        else:
            try:
                text = " ".join(str(json.loads(quoted_value[1])).split())
            except ValueError:
                text = quoted_value[1][1:-1]
        texts[key] = text
    return texts
