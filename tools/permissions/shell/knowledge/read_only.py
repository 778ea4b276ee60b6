"""Which commands change nothing, and with which options they would after all.

A command that is not in these tables is never taken as read-only. Options that write, run something or reach the
network are listed per command and looked for in every word, also where a word may be the value of another option:
better one question too many. What has a language of its own (sed, awk, find, git) is judged by its own function.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tools.permissions.shell.knowledge.git import is_read_only_git
from tools.permissions.shell.knowledge.scripts import is_harmless_awk, is_harmless_jq, is_harmless_sed, is_harmless_yq
from tools.permissions.shell.knowledge.variables import changes_only_looks, is_sensitive
from tools.permissions.shell.syntax.words import Word, names

_HARMLESS = names(
    ": b2sum base32 base64 basename break cal cat cd cksum cmp column comm continue cut dir dirname"
    " dirs du echo egrep exit expand expr factor false fgrep fmt fold free getconf grep groups head"
    " hexdump id join locale logname ls lsblk lscpu md5sum nl nproc numfmt od paste pathchk pushd popd"
    " pwd readlink realpath rev return seq sleep sha1sum sha224sum sha256sum sha384sum sha512sum shift stat"
    " strings sum tac tail tr true tsort tty type uname unexpand uptime users vdir w wc which who whoami"
    " printenv df"
)
"""They change nothing with whatever arguments."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What takes a command out of the read-only ones.

    Args:
        letters: Short options.
        names: Long options, and single-dash ones of more than one letter, without dashes; abbreviations count.
        operands: How many operands it may have; `None` for any number.
        valued: Short options with a value, for counting operands.
    """

    letters: str = ""
    names: tuple[str, ...] = ()
    operands: int | None = None
    valued: str = ""

    def hold(self, arguments: Sequence[Word]) -> bool:
        """Whether none of it is there."""
        if any(word.may_be_option and (not word.is_literal or self._forbids(word.text)) for word in arguments):
            return False
        return self.operands is None or self._count(arguments) <= self.operands

    def _forbids(self, text: str) -> bool:
        if not text.startswith("--"):
            return any(letter in self.letters for letter in text[1:]) or text[1:] in self.names
        name = text[2:].partition("=")[0]
        return bool(name) and any(forbidden.startswith(name) for forbidden in self.names)

    def _count(self, arguments: Sequence[Word]) -> int:
        if any(word.may_split for word in arguments):
            return len(arguments) + (self.operands or 0) + 1
        count, is_value = 0, False
        for word in arguments:
            is_option = word.text.startswith("-") and word.text != "-"
            count += not (is_option or is_value)
            is_value = is_option and len(word.text) == len("-x") and word.text[1] in self.valued
        return count


LIMITED: dict[str, Limits] = {
    "date": Limits("s", ("set",)),
    "diff": Limits("l", ("paginate",)),
    "file": Limits("CzZ", ("compile", "uncompress", "uncompress-noreport")),
    "hostname": Limits("Fbs", ("file", "boot"), operands=0),
    "rg": Limits("z", ("pre", "hostname-bin", "search-zip")),
    "shuf": Limits("o", ("output",)),
    "sort": Limits("o", ("output", "compress-program")),
    "tree": Limits("oR", ("output",)),
    "uniq": Limits(operands=1, valued="fsw"),
    "xxd": Limits("r", ("revert",), operands=1, valued="cglos"),
    "yq": Limits("is", ("inplace", "in-place", "split-exp", "security-enable-system-operator")),
}

_FIND_CHANGES = names("delete fls fprint fprint0 fprintf execdir ok okdir")
_TEST_OPERATORS = names("= == != < > -eq -ne -lt -le -gt -ge -nt -ot -ef -z -n -f -d -e -s -r -w -x -L -h")
_SHELL_OPTIONS = names("-e -u -o -eu -euo -eo -f +e +u pipefail errexit nounset")

_PS_COLUMN = (
    "(?:pid|ppid|pgid|sid|sess|tty|tt|user|uid|ruser|euser|group|comm|cmd|args|command|ucmd|ucomm|fname|stat|state|s"
    "|pcpu|%cpu|pmem|%mem|rss|vsz|sz|time|cputime|etime|etimes|start|lstart|start_time|stime|nice|ni|pri|psr|nlwp)"
)
_PS_COLUMNS = f"{_PS_COLUMN}=?(?:,{_PS_COLUMN}=?)*"
_PS_CHOSEN = r"(?:-p ?|--pid[ =]|--ppid[ =])\d+(?:,\d+)*"
_PS = re.compile(
    rf"(?:-[eA][fFl]?|-[fFl]|ax?|x|axu|auxf?|axf|(?:aux|ax)ww?|-ax|-aux|(?:-f )?{_PS_CHOSEN}(?: -f)?"
    rf"|(?:(?:-[eA]|-?ax|{_PS_CHOSEN}) )?-o ?{_PS_COLUMNS}|-[eA]o ?{_PS_COLUMNS}|-o ?{_PS_COLUMNS} {_PS_CHOSEN})?"
    rf"(?:(?:\A| )(?:--sort[= ][-+]?{_PS_COLUMN}|--no-headers?|--forest|-ww?))*"
)


def is_read_only(name: str, arguments: Sequence[Word]) -> bool:
    """Whether a command is known to change nothing.

    Args:
        name: Its family, without a standard folder.
        arguments: The words behind it.
    """
    if name in _HARMLESS:
        return True
    if limits := LIMITED.get(name):
        further = _JUDGES.get(name)
        return limits.hold(arguments) and (further is None or further(arguments))
    judge = _JUDGES.get(name)
    return judge is not None and judge(arguments)


def _shows_date(arguments: Sequence[Word]) -> bool:
    """`date 01020304` sets the clock; a format begins with a plus sign."""
    previous = ""
    for word in arguments:
        is_value = previous in ("-d", "-r", "-f", "--date", "--reference", "--file")
        if not (is_value or word.prefix.startswith(("+", "-"))):
            return False
        previous = "" if is_value else word.text
    return True


def _only_prints(arguments: Sequence[Word]) -> bool:
    """`printf -v` sets a variable; options stand in front only."""
    return not arguments or not arguments[0].may_be_option


def _is_read_only_find(arguments: Sequence[Word]) -> bool:
    """Commands behind `-exec` are judged by themselves."""
    return all(not word.may_be_option or (word.is_literal and word.text[1:] not in _FIND_CHANGES) for word in arguments)


def _is_read_only_test(arguments: Sequence[Word]) -> bool:
    """`-v` and `-R` evaluate the subscript of an array, and a word that is not literal could turn into them."""
    texts = [word.text for word in arguments if word.is_literal]
    if "-v" in texts or "-R" in texts or any(word.may_split for word in arguments):
        return False
    return len(texts) == len(arguments) or any(text in _TEST_OPERATORS for text in texts)


def _is_read_only_condition(arguments: Sequence[Word]) -> bool:
    """In `[[ ]]`, numbers are compared by evaluating them."""
    texts = [word.text for word in arguments]
    if "-v" in texts or "-R" in texts:
        return False
    for place, text in enumerate(texts):
        sides = arguments[max(0, place - 1) : place + 2]
        if re.fullmatch(r"-(eq|ne|lt|le|gt|ge)", text) and not all(
            re.fullmatch(r"-?\d+|-[a-z]+", side.text) for side in sides
        ):
            return False
    return True


def _is_harmless_declaration(arguments: Sequence[Word]) -> bool:
    for word in arguments:
        name, equals, _value = word.source.partition("=")
        if word.text in ("-r", "-g", "-p"):
            continue
        if not re.fullmatch(r"[A-Za-z_]\w*\+?", name) or (not equals and not word.is_literal):
            return False
        if is_sensitive(name.rstrip("+")):
            return False
    return True


def _is_harmless_export(arguments: Sequence[Word]) -> bool:
    """What is exported reaches every later command."""
    return all(word.text == "-p" or ("=" in word.source and changes_only_looks(word)) for word in arguments)


def _lists_processes(arguments: Sequence[Word]) -> bool:
    """Whether it is a plain use of `ps`. Others show the environments of processes, with the secrets in them.

    A mistake in its options makes `ps` read all of them in another way, in which `-e` shows environments, so there is a
    list of whole command lines.
    """
    return all(word.is_literal for word in arguments) and _PS.fullmatch(" ".join(w.text for w in arguments)) is not None


def _sets_harmless_options(arguments: Sequence[Word]) -> bool:
    return bool(arguments) and all(word.text in _SHELL_OPTIONS for word in arguments)


def _only_takes_input(arguments: Sequence[Word]) -> bool:
    """`read -r` sets variables to what is read as it is; those that decide what runs are doubted."""
    is_raw = any(re.fullmatch(r"-[a-z]*r[a-z]*", word.text) for word in arguments)
    return is_raw and all(word.is_literal for word in arguments)


def _lists_history(arguments: Sequence[Word]) -> bool:
    return all(word.text.isdigit() for word in arguments)


def _makes_plain_file(arguments: Sequence[Word]) -> bool:
    """A new file, or a new folder, in the folder for such files."""
    return all(word.text in ("-d", "-q", "-t") for word in arguments)


_JUDGES: dict[str, Callable[[Sequence[Word]], bool]] = {
    "date": _shows_date,
    "find": _is_read_only_find,
    "jq": is_harmless_jq,
    "yq": is_harmless_yq,
    "printf": _only_prints,
    "sed": is_harmless_sed,
    "awk": is_harmless_awk,
    "git": is_read_only_git,
    "test": _is_read_only_test,
    "[": _is_read_only_test,
    "[[": _is_read_only_condition,
    "export": _is_harmless_export,
    "ps": _lists_processes,
    "declare": _is_harmless_declaration,
    "typeset": _is_harmless_declaration,
    "local": _is_harmless_declaration,
    "readonly": _is_harmless_declaration,
    "set": _sets_harmless_options,
    "read": _only_takes_input,
    "history": _lists_history,
    "mktemp": _makes_plain_file,
}
