"""What the analysis tells about single commands: words, effects, folders, what a permission covers."""

from __future__ import annotations

import pytest

from tools.contract.permission_subjects import Access
from tools.permissions.shell.analyser import analyse
from tools.permissions.shell.command_analysis import SubCommand


def _only(command: str) -> SubCommand:
    commands = analyse(command).commands
    assert len(commands) == 1, commands
    return commands[0]


def _texts(command: str) -> list[str]:
    return [found.text for found in analyse(command).commands]


def _touched(command: str) -> list[tuple[str, str | None, str | None]]:
    return [
        (effect.access.value, effect.target, effect.folder)
        for found in analyse(command).commands
        for effect in found.effects
    ]


@pytest.mark.requirement("shell.analysis.words")
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ('a \'b c\' "d\\"e" f\\ g', ("a", "b c", 'd"e', "f g")),
        ("a $'\\x41\\102\\tb' $\"c\"", ("a", "AB\tb", "c")),
        ("a b'c'\"d\"e", ("a", "bcde")),
        ('a "b\\\nc" d', ("a", "bc", "d")),
        ("a '' \"\"", ("a", "", "")),
        ("A=1 B=2 a b", ("a", "b")),
        ("a > f b 2>&1 c", ("a", "b", "c")),
        ("a # b", ("a",)),
        ("a b#c", ("a", "b#c")),
        ("a {} 100% a=b @{", ("a", "{}", "100%", "a=b", "@{")),
    ],
)
def test_words_are_decoded_as_bash_does(command: str, words: tuple[str, ...]) -> None:
    assert analyse(command).commands[0].words == words


@pytest.mark.requirement("shell.analysis.words")
@pytest.mark.parametrize(
    "word", ["$X", '"$X"', "*.py", "a?", "[ab]", "{a..$X}", "~/x", "$(ls)", "a$X", "`ls`", "$'\\xff'"]
)
def test_a_word_that_is_not_literal_is_kept_as_it_is_written(word: str) -> None:
    command = analyse(f"a {word}").commands[0 if "ls" not in word or "`" in word else 1]
    assert (command.words, command.is_literal) == (("a", word), False)


@pytest.mark.requirement("shell.analysis.words")
@pytest.mark.parametrize("name", ["/bin/rm", "/usr/bin/rm", "/usr/local/bin/rm", "/sbin/rm", "rm"])
def test_a_program_of_a_standard_folder_is_named_without_it(name: str) -> None:
    assert _only(f"{name} x").text == "rm x"


@pytest.mark.requirement("shell.analysis.words")
@pytest.mark.parametrize("name", ["./ls", "../ls", "x/ls", "/tmp/ls", "/usr/bin/../../tmp/ls", "/bin/x/ls"])
def test_a_program_of_any_other_folder_keeps_its_path_and_is_never_read_only(name: str) -> None:
    command = _only(name)
    assert (command.text, command.is_read_only) == (name, False)


@pytest.mark.requirement("shell.analysis.everyday")
def test_every_one_of_twenty_thousand_commands_is_counted() -> None:
    texts = _texts("ls; " * 20_000 + "rm x")
    assert (len(texts), texts[-1]) == (20_001, "rm x")


@pytest.mark.requirement("shell.analysis.everyday")
@pytest.mark.parametrize(
    "command",
    [
        "ls; " * 100_000 + "rm x",
        "(" * 100_000 + "rm x" + ")" * 100_000,
        "$(" * 100_000 + "rm x" + ")" * 100_000,
        "(" * 40_000 + "rm x",
        "echo " + "a" * 1_000_000 + "\nenv -i rm x",
        "env " * 20_000 + "rm x",
        "eval " * 10_000 + "rm x",
    ],
    ids=["list", "groups", "substitutions", "open groups", "word", "wrappers", "evals"],
)
def test_a_command_at_the_end_of_an_enormous_text_is_listed_and_the_whole_is_doubted(command: str) -> None:
    analysis = analyse(command)
    assert analysis.doubts
    assert any(found.text == "rm x" for found in analysis.commands)


@pytest.mark.requirement("shell.analysis.wrappers")
@pytest.mark.parametrize(
    ("command", "inner"),
    [
        ("env -u A B=1 c d", "c d"),
        ("timeout -k 1 5 c d", "c d"),
        ("nice -n5 c d", "c d"),
        ("nice -5 c d", "c d"),
        ("xargs -I{} c d", "c d"),
        ("sudo -u me -- c d", "c d"),
        ("find . -exec c d ';'", "c d"),
        ("bash -euo pipefail -c 'c d'", "c d"),
        ("env -S 'A=1 c d'", "c d"),
        ("flock f c d", "c d"),
        ("flock f -c 'c d'", "c d"),
        ("su - me -c 'c d'", "c d"),
        ("script -qc 'c d' f", "c d"),
        ("watch -n 1 c d", "c d"),
        ("ssh -p 22 host c d", "c d"),
        ("eval c 'd'", "c d"),
        ("trap 'c d' EXIT", "c d"),
        ("sudo -Z c d", "c d"),
        ("env env nice timeout 1 c d", "c d"),
    ],
)
def test_what_a_wrapper_runs_is_listed_besides_the_wrapper(command: str, inner: str) -> None:
    texts = _texts(command)
    assert inner in texts
    assert len(texts) > 1


