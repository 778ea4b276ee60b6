"""Verdicts on shell commands and their views: modes, rules, paths, the network, and commands that bash may extend."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import process_time

import pytest

from tests.linear_time import ATTEMPTS, MAX_COST_RATIO
from tests.tables import each_of
from tests.unit.permissions.commands import abbreviation, judge, outcome
from tools.contract.call_options import ApprovalMode
from tools.contract.command_views import CommandSite, Engine, Network, ViewKind
from tools.contract.permission_subjects import Needs
from tools.permissions.hidden_files import MAX_HIDDEN
from tools.permissions.verdict import Permission, Verdict

PLAN, DEFAULT, AUTO_EDIT, YOLO = (
    ApprovalMode.PLAN,
    ApprovalMode.DEFAULT,
    ApprovalMode.AUTO_EDIT,
    ApprovalMode.YOLO,
)


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A home folder outside of `/tmp`, with the workspace `project` and files beside it."""
    with tempfile.TemporaryDirectory(dir=Path.home(), prefix=".coretools-test-") as name:
        folder = Path(name)
        for path in ("project/src/a.py", "project/.vscode/tasks.json", "project/.env", "notes/todo.txt", ".bashrc"):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text("x\n")
        yield folder


@pytest.fixture
def project(home: Path) -> Path:
    return home / "project"


@pytest.fixture
def ignoring_workspace(copy: Path) -> Path:
    """A workspace with two folders that are hidden from agents. `many` has too many entries to hide them one by one."""
    for name in ("few/a", "few/b", "many/deep/a", *(f"many/{number}" for number in range(MAX_HIDDEN + 1))):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).touch()
    (copy / ".qwenignore").write_text("few/\nmany/\n")
    return copy


@pytest.fixture
def copy(home: Path) -> Iterator[Path]:
    """A copy of the workspace, for a test that changes it."""
    with tempfile.TemporaryDirectory(dir=home) as name:
        yield shutil.copytree(home / "project", Path(name, "copy"))


# For each command, the outcomes in five modes: plan, default, auto-edit, with all sandboxed commands allowed, and yolo
MATRIX = """
ls -la                                          | r   r   r   r   w n
git status                                      | r   r   r   r   w n
git --no-pager log --oneline -5 | head -3       | r   r   r   r   w n
git diff HEAD~1 -- src                          | r   r   r   r   w n
git branch -a                                   | r   r   r   r   w n
python3 --version                               | r   r   r   r   w n
.venv/bin/python --version                      | r   r   r   r   w n
sed 's/foo/bar/' src/a.py                       | r   r   r   r   w n
for f in src/*.py; do wc -l "$f"; done          | r   r   r   r   w n
cat $(git ls-files) | sort | uniq -c            | r   r   r   r   w n
x=1; echo $((x + 1))                            | r   r   r   r   w n
find . -name '*.py' -exec grep -l x {} +        | r   r   r   r   w n
grep -rn todo . | xargs -n 1 echo               | r   r   r   r   w n
curl -s http://localhost:8000/items             | r   r   r   r   w n
curl -X POST 127.0.0.1:8000/items -d x          | r   r   r   r   w n
for i in 1 2; do curl localhost:3000/$i; done   | r   r   r   r   w n
P=3000; curl -s localhost:$P "http://[::1]:$Q"  | r   r   r   r   w n
U=http://127.0.0.1:80; curl $U/$(echo x) localhost/? | r r   r   r   w n
U=http://example.org; curl $U/a                 | X   ?rn ?rn ?rn w n
curl $U; curl localhost                         | X   ?rn ?rn ?rn w n
curl "https://$H" localhost:80                  | X   ?rn ?rn ?rn w n
wget -qO- localhost:3000/a                      | r   r   r   r   w n
wget localhost:3000                             | X   ?w  ?w  w   w n
wget -qO- example.org                           | X   ?rn ?rn ?rn w n
npm ls --depth=0                                | r   r   r   r   w n
npm run                                         | r   r   r   r   w n
npm run build                                   | X   ?w  ?w  w   w n
npm config get registry                         | r   r   r   r   w n
npm config set registry x                       | X   ?w  ?w  w   w n
ss -ltnp && pgrep -af x; lsof -i :8000                       | r   r   r   r   w n
git fsck --full                                 | r   r   r   r   w n
git clean -nd; git worktree prune -n            | r   r   r   r   w n
git clean -fd                                   | X   ?w  ?w  w   w n
cat a.json | python3 -m json.tool               | r   r   r   r   w n
python3 -m json.tools                           | X   ?w  ?w  w   w n
cat /etc/hostname /usr/share/x                  | r   r   r   r   w n
ls > /tmp/out.txt 2>&1                          | r   r   r   r   w n
ls > /dev/null                                  | r   r   r   r   w n
cat ~/.bashrc                                   | ?r+ ?r+ ?r+ ?r+ w n
grep x ../notes/todo.txt                        | ?r+ ?r+ ?r+ ?r+ w n
cat ../notes/absent.txt                         | r   r   r   r   w n
mkdir -p /tmp/x && touch /tmp/x/a && mktemp     | r   r   r   r   w n
cp -r src /tmp/ && rm -rf /tmp/src              | r   r   r   r   w n
touch /tmp/.vscode/tasks.json                   | ?r  ?r  ?r  ?r  ?w n
rm -rf /tmp/src src                             | X   ?w  ?w  w   w n
cp /tmp/a.py src/                               | X   ?w  ?w  w   w n
[ "$(ls | wc -l)" -gt 0 ] && echo some          | r   r   r   r   w n
ls > out.txt                                    | X   ?w  r+  w   w n
pytest > /tmp/out.txt                           | X   ?w  ?w  w   w n
pytest -q                                       | X   ?w  ?w  w   w n
python3 -c 'print(1)'                           | X   ?w  ?w  w   w n
sed -i s/a/b/ src/a.py                          | X   ?w  ?w  w   w n
find . -name x -delete                          | X   ?w  ?w  w   w n
git commit -m x                                 | X   ?w  ?w  w   w n
git branch -D x                                 | X   ?w  ?w  w   w n
f() { ls; }; f                                  | X   ?w  ?w  w   w n
$x                                              | X   ?w  ?w  w   w n
.venv/bin/pip list                              | r   r   r   r   w n
printf x > out.txt                              | X   ?w  r+  w   w n
printf x >&"out.txt"                            | X   ?w  r+  w   w n
printf x > -out                                 | X   ?w  r+  w   w n
node --check a.js && bash -n a.sh && make -n    | r   r   r   r   w n
ip a; mount; openssl version; yes | head -1     | r   r   r   r   w n
ip link set lo down                             | X   ?w  ?w  w   w n
tar czf /tmp/a.tgz src; tar xf /tmp/a.tgz -C /tmp | r r   r   r   w n
tar czf a.tgz src                               | X   ?w  ?w  w   w n
kill %1; kill -0 12; pkill -f server.js         | r   r   r   r   w n
make & kill %1                                  | X   ?w  ?w  w   w n
apt list --installed                            | X   ?w  ?w  w   w n
sh -c 'ls'                                      | X   ?w  ?w  w   w n
if                                              | X   ?w  ?w  w   w n
eval ls                                         | X   ?w  ?w  w   w n
PATH=/x ls                                      | X   ?w  ?w  w   w n
[[ 'a[$(touch x)]' -eq 1 ]]                     | r   r   r   r   w n
npm install                                     | X   ?wn ?wn ?wn w n
python3 -m pip install x                        | X   ?wn ?wn ?wn w n
git push origin main                            | X   ?wn ?wn ?wn w n
curl -sI https://example.org/ | head -1         | X   ?rn ?rn ?rn w n
npm view x && git ls-remote origin              | X   ?rn ?rn ?rn w n
curl -so page https://example.org/              | X   ?wn ?wn ?wn w n
curl -O localhost:8000/page                     | X   ?w  ?w  w   w n
curl -so /dev/null -XPOST localhost:8000        | r   r   r   r   w n
cd ../notes && make                             | X   ?w+ ?w+ ?w+ ?w n+
cd .. && make                                   | X   ?w  ?w  w   w n
cd ~ && make                                    | X   ?w  ?w  w   w n
cd /usr && kill 1 && touch /tmp/x               | r   r   r   r   w n
cd ../notes && ls                               | ?r+ ?r+ ?r+ ?r+ w n
git clone --depth 1 https://example.org/a ./b   | X   ?wn ?wn ?wn w n
git clone -q ./a b; git pull ../a main          | X   ?w  ?w  w   w n
ssh -V; curl --version                          | r   r   r   r   w n
npx --no-install tsc; npm ci --offline          | X   ?w  ?w  w   w n
npx eslint . && ls                              | X   ?wn ?wn ?wn w n
cp src/a.py .vscode/tasks.json                  | X   ?w+ ?w+ ?w+ ?w n+
echo x > .git/hooks/pre-commit                  | X   ?w+ ?r+ ?w+ ?w n+
cp src/a.py ../notes/todo.txt                   | X   ?w+ ?w+ ?w+ ?w n+
git worktree add ../tree                        | X   ?w+ ?w+ ?w+ ?w n+
echo x > ../notes/todo.txt                      | X   ?w+ ?w+ ?w+ ?w n+
echo x > ../notes/new.txt                       | X   X   X   X   X
echo x > ~/.config/absent                       | X   X   X   X   X
touch ../notes/new                              | X   ?w  ?w  w   w n
touch ../notes/new src                          | X   ?w  ?w  w   w n
y=$((x)); ls                                    | r   r   r   r   w n
cat a > /dev/tcp/127.0.0.1/9                    | X   ?w  ?w  w   w n
curl -s example.org                             | X   ?rn ?rn ?rn w n
git config user.name x                          | X   ?w  ?w  ?w  ?w n
git -c alias.x=!sh x                            | X   ?w  ?w  w   w n
echo x > /tmp/.vscode/tasks.json                | X   ?w  ?w  ?w  ?w n
echo x > src/HEAD; echo y > src/config          | X   ?w+ ?r+ ?w+ ?w n+
git reset --hard HEAD                           | X   ?w  ?w  w   w n
"""


@pytest.mark.requirement("commands.views")
@pytest.mark.parametrize("line", MATRIX.strip().splitlines())
def test_a_command_runs_in_the_view_that_the_mode_gives_it(project: Path, home: Path, line: str) -> None:
    command, _, expected = line.rpartition(" | ")
    modes = (PLAN, DEFAULT, AUTO_EDIT, DEFAULT, YOLO)
    outcomes = [
        outcome(project, command.strip(), mode, home=home, is_sandboxed=at == 3) for at, mode in enumerate(modes)
    ]
    assert outcomes == expected.replace(" n", "n").split()


