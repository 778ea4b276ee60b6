"""Finds signs of malice in upstream tool definitions, without a model, and labels them for people.

A label is a reason to look, not proof. It does not block a tool; only a missing or outdated approval does.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from tools.contract.display import visible_line
from tools.text.file_names import UNSEEN

MAX_CHARS = 20_000  # maximum number of characters of a tool's text to check
MAX_DEPTH = 16  # maximum depth of the schema to check
SHOWN_CHARS = 60  # maximum length of the text that a label quotes
MIN_NAME_CHARS = 6  # shorter tool names are not searched for in descriptions, because they may be ordinary words
MIN_SIMILARITY = 0.8  # minimum fraction of words in common for two descriptions to count as alike
MIN_WORDS = 4  # shorter descriptions say too little to compare

_ENCODED = re.compile(r"(?:[A-Za-z0-9+/]{24,}={0,2}|(?:[0-9a-fA-F]{2}){20,})")
# Encoded data is common; encoded commands are not.
_COMMAND = re.compile(
    r"\b(?:curl|wget|bash|powershell|nc|python3?|eval|exec|chmod|rm\s+-|sudo|ssh|scp)\b.{0,80}[|/&;~]|/bin/|/dev/tcp/"
    r"|\b(?:ignore|disregard|forget)\b.{0,30}\binstructions?\b",
    re.IGNORECASE | re.DOTALL,
)
_PRIVATE = (
    r"(?:~?/?\.(?:ssh|aws|env|netrc|npmrc|gnupg)\b|id_(?:rsa|ed25519)|\bcredentials?\b|\bpasswords?\b"
    r"|\bapi[ _-]?keys?\b|\baccess tokens?\b|\bprivate keys?\b|\bsecrets\b|\bsystem prompt\b"
    r"|\bconversation(?: history)?\b|\bchat history\b)"
)
_OUTSIDE = (
    r"(?:\bexternal\b|\battacker\b|\bremote (?:server|host|endpoint)\b|https?://|\bcollector\b|\bwebhook\b|\bour \w+"
    r"|\banalytics\b|\bendpoint\b)"
)
_SENDING = r"\b(?:send|sends|post|posts|upload|uploads|forward|forwards|transmit|exfiltrate\w*|leak|copy|copies)\b"
_SIGN_PATTERNS = {
    "tells the model to ignore its instructions": (
        r"\b(?:ignore|disregard|forget|override|bypass)\b(?:\s+(?:all|any|the|your|my|these|of|prior|earlier)){0,4}"
        r"\s+(?:previous|prior|above|earlier|preceding|instructions?|directions?|guidelines?|safety|rules)\b"
    ),
    "tells the model to hide something from the user": (
        r"\b(?:do not|don't|never|without)\s+(?:\w+\s+){0,2}?"
        r"(?:tell|telling|mention|mentioning|inform|informing|notify|notifying|reveal|alert|ask|asking)\w*\s+"
        r"(?:\w+\s+){0,6}?(?:user|human|person|anyone|them)\b"
    ),
    "asks for the model's own instructions": (
        r"\b(?:reveal|print|output|disclose|repeat|show)\b(?:\s+(?:me|us|the|your|its|full|whole|entire)){0,3}"
        r"\s+(?:system prompt|hidden instructions|initial instructions)\b"
    ),
    "sends secrets to an outside address": (
        rf"{_SENDING}[^.]{{0,80}}{_PRIVATE}.{{0,80}}{_OUTSIDE}|{_PRIVATE}.{{0,60}}{_SENDING}.{{0,40}}{_OUTSIDE}"
        rf"|\bexfiltrat\w*\b.{{0,60}}{_PRIVATE}"
    ),
    "imitates a system message": (
        r"<\s*/?\s*(?:important|system|instructions?|secret|admin)\s*>|\[\s*(?:system|inst)\s*\]|<\|im_"
    ),
}
_SIGNS = {label: re.compile(pattern, re.IGNORECASE | re.DOTALL) for label, pattern in _SIGN_PATTERNS.items()}
# These words before a suspicious phrase show that it is only mentioned, as in tools that detect prompt injection.
_MENTION = re.compile(
    r"\b(?:detect|explain|analy[sz]e|check|describe|prevent|block|flag|filter|report|recogni[sz]e|identif|such as|when)"
    r"|\b(?:response|output|text|quote|phrase|string|fixture)s?\s*:",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"'[^'\n]{3,200}'|\"[^\"\n]{3,200}\"|`[^`\n]{3,200}`|“[^”\n]{3,200}”")
_SENTENCE_END = re.compile(r"[.!?]\s|\n")
_ORDER = r"(?:call|use|invoke|run|execute|prefer|instead of|rather than|before|after|never|do not)"


def labels_of(servers: Mapping[str, Iterable[Mapping[str, Any]]]) -> dict[tuple[str, str], list[str]]:
    """Return the labels of suspicious tools by alias and name, as sentences without a subject.

    `servers` has the definitions of each server's tools, in wire format.
    """
    labels_by_tool: dict[tuple[str, str], list[str]] = {}
    texts = {
        (alias, tool["name"]): "\n".join(_model_texts(tool, MAX_DEPTH))[:MAX_CHARS]
        for alias, tools in servers.items()
        for tool in tools
    }
    owners: dict[str, set[str]] = {}
    for alias, name in texts:
        if len(name) >= MIN_NAME_CHARS and not name.isalpha():
            owners.setdefault(name, set()).add(alias)
    words = {key: Counter(re.findall(r"\w+", text.lower()[:2_000])) for key, text in texts.items()}
    for (alias, name), text in texts.items():
        labels = list(_labels_of_text(text))
        for other_name in dict.fromkeys(
            re.findall(rf"\b{_ORDER}\s+(?:the\s+)?(?:tool\s+)?[`'\"]?(\w[\w.-]+\w)", text, re.IGNORECASE)
        ):
            other_owners = owners.get(other_name, set()) - {alias}
            if other_owners and alias not in owners[other_name]:
                labels.append(f"gives instructions about {visible_line(other_name)} of the server {min(other_owners)}")
        for other_alias in sorted(owners.get(name, set()) - {alias}):
            if texts[other_alias, name] == text:
                continue
            own_words, other_words = words[alias, name], words[other_alias, name]
            has_enough_words = min(own_words.total(), other_words.total()) >= MIN_WORDS
            if (
                has_enough_words
                and (own_words & other_words).total() >= MIN_SIMILARITY * (own_words | other_words).total()
            ):
                labels.append(f"resembles the tool with the same name on the server {other_alias}")
        if labels:
            labels_by_tool[alias, name] = labels
    return labels_by_tool


def _labels_of_text(text: str) -> Iterator[str]:
    """Yield the labels that depend only on this text, not on other tools."""
    if unseen := UNSEEN.findall(text):
        codes = ", ".join(f"U+{ord(character):04X}" for character in list(dict.fromkeys(unseen))[:3])
        yield f"contains invisible characters ({codes})"
    for encoded in _ENCODED.findall(text):
        data = b""
        # Hexadecimal text is often valid Base64 too, so the hexadecimal reading comes last and takes precedence.
        with suppress(ValueError):
            data = base64.b64decode(encoded + "=" * (-len(encoded) % 4))
        with suppress(ValueError):
            data = bytes.fromhex(encoded)
        decoded = data.decode("utf-8", "replace")
        if _COMMAND.search(decoded):
            yield f"contains an encoded command ('{visible_line(decoded[:SHOWN_CHARS])}')"
            break
    unquoted_text = _QUOTED.sub(lambda quotation: " " * len(quotation[0]), text)
    for label, sign in _SIGNS.items():
        for match in sign.finditer(unquoted_text):
            start = max((end.end() for end in _SENTENCE_END.finditer(unquoted_text, 0, match.start())), default=0)
            if not _MENTION.search(unquoted_text, start, match.start()):
                yield f"{label} ('{visible_line(' '.join(match[0].split())[:SHOWN_CHARS])}')"
                break


def _model_texts(value: Any, depth: int) -> Iterator[str]:
    """Yield those strings of a definition that a model reads."""
    if depth == 0:
        return
    if isinstance(value, Mapping):
        for key, member in cast("Mapping[str, Any]", value).items():
            if isinstance(member, str) and key in ("title", "description", "default", "const", "$comment"):
                yield member
            elif isinstance(member, list | Mapping) and key not in ("_meta", "icons", "outputSchema"):
                yield from _model_texts(member, depth - 1)
    elif isinstance(value, list):
        for element in cast("Sequence[Any]", value):
            if isinstance(element, str):
                yield element
            else:
                yield from _model_texts(element, depth - 1)
