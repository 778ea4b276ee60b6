"""Recognises secrets in text and in JSON values, by the names of variables or parameters, or by the form of the secret.

This module helps to keep secrets out of logs, displays and the environment of commands, and to find files that must be
masked. Only common names and forms are recognised. A false match hides only a word, an environment variable or a file.
Every pattern takes linear time: repetitions are bounded, or a match can begin only at the start of a run of characters.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import zip_longest
from typing import Any, cast
from unicodedata import category, normalize
from urllib.parse import unquote_plus

HIDDEN = "[hidden]"  # replaces a secret


def _table(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Endings of words that make a name secret (`API_KEY`, `dbPassword`, `MYTOKENS`)
_WORDS = tuple(
    _table("""
    TOKEN SECRET PASSWORD PASSWD PASSPHRASE PASSCODE KEY AUTH AUTHORIZATION CREDENTIAL CRED PRIVATE CERT COOKIE JWT OTP
    SESSID SESSIONID PASSWORT KENNWORT
    """)
)
# Ordinary words that end like one of `_WORDS`
_EVERYDAY = _table("MONKEY DONKEY TURKEY WHISKEY HOCKEY JOCKEY HOTKEY CONCERT SACRED")
_WHOLE_WORDS = _table("""
    PASS PGPASS PW PAT DSN BEARER XAUTHORITY AUTHORISATION CSRF XSRF MNEMONIC PINCODE OTPCODE AUTHCODE AUTHHEADER CVV
    CVC PWDS CONNSTR CONNECTIONSTRING
""")
# Words that make a name secret unless the next word changes the meaning (`session`, `pinCode`, but not `session_name`)
_LAST_WORDS = frozenset(
    word + plural
    for word in _table("SESSION PIN MFA 2FA SID SIG SIGNATURE HMAC AUTHENTICATION SAS ASSERTION WEBHOOK")
    for plural in ("", "S")
)
# A name that is just one of these words is secret only if the value looks random, because `key` can also be a sort key
_BY_VALUE = _table("KEY SEED")
# Words after one of `_LAST_WORDS` that do not change the meaning of that word
_HOLDING = _table("ID CODE NUMBER VALUE DATA HEADER HASH STRING TEXT")
# Pairs of words that indicate a secret only together
_PAIRS = _table("""
    VERIFICATION_CODE SECURITY_CODE RECOVERY_CODE BACKUP_CODE ACCESS_CODE LOGIN_CODE SMS_CODE FACTOR_CODE TIME_CODE
    RECOVERY_CODES BACKUP_CODES SEED_PHRASE SEED_WORDS RECOVERY_PHRASE BACKUP_PHRASE PASS_PHRASE CONNECTION_STRING
    CONN_STR CARD_NUMBER WEBHOOK_URL SECURITY_ANSWER 2_FA SAML_RESPONSE PASS_WORD PASS_WORT PASS_CODE KENN_WORT
""")
# Words before `key` in the names of keys that are not secret
_KEYS_OF_DATA = _table("""
    SORT PRIMARY FOREIGN PARTITION UNIQUE CACHE PUBLIC GROUP ORDER INDEX OBJECT ROW MAP LOOKUP ROUTING SHARD COLUMN ITEM
    DICT JSON REGISTRY SHORTCUT THE
""")
# Words in the names of numeric values, which are not secret: `max_tokens`, `key_size`, `prompt_tokens`
_FIRST_OF_COUNTS = _table("MAX MIN NUM TOTAL")
_LAST_OF_COUNTS = _table("COUNT LIMIT LENGTH SIZE BUDGET TTL")
_COUNTED_TOKENS = _table("INPUT OUTPUT PROMPT COMPLETION REASONING THINKING NEW CONTEXT")
_SHORTEST_TOKEN = 12  # minimum length of a single word that may be a secret, in characters
# At the end of a name (`MYSQL_PWD`), this word means a password. As the whole name, it means the working directory if
# the value is a path, else a password.
_LAST_WORD = "PWD"
_MAX_NAME_CHARS = 200  # in longer names, only the two ends are examined

# Names that look secret but are not: paths of certificates, the login session's id, git's setting for the signing key
_PUBLIC = _table("""
    SSL_CERT_FILE SSL_CERT_DIR NIX_SSL_CERT_FILE PIP_CERT CARGO_HTTP_CAINFO NODE_EXTRA_CA_CERTS XDG_SESSION_ID
    signingkey user.signingkey user.signingKey
