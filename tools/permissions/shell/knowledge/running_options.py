"""Which options of a command make its program do what its other words do not say: run, load or write something.

A row says of some programs, or of a sub-command (`git-log`), field by field:

- `runs`, `loads`, `writes`, `sets`, `output`: options that run what their value says, take code or settings from it,
  write what no other word names, give a setting, or are there to write a file. `a/b` are two such options; behind `~`
  come the values that are harmless, as a pattern or the `$NAME` of one. `x!` has no value, `x?` only an attached one,
  and `x*` is the beginning of options.
- `valued`: other options with a value. `flags`: long options that are not short for a listed one.
- `verbs`, `assigns`: operands that count, by name or as a pattern.
- `style`: how short options are written: `getopt`, `joined` (a value may follow the letter), `words` (one to a word).
- `does`: what the options do that load something, if that is something else.
- `ends`: what is behind the first operand is for another program. `response`: `@file` stands for options.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise

from tools.permissions.shell.knowledge.git import HARMLESS_SETTING, subcommand
from tools.permissions.shell.knowledge.program_files import table_rows
from tools.permissions.shell.syntax.words import (
    TAR_VALUED,
    Word,
    literal,
    names,
    parse,
    read_word,
    unknown,
    with_dashes,
)

# What package managers of macOS and BSD install with a `g` before the name, where no other program is called so
_GNU = names(
    "awk base32 base64 basename cat chgrp chmod chown chroot cksum cp csplit cut date dd dirname du echo egrep env"
    " expand fgrep find fmt grep groups head install ln ls make md5sum mkdir mkfifo mknod mktemp mv nice nl nohup nproc"
    " numfmt od paste printenv printf pwd readlink realpath rm rmdir sed seq sha1sum sha224sum sha256sum sha384sum"
    " sha512sum shred shuf sleep sort split stat stdbuf sum tac tail tar tee time timeout touch tr truncate tsort uname"
    " unexpand uniq unlink wc whoami xargs"
)
_ALIASES: dict[str, str] = {
    **{f"g{name}": name for name in _GNU}, **dict.fromkeys(names("mawk nawk original-awk bwk"), "awk"),
    "ssed": "sed", "gojq": "jq", "bsdtar": "tar", "ripgrep": "rg", "batcat": "bat", "netcat": "nc", "nodejs": "node",
}  # fmt: skip


def family_of(name: str) -> str:
    """The name under which the tables know a program; any other name as it is."""
    return _ALIASES.get(name, name)


@dataclass(frozen=True, slots=True)
class Options:
    kinds: dict[str, str]  # the listed options, and of which field they are
    harmless: dict[str, re.Pattern[str]]  # which of their values are, as patterns
    bare: frozenset[str]  # those of them without a value
    valued: frozenset[str]  # all options with a value that may be the next word
    others: frozenset[str]  # those of them that are not among `kinds`
    flags: frozenset[str]  # long options that are not short for a listed one
    verbs: frozenset[str]  # operands that count
    assigns: str  # operands that count, as a pattern; empty for none
    style: str  # how short options are written
    does: str  # what the options do that load something, if that is something else
    ends_at_operand: bool  # whether what is behind the first operand is for another program
    has_response: bool  # whether `@file` stands for options


_COMPILERS = r"(?:[\w.]+-)*(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+|gfortran|ld|ar|ranlib|as|nm|strip|objcopy)(?:-[\d.]+)?"
_FLAGS = r"(?:-[OWgmDUfIlL](?!plugin|use-ld|pass-plugin|[lap],)[\w./=+:-]*(?=\s|\Z)|-std=[\w+]+|-s(?=\s|\Z)|\s)*"
_PATTERNS = {
    "GIT_SETTING": re.sub(r"\s", "", HARMLESS_SETTING.pattern),
    "SSH_SETTING": (
        r"stricthostkeychecking|batchmode|connect(?:timeout|ionattempts)|serveralive\w+|tcpkeepalive|compression|user"
        r"|port|hostname|addressfamily|\w+authentication|identit(?:yfile|iesonly)|preferredauthentications|loglevel"
        r"|numberofpasswordprompts|requesttty|ciphers|macs|kexalgorithms|(?:hostkey|pubkeyaccepted)\w*|checkhostip"
        r"|updatehostkeys|visualhostkey|escapechar|forwardagent|exitonforwardfailure|clearallforwardings"
    ),
    "COMPRESSOR": r"(?:gzip|pigz|p?bzip2|lbzip2|pi?xz|xz|lz4|lzop|p?lzip|p?zstd|zstdmt|brotli)(?:\s-[T\d]\d*)*",
    "VOLUME": r"(?!.*\.\.)(?:\.|\./[\w./-]+|\w[\w.-]*)(?::/[\w./-]*)?(?::[\w,]+)?",
    "JS_CONFIG": r"(?:\./)?(?:[\w.-]*(?:config|rc|package)[\w.-]*\.(?:[cm]?[jt]s|json|ya?ml)|\.[\w-]+rc)|-.*|",
    "STRATEGY": r"ort|recursive|resolve|octopus|ours|subtree",
    "PACKAGES": r"(?:@[\w-]+/)?[\w-]+(?:,(?:@[\w-]+/)?[\w-]+)*",
    "TSCONFIG": r"(?!.*\.\.)[\w@.+-][\w@./+-]*|",
    # A place in the folder that a command is in, as far as its words say.
    "INSIDE": r"(?!.*\.\.)(?:\.|[\w@.+-][\w@./+-]*)",
    "PY_CONFIG": r"(?:\./)?(?:(?:pytest|tox|mypy)\.ini|pyproject\.toml|noxfile\.py|setup\.cfg|\.(?:pylint|coverage)rc)",
    "FLAKE_CONFIG": r"(?:\./)?(?:\.flake8|setup\.cfg|tox\.ini)",
    "PYTEST_SETTING": r"log\w*|console_output_style|xfail_strict|markers|timeout\w*|asyncio_\w+|cache_dir|addopts=",
    "PLAIN_ASSIGNMENT": r"[\w-]+=.*[$`;|&<>()\n].*",
    # A program in a variable, where it is not one that everybody has, and what the shell makes of a value.
    "MAKE_VARIABLE": (
        r"PATH[:+?!]*=.*|\.?SHELL(?:FLAGS)?[:+?!]*=.*|(?:GNU)?MAKE(?:FLAGS|FILES)?[:+?]*=.*|[^=]*=.*[$`;|&<>()\n].*|[\w.-]*!=.*"
        r"|(?:\w*_)?(?:CC|CXX|CPP|LD|AR|AS|NM|FC|RANLIB|STRIP|OBJCOPY|HOSTCC|HOSTCXX)[:+?]*="
        rf"(?!(?:c?cache\s)?{_COMPILERS}\Z).+|\w*FLAGS[:+?]*=(?!{_FLAGS}\Z).+"
        # What no list names may be run as well, if it is a path, an option or a program that runs anything.
        r"|(?!(?:\w*(?:PREFIX|prefix|DIRS?|dir|ROOT|FILES?|FLAGS)|[OTV]|(?:\w*_)?(?:OUT|OUTPUT|SRCS?|DEST|IMAGES?|TAG"
        r"|REPO|URL|PKGS?|PACKAGES?|BRANCH|TESTS?|TARGETS?|MODULES?|PATTERN))[:+?]*="
        r"|\w*ARGS[:+?]*=(?:(?:-[vqsx]+|-(?:k|run|t)\s[\w.]+)(?:\s|\Z))*\Z)[\w.-]+[:+?]*="
        r"(?:.*[/\s].*|-(?!(?:[vqsxk]+|-[a-z]+)\Z).*)"
        r"|(?!\w*(?:PYTHON|PERL|RUBY|NODE)\w*[:+?]*=)[\w.-]+[:+?]*="
        r"(?:(?:ba|da|z|k|a|fi|c|tc)?sh|env|eval|exec|source|sudo|xargs|node|perl|ruby|python|pypy|php|lua|awk)[\d.]*"
        r"|\w*(?:CMD|COMMAND|WRAPPER|LAUNCHER|EDITOR|RUNNER|EXEC|PROGRAM|INSTALL|SUDO|TOOL)[:+?]*=.+"
        r"|\w*(?:PYTHON|PERL|RUBY|NODE|JAVAC?|GO|RUSTC|CARGO|PIP|NP[MX]|SED|AWK|GIT|CMAKE|DOCKER)[:+?]*=(?![\w.+-]+\Z).+"
    ),
    "CMAKE_VARIABLE": (
        r"(?!\w*(?:COMPILER|LAUNCHER|TOOLCHAIN|PROGRAM|COMMAND(?!S\b)|PROJECT\w*INCLUDE|EXECUTABLE|LINKER\b|EMULATOR"
        r"|RULE|_AR\b|MODULE_PATH|FLAGS|CLANG_TIDY|CPPCHECK|CPPLINT|WHAT_YOU_USE))[\w.-]+(?::\w+)?|\w+=/usr/(?:local/)?bin/[\w.+-]+"
        rf"|\w*(?:COMPILER|LAUNCHER)(?::\w+)?=(?:{_COMPILERS}|s?ccache)|\w*FLAGS\w*(?::\w+)?={_FLAGS}"
    ),
    "MAVEN_PROPERTY": (
        r"(?![\w.-]*(?:exec|argline|ext\.class|jvm|agent|script|command|settings|repo|jdk|toolchain|plugin|classpath))[\w.-]+"
        r"|exec\.skip=true|exec\.mainClass=[\w.$]+"
    ),
    "RUSTC_SETTING": (
        r"opt-level|debuginfo|debug-assertions|target-(?:cpu|feature)|lto|codegen-units|panic|overflow-checks|strip"
        r"|relocation-model|metadata|extra-filename|embed-bitcode|force-frame-pointers|instrument-coverage|rpath"
    ),
}

_TABLE = r"""
...: assigns (?s:.*)
git: loads exec-path git-dir work-tree | sets c/config-env~$GIT_SETTING | style words
    | valued C namespace attr-source super-prefix shallow-file
