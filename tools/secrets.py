"""What looks like a secret: names of variables and parameters that hold one, and texts that are one.

For the environment of commands and for the log. Recognition is by form, so it knows the usual ones and no more; what
is recognised wrongly costs a variable or a word in a log. Every pattern is read in time linear in the text: it starts
only where the run of characters that it looks at starts.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

HIDDEN = "[hidden]"
"""What stands in place of a secret."""

_WORDS = (
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "KEY",
    "AUTH",
    "CREDENTIAL",
    "CRED",
    "PRIVATE",
    "CERT",
    "COOKIE",
    "JWT",
)
"""Ends of the words of a name (`API_KEY`, `dbPassword`, `MYTOKENS`)."""

_WHOLE_WORDS = frozenset({"PASS", "PGPASS", "PW", "PAT", "DSN", "BEARER", "XAUTHORITY"})

_LAST_WORD = "PWD"
"""A password at the end of a name (`MYSQL_PWD`). Alone it is the working folder."""

_PUBLIC = frozenset(
    {
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "NIX_SSL_CERT_FILE",
        "PIP_CERT",
        "CARGO_HTTP_CAINFO",
        "NODE_EXTRA_CA_CERTS",
    }
)
"""Names of certificate stores: paths of what everybody may see."""

_SECRET_SETTINGS = ("_authtoken", "_auth=", "_password", "<password>", "npmauthtoken", "password=", "-u ")
"""Keys of npm, Maven, Gradle, pip and curl whose values have no form of their own; in small letters."""

_BEGIN, _END, _DASHES = "-----BEGIN ", "-----END ", "-----"
_KEY_HEADER_LENGTH = 64


@lru_cache(maxsize=1_024)
def is_secret_name(name: str) -> bool:
    """Whether a variable or parameter of this name holds a secret by its name."""
    if name.upper() in _PUBLIC:
        return False
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    words = [word for word in re.split(r"[^A-Z0-9]+", spaced.upper()) if word]
    if len(words) > 1 and words[-1] == _LAST_WORD:
        return True
    return any(word in _WHOLE_WORDS or word.removesuffix("S").endswith(_WORDS) for word in words)


def redact(text: str) -> str:
    """The text with everything that looks like a secret replaced by `HIDDEN`."""
    text = _without_keys(text)
    if "://" in text:
        text = _userinfo().sub(f"://{HIDDEN}@", text)
    text = _tokens().sub(HIDDEN, text)
    text = _headers().sub(_hide_value, text)
    text = _assignments().sub(_hide_value, text)
    text = _variables().sub(lambda found: _hide_value(found) if is_secret_name(found[2]) else found[0], text)
    text = _options().sub(_hide_value, text)
    return _programs().sub(_without_passwords, text)


def _hide_value(found: re.Match[str]) -> str:
    """What stands before a value, with the mark in place of the value; its quotes stay."""
    value = found["value"]
    if value.strip("\"'") in ("", HIDDEN):
        return found[0]
    before = found[0][: -len(value)]
    quote = value[0] if value[0] in "\"'" else ""
    return f"{before}{quote}{HIDDEN}{quote if len(value) > 1 and value.endswith(quote) else ''}"


def _without_passwords(found: re.Match[str]) -> str:
    """A command of a program whose options for passwords are known."""
    program = next(name for name, value in found.groupdict().items() if value is not None)
    return _password_options(_PASSWORD_LETTERS[program]).sub(_hide_value, found[0])


def has_secret(text: str) -> bool:
    """Whether there is anything in a text that `redact` would hide."""
    return redact(text) != text


def has_secret_setting(text: str) -> bool:
    """Whether a settings file of a build tool holds a secret: by its form, or by the key before it."""
    lowered = text.lower()
    return any(key in lowered for key in _SECRET_SETTINGS) or has_secret(text)


def without_userinfo(url: str) -> str:
    """A URL without name and password, which often stand in addresses of proxies and package indexes."""
    return re.sub(r"://[^\s/@?#]*@", "://", url)


def _without_keys(text: str) -> str:
    """Private keys as text, from their first line to their last, or to the end of the text."""
    parts: list[str] = []
    done = at = 0
    while (at := text.find(_BEGIN, at)) >= 0:
        header = text[at + len(_BEGIN) : at + len(_BEGIN) + _KEY_HEADER_LENGTH].partition(_DASHES)[0]
        if "PRIVATE KEY" not in header:
            at += len(_BEGIN)
            continue
        parts += [text[done:at], HIDDEN]
        end = text.find(_END, at)
        last = text.find(_DASHES, end + len(_END)) if end >= 0 else -1
        if last < 0:
            return "".join(parts)
        done = at = last + len(_DASHES)
    return "".join([*parts, text[done:]])


@cache
def _userinfo() -> re.Pattern[str]:
    return re.compile(r"://[^\s/@?#:\"'<>]*:[^\s/@?#\"'<>]+@")


@cache
def _tokens() -> re.Pattern[str]:
    """Forms that their issuers chose so that they can be recognised."""
    return re.compile(
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
        )""",
        re.VERBOSE,
    )