# Lines in which bash runs more than the grammar shows, and lines that make bash evaluate a text. `{}` is what it runs
HIDDEN_COMMANDS = [
    "mkdir d <<A\n`{}`\nA",
    "mkdir d <<A\n\t$({})\nA\n",
    "mkdir d <<A\n\u2028$({})\nA",
    "mkdir d <<A\n$ $({})\nA",
    "mkdir d <<A\n${x:-`{}`}\nA",
    'mkdir d <<A"B"\nx\nAB\n{}\nA"B"\n',
    "mkdir d <<A\\B\nx\nAB\n{}\nA\\B\n",
    "mkdir d <<A\nx\\\nA\ncat <<'B'\nA\n{}\nB",
    "mkdir ${x:-`{}`}",
    "mkdir \"${x:-'$({})'}\"",
    "mkdir ${x:-<({})}",
    "mkdir `echo \\`{}\\``",
    "x='$({})'; mkdir ${x@P}",
    "x='a[$({})]'; mkdir ${!x}",
    "x='a[$({})]'; mkdir ${y:x}",
    "mkdir a\\\n#; {}",
    "for PATH in .; do mkdir d; done",
]
EVALUATED_TEXTS = [
    "x='a[$({})]'; [[ x -eq 1 ]]",
    "x='a[$({})]'; test -v \"$x\"",
    "x='a[$({})]'; [ -v $x ]",
    "x='a[$({})]'; read $x",
    "declare -n x='a[$({})]'; echo $x",
    "declare -a 'x=($({}))'",
    "command declare 'a[$({})]=1'",
    "A=b export 'a[$({})]=1'",
    "PS4='$({})'; set -x; ls",
    "read PS4 <<< '$({})'; set -x; ls",
    "mapfile -C '{};:' -c1 a <<< b",
    "compgen -C '{}'",
    "coproc {}",
    "time { {}; }",
    "[ a && ./x ]",
    "![[ x == :>y ]]",
    "builtin eval '{}'",
    "x='{}'; bash -c \"$x\"",
    "y='-vx[$({})]'; printf \"$y\" a",
    "echo '{}' | bash",
    "source <(echo {})",
    ". /dev/stdin <<< '{}'",
]
# Variables that make programs run or load something else
RUNNING_OTHERS = [
    *("GIT_EDITOR", "MANPAGER", "PAGER", "LESSOPEN", "PERL5OPT", "PERL5DB", "RUBYOPT", "JAVA_TOOL_OPTIONS"),
    *("_JAVA_OPTIONS", "MAKEFLAGS", "GREP_OPTIONS", "NODE_PATH", "CLASSPATH", "BASHOPTS", "SHELL", "HOME"),
    *("XDG_CONFIG_HOME", "DYLD_INSERT_LIBRARIES", "PYTHONSTARTUP"),
]
# Similar lines that contain no hidden command
HARMLESS_TEXTS = [
    "mkdir d <<'A'\n`rm x` $(rm y) it's\nA",
    "mkdir d <<A\n$x ${y} \\`rm x\\` 5$ 'it'\nA",
    "mkdir \"$(cat <<'A'\na `x`\nA\n)\"",
    "mkdir ${x%.py} ${x:-b} ${x//\\//-} ${x:0:7} \"${x[@]}\" {1..3} $'a\\n' a#b # it's",
    "mkdir \\\n  d",
    "if true; then mkdir $x; fi",
    'for x in a b; do mkdir "$x"; done',
    "case $x in a|b*) mkdir d;; esac",
]


@pytest.mark.requirement("commands.read_as_bash")
@each_of("text", HIDDEN_COMMANDS + EVALUATED_TEXTS)
def test_commands_that_bash_may_run_beyond_the_words_are_covered_by_no_rule_and_no_list(
    project: Path, text: str
) -> None:
    command = text.replace("{}", "touch x")
    site_without_sandbox, landlock = CommandSite(Engine.NONE), CommandSite(Engine.LANDLOCK, failure="x")
    for site in (None, landlock):
        assert outcome(project, command, site=site, allow=["Bash(mkdir *)"]) in ("r", "?w", "?o")
    assert outcome(project, command, allow=["Bash(mkdir *)", "Bash"]) in ("r", "w")
    assert not judge(project, command).grants
    rule = ["Bash(rm *)"]
    assert outcome(project, command, YOLO, deny=rule) == outcome(project, command, YOLO, ask=rule) == "?wn"
    assert outcome(project, command, is_sandboxed=True, deny=rule).startswith("?")
    reading_command = command.replace("mkdir", "echo")
    assert outcome(project, reading_command, site=site_without_sandbox) == "?o"
    assert outcome(project, reading_command, PLAN, site=site_without_sandbox) == "X"
    assert judge(project, "mkdir ${x@P}", allow=["Bash(mkdir *)"]).reason.startswith("bash may run more than")
    git = judge(project, command.replace("mkdir", "git commit -m"))
    assert git.view is not None
    assert not git.view.is_git or git.verdict is Verdict.ALLOW


@pytest.mark.requirement("commands.read_as_bash")
def test_words_behind_a_here_document_are_words(project: Path, home: Path) -> None:
    command = "cat <<A ../notes/todo.txt 2>/dev/null {}\nx\nA"
    assert outcome(project, command.format("b"), home=home, site=CommandSite(Engine.NONE)) == "?o+"
    assert outcome(project, command.format(".env"), deny=["Read(.env)"]) == "X"


@pytest.mark.requirement("commands.read_as_bash")
@each_of("command", HARMLESS_TEXTS)
def test_a_text_that_hides_no_command_is_judged_by_its_words_alone(project: Path, command: str) -> None:
    assert outcome(project, command, allow=["Bash(mkdir *)"]) == "w"
    assert outcome(project, command, YOLO, deny=["Bash(rm *)"]) == "wn"


def network_of(permission: Permission) -> Network:
    assert permission.view is not None
    return permission.view.network


@pytest.mark.requirement("commands.views")
def test_a_mode_has_the_loopback_that_is_its_own(project: Path) -> None:
    networks = {mode: network_of(judge(project, "ls", mode)) for mode in ApprovalMode}
    assert networks[PLAN] is Network.OWN_LOOPBACK
    assert networks[DEFAULT] is networks[AUTO_EDIT] is Network.SESSION_LOOPBACK
    assert networks[YOLO] is Network.HOST
    anonymous = CommandSite(Engine.BUBBLEWRAP, has_session=False)
    assert network_of(judge(project, "ls", site=anonymous)) is Network.OWN_LOOPBACK


@pytest.mark.requirement("sandbox.shares")
def test_only_a_command_that_changes_something_may_use_shared_kernel_resources(project: Path) -> None:
    views = [judge(project, command).view for command in ("ls", "tail -f x", "make")]
    assert [view is not None and view.may_take_shares for view in views] == [False, False, True]


@pytest.mark.requirement("commands.needs")
def test_a_command_that_needs_more_than_its_view_gives_is_asked_about(project: Path) -> None:
    assert outcome(project, "ls", needs=Needs.WRITE) == "?w"
    assert outcome(project, "make", needs=Needs.NETWORK) == "?wn"
    assert outcome(project, "ls", needs=Needs.NETWORK) == "?rn"
    assert outcome(project, "ls", PLAN, needs=Needs.NETWORK) == "X"
    assert outcome(project, "make", needs=Needs.NETWORK, is_sandboxed=True) == "?wn"
    assert outcome(project, "make", needs=Needs.NETWORK, allow=["Bash(make *)"]) == "?wn"
    assert outcome(project, "git checkout x", needs=Needs.WRITE, allow=["Bash(git checkout *)"]) == "?w"
    assert outcome(project, "git checkout x", needs=Needs.WRITE, is_sandboxed=True) == "?w"
    assert outcome(project, "pip install x", needs=Needs.NETWORK, is_sandboxed=True) == "?wn"
    assert outcome(project, "pip install x", needs=Needs.NETWORK, allow=["Bash"]) == "?wn"
    assert outcome(project, "ls", PLAN, needs=Needs.WRITE) == "X"


@pytest.mark.requirement("commands.needs")
def test_what_a_rule_or_an_answer_already_gives_is_not_asked_about_because_the_call_needs_it(project: Path) -> None:
    assert outcome(project, "pip install x", needs=Needs.NETWORK, allow=["Bash(pip install *)"]) == "wn"
    assert outcome(project, "make", needs=Needs.WRITE, allow=["Bash(make *)"]) == "w"
    assert outcome(project, "make", needs=Needs.WRITE, is_sandboxed=True) == "w"
    assert outcome(project, "ls", needs=Needs.WRITE, is_sandboxed=True) == "w"
    assert outcome(project, "curl -sI http://example.org", needs=Needs.WRITE, allow=["Bash(curl *)"]) == "wn"


@pytest.mark.requirement("commands.answers")
@each_of(("command", "needs"), [("make", Needs.WRITE), (".venv/bin/pip install x", Needs.NETWORK), ("make", None)])
def test_a_call_that_needs_what_its_words_show_is_offered_the_answers_of_one_without_needs(
    project: Path, command: str, needs: Needs | None
) -> None:
    permission, plain = judge(project, command, needs=needs), judge(project, command)
    assert plain.grants
    assert (permission.grants, permission.offers_sandboxed) == (plain.grants, plain.offers_sandboxed)


RULES = """
deny  Bash(rm *)        | rm x                                  | X
deny  Bash(rm *)        | ls; sudo -u root rm x                 | X
deny  Bash(rm *)        | ls | xargs -n 1 rm                    | X
deny  Bash(rm *)        | find . -name x -exec rm {} ;          | X
deny  Bash(rm *)        | bash -lc 'cd x; rm y'                 | X
deny  Bash(rm *)        | bash <<< 'rm y'                       | X
deny  Bash(rm *)        | /bin/rm x                             | X
deny  Bash(rm *)        | echo `rm x`                           | X
deny  Bash(rm *)        | timeout -k 3 60 env -u A B=1 rm x     | X
deny  Bash(rm *)        | env -iu A rm x                        | X
deny  Bash(rm *)        | bash -o pipefail -c 'rm x'            | X
deny  Bash(rm *)        | flock f -c 'rm x'                     | X
deny  Bash(rm *)        | bash -cx 'rm x'                       | ?w
deny  Bash(rm *)        | env BASH_ENV=f bash -c :              | ?w
deny  Bash(rm *)        | env 2>/dev/null <a rm >b x            | X
deny  Bash(git push *)  | git 2>/dev/null push origin           | X
deny  Bash(git push *)  | ls | ! git <a 2>/dev/null push origin | X
deny  Bash(rm *)        | $x y                                  | ?w
deny  Bash(rm *)        | eval 'rm x'                           | ?w
deny  Bash(git push *)  | git $verb                             | ?w
deny  Bash(git push *)  | git status                            | r
deny  Bash(rm *)        | ls                                    | r
ask   Bash(ls *)        | ls -l                                 | ?r
ask   Bash(git push)    | git push                              | ?wn
allow Bash(npm test *)  | npm test                              | w
allow Bash(npm test *)  | npm test 2>&1 | tail -3               | w
allow Bash(npm test *)  | npm test && npm run build             | ?w
allow Bash(npm test *)  | npm test; awk 'BEGIN{system("x")}'    | ?w
allow Bash(npm test *)  | npm $x                                | ?w
allow Bash(pytest *)    | pytest tests/*.py                     | w
allow Bash(pytest *)    | PYTHONPATH=src timeout 60 pytest      | w
allow Bash(pytest *)    | ./pytest                              | ?w
allow Bash(pytest *)    | sudo pytest                           | ?w
allow Bash(pytest *)    | env GIT_SSH_COMMAND=x pytest          | ?w
allow Bash(mkdir *)     | mkdir d; echo x > f                   | ?w
allow Bash(mkdir *)     | mkdir d; y=$((x))                     | ?w
allow Bash(mkdir *)     | mkdir d; y=${a[x]}                    | ?w
allow Bash(mkdir *)     | mkdir d > f                           | w
allow Bash(pip install *)| pip install x; cat f > /dev/tcp/1/9  | ?wn
allow Bash(pytest *)    | env -S 'touch x' pytest               | ?w
allow Bash(npm *)       | npm install                           | ?wn
allow Bash(npm install *)| npm install x                        | wn
allow Bash(npm install *)| npm install x && pytest              | ?wn
allow Bash              | eval x                                | w
allow Bash              | git push                              | ?wn
allow Bash(eval *)      | eval x                                | ?w
deny  Read              | ls                                    | X
ask   Read              | ls                                    | ?r
deny  Read(.env)        | cat .env                              | X
deny  Read(.env)        | cat ../notes/.env                     | X
deny  Read(.env)        | make --file=.env                      | X
ask   Read(.env)        | cat .env                              | ?r+
deny  Edit(src/**)      | echo x > src/a.py                     | X
deny  Edit(src/**)      | cd src && make > new                  | X
deny  Edit              | echo x > new                          | X
deny  Edit              | make >> src/a.py                      | X
deny  Edit              | echo x > ~/notes/todo.txt             | X
deny  write_file        | echo x > new                          | X
ask   Edit              | echo x > /etc/hosts                   | X
ask   Edit              | ls > /                                | X
ask   Edit              | ls >> ~                               | X
ask   Edit(//**)        | ls > /                                | X
ask   Edit(//etc/**)    | echo x > /etc/hosts                   | X
ask   Edit              | echo x > ~/notes/todo.txt             | ?w+
deny  Edit              | make > /dev/null 2> /tmp/log          | ?w
deny  Edit              | cat < src/a.py                        | r
ask   Edit              | echo x > new                          | ?w+
ask   Edit              | ls > /tmp/out                         | r
deny  WebFetch          | npm install                           | X
deny  WebFetch          | ls                                    | r
deny  WebFetch(x.org)   | curl y.org                            | ?rn
allow Bash(curl *)      | curl -s y.org | head -1               | wn
allow Bash(curl *)      | curl -s y.org | awk 1                 | ?rn
ask   Edit(src/**)      | touch src/new                         | ?w+
ask   Edit(src/**)      | cp x.py src                           | ?w+
ask   Edit(src/**)      | make src/a.py > /dev/null             | ?w+
ask   Edit(src/**)      | cat src/a.py                          | r
deny  Edit(src/**)      | cp src/a.py b.py                      | ?w
allow Read(~/notes/**)  | cat ../notes/todo.txt                 | r+
allow Read              | cat ../notes/todo.txt                 | ?r+
allow Edit(~/notes/**)  | cp src/a.py ../notes/todo.txt         | ?w+
"""