@pytest.mark.requirement("shell.analysis.wrappers")
@pytest.mark.parametrize("command", ["command -v c", "command -V c"])
def test_a_query_about_a_command_does_not_run_it(command: str) -> None:
    assert _texts(command) == [command]
    assert analyse(command).is_read_only


@pytest.mark.requirement("shell.analysis.wrappers")
@pytest.mark.parametrize(
    "command", ["env --odd ls", "sudo ls", "xargs ls", 'sh -c "$X"', "eval ls", "ssh h ls", "sh f", "bash -lc ls"]
)
def test_a_wrapper_that_is_not_fully_understood_is_doubted(command: str) -> None:
    assert any(found.doubts for found in analyse(command).commands)


@pytest.mark.requirement("shell.analysis.effects")
@pytest.mark.parametrize(
    ("command", "effects"),
    [
        ("cat a /b", [("read", "a", ""), ("read", "/b", "")]),
        ('cat ~/a $HOME/b "$HOME/c"', [("read", "~/a", ""), ("read", "$HOME/b", ""), ("read", "$HOME/c", "")]),
        ("cat '~/a'", [("read", "./~/a", "")]),
        ("cat *.py $X", [("read", None, None)]),
        ("grep -e a b c", [("read", "b", ""), ("read", "c", "")]),
        ("grep a b", [("read", "b", "")]),
        ("grep -r a", [("read", ".", "")]),
        ("grep a", []),
        ("rg a", [("read", ".", "")]),
        ("ls", [("read", ".", "")]),
        ("head -n 5 a", [("read", "a", "")]),
        ("sort -o a b", [("write", "a", ""), ("read", "b", "")]),
        ("sed -i s/a/b/ c", [("read", "c", ""), ("write", "c", "")]),
        ("sed -n 1p c", [("read", "c", "")]),
        ("cp a b", [("read", "a", ""), ("write", "b", ""), ("write", "b/a", "")]),
        ("cp -t d a", [("write", "d", ""), ("read", "a", ""), ("write", "d/a", "")]),
        ("mv a b", [("read", "a", ""), ("write", "a", ""), ("write", "b", ""), ("write", "b/a", "")]),
        ("chmod 600 a", [("write", "a", "")]),
        ("dd if=a of=b", [("read", "a", ""), ("write", "b", "")]),
        ("tee a", [("write", "a", "")]),
        ("tar -cf a b", [("write", "a", ""), ("read", "b", "")]),
        ("find a -fprint b", [("read", "a", ""), ("write", "b", "")]),
        ("find . -delete", [("read", ".", ""), ("write", None, None)]),
        ("curl https://u:p@Example.org:8/x -o f", [("write", "f", ""), ("fetch", "example.org", None)]),
        ("curl -d @f https://h/", [("fetch", "h", None), ("read", "f", "")]),
        ("curl $X", [("write", None, None), ("read", None, None), ("fetch", None, None)]),
        ("git clone https://h/x d", [("fetch", "h", None), ("write", "d", "")]),
        ("git clone git@h:x", [("fetch", "h", None), ("write", None, None)]),
        ("scp a me@h:b", [("read", "a", ""), ("write", "me@h:b", ""), ("fetch", "h", None), ("write", "me@h:b/a", "")]),
    ],
)
def test_arguments_tell_what_is_touched(command: str, effects: list[tuple[str, str | None, str | None]]) -> None:
    # The folder says nothing about a host.
    assert [(a, t, None if a == "fetch" else f) for a, t, f in _touched(command)] == effects


@pytest.mark.requirement("shell.analysis.effects")
@pytest.mark.parametrize(
    ("redirection", "effects"),
    [
        ("> f", [("write", "f")]),
        (">> f", [("write", "f")]),
        (">| f", [("write", "f")]),
        ("&> f", [("write", "f")]),
        ("&>> f", [("write", "f")]),
        (">& f", [("write", "f")]),
        ("2> f", [("write", "f")]),
        ("{a}> f", [("write", "f")]),
        ("< f", [("read", "f")]),
        ("<> f", [("read", "f"), ("write", "f")]),
        ("> $X", [("write", None)]),
        ("2>&1", []),
        (">&-", []),
        ("2> /dev/null", []),
        ("<<< f", []),
        ("<<f\nf", []),
        ("< /dev/tcp/h/80", [("fetch", "h")]),
    ],
)
def test_redirections_are_effects(redirection: str, effects: list[tuple[str, str | None]]) -> None:
    analysis = analyse(f"true {redirection}")
    command = analysis.commands[0]
    assert [(effect.access.value, effect.target) for effect in command.effects] == effects
    assert all(effect.is_redirection for effect in command.effects if effect.access is not Access.FETCH)
    assert analysis.is_read_only is all(effect.access is Access.READ for effect in command.effects)