git-*: runs upload-pack receive-pack exec extcmd upload-archive | flags text exec-path temp
    | loads ext-diff! textconv! open-files-in-pager? template | writes output
git-log git-show git-diff git-diff-tree git-diff-index git-diff-files git-stash git-reflog git-whatchanged git-blame
    git-range-diff git-shortlog git-rev-list git-annotate: loads ext-diff! textconv! filters!
    | writes output | flags text
    | valued n m S G L U M C O l since until author grep format pretty after before max-count
# Here `--text` is short for `--textconv`.
git-cat-file: loads textconv! filters!
git-format-patch: loads ext-diff! textconv! | writes o output output-directory | valued n v U S G | flags text
git-clone: runs u upload-pack | loads template | writes separate-git-dir | sets c/config~$GIT_SETTING
    | valued b j o branch depth origin jobs filter reference shallow-since
git-fetch: runs upload-pack | valued j o jobs depth
git-pull: runs upload-pack | loads s/strategy~$STRATEGY | valued j o X jobs depth
git-merge git-cherry-pick git-revert: loads s/strategy~$STRATEGY | valued m F X S C
git-push git-send-pack: runs receive-pack exec | valued o push-option repo
git-ls-remote git-fetch-pack: runs upload-pack exec | valued o sort
git-init: loads template | writes separate-git-dir | valued b initial-branch
git-archive: runs exec | writes o output | valued format prefix remote
git-rebase: runs x exec | loads s/strategy~$STRATEGY | valued X C S onto
git-config: writes f/file~\.gitmodules
git-grep: runs O? open-files-in-pager? | loads textconv! | valued e f A B C m | flags text
git-difftool git-mergetool: runs x extcmd | loads t tool | flags tool-help
git-submodule git-submodule--helper: loads template | verbs foreach
git-bisect git-hook: verbs run
git-bundle: verbs create
git-maintenance: verbs start register
git-filter-branch: writes d
    | runs tree-filter index-filter msg-filter env-filter parent-filter commit-filter tag-name-filter setup
git-send-email: runs smtp-server to-cmd cc-cmd header-cmd sendmail-cmd
git-apply: writes build-fake-ancestor unsafe-paths!
git-fast-export git-fast-import: writes export-marks export-pack-edges
git-checkout-index: writes prefix | valued f
git-read-tree: writes index-output
git-index-pack git-pack-objects git-mailsplit: writes o
git-bugreport git-diagnose: writes o output-directory
git-instaweb: runs d httpd b browser
git-svn git-cvsimport: runs authors-prog | loads config-dir
git-daemon: runs access-hook
hg: runs ssh remotecmd | loads R repository | sets config~ui\.(?:verbose|quiet|username)|diff\.\w+ | valued r m
    | flags configfile
svn svnadmin: runs diff-cmd diff3-cmd editor-cmd merge-cmd | loads config-option config-dir | valued m r F

gcc: runs wrapper | writes time* fprofile-dir* fdiagnostics-add-output* fdiagnostics-set-output* | output o MF
    aux-info serialize-diagnostics dumpdir | style joined | response
    | loads B* prefix* specs fplugin* fpass-plugin fmodule-mapper* fuse-ld~bfd|gold|lld|mold|ld ld-path load Xclang
    Xassembler mllvm
    Xlinker~-rpath|-z|[\w$/.]+|--as-needed|--no-undefined|--gc-sections Xpreprocessor iplugindir* fplugin-arg*
    Wl,*~(?!.*(?:plu|load|dyn|-I|@|-o))[\w,./=:$+-]* Wa,*~-[mWg][\w.=,-]*|--noexecstack plugin* cc1 cc1as
    Wp,*~-D\w+(?:=\w+)?|-MM?D,[\w./-]+ gcc-toolchain gcc-install-dir ccc-gcc-name config fcas-plugin-path
    | valued I L D U l x T W O f m g include isystem iquote idirafter imacros arch target std MT MQ
ld: loads plugin plugin-opt load | output o output Map out-implib | valued L l m z e r T | style joined | response
ar nm ranlib strip objdump objcopy: loads plugin | response
as: output o | valued I | style joined | response
make: assigns $MAKE_VARIABLE
    | loads f/file/makefile~(?:[\w./-]*/)?(?:GNU)?[Mm]akefile[\w.-]*|[\w./-]+\.ma?k eval E
    C/directory/I/include-dir~$INSIDE | valued j l o W jobs