@pytest.mark.requirement("commands.rules")
@pytest.mark.parametrize("line", RULES.strip().splitlines())
def test_rules_hold_for_the_words_of_each_simple_command(project: Path, home: Path, line: str) -> None:
    rule_text, case = line.split("|", 1)
    command, expected = case.rsplit("|", 1)
    key, _, rule = rule_text.strip().partition(" ")
    lists = {key: [rule.strip()]}
    verdict = outcome(project, command.strip(), home=home, **lists)  # pyright: ignore[reportArgumentType]
    assert verdict == expected.strip()


@pytest.mark.requirement("commands.rules")
@each_of("rule", ["Edit(~/**)", "Read(~/**)", "Read(//**)"])
def test_consent_because_of_a_rule_does_not_make_the_home_writable(project: Path, home: Path, rule: str) -> None:
    permission = judge(project, f"chmod -R 700 {home}", home=home, ask=[rule])
    assert permission.verdict is Verdict.ASK
    assert permission.view is not None
    assert str(home) not in permission.view.writable


@pytest.mark.requirement("commands.rules")
def test_an_unknown_argument_before_the_subcommand_of_git_may_be_an_option(project: Path) -> None:
    for command in (
        'git "$X" push --force',
        'git -p "$X" push --force',
        'git "$X" . push --force',
        '"$G" -p push --force',
    ):
        assert judge(project, command, YOLO, deny=["Bash(git push --force *)"]).verdict is Verdict.ASK
    assert judge(project, 'git "$X" origin', YOLO, deny=["Bash(git push --force *)"]).verdict is Verdict.ALLOW


@pytest.mark.requirement("commands.rules")
@each_of("mode", [DEFAULT, AUTO_EDIT, YOLO])
def test_rules_about_all_edits_cover_redirections_in_every_mode_that_writes_and_consent_lifts_an_ask_rule(
    project: Path, mode: ApprovalMode
) -> None:
    permission = judge(project, "echo x > new", mode, ask=["Edit"], allow=["Edit"])
    assert (permission.verdict, permission.setting) == (Verdict.ASK, "permissions.ask")
    assert permission.view is not None
    assert permission.view.restrictions.read_only == ()
    assert judge(project, "echo x > new", mode, deny=["Edit"]).verdict is Verdict.DENY


@pytest.mark.requirement("commands.rules")
def test_no_mode_gives_a_network_that_a_rule_denies(project: Path) -> None:
    permission = judge(project, "make", YOLO, deny=["WebFetch"])
    assert permission.view is not None
    assert permission.view.network is not Network.HOST
    assert outcome(project, "npm install", YOLO, deny=["WebFetch"]) == "X"
    assert outcome(project, "npm install", YOLO, deny=["WebFetch(example.org)"]) == "?wn"


@pytest.mark.requirement("commands.views")
@each_of(
    ("command", "expected", "is_named"),
    [
        ("git push origin main", "?w+", True),
        ("cd src && git push -u origin", "?w+", True),
        ("git push encoded", "?w+", True),
        ("git push inside", "?w", False),
        ("git fetch origin", "?w", False),
        ("git ls-remote origin", "?r+", True),
        ("git push web", "?wn", False),
        ("git push", "?wn", False),
        ("git push helper", "?wn", False),
        ("git push absent", "?wn", False),
        ("git push $X", "?wn", False),
        ("git -c remote.origin.url=https://example.org/x push origin", "?wn", False),
    ],
)
def test_a_remote_that_is_a_path_is_asked_about_as_a_path_and_not_as_the_network(
    copy: Path, command: str, expected: str, *, is_named: bool
) -> None:
    (copy / ".git").mkdir(exist_ok=True)
    remotes = {
        "origin": "../bare.git",
        "encoded": f"file://localhost{copy.parent}/b%61re.git",
        "inside": "src",
        "web": "https://example.org/x.git",
        "helper": "ext::sh -c true",
    }
    settings = "".join(f'[remote "{name}"]\n\turl = {url}\n' for name, url in remotes.items())
    (copy / ".git/config").write_text(settings)
    (copy.parent / "bare.git").mkdir(exist_ok=True)
    permission = judge(copy, command)
    assert abbreviation(permission) == expected
    assert (f"it names {copy.parent}/bare.git, which is outside the workspace" in permission.reason) is is_named
    (copy / ".git/config").write_text(f'{settings}[url "ssh://host/"]\n\tinsteadOf = ..\n')
    assert outcome(copy, "git push origin main") == "?wn"


@pytest.mark.requirement("commands.views")
@each_of(
    ("command", "expected"),
    [
        ("npx tsc --noEmit", "?w"),
        ("cd web && npx tsc", "?w"),
        ("timeout 60 npm exec -- tsc -p .", "?w"),
        ("pnpm exec tsc", "?w"),
        ("npx tsc && npx absent", "?wn"),
        ("npx tsc@5", "?wn"),
        ("npx -p tsc tsc", "?wn"),
        ("npx -y create-x", "?wn"),
        ("npx $X", "?wn"),
        ("npx ../tsc", "?wn"),
        ("cd $X && npx tsc", "?wn"),
        ("cd .. && npx outside", "?wn"),
    ],
)
def test_a_program_of_an_installed_package_needs_no_network(copy: Path, command: str, expected: str) -> None:
    for folder in (copy, copy.parent):
        (folder / "node_modules/.bin").mkdir(parents=True, exist_ok=True)
    (copy / "web").mkdir(exist_ok=True)
    (copy / "node_modules/.bin/tsc").touch()
    (copy.parent / "node_modules/.bin/outside").touch()
    assert outcome(copy, command) == expected
    (copy / "node_modules/.bin/tsc").unlink()
    if command.startswith(("npx", "pnpm")):
        assert outcome(copy, command) == "?wn"


@pytest.mark.requirement("commands.rules")
def test_a_network_that_the_operator_does_not_give_is_refused(project: Path) -> None:
    site = CommandSite(Engine.BUBBLEWRAP, has_network=False)
    for mode in (DEFAULT, YOLO):
        permission = judge(project, "npm install", mode, site=site)
        assert (permission.verdict, permission.setting) == (Verdict.DENY, "shell.network")


@pytest.mark.requirement("commands.answers")
@pytest.mark.parametrize(
    ("command", "rules"),
    [
        (".venv/bin/python -m pytest -q", ["Bash(.venv/bin/python -m pytest *)"]),
        ("node web/index.js --port 1", ["Bash(node web/index.js *)"]),
        ("python3 -m http.server 8000", ["Bash(python3 -m http.server *)"]),
        ("python3 -m pip install x", ["Bash(python3 -m pip install *)"]),
        ("npm install left-pad", ["Bash(npm install *)"]),
        ("npm run build -- --x", ["Bash(npm run build *)"]),
        ("make -j2", ["Bash(make *)"]),
        ("timeout 60 pytest -q", ["Bash(pytest *)"]),
        ("bun run build", ["Bash(bun run build *)"]),
        ("touch a && rm b", ["Bash(touch *)", "Bash(rm *)"]),
        ("npm test | awk 1", ["Bash(npm test *)", "Bash(awk *)"]),
        ("git tag x; git worktree list", ["Bash(git tag *)", "Bash(git worktree list *)"]),
        ("python3 -c 'x'", []),
        ("git -C src add x", []),
        ("npm --prefix x test", []),
        ("make -j2 test", []),
        ("python3 -m pip --quiet install x", []),
        ("ls /", []),
        ("ls /srv", []),
        ("ls ..", []),
        ("curl -s x.org | awk 1", ["Bash(curl *)", "Bash(awk *)"]),
        ("sudo rm x", []),
        ("$x y", []),
        ("eval x", []),
        ("cp a .vscode/tasks.json", []),
    ],
)
def test_a_lasting_answer_covers_the_literal_first_words(project: Path, command: str, rules: list[str]) -> None:
    permission = judge(project, command)
    assert [grant.rule for grant in permission.grants] == rules
    if rules:
        assert judge(project, command, allow=rules).verdict is Verdict.ALLOW


@pytest.mark.requirement("commands.answers")
def test_a_question_names_what_may_change_files_and_not_the_readers_beside_it(project: Path) -> None:
    assert judge(project, "awk 1 a | make | ss -l").reason == "'make' is not known to be read-only"
    permission = judge(project, "npm test | awk 1", allow=["Bash(npm test *)"])
    assert permission.reason == "'awk' would run where it can change files"


@pytest.mark.requirement("commands.answers")
@each_of(
    ("command", "reason"),
    [
        ("for i in 1 2; do ls > /tmp/f$i; done; ls /tmp", "the target of its output is known only when it runs"),
        (
            "for i in 1 2; do head -c 9 /dev/zero > /tmp/f$i; done",
            "the target of its output is known only when it runs",
        ),
        ("cd $x; ls > out.txt; cat /etc/hosts", "the target of its output is known only when it runs"),
    ],
)
def test_a_question_about_output_says_so_whatever_else_is_named(project: Path, command: str, reason: str) -> None:
    assert judge(project, command).reason == reason


@pytest.mark.requirement("commands.views")
def test_files_that_a_command_creates_in_its_tmp_are_its_own_whatever_the_machine_has_there(project: Path) -> None:
    with tempfile.NamedTemporaryFile(dir="/tmp") as machine_file, tempfile.TemporaryDirectory() as scratch:
        site, name = CommandSite(Engine.BUBBLEWRAP, scratch=scratch), machine_file.name
        for command in (f"ls > {name}; wc -l {name}", f"touch {name} && cat {name}", f"ls | tee {name}; tail {name}"):
            assert outcome(project, command, site=site) == "r"
        for command in (f"cat {name}", f"cp {name} /tmp/x", f"ls > /tmp/x; cat {name}"):
            assert outcome(project, command, site=site) == "?r+"


