"""`call`: makes one tool call in this process, and asks the server's questions at the terminal."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import anyio

from server.administration.log import held_log
from server.app import App
from server.console import CALL_FAILED, CALL_REFUSED, CALL_UNAVAILABLE, CALL_USAGE, UsageError
from server.console.terminal import DECISION, Spinner, diff_text, fill_in, is_consent, question_text, says_yes, show
from server.console.upstream_messages import quiet_log
from server.protocol import json_rpc
from server.protocol.json_rpc import Json, MCPError, as_list, as_mapping
from server.protocol.request_table import McpConnection, RequestContext, display_name, our_name
from server.requests.wire_results import DISPLAY_KEY, ERROR_KEY, FACTS_KEY
from server.run_server import run_in_app
from server.settings import SettingsReport
from server.settings.load import read_settings
from server.upstreams.connections.tool_owner import owner_of, wait_for_owner
from tools.builtin.all_tools import builtin_tools
from tools.builtin.skill import SkillTool
from tools.contract.confirmation import Decision
from tools.contract.display import visible, visible_line
from tools.contract.tool_errors import HOW_TO_LIST, ToolErrorType
from tools.machine.threads import THREADS
from tools.permissions.tool_names import BETWEEN
from tools.shell.private_folders import PREFIX as OUTPUTS

SHELL_NAMES = frozenset({"run_shell_command", "ShellTool", "Shell", "Bash"})
_CODES = {
    ToolErrorType.EXECUTION_DENIED: CALL_REFUSED,
    ToolErrorType.UPSTREAM_UNAVAILABLE: CALL_UNAVAILABLE,
    ToolErrorType.INVALID_TOOL_PARAMS: CALL_USAGE,
}


@dataclass(frozen=True, slots=True)
class RawArguments:
    """The arguments of a call as written: an object, and pairs that are added to it or override its members."""

    whole: Mapping[str, Any]
    pairs: Mapping[str, str]

    def as_text(self) -> dict[str, Any]:
        """Return all arguments, with the pairs unconverted, for a tool that converts strings itself."""
        return {**self.whole, **self.pairs}

    def typed(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return all arguments; a pair's value is parsed as JSON if the tool's schema allows no string for its key."""
        properties, definitions = as_mapping(schema.get("properties")), as_mapping(schema.get("$defs"))

        def resolve(option: Any) -> Json:
            name = str(as_mapping(option).get("$ref")).removeprefix("#/$defs/")
            return as_mapping(definitions.get(name, option))

        arguments: dict[str, Any] = self.as_text()
        for key, text in self.pairs.items():
            field = resolve(properties.get(key))
            options = [field, *map(resolve, [*as_list(field.get("anyOf")), *as_list(field.get("oneOf"))])]
            kinds = [kind for option in options for kind in [*as_list(option.get("type")), option.get("type")] if kind]
            if "string" not in kinds and (kinds or options[1:] or "$ref" in field):
                with suppress(ValueError, RecursionError):  # if it is not JSON, the tool's server says what it expects
                    arguments[key] = _json(text)
        return arguments


def read_arguments(pairs: Sequence[str], as_json: str | None) -> RawArguments:
    """Read `key=value` pairs, and a JSON object given as JSON text, as `@FILE`, or as `-` for standard input."""
    whole: Any = {}
    if as_json is not None:
        text, source, hint = as_json, "--arguments", " Quote it as one word in the shell."
        try:
            if as_json == "-":
                source, hint = "standard input", ""
                text = sys.stdin.read()
            elif as_json.startswith("@"):
                source, hint = f"the file '{as_json[1:]}', given with --arguments,", ""
                text = Path(as_json[1:]).read_text(encoding="utf-8")
            whole = _json(text)
        except OSError:
            raise UsageError(f"{source} cannot be read.") from None
        except (ValueError, RecursionError):
            raise UsageError(f"{source} is not valid JSON.{hint}") from None
        if not isinstance(whole, dict):
            raise UsageError('--arguments must be an object, for example \'{"path": "src"}\'.')
    texts: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            hint = "; use --arguments for an object" if pair.startswith("{") else ""
            raise UsageError(f"'{pair}' is not of the form key=value{hint}.")
        if key in texts:
            raise UsageError(f"{key} is given twice. Give it once; write an array as JSON: {key}='[1, 2]'.")
        try:
            pair.encode()
        except UnicodeEncodeError:
            message = f"The argument {key} contains bytes that are not UTF-8. JSON strings cannot contain such bytes."
            raise UsageError(message) from None
        texts[key] = value
    return RawArguments(cast("Json", whole), texts)


def _json(text: str) -> Any:
    """Parse JSON. Raises a `ValueError` for NaN, infinities and lone surrogates, which no message can contain."""
    value = json.loads(text)
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    return value


