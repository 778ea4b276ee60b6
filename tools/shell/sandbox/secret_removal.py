"""Settings without the secret values in them, as the programs that they are for still read them.

A secret is known by the name before it, or by its own form; its value is left empty, so that a program takes it for one
that is not set. JSON, TOML and XML are parsed. Everything else is read line by line, and shown only if each line with
something secret in it is understood to its end: what cannot be told apart with certainty is not shown at all. Comments
of such a file are left out, since old values stay in them. Scripts of shells lose values and nothing around them, so
that they stay what their shell can read.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from typing import Any, cast
from xml.dom import minidom
from xml.parsers.expat import ExpatError

from tools.contract.secrets import HIDDEN, has_secret, is_secret_name, redact
from tools.shell.sandbox.secret_places import LINES_LEFT_OUT, PLAIN_NAMES, SCRIPTS, SPACED

# Further names of secrets, as settings have them.
_MORE = re.compile(
    r"(?<!by)(?<!com)pass$|pwd$|authorisation$|sonar\.login$|webhook(?:[-_]?url)?$|ident$|pin$|session(?:id)?$|^key$",
    re.IGNORECASE,
)
# Ends of names that tell where or how something secret is kept.
_ABOUT = re.compile(
    r"(?:file|path|dir|folder|provider|helper|store|backend|type|method|mode|timeout|command|process|program|url|uri"
    r"|endpoint|format|user|username|name|prefix|schemes|algorithm|host|cert|certificate|ca|sock|tty"
    r"|always[-_]?auth|signing[-_]?key|public[-_]?key|pub[-_]?key|bindkey|keychain|key[-_]?id|binding)s?$",
    re.IGNORECASE,
)
# Values that are not secret after whatever name: none, a switch, a variable of the environment.
_HARMLESS = re.compile(
    r"(?:true|false|yes|no|on|off|null|none|bearer|basic|~|\$\{[\w.-]*\}|\$[A-Z_][A-Z0-9_]*|%\w+%)?", re.IGNORECASE
)
# Name and password in an address, with a scheme or without. Over HTTP the name may be the token; for git and ssh it
# alone is none. A password may hold an `@` too.
_USERINFO = re.compile(
    r"(?<=://)[^\s/\"'<>:@]*:[^\s/\"'<>]*@|(?<=http://)[^\s/\"'<>]+@|(?<=https://)[^\s/\"'<>]+@"
    r"|(?<![\w.%+/:@-])[\w.%+-]++:[^\s/:\"'<>{}()\\][^\s/\"'<>{}()\\]{0,200}@"
)
_QUERY = re.compile(r"([?&]([\w.\-]++)=)[^&\s\"'#<>]*")
# An option with its value, as it stands among others.
_OPTION = re.compile(r"(?<![^\s\"'])--?([A-Za-z][\w.-]*+)=([^\s\"']++)(?=[\s\"']|$)[ \t]?")
_PRINTS = re.compile(r"\b(?:echo|printf)\b")  # a command that gives out what stands behind it
# Words that nobody has thought of, unless they are names in a path; the token in a URL of conda.
_RANDOM = re.compile(
    r"(?<![\w/.-])(?P<path>(?:~|\$\w+|\$\{\w+\}|/[A-Za-z]?[a-z.]+)/[^\s\"':;,]*+)|(?<![\w-])(?:(?=[\w-]*[a-z])(?=[\w-]*[A-Z])(?=[\w-]*[0-9])[\w-]{24,}|[0-9a-f]{32,})(?![\w-])|/t/[^\s/\"']+",
    re.ASCII,
)
_NAME = r"\"[^\"=\\]*+\"|'[^'=\\]*+'|[^\s=:\"'#;!?\[\](){}<>$`\\&|,+]++"
_LEAD = r"(?P<lead>[ \t]*+(?>(?:-[ \t]++)*)(?:export[ \t]++(?>(?:--?\w++[ \t]++)*))?)"
_EQUAL = re.compile(rf"{_LEAD}(?P<name>{_NAME}|(?://|@)[^\s=\"'\\]++)(?P<separator>[ \t]*+(?:\+?=>?)[ \t]*+)")
_COLON = re.compile(rf"{_LEAD}(?P<name>:?(?:{_NAME}))(?P<separator>[ \t]*+:(?:[ \t]++|$)|:)")
_BLANK = re.compile(rf"{_LEAD}(?P<name>{_NAME}|\"?(?://|@)[^\s=\"'\[\]\\]++\"?)(?P<separator>[ \t]++)")
_WORD = re.compile(r"[A-Za-z0-9_.\-]+")
_SECTION = re.compile(r"[ \t]*\[+([^\[\]]*)\]+[ \t]*(?:[#;].*)?")
_COMMENT = re.compile(r"[ \t]*(?:#|;(?!;)|![ \t]*\w)")
_INCLUDE = re.compile(r"^[ \t]*\[include(?:if[^\n\]]*)?\]([^\[]*)", re.IGNORECASE | re.MULTILINE)
_INCLUDED_PATH = re.compile(
    r"^[ \t]*path[ \t]*=[ \t]*(\"[^\"\n]+\"|[^\s#;](?:[^\n#;]*[^\s#;])?)", re.IGNORECASE | re.MULTILINE
)
_QUOTED = re.compile(r"\"(?>(?:[^\"\\]|\\.)*)\"|'[^']*+'")
_INNER_NAME = re.compile(r"(?<![\w.-])([\w.\-]++)[\"']?[ \t]*+[=:][ \t]*+[^\s&]")
_INNER_PAIR = re.compile(r"\b(?:name|key|id|header)[\"']?[ \t]*+[=:][ \t]*+[\"']?([\w.\-]++)", re.IGNORECASE)
_ESCAPE = re.compile(r"\\[uUxN][0-9A-Fa-f{]")
_PLAIN = r"(?:[^\s\"'`;|&<>(){}\\$]|\$(?![({\"'])|\$\{[^\"'`{}\n]*+\}|\$\([^\"'`()\n]*+\))"
# A value whose end is certain wherever it stands: nothing that a shell reads goes with it.
_SCRIPT_VALUE = rf"\"(?>(?:{_PLAIN}|[ \t])*)\"|'[^'\"`;|&<>(){{}}\n]*+'|\([^\"'`;|&<>()\n]*+\)|(?>{_PLAIN}+)"
# The name of an alias, or what gives a value to a variable of a shell, with the remark behind it.
_STATEMENT = re.compile(
    r"(?P<alias>\b(?:alias|abbr)[ \t]++(?>(?:-\w++[ \t]++){0,4})[\w.:-]++)"
    rf"|(?:\b(?:set|setenv)[ \t]++(?>(?:-[\w-]++[ \t]++){{0,4}})(?P<variable>[\w.-]++)(?:[ \t]*+=[ \t]*+|[ \t]++)"
    rf"(?P<words>{_SCRIPT_VALUE})(?=[ \t]*+(?:[;&|)}}#\n]|$))"
    rf"|(?<![\w$.=-])[\"']?(?P<name>[\w.-]++)[\"']?(?:\]|\[(?P<index>[\w.-]*+)\])?\+?=(?P<value>{_SCRIPT_VALUE})(?=[\s;&|)}}]|$))"
    r"(?P<remark>[ \t]++\#[^\n]*+)?"
)
# A name, and something behind it that may be its value.
_MENTION = re.compile(
    r"(?<![\w.-])(?P<name>[\w.-]++)[\"']?(?:\]|\[(?P<index>[^\s\]]{0,200})\])?"
    r"(?:[^\S\n]*+(?:\+?=(?=\S)|:[^\S\n]*+)|[^\S\n]++(?>=[^\S\n]++)?)"
    r"(?=(?P<value>[\"'](?![\"'])[^\"']{0,200}|(?!\(\)|\{\s)[^\s\"';&|)}\]>][^\s\"';&|()]{0,200}))"
)
_VARIABLE = re.compile(r"(?<![\w.-])[\w.-]++\+?=")
_REFERENCE = re.compile(r"\$(?:\w++|\{\w++\})")
_DEFAULT = re.compile(r"\$\{(\w++):?[-=]")
# What looks like a remark may be the end of a text of several lines, with commands behind it.
_MAY_END_TEXT = re.compile(r"[\"'`][^\n]*[;&|(){}]")
_REMARK_LINE = re.compile(r"^[ \t]*+#.*+$", re.MULTILINE)
_LONGEST_LINE = 8 * 1024  # nobody has written a longer one, and each takes time
_PAIR_NAMES = frozenset({"name", "key", "id", "header"})  # of what tells what the value beside it is for


def without_secrets(text: str, place: str) -> str | None:
    """Settings of a place in the table without secret values; all of it if it has none, `None` if that is uncertain."""
    start = text.lstrip("\ufeff \t\r\n")[:1]
    if "\0" in text or "\ufffd" in text:
        return None
    if start not in {"<", "{"} and any(len(line) > _LONGEST_LINE for line in text.split("\n")):
        return None
    try:
        if start == "<":
            if "<!DOCTYPE" in text.upper():
                return None
            document = minidom.parseString(text.lstrip("\ufeff \t\r\n").encode())  # noqa: S318 - no DOCTYPE, no entities
            before = document.toxml()
            _clean_node(document, is_secret=False)
            shown = text if document.toxml() == before else document.toxml()
        elif start == "{" or place.endswith(".json"):
            data = json.loads(text.lstrip("\ufeff"), object_pairs_hook=_once)
            clean = _clean(data, is_secret=False)
            shown = text if clean == data else json.dumps(clean, indent=2)
        elif place.endswith(".toml"):
            data = tomllib.loads(text.lstrip("\ufeff"))
            clean = _clean(data, is_secret=False)
            remarks = (line.partition("#")[2] for line in text.split("\n") if "#" in line)
            if clean == data and not any(map(_looks_secret, remarks)):
                shown = text
            else:
                pairs = ((json.dumps(key, ensure_ascii=False), value) for key, value in clean.items())
                shown = "".join(f"{key} = {_toml_value(value)}\n" for key, value in pairs)
        elif place in SCRIPTS:
            shown = _script(text)
        else:
            shown = _lines(text, place)
    except (ValueError, RecursionError, ExpatError):
        return None
    return None if shown is not None and "PRIVATE KEY-----" in shown else shown


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key twice")
    return found


def included_settings(text: str) -> list[str]:
    """The files that settings of git include, as they name them."""
    included = _INCLUDE.findall(text)
    return [path.strip('"') for section in included for path in _INCLUDED_PATH.findall(section)]


def _is_secret(name: str) -> bool:
    return bool(_MORE.search(name)) or (is_secret_name(name) and not _ABOUT.search(name))


def _is_inner_secret(name: str) -> bool:
    """Whether a name within a value, or among commands, is one of a secret; `key` is a word like others there."""
    return name.lower() != "key" and _is_secret(name)


def _is_harmless(value: str) -> bool:
    """Whether a value is not secret although its name says so."""
    value = value.strip(" \t\r\n\"'")
    if _HARMLESS.fullmatch(value) or value.startswith(("~/", "$HOME/", "${HOME}/")):
        return True
    return value.startswith("/") and os.path.exists(value)


def _without_logins(text: str) -> str:
    """A text without name and password in addresses, and without secrets in their queries and in options."""
    text = _QUERY.sub(lambda found: found[1] if _is_secret(found[2]) else found[0], _USERINFO.sub("", text))
    return _OPTION.sub(
        lambda found: "" if _is_inner_secret(found[1]) and not _is_harmless(found[2]) else found[0], text
    )


def _without_known_forms(text: str) -> str:
    """A text without what is a secret by its form."""
    text = _RANDOM.sub(lambda found: found["path"] or "", _without_logins(text))
    return redact(text).replace(f"{HIDDEN}@", "").replace(HIDDEN, "")


def _script(text: str) -> str | None:
    """Commands of a shell, without the values of variables that are secret, and without remarks about them."""
    shown = _STATEMENT.sub(_without_value, _without_logins(text))
    commands = _REMARK_LINE.sub("", shown).replace("\\\n", "")
    commands = _REFERENCE.sub(
        "", _DEFAULT.sub(r"\1=", _STATEMENT.sub(lambda found: found[0] if not found["alias"] else "", commands))
    )
    if any(
        any(map(_is_inner_secret, filter(None, found.group("name", "index")))) and not _is_harmless(found["value"])
        for found in _MENTION.finditer(commands)
    ) or has_secret(_VARIABLE.sub("", commands)):
        return None
    if shown == text and not any(map(_looks_secret, _REMARK_LINE.findall(text))):
        return text
    if any(map(_MAY_END_TEXT.search, _REMARK_LINE.findall(text))):
        return None
    return _REMARK_LINE.sub(lambda found: _without_words(found[0]), shown)


def _without_value(found: re.Match[str]) -> str:
    """What gives a value to a variable, with none if it is a secret."""
    if found["alias"]:
        return found[0]
    value = found["words"] or found["value"]
    start = found.start("words" if found["words"] else "value") - found.start()
    if any(map(_is_secret, filter(None, found.group("variable", "name", "index")))):
        if _is_harmless(value):
            return found[0]
    elif value[0] == "(":
        inner = _STATEMENT.sub(_without_value, value[1:])
        return found[0][:start] + "(" + inner + found[0][start + len(value) :]
    elif _without_known_forms(value) == value:
        return found[0]
    empty = '""' if value[0] in "\"'" or found["words"] else "()" if value[0] == "(" else ""
    return f"{found[0][:start]}{empty}{_without_words(found['remark'] or '')}"


def _without_words(remark: str) -> str:
    """A remark without what it says. It may stand in a text of several lines, whose end it must not take away."""
    return re.sub(r"[^\s#\"'`(){}\[\]$\\]+", "", remark).rstrip(" ")


def _lines(text: str, place: str) -> str | None:
    """Settings of lines with a name and a value each: INI, properties, YAML, variables of shells.

    `None` where something secret is in a line that is not understood to its end.
    """
    lines = text.split("\n")
    shown: list[str] = []
    plain = PLAIN_NAMES.get(place)
    is_alias = is_secret_section = False
    deeper: int | None = None  # what is indented by more is of a secret value, and so are entries of a list there
    for whole_line in lines:
        content = whole_line.strip()
        if not content or _COMMENT.match(whole_line):
            shown.append(whole_line)
            continue
        indent = len(whole_line) - len(whole_line.lstrip(" \t"))
        if deeper is not None and (indent > deeper or (indent == deeper and content.startswith("- "))):
            continue
        deeper = None
        if (head := _SECTION.fullmatch(whole_line.rstrip("\r"))) is not None:
            # Names that somebody has made up for commands tell nothing.
            is_alias = head[1].strip().lower() == "alias"
            is_secret_section = any(map(_is_secret, _WORD.findall(head[1])))
            shown.append(_without_known_forms(whole_line))
            continue
        line = _without_logins(whole_line)
        found = _EQUAL.match(line) or (_BLANK.match(line) if place in SPACED else None) or _COLON.match(line)
        if found is None:
            if line.strip() != "---" and (plain is not None or _looks_secret(line)):
                return None
            shown.append(line if line.strip() == "---" else _without_known_forms(line))
            continue
        name = found["name"].strip("\"'[]").rpartition(":")[2]
        value = line[found.end() :].rstrip("\r")
        if plain is not None:
            is_secret = re.fullmatch(plain, name.lstrip("-"), re.IGNORECASE) is None
        else:
            # What stands below the name of a secret is one, unless it says where that is kept.
            is_named = _is_secret(name) or (is_secret_section and not _ABOUT.search(name))
            is_secret = (is_named and not is_alias) or _prints_secret(name, value)
        bare_value = value.strip(" \t\"',;")
        if name.lower() in _PAIR_NAMES and _WORD.fullmatch(bare_value) and _is_secret(bare_value):
            return None  # the value of it stands somewhere beside
        is_found = True  # or the place for one
        if is_secret and _is_harmless(value) and _ends_here(value):
            shown.append(line)
            is_found = not value.strip()
        elif not is_secret and not _tells_secret(value):
            shown.append(_without_known_forms(found[0]) + _without_known_forms(line[found.end() :]))
            is_found = False
        elif not _ends_here(value):
            return None
        elif place in LINES_LEFT_OUT:
            shown.append("")
        elif value[:1] in {"[", "{"}:
            shown.append(line[: found.end()] + ("[]" if value[0] == "[" else "{}"))
        else:
            is_quoted = found["separator"].strip() in {":", ""} or value[:1] in {'"', "'"}
            shown.append(line[: found.end()] + ('""' if is_quoted else ""))
        if is_found:
            # An entry of a list is as deep as what stands behind its dash.
            deeper = indent + (2 if content.startswith("- ") else 0)
    if shown == lines and not any(_COMMENT.match(line) and _looks_secret(line) for line in lines):
        return text
    return "\n".join("" if _COMMENT.match(line) else line for line in shown)


def _prints_secret(name: str, command: str) -> bool:
    """Whether a command that is to get a secret holds it."""
    return is_secret_name(name) and _PRINTS.search(command) is not None


def _looks_secret(line: str) -> bool:
    """Whether anything in a line that is not understood is a name of a secret, or a secret by its form."""
    return redact(line) != line or bool(_ESCAPE.search(line)) or any(map(_is_inner_secret, _WORD.findall(line)))


def _tells_secret(value: str) -> bool:
    """Whether there is a name of a secret with its value, or a remark about one, within the value of another name."""
    inner = (
        *_INNER_NAME.findall(value),
        *_INNER_PAIR.findall(value),
        *(() if _ends_here(value) else _WORD.findall(value)),
    )
    if redact(value) != value or any(map(_is_inner_secret, inner)):
        return True
    remark = re.search(r"[ \t][#;]", value)
    return remark is not None and any(map(_is_inner_secret, _WORD.findall(value, remark.start())))


def _ends_here(value: str) -> bool:
    """Whether a value certainly ends with its line, or goes on only on lines that are indented by more."""
    if value.endswith("\\") or "<<" in value or '"""' in value or "'''" in value:
        return False
    outside = _QUOTED.sub("", value)
    return not any(mark in outside for mark in "\"'`") and all(
        outside.count(opening) == outside.count(closing) for opening, closing in ("()", "[]", "{}")
    )


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        inner = (f"{json.dumps(key, ensure_ascii=False)} = {_toml_value(each)}" for key, each in table.items())
        return f"{{{', '.join(inner)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, cast('list[Any]', value)))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
    return str(value).lower() if isinstance(value, (bool, float)) else str(value)