""")

# Letters of other scripts that look like Latin letters
_LOOK_ALIKES = str.maketrans("аеорсухіјѕкмтнвԁӏАВЕКМНОРСТУХІЈЅɡıοανρτυκι", "aeopcyxijskmthbdlABEKMHOPCTYXIJSgioavptuki")
_PLACE = re.compile(r"[/~.$%\\]|[A-Za-z]:[/\\]")  # the beginning of a path


RANDOM = re.compile(
    r"(?=[A-Za-z]{0,99}[0-9])(?=[0-9]{0,99}[A-Za-z])[A-Za-z0-9]{16,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    re.IGNORECASE,
)
"""Random letters and digits: a token or a UUID. Words in ordinary names have fewer than 16 characters."""


def is_secret_name(name: str) -> bool:
    half = _MAX_NAME_CHARS // 2
    return _is_secret_name(name if len(name) <= _MAX_NAME_CHARS else f"{name[:half]}_{name[-half:]}")


def holds_secret(name: str, value: object) -> bool:
    """Return True if a value and its name (a key, an option, a URL parameter) indicate a secret."""
    key = name.strip(" -").upper()
    if isinstance(value, str) and key in _BY_VALUE:
        return _MADE_UP().match(value.lstrip(" \\\"'")) is not None
    if key == _LAST_WORD:
        return not (isinstance(value, str) and _PLACE.match(value))
    return is_secret_name(name)


@lru_cache(maxsize=1_024)
def _is_secret_name(name: str) -> bool:
    if name in _PUBLIC:
        return False
    words = _words(name)
    if words in ([word] for word in _BY_VALUE):
        return False
    if not words or words[0] in _FIRST_OF_COUNTS or words[-1] in _LAST_OF_COUNTS:
        return False
    if words[-1] == "TOKENS" and len(words) > 1 and words[-2] in _COUNTED_TOKENS:
        return False
    if len(words) > 1 and words[-1] == _LAST_WORD:
        return True
    for previous, word in zip(["", *words], words, strict=False):
        stem = word.rstrip("0123456789").removesuffix("S")
        is_secret = word in _WHOLE_WORDS or (stem.endswith(_WORDS) and stem not in _EVERYDAY)
        if is_secret and not (word in {"KEY", "KEYS"} and previous in _KEYS_OF_DATA):
            return True
    return any(
        (word in _LAST_WORDS and (following is None or following in _HOLDING)) or f"{word}_{following}" in _PAIRS
        for word, following in zip_longest(words, words[1:])
    )


def _words(name: str) -> list[str]:
    if not name.isascii():
        letters = (letter for letter in normalize("NFKD", name) if category(letter) not in {"Mn", "Cf"})
        name = "".join(letters).translate(_LOOK_ALIKES)
    snake_case = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return [word for word in re.split(r"[^A-Z0-9]+", snake_case.upper()) if word]


def _lazy(pattern: str, flags: int = 0) -> Callable[[], re.Pattern[str]]:
    """Compile a pattern on first use. Compiling all patterns would delay every start."""
    return cache(partial(re.compile, pattern, flags))


# A private key, from its first line to its last one, or to the end of the text if the last line is missing
_PRIVATE_KEYS = _lazy(r"-----BEGIN (?=(?:(?!-----)(?s:.)){0,53}PRIVATE KEY)(?s:.)*?(?:-----END (?s:.)*?-----|\Z)")

# Random letters and digits, or the words of a seed phrase
_MADE_UP = _lazy(
    r"(?=[A-Za-z+=]{0,99}[0-9])(?=[0-9+=]{0,99}[A-Za-z])[A-Za-z0-9+=]{16,}+(?![\w./:-])"
    r"|(?:[a-z]{3,8}[ ,]{1,2}){11,}[a-z]{3,8}"
)

_USERINFO = _lazy(r"://(?:[^\s/@?#:\"'<>]*:[^\s/@?#\"'<>]+|[^\s/@?#:\"'<>]{16,}+)@")

# Token formats that their issuers designed to be recognisable
_TOKENS = _lazy(
    r"""(?<![A-Za-z0-9_\-])(?:
        eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]*      # JSON Web Token
      | (?:AKIA|ASIA|AROA|AIDA)[0-9A-Z]{16}(?![0-9A-Za-z])               # AWS
      | gh[pousr]_[A-Za-z0-9]{20,} | github_pat_[A-Za-z0-9_]{20,}        # GitHub
      | glpat-[A-Za-z0-9_\-]{16,}                                        # GitLab
      | xox[abeoprs]-[A-Za-z0-9\-]{10,} | xapp-[A-Za-z0-9\-]{10,}        # Slack
      | (?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,} | whsec_[A-Za-z0-9]{16,}  # Stripe
      | AIza[A-Za-z0-9_\-]{30,} | ya29\.[A-Za-z0-9_\-]{20,} | GOCSPX-[A-Za-z0-9_\-]{16,}  # Google
      | sk-[A-Za-z0-9_\-]{20,}                                           # OpenAI, Anthropic and others
      | npm_[A-Za-z0-9]{30,} | pypi-[A-Za-z0-9_\-]{30,}                  # package indexes
      | hf_[A-Za-z0-9]{20,} | tvly-[A-Za-z0-9_\-]{16,}                   # Hugging Face, Tavily
      | dop_v1_[a-f0-9]{32,} | SG\.[A-Za-z0-9_\-]{16,}\.[A-Za-z0-9_\-]{16,}   # DigitalOcean, SendGrid
      | AGE-SECRET-KEY-1[A-Z0-9]{30,}                                    # age
      | (?<=//)(?:hooks\.[\w.-]{1,99}|[\w.-]{1,99}/api/webhooks|[\w.-]{1,99}\.webhook\.office\.com)/[^\s"'<>?\#]++
      | (?<=telegram\.org/bot)\d++:[\w-]++                               # addresses that grant access
    )""",
    re.VERBOSE,
)

# A quoted value, which may contain spaces, or one word. In nested JSON, backslashes precede the quotes.
_QUOTED_OR_WORD = r"(?P<value>\"(?>(?:[^\"\\\n]|\\.)*)\"?|'[^'\n]*+'?|\\\"[^\"\\\n]*+|[^\s\"',;&|<>()]++)"

_HEADERS = _lazy(
    r"(?<![A-Za-z])(?:(?:authorization|x-api-key|[a-z-]{0,40}cookie)[\"']?[ ]{0,4}[:=](?:\\{0,4}[ ]){0,4}[\"']?"
    r"(?>(?:(?:bearer|basic|token|digest|negotiate)\b(?>(?:\\{0,4}[ ]){0,4}))?))"
    r"(?P<value>(?<=[Cc]ookie: )[^\"'\n]++|(?<=[Cc]ookie:)[^\s\"'][^\"'\n]*+|[^\s\"',;]++)",
    re.IGNORECASE,
)

_SENSITIVE = r"(?:token|secret|password|passwd|passphrase|api[_\-]?key|access[_\-]?key|private[_\-]?key|credentials?)"
# `password=...`, `"api_key": "..."`, `--token ...`, `configure set aws_secret_access_key ...`, `;Pwd=...`. `PWD` can
# also be the working directory, which is a path.
_ASSIGNMENTS = _lazy(
    rf"(?:{_SENSITIVE}\\?[\"']?[ ]{{0,4}}[=:][ ]{{0,4}}|(?<=-){_SENSITIVE}[ ]{{1,4}}(?=[^\s\-])"
    rf"|(?<=-)(?:pwd?|bearer)(?:=|[ ]{{1,4}}(?=[^\s\-]))|(?<![\w$-])pwd[\"']?[ ]{{0,4}}[=:][ ]{{0,4}}(?=[^\s/~.$])"
    rf"|(?<=\bset )[\w.:/@-]{{0,64}}{_SENSITIVE}[ ]{{1,4}})"
    rf"{_QUOTED_OR_WORD}",
    re.IGNORECASE,
)

# A possible name of a secret and everything up to the value
_NAMES = _lazy(
    r"(?<![\w$.-])(?P<words>[^\W\d][\w-]{0,31}+[ ]\w[\w.-]{0,63})\\?[\"']?[ ]{0,4}:[ ]{0,4}"
    r"|(?<![\w$.-])(?:--?)?(?P<name>\w[\w.\u00ad\u0300-\u036f\u200b-\u200f\u2060\ufeff-]{0,63})"
    r"\\?[\"']?[ ]{0,4}[=:](?:\\{0,4}[ ]){0,4}"
    r"|(?<![\w-])-(?:-(?=\w)|(?=\w{4}))(?P<option>[A-Za-z][\w.-]{1,63})[ ]{1,4}(?=[^\s-])"
    r"|\b(?:setx|setenv|set|config)[ ]{1,4}(?>(?:(?:set|add|-[\w-]{1,20})[ ]{1,4}){0,4})"
    r"(?P<variable>[\w.:/@-]{1,64})[ ]{1,4}(?=[^\s=-])"
    r"|<(?P<tag>\w[\w.:-]{0,63})>"
)

_HARMLESS = "true|false|null|none|yes|no|on|off|bearer|basic|token|digest|negotiate"
_BLOCK_SCALAR = r"(?P<value>[|>][+-]?[ ]{0,4}(?>(?:(?:\n|\\{1,3}n)(?>(?:[ \t]+(?>(?:[^\\\n]|\\(?!\\{0,2}n))*))?))+)"
_VALUE = _lazy(rf"(?!(?:{_HARMLESS})\b){_QUOTED_OR_WORD.replace('(?P<value>', f'{_BLOCK_SCALAR}|', 1)}", re.IGNORECASE)
# A query parameter, possibly percent-encoded
_QUERY_PARAMETERS = _lazy(r"(?<=[?&;#])(?P<name>[^\s=&\"'<>#?;]{1,200})=(?P<value>[^\s&\"'<>#;?]++)")
_QUOTE = r"\\?[\"']?"
# `"name": "...", "value": "..."`, in JSON or as attributes
_NAME_AND_VALUE = _lazy(
    rf"\b(?:name|key|header|id)\\?[\"']?[ ]{{0,4}}[=:][ ]{{0,4}}\\?[\"']?(?P<name>[\w. -]{{1,64}}+)"
    rf"{_QUOTE}[ ]{{0,4}}[,;]?\s{{0,4}}{_QUOTE}val(?:ue)?{_QUOTE}[ ]{{0,4}}[=:][ ]{{0,4}}{_QUOTED_OR_WORD}",
    re.IGNORECASE,
)

# `PASSWORD 'x'` and `IDENTIFIED BY 'x'` in SQL, and login commands whose only argument is a token
_STATEMENTS = _lazy(
    r"\b(?:(?:password|identified(?: with [\w\"']{1,64})?(?: by| as)(?: password)?)[ ]{1,4}(?=\\?[\"'])"
    rf"|(?:(?:vault|bao|cargo|wandb) login|(?:add-)?authtoken)[ ]{{1,4}}(?=[\w\"'][^\s=]*+(?!=))){_QUOTED_OR_WORD}",
    re.IGNORECASE,
)

_MAX_URL_LEVELS = 3  # how many levels of URLs inside URLs are decoded

# Commands that read a secret from standard input
_READER = (
    r"\bsudo\b[^|;&\n]{0,99}? -\w{0,9}S\b|-stdin\b|-fd[ =]0|--with-token|\bchpasswd\b|\bpasswd\b|\bssh-add\b"
    r"|\bcryptsetup\b|\blogin\b|\bsecrets? (?:set|create|add|put|versions)\b"
)

# Input that `echo` or `printf` pipes to a command that reads a secret
_ECHOES = _lazy(
    r"\b(?:echo|printf)[ ]{1,4}(?:-\w{1,9}[ ]{1,4})?(?P<value>[^|;&\n]{1,1000}+)"
    rf"(?=\|[^|;&\n]{{0,99}}(?:{_READER}))"
)

_HERE_STRINGS = _lazy(rf"<<<[ ]{{0,4}}{_QUOTED_OR_WORD}")

# `Bearer ...` and `Basic ...` after any name. The value has a digit, a capital or one of `=_~+/`, unlike most words
_SCHEMES = _lazy(
    r"(?<![A-Za-z])(?i:bearer|basic)[ ]{1,4}(?P<value>(?=[A-Z]?[a-z.-]{0,200}[0-9A-Z=_~+/])[A-Za-z0-9._~+/=-]{6,}+)"
)

# Options of any program that take a password, a user name with a password, or a cookie
_OPTIONS = _lazy(
    r"(?<![\w-])(?:(?:-[A-Za-z]{0,3}[uU]|--user|--proxy-user)[ =]?(?P<quote>[\"'])?"
    r"(?:[^\s:\"'/]{1,64}:|[^\s:%\"'/]{1,64}%)"
    r"|--cookie[ =]|-b[ ]?(?=[\"']?[\w-]{1,64}=)|\bpass:)"
    r"(?P<value>(?(quote)[^\"'\n]++|(?:\"[^\"\n]*+\"?|'[^'\n]*+'?|[^\s\"']++)))"
)

# A value attached to an option that often takes a password. Numbers, paths and plain words do not match
_ATTACHED = _lazy(
    r"(?<![\w-])(?:-[pP]|--?(?:pass(?:word|wd|phrase)?|pw|token|secret|api-?key)|(?<=\s)/(?:p|pass|password):)(?P<value>[\"']?"
    r"(?=[^\s\"'/=,]{0,64}\d)(?=[^\s\"'/=,]{0,64}[A-Za-z!@#$%^*])[^\s\"'/=,.:~-][^\s\"'/=,]{5,}+(?![/=,])[\"']?)"
)

# Options that take a secret, keyed by kind of program
_PASSWORDS = {
    program: _lazy(rf"(?<=\s)-{letter}[ =]?(?P<value>\"[^\"\n]*+\"?|'[^'\n]*+'?|[^\s\"'-][^\s\"']*+)")
    for program, letter in (
        *(("databases", "p"), ("archives", "[pP]"), ("enciphering", "[kK]"), ("redis", "a"), ("microsoft", "P")),
        *(("directories", "w"), ("logins", "p"), ("requests", "(?:a|-auth)"), ("secrets", "(?:b|-body|v|-value)")),
    )
}

# The command line, from the program's name to the end. Each group has the name of a kind of program in `_PASSWORDS`
_PROGRAMS = _lazy(
    r"(?<![\w-])(?:(?P<databases>mysql\w*+|mariadb[\w-]*+|sshpass|mongo\w*+)|(?P<archives>7z[ar]?|unzip|zip|rar|unrar)"
    r"|(?P<enciphering>openssl)|(?P<redis>redis-cli)|(?P<microsoft>sqlcmd|bcp|isql|ipmitool)|(?P<directories>ldap\w++|security)"
    r"|(?P<logins>(?:docker|podman|helm|oc|az|npm|buildah|skopeo) (?:registry )?login)|(?P<requests>https?|xhs?)"
    r"|(?P<secrets>secrets? (?:set|create|put|add)))(?![\w:-])(?>(?:[^\n;|&\\]|\\[\s\S])*)"
)


def redact(text: str) -> str:
    """Replace everything that looks like a secret with `HIDDEN`."""
    if len(text) < _SHORTEST_TOKEN and text.isidentifier():
        return text
    text = _PRIVATE_KEYS().sub(HIDDEN, text)
    if "://" in text:
        text = _USERINFO().sub(f"://{HIDDEN}@", text)
    text = _TOKENS().sub(HIDDEN, text)
    if "%" in text:
        text = _QUERY_PARAMETERS().sub(_redact_query_parameter, text)
    for pattern in (_HEADERS(), _ASSIGNMENTS(), _STATEMENTS()):
        text = pattern.sub(_hide_value, text)
    text = _NAME_AND_VALUE().sub(
        lambda match: _hide_value(match) if holds_secret(match["name"], match["value"]) else match[0], text
    )
    # Values whose name indicates a secret: `session: ...`, `"otp": 123456`, `?sig=...`, `--session-id ...`
    parts: list[str] = []
    position = 0
    for match in _NAMES().finditer(text):
        if match.start() < position:
            continue
        name, end = next(filter(None, match.groups())), match.end()
        words = _words(name)
        if len(words) == 1 or (name.isupper() and match[0].endswith("=")):
            is_secret = holds_secret(name, text[end : end + _MAX_NAME_CHARS].split("\n", maxsplit=1)[0])
        else:
            # A phrase such as `password reset: ...` begins like a secret's name, so its end must also look like one.
            is_long = (
                words[-1:] == [_LAST_WORD] or not _HOLDING.isdisjoint(words[-1:]) or "_".join(words[-2:]) in _PAIRS
            )
            last = "_".join(words[-2 if is_long else -1 :])
            is_secret = is_secret_name(name) and (words[-1] in _BY_VALUE or _is_secret_name(last))
        if is_secret and (value := _VALUE().match(text, end)):
            parts += [text[position:end], _hide_value(value)]
            position = value.end()
    text = "".join([*parts, text[position:]])
    for pattern in (_SCHEMES(), _OPTIONS(), _ATTACHED(), _ECHOES()):
        text = pattern.sub(_hide_value, text)
    if "<<<" in text:
        text = _HERE_STRINGS().sub(_redact_here_string, text)
    return _PROGRAMS().sub(lambda match: _PASSWORDS[str(match.lastgroup)]().sub(_hide_value, match[0]), text)


def _redact_query_parameter(match: re.Match[str]) -> str:
    """Redact a secret query parameter, which may be percent-encoded and contain another URL."""
    name, value = match["name"], match["value"]
    for _ in range(_MAX_URL_LEVELS):
        name, value = unquote_plus(name), unquote_plus(value)
    # A value that is nested more deeply is redacted, because no real URL needs such nesting.
    is_secret = holds_secret(name, value) or (
        value != match["value"] and (unquote_plus(value) != value or has_secret(value))
    )
    return _hide_value(match) if is_secret else match[0]


def _redact_here_string(match: re.Match[str]) -> str:
    """Redact a here string if its command reads a secret from standard input."""
    command = re.split(r"[;|&\n]", match.string[max(0, match.start() - _MAX_NAME_CHARS // 2) : match.start()])[-1]
    reads_secret = re.search(_READER, command) or any(map(is_secret_name, re.findall(r"[\w.-]+", command)))
    return _hide_value(match) if reads_secret else match[0]


def _hide_value(match: re.Match[str]) -> str:
    """Replace a value with `HIDDEN`, but keep its name and quotes."""
    value = match["value"]
    if value.strip("\"'") in ("", HIDDEN):
        return match[0]
    prefix = match[0][: -len(value)]
    quote = value[0] if value[0] in "\"'" else ""
    return f"{prefix}{quote}{HIDDEN}{quote if len(value) > 1 and value.endswith(quote) else ''}"


def has_token(text: str) -> bool:
    return (_PRIVATE_KEYS().search(text) or _TOKENS().search(text)) is not None


def has_secret(text: str) -> bool:
    return redact(text) != text


def without_userinfo(url: str) -> str:
    """Remove the user name and password from a URL. URLs of proxies and package indexes often contain them."""
    return re.sub(r"://[^\s/@?#]*@", "://", url)


# Keys (in upper or lower case) for the name and for the value in an object such as `{"name": "Cookie", "value": ...}`
_NAME_KEYS = frozenset({"name", "key", "header", "field", "parameter", "param", "variable", "option", "id"})
_VALUE_KEYS = frozenset({"value", "values", "val"})
_PROGRAM_KEYS = frozenset({"command", "program", "executable", "cmd"})
_ONLY_BEARER = re.compile(r"\A(\s*bearer\s+)\S+\s*\Z", re.IGNORECASE)
_SCHEME_WORDS = frozenset({"bearer", "basic", "digest", "negotiate"})
_PRICE_OF_A_VALUE = 8  # number of characters that each value counts as, in addition to its text
_MAX_DEPTH = 20  # maximum depth of nested objects and arrays
_MAX_NAME_FIELDS = 20  # maximum number of fields of one object that may name its value
_MAX_BITS = 1_000  # Python refuses to print integers with thousands of digits
_LONGEST_PART = 20  # maximum number of characters of a key or program name that are compared
_OMISSION_MARK = "..."


def without_secrets(value: Any, name: str = "", *, max_chars: int = 8_000) -> Any:
    """Return a JSON value in which secrets are hidden. A secret is recognised by its name or its form.

    The name can be a key, the `name` next to a `value`, the first item of a pair, or an option on a command line. At
    most `max_chars` characters of the value are examined; the rest is dropped.
    """
    return _Redaction(max_chars).reduced(value, name, 0)


def argument_names(fields: Mapping[Any, Any]) -> dict[Any, str]:
    """Map the keys of an object such as `{"name": "Cookie", "value": ...}` to the names of their values.

    A name is taken from another field of the object only if that name and the value together indicate a secret. All
    other names are empty.
    """
    parts = {
        key: part for key in fields if (part := str(key)[:_LONGEST_PART].strip().lower()) in _NAME_KEYS | _VALUE_KEYS
    }
    if _VALUE_KEYS.isdisjoint(parts.values()):
        return {}
    names = [str(fields[key]) for key, part in parts.items() if part in _NAME_KEYS][:_MAX_NAME_FIELDS]
    return {
        key: next((name for name in names if part in _VALUE_KEYS and holds_secret(name, fields[key])), "")
        for key, part in parts.items()
    }


class _Redaction:
    def __init__(self, max_chars: int) -> None:
        self._chars_left = max_chars
        self._program = ""  # the program named by the enclosing object; decides what its one-letter options mean

    def reduced(self, value: Any, name: str, depth: int) -> Any:
        self._chars_left -= _PRICE_OF_A_VALUE
        if value is None or isinstance(value, bool):
            return value
        if holds_secret(name, value):
            return HIDDEN
        if isinstance(value, str):
            return self._reduced_text(value)
        if isinstance(value, Mapping | list | tuple):
            if depth > _MAX_DEPTH:
                return _OMISSION_MARK
            if isinstance(value, Mapping):
                return self._reduced_object(cast("Mapping[Any, Any]", value), depth)
            return self._reduced_array(cast("Sequence[Any]", value), depth)
        return _OMISSION_MARK if isinstance(value, int) and value.bit_length() > _MAX_BITS else value

    def _reduced_text(self, text: str) -> str:
        head = text[: max(self._chars_left, 0)]
        self._chars_left -= len(head)
        safe_text = redact(_ONLY_BEARER.sub(rf"\g<1>{HIDDEN}", head))
        # The cut may be inside a secret, which is then not recognised. Therefore, only the first half is kept.
        return safe_text if len(head) == len(text) else f"{safe_text[: len(head) // 2]}{_OMISSION_MARK}"

    def _reduced_object(self, fields: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        names = argument_names(fields)
        programs = (str(value) for key, value in fields.items() if str(key).lower() in _PROGRAM_KEYS)
        self._program = next(programs, "")[:_LONGEST_PART]
        result: dict[str, Any] = {}
        for key, value in fields.items():
            if self._chars_left <= 0:
                break
            result[self._reduced_text(str(key))] = self.reduced(value, names.get(key, str(key)), depth + 1)
        return result

    def _reduced_array(self, items: Sequence[Any], depth: int) -> list[Any]:
        result: list[Any] = []
        previous: Any = ""
        for at, item in enumerate(items):
            if self._chars_left <= 0:
                break
            if isinstance(item, str) and item.lower() in _SCHEME_WORDS:
                result.append(self.reduced(item, "", depth + 1))  # the next item is the secret, and `previous` its name
                continue
            is_named = isinstance(previous, str) and (
                previous[:1] == "-" or previous[-1:] == ":" or (at % 2 and len(items) % 2 == 0)
            )
            result.append(self.reduced(item, previous.rstrip(":") if is_named else "", depth + 1))
            previous = item
        if result and all(isinstance(item, str) for item in result):
            result.insert(0, self._program)
            # An unmatched quote means that the command line was split at its spaces.
            is_torn = any(item.count(quote) % 2 for item in result for quote in "\"'")
            line = " ".join(result) if is_torn else shlex.join(result)
            redacted_line, program = redact(line), result.pop(0)
            if redacted_line != line:
                return [redacted_line.removeprefix(program if is_torn else shlex.quote(program)).lstrip()]
        return result
