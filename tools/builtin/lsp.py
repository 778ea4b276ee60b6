"""`lsp`: answers questions about code with the help of language servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from tools.builtin.file_tools import FILE_ALIASES, display_path, file_path_problems, path_subject
from tools.call.base_tool import READS, BuiltinTool, ToolContext
from tools.contract.confirmation import ConfirmationDetails, InfoConfirmation
from tools.contract.permission_subjects import Subject, ToolKind
from tools.contract.tool_errors import InvalidToolParamsError, PathNotInWorkspaceError, ToolError, ToolErrorType
from tools.contract.tool_parameters import ToolParams
from tools.contract.tool_results import ToolResult
from tools.machine.threads import run_blocking
from tools.text.file_names import brief

if TYPE_CHECKING:
    from tools.files.workspace import Location
    from tools.lsp.code_intelligence import CodeIntelligence, ServerStart
    from tools.lsp.code_locations import CodePlace, PlaceFormatter
    from tools.lsp.language_server_session import Document, LanguageServerSession

DEFAULT_LIMIT, MAX_LIMIT = 100, 1_000
REPORT_SECONDS = 20.0  # how long to wait for a server's report on one file
SETTLE_SECONDS, QUIET_SECONDS = 30.0, 3.0  # longest wait for reports on all files: in total, and for the next report
_START = "start"  # key in a call's memo for the running session, or the server to start
_POSITION_METHODS = {
    "goToDefinition": "textDocument/definition",
    "findReferences": "textDocument/references",
    "hover": "textDocument/hover",
    "goToImplementation": "textDocument/implementation",
}
_FILE_OPERATIONS = ("documentSymbol", "diagnostics")
Operation = Literal[
    "goToDefinition", "findReferences", "hover", "documentSymbol", "workspaceSymbol", "goToImplementation",
    "diagnostics", "workspaceDiagnostics",
]  # fmt: skip


class LspParams(ToolParams):
    operation: Operation = Field(description="What to ask.")
    filePath: str | None = Field(default=None, description="Absolute, or relative to the workspace.")  # noqa: N815
    line: int | None = Field(default=None, ge=1, description="1-based.")
    character: int | None = Field(default=None, ge=1, description="1-based, on the name.")
    query: str | None = Field(default=None, description="A name or part of one.")
    includeDeclaration: bool = Field(default=False, description="For findReferences: include the declaration.")  # noqa: N815
    limit: int | None = Field(
        default=None, ge=1, description=f"Maximum results: {DEFAULT_LIMIT} by default, at most {MAX_LIMIT}."
    )


class LspTool(BuiltinTool[LspParams]):
    name = "lsp"
    title = "Code intelligence"
    display_name = "Lsp"
    aliases = ("LspTool", "LSP")
    description = (
        "Ask a language server about code: definitions, references, types and documentation (hover), symbols, "
        "implementations, errors. More exact than grep_search for names. goToDefinition, findReferences, hover and "
        "goToImplementation need filePath, line and character; documentSymbol and diagnostics need filePath; "
        "workspaceSymbol needs query. For workspaceSymbol and workspaceDiagnostics, filePath selects the language; the "
        "first call needs it. Starting a server is slow."
    )
    kind = ToolKind.READ
    behaviour = READS
    params_model = LspParams
    parameter_aliases: Mapping[str, str] = dict.fromkeys((*FILE_ALIASES, "file_path", "file"), "filePath") | {
        "column": "character", "symbol": "query",
    }  # fmt: skip

    def __init__(self, code: Callable[[], CodeIntelligence] | None, *, is_listed: Callable[[], bool]) -> None:
        self._code = code
        self._has_servers = is_listed

    @property
    def is_listed(self) -> bool:
        return self._has_servers()

    def problems(self, params: LspParams, original_names: Mapping[str, str]) -> Iterator[str]:
        required_names = (
            ("filePath", "line", "character") if params.operation in _POSITION_METHODS
            else ("filePath",) if params.operation in _FILE_OPERATIONS
            else ("query",) if params.operation == "workspaceSymbol"
            else ()
        )  # fmt: skip
        if missing := [name for name in required_names if getattr(params, name) is None]:
            yield f"{params.operation} needs {' and '.join(missing)}."
        if params.filePath is not None:
            yield from file_path_problems(params.filePath, original_names.get("filePath", "filePath"))

    def get_description(self, params: LspParams, context: ToolContext) -> str:
        query = f" '{brief(params.query)}'" if params.query is not None else ""
        file = f" in {display_path(params.filePath, context.workspace)}" if params.filePath is not None else ""
        position = f":{params.line}:{params.character}" if params.line is not None and file else ""
        return f"{params.operation}{query}{file}{position}"

    def subjects(self, params: LspParams, context: ToolContext) -> Sequence[Subject]:
        return () if params.filePath is None else (path_subject(context.workspace, params.filePath),)

    async def should_confirm_execute(self, params: LspParams, context: ToolContext) -> ConfirmationDetails | None:
        from tools.lsp.language_server_session import LanguageServerSession  # noqa: PLC0415 - loaded on first use

        location = await self._location(params, context)
        session_or_start = await self._intelligence().session_or_start(context.workspace, context.rights, location)
        context.memo[_START] = (params, session_or_start)
        if isinstance(session_or_start, LanguageServerSession) or not session_or_start.consent_reason:
            return None
        import shlex  # noqa: PLC0415 - loaded on first use

        return InfoConfirmation(
            title=f"Start the language server for {session_or_start.server.name}",
            prompt=f"Command: {shlex.join(session_or_start.argv)}\nFolder: {session_or_start.key[0]}\n"
            f"{session_or_start.consent_reason}",
            state=session_or_start.state,
        )

    async def execute(self, params: LspParams, context: ToolContext) -> ToolResult:
        from tools.lsp.code_locations import PlaceFormatter  # noqa: PLC0415 - loaded on first use
        from tools.lsp.language_server_session import LanguageServerSession  # noqa: PLC0415

        location = await self._location(params, context)
        code, workspace = self._intelligence(), context.workspace
        session: LanguageServerSession | ServerStart = context.kept(_START, params) or await code.session_or_start(
            workspace, context.rights, location
        )
        if not isinstance(session, LanguageServerSession):
            agreed_state = context.confirmed.state if context.confirmed is not None else ""
            session = await code.session(session, agreed_state=agreed_state, is_granted=context.is_granted)
        with session:
            try:
                is_first = not session.documents
                document = await session.sync(workspace, location)
                if is_first and document is not None and params.operation.startswith("workspace"):
                    # Before its first report, the server might not know the project.
                    await session.wait_for_report(document, REPORT_SECONDS)
                answer = await self._answer(params, context, document, PlaceFormatter(workspace, session, location))
                notes, session.notes = list(session.notes), {}
                return ToolResult(llm_content="\n".join((answer, *notes)))
            finally:
                if location is not None and location.path in session.documents:
                    await session.sync(workspace)  # close a hidden file that only this call may read

    async def _answer(
        self, params: LspParams, context: ToolContext, document: Document | None, formatter: PlaceFormatter
    ) -> str:
        """Return the server's answer as text for the model."""
        from tools.lsp.code_locations import place_of, places_in, symbols_in  # noqa: PLC0415 - loaded on first use
        from tools.lsp.language_server_session import lines_of, uri_of  # noqa: PLC0415

        operation, session = params.operation, formatter.session
        if operation == "workspaceSymbol":
            answer = await session.request("workspace/symbol", {"query": params.query or ""})
            return await self._format_places(lambda: [*symbols_in(answer)], params, context, formatter)
        if document is None or operation == "workspaceDiagnostics":
            return await self._all_diagnostics(params, context, formatter)
        identity = {"uri": uri_of(document.location.path)}
        if operation == "documentSymbol":
            answer = await session.request("textDocument/documentSymbol", {"textDocument": identity})
            return await self._format_places(lambda: [*symbols_in(answer, identity["uri"])], params, context, formatter)
        if operation == "diagnostics":
            report = await session.wait_for_report(document, REPORT_SECONDS)
            if report is None:
                return f"{session.program} has not reported on this file within {REPORT_SECONDS:g} s. Ask again later."
            places = [place_of(document.location.path, item) for item in report.items]
            return await self._format_places(lambda: places, params, context, formatter, report.total)
        lines, line, character = lines_of(document.text), params.line or 1, params.character or 1
        if line > len(lines):
            raise InvalidToolParamsError(self.name, f"line is {line}, but the last line is {len(lines)}.")
        text = lines[line - 1]
        if character > len(text) + 1:
            problem = f"character is {character}, but the length of line {line} is {len(text)}."
            raise InvalidToolParamsError(self.name, problem)
        position = {"line": line - 1, "character": session.units(text, character - 1)}
        request_params: dict[str, Any] = {"textDocument": identity, "position": position}
        if operation == "hover":
            return await self._hover(request_params, context, formatter)
        if operation == "findReferences":
            request_params["context"] = {"includeDeclaration": params.includeDeclaration}
        answer = await session.request(_POSITION_METHODS[operation], request_params)
        return await self._format_places(lambda: places_in(answer), params, context, formatter)

    async def _hover(self, request_params: Mapping[str, Any], context: ToolContext, formatter: PlaceFormatter) -> str:
        from tools.lsp.code_locations import hover_text, places_in  # noqa: PLC0415 - loaded on first use

        session = formatter.session
        text = hover_text(await session.request(_POSITION_METHODS["hover"], request_params))
        # The text may come from a hidden file.
        if text and (session.hidden_files.restrictions.masked or session.hidden_files.problem):
            definition: Sequence[CodePlace] = ()
            with suppress(ToolError):
                definition = places_in(await session.request(_POSITION_METHODS["goToDefinition"], request_params))
            if session.sees_hidden and not definition:
                return "No definition was found; it may be in a file that is hidden from agents."
            reasons: list[str] = await run_blocking(context.signal, lambda: [*map(formatter.hidden_by, definition)])
            reason = next(filter(None, reasons), "")
            text = f"Its definition is in a file that is hidden from agents by {reason}." if reason else text
        return text or f"{session.program} knows nothing about this position. Set character to a position on a name."

    async def _format_places(
        self,
        find: Callable[[], Sequence[CodePlace]],
        params: LspParams,
        context: ToolContext,
        formatter: PlaceFormatter,
        total: int | None = None,
    ) -> str:
        """Find places in a thread, because this may be slow, and format the requested number of them, one per line."""
        limit = min(params.limit or DEFAULT_LIMIT, MAX_LIMIT)

        def find_and_format() -> tuple[int, list[str]]:
            places = find()
            return len(places), [*map(formatter.format_line, places[:limit])]

        place_count, lines = await run_blocking(context.signal, find_and_format)
        omitted_count = (place_count if total is None else total) - len(lines)
        hint = (
            "raise limit" if place_count > limit and limit < MAX_LIMIT
            else "ask about one file or a narrower name" if params.operation.startswith("workspace")
            else "fix these first" if params.operation == "diagnostics"
            else f"limit is at most {MAX_LIMIT}"
        )  # fmt: skip
        note = [f"Not shown: {omitted_count} more; {hint}."] if omitted_count > 0 else []
        return "\n".join((*lines, *note)) or f"{formatter.session.program} found nothing."

    async def _all_diagnostics(self, params: LspParams, context: ToolContext, formatter: PlaceFormatter) -> str:
        from tools.lsp.code_locations import place_of  # noqa: PLC0415 - loaded on first use

        session = formatter.session
        if session.request_all_reports() or not session.reports:
            await session.settle(SETTLE_SECONDS, QUIET_SECONDS)
        if not session.reports:
            return f"{session.program} has not reported on any file yet. Ask about one file, or ask again later."
        reports = [*session.reports.items()]

        def find() -> list[CodePlace]:
            entries = ((item.severity, path, item) for path, report in reports for item in report.items)
            return [place_of(path, item) for _, path, item in sorted(entries)]

        diagnostics = await self._format_places(
            find, params, context, formatter, sum(report.total for _, report in reports)
        )
        note = ", and others whose reports are not kept" if session.has_dropped_reports else ""
        return f"{diagnostics}\nFiles that {session.program} has reported on: {len(reports)}{note}."

    def _intelligence(self) -> CodeIntelligence:
        if self._code is None:
            raise ToolError(
                ToolErrorType.NO_LANGUAGE_SERVER, "No language servers can be started here. Use grep_search."
            )
        return self._code()

    async def _location(self, params: LspParams, context: ToolContext) -> Location | None:
        path, workspace = params.filePath, context.workspace
        if path is None:
            return None

        def locate() -> Location:
            from tools.files.find.path_suggestions import missing_path_error  # noqa: PLC0415 - loaded on first use
            from tools.files.ignore_files import refuse_hidden  # noqa: PLC0415

            location = workspace.locate(path, by_look=True)
            refuse_hidden(workspace, location, "read")
            if workspace.kind_of(location) is None:
                raise missing_path_error(workspace, location, context.signal)
            if location.root not in workspace.roots:
                raise PathNotInWorkspaceError(path, workspace.roots)
            return location

        return await run_blocking(context.signal, locate)