def _clean(value: Any, *, is_secret: bool) -> Any:
    """A value of JSON or TOML without secret ones."""
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        named = any(key.lower() in _PAIR_NAMES and _is_secret(str(each)) for key, each in table.items())
        return {
            _without_known_forms(key): _clean(
                each,
                is_secret=is_secret
                or _is_secret(key)
                or (named and key.lower() == "value")
                or _prints_secret(key, json.dumps(each, default=str)),
            )
            for key, each in table.items()
        }
    if isinstance(value, list):
        return [_clean(each, is_secret=is_secret) for each in cast("list[Any]", value)]
    if isinstance(value, str):
        if is_secret:
            return value if _is_harmless(value) else ""
        return "" if _tells_secret(_without_logins(value)) else _without_known_forms(value)
    return 0 if is_secret and isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _clean_node(node: Any, *, is_secret: bool) -> None:
    """Empty what is secret in a document or an element, and leave out its remarks."""
    pair = is_secret or any(map(_tells_pair, node.childNodes)) or _has_pair_attribute(node)
    for attribute in list(node.attributes.values()) if node.attributes else ():
        if attribute.name.lower() not in _PAIR_NAMES:
            attribute.value = _clean(attribute.value, is_secret=pair or _is_secret(attribute.name))
    for child in list(node.childNodes):
        if child.nodeType in {child.COMMENT_NODE, child.PROCESSING_INSTRUCTION_NODE}:
            node.removeChild(child)
        elif child.nodeType in {child.TEXT_NODE, child.CDATA_SECTION_NODE}:
            child.data = _clean(child.data, is_secret=is_secret or _has_pair_attribute(node))
        else:
            by_pair = pair and child.tagName.lower() not in _PAIR_NAMES
            _clean_node(child, is_secret=is_secret or by_pair or _is_secret(child.tagName))


def _has_pair_attribute(node: Any) -> bool:
    attributes = node.attributes.values() if node.attributes else ()
    return any(each.name.lower() in _PAIR_NAMES and _is_secret(each.value) for each in attributes)


def _tells_pair(node: Any) -> bool:
    """Whether an element says that what stands beside it is the value of something secret."""
    if node.nodeType != node.ELEMENT_NODE or node.tagName.lower() not in _PAIR_NAMES:
        return False
    text = "".join(child.data for child in node.childNodes if child.nodeType == child.TEXT_NODE)
    return _is_secret(text.strip())