@pytest.mark.requirement("workspace.readable")
def test_only_reading_an_own_output_needs_no_question(project: Path, home: Path) -> None:
    outputs = home / "server" / "own" / "outputs"
    other_file = outputs.parent.parent / "other" / "outputs" / "output.txt"
    for path in (outputs / "output.txt", other_file):
        path.parent.mkdir(parents=True)
        path.touch()
    file = outputs / "output.txt"
    (outputs / "link").symlink_to(other_file)
    for engine, is_boxed in ((Engine.BUBBLEWRAP, True), (Engine.LANDLOCK, False), (Engine.NONE, False)):
        site = CommandSite(engine, outputs=(str(outputs),))
        reader = judge(project, f"grep -c 99 {file}", site=site, home=home)
        assert reader.view is not None
        assert (reader.verdict, reader.view.seen, reader.view.writable) == (Verdict.ALLOW, (), ())
        assert reader.view.outputs == (str(outputs),)
        assert outcome(project, f"cat {file} {other_file}", site=site, home=home).startswith("?")
        assert outcome(project, f"cat {outputs}/link", site=site, home=home).startswith("?")
        # Nobody was asked about what is in an output, so no rule allows a command to run it.
        for command in (f"make -f {file}", f"bash {file}", f"cp x {file}", f"bash {project}/inside/output.txt"):
            rules = ["Bash(make *)", "Bash(bash *)", "Bash(cp *)"]
            inner_site = replace(site, outputs=(*site.outputs, f"{project}/inside"))
            assert outcome(project, command, site=inner_site, home=home, allow=rules)[0] == "?"
        for command in (f"cat {file}", f"grep -r x {outputs}"):
            assert outcome(project, command, site=site, home=home)[0] != "?"
            assert outcome(project, command, site=site, home=home, deny=["Read(*.txt)"])[0] in "?X"
        if is_boxed:
            copier = judge(project, f"cp {file} x", site=site, home=home, is_sandboxed=True)
            assert (abbreviation(copier), copier.view and copier.view.outputs) == ("w", (str(outputs),))
            assert outcome(project, f"echo x > {file}", site=site, home=home) == "X"


@pytest.mark.requirement("commands.answers")
def test_allowing_all_sandboxed_commands_is_offered_where_it_has_an_effect(project: Path) -> None:
    assert judge(project, "make").offers_sandboxed
    assert judge(project, "ls", needs=Needs.WRITE).offers_sandboxed
    for command, needs in (
        ("npm install", None),
        ("curl -sI http://example.org", None),
        ("make && curl -s http://example.org", None),
        ("make", Needs.NETWORK),
        ("git checkout x", Needs.WRITE),
    ):
        assert not judge(project, command, needs=needs).offers_sandboxed
        assert judge(project, command, needs=needs, is_sandboxed=True).verdict is Verdict.ASK
    assert not judge(project, "npm install", is_sandboxed=True).offers_sandboxed
    assert not judge(project, "make", ask=["Bash(make *)"]).offers_sandboxed
    assert not judge(project, "cp a .vscode/x").offers_sandboxed
    assert not judge(project, "make", site=CommandSite(Engine.NONE)).offers_sandboxed


@pytest.mark.requirement("commands.answers")
def test_a_clients_own_dialog_opens_only_ordinary_paths_outside(project: Path, home: Path) -> None:
    permission = judge(project, "cp src/a.py .vscode/tasks.json ../notes/todo.txt", home=home)
    assert permission.view is not None
    assert permission.dialog_view is not None
    todo = str(home / "notes" / "todo.txt")
    assert set(permission.view.writable) == {todo, str(project / ".vscode" / "tasks.json")}
    assert permission.dialog_view.writable == (todo,)


@pytest.mark.requirement("commands.answers")
def test_a_clients_own_dialog_gives_git_no_extra_access_and_opens_nothing_hidden(copy: Path) -> None:
    (copy / ".qwenignore").write_text(".env\n")
    for command in ("git config core.fsmonitor /tmp/x", "make", "cat .env"):
        permission = judge(copy, command)
        assert permission.dialog_view is not None
        assert (permission.dialog_view.is_git, permission.dialog_view.is_asked) == (False, False), command
        assert (
            permission.dialog_view.current_restrictions().masked
            == permission.dialog_view.restrictions.masked
            == (str(copy / ".env"),)
        ), command


@pytest.mark.requirement("commands.answers")
def test_a_question_says_what_consent_does_not_give(project: Path, home: Path) -> None:
    new_file = home / "notes" / "new"
    note = f"outside the workspace, approval covers only existing paths, so the command cannot create {new_file}"
    assert note in judge(project, "touch ../notes/new", home=home).reason
    reason = judge(project, "touch ../notes/new src", home=home).reason
    assert reason == f"'touch' is not known to be read-only; {note}"
    assert note not in judge(project, "touch /var/tmp/new src", home=home).reason, "commands have their own /var/tmp"
    assert note not in judge(project, "cd ../notes && touch new", home=home).reason, (
        "the question opens the whole folder"
    )
    assert note not in judge(project, "touch ../notes/new", home=home, site=CommandSite(Engine.NONE)).reason
    assert judge(project, "git show HEAD:src/.env", deny=["Read(.env)"]).reason.endswith("names HEAD:src/.env")
    permission = judge(project, "grep -f/etc/passwd x", home=home, site=CommandSite(Engine.NONE))
    assert permission.reason == "it names /etc/passwd, which is outside the workspace"


@pytest.mark.requirement("commands.answers")
@each_of(
    ("command", "access"),
    [
        ("curl 127.0.0.1:9; wget 127.0.0.1:9", "also with network access"),
        ("curl x.org; wget 127.0.0.1:9", "with network access"),
    ],
)
def test_an_answer_says_that_it_covers_the_network_even_if_this_command_needs_none(
    project: Path, command: str, access: str
) -> None:
    titles = {grant.rule: grant.title for grant in judge(project, command).grants}
    assert titles == {f"Bash({name} *)": f"'{name} ...' ({access})" for name in ("curl", "wget")}


@pytest.mark.requirement("commands.answers")
@each_of(
    ("command", "note"),
    [
        ("rm -rf ../notes", "it can change ~/notes, but not remove it"),
        ("git worktree remove ../notes", "it can change ~/notes, but not remove it"),
        ("mv ../notes/todo.txt src", "it can change ~/notes/todo.txt, but not remove it"),
        ("cd .. && rm -rf notes", "it can change ~/notes, but not remove it"),
        ("cd ../notes && rm todo.txt", "it can change ~/notes, but not remove it"),
        ("./cleanup ../notes", "it can change ~/notes, but not remove it"),
        ("cat ../notes/todo.txt", ""),
        ("git worktree add ../tree", ""),
        ("rm -rf src", ""),
    ],
)
def test_a_question_says_that_a_path_outside_stays(project: Path, home: Path, command: str, note: str) -> None:
    permission = judge(project, command, home=home)
    assert permission.verdict is Verdict.ASK
    assert (
        ("; " + note.replace("~", str(home)) in permission.reason) if note else ("not remove" not in permission.reason)
    )


@pytest.mark.requirement("commands.answers")
@each_of(
    ("command", "allow", "reason", "grants"),
    [
        ("echo hi > q.txt && git add q.txt", ["Bash(git add *)"], "it writes ./q.txt", ["Edit(/./q.txt)"]),
        (
            "echo hi > q.txt && make",
            [],
            "'make' is not known to be read-only; it writes ./q.txt",
            ["Bash(make *)", "Edit(/./q.txt)"],
        ),
        ("ls; make > q.txt", ["Edit(q.txt)"], "'make' is not known to be read-only", ["Bash(make *)"]),
        ("make > q.txt", [], "'make' is not known to be read-only", ["Bash(make *)"]),
        ("ls > $X; make", ["Bash(make)"], "the target of its output is known only when it runs", []),
    ],
)
def test_a_question_names_the_output_that_no_rule_allows_and_its_answer_takes_effect(
    project: Path, command: str, allow: list[str], reason: str, grants: list[str]
) -> None:
    permission = judge(project, command, allow=allow)
    assert permission.verdict is Verdict.ASK
    assert permission.reason.replace(str(project), ".") == reason
    rules = [grant.rule for grant in permission.grants]
    assert [rule.replace(str(project), ".") for rule in rules] == grants
    if rules:
        assert judge(project, command, allow=[*allow, *rules]).verdict is Verdict.ALLOW


@pytest.mark.requirement("commands.bad_input")
@each_of(
    ("command", "error"),
    [
        ('ls "', 'a quote (") is not closed'),
        ("echo 'it is", "a quote (') is not closed"),
        ("ls && ", "nothing follows &&"),
        ("ls 'a' |", "nothing follows |"),
    ],
)
def test_a_command_that_bash_cannot_parse_is_refused_with_the_reason(project: Path, command: str, error: str) -> None:
    permission = judge(project, command)
    assert (permission.verdict, permission.reason) == (Verdict.DENY, f"bash cannot run it: {error}")


@pytest.mark.requirement("commands.views")
def test_a_command_sees_existing_paths_that_a_rule_allows_reading(project: Path, home: Path) -> None:
    rules = ["Read(~/notes/**)", "Read(~/gone/**)", f"Read(/{home}/.bashrc)", "Read(~/.bash*)", "Edit(~/project)"]
    view = judge(project, "ls", home=home, allow=rules).view
    assert view is not None
    assert view.seen == (str(home / "notes"), str(home / ".bashrc"))


@pytest.mark.requirement("hidden.held")
def test_an_ask_rule_hides_a_file_in_a_folder_that_another_rule_allows_reading(project: Path, home: Path) -> None:
    key = home / "notes/key"
    key.touch()
    allow, ask = ["Read(~/notes)"], ["Read(~/notes/key)"]
    search = judge(project, "grep -r x ~/notes", home=home, allow=allow, ask=ask)
    assert search.verdict is Verdict.ALLOW
    assert search.view is not None
    assert search.view.restrictions.masked == search.view.current_restrictions().masked == (str(key),)
    key_question = judge(project, "cat ~/notes/key", home=home, allow=allow, ask=ask)
    assert key_question.verdict is Verdict.ASK
    assert key_question.view is not None
    assert key_question.view.restrictions.masked == ()
    # A question about the folder is not a question about the file.
    folder_question = judge(project, "grep -r x ~/notes", home=home, ask=ask)
    for view in (folder_question.view, folder_question.dialog_view):
        assert view is not None
        assert view.seen == (str(home / "notes"),)
        assert view.restrictions.masked == (str(key),)


@pytest.mark.requirement("hidden.held")
@each_of(
    ("command", "ask", "limited_path", "open_path"),
    [
        ("cp -r ~/.ssh out", ["Read(~/.ssh/key)"], "~/.ssh/key", ""),
        ("cd ~/repository && git add -A", ["Read(~/repository/key)"], "~/repository/key", ""),
        ("cd ~/repository && git add -A", ["Edit(~/repository/key)"], "~/repository/key", ""),
        ("touch src", ["Edit(src/**)", "Read(src/key)"], "WORKSPACE/src/key", ""),
        ("cat ~/notes/env", ["Read(.env)"], "WORKSPACE/env.txt", "~/notes/env"),
        ("cat env.txt", ["Read(.env)"], "~/notes/env", "WORKSPACE/env.txt"),
    ],
)
def test_consent_lifts_only_limits_of_files_that_the_question_names(
    copy: Path, home: Path, command: str, ask: list[str], limited_path: str, open_path: str
) -> None:
    subprocess.run(["git", "init", "-q", str(home / "repository")], check=True)
    for path in (home / ".ssh/key", home / "repository/key", copy / "src/key", home / "notes/env"):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    (copy / "env.txt").touch()
    (copy / "linked").mkdir(exist_ok=True)
    for link, target in ((copy / ".env", copy / "env.txt"), (copy / "linked/.env", home / "notes/env")):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    permission = judge(copy, command, home=home, ask=ask)
    assert permission.verdict is Verdict.ASK
    assert permission.view is not None
    limits = permission.view.restrictions
    assert limited_path.replace("WORKSPACE", str(copy)).replace("~", str(home)) in (*limits.masked, *limits.read_only)
    assert open_path.replace("WORKSPACE", str(copy)).replace("~", str(home)) not in limits.masked


