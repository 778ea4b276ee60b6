"""The environment of commands and programs: it contains what builds need, but none of the server's secrets.

For a command in the sandbox, `sandbox_environment` in `sandbox/visible_file_system.py` adapts it to the view.
"""

from __future__ import annotations

from collections.abc import Mapping

from tools.text.secrets import has_secret, is_secret_name, without_userinfo

# Variables that commands get from the server's environment: user and system, Windows, certificates, toolchains
_KEPT = """
HOME USER LOGNAME LANG LANGUAGE SHELL TZ HOSTNAME PWD PATH TMPDIR TMP TEMP MANPATH LD_LIBRARY_PATH DYLD_LIBRARY_PATH
PKG_CONFIG_PATH

SYSTEMROOT SYSTEMDRIVE WINDIR COMSPEC PATHEXT OS USERPROFILE USERNAME HOMEDRIVE HOMEPATH APPDATA LOCALAPPDATA
PROGRAMDATA PROGRAMFILES PROGRAMFILES(X86) PROGRAMW6432 COMMONPROGRAMFILES PROCESSOR_ARCHITECTURE NUMBER_OF_PROCESSORS
PSMODULEPATH

SSL_CERT_FILE SSL_CERT_DIR NIX_SSL_CERT_FILE REQUESTS_CA_BUNDLE CURL_CA_BUNDLE PIP_CERT NODE_EXTRA_CA_CERTS
GIT_SSL_CAINFO GIT_SSL_CAPATH CARGO_HTTP_CAINFO AWS_CA_BUNDLE

VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV CONDA_EXE PYENV_ROOT PYENV_VERSION UV_CACHE_DIR PIP_CACHE_DIR POETRY_HOME
PIPX_HOME NVM_DIR NVM_BIN FNM_DIR VOLTA_HOME PNPM_HOME BUN_INSTALL DENO_DIR DENO_INSTALL JAVA_HOME JDK_HOME MAVEN_HOME
M2_HOME GRADLE_HOME GRADLE_USER_HOME SDKMAN_DIR KOTLIN_HOME SCALA_HOME ANDROID_HOME ANDROID_SDK_ROOT GOPATH GOROOT
GOBIN GOCACHE GOMODCACHE GOFLAGS GOTOOLCHAIN CARGO_HOME RUSTUP_HOME RUSTUP_TOOLCHAIN CARGO_TARGET_DIR RBENV_ROOT
RBENV_VERSION GEM_HOME GEM_PATH BUNDLE_PATH ASDF_DIR ASDF_DATA_DIR MISE_DATA_DIR COMPOSER_HOME DOTNET_ROOT
NUGET_PACKAGES OPAMROOT OPAM_SWITCH_PREFIX GHCUP_INSTALL_BASE_PREFIX CC CXX CFLAGS CXXFLAGS CPPFLAGS LDFLAGS MAKEFLAGS
CMAKE_PREFIX_PATH CMAKE_GENERATOR CUDA_HOME CUDA_PATH CUDA_VISIBLE_DEVICES NIX_PATH NIX_PROFILES HOMEBREW_PREFIX EMSDK
PYTHONUTF8 PYTHONIOENCODING SOURCE_DATE_EPOCH
"""
# Proxies and package sources, which are also recognised in lower case. User names and passwords are removed from their
# URLs.
_CLEANED_ADDRESSES = """
HTTP_PROXY HTTPS_PROXY ALL_PROXY FTP_PROXY NO_PROXY
PIP_INDEX_URL PIP_EXTRA_INDEX_URL UV_INDEX_URL UV_DEFAULT_INDEX NPM_CONFIG_REGISTRY GOPROXY
"""
PREFIXES = ("LC_", "XDG_")
# There is no terminal, so editors and password prompts must fail at once. `GIT_ASKPASS` is empty so that git runs no
# program to ask for a password, and git's own prompt is off. `GIT_EDITOR` accepts git's proposed commit message, but an
# interactive rebase fails, because nobody can edit its plan. `core.fsmonitor` is off, because every `git status` would
# run the program that this setting names. `safe.bareRepository` keeps git from using a workspace folder that only looks
# like a bare repository, and from running the programs that such a folder names.
_FIXED = """
TERM=dumb PAGER=cat GIT_PAGER=cat MANPAGER=cat SYSTEMD_PAGER=cat
GIT_ASKPASS= GIT_TERMINAL_PROMPT=0 SSH_ASKPASS= SSH_ASKPASS_REQUIRE=never GCM_INTERACTIVE=never GH_PROMPT_DISABLED=1
PIP_NO_INPUT=1 DEBIAN_FRONTEND=noninteractive
GIT_EDITOR=true GIT_SEQUENCE_EDITOR=false EDITOR=false VISUAL=false
GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=core.fsmonitor GIT_CONFIG_VALUE_0=false
GIT_CONFIG_KEY_1=safe.bareRepository GIT_CONFIG_VALUE_1=explicit
CORETOOLS_MCP=1
"""
FIXED: Mapping[str, str] = {name: value for name, _, value in (item.partition("=") for item in _FIXED.split())}
_CLEANED = frozenset(_CLEANED_ADDRESSES.split())
_KNOWN = _CLEANED | frozenset(_KEPT.split())


def command_environment(operator_variables: Mapping[str, str], server_environment: Mapping[str, str]) -> dict[str, str]:
    """Return a command's whole environment. The operator's variables (`shell.env`) take precedence, unfiltered."""
    environment: dict[str, str] = {}
    for name, value in server_environment.items():
        is_address = name.upper() in _CLEANED
        variable = name.upper() if is_address else name
        if (variable in _KNOWN or variable.startswith(PREFIXES)) and not is_secret_name(variable):
            clean_value = without_userinfo(value) if is_address else value
            if not has_secret(clean_value):
                environment[name] = clean_value
    return {**environment, **FIXED, **operator_variables}
