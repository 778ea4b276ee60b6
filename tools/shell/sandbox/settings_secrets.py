"""Detects secrets in settings files. When in doubt, a file counts as secret.

The sandbox shows files without secrets, and hides the others completely.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter

from tools.shell.sandbox.credential_locations import PLAIN_NAMES, SCRIPTS
from tools.text.secrets import has_secret, has_token, is_secret_name

# Further names of secrets in settings files
_MORE = re.compile(
    r"(?<!by)(?<!com)pass$|pwd$|authorisation$|sonar\.login$|webhook(?:[-_]?url)?$|ident$|pin$|session(?:id)?$|^key$",
    re.IGNORECASE,
)
# Endings of names that say where or how a secret is stored
_ABOUT = re.compile(
    r"(?:file|path|dir|folder|provider|helper|store|backend|type|method|mode|timeout|command|process|program|url|uri"
    r"|endpoint|format|user|username|name|prefix|schemes|algorithm|host|cert|certificate|ca|sock|tty"
    r"|always[-_]?auth|signing[-_]?key|public[-_]?key|pub[-_]?key|bindkey|keychain|key[-_]?id|binding)s?$",
    re.IGNORECASE,
)
# Values that are never secret: an empty value, a switch, an environment variable
_HARMLESS = re.compile(
    r"(?:true|false|yes|no|on|off|null|none|bearer|basic|~|\$\{[\w.-]*\}|\$[A-Z_][A-Z0-9_]*|%\w+%)?", re.IGNORECASE
)
# User name and password in a URL, with or without a scheme, and the token in a conda URL. With HTTP, the user name may
# be the token; for git and ssh, a user name is not secret. A password may also contain `@`.
_LOGIN = re.compile(
    r"(?<=://)[^\s/\"'<>:@]*:[^\s/\"'<>]*@|(?<=http://)[^\s/\"'<>]+@|(?<=https://)[^\s/\"'<>]+@|/t/[^\s/\"']+"
    r"|(?<![\w.%+/:@-])[\w.%+-]++:[^\s/:\"'<>{}()\\][^\s/\"'<>{}()\\]{0,200}@"
)
_QUERY = re.compile(r"\?[^\s\"'#<>=]++=[^\s\"'#<>]*+")
_PRINTS = re.compile(r"\b(?:echo|printf)\b")  # commands that print their arguments
# Words that look random, unless they are names in a path
_RANDOM = re.compile(
    r"(?<![\w/.-])(?:(?=[\w-]*[a-z])(?=[\w-]*[A-Z])(?=[\w-]*[0-9])[\w-]{24,}|[0-9a-f]{32,})(?![\w-])", re.ASCII
)
_WORD = re.compile(r"[A-Za-z0-9_.\-]+")
# A name and its value, up to the end of the line or of the surrounding syntax
_PAIR = re.compile(
    r"(?<![\w.-])[\w.\-]++[\"']?[ \t]*+[=:][ \t]*+"
    r"(?P<value>\"[^\"\n]*+\"|'[^'\n]*+'|\$\{[\w.-]*+\}|[^\s\"',;&|)}\]<]*+)(?=[ \t]*+(?:[,;&|)}\]<\r\n]|$))"
)
_ELEMENT = re.compile(r"<([\w.:-]++)>(?P<value>[^<>]*+)</\1>")
_ESCAPE = re.compile(r"\\[uUxN][0-9A-Fa-f{]")
# The name at the beginning of a line, up to its value
_NAMED = re.compile(
    r"[ \t]*+(?>(?:-[ \t]++)*)(?:export[ \t]++)?[\"':]?(?P<name>[^\s=:\"'#;!?\[\](){}<>$`\\&|,+]++)[\"']?"
    r"(?:[ \t]*+[=:][ \t]*+|[ \t]++|$)"
)
_SECTION = re.compile(r"[ \t]*\[+([^\[\]]*)\]+[ \t]*(?:[#;].*)?")
_COMMENT = re.compile(r"[ \t]*(?:#|;(?!;)|![ \t]*\w)")
_INCLUDE = re.compile(r"^[ \t]*\[include(?:if[^\n\]]*)?\]([^\[]*)", re.IGNORECASE | re.MULTILINE)
_INCLUDED_PATH = re.compile(
    r"^[ \t]*path[ \t]*=[ \t]*(\"[^\"\n]+\"|[^\s#;](?:[^\n#;]*[^\s#;])?)", re.IGNORECASE | re.MULTILINE
)
_QUOTED = re.compile(r"\"(?>(?:[^\"\\]|\\.)*)\"|'[^']*+'")
# In a script: a name, and something after it that may be its value
_MENTION = re.compile(
    r"(?<![\w.-])(?P<name>[\w.-]++)[\"']?(?:\]|\[(?P<index>[^\s\]]{0,200})\])?"
    r"(?:[^\S\n]*+(?:\+?=(?=\S)|:[^\S\n]*+)|[^\S\n]++(?>=[^\S\n]++)?)"
    r"(?=(?P<value>[\"'](?![\"'])[^\"']{0,200}|(?!\(\)|\{\s)[^\s\"';&|)}\]>][^\s\"';&|()]{0,200}))"
)
_ALIAS = re.compile(r"\b(?:alias|abbr)[ \t]++(?>(?:-\w++[ \t]++){0,4})[\w.:-]++")
_VARIABLE = re.compile(r"(?<![\w.-])[\w.-]++\+?=")
_REFERENCE = re.compile(r"\$(?:\w++|\{\w++\})")
_DEFAULT = re.compile(r"\$\{(\w++):?[-=]")
# The end of an unambiguous name of a secret, and the word after it
_KEPT = re.compile(
    r"(?P<name>(?:token|secret|passw(?:or)?d|passphrase|credential|(?:api|access|private|auth|secret)[._-]?key)s?"
    r"(?:[\d._-][\w.-]{0,40})?)[\"']?(?:[ \t]*+(?:=>?|:)[ \t]*+|[ \t]++)[\"']?"
    r"(?P<value>[\w+/=.~:-]{20,512}+)(?![^\s\"',;}\])])",
    re.IGNORECASE | re.ASCII,
)
_ALONE = re.compile(r"(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])[\w+/=~-]{20,512}", re.ASCII)  # a file that is only a token
# Values that are not random: a path, a URL, a version, or a name of several words
_SPELLED = re.compile(
    r"[/~.]|https?:|\d+[.:]\d|\S*\.[a-z]{2,5}$|(?:[A-Z0-9]{1,14}_)+[A-Z0-9]{1,14}$"
    r"|(?!(?:[0-9a-f]+-){4}[0-9a-f]{12}$)(?:[a-z0-9]{1,14}[._-])+[a-z0-9]{1,14}$"
)
_LEAST_BITS = 3.3  # minimum entropy of random text, in bits per character
_BLANKS = "\ufeff \t\r\n"
_LONGEST_LINE = 8 * 1024  # nobody writes longer lines, and checking them takes a long time


def may_hold_secret(text: str, place: str) -> bool:
    """Return True if the text of a settings file may contain a secret. `place` is the file's key in `HOME_PLACES`."""
    if "\0" in text or "\ufffd" in text or "PRIVATE KEY-----" in text:
        return True
    if any(len(line) > _LONGEST_LINE for line in text.split("\n")):
        return True
    if text.lstrip(_BLANKS)[:1] in ("<", "{") or place.endswith(".json"):
        return "<!DOCTYPE" in text.upper() or _tells_secret(text)
    if place not in SCRIPTS:
        return _line_tells_secret(text, place)
    commands = _REFERENCE.sub("", _DEFAULT.sub(r"\1=", _ALIAS.sub("", text.replace("\\\n", ""))))
    return (
        any(
            any(map(_is_inner_secret, filter(None, found.group("name", "index")))) and not _is_harmless(found["value"])
            for found in _MENTION.finditer(commands)
        )
        or _without_logins(text) != text
        or has_secret(_VARIABLE.sub("", commands))
    )