@pytest.mark.requirement("hidden.held")
def test_an_ask_rule_hides_a_file_in_a_repository_that_another_rule_allows_git_to_change(
    project: Path, home: Path
) -> None:
    repository = home / "repository"
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    (repository / "key").touch()
    allow, ask = ["Edit(~/repository)"], ["Read(~/repository/key)"]
    add = judge(project, "cd ~/repository && git add -A", ApprovalMode.YOLO, home=home, allow=allow, ask=ask)
    assert add.verdict is Verdict.ALLOW
    assert add.view is not None
    assert add.view.writable == (str(repository),)
    assert add.view.restrictions.masked == (str(repository / "key"),)


@pytest.mark.requirement("cli.explain")
@each_of(
    ("command", "lists", "verdicts"),
    [
        ("make | ls | curl x.org", {}, "make ask, ls allow, curl x.org ask"),
        ("make | ls | git x", {"allow": ["Bash(make)"]}, "make allow, ls allow, git x ask"),
        ("make | ls", {"allow": ["Bash"]}, "make allow, ls allow"),
        ("make; touch x; rm y", {"deny": ["Bash(rm)"]}, "make ask, touch x ask, rm y deny"),
    ],
)
def test_each_part_of_a_command_has_a_verdict_of_its_own(
    project: Path, command: str, lists: dict[str, list[str]], verdicts: str
) -> None:
    parts = judge(project, command, **lists).parts  # pyright: ignore[reportArgumentType] - the cases have only lists of rules
    assert ", ".join(f"{part.source} {part.verdict}" for part in parts if part.source) == verdicts


@pytest.mark.requirement("cli.explain")
def test_each_part_of_a_command_has_its_reason(project: Path) -> None:
    parts = judge(project, "make | ls | git x | wc", allow=["Bash(git x)"]).parts
    reasons = [part.reason for part in parts if part.source]
    rule = "permissions.allow rule Bash(git x)"
    assert reasons == ["it is not known to be read-only", "it only reads", rule, "it only reads"]


@pytest.mark.requirement("hidden.held")
@each_of(
    ("command", "open_paths", "masked_paths"),
    [
        ("cat few/a", ["few/a"], ["few/b", "many"]),
        ("cat many/deep/a", ["many"], ["few"]),
        ("ls few", ["few"], ["many"]),
    ],
)
def test_consent_to_one_file_of_a_hidden_folder_keeps_the_rest_hidden_where_possible(
    ignoring_workspace: Path, command: str, open_paths: list[str], masked_paths: list[str]
) -> None:
    view = judge(ignoring_workspace, command).view
    assert view is not None
    assert [os.path.relpath(path, ignoring_workspace) for path in view.seen] == open_paths
    assert sorted(os.path.relpath(path, ignoring_workspace) for path in view.restrictions.masked) == masked_paths


@pytest.mark.requirement("commands.views")
def test_the_home_and_the_parents_of_the_workspace_are_never_opened_for_writing(project: Path, home: Path) -> None:
    for command in (f"rm -rf {home}", "rm -rf ..", "rm -rf ~", "rm -rf /"):
        permission = judge(project, command, home=home)
        assert permission.verdict is Verdict.ASK
        assert permission.view is not None
        assert permission.view.writable == ()


@pytest.mark.requirement("commands.without_sandbox")
@each_of(
    "command",
    [
        "cd missing; cat src/a.py",
        "cd missing; cat < src/a.py",
        "(cd missing); cat src/a.py",
        "cd src; false && cd ..; cat a.py",
        "cd missing; cd ~/project/src; cat a.py",
        "bash -c 'cd missing; cat src/a.py'",
        "bash -c 'cat < src/a.py'",
        "cd src && bash -c 'cat a.py'",
        "cd missing; bash -c 'cat src/a.py'",
        "cd src && bash <<< 'cat a.py'",
        "bash -c 'X=src; cat $X/a.py'",
        "bash <<< 'cat < src/a.py'",
        "env bash <<< 'cat src/a.py'",
        "timeout 5 sh <<END\ncat src/a.py\nEND",
        "echo 'cat src/a.py' | bash",
        "eval 'cat src/a.py'",
        "cd -; cat src/a.py",
        "cd missing; rg x",
        "cd missing; cd src; cat a.py",
        "env -C src cat a.py",
        "env -C src bash -c 'cat a.py'",
        "env -S 'cat src/a.py'",
        "echo 'cat src/a.py' | xargs env",
        "HOME=src; cat ~/a.py",
        "printf -v H'OME' src; cat ~/a.py",
        "env HOME=src bash -c 'cat ~/a.py'",
    ],
)
def test_without_a_sandbox_rules_about_files_hold_after_a_failed_cd_and_in_command_strings(
    project: Path, home: Path, command: str
) -> None:
    site, rules = CommandSite(Engine.NONE), ["Read(src/**)"]
    assert outcome(project, command, YOLO, site=site, home=home, deny=rules)[0] in "X?"
    assert outcome(project, command, YOLO, site=site, home=home, ask=rules)[0] == "?"
    assert outcome(project, "cd docs && ls .. && make -C ..", YOLO, site=site, home=home, deny=rules) == "o"
    assert outcome(project, "cd docs; make; cd ..", YOLO, site=site, home=home, deny=rules) == "o"
    assert outcome(project, "cd docs; make; cd ..; make", YOLO, site=site, home=home)[0] == "?", "if there is no docs"


@pytest.mark.requirement("commands.without_sandbox")
def test_without_a_sandbox_no_command_string_or_skipped_cd_hides_that_an_auto_run_file_is_written(
    project: Path,
) -> None:
    for command in (
        "cd .git/hooks; false && cd ../..; echo x > pre-commit",
        "cd .vscode || cd src; touch tasks.json",
        "sh -c ': > .envrc'",
    ):
        assert judge(project, command, YOLO, site=CommandSite(Engine.NONE)).no_rule_allows, command


@pytest.mark.requirement("commands.without_sandbox")
@each_of("command", ["make 2> ~/.zshenv", "make > ~/.local/bin/ls", "make; cp a ~/.zshenv", "make | tee ~/.bashrc"])
def test_without_a_sandbox_an_auto_run_file_in_the_home_is_asked_about_even_if_it_does_not_exist(
    copy: Path, command: str
) -> None:
    allow = ["Bash(make *)", "Bash(cp *)", "Bash(tee *)"]
    for engine in (Engine.NONE, Engine.LANDLOCK):
        (home := copy.parent / "home").mkdir(exist_ok=True)
        permission = judge(copy, command, YOLO, site=CommandSite(engine), home=home, allow=allow)
        assert permission.no_rule_allows, command
        assert outcome(copy, "make > ~/notes.txt", site=CommandSite(engine), home=home, allow=allow) == "o"


@pytest.mark.requirement("commands.rules")
def test_a_rule_for_edits_of_a_folder_does_not_cover_output_that_lands_elsewhere_if_a_cd_fails(project: Path) -> None:
    rules = ["Bash(npm test *)", "Edit(src/**)"]
    assert outcome(project, "cd src && ls > out && npm test", allow=rules) == "w"
    assert outcome(project, "cd src; ls > out; npm test", allow=rules) == "?w"
    assert judge(project, "cd docs && ls > out && npm test", allow=rules).grants
    assert not judge(project, "cd docs; ls > out; npm test", allow=rules).grants, "a rule would not be enough"


NONE_AND_LANDLOCK = """
ls -la                             | o   r
git status                         | o   r
cat src/a.py | head -2             | o   r
sed -n 1,3p src/a.py               | o   r
awk 1 src/a.py                     | ?o  r
cat src/*                          | ?o  r
cd src; cat a.py                   | ?o  r
(cd src); cat ../../.bashrc        | ?o+ ?o+
cat ~nobody/x                      | ?o  r
RIPGREP_CONFIG_PATH=x rg y         | ?o  r
cat $x                             | ?o  r
find . -delete                     | ?o  ?o
sort -o x src/a.py                 | ?o  r
sort 2>/dev/null -o x src/a.py     | ?o  r
cat <src/a.py ../notes/todo.txt    | ?o+ ?o+
ls 2>&- ../notes                   | ?o+ ?o+
git log --output=x                 | ?o  r
git log -p -3 --format='%h %s'     | o   r
git branch new                     | ?o  ?o
date 01010000                      | ?o  r
find . -name '*.py' -size +5k      | o   r
rg --pre=x y                       | ?o  r
rg -L y                            | ?o  r
grep -R x .                        | ?o  r
grep -rn --dereference-recursive x | ?o  r
ls -RL .                           | ?o  r
diff -r src x                      | ?o  r
wc --files0-from=x                 | ?o  r
git -c x=y status                  | ?o  r
jq -r '.a | keys' a.json           | o   r
jq -n 'import "a" as $a; $a'       | ?o  r
jq -n 'include "a"; .'             | ?o  r
jq -n '"a" | modulemeta'           | ?o  r
cat ../notes/todo.txt              | ?o+ ?o+
grep -xf../notes/todo.txt src/a.py | ?o+ ?o+
ls > /tmp/x                        | ?o  ?o
make                               | ?o  ?o
"""


@pytest.mark.requirement("commands.without_sandbox")
@pytest.mark.parametrize("line", NONE_AND_LANDLOCK.strip().splitlines())
def test_without_bubblewrap_only_confined_or_listed_commands_run_without_a_question(
    project: Path, home: Path, line: str
) -> None:
    command, _, expected = line.rpartition(" | ")
    sites = (CommandSite(Engine.NONE), CommandSite(Engine.LANDLOCK, failure="x"))
    outcomes = [outcome(project, command.strip(), home=home, site=site) for site in sites]
    assert outcomes == expected.split()


@pytest.mark.requirement("commands.without_sandbox")
def test_a_folder_behind_a_link_that_cannot_be_read_stops_no_command(project: Path) -> None:
    closed = "/proc/1/root"  # which only root can read, if anyone
    assert outcome(project, f"cd {closed}; rg x", YOLO, site=CommandSite(Engine.NONE), ask=["Read(.env)"]) == "?o"
    assert outcome(project, "ls", allow=[f"Read(/{closed}/**)"])[0] == "r"


@pytest.mark.requirement("commands.without_sandbox")
def test_where_a_sandbox_is_required_nothing_runs_without_one(project: Path) -> None:
    landlock = CommandSite(Engine.LANDLOCK, failure="x", is_required=True)
    assert outcome(project, "ls", site=landlock) == "r"
    assert outcome(project, "make", site=landlock) == "!"
    assert outcome(project, "ls", site=CommandSite(Engine.NONE, failure="x", is_required=True)) == "!"


@pytest.mark.requirement("commands.views")
def test_only_a_command_that_runs_by_a_rule_alone_gets_a_new_tmp(project: Path) -> None:
    commands = [("make", ApprovalMode.DEFAULT), ("make", YOLO), ("make; touch b", ApprovalMode.DEFAULT)]
    views = [judge(project, command, mode, allow=["Bash(make)"]).view for command, mode in commands]
    assert [view and view.has_new_tmp for view in views] == [True, False, False]