@pytest.mark.requirement("shell.analysis.effects")
@pytest.mark.parametrize("compound", ["{ true; }", "(true)", "if true; then true; fi", "for i in a; do true; done"])
def test_a_redirection_of_a_compound_command_is_a_sub_command_of_its_own(compound: str) -> None:
    last = analyse(f"{compound} > f").commands[-1]
    assert (last.words, [effect.target for effect in last.effects]) == ((), ["f"])
    assert not analyse(f"{compound} > f").is_read_only


@pytest.mark.requirement("shell.analysis.folders")
@pytest.mark.parametrize(
    ("command", "folders"),
    [
        ("cat f", {""}),
        ("cd a && cat f", {"a"}),
        ("cd a && cd b && cat f", {"a/b"}),
        ("cd a && cd .. && cat f", {""}),
        ("cd /a && cat f", {"/a"}),
        ("cd a; cat f", {"", "a"}),
        ("cd a\ncat f", {"", "a"}),
        ("cd a || cat f", {"", "a"}),
        ("cd a && ls; cat f", {"", "a"}),
        ("(cd a && ls); cat f", {""}),
        ("(cd a && cat f)", {"a"}),
        ("echo $(cd a && ls); cat f", {""}),
        ("cd $X && cat f", {None}),
        ("cd - && cat f", {None}),
        ("cd a | cat f", {None}),
        ("if cd a; then ls; fi; cat f", {None}),
        ("! cd a && cat f", {None}),
        ("f() { cd a; }; cat f", {None}),
        ("source x; cat f", {None}),
        ("bash -c 'cd a && cat f'", {"a"}),
        ("cd a && bash -c 'cat f'", {"a"}),
        ("env -C a cat f", {"a"}),
        ("command cd a && cat f", {"a"}),
        ("popd; cat f", {None}),
    ],
)
def test_it_is_followed_where_a_command_runs(command: str, folders: set[str | None]) -> None:
    found = [each for each in analyse(command).commands if each.text == "cat f"]
    assert {effect.folder for each in found for effect in each.effects} == folders


@pytest.mark.requirement("shell.analysis.folders")
def test_a_path_below_the_home_folder_is_told_whole() -> None:
    assert _touched("cd ~/a && cat f")[-1] == ("read", "~/a/f", "")


@pytest.mark.requirement("shell.analysis.roots")
@pytest.mark.parametrize(
    ("command", "scope"),
    [
        ("mkdir -p a", "mkdir"),
        ("/bin/mkdir a", "mkdir"),
        ("./gradlew build", "./gradlew build"),
        ("git push --force", "git push"),
        ("git -C a push", ""),
        ("git", ""),
        ("npm run build", "npm run build"),
        ("npm --silent run", ""),
        ("cargo $X", ""),
        ("python x.py a", ""),
        ("python -m pytest -q", ""),
        ("python -c 1", ""),
        ("node", ""),
        ("bash x", ""),
        ("sudo a", ""),
        ("eval a", ""),
        ("find . -delete", ""),
        ("$X a", ""),
        ("'mkdir' a", ""),
    ],
)
def test_a_lasting_permission_covers_the_scope_of_a_command(command: str, scope: str) -> None:
    outer = analyse(command).commands[0]
    assert outer.scope == scope
    assert outer.text.startswith(outer.scope)


@pytest.mark.requirement("shell.analysis.words")
@pytest.mark.parametrize(
    "hidden", ["\x1b[2K", "\x08", "\x7f", "\u202e", "\u200b", "\U000e0041", "\ud800", "\0", " " * 200]
)
def test_hidden_text_is_a_doubt(hidden: str) -> None:
    assert "it hides text" in " ".join(analyse(f"ls a{hidden}b").doubts)


@pytest.mark.requirement("shell.analysis.everyday")
def test_line_feeds_and_tabs_hide_nothing() -> None:
    assert analyse("ls\n\tls\n").is_read_only


@pytest.mark.requirement("shell.analysis.hostile")
@pytest.mark.parametrize("command", ["", " ", "\n", "# only a comment", "A=1"])
def test_a_text_without_commands_has_none(command: str) -> None:
    analysis = analyse(command)
    assert (analysis.commands, analysis.doubts) == ((), ())


@pytest.mark.requirement("shell.analysis.hostile")
def test_commands_in_what_cannot_be_read_are_listed_all_the_same() -> None:
    assert "rm x" in _texts('ls "a; rm x')
    assert "rm x" in _texts("ls 'a' 'b; rm x")
    assert "rm x" in _texts("ls ) ; rm x")


@pytest.mark.requirement("sandbox.git")
@pytest.mark.parametrize(
    ("command", "is_git_alone"),
    [
        ("cd p && git submodule add ../q module; git submodule status", True),
        ("cd p && git -c protocol.file.allow=always submodule add -q ../q module; git submodule status", True),
        ("git stash; git pull --rebase && git push -u origin f | tail -3", True),
        ("git -c protocol.ext.allow=always submodule update", False),
        ("git -c core.fsmonitor=./x submodule update", False),
        ("git submodule update && make", False),
        ("git status", False),
    ],
)
def test_that_nothing_but_git_changes_anything_is_known_beyond_doubt(command: str, is_git_alone: bool) -> None:
    assert analyse(command).only_git_changes is is_git_alone