def make_call(tool: str, raw_arguments: RawArguments, report: SettingsReport, *, is_sure: bool, as_json: bool) -> int:
    """Make one call, and print the result.

    Return the exit status of the command if the call ran one, 0 for other calls that succeeded, or a code of 64 or
    above that says why the call failed.
    """
    if tool in SHELL_NAMES and raw_arguments.as_text().get("is_background") not in (None, False, "false"):
        raise UsageError("a background job would end with this call. Omit is_background to wait for the command.")
    quiet_log(report.settings.log.level)  # the result says what failed
    spinner = Spinner()
    outbound = TerminalOutbound(spinner, is_sure=is_sure)
    capabilities: Json = {"elicitation": {"form": {}, "url": {}}}
    connection = McpConnection(
        outbound, is_open=True, client_info=our_name(), capabilities=capabilities, client_name=display_name(our_name())
    )
    params: Json = {"name": tool, "_meta": {"progressToken": 1}}
    ctx = RequestContext("tools/call", params, 1, connection, outbound)

    async def call(app: App) -> int:
        try:
            with spinner:
                app.start_upstreams(ctx)
                params["arguments"] = await _arguments(app, tool, raw_arguments, spinner)
                spinner.text = f"waiting for {tool}"
                result = await app.table.answer(ctx)
        except MCPError as error:
            message = error.message.replace(HOW_TO_LIST, "Run coretools-mcp tools to list them.")
            sys.stderr.write(f"coretools-mcp: {visible(message)}\n")
            return CALL_USAGE if error.code == json_rpc.INVALID_PARAMS else CALL_FAILED
        result: Json = await THREADS.run(lambda: _with_copied_output(result))
        code, known_tool = _exit_code(result), app.registry.find(tool)
        is_own = known_tool is not None and known_tool.is_builtin
        # Another server's call may have had an effect although its own question was not answered.
        refusal = outbound.refusal if is_own else outbound.consent_refusal if code == CALL_REFUSED else ""
        if refusal:
            code, error = CALL_REFUSED, {"type": ToolErrorType.EXECUTION_DENIED.value, "message": refusal}
            result = {"content": [{"type": "text", "text": refusal}], "isError": True, "_meta": {ERROR_KEY: error}}
        owner = owner_of(app.pool, tool)
        login = owner.login if owner is not None and owner.wants_login else None
        if code in (CALL_REFUSED, CALL_UNAVAILABLE) and not as_json and login is not None:
            # The result's own text is written for a model.
            show(f"The server {login.alias} needs a login. Run: {login.command}")
        elif as_json or not refusal:  # standard error has the refusal
            _show(result, as_json=as_json)
        return code

    return run_in_app(_settings_for(tool, report), call)


def _settings_for(tool: str, report: SettingsReport) -> SettingsReport:
    """Return the settings for a call: only the upstream that it needs, no stored lists, and no shortened results."""
    if (inputs := report.inputs) is None:
        return report
    # In simple style, a consent form would have no fields, so it would look like any other form without fields.
    overrides = {**inputs.overrides, "limits": {"resultChars": None}, "confirmation": {"style": "form"}}
    overrides["proxy"] = {**overrides.get("proxy", {}), "catalogue": False}
    alias, between, _ = tool.partition(BETWEEN)
    if between and alias in report.upstreams:
        overrides["mcp"] = {"allowed": [alias]}
    elif report.settings.tools.built_in:
        # The tool `skill` needs the upstreams, because they may offer skills too.
        own_tools = [own for own in builtin_tools() if not isinstance(own, SkillTool)]
        if any(tool in (own.name, *own.aliases) for own in own_tools):
            overrides["mcp"] = {"allowed": []}
    return read_settings(replace(inputs, overrides=overrides))


async def _arguments(app: App, tool: str, raw_arguments: RawArguments, spinner: Spinner) -> Json:
    """Return the arguments as the tool expects them. Built-in tools convert strings themselves."""
    if not raw_arguments.pairs:  # no schema is needed, and the call itself waits for its server
        return raw_arguments.as_text()
    if (owner := owner_of(app.pool, tool)) is not None:
        spinner.text = f"waiting for {owner.alias}"
        await wait_for_owner(app.pool, tool, owner)
    if app.registry.find(tool) is None and (discovery := app.custom_tools.discovery) is not None:
        spinner.text = "waiting for the custom tools"
        await discovery.finished.wait()
    known_tool = app.registry.find(tool)
    if known_tool is None or known_tool.is_builtin:
        return raw_arguments.as_text()
    return raw_arguments.typed(known_tool.parameter_schema)


def _with_copied_output(result: Json) -> Json:
    """Copy the file with a long output, which this process deletes at exit. Return the result with the new path."""
    path = as_mapping(as_mapping(result.get("_meta")).get(FACTS_KEY)).get("outputFile")
    folder = tempfile.gettempdir()
    # Upstreams cannot set this fact. Even if one could, only a file with the output of a command would be copied.
    is_output = re.compile(rf"{re.escape(folder)}/{OUTPUTS}[0-9a-f]+/\w+/outputs/output-\w+\.txt").fullmatch
    if not isinstance(path, str) or not is_output(path):
        return result
    descriptor, copy = tempfile.mkstemp(".txt", f"{OUTPUTS}output-", folder)
    with os.fdopen(descriptor, "wb") as target, open(path, "rb") as source:
        shutil.copyfileobj(source, target)
    return json.loads(json.dumps(result).replace(json.dumps(path)[1:-1], copy))