@pytest.mark.requirement("commands.views")
def test_hidden_files_keep_the_rest_of_a_surrounding_repository_from_being_shown(copy: Path) -> None:
    for name in ("objects", "refs"):
        (copy / ".git" / name).mkdir(parents=True)
    (copy / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (root := copy / "part").mkdir()
    views = [judge(root, "git status", deny=deny).view for deny in ([], ["Read(.env)"])]
    (root / ".qwenignore").write_text("a\n")
    (root / "a").touch()
    views.append(judge(root, "git status").view)
    assert [view and (view.kind, view.is_git) for view in views] == [
        (ViewKind.READING, is_git) for is_git in (True, False, False)
    ]


@pytest.mark.requirement("loopback.shared")
def test_only_identified_clients_have_a_lasting_loopback_and_not_in_plan_mode(project: Path) -> None:
    views = [
        judge(project, "ls", mode, site=CommandSite(Engine.BUBBLEWRAP, has_session=has_session)).view
        for mode in (ApprovalMode.DEFAULT, ApprovalMode.PLAN)
        for has_session in (True, False)
    ]
    lasting_loopback, new_loopback = Network.SESSION_LOOPBACK, Network.OWN_LOOPBACK
    assert [view and view.network for view in views] == [lasting_loopback, new_loopback, new_loopback, new_loopback]


@pytest.mark.requirement("commands.without_sandbox")
def test_no_rule_allows_a_command_that_would_see_the_home_folder_unmasked(copy: Path) -> None:
    (copy / "home").mkdir()
    permission = judge(copy, "make", home=copy / "home", site=CommandSite(Engine.LANDLOCK), allow=["Bash"])
    assert (permission.verdict, permission.no_rule_allows, permission.grants) == (Verdict.ASK, True, ())


@pytest.mark.requirement("commands.without_sandbox")
def test_rules_about_files_hold_for_literal_words_where_nothing_masks(project: Path) -> None:
    site = CommandSite(Engine.NONE)
    assert outcome(project, "cat .env", site=site, deny=["Read(.env)"]) == "X"
    assert outcome(project, "cat .en*", YOLO, site=site, deny=["Read(.env)"]) == "?o"
    assert outcome(project, "make", YOLO, site=site, deny=["Read(.env)"]) == "o"


@pytest.mark.requirement("commands.bad_input")
@each_of(("start", "part"), [("find . ", "x "), ("", "cd a;"), ("cd a;cd b;cd c;", "cp a /tmp/b;")])
def test_commands_with_many_words_or_folders_are_judged_in_linear_time(project: Path, start: str, part: str) -> None:
    def cost(length: int) -> float:
        started_at = process_time()
        judge(project, start + part * (length // len(part)), site=CommandSite(Engine.NONE))
        return process_time() - started_at

    assert any(cost(16_000) <= MAX_COST_RATIO * cost(1_600) for _ in range(ATTEMPTS))


@pytest.mark.requirement("commands.bad_input")
def test_a_command_that_may_name_thousands_of_paths_is_asked_about(project: Path) -> None:
    words = " ".join(f"-abc/{number}" for number in range(300))
    for site in (CommandSite(Engine.NONE), CommandSite(Engine.LANDLOCK)):
        assert outcome(project, f"pytest {words}", YOLO, site=site) == "o"
        assert outcome(project, f"cd a; cd b; pytest {words}", YOLO, site=site, allow=["Bash(pytest *)"]) == "?o"
    assert outcome(project, f"cd a; cd b; pytest {words}", YOLO) == "wn"


@pytest.mark.requirement("commands.bad_input")
def test_a_command_that_is_too_large_or_too_deep_to_parse_is_asked_about(project: Path) -> None:
    assert judge(project, "xargs " * 2_000).verdict is Verdict.ASK
    for command in (
        "x" * 100_000,
        "echo " + "$(" * 10_000 + "x" + ")" * 10_000,
        "(" * 8_000 + "touch x" + ")" * 8_000,
        "touch x|" * 2_000 + "ls",
        "<<A " * 4_000,
        "`" * 16_000,
        "sh -c '" + 'sh -c "' * 2_000 + "'",
        "ls; " * 4_000,
    ):
        assert outcome(project, command) == "?w", command[:20]
        assert outcome(project, command, PLAN) == "X", command[:20]


@pytest.mark.requirement("commands.rules")
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("npm test", "w"),
        ("cd src && npm test", "w"),
        ("npm test -- --outdir=out/tmp", "w"),
        ("npm test > /tmp/made 2>&1", "w"),
        ("npm test > /tmp/made 2>&1; tail -3 /tmp/made", "w"),
        ("npm test >> /tmp/made", "?w"),
        ("npm test > /tmp/made &", "?w"),
        ("npm test -- --outdir=/tmp/of-no-other-program", "?w"),
        ("cd /tmp && npm test", "?w"),
        ("cd ~/notes && npm test", "?w+"),
        ("cd - && npm test", "?w"),
        ("cd -- && npm test", "?w"),
        ("CDPATH=~; cd notes && npm test", "?w"),
        ("CDPATH=~ cd src && npm test", "?w"),
        ("HOME=/x; cd ~/project && npm test", "?w"),
        ("cd ~/project && npm test", "w"),
        ("cd src && npm test && cd ../docs && npm test | tail -3", "w"),
        ("cd src; (cd a); npm test", "w"),
        ("cd src && npm test; cd ..", "w"),
        ("cd src; npm test; cd -", "w"),
        ("while true; do npm test; cd -; done", "?w"),
        ("cd ~/notes && ls && cd ~/project && npm test", "w"),
        ("cd ~/notes && cd '~/project' && npm test", "?w"),
        ("cd ~/notes; false && cd ~/project; npm test", "?w"),
        ("cd ~/notes; (cd ~/project); npm test", "?w"),
        ("cd missing; cd ..; npm test", "?w"),
        ("cd src || cd ..; npm test", "?w"),
        ("cd ~/notes && cd ~/project/missing <<END || npm test\nEND", "?w"),
        ("(cd src); cd .. && npm test", "?w"),
        ("for i in 1 2; do npm test; cd src/../..; done", "?w"),
        ("for i in 1 2; do npm test; cd ~/project; done", "w"),
        ("pushd ~/notes; pushd ~/project; popd; npm test", "?w"),
        ("command cd ~/notes; npm test", "?w+"),
        ("cd ~/notes && nice cd ~/project && npm test", "?w"),
        ("pushd ~/notes && cd() { true; } && cd ~/project && npm test", "?w"),
        ("cd src; cd a; cd b; cd c; npm test", "?w"),
        ("env -C src npm test", "w"),
        ("for i in 1 2; do env -C src npm test; done", "w"),
        ("cd src && env -C ../.. ls && npm test", "?w"),
        ("cd src && env -C .. env -C .. npm test", "?w"),
        ("cd src && for i in 1 2; do env -C .. npm test; cd ~/project; done", "?w"),
        ("env -C a npm test; env -C b npm test; env -C c npm test; env -C d npm test; env -C e npm test", "w"),
        ("cd ~/notes && cd ~/project && env -C src npm test", "w"),
        ("env -C .. npm test", "?w+"),
        ("env -iC/var npm test", "?w+"),
        ("env --chdir=/var npm test", "?w+"),
        ('env --chdir "$X" npm test', "?w"),
        ('cd "$X" && npm test', "?w"),
        ("npm test --prefix /tmp", "?w"),
        ("npm test --prefix=/tmp/made", "?w"),
        ("npm test -C/tmp/made", "?w"),
    ],
)
def test_a_rule_covers_work_in_the_workspace_and_not_older_files_in_tmp(
    project: Path, home: Path, tmp_path: Path, command: str, expected: str
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "made").touch()
    site = CommandSite(Engine.BUBBLEWRAP, scratch=str(scratch))
    permission = judge(project, command, site=site, home=home, allow=["Bash(npm test *)"])
    assert abbreviation(permission) == expected
    assert permission.view is not None
    assert permission.view.has_new_tmp is (expected == "w")
    assert not permission.grants, "a rule would not be enough"


@pytest.mark.requirement("commands.rules")
@each_of(
    "command",
    [
        "make -f - < /tmp/m",
        "make -f /dev/fd/3 3<> /tmp/m",
        "cat /tmp/m | make -f -",
        "make -f - <<END\ninclude /tmp/m\nEND",
        "make -f $(echo /tmp/m)",
        "for f in /tmp/m; do make -f $f; done",
        "HOME=/tmp/x; make -f ~/Makefile",
        "PYTHONPATH=src:/tmp/x make",
        "export MAKEFILES=/t''mp/m; make",
        "make -f /proc/self/root/tmp/m",
        "make -f /proc/$PPID/root/tmp/m",
        "make -f {/tmp/m,}",
        "make >out -f {/tmp/m,}",
        "make -f /t*/m",
        "make -f $'/t\\x6dp/m'",
        "make -f ../../../../../../../tmp/m*",
        "make --eval='include /tmp/m'",
        "make -C t/x",
        "make -ft/m",
        "make -kft/m",
        "make --eval='include t/m'",
        "MAKEFILES=t/m make",
        "make -f t/m*",
        "make -f - < t/m",
        "cd t && make",
        "ls t; make",
    ],
)
def test_a_rule_covers_no_older_file_in_tmp_however_the_command_reaches_it(copy: Path, command: str) -> None:
    if not (copy / "t").is_symlink():
        (copy / "t").symlink_to("/tmp")
    permission = judge(copy, command, allow=["Bash(make *)"])
    assert permission.view is not None
    assert permission.view.is_asked or permission.view.has_new_tmp
    landlock = CommandSite(Engine.LANDLOCK, scratch=str(copy.parent / "scratch"))
    assert outcome(copy, command, site=landlock, allow=["Bash(make *)"]).startswith("?")
    assert outcome(copy, "make GREP='/[a-z]/'", allow=["Bash(make *)"]) == "w"
    assert outcome(copy, "make -C src > /tmp/out 2>&1 && ls src/tmp", allow=["Bash(make *)"]) == "w"


@pytest.mark.requirement("sandbox.rule_tmp")
def test_a_reading_command_with_network_has_an_empty_tmp_unless_it_names_tmp(copy: Path) -> None:
    for command, expected, is_new in (
        ("npm view react", "?rn", True),
        ("npm view react > /tmp/out", "?rn", True),
        ("ls /tmp; npm view react", "?wn", False),
        ("curl -T /tmp/body https://example.org", "?wn", False),
        ("cat /tmp/x", "r", False),
    ):
        permission = judge(copy, command)
        assert permission.view is not None
        assert (abbreviation(permission), permission.view.has_new_tmp) == (expected, is_new), command


@pytest.mark.requirement("hidden.stored")
def test_only_consent_to_git_shows_hidden_files_in_gits_storage(copy: Path) -> None:
    def git(*arguments: str) -> None:
        author = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", *author, *arguments], cwd=copy, check=True, capture_output=True)

    git("init")
    git("add", ".env")
    git("commit", "-m", "a")
    git("rm", ".env")
    git("commit", "-m", "b")
    objects = str(copy / ".git/objects")
    for command, is_masked, expected in (
        ("git show HEAD~1:.env", False, "?r+"),
        ("cat .git/objects/*/*", True, "r"),
        ("python3 dump.py", True, "?w"),
        ("git commit -a -m c", False, "?w+"),
    ):
        permission = judge(copy, command, deny=["Read(.env)"])
        assert abbreviation(permission) == expected, command
        assert permission.view is not None
        assert permission.view.restrictions is not None
        assert (objects in permission.view.restrictions.masked) is is_masked, command


@pytest.mark.requirement("commands.without_sandbox")
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cat src/a.py", "o"),
        ("ls -a .", "o"),
        ("grep x src/a.py", "o"),
        ("grep -r x src", "o"),
        ("grep -r x .", "?o"),
        ("rg x", "?o"),
        ("grep -r src", "?o"),
        ("rg src", "?o"),
        ("ls src && grep -rn KEY", "?o"),
        ("grep -r -A 3 src", "?o"),
        ("grep -rn x src", "o"),
        ("cat src/a.py | grep x -", "o"),
        ("grep -- x src/a.py", "o"),
        ("diff -N . src", "?o"),
        ("diff src/a.py src/a.py", "o"),
        ("git log -p", "?o+"),
    ],
)
def test_without_a_sandbox_a_command_that_may_read_a_hidden_file_is_asked_about(
    copy: Path, command: str, expected: str
) -> None:
    subprocess.run(["git", "init", "-q"], cwd=copy, check=True)
    subprocess.run(["git", "add", ".env"], cwd=copy, check=True)
    site = CommandSite(Engine.NONE)
    assert outcome(copy, command, site=site, deny=["Read(.env)"]) == expected
    assert outcome(copy, command, site=site) == "o"


