"""`completion`: prints a completion script, generated from the command-line parser so that the two always match."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence

from server.console.known_clients import client_configs
from tools.builtin.all_tools import builtin_tools

NAME = "coretools-mcp"

_BASH = """\
_coretools_mcp() {{
    local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" command="" word
    COMPREPLY=()
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "${{command:+$command }}$word" in
            {commands}) command="${{command:+$command }}$word" ;;
        esac
    done
    if [[ -z "$command" && COMP_CWORD -gt 1 && "${{COMP_WORDS[1]}}" == -* ]]; then command=serve; fi
    case "$command:$prev" in
{values}
    esac
    case "$command" in
{words}
    esac
}}
complete -o default -F _coretools_mcp coretools-mcp
"""

_OWN_SERVERS = (
    """$(coretools-mcp config show 2> /dev/null | sed -n 's/^mcpServers[.]\\([^. ]*\\)[.].*/\\1/p' | sort -u)"""
)
"""A shell command that lists the servers in the current settings."""


def script(shell: str, commands: Mapping[str, argparse.ArgumentParser]) -> str:
    top = dict.fromkeys(words.partition(" ")[0] for words in commands)
    groups = {word: [words.split()[1] for words in commands if words.startswith(f"{word} ")] for word in top}
    if shell == "fish":
        return "".join(f"{line}\n" for line in _fish(commands, groups))
    known = [f'"{words}"' for words in [*commands, *(word for word, below in groups.items() if below)]]
    values: list[str] = []
    words = [f'        "") COMPREPLY=($(compgen -W "{" ".join(sorted(top))} --help --version" -- "$cur")) ;;']
    words += [
        f'        "{word}") COMPREPLY=($(compgen -W "{" ".join(below)}" -- "$cur")) ;;'
        for word, below in groups.items()
        if below
    ]
    for command, parser in commands.items():
        offered: list[str] = []
        for option in _actions(parser):
            if option.option_strings and option.nargs != 0:
                how = f'-W "{_values(option)}"' if option.choices else "-d" if option.metavar == "DIR" else "-f"
                where = "|".join(f'"{command}:{name}"' for name in option.option_strings)
                values.append(f'        {where}) COMPREPLY=($(compgen {how} -- "$cur")); return ;;')
            offered += [name for name in option.option_strings if name.startswith("--")]
        offered += _positionals(parser)
        words.append(f'        "{command}") COMPREPLY=($(compgen -W "{" ".join(offered)}" -- "$cur")) ;;')
    made = _BASH.format(commands="|".join(known), values="\n".join(values), words="\n".join(words))
    return f"autoload -U +X bashcompinit && bashcompinit\n{made}" if shell == "zsh" else made


def _fish(commands: Mapping[str, argparse.ArgumentParser], groups: Mapping[str, Sequence[str]]) -> Iterator[str]:
    def about(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    for word in sorted(groups):
        described = (commands[word].description or "").partition(".")[0] if word in commands else ""
        yield f"complete -c {NAME} -n __fish_use_subcommand -a {word} -d {about(described)}"
        if groups[word]:
            yield f"complete -c {NAME} -f -n '__fish_seen_subcommand_from {word}' -a '{' '.join(groups[word])}'"
    for command, parser in commands.items():
        seen = " && ".join(f"__fish_seen_subcommand_from {word}" for word in command.split())
        for option in (each for each in _actions(parser) if each.option_strings):
            names = option.option_strings
            flags = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in names)
            takes = f" -xa '{_values(option)}'" if option.choices else " -r" if option.nargs != 0 else ""
            yield f"complete -c {NAME} -n '{seen}' {flags}{takes} -d {about(option.help or '')}"
        if positionals := _positionals(parser):
            yield f"complete -c {NAME} -n '{seen}' -a {about(' '.join(positionals).replace('$(', '('))}"


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return parser._actions  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - there is no public list


def _values(option: argparse.Action) -> str:
    return " ".join(map(str, option.choices or ()))


def _positionals(parser: argparse.ArgumentParser) -> list[str]:
    """Return the possible values of the positional arguments."""
    found: list[str] = []
    for action in _actions(parser):
        if not action.option_strings:
            found += map(str, action.choices or ())
            found += client_configs({}) if action.metavar == "CLIENT" else ()
            found += [tool.name for tool in builtin_tools()] if action.dest == "tool" else ()
            is_server = action.dest == "name" and parser.prog.rpartition(" ")[2] in ("remove", "enable", "disable")
            found += [_OWN_SERVERS] if is_server else ()
    return found