ninja: loads f~[\w./-]+\.ninja C~$INSIDE | valued j k l d t w
cmake: writes graphviz trace-redirect profiling-output prefix~$INSIDE | sets D~$CMAKE_VARIABLE | style joined
    | assigns $MAKE_VARIABLE | loads f I eval C P toolchain
    E~echo|capabilities|compare_files|md5sum|sha\d+sum|true|false|cat G~[\w\s.-]+
    | valued S B A U T j t L build preset target config parallel install | flags compile-no-warning-as-error
ctest: runs test-command overwrite | loads S SP build-and-test! test-dir~$INSIDE
    | writes O output-log output-junit~$INSIDE | valued R E L j C | style words
mvn mvnw: loads s settings gs global-settings t toolchains f/file~(?:[\w-][\w./-]*/)?pom\.xml | writes l log-file
    | sets D*/define~$MAVEN_PROPERTY | valued P T | style words
ant: loads f/file/buildfile~build\.xml lib logger listener inputhandler propertyfile main | style words
bazel bazelisk: runs run_under workspace_status_command | loads bazelrc override_repository override_module
    host_jvm_args server_javabase | writes output_base output_user_root symlink_prefix profile
sbt: loads java-home sbt-jar J* | style words
scons: loads f/file~SConstruct site-dir
just: runs c command | loads f/justfile~\.?[Jj]ustfile d/working-directory~$INSIDE shell shell-arg
    | assigns $PLAIN_ASSIGNMENT
task: loads t/taskfile~[Tt]askfile\.ya?ml d/dir~$INSIDE g! global! | assigns $PLAIN_ASSIGNMENT
meson: runs wrapper | loads native-file cross-file gdb-path C~$INSIDE
gradle gradlew: loads p/project-dir~$INSIDE I init-script b/build-file~build\.gradle(?:\.kts)? c settings-file
    include-build g gradle-user-home | writes project-cache-dir | valued P x F
    | sets D/system-prop~(?![\w.-]*(?:jvm|java\.home|agent|init|user\.home))[\w.-]+
dotnet msbuild: loads logger/logger:*/l:*~(?:trx|console)(?:;[\w=.;]+)? distributedlogger:* dl:* | output o output
    | sets p:*/property:*~(?!:?\w*(?:event|exec|command|targets|props|custom|tool|path|analyzer)):?\w+
    | assigns /(?:p|property|logger|l|dl|distributedlogger):.* | style words | response
cargo: loads Z index registry lockfile-path C/manifest-path/path~$INSIDE | writes root | assigns \+.*/.*
    | output target-dir artifact-dir out-dir
    | sets config~net\.(?:offline|retry)|build\.(?:jobs|incremental)|term\.\w+|profile\.\w+\.(?:debug|opt-level|lto)
    | valued p j F | flags target out
rustc rustdoc: runs runtool | loads Z sysroot extern test-builder theme | output o out-dir
    | sets C/codegen~$RUSTC_SETTING | valued L l A W D F emit | flags test | style joined | response
go: runs exec toolexec vettool | writes w! outputdir | style words
    | loads overlay C~$INSIDE modfile~[\w./-]+\.mod gccgoflags pkgdir compiler~gc extld
    ldflags~(?:-[sw](?=\s|\Z)|-X[\s=]?[\w./-]+=[\w./:@+-]*(?=\s|\Z)|\s)*
    | output o coverprofile cpuprofile memprofile blockprofile mutexprofile trace
    | valued p run bench tags race count timeout gcflags
java: loads javaagent* agentpath* agentlib* Xbootclasspath* XX:On* XX:Flags* XX:VMOptionsFile* XX:Shared*
    | writes Xlog* Xloggc* XX:HeapDumpPath* XX:ErrorFile* | style words | response | ends
javac: loads processor processorpath processor-path processor-module-path Xplugin* J* | output d s h | style words
    | response

pytest py.test: response | writes html/alluredir/benchmark-json/benchmark-storage~$INSIDE basetemp debug log-file
    report-log json-report-file pastebin
    cov-report~[\w-]*(?::skip-covered)?|\w+:(?!/|.*\.\.)[\w./-]* | output junitxml junit-xml
    | loads p~no:[\w.-]+|xdist|pytest_cov|randomly c/config-file/cov-config~$PY_CONFIG pdbcls pdb! trace!
    rootdir/confcutdir~$INSIDE tx rsyncdir ds dc
    W/pythonwarnings~\w+(?::[^:]*(?::(?:(?:builtins|pytest)\.)?\w*(?::.*)?)?)? | sets o/override-ini~$PYTEST_SETTING
    | valued k m n r maxfail tb durations cov ignore deselect | flags co cov tb trace-config
tox nox: loads c/conf/f/noxfile~$PY_CONFIG x override | writes workdir result-json | valued e s k p
pip: runs editor | writes user! t target prefix root src log report cache-dir | output d dest w wheel-dir | flags pre
    | loads python i/index-url/extra-index-url/find-links/index~https://pypi\.org/simple/? f trusted-host proxy
    keyring-provider config-settings global-option build-option | valued r c e requirement constraint
uv uvx: loads directory/project~$INSIDE w with with-editable with-requirements from p/python~[\w.]*\d|python\d?
    config-file env-file
    allow-insecure-host index-url extra-index-url find-links index default-index
    | writes t target prefix cache-dir | output o out-dir output-file | valued extra group package
poetry: loads C/directory/P/project~$INSIDE
pdm: loads p/project~$INSIDE c config | writes g! global!
hatch: loads config data-dir
pipenv: loads python~[\w.]*\d|python\d? pypi-mirror
pyright basedpyright: loads pythonpath venvpath v p/project~$INSIDE
ruff: writes o output-file cache-dir
flake8: loads config~$FLAKE_CONFIG append-config | writes output-file
coverage: loads rcfile~$PY_CONFIG | output o d directory | valued m
bandit: output o output
pre-commit: loads c/config~\.pre-commit-config\.ya?ml | verbs try-repo
sphinx-build: loads c conf-dir | sets D~version|release|language|html_\w+
mkdocs: loads f/config-file~mkdocs\.ya?ml theme theme-dir | output d site-dir
alembic: loads c/config~alembic\.ini
gunicorn uvicorn: loads c/config~(?:\./)?gunicorn[\w.-]*\.py chdir/app-dir~$INSIDE pythonpath log-config env-file
django-admin: loads pythonpath
robot: loads listener variablefile V pythonpath P prerunmodifier prerebotmodifier parser A argumentfile
virtualenv: loads p/python~(?:python)?[\d.]* app-data extra-search-dir
invoke inv fab: loads c collection r search-root f config
conda mamba micromamba: writes p/prefix~$INSIDE
mypy: loads config-file~$PY_CONFIG python-executable custom-typeshed-dir install-types! | writes cache-dir~/dev/null
    | output junit-xml html-report txt-report xml-report cobertura-xml-report linecount-report | valued p m c
pylint: loads load-plugins init-hook rcfile~$PY_CONFIG | output output
node tsx ts-node: loads r require import loader experimental-loader env-file env-file-if-exists openssl-config
    icu-data-dir snapshot-blob build-snapshot test-reporter~spec|tap|dot|junit|lcov test-global-setup
    experimental-config-file | flags test | ends
    | writes redirect-warnings diagnostic-dir report-dir report-filename cpu-prof-dir heap-prof-dir