@pytest.mark.requirement("commands.without_sandbox")
@pytest.mark.parametrize("command", ["grep -d recurse x .", "grep --recursi x .", "grep -nd recurse x ."])
def test_without_a_sandbox_unusual_spellings_of_a_recursive_search_are_asked_about(copy: Path, command: str) -> None:
    assert outcome(copy, command, site=CommandSite(Engine.NONE), deny=["Read(.env)"]).startswith("?o")


@pytest.mark.requirement("commands.without_sandbox")
def test_without_a_sandbox_git_is_asked_about_if_it_compares_folders_with_hidden_files(copy: Path) -> None:
    site = CommandSite(Engine.NONE)
    assert outcome(copy, "git diff . src", site=site, deny=["Read(.env)"]) == "?o"
    assert outcome(copy, "git diff main dev", site=site, deny=["Read(.env)"]) == "o"


@pytest.mark.requirement("commands.without_sandbox")
def test_without_a_sandbox_git_is_asked_about_where_it_would_go_into_a_submodule(copy: Path) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@example.invalid", *arguments], cwd=copy, check=True
        )

    site = CommandSite(Engine.NONE)
    git("init", "-q")
    git("add", ".")
    assert outcome(copy, "git status", site=site) == "o"
    git("init", "-q", "src/own")
    git("-C", "src/own", "commit", "-q", "--allow-empty", "-m", "x")
    assert outcome(copy, "git status", site=site) == "o"
    git("add", "src/own")
    assert outcome(copy, "git status", site=site) == "?o"
    git("update-index", "--force-remove", "src/own")
    assert outcome(copy, "git status", site=site) == "o"
    git("update-index", "--split-index")
    assert outcome(copy, "git status", site=site) == "?o"


@pytest.mark.requirement("commands.without_sandbox")
def test_without_a_sandbox_git_is_asked_about_where_its_hooks_cannot_be_listed_but_not_where_it_has_none(
    copy: Path,
) -> None:
    subprocess.run(["git", "init", "-q"], cwd=copy, check=True)
    hooks = copy / ".git" / "hooks"
    shutil.rmtree(hooks)
    assert outcome(copy, "git status", site=CommandSite(Engine.NONE)) == "o"
    hooks.symlink_to("x" * 300)
    assert outcome(copy, "git status", site=CommandSite(Engine.NONE)) == "?o"


@pytest.mark.requirement("commands.views")
def test_the_question_about_git_opens_its_repository_and_the_folders_that_it_creates(copy: Path, home: Path) -> None:
    (copy.parent / "notes").mkdir()
    subprocess.run(["git", "init", "-q"], cwd=copy.parent / "notes", check=True)
    cases = {
        "cd ../notes && git commit -m wip": "notes",
        "git clone https://example.org/a ../app.v2": "app.v2/",
        "git worktree add -b x ../tree": "tree/",
    }
    for command, expected in cases.items():
        view = judge(copy, command).view
        assert view is not None
        assert [os.path.relpath(path, copy.parent) + "/" * path.endswith("/") for path in view.writable] == [
            expected
        ], command
    subprocess.run(["git", "init", "-q"], cwd=copy, check=True)
    permission = judge(copy / "src", "git add a.py", home=home)
    assert permission.view is not None
    assert permission.view.writable == (str(copy),)
    assert permission.reason.endswith(f"it works in the repository {copy}, which contains the workspace")
    # A repository in the command's own `/tmp` is not this machine's.
    with tempfile.TemporaryDirectory(dir="/tmp") as real_repository:
        (Path(real_repository) / ".git").mkdir()
        scratch = copy.parent / "scratch"
        (scratch / os.path.basename(real_repository)).mkdir(parents=True)
        site = CommandSite(Engine.BUBBLEWRAP, scratch=str(scratch))
        view = judge(copy / "src", f"git -C {real_repository} add x", home=home, site=site).view
        assert view is not None
        assert view.writable == ()
    # The repository is also opened if another program changes files, if git is not the first word, or with `-C`.
    for command in ("echo x > b && git add b", "timeout 9 git add b", "git -C . add b", "sh -c 'git add b'"):
        permission = judge(copy / "src", command, home=home)
        assert permission.view is not None
        assert permission.view.writable == (str(copy),), command


@pytest.mark.requirement("commands.views")
def test_no_command_opens_the_whole_home_even_if_the_home_is_reached_by_a_link(copy: Path) -> None:
    home, link = copy.parent, copy.parent.parent / f"{copy.parent.name}-link"
    subprocess.run(["git", "init", "-q"], cwd=home, check=True)
    link.symlink_to(home)
    try:
        for command in ("git add x", "cp x ..", f"cp x {link}"):
            for name in (home, link):
                view = judge(copy, command, home=name).view
                assert view is not None
                assert view.writable == (), (command, name)
    finally:
        link.unlink()


@pytest.mark.requirement("commands.views")
def test_what_a_rule_denies_outside_the_workspace_is_not_asked_about_and_not_opened(copy: Path) -> None:
    other = copy.parent / "other"
    other.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=other, check=True)
    for rule in ("Edit", f"Edit(/{copy.parent}/**)"):
        for command in ("git -C ../other add x", "cp src/a.py ../other"):
            permission = judge(copy, command, deny=[rule])
            assert permission.view is not None
            assert (permission.view.writable, permission.view.kind) == ((), ViewKind.WORKING), (rule, command)
            assert "outside" not in permission.reason, (rule, command)


@pytest.mark.requirement("commands.views")
def test_the_question_about_git_names_and_opens_a_store_that_refers_back_to_the_worktree_or_submodule(
    copy: Path,
) -> None:
    base = copy.parent

    def git(*arguments: str) -> None:
        options = ("-c", "user.name=a", "-c", "user.email=a@example.invalid", "-c", "protocol.file.allow=always")
        subprocess.run(["git", *options, *arguments], cwd=base, check=True, capture_output=True)

    for name in ("main", "other", "outer"):
        git("init", "-q", name)
        git("-C", name, "commit", "-q", "--allow-empty", "-m", "x")
    git("-C", "main", "worktree", "add", "-q", "../tree")
    git("-C", "other", "worktree", "add", "-q", "../theirs")
    git("-C", "outer", "submodule", "add", "-q", str(base / "main"), "inner")
    for mode in (ApprovalMode.DEFAULT, ApprovalMode.YOLO):
        for root, store in (("tree", "main/.git"), ("outer/inner", "outer/.git/modules/inner")):
            options = {"home": base / "home", "is_sandboxed": True, "allow": ["Bash(git *)"]}
            permission = judge(base / root, "git add x", mode, **options)  # pyright: ignore[reportArgumentType] - a test's options
            reason = f"it works in the repository {base / store}, which is outside the workspace"
            assert (permission.verdict, permission.reason, permission.grants) == (Verdict.ASK, reason, ())
            assert permission.view is not None
            assert permission.view.writable == (str(base / store),)
            assert permission.dialog_view is not None
            assert permission.dialog_view.writable == ()
    # A yes is also about the rules that ask about the store.
    rule = f"Edit(/{base}/main/**)"
    permission = judge(base / "tree", "git add x", home=base / "home", ask=[rule])
    assert permission.reason.startswith(f"permissions.ask rule {rule}: it changes {base / 'main/.git'}; ")
    assert permission.view is not None
    assert permission.view.restrictions.read_only == ()
    # Anyone may write a `.git` file, so it opens only a store of git that refers back to this file.
    (base / "tree" / ".git").unlink()
    (base / "made").mkdir()
    (base / "made" / "gitdir").write_text(f"{base}/tree/.git\n")
    for target in ("other/.git", "other/.git/worktrees/theirs", "made", "home", "/etc"):
        (base / "tree" / ".git").write_text(f"gitdir: {base / target}\n")
        permission = judge(base / "tree", "git add x", home=base / "home")
        assert permission.view is not None
        assert permission.view.writable == (), target


@pytest.mark.requirement("commands.views")
@pytest.mark.parametrize("name", ["gitdir", "commondir"])
def test_a_path_with_a_zero_byte_in_a_file_of_git_leads_nowhere(name: str, copy: Path) -> None:
    base = copy.parent
    (base / "tree").mkdir()
    (base / "made").mkdir()
    (base / "tree" / ".git").write_text(f"gitdir: {base / 'made'}\n")
    (base / "made" / "HEAD").touch()
    (base / "made" / "gitdir").write_text(f"{base}/tree/.git\n")
    (base / "made" / name).write_text("a\0b\n")
    permission = judge(base / "tree", "git add x", home=base)
    assert permission.view is not None
    assert all(path == str(base / "made") for path in permission.view.writable)


@pytest.mark.requirement("commands.rules")
@each_of(("command", "expected"), [("./run.sh .vscode/x", "?w+"), ("./run.sh a.log", "?w+"), ("./run.sh a.py", "w")])
def test_with_an_allow_rule_a_command_that_needs_to_write_is_asked_about_if_it_names_hidden_or_auto_run_files(
    copy: Path, command: str, expected: str
) -> None:
    (copy / ".qwenignore").write_text("*.log\n")
    (copy / "a.log").touch()
    (copy / ".vscode").mkdir(exist_ok=True)
    (copy / ".vscode" / "x").touch()
    allow = ["Bash(./run.sh *)"]
    assert outcome(copy, command, allow=allow) == "w"
    for mode in (ApprovalMode.DEFAULT, ApprovalMode.AUTO_EDIT):
        assert outcome(copy, command, mode, needs=Needs.WRITE, allow=allow) == expected


@pytest.mark.requirement("commands.views")
def test_in_yolo_nothing_is_asked_because_of_agent_ignore_files(copy: Path) -> None:
    (copy / ".qwenignore").write_text("*.log\n")
    for number in range(MAX_HIDDEN + 1):
        (copy / f"{number}.log").touch()
    assert outcome(copy, "make", ApprovalMode.YOLO) == "wn"
    assert outcome(copy, "make", ApprovalMode.YOLO, deny=["Read(*.log)"]) == "X"


