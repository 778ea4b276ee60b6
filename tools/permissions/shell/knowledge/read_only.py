"""Which commands change nothing, and with which options they would after all.

A command that is not in these tables is never taken as read-only. Options that write, run something or reach the
network are listed per command and looked for in every word, also where a word may be the value of another option:
better one question too many. What has a language of its own (sed, awk, find, git) is judged by its own function.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tools.permissions.shell.knowledge import interpreters
from tools.permissions.shell.knowledge.git import is_read_only_git
from tools.permissions.shell.knowledge.program_files import gives_option
from tools.permissions.shell.knowledge.variables import changes_only_looks, is_sensitive
from tools.permissions.shell.syntax.words import Word, names

# They change nothing with whatever arguments
_HARMLESS = names(
    ": b2sum base32 base64 basename break cal cat cd cksum cmp column comm continue cut dir dirname"
    " dirs du echo egrep exit expand expr factor false fgrep fmt fold free getconf grep groups head"
    " hexdump id join locale logname ls lsblk lscpu md5sum nl nproc numfmt od paste pathchk pushd popd"
    " pwd readlink realpath rev return seq sleep sha1sum sha224sum sha256sum sha384sum sha512sum shift stat"
    " strings sum tac tail tr true tsort tty type uname unexpand uptime users vdir w wc which who whoami"
    " printenv df"
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What takes a command out of the read-only ones."""

    # Letters of short options, and names of long ones, without dashes; abbreviations count.
    options: frozenset[str] = frozenset()
    operands: int | None = None  # how many operands it may have; `None` for any number
    valued: str = ""  # short options with a value, for counting operands

    def hold(self, arguments: Sequence[Word]) -> bool:
        """Whether none of it is there."""
        if any(
            word.may_be_option and (not word.is_literal or gives_option(word.text, self.options)) for word in arguments
        ):
            return False
        if self.operands is None:
            return True
        count, is_value = 0, False
        for word in arguments:
            is_option = word.text.startswith("-") and word.text != "-"
            count += not (is_option or is_value)
            is_value = is_option and len(word.text) == len("-x") and word.text[1] in self.valued
        return count <= self.operands and not any(word.may_split for word in arguments)


LIMITED: dict[str, Limits] = {
    "date": Limits(names("s set")),
    "diff": Limits(names("l paginate")),
    "file": Limits(names("C z Z compile uncompress uncompress-noreport")),
    "hostname": Limits(names("F b s file boot"), operands=0),
    "rg": Limits(names("z pre hostname-bin search-zip")),
    "shuf": Limits(names("o output")),
    "sort": Limits(names("o output compress-program")),
    "tree": Limits(names("o R output")),
    "uniq": Limits(operands=1, valued="fsw"),
    "xxd": Limits(names("r revert"), operands=1, valued="cglos"),
    "yq": Limits(names("i s inplace in-place split-exp security-enable-system-operator")),
}
_LANGUAGES = {
    "git": is_read_only_git, "sed": interpreters.is_harmless_sed, "awk": interpreters.is_harmless_awk,
    "jq": interpreters.is_harmless_jq, "yq": interpreters.is_harmless_yq,
}  # fmt: skip
_TEST_OPERATORS = names("= == != < > -eq -ne -lt -le -gt -ge -nt -ot -ef -z -n -f -d -e -s -r -w -x -L -h")
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
    """Whether a command is known to change nothing."""
    if name in LIMITED and not LIMITED[name].hold(arguments):
        return False
    texts = [word.text for word in arguments]
    is_literal = all(word.is_literal for word in arguments)
    if name in _LANGUAGES:
        return _LANGUAGES[name](arguments)
    match name:
        case "find":
            # Commands behind `-exec` are judged by themselves.
            options = [word for word in arguments if word.may_be_option]
            changes = names("-delete -fls -fprint -fprint0 -fprintf -execdir -ok -okdir")
            return all(word.is_literal and f"-{word.text[1:]}" not in changes for word in options)
        case "date":
            # `date 01020304` sets the clock; a format begins with a plus sign.
            is_value = False
            for word in arguments:
                if not (is_value or word.prefix.startswith(("+", "-"))):
                    return False
                is_value = not is_value and word.text in ("-d", "-r", "-f", "--date", "--reference", "--file")
            return True
        case "printf":
            # `-v` sets a variable; options stand in front only.
            return not arguments or not arguments[0].may_be_option
        case "test" | "[":
            # `-v` and `-R` evaluate the subscript of an array, and what is not literal could turn into them.
            known = {word.text for word in arguments if word.is_literal}
            if known & {"-v", "-R"} or any(word.may_split for word in arguments):
                return False
            return is_literal or not known.isdisjoint(_TEST_OPERATORS)
        case "[[":
            # Numbers are compared by evaluating them.
            places = [at for at, text in enumerate(texts) if re.fullmatch(r"-(?:eq|ne|lt|le|gt|ge)", text)]
            sides = [side for at in places for side in texts[max(0, at - 1) : at + 2]]
            are_numbers = all(re.fullmatch(r"-?\d+|-[a-z]+", side) for side in sides)
            return are_numbers and "-v" not in texts and "-R" not in texts
        case "declare" | "typeset" | "local" | "readonly":
            for word in arguments:
                variable, equals, _value = word.source.partition("=")
                is_name = re.fullmatch(r"[A-Za-z_]\w*\+?", variable) and (equals or word.is_literal)
                if word.text not in ("-r", "-g", "-p") and (not is_name or is_sensitive(variable.rstrip("+"))):
                    return False
            return True
        case "export":
            # What is exported reaches every later command.
            return all(word.text == "-p" or ("=" in word.source and changes_only_looks(word)) for word in arguments)
        case "ps":
            # Other uses show the environments of processes, with the secrets in them. A mistake in its options makes it
            # read all of them in another way, in which `-e` does so: therefore a list of whole command lines.
            return is_literal and _PS.fullmatch(" ".join(texts)) is not None
        case "set":
            return bool(texts) and names("-e -u -o -eu -euo -eo -f +e +u pipefail errexit nounset").issuperset(texts)
        case "read":
            # `-r` sets variables to what is read as it is; those that decide what runs are doubted.
            return is_literal and any(re.fullmatch(r"-[a-z]*r[a-z]*", text) for text in texts)
        case "history":
            return all(text.isdigit() for text in texts)
        case "mktemp":
            # A new file, or a new folder, in the folder for such files.
            return all(text in ("-d", "-q", "-t") for text in texts)
        case _:
            return name in _HARMLESS or name in LIMITED