def _show(result: Json, *, as_json: bool) -> None:
    if as_json:
        sent_result = json.loads(json_rpc.encoded(result))  # as other clients receive it, without NaN
        sys.stdout.write(json.dumps(sent_result, ensure_ascii=False, indent=2) + "\n")
        return
    display = as_mapping(as_mapping(result.get("_meta")).get(DISPLAY_KEY))
    if diff := visible(str(display.get("fileDiff") or "")):
        show(diff_text(diff))
        return
    job = as_mapping(as_mapping(result.get("_meta")).get(FACTS_KEY)).get("jobId")
    if not result.get("content") and "structuredContent" in result:
        structured_content = json.loads(json_rpc.encoded(result))["structuredContent"]  # without NaN
        sys.stdout.write(f"{visible(json.dumps(structured_content, ensure_ascii=False, indent=2))}\n")
    for block in map(as_mapping, result.get("content", [])):
        if as_mapping(block.get("annotations")).get("audience") != ["user"]:
            text = visible(str(block["text"])) if block.get("type") == "text" else f"[{block.get('type')}]"
            if isinstance(job, str):
                # The job is about to be stopped, so the lines about it are useless. The command's own output follows
                # "Output:".
                job_lines = rf"\A((?:(?!Output:).*\n)*?)[\w ]+: {re.escape(job)} \(.*\n"
                text = re.sub(job_lines, r"\1", text)
            sys.stdout.write(f"{text}\n")
    if isinstance(job, str):
        sys.stdout.flush()
        sys.stderr.write("coretools-mcp: processes that the command left running are stopped when this call ends\n")


def _exit_code(result: Json) -> int:
    meta = as_mapping(result.get("_meta"))
    if result.get("isError"):
        return _CODES.get(as_mapping(meta.get(ERROR_KEY)).get("type", ""), CALL_FAILED)
    facts = as_mapping(meta.get(FACTS_KEY))
    name, code = facts.get("signal"), facts.get("exitCode")
    if isinstance(name, str):
        return 128 + getattr(signal, name, signal.SIGTERM)
    return code if isinstance(code, int) else 0


class TerminalOutbound:
    """The client of a call: the person at the terminal, who answers its questions and sees its progress."""

    def __init__(self, spinner: Spinner, *, is_sure: bool) -> None:
        self.refusal = self.consent_refusal = ""  # what was said because nobody could answer a form, or could consent
        self._spinner, self._is_sure = spinner, is_sure
        self._turn = anyio.Lock()  # held while a question is open

    async def request(self, method: str, params: Json | None) -> Json:
        if method != "elicitation/create":
            raise MCPError(json_rpc.METHOD_NOT_FOUND, "Method not found")
        async with self._turn:
            try:
                with held_log():  # before the spinner is erased, because a record written meanwhile would draw it again
                    self._spinner.stop()
                    answer = await _ask(params or {}, is_sure=self._is_sure)
            except (AttributeError, KeyError, TypeError, ValueError):
                raise MCPError(json_rpc.INVALID_PARAMS, "The form is malformed.") from None
            finally:
                self._spinner.start()
            if answer["action"] == "decline" and not sys.stdin.isatty() and as_mapping(params).get("mode") != "url":
                schema = as_mapping(as_mapping(params).get("requestedSchema"))
                self.refusal = _nobody_answers(schema)
                self.consent_refusal = self.refusal if is_consent(schema) else ""
            return answer

    async def notify(self, method: str, params: Json | None) -> None:
        text = as_mapping(params).get("message")
        if method == "notifications/progress" and text:
            self._spinner.text = str(text)

    def person_is_asked(self) -> AbstractContextManager[None]:
        return nullcontext()


async def _ask(params: Json, *, is_sure: bool) -> Json:
    message, schema = str(params.get("message")), as_mapping(params.get("requestedSchema"))
    if params.get("mode") == "url":  # --yes consents to the call, not to what the page asks for
        address = visible_line(str(params.get("url")))
        show(question_text(message), f"To agree, open this address in a browser: {address}", stream=sys.stderr)
        if sys.stdin.isatty():
            return {"action": "accept" if await says_yes("Continue with this address?") else "decline"}
        show("Nobody can answer here (standard input is not a terminal), so this is declined.", stream=sys.stderr)
        return {"action": "decline"}
    if is_sure and is_consent(schema):
        return {"action": "accept", "content": {DECISION: Decision.ONCE.value}}
    if not sys.stdin.isatty():
        show(question_text(message), _nobody_answers(schema), stream=sys.stderr)
        return {"action": "decline"}
    if not schema.get("properties"):  # a plain yes or no
        show("", question_text(message), stream=sys.stderr)
        return {"action": "accept", "content": {}} if await says_yes("Accept?") else {"action": "decline"}
    content = await fill_in(message, schema)
    return {"action": "cancel"} if content is None else {"action": "accept", "content": content}


def _nobody_answers(schema: Json) -> str:
    outcome = "nothing was done. Use --yes to allow what the call asks for"
    outcome = outcome if is_consent(schema) else "the question stays unanswered"
    return f"Nobody can answer here (standard input is not a terminal), so {outcome}."