npm pnpm yarn: verbs explore | runs script-shell c call | writes pack-destination~$INSIDE g! global!
    location~user|project cache logs-dir modules-folder
    | loads node-options userconfig globalconfig git editor viewer browser shell init-module onload-script node-gyp
    python registry~https://registry\.(?:npmjs\.org|yarnpkg\.com)/? use-yarnrc config.* use-node-version p/package
    prefix/C/dir/cwd~$INSIDE | valued w workspace filter
package-script: loads config~$JS_CONFIG rulesdir plugin plugins resolve-plugins-relative-to setupFiles
    setupFilesAfterEnv globalSetup globalTeardown testRunner runner resolver transform snapshotSerializers watchPlugins
    testSequencer loader import require custom-formatter custom-syntax~$PACKAGES extends configPlugin use webpack-config
    rootDir/roots/root/project~$INSIDE | runs exec | flags run projects watch coverage cache
    | writes output-file cache-location~$INSIDE coverageDirectory~$INSIDE outDir~$INSIDE
npx pnpx bunx: runs c call shell | loads p package node-options registry script-shell userconfig
bun: loads r preload c config registry | valued t
prettier: loads plugin plugin-search-dir config~$JS_CONFIG | flags check write config-precedence | valued parser
babel: loads plugins/presets~$PACKAGES config-file~$JS_CONFIG root-mode | output o out-file d out-dir
webpack webpack-dev-server webpack-cli: loads c/config~$JS_CONFIG extends/e | output o output-path | flags entry env
rollup: loads c/config~$JS_CONFIG p/plugin~$PACKAGES configPlugin | output o file d dir
nodemon: runs x exec | loads r require config~$JS_CONFIG | valued w e i watch ext ignore
playwright: loads c/config~$JS_CONFIG reporter~[a-z,-]+ | writes output~$INSIDE | flags grep
cypress: loads C/config-file~$JS_CONFIG P/project~$INSIDE c config
stylelint: loads c/config~$JS_CONFIG config-basedir plugins custom-formatter custom-syntax~$PACKAGES f/formatter~[a-z]+
    | writes o output-file cache-location
tsc: loads p/project/b/build~$TSCONFIG plugins | output outDir outFile declarationDir tsBuildInfoFile
lint-staged svgo tailwindcss sequelize knex: loads c/config/knexfile~$JS_CONFIG postcss | output o output
postcss: loads u use config~$INSIDE
gulp grunt: loads f/gulpfile/gruntfile~[Gg](?:ulp|runt)file[\w.]* r require tasks base cwd~$INSIDE
typedoc jsdoc: loads plugin theme options~$JS_CONFIG c/configure~$JS_CONFIG t template
commitlint: loads x extends parser-preset g/config~$JS_CONFIG
eslint: loads c/config~$JS_CONFIG rulesdir plugin resolve-plugins-relative-to f/format~[a-z][a-z-]*
    parser~@?[\w-]+(?:/[\w-]+)? | writes o output-file cache-location cache-file | flags cache
jest: loads c/config~$JS_CONFIG setupFiles setupFilesAfterEnv globalSetup globalTeardown testRunner runner transform
    reporters~default|jest-junit|github-actions|summary testEnvironment/env~jsdom|node resolver filter
    rootDir/roots~$INSIDE snapshotSerializers testSequencer preset watchPlugins moduleNameMapper
    | writes outputFile coverageDirectory~(?:\./)?coverage cacheDirectory | valued t w | flags coverage watch cache
vitest vite: loads c/config~$JS_CONFIG dir/root/r~$INSIDE globalSetup environment~jsdom|node|happy-dom reporter~[a-z-]+
    | writes outputFile outDir~[\w-]+ | valued t
mocha: loads r require config~$JS_CONFIG R/reporter/u/ui~[a-z]+ file package~package\.json loader import n node-option
    | valued g t
rubocop: loads r require plugin c/config~\.rubocop[\w.-]*\.yml | output o out
bundle bundler: loads gemfile~Gemfile
gem: writes i install-dir n bindir | loads s source config-file
composer: loads d/working-dir~$INSIDE
phpunit phpstan psalm: loads bootstrap extension printer a autoload-file
    c/configuration/config~(?:phpunit|phpstan|psalm)\.(?:xml|neon)(?:\.dist)?
mix: loads e eval r require
cabal: loads config-file project-file~cabal\.project w with-compiler with-hc-pkg ghc-options with-gcc with-ld
stack: loads stack-yaml~stack\.yaml ghc-options with-gcc
swift swiftc: loads Xswiftc Xlinker Xcc Xfrontend load-plugin-library package-path~$INSIDE toolchain
pdflatex xelatex lualatex latex tex pdftex luatex: assigns (?s:.*\\(?:write|directlua|input|openin|openout).*)
    | loads shell-escape! enable-write18! | writes output-directory~$INSIDE | style words
latexmk: loads e r pdflatex* latex* xelatex* lualatex* | style words
gs: loads dNOSAFER! | writes sOutputFile*~(?!.*[%|]pipe)[\w%./-]* o | style words
delta: runs pager
mosh: runs ssh server | valued p
sshfs: sets o~(?!ssh_command|sftp_server|proxy|ssh_protocol).*
hugo: loads config~(?:config|hugo)\.\w+ s/source~$INSIDE themesDir | output d destination
jekyll: loads config~_config\.yml p plugins | output d destination
nix nix-shell: runs run command c | loads option override-input builders I
systemctl: loads root
apt apt-get: loads o c option config-file
dpkg: writes root admindir instdir
rspec: loads r/require~(?:\./)?(?:spec|rails)_helper O options f/format~[a-z]+ | output o out | valued e t I
rake: runs e execute p execute-print E execute-continue | loads f/rakefile~Rakefile r require R rakelibdir
perl: loads d? M?~strict|warnings|utf8|feature m? | valued I | ends
php: loads c z | sets d~memory_limit|display_errors|error_reporting|max_execution_time|xdebug\.mode | ends

tar: runs I/use-compress-program~$COMPRESSOR F to-command rsh-command rmt-command info-script new-volume-script
    | writes g listed-incremental index-file volno-file P! absolute-names! one-top-level~$INSIDE transform xform
    | flags to-stdout checkpoint
    | sets checkpoint-action~dot|\.|echo|bell|sleep|ttyout|totals|wait
    | valued f C T X b H K L N V directory file exclude
cpio: runs rsh-command | valued F D E H I O R
zip: runs unzip-command TT TT* T! | valued n x i t b P
rsync: runs e rsh rsync-path | loads daemon! config M remote-option dparam
    | writes log-file write-batch only-write-batch | valued f B T port