@pytest.mark.requirement("commands.rules")
@each_of(
    "command",
    [
        'env -S"touch X" pytest',
        'env --split-string="touch X" pytest',
        'env -vS"touch X" pytest',
        "env --uns pytest touch X",
        "env --u pytest sh -c x",
        "env A=$B pytest",
        "env -u $B pytest",
        "nice --adj pytest x",
        "nice $N pytest",
        "timeout $T pytest",
        "timeout --kill pytest 5 touch X",
        "stdbuf --out pytest touch X",
        "exec -a pytest touch X",
        "./env pytest",
        "tools/timeout 5 pytest",
        "env 1=2 pytest",
        "'pytest x/run'",
        "env 'pytest x/run'",
        'env "$X" pytest',
        'env "$A=$B" pytest',
        'env -C "$D" pytest',
        'env -u A"$B" pytest',
        'env PATH="$X" pytest',
        'env LD_PRELOAD="$X" pytest',
        "EDITOR=./x pytest",
        *(f"{name}=./x pytest" for name in RUNNING_OTHERS),
        *(f"env {name}=./x pytest" for name in RUNNING_OTHERS),
        "GIT_EDITOR=true\\;x pytest",
        "NODE_OPTIONS='--max-old-space-size=9 -r ./x' pytest",
        'env A="$@" pytest',
        'env A="${B[@]}" pytest',
        'timeout "$T" kill 5 pytest',
        'timeout "$T" 5 pytest',
        'timeout "$T" sigint 5 pytest',
        'timeout --"$T" 5 pytest',
        'timeout -"$T" 5 pytest',
        'nice "$N" pytest',
        'nohup "$X" pytest',
        '\\time -f"$X" pytest touch',
        '\\time -vo"$X" pytest touch',
        'exec -a"$X" pytest touch',
        "env A={b,c} pytest",
        "{env,pytest} touch",
    ],
)
def test_a_wrapper_with_unclear_options_is_not_covered_by_a_rule_for_the_program_after_it(
    project: Path, command: str
) -> None:
    for site in (None, CommandSite(Engine.NONE)):
        permission = judge(project, command, site=site, allow=["Bash(pytest *)", "Bash(curl *)", "Bash(kill *)"])
        assert permission.verdict is Verdict.ASK
    assert judge(project, command.replace("pytest", "ls"), site=CommandSite(Engine.NONE)).verdict is Verdict.ASK


@pytest.mark.requirement("commands.rules")
@each_of(
    "command",
    [
        "env A=1 pytest",
        "GIT_EDITOR=true PAGER=cat pytest",
        "env GIT_PAGER=cat NODE_OPTIONS=--max-old-space-size=4096 pytest",
        "MAKEFLAGS='-j8' JAVA_TOOL_OPTIONS=-Xmx2g pytest",
        "PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 pytest",
        "env -iu X pytest",
        "env -u X -- pytest",
        "nice -n 5 pytest",
        "nice -5 pytest",
        "time -p pytest",
        "timeout -k 5 10 pytest",
        "timeout --signal=KILL --foreground 5 pytest",
        "stdbuf -oL pytest",
        "nohup pytest -q",
        'env A="$B" pytest',
        'env A="x$B" C="$(cat f)" pytest',
        'timeout "$T" pytest',
        'timeout "${T:-60}"s pytest "$X"',
        'timeout -k "$K" 10 pytest',
        'timeout --signal="$S" 10 pytest',
        'nice -n "$N" pytest',
        'stdbuf -o"$X" pytest',
        '\\time -f "$X" pytest',
        '\\time -f"%e $X" pytest',
        'exec -a "$X" pytest',
    ],
)
def test_a_wrapper_with_clear_options_is_covered_by_a_rule_for_the_program_after_it(
    project: Path, command: str
) -> None:
    assert judge(project, command, allow=["Bash(pytest *)"]).verdict is Verdict.ALLOW


@pytest.mark.requirement("commands.rules")
@each_of(
    ("command", "verdict"),
    [
        *(
            (command, Verdict.DENY)
            for command in (
                "xargs --max-args 1 git push",
                "xargs --arg-file a git push",
                "stdbuf --output 0 git push",
                "ionice --class 3 git push",
                "git -C . push",
                "git -c x=y push",
                "git --no-pager push",
                "xargs -0r git push",
                "xargs -I{} git push {}",
                "env a.b=c git push",
                "env 1=2 git push",
                "sudo -u root a.b=c git push",
                "bash -Bc 'git push'",
                "rbash -c 'git push'",
                "X=; $X bash -c 'true; git push'",
                "git --config-env a=HOME push",
                "git --attr-source HEAD push",
                "B=env; $B -u X bash -c 'git push'",
                "find . -exec bash -c 'git push' ;",
                "timeout $T git push",
                "watch 'git push origin'",
                "find . $E bash -c 'git push' ;",
                "flock f --command 'git push'",
            )
        ),
        *(
            (command, Verdict.ASK)
            for command in (
                "env A=$HOME git push",
                "C=-c; bash $C 'git push'",
                "git -C . $X",
                "git --no-pager $X",
                "echo push | xargs git",
                "echo push | xargs -0 env git",
                "echo push | xargs -I{} git {}",
                "echo git | xargs -I % % push",
                "$X git push",
                "nice $N git push",
                "command $X git push",
                "exec $X git push",
                "nohup $X git push",
                "time $X git push",
                'env -iS"git push"',
                'env -vS"git push" z',
                'env --spl="git push" x',
                "sudo A=$B git push",
                "sudo --us root git push",
                "E=-exec; find . $E git push \\;",
                'E=-exec; find . "$E" git push \\;',
                "E='. -exec git push ;'; find $E -name x",
                "find push -maxdepth 0 -exec git {} \\;",
                "find git -exec {} push \\;",
                "find -L push pull -exec sh -c 'git {}' \\;",
                "{git,push}",
                "git {push,origin}",
                "true; git p{ush,} origin",
                "env {git,push}",
                "E='git push'; $E origin",
                "E='. push'; git -C $E origin",
                "E='push'; git -$X . $E",
                'git -"$X" . push',
                "git pu*",
                "git *",
                "git p{u,us}h{a,}",
                'set -- git push; "$@"',
                'set -- git push; nice "${@:1}"',
                'B=env; "$B" -u X git push',
                'sudo "$X" git push',
                'env "$X" true',
                "echo push | xargs -I{} sh -c 'git {}'",
                'flock f --command "$X"',
                "flock f --command='cd x && git push'",
                "ssh host 'cd x; git push'",
                "git rebase --exec 'git push' main",
                "git --exec-path=x commit -m 'git push'",
                "git commit -F 'git push' -c 'git push'",
                "git bisect run -m 'git push'",
                "git() { python3 -c \"$3\"; } && git commit -m 'git push'",
                "EDITOR='git push' git commit",
                "env VISUAL='git push' git commit",
                "strace -f git push",
                "uv run git push",
                'X=push; /usr/bin/g"$Y" push',
                'git "$X"="$Y" push',
                '"$G" --no-pager push',
                'g"$X"t -C . p"$Y"',
                '"$W" git -C . push',
                '"$W" -n 5 $X',
                "strace -f git --no-pager push",
                "echo git push | bash --norc",
                "echo git push | bash -o errexit",
                "echo git push | bash -euo pipefail",
                "echo git push | bash +e",
                "echo git push | bash -s x",
                "bash +e \"$C\" 'git push'",
                "watch 'git $X'",
                'watch "git $X"',
                "X='git push'; watch \"$X\"",
                'ssh host "cd x; git $X"',
            )
        ),
        *(
            (command, Verdict.ALLOW)
            for command in (
                "git status",
                "xargs -0 ls",
                "xargs -I{} cat {}",
                "xargs -n 1 git add",
                'g=git; "$g" status',
                "nice -n 5 git log",
                'git -C "$D" log',
                'git --git-dir="$D" log',
                'git log "$X"',
                "git log $X",
                "git add *",
                'find "$D" -name x',
                "find {src,tests} -name x",
                "find . -name *.py",
                "find . -name x -exec git add {} +",
                "find . -name '*.sh' -exec bash -n {} \\;",
                'timeout "$T" pytest',
                'env A="$B" pytest',
                'mv "$A" "$B"',
                '"$V/bin/python" -m x',
                '"$PY" -m "$M"',
                '"$CMD" -f "$X" out',
                "git commit -m 'stop the git push'",
                'git commit -m "add $X"',
                "git commit -m 'docs: explain git push'",
                "git commit -m 'git push is asked about'",
                "git commit -a --message 'Fix: a; git push'",
                "git commit --message='git push is asked about'",
                "git tag -a v1 -m 'git push --tags'",
                "git merge --no-ff -m 'git push' x",
                "EDITOR=true git commit --amend",
                'watch -n "$N" ls',
                "bash --version",
                "bash -euo pipefail x.sh",
                "strace -f git -C push log",
                "git stash push",
                "grep -rn 'git push' .",
                "echo git push",
            )
        ),
    ],
)
def test_a_deny_rule_of_several_words_holds_behind_wrappers_with_any_options(
    project: Path, command: str, verdict: Verdict
) -> None:
    assert judge(project, command, ApprovalMode.YOLO, deny=["Bash(git push *)"]).verdict is verdict


@pytest.mark.requirement("sandbox.git")
@each_of(
    ("command", "is_git"),
    [
        ("git push /tmp/own.git HEAD", False),
        ("git push own HEAD", False),
        ("git push /var/tmp/own.git HEAD", False),
        ("cd /tmp/own.git && git commit -m x", False),
        ("git -c core.hooksPath=/tmp/own.git commit -m x", False),
        ("git commit -F /tmp/message", True),
        ("git worktree add /tmp/new", True),
        ("cd /tmp/linked && git commit -m x", True),
        ("git push elsewhere HEAD", True),
    ],
)
def test_git_gets_no_more_access_if_it_may_run_hooks_from_a_clients_own_folders(
    copy: Path, command: str, *, is_git: bool
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        for folder in ("own.git", "linked"):
            Path(scratch, folder).mkdir()
        Path(scratch, "message").touch()
        Path(scratch, "linked/.git").write_text(f"gitdir: {copy}/.git/worktrees/linked")
        (copy / ".git/worktrees/linked").mkdir(parents=True, exist_ok=True)
        (copy / ".git/worktrees/linked/commondir").write_text("../..")
        settings = '[remote "own"]\nurl = /tmp/own.git\n[remote "elsewhere"]\nurl = https://example.org/x.git\n'
        (copy / ".git/config").write_text(settings)
        site = CommandSite(Engine.BUBBLEWRAP, scratch=scratch)
        permission = judge(copy, command, site=site)
        assert permission.verdict is Verdict.ASK
        assert permission.view is not None
        assert permission.view.is_git is is_git
        if "linked" in command:  # hooks in the worktree itself
            (copy / ".git/config").write_text("[core]\nhooksPath = hooks")
            view = judge(copy, command, site=site).view
            assert view is not None
            assert not view.is_git


@pytest.mark.requirement("commands.without_sandbox")
@pytest.mark.parametrize(
    "command",
    [
        "cd a; cd b; cat " + " ".join(f"-abc/{number}" for number in range(300)) + " .env",
        'cd() { cat "$@"; }; cd docs; cd .env',
    ],
)
def test_without_a_sandbox_a_deny_rule_about_reading_holds_for_many_paths_and_for_a_function_called_cd(
    copy: Path, command: str
) -> None:
    for engine in (Engine.NONE, Engine.LANDLOCK):
        assert outcome(copy, command, site=CommandSite(engine), deny=["Read(.env)"]) == "X"


@pytest.mark.requirement("commands.bad_input")
@pytest.mark.parametrize("command", ["cd -P > #", "cd -c > #", 'cd ~"/x"'])
def test_unusual_operands_of_cd_are_judged(copy: Path, command: str) -> None:
    assert outcome(copy, command) != "!"