def included_settings(text: str) -> list[str]:
    """Return the files that git settings include, as written."""
    included = _INCLUDE.findall(text)
    return [path.strip('"') for section in included for path in _INCLUDED_PATH.findall(section)]


def keeps_secret(text: str) -> bool:
    """Return True if the text of an unknown file certainly contains a secret. Weak signs do not count."""
    alone = text.strip()
    may_keep = any(word in text.lower() for word in ("token", "secret", "pass", "key", "credential"))
    kept = (each for each in (_KEPT.finditer(text) if may_keep else ()) if not _ABOUT.search(each["name"]))
    return (
        has_token(text)
        or (_ALONE.fullmatch(alone) is not None and _is_random(alone))
        or any(_is_random(each["value"]) for each in kept)
    )


def _is_random(value: str) -> bool:
    counts = Counter(value).values()
    bits = -sum(count / len(value) * math.log2(count / len(value)) for count in counts)
    is_mixed = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    return is_mixed and bits >= _LEAST_BITS and _SPELLED.match(value) is None


def _is_secret(name: str) -> bool:
    return bool(_MORE.search(name)) or (is_secret_name(name) and not _ABOUT.search(name))


def _is_inner_secret(name: str) -> bool:
    """Return True if a name inside a value or among commands is that of a secret. `key` is an ordinary word there."""
    return name.lower() != "key" and _is_secret(name)