ssh sftp autossh: runs S | loads F I J | writes E | sets o~$SSH_SETTING | valued b B c D e i L l m O p P Q R W w X
scp: runs S D | loads F J | sets o~$SSH_SETTING | valued i P l c X
script: output log-out O log-in I log-io B log-timing T
split: runs filter | valued b l n a C t
sort: runs compress-program~$COMPRESSOR | writes o output T temporary-directory | valued k t S
shuf tree: writes o output | valued n i L P I
install: runs strip-program | valued m o g S t
find: writes fprint fprint0 fprintf fls delete! | style words
fd fdfind: runs x exec X exec-batch | valued e E t d S
sed: writes i?/in-place?~[^/]* | valued e f l
awk: loads l load i include D? debug? | writes o? pretty-print? d? dump-variables? p? profile? | valued F v f e E
yq: loads security-enable-system-operator! | writes s split-exp | valued I o p
rg: runs pre hostname-bin | valued e A B C m g t T d j r E M f pre-glob
bat ack ag: runs pager | valued l r H m
man apropos whatis: runs P pager H? html? | valued C L m M S s e p r
fzf: runs preview execute bind | valued q f n d m
expect: runs c | valued f
file: writes C! compile! | valued m f F P e
pandoc: loads F filter L lua-filter pdf-engine~(?:xe|pdf|lua)latex|tectonic|typst|weasyprint pdf-engine-opt template d
    defaults data-dir | writes extract-media log | output o output | valued f t V M

curl: loads K config engine unix-socket abstract-unix-socket
    | writes D/dump-header/trace/trace-ascii/stderr~-|%|/dev/\w+ c/cookie-jar~-|/dev/null
    libcurl etag-save hsts alt-svc w/write-out~(?!.*%output|@)[^\0]*
    | valued X H d A u m e b U Y y z C r F Q t T E x o request header data output cookie
wget: runs use-askpass | loads config | valued O i P t T U A R D I l output-document
    | writes o/output-file/a~-|/dev/\w+ append-output save-cookies warc-file rejected-log hsts-file
    | sets e/execute~robots|timeout|tries|wait|check_certificate|quiet|progress|user_?agent
nc ncat: runs e c exec sh-exec lua-exec | valued p s w i g
tcpdump: runs z | valued i r w c C G W s F
openssl: verbs engine | loads engine provider provider-path config | output out | style words
dc: loads e expression f file
gnuplot: runs e
rpm rpmspec rpmbuild: loads E eval pipe macros rcfile load D define
gpg: runs photo-viewer agent-program dirmngr-program pinentry-program keyserver-program
    | loads exec-path options homedir | output o output
ssh-keygen: loads D w | valued f t b C N P s I n V
ssh-add: loads s S

docker podman nerdctl: loads config host H context c connection url identity tlscacert hooks-dir root runroot module
    runtime conmon | ends
docker-run docker-create podman-run podman-create nerdctl-run nerdctl-create: loads v/volume~$VOLUME
    mount~type=(?:volume|tmpfs),\S* privileged! device cap-add security-opt pid volumes-from userns ipc env-file
    runtime uts cgroupns~private group-add use-api-socket! device-cgroup-rule cgroup-parent sysctl
    network/net~(?!host|container|ns:).+ | writes cidfile
    | valued p e w u n l name env workdir user | flags rm | ends
    | does opens the machine to what runs in it
docker-exec podman-exec nerdctl-exec: loads privileged! env-file | valued e w u env workdir user | ends
    | does opens the machine to what runs in it
docker-service: loads mount-add mount cap-add credential-spec
docker-context: verbs use create update import
docker-build podman-build nerdctl-build: writes iidfile metadata-file cache-to~type=(?:registry|inline|gha).*
    o/output~type=(?:docker|image|registry|cacheonly)(?:,(?!dest)[\w=./:-]+)* | valued t build-arg tag target platform
    | loads allow build-context network~default|none secret ssh f/file~$INSIDE
docker-bake: loads allow set f/file~$INSIDE
docker-save podman-save nerdctl-save docker-export podman-export: output o output
docker-volume podman-volume nerdctl-volume: loads o/opt~(?!.*(?:device|bind)).* d/driver~local
docker-compose podman-compose nerdctl-compose: loads f/file~$INSIDE project-directory~$INSIDE env-file~\.env[\w.-]*
    | valued p profile ansi parallel project-name | ends
kubectl oc: loads s server kubeconfig exec-command auth-plugin | writes profile-output output-directory cache-dir
    | valued n l o f c
helm: runs post-renderer | loads kubeconfig repository-config registry-config repo plugins | writes output-dir
    | output d destination | valued n f
terraform tofu: loads plugin-dir backend-config from-module chdir~\w[\w./-]* | output out | style words
    | writes state state-out backup generate-config-out
ansible ansible-playbook: loads vault-password-file vault-id~@prompt|\w+@prompt become-password-file M module-path
    connection-password-file playbook-dir ssh-common-args ssh-extra-args scp-extra-args sftp-extra-args
    e/extra-vars~(?!.*ansible_)\w+=\S* private-key c/connection~ssh|smart | writes tree | valued i l u t
