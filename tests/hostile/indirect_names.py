"""Commands that name a file in a way that is not literal, made of forms, programs and places; and everyday commands."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

READERS = [
    "cat {}",
    "head -n 1 {}",
    "sort {} /dev/null",
    "base64 -- {}",
    "dd if={}",
    "diff /dev/null {}",
    "awk 1 {}",
    "cp {} /dev/stdout",
    "tail -n +1 < {}",
]
"""Programs that show the file they are given."""

WRITERS = [
    "cp sub/x {}",
    "mv sub/y {}",
    "install sub/x {}",
    "tee {} < sub/x",
    "dd if=sub/x of={}",
    "sed -i 1d {}",
    "ln -f sub/x {}",
    "touch {}",
    "rm -f {}",
    "echo x > {}",
    "printf x >> {}",
    ": >| {}",
]
"""Programs, and the shell itself, that write or remove what they are given."""

PLACES = [
    "{}",
    "({})",
    "true && {}",
    "if true; then {}; fi",
    "while true; do {}; break; done",
    "case a in a) {};; esac",
    "{} | cat",
    "echo $({})",
    "time {}",
    "timeout 5 env {}",
]
"""Where a command may stand."""

AUTO_RUN_FILES = [".npmrc", ".envrc", ".mcp.json", ".qwenignore", ".husky/pre-commit", ".git/hooks/pre-commit"]


def forms(path: str) -> Iterator[tuple[str, str]]:
    """Ways to name a path: what stands before the command, and the word."""
    first, slash, rest = path.partition("/")
    begin, end, behind = first[:2], first[2:], slash + rest
    words = [
        f"{begin}*{behind}",
        f"{begin}{'?' * len(end)}{behind}",
        f"./{begin}[{end[0]}]{end[1:]}{behind}",
        f"{{{begin},{begin}}}{end}{behind}",
        f"$(echo {path})",
        f'"$(printf %s {begin} {end}{behind})"',
        f"`echo {path}`",
        f'"$PWD/{path}"',
    ]
    yield from (("", word) for word in words)
    settings = [
        f"X={path};",
        f"X='{path}' &&",
        f"export X={path};",
        f"X=sub/x; X={path};",
        f"if true; then X={path}; fi;",
        f"{{ X={path}; }};",
        f"A={begin}; X=$A{end}{behind};",
        f"X=sub/x; read X <<< {path};",
        f"X=sub/x; printf -v X %s {path};",
        f"X=sub/x; eval X={path};",
        f"X={begin}; X+={end}{behind};",
        f"declare X={path};",
        f"mapfile -t X <<< {path};",
        f"set -- {path}; X=$1;",
        f"X=({path});",
    ]
    yield from ((setting, word) for setting, word in zip(settings, cycle(["$X", '"$X"', "${X}"]), strict=False))
    yield f"X={path}z;", '"${X%z}"'
    yield f"X=zz{path};", "${X##*z}"
    yield f"a=(sub/x {path});", '"${a[1]}"'
    yield f"X={begin};", f"${{X}}{end}{behind}"
    yield f"X='{begin}*{behind}';", "$X"


def indirect(program: str, path: str) -> Iterator[str]:
    """A program that is given a path, in every form, each in another place and as it is."""
    for (before, word), place in zip(forms(path), cycle(PLACES[1:]), strict=False):
        yield f"{before} {program.format(word)}".strip()
        yield f"{before} {place.format(program.format(word))}".strip()
    one = program.format('"$f"')
    yield f"for f in {path}; do {one}; done"
    yield f"for f in sub/x {path[:3]}*; do {one}; done"
    yield f"echo {path} | while read f; do {one}; done"
    yield f"f={path} && until false; do {one}; break; done"
    yield f"export X={path}; bash -c '{program.format('$X')}'"
    yield f"env X={path} sh -c '{program.format('$X')}'"
    yield f"sh -c '{program.format('$1')}' _ {path}"
    yield f"f() {{ {program.format('$1')}; }}; f {path}"
    if not program.startswith(("echo", "printf", ":")) and "<" not in program and "=" not in program:
        yield f"echo {path} | xargs {program.format('').strip()}"
        yield f"echo {path} | xargs -I% {program.format('%')}"
        yield f"find . -path ./{path} -exec {program.format('{}')} \\;"
        yield f"find . -name '{path.rpartition('/')[2][:3]}*' -exec {program.format('{}')} +"


def through_folders(program: str, path: str) -> Iterator[str]:
    """A program that is given a plain name in a folder that is not literal."""
    folder, _, name = path.rpartition("/")
    first, slash, rest = folder.partition("/")
    up = "../" * (folder.count("/") + 1)
    moved = program.replace("sub/", f"{up}sub/").format(name)
    for way in (f"$(echo {folder})", f"{first[:2]}*{slash}{rest}", f"`echo {folder}`", f"{{{folder},x}}"):
        yield f"cd {way} && {moved}"
    yield f"D={folder}; cd $D; {moved}"
    yield f"for d in {folder}; do (cd $d && {moved}); done"
    yield f"HOME=$PWD/{folder}; cd; {moved}"
    yield f"HOME=$PWD/{folder}; {program.format(f'~/{name}')}"
    yield f"mkdir -p a; CDPATH={first}; cd {rest or '.'} && {moved}"


OTHER_WRITES = [
    "cp -t .g*/hooks sub/x",
    "cp --target-directory .hus* sub/x",
    "mv -t $(echo .husky) sub/y",
    "cp evil/* .",
    "cp evil/.n* sub",
    "for f in evil/*; do cp $f .; done",
    "find evil -type f -exec cp {} . \\;",
    "find evil -type f -exec cp -t . {} +",
    "find . -name '.npm*' -delete",
    "X=.npmrc; sort -o$X sub/x",
    "sort -o$(echo .npmrc) sub/x",
    'sort -uo"$(echo .npmrc)" sub/x',
    "sort --outp=$(echo .npmrc) sub/x",
    "cp -t$(echo .husky) sub/x",
    "git log --output=$(echo .npmrc)",
    "mytool .npmrc$UNSET",
    "mytool --out=\"$UNSET\".np''mrc",
    "cd ~ && cp $OLDPWD/sub/x .bas*",
    'X=.npmrc; sed -n "w $X" sub/x',
    'X=.npmrc; awk "{print > \\"$X\\"}" sub/x',
    "X=.npmrc; python3 -c \"open('$X', 'w')\"",
    "X=.npmrc; mytool $X",
    "mytool -o .g*/hooks/pre-commit",
    "mytool $(echo .npmrc)",
    "for f in .npmrc; do mytool --out=$f; done",
    "X=.npmrc mytool $X",
    "X=a & cp sub/x .git/hooks $X",
    "false && X=a; cp sub/x .git/hooks $X",
    "cp sub/x .git/hooks $X; X=a",
    "X=a | true; cp sub/x .git/hooks $X",
    "X=a; sh -c 'cp sub/x .git/hooks $X'",
    "_=a; : .npmrc; cp sub/x $_",
    "TMPDIR=$PWD/.git; T=$(mktemp -d); cp sub/x $T/../hooks/pre-commit",
    "cd .git && cp ../sub/x $(date +hooks)/pre-commit",
    "read X <<< ../.npmrc; cp sub/x build/$X",
    "tar xf a.tar -C $(echo .husky)",
    "git config -f $(echo .git/config) a b",
    "git mv sub/x $(echo .npmrc)",
    "curl -o $(echo .npmrc) https://a.example",
    "cat <<A > $(echo .npmrc)\nx\nA",
    "find .git -name zzz -o -type f -exec tee {} \\;",
    "find .git -type f -exec cp sub/x {} -name zzz \\;",
    "find -P .git -type f -exec tee {} \\;",
    "ls | parallel cp sub/x {}",
    "echo .npmrc | xargs -I % sh -c 'cp sub/x %'",
    "cp sub/x .npmr{b..d}",
    "IFS=:; X=sub/x:.npmrc; tee $X",
    "GLOBIGNORE=x; cp evil/* sub",
]
"""Single members of the class."""

WHOLE_TREES = [
    "grep -r . .",
    "grep -r . ..",
    "tar cf - .",
    "cp -r . build/all",
    "zip -r - .",
    "rg -uu .",
    "git diff",
    "git show",
    "git log -p",
    "find . -type f -exec cat {} +",
    "ls -A | xargs cat",
    "cat .* *",
    "mytool .en*",
    "mytool --in=$(echo .env)",
    "mytool {.env,x}",
    "mytool .e''nv$UNSET",
]
"""Commands that show a hidden file with many others, or by a program that no table knows."""

UNASKED_WRITES = [
    "echo x > build/out-$X.log",
    'for f in src/*.py; do cp "$f" "build/$(basename "$f").txt"; done',
    "for i in 1 2 3; do echo $i > out-$i.json; done",
    "for i in {1..5}; do touch file$i; done",
    "mkdir -p src/{a,b,c} && touch src/{a,b}/__init__.py",
    "cp a.{txt,json}",
    'OUT=build; mkdir -p "$OUT"; cp a.txt "$OUT/a.json"',
    "BUILD=build; rm -rf $BUILD/* dist",
    "rm -f *.txt src/*.pyc",
    "sed -i 's/a/b/' src/*.py",
    "mv *.txt build/",
    "find . -name '*.txt' -exec sed -i s/a/b/ {} +",
    "find src -name '*.py' -exec cp {} build \\;",
    "find . -name '*.pyc' -delete",
    "find . -name __pycache__ -exec rm -rf {} +",
    'tmp=$(mktemp -d); trap \'rm -rf "$tmp"\' EXIT; cp a.txt "$tmp/x.json"',
    'python x.py "$f" > "$f.out"',
    "make $TARGET; npm run $X; kill $PID; exit $rc",
    'git commit -m "$(cat a.txt)"; git checkout -b "x-$(date +%s)"; git checkout $BRANCH; git add $X',
    'sort "$f" | uniq -c; curl "$URL"; grep -r x "$D"',
    'tar czf "backup-$(date +%F).tgz" src; echo x > "run-$(date +%Y%m%d).log"; echo x > $$.txt',
    "tar xf a.tar; unzip a.zip; cp -r src/. build/; rsync -a src/ build/",
    "cd build && make && cd - && cp a.txt b.json",
    "D=build; cd $D && cp ../a.txt b.json",
    "P=$(pwd); cd build; cp ../a.txt $P/b.json",
    "for d in src sub; do (cd $d && touch x.json); done",
    'FILES="a.txt b.txt"; for f in $FILES; do cp $f build/$f.json; done',
    'mkdir -p "$DIR"; git rm src/*.py; git mv a.txt "b.txt"',
    "ls | xargs wc -l; find . -name '*.py' | xargs grep x",
]
"""Everyday commands that run unasked where questions are off."""

UNASKED_READS = [
    "cat src/*.py",
    "cd src && cat *.py",
    'for f in src/*.py; do head -n 1 "$f"; done',
    "F=a.txt; cat $F",
    'D=src; cat "$D/a.py"',
    "cat {a,b}.txt",
    "find src -name '*.py' -exec cat {} +",
    "wc -l *.txt",
    "diff a.txt src/a.py",
    "ls -la; ls src/*; echo *",
    "grep -rn x src",
    "rg x src build | head -n 3",
    "cd src && grep -r x .",
]
"""Everyday commands that read nothing hidden."""