_VALUE = r"(?P<value>\"(?:[^\"\\\n]|\\.)*+\"?|'[^'\n]*+'?|[^\s\"',;&|<>()]{4,}+)"
"""In quotes, where it may hold blanks, or one word."""


@cache
def _headers() -> re.Pattern[str]:
    return re.compile(
        r"(?<![A-Za-z])(?:(?:authorization|x-api-key|[a-z-]*cookie)[\"']?[ ]{0,4}[:=][ ]{0,4}[\"']?"
        r"(?:(?:bearer|basic|token|digest|negotiate)[ ]{1,4})?)"
        r"(?P<value>(?<=[Cc]ookie: )[^\"'\n]{4,}+|(?<=[Cc]ookie:)[^\s\"'][^\"'\n]{3,}+|[^\s\"',;]{4,}+)",
        re.IGNORECASE,
    )


@cache
def _assignments() -> re.Pattern[str]:
    """`password=...`, `"api_key": "..."`, `--token ...`, `configure set aws_secret_access_key ...`, `;Pwd=...`.

    `PWD` is also the working folder, which is a path.
    """
    words = r"(?:token|secret|password|passwd|passphrase|api[_\-]?key|access[_\-]?key|private[_\-]?key|credentials?)"
    return re.compile(
        rf"(?:{words}[\"']?[ ]{{0,4}}[=:][ ]{{0,4}}|(?<=-){words}[ ]{{1,4}}(?=[^\s\-])"
        rf"|(?<=-)(?:pwd?|bearer)(?:=|[ ]{{1,4}}(?=[^\s\-]))|(?<![\w$-])pwd[\"']?[ ]{{0,4}}[=:][ ]{{0,4}}(?=[^\s/~.$])"
        rf"|(?<=\bset )[\w.:/@-]{{0,64}}{words}[ ]{{1,4}})"
        rf"{_VALUE}",
        re.IGNORECASE,
    )


@cache
def _variables() -> re.Pattern[str]:
    """`NAME=value`; whether it is a secret is told by the name."""
    return re.compile(rf"(?<![A-Za-z0-9_])(([A-Z][A-Z0-9_]{{1,63}})=){_VALUE}")


@cache
def _options() -> re.Pattern[str]:
    """Options that mean a password, or a name with one, to every program that has them."""
    return re.compile(
        r"(?<![\w-])(?:(?:-u|-U|--user|--proxy-user)[ =]?(?P<quote>[\"'])?[^\s:\"'/]{1,64}:|--cookie[ =]"
        r"|-b[ ]?(?=[\"']?[\w-]{1,64}=)|\bpass:)"
        r"(?P<value>(?(quote)[^\"'\n]++|(?:\"[^\"\n]*+\"?|'[^'\n]*+'?|[^\s\"']++)))"
    )


_PASSWORD_LETTERS = {
    "databases": "p",
    "archives": "pP",
    "enciphering": "kK",
    "redis": "a",
    "microsoft": "P",
    "directories": "w",
    "logins": "p",
}


@cache
def _programs() -> re.Pattern[str]:
    """A command line of a program that takes a password by a letter, to its end."""
    return re.compile(
        r"(?<![\w-])(?:(?P<databases>mysql\w*+|mariadb[\w-]*+|sshpass|mongo\w*+)|(?P<archives>7z[ar]?|unzip|zip|rar|unrar)"
        r"|(?P<enciphering>openssl)|(?P<redis>redis-cli)|(?P<microsoft>sqlcmd|bcp)|(?P<directories>ldap\w++)"
        r"|(?P<logins>(?:docker|podman|helm|oc|az|npm|buildah|skopeo) (?:registry )?login))(?![\w-])[^\n;|&]*+"
    )


@cache
def _password_options(letters: str) -> re.Pattern[str]:
    return re.compile(rf"(?<=\s)-[{letters}][ ]?(?P<value>\"[^\"\n]*+\"?|'[^'\n]*+'?|[^\s\"'-][^\s\"']*+)")
