"""Programs that are told to write their settings, or hooks, by names that no word of theirs says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tools.permissions.shell.knowledge.families import RUNNERS, RUNNERS_ALONE
from tools.permissions.shell.names import names
from tools.permissions.shell.syntax.words import Word, literal

MAX_WORDS = 32
"""How far behind the name it is told what is done."""

MAX_VALUES = 4
"""Values of options that may stand there."""

_TABLE = r"""
npm pnpm: (?:config|conf|c)\s(?:.*\s)?(?:set|delete|rm|edit|fix)\b(?!-)|(?:\S+\s)?set\s | .npmrc
yarn: config\s(?:.*\s)?(?:set|unset|delete)\b(?!-)|(?:set\sversion|policies\sset-version|plugin\simport)\b | .yarnrc.yml
pip: config\s(?:.*\s)?(?:set|unset|edit)\b | ~/.config/pip/pip.conf
mise: (?:use|u|set|unset|unuse|settings\s(?:set|add|unset))\b | mise.toml
asdf: (?:local|global|set)\b | .tool-versions
direnv: (?:edit|allow|permit|grant)\b | .envrc
pre-commit pre_commit: (?:install|uninstall|init-templatedir|migrate-config|autoupdate)\b | .git/hooks/pre-commit
lefthook: (?:install|uninstall|add)\b | .git/hooks .git/config
husky: | .husky/pre-commit .git/config
gh: (?:alias\s(?:set|import)|config\sset|extension\s(?:install|upgrade))\b | ~/.config/gh/config.yml
kubectl oc: config\sset(?:-credentials)?\b(?!-) | ~/.kube/config
aws: configure\b(?!\s(?:list|get)) | ~/.aws/config
jj: config\s(?:.*\s)?(?:set|edit|unset)\b | .jj/repo/config.toml
hg: config\s(?:.*\s)?(?:--edit|-e|--local|-l)\b | .hg/hgrc
claude gemini qwen codex: mcp\s(?:add|remove|add-json|import)\b|config\s(?:set|add)\b | .mcp.json
git-lfs: install\b | .git/hooks .git/config
git: lfs\s(?:install|update)\b | .git/hooks .git/config
docker: plugin\sinstall\b | ~/.docker/cli-plugins/x
"""


def _entries() -> Iterator[tuple[str, tuple[re.Pattern[str], tuple[str, ...]]]]:
    for line in _TABLE.strip().splitlines():
        heads, _, rest = line.partition(":")
        pattern, _, paths = rest.rpartition(" | ")
        yield from ((head, (re.compile(pattern.strip(), re.DOTALL), tuple(paths.split()))) for head in heads.split())


_WRITTEN = dict(_entries())
_OTHER_WORDS = names("run run-script exec x install i add")


def settings_written(name: str, arguments: Sequence[Word]) -> Iterator[Word]:
    """The files that a program is told to write without their names, also where another one runs it.

    Args:
        name: Its family.
        arguments: The words behind it.
    """
    runs_other = name in RUNNERS and any(word.text in _OTHER_WORDS for word in arguments[:1])
    if name in _WRITTEN and not runs_other:
        pattern, paths = _WRITTEN[name]
        texts = [word.text for word in arguments[:MAX_WORDS] if not word.text.startswith("-") or name == "hg"]
        # An option may have a value, so each of the first words may begin what it is told.
        if any(pattern.match(" ".join(texts[at:])) for at in range(MAX_VALUES)):
            yield from map(literal, paths)
    if name in RUNNERS | RUNNERS_ALONE or name.startswith("python"):
        for at, word in enumerate(arguments[:MAX_WORDS]):
            if word.text in _WRITTEN and word.text not in RUNNERS:
                yield from settings_written(word.text, arguments[at + 1 :])