"""


@cache
def option_tables() -> dict[str, Options]:
    """The options of each program, by its name."""
    tables: dict[str, Options] = {}
    for heads, fields in table_rows(_TABLE):
        kinds: dict[str, str] = {}
        marks: dict[str, str] = {}
        harmless: dict[str, re.Pattern[str]] = {}
        for kind, text in fields:
            for item in text.split() if kind in ("runs", "loads", "writes", "sets", "output") else ():
                written, tilde, pattern = item.partition("~")
                pattern = _PATTERNS[pattern[1:]] if pattern.startswith("$") else pattern
                for each in written.split("/"):
                    option = each[:-1] if each[-1] in "!?" else each
                    kinds[option], marks[option] = kind, each[len(option) :]
                    if tilde:
                        harmless[option] = re.compile(pattern, re.DOTALL | (re.IGNORECASE if kind == "sets" else 0))
        further = dict(fields)
        valued = names(further.get("valued", ""))
        assigns = further.get("assigns", "")
        options = Options(
            kinds,
            harmless,
            bare=frozenset(option for option, mark in marks.items() if mark == "!"),
            valued=(valued | kinds.keys()) - {option for option, mark in marks.items() if mark},
            others=valued,
            flags=names(further.get("flags", "")),
            verbs=names(further.get("verbs", "")),
            assigns=_PATTERNS[assigns[1:]] if assigns.startswith("$") else assigns,
            style=further.get("style", "getopt"),
            does=further.get("does", ""),
            ends_at_operand="ends" in further,
            has_response="response" in further,
        )
        tables.update(dict.fromkeys(heads, options))
    return tables


MAX_NAME_CHARS = 64  # what is longer is not a name that anything is known of
_COMPILER = re.compile(
    r"(?:[\w.]+-)*(?:gcc|g\+\+|cc|c\+\+|c[89]9|cpp|clang|clang\+\+|clang-cpp|clang-cl|gfortran|gdc|gnat|icx?|icpx|tcc|nvcc"
    r"|emcc|em\+\+|xgcc|xg\+\+)(?:-[\d.]+)?"
)
_LINKER = re.compile(r"(?:[\w.]+-)*(?:ld|ld\.(?:bfd|gold|lld|mold)|ld64|lld|gold|mold)(?:-[\d.]+)?")
_VERSIONED = re.compile(r"(?:(?:[\w.]+-)*(?=(?:as|ar|nm|ranlib|strip|objdump|objcopy)\Z))?([a-z][a-z._-]*?)-?[\d.]*")


@lru_cache(maxsize=512)
def option_table_of(name: str) -> str:
    """The name in the tables of a program that may be called by a version, or by what it builds for."""
    if name in option_tables() or len(name) > MAX_NAME_CHARS:
        return name
    if _COMPILER.fullmatch(name):
        return "gcc"
    if _LINKER.fullmatch(name):
        return "ld"
    versioned = _VERSIONED.fullmatch(name.removesuffix(".exe"))
    return versioned[1] if versioned else name


MAX_NESTED = 8  # programs that are named in each other's words; what is behind more counts as not known
MAX_VALUE_CHARS = 512  # what is longer is not a value that anything is known of
# Programs that run another one by its name, from a project's own or any other
RUNNERS = names(
    "npm pnpm yarn bun uv poetry pipenv pdm hatch rye conda mamba micromamba bundle mise asdf direnv devbox dotenv op"
    " aws-vault chamber doppler pipx"
)
RUN_OTHERS = names("run exec x dlx")  # words behind which a runner is told what to run
RUNNERS_ALONE = names("npx uvx bunx pnpx")
# Sub-commands of git that run what stands behind this word
_GIT_REST = {"submodule": "foreach", "bisect": "run", "for-each-repo": ""}
# Sub-commands of git that run what their operands, or those who call, say
_GIT_RUNNING = names(
    "filter-branch for-each-repo hook daemon instaweb shell remote-ext remote-fd merge-index web--browse cvsserver p4"
    " http-backend upload-archive upload-pack receive-pack"
)
# What these are given behind `--` is for another program
_PASSED_ON = {
    ("cargo", "rustc"): "rustc", ("cargo", "rustdoc"): "rustdoc", ("cargo", "clippy"): "rustc",
    ("gh", "clone"): "git clone",
}  # fmt: skip
# Programs that are told by `-m`, as Python is, which module they run
_RUNNING_MODULES = names("coverage kernprof memray scalene viztracer pyinstrument debugpy cProfile profile trace pdb")
_JS_RUNNERS = names("npm pnpm yarn bun")
_NAMED_SCRIPTS = names("run run-script rum urn")
_SCRIPT_VERBS = _NAMED_SCRIPTS | names("test t tst start stop restart")
# What package managers do themselves; any other word is what a script, or an installed program, is called
_JS_VERBS = names(
    "add audit autoclean bin bugs cache check ci config constraints create dedupe deploy deprecate diff dist-tag docs"
    " doctor edit explain explore fetch fund get global help i import info init install install-test link list"
    " licenses login logout ls node npm org outdated owner pack patch patch-commit ping pkg plugin pm policies profile"
    " prune publish rebuild remove repo rm root sbom search self-update set setup stage store team token uninstall"
    " unlink unplug up update upgrade version versions view whoami why workspaces"
)
_HERE = re.compile(r"\$(?:PWD\b|\{PWD\}|\(pwd\))")
_PLAIN_DATE = re.compile(r"\$\(date \+(?:%[FYmdHMSsj]|[\w-])+\)")
MODULE_OPTION = re.compile(r"-[bBdEhiIOPqRsSuvx]*m(.*)", re.DOTALL)  # the option of Python that names a module
_DOES = {
    "runs": "{} makes {} run a program",
    "sets": "{} can make {} run a program",
    "loads": "{} makes {} take code or settings from elsewhere",
    "writes": "{} makes {} write or remove files that its other words do not name",
}


@dataclass(frozen=True, slots=True)
class OptionUse:
    """An option that does what the other words of its command do not say."""

    name: str  # how it is named in the command: `--exec`, `core.sshCommand`
    word: str  # the whole word that names it
    reason: str

    def is_named_in(self, pattern: str) -> bool:
        """Whether the words of a rule name it: by the whole word, or by a beginning with a star behind it."""
        if f" {self.word} " in f" {pattern} ":
            return True
        beginnings = (word.rstrip("*") for word in pattern.split() if word.endswith("*"))
        return any(beginning.startswith(self.name) and self.word.startswith(beginning) for beginning in beginnings)


@dataclass(frozen=True, slots=True)
class _Given:
    """A listed option in a command: what it is called in the table, how it is written, and with which value."""

    option: str
    written: str
    word: Word
    value: Word | None
    is_attached: bool


def options_used(name: str, arguments: Sequence[Word], text: str) -> list[OptionUse]:
    """The options that are to be asked about."""
    uses = [use for label, table, words in _programs(name, arguments) for use in _uses(label, table, words, text)]
    if name == "git":
        for word in arguments:
            if transport := re.match(r"[^:]*\b(?:ext|fd)::", word.text):
                does = f"{transport[0][:80]} makes git run what the address names"
                uses.append(OptionUse(transport[0], word.text, does))
        found = subcommand(arguments)
        if found is None and (word := next((word for word in arguments if not word.is_literal), None)) is not None:
            does = f"it is not known what {word.source[:80]} tells git to do"
            uses.append(OptionUse(word.source, word.source, does))
        elif found is not None and found[0] in _GIT_RUNNING:
            uses.append(OptionUse(found[0], found[0], f"git {found[0]} runs what it is told to"))
    if name in ("tar", "cpio", "mt"):
        # An archive on another host is reached by `rsh`; a colon behind a slash is a part of a name.
        words = with_dashes(arguments, TAR_VALUED) if name == "tar" else arguments
        archives = names("-f --file -F -O -I") if name == "cpio" else names("-f --file")
        for option, value in parse(words, (*TAR_VALUED, *"FOI", "file")).options:
            if option not in archives or value is None:
                continue
            known = _PLAIN_DATE.sub("x", value.source)
            is_open = not value.is_literal and (":" in text or "$(" in known or "`" in known)
            if is_open or (value.is_literal and ":" in value.text.partition("/")[0]):
                does = f"{name} reaches another host by a program for {value.source[:80]}"
                uses.append(OptionUse(option, value.text, does))
    return list(dict.fromkeys(uses))


def texts_of_options(name: str, arguments: Sequence[Word]) -> list[Word]:
    """The command lines that options of a program name."""
    texts: list[Word] = []
    for _, table, words in _programs(name, arguments):
        for given in _given(table, words):
            kind, value = table.kinds[given.option], given.value
            if value is not None and (kind == "runs" or (kind == "sets" and not value.is_literal)):
                texts.append(value)
            elif value is not None and kind == "sets" and not _is_harmless(table, given):
                texts.append(literal(re.split(r"[=\s]", value.text, maxsplit=1)[-1].lstrip().removeprefix("!")))
    verb, rest = (subcommand(arguments) if name == "git" else None) or ("", ())
    if verb in _GIT_REST:
        place = next((at for at, word in enumerate(rest, start=1) if word.text == _GIT_REST[verb]), len(rest))
        words = rest[place:]
        while words and words[0].text.startswith("-"):
            words = words[1:]
        if words:
            text = " ".join(word.text for word in words)
            texts.append(literal(text) if all(word.is_literal for word in words) else unknown(text))
    if verb == "config":
        texts += (literal(word.text[1:]) for word in rest if word.text.startswith("!"))
    return list(dict.fromkeys(texts))


def outputs_of_options(name: str, arguments: Sequence[Word]) -> Iterator[Word | None]:
    """The files that options of a program say it is there to write."""
    for _, table, words in _programs(name, arguments):
        yield from (given.value for given in _given(table, words) if table.kinds[given.option] == "output")


# Which programs a command line is for


def _programs(name: str, arguments: Sequence[Word], depth: int = 0) -> Iterator[tuple[str, Options, Sequence[Word]]]:
    """Each program that a command line is for, by name, with its row of the table and its words."""
    tables = option_tables()
    if depth > MAX_NESTED:
        yield name, tables["..."], arguments[:1]
        return
    if name == "git":
        verb, rest = subcommand(arguments) or ("", ())
        yield "git", tables["git"], arguments[: len(arguments) - len(rest) - bool(verb)]
        if (table := tables.get(f"git-{verb}")) is not None:
            yield f"git {verb}", table, rest
        # What is not literal counts by the table of the sub-command alone.
        words = [word for word in rest if word.is_literal or word.prefix.startswith("--")]
        yield f"git {verb}", tables["git-*"], words
        return
    if name in ("docker-compose", "podman-compose"):
        yield from _programs(name.removesuffix("-compose"), [literal("compose"), *arguments], depth + 1)
        return
    family = option_table_of(name)
    table = tables.get(family)
    own = arguments
    if (found := _inner_program(family, table, arguments)) is not None:
        inner, own, rest = found
        yield from _programs(inner, rest, depth + 1)
    if table is not None:
        yield name, table, with_dashes(arguments, TAR_VALUED) if family == "tar" else _own_words(table, own)
    if f"{family}-run" in tables:
        # Each word that may say what is done makes something of the words behind it.
        verbs = [at for at, word in enumerate(arguments) if not word.is_literal or f"{family}-{word.text}" in tables]
        for at in verbs[:MAX_NESTED]:
            verb = arguments[at].text if arguments[at].is_literal else "run"
            table = tables[f"{family}-{verb}"]
            yield f"{name} {verb}", table, _own_words(table, arguments[at + 1 :])
            if not arguments[at].is_literal:
                break
        else:
            if len(verbs) > MAX_NESTED:
                yield name, tables["..."], arguments[:1]
    texts = [word.text for word in arguments]
    for verb in dict.fromkeys(texts):
        if (to := _PASSED_ON.get((family, verb))) is not None and "--" in texts:
            inner, *first = to.split()
            yield from _programs(inner, [*map(literal, first), *arguments[texts.index("--") + 1 :]], depth + 1)


def _own_words(table: Options, arguments: Sequence[Word]) -> Sequence[Word]:
    """The words up to the first that is an operand for certain, where all behind that are for another program."""
    is_after_option = False
    for at, word in enumerate(arguments) if table.ends_at_operand else ():
        is_operand = not word.text.startswith(("-", "@") if table.has_response else "-")
        if word.is_literal and is_operand and not is_after_option:
            return arguments[:at]
        is_flag = "=" in word.text or word.text.lstrip("-") in table.flags
        is_after_option = word.may_be_option and not (word.is_literal and is_flag)
    return arguments


def _inner_program(
    family: str, table: Options | None, arguments: Sequence[Word]
) -> tuple[str, Sequence[Word], Sequence[Word]] | None:
    """The program that another one is told to run: its name, the words before it, and those behind it."""

    def place_of_operand(place: int) -> int:
        """Where the first word is, from some place on, that is neither an option nor the value of one."""
        while place < len(arguments) and arguments[place].text.startswith("-"):
            place += 2 if table is not None and arguments[place].text.lstrip("-") in table.valued else 1
        return place

    if is_python(family) or family in _RUNNING_MODULES:
        found = next(modules_run(arguments), None)
        return None if found is None else (found[0], arguments[: found[1]], arguments[found[1] :])
    place, is_script = 0, False
    if family in _JS_RUNNERS:
        place = place_of_operand(0)
        if place < len(arguments) and arguments[place].text == "workspace":
            place = place_of_operand(place + 2)
        verb = arguments[place].text if place < len(arguments) else ""
        is_script = verb in _NAMED_SCRIPTS
        if verb in RUN_OTHERS - _SCRIPT_VERBS or is_script:
            place += 1
        elif verb in _SCRIPT_VERBS or verb not in _JS_VERBS:
            is_script = True
        else:
            return None
    elif family in RUNNERS or family == "composer":
        place = next((at for at, word in enumerate(arguments, start=1) if word.text in RUN_OTHERS), len(arguments))
    elif family not in RUNNERS_ALONE:
        return None
    place = place_of_operand(place)
    if place >= len(arguments) or not arguments[place].is_literal:
        return None
    name = arguments[place].text.rpartition("/")[2].partition("@")[0]
    own, rest = arguments[:place], arguments[place + 1 :]
    if family in _JS_RUNNERS or family == "composer":
        # They take away the `--` before what is for the program that they run.
        end = next((at for at, word in enumerate(rest) if word.text == "--"), len(rest))
        # npm takes what stands before that for itself, wherever it stands.
        own = arguments if family == "npm" else own
        rest = [*rest[:end], *rest[end + 1 :]]
    return "package-script" if is_script and name not in option_tables() else name, own, rest


def is_python(name: str) -> bool:
    """Whether a program is Python, by its name without a folder."""
    return re.fullmatch(r"(?:python|pypy)[\d.]*t?w?(?:\.exe)?", name, re.IGNORECASE) is not None


def modules_run(arguments: Sequence[Word]) -> Iterator[tuple[str, int]]:
    """The modules that Python may be told to run by `-m`, and from which of its words on these are for the module."""
    for at, (word, after) in enumerate(pairwise((*arguments, literal(""))), start=1):
        if (option := MODULE_OPTION.fullmatch(word.text)) is not None:
            yield option[1] or after.text, at if option[1] else at + 1


# Which options it is given, and what they do


def _given(table: Options, arguments: Sequence[Word]) -> Iterator[_Given]:
    """The listed options, wherever they stand; also where a word may be the value of another: better one too many."""
    for at, word in enumerate(arguments):
        if word.text == "--" and not (at and arguments[at - 1].text.startswith("-")):
            return
        text = word.text if word.is_literal else word.prefix
        if not text.startswith("-") or text in ("-", "--"):
            continue
        following = arguments[at + 1] if at + 1 < len(arguments) else None
        written, equals, value = text.partition("=")
        bare = written.lstrip("-")
        found = [bare] if len(bare) > 1 and bare in table.kinds else []
        if not found and text.startswith("--") and bare and bare not in table.flags | table.others:
            found = [option for option in table.kinds if len(option) > 1 and option.startswith(bare)]
        for option in found:
            taken = following if option in table.valued else None
            yield _Given(option, written, word, _attached(word, value) if equals else taken, bool(equals))
        if found:
            continue
        stem = text.lstrip("-")
        beginning = next((each for each in table.kinds if each.endswith("*") and stem.startswith(each[:-1])), None)
        if beginning is not None:
            head = text[: len(text) - len(stem) + len(beginning) - 1]
            value = text[len(head) :].removeprefix("=")
            yield _Given(beginning, head, word, _attached(word, value) if value else following, bool(value))
            continue
        # Short options in one word, each with what is behind it in the word, or with the next word.
        for place, letter in enumerate(text[1:] if not text.startswith("--") else "", start=1):
            rest = text[place + 1 :].removeprefix("=")
            if letter in table.kinds and not (table.style == "words" and (rest or place > 1)):
                is_attached = bool(rest) or not word.is_literal
                taken = following if letter in table.valued else None
                yield _Given(
                    letter, text[: place + 1], word, _attached(word, rest) if is_attached else taken, is_attached
                )
                if letter not in table.bare:
                    break
            if letter in table.others or table.style != "getopt":
                break


def _attached(word: Word, value: str) -> Word:
    """The value in a word; not a literal one if the word is not."""
    return literal(value) if word.is_literal else unknown(word.source.partition("=")[2] or word.source)


def _uses(label: str, table: Options, arguments: Sequence[Word], text: str) -> Iterator[OptionUse]:
    for given in _given(table, arguments):
        kind, value, written = table.kinds[given.option], given.value, given.written
        if kind == "output" or _is_harmless(table, given):
            continue
        if kind != "sets" or value is None:
            does = f"{written} {table.does}" if kind == "loads" and table.does else _DOES[kind].format(written, label)
            yield OptionUse(written, given.word.text, does)
            continue
        key = re.split(r"[=\s]", value.text, maxsplit=1)[0]
        does = _DOES[kind].format(f"{written} {key[:80]}", label)
        if given.is_attached:
            before = given.word.text.partition(key)[0] if key else f"{written}="
            yield OptionUse(before + key, given.word.text, does)
        else:
            yield OptionUse(key, value.text, does)
    for word in arguments:
        if word.text in table.verbs:
            yield OptionUse(word.text, word.text, f"{label} {word.text} runs or writes what the words behind it say")
        elif table.assigns and not word.text.startswith("-") and re.fullmatch(table.assigns, word.text, re.DOTALL):
            name = re.split(r"[:+?!]*[=:]", word.text, maxsplit=1)[0]
            yield OptionUse(name, word.text, f"{name[:80]} can make {label} run a program")
        elif table.has_response and word.text.startswith("@"):
            yield OptionUse(word.text, word.text, f"{word.text[:80]} gives {label} the options in a file")
    if all(kind == "output" for kind in table.kinds.values()):
        return
    # Words that may turn out to be listed options.
    previous = ""
    verb = next((word for word in arguments if not word.text.startswith("-")), None) if table.verbs else None
    for word in arguments:
        if word.text == "--" and not previous.startswith("-"):
            return
        is_value = previous.startswith("-") and previous.lstrip("-") in table.valued and not word.may_split
        if not word.is_literal and (word is verb or (not is_value and _may_be_options(word, table.valued, text))):
            source = word.source
            yield OptionUse(source, source, f"it is not known which options {source[:80]} gives {label}")
        previous = word.text


def _is_harmless(table: Options, given: _Given) -> bool:
    harmless, value = table.harmless.get(given.option), given.value
    if harmless is None or value is None:
        return harmless is not None and harmless.fullmatch("") is not None
    if not value.is_literal:
        # The folder that a command is in is inside the workspace, whatever it is called.
        here = _HERE.sub(".", value.source)
        value = read_word(here) if read_word(here).is_literal else read_word(here.strip('"'))
    if not value.is_literal or len(value.text) > MAX_VALUE_CHARS:
        return False
    key = re.split(r"[=\s]", value.text, maxsplit=1)[0] if table.kinds[given.option] == "sets" else value.text
    return (harmless.fullmatch(key) or harmless.fullmatch(value.text)) is not None


# What a word may turn out to be, as far as the text around it tells what its variables hold

MAX_TEXT_CHARS = 8_192  # in a longer text it is not looked for what a variable holds
_PLAIN_VALUE = r"(?:[\w./:%^][\w./:@%+,^-]*|\"[\w./:%^][\w./:@%+,^-]*\"|'[\w./:%^][\w./:@%+,^-]*'|)(?=[\s;&|)]|\Z)"
_PLAIN_LIST = r"(?:[ \t]+[\w./:%^*?][\w./:@%+,^*?-]*)*[ \t]*(?=[;\n]|\Z)"
_PLAIN_OUTPUT = re.compile(
    r"\$\((?:nproc|pwd|whoami|date(?: \+%[YmdHMSFjs](?:[_.:T-]|%[YmdHMSFjs])*)?"
    r"|git (?:merge-base|rev-parse|describe|symbolic-ref|branch|ls-files)"
    r"(?: (?:[\w./@{}~^:]+|--short|--abbrev-ref|--tags|--abbrev=0|--show-current|--show-toplevel|--verify|-q))*"
    # What these print are options of compilers, from where the system keeps them.
    r"|pkg-config(?: (?:--cflags|--libs|--static|[\w+-]+(?:[.-]\d[\w.]*)?(?!\.)))+|python3?-config(?: --\w+)+)\)"
)
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z]\w*)\}|([A-Za-z]\w*))", re.ASCII)
_OF_THE_SHELL = re.compile(r"BASH\w*|REPLY|OPTARG|MAPFILE|PWD|OLDPWD|DIRSTACK|COMP\w*|READLINE\w*|PS4|PROMPT\w*")
_GIVING = re.compile(
    r"\b(?:declare|typeset|local|export|readonly|read|printf|mapfile|readarray|getopts|eval|source|let)\b"
)
_BRACES = re.compile(r"\{[^-@=\s{}$`'\"][^=\s{}$`'\"]*\}")
_GLOB = re.compile(r"[\w./@%+,x-]*[*?][^\s$`'\"(){}]*")


def _may_be_options(word: Word, valued: frozenset[str], text: str) -> bool:
    """Whether a word that is not literal may be an option, or become several words with one among them."""
    if word.source.startswith(("~", "<(", ">(")):
        return False
    source = _PLAIN_OUTPUT.sub("x", word.source)
    source = _VARIABLE.sub(lambda found: "x" if _holds_plain_word(found[1] or found[2], text) else found[0], source)
    if not re.search(r"\{[^{}]*,-", source):
        source = _BRACES.sub("x", source)
    known = read_word(source)
    if known.may_split:
        return True
    if re.match(r'"[^-$`"\\]', source):
        return False
    if word.prefix.startswith("-"):
        # Which option it is has to be known; what its value is has been looked at.
        name = word.prefix.lstrip("-")
        return "=" not in name and name[:1] not in valued and name not in valued
    if known.is_literal or known.prefix:
        return known.prefix.startswith("-")
    return _GLOB.fullmatch(source) is None


def _holds_plain_word(name: str, text: str) -> bool:
    """Whether a variable holds one plain word or none, or what the server was started with."""
    if _OF_THE_SHELL.fullmatch(name) or len(text) > MAX_TEXT_CHARS:
        return False
    others = re.sub(rf"\$(?:{name}\b|\{{{name}\}})", "", _PLAIN_OUTPUT.sub("x", text))
    given = len(re.findall(rf"\b{name}\b", others))
    if not given:
        return _GIVING.search(text) is None
    plain = re.findall(rf"(?<![\w$'\"\\]){name}={_PLAIN_VALUE}|\bfor[ \t]+{name}[ \t]+in\b{_PLAIN_LIST}", others)
    return len(plain) == given and _GIVING.search(text) is None