def _is_harmless(value: str) -> bool:
    """Return True if a value is not secret although its name suggests it."""
    value = value.strip(" \t\r\n\"'")
    if _HARMLESS.fullmatch(value) or value.startswith(("~/", "$HOME/", "${HOME}/")):
        return True
    return value.startswith("/") and os.path.exists(value)


def _without_logins(text: str) -> str:
    """Remove user names and passwords from URLs, and secrets from their queries."""
    return _QUERY.sub(
        lambda found: "" if any(map(_is_secret, _WORD.findall(found[0]))) else found[0], _LOGIN.sub("", text)
    )


def _tells_secret(text: str) -> bool:
    """Return True if `text` contains a name with a secret value, or a secret recognisable by its form."""
    rest = text
    for pattern in (_ELEMENT, _PAIR):
        rest = pattern.sub(lambda found: " " if _is_harmless(found["value"]) else found[0], rest)
    words = _WORD.findall(rest)
    return (
        has_secret(rest)
        or _without_logins(rest) != rest
        or _ESCAPE.search(rest) is not None
        or _RANDOM.search(rest) is not None
        or any(map(_is_inner_secret, words))
    )


def _line_tells_secret(text: str, place: str) -> bool:
    """Return True if any line with a name and a value, or any comment, contains a secret."""
    plain = PLAIN_NAMES.get(place)
    is_alias = is_secret_section = False
    for line in text.split("\n"):
        content = line.strip()
        if not content:
            continue
        if _COMMENT.match(line):
            if _tells_secret(line):
                return True
            continue
        if _without_logins(line) != line:
            return True
        if (head := _SECTION.fullmatch(line.rstrip("\r"))) is not None:
            is_alias = head[1].strip().lower() == "alias"  # aliases may have any name
            is_secret_section = any(map(_is_secret, _WORD.findall(head[1])))
            continue
        found = _NAMED.match(line)
        name, value = (found["name"], line[found.end() :]) if found is not None else ("", line)
        if plain is not None:
            if content != "---" and re.fullmatch(plain, name.lstrip("-"), re.IGNORECASE) is None:
                return True
            continue
        # Whether the value certainly ends with its line, or continues only on lines with more indentation.
        whole = line.rstrip("\r")
        outside = _QUOTED.sub("", whole)
        is_ended = not (
            whole.endswith("\\")
            or any(mark in whole for mark in ("<<", '"""', "'''"))
            or any(mark in outside for mark in "\"'`")
            or any(outside.count(opening) != outside.count(closing) for opening, closing in ("()", "[]", "{}"))
        )
        # A value is secret if its name or its section is that of a secret, unless the name says where the secret is
        # stored.
        is_named = _is_secret(name) or (is_secret_section and not _ABOUT.search(name))
        if (
            (is_named and not is_alias and not (value.strip() and _is_harmless(value) and is_ended))
            or (not is_ended and any(map(_is_inner_secret, _WORD.findall(value))))
            or (is_secret_name(name) and _PRINTS.search(value) is not None)
            or _tells_secret(value)
        ):
            return True
    return False
