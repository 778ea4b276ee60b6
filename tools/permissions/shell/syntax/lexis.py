"""The tokens of bash: what a reader meets next in a list of commands, in double quotes, in `${...}`."""

from __future__ import annotations

import re

LIST_TOKEN = re.compile(
    r"""(?P<blank>(?:[ \t\r\f\v]|\\\n(?=[ \t\n]|\\\n|\Z)|(?<![^ \t\n])\\\n)+)
    |(?P<newline>\n)
    |(?P<comment>(?<![^ \t\r\n;&|()<>])\#[^\n]*)
    |(?P<plain>(?:[^ \t\r\f\v\n\\'"`$;&|<>()]++
        |\\[^\n]|\\\n(?=[^ \t\n\\])|'[^']*'|\$'(?:\\.|[^'\\])*'|\$(?![\w{(\["'`*@\#?$!-]))+)
    |(?P<variable>\$(?:[A-Za-z_]\w*|[0-9*@\#?$!-]))
    |(?P<arithmetic>\$?\(\((?P<sum>[\w\s+\-*/%<>=!&|^~?:,$]{0,100}|[\d\s+\-*/%=!^~?:,()]{0,100})\)\))
    |(?P<substitution>\$\()
    |(?P<old_arithmetic>\$\[)
    |(?P<parameter>\$\{)
    |(?P<double>\$?")
    |(?P<backtick>`(?P<quoted_command>(?:[^`\\]|\\.)*)`)
    |(?P<process>[<>]\()
    |(?P<redirect>&>>|&>|<<<|<<-|<<|<>|<&|>>|>&|>\||<|>)
    |(?P<operator>;;&|;;|;&|;|&&|&|\|\||\|&|\|)
    |(?P<open>\()
    |(?P<close>\))
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
"""What may follow in a list of commands. A sum longer than 100 characters is not looked for: reading stays linear."""

QUOTED_TOKEN = re.compile(
    r"""(?P<text>(?:[^"\\$`]++|\\.|\$(?![\w{(\[*@\#?$!-]))+)
    |(?P<variable>\$(?:[A-Za-z_]\w*|[0-9*@\#?$!-]))
    |(?P<arithmetic>\$\(\((?P<sum>[\w\s+\-*/%<>=!&|^~?:,$]{0,100}|[\d\s+\-*/%=!^~?:,()]{0,100})\)\))
    |(?P<substitution>\$\()
    |(?P<old_arithmetic>\$\[)
    |(?P<parameter>\$\{)
    |(?P<backtick>`(?P<quoted_command>(?:[^`\\]|\\.)*)`)
    |(?P<quote>")
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
"""What may follow in double quotes, and in the text of a here-document, where a quote is a character like any."""

PARAMETER_TOKEN = re.compile(
    r"""(?P<text>(?:[^"'\\$`}<>]++|\\.|\$(?![\w{(\[*@\#?$!"'-])|[<>](?!\())+)
    |(?P<single>'[^']*')
    |(?P<ansi>\$'(?:\\.|[^'\\])*')
    |(?P<variable>\$(?:[A-Za-z_]\w*|[0-9*@\#?$!-]))
    |(?P<arithmetic>\$\(\((?P<sum>[\w\s+\-*/%<>=!&|^~?:,$]{0,100}|[\d\s+\-*/%=!^~?:,()]{0,100})\)\))
    |(?P<substitution>\$\()
    |(?P<old_arithmetic>\$\[)
    |(?P<parameter>\$\{)
    |(?P<double>\$?")
    |(?P<backtick>`(?P<quoted_command>(?:[^`\\]|\\.)*)`)
    |(?P<process>[<>]\()
    |(?P<close>\})
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
"""What may follow in `${name...}` behind the name."""

PARAMETER_HEAD = re.compile(r"\#?(?:[A-Za-z_]\w*|[0-9]+|[*@\#?$!-])(?=:?[-+?]|[\#%/^,}])|\#(?=\})", re.ASCII)
"""A parameter whose expansion runs nothing: no `!` (indirection), `[` and `:n` (arithmetic), `=`, `@` (evaluation)."""

EMPTY_PARENTHESES = re.compile(r"[ \t]*\([ \t]*\)")
ARRAY = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)
ARITHMETIC_LOOP = re.compile(r"\(\([\w\s+\-*/%<>=!&|^~?:,;$]{0,200}\)\)", re.ASCII)
TIME_OPTION = re.compile(r"[ \t]+-p(?=[ \t\n])")
IDENTIFIER = re.compile(r"[A-Za-z_]")
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?\+?=", re.ASCII | re.DOTALL)
DESCRIPTOR = re.compile(r"[0-9]+\Z|\{[A-Za-z_]\w*\}\Z", re.ASCII)
COPROCESS_NAME = re.compile(
    r"[ \t]+[A-Za-z_]\w*(?=[ \t]+(?:[{(]|\[\[|(?:if|while|until|for|case|select)[ \t\n]))", re.ASCII
)
ESCAPED_IN_BACKTICKS = re.compile(r"\\([$`\\])")
LINE_CONTINUED_IN_WORD = re.compile(r"(?<=[^ \t\n])\\\n(?=[^ \t\n])")
