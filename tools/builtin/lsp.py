"""`lsp`: answers questions about code with the help of language servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from tools.builtin.file_tools import FILE_ALIASES, check_file_path, path_subject, shown
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
    from tools.lsp.code_intelligence import CodeIntelligence, Start
    from tools.lsp.code_locations import CodePlace, Teller
    from tools.lsp.language_server_session import Document, LanguageServerSession

DEFAULT_LIMIT, MAX_LIMIT = 100, 1_000
REPORT_SECONDS = 20.0  # how long to wait for a server's report on one file
SETTLE_SECONDS, QUIET_SECONDS = 30.0, 3.0  # longest wait for all reports, and for the next report
_START = "start"  # key in a call's memo for the running session, or the server to start
_AT_PLACE = {
    "goToDefinition": "textDocument/definition",
    "findReferences": "textDocument/references",
    "hover": "textDocument/hover",
    "goToImplementation": "textDocument/implementation",
}
_OF_FILE = ("documentSymbol", "diagnostics")
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
        "workspaceSymbol needs query. For workspaceSymbol and workspaceDiagnostics, filePath selects the language. The "
        "first call is slow, because it starts the server."
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
        """Return True if there is a language server."""
        return self._has_servers()

    def check(self, params: LspParams, spelled: Mapping[str, str]) -> None:
        needed = (
            ("filePath", "line", "character") if params.operation in _AT_PLACE
            else ("filePath",) if params.operation in _OF_FILE
            else ("query",) if params.operation == "workspaceSymbol"
            else ()
        )  # fmt: skip
        if missing := [name for name in needed if getattr(params, name) is None]:
            raise InvalidToolParamsError(self.name, f"{params.operation} needs {' and '.join(missing)}.")
        if params.filePath is not None:
            check_file_path(self.name, params.filePath, spelled.get("filePath", "filePath"))

    def get_description(self, params: LspParams, context: ToolContext) -> str:
        of = f" '{brief(params.query)}'" if params.query is not None else ""
        where = f" in {shown(params.filePath, context.workspace)}" if params.filePath is not None else ""
        at = f":{params.line}:{params.character}" if params.line is not None and where else ""
        return f"{params.operation}{of}{where}{at}"

    def subjects(self, params: LspParams, context: ToolContext) -> Sequence[Subject]:
        return () if params.filePath is None else (path_subject(context.workspace, params.filePath),)

    async def should_confirm_execute(self, params: LspParams, context: ToolContext) -> ConfirmationDetails | None:
        from tools.lsp.language_server_session import LanguageServerSession  # noqa: PLC0415 - loaded on first use

        location = await self._location(params, context)
        prepared = await self._intelligence().prepared(context.workspace, context.rights, location)
        context.memo[_START] = (params, prepared)
        if isinstance(prepared, LanguageServerSession) or not prepared.why_asked:
            return None
        import shlex  # noqa: PLC0415 - loaded on first use

        return InfoConfirmation(
            title=f"Start the language server for {prepared.server.name}",
            prompt=f"Command: {shlex.join(prepared.argv)}\nFolder: {prepared.key[0]}\n{prepared.why_asked}",
            state=prepared.state,
        )

    async def execute(self, params: LspParams, context: ToolContext) -> ToolResult:
        from tools.lsp.code_locations import Teller  # noqa: PLC0415 - loaded on first use
        from tools.lsp.language_server_session import LanguageServerSession  # noqa: PLC0415

        location = await self._location(params, context)
        code, workspace, document = self._intelligence(), context.workspace, None
        session: LanguageServerSession | Start = context.kept(_START, params) or await code.prepared(
            workspace, context.rights, location
        )
        if not isinstance(session, LanguageServerSession):
            agreed = context.confirmed.state if context.confirmed is not None else ""
            session = await code.session(session, agreed=agreed, is_granted=context.is_granted)
        with session:
            try:
                if location is not None:
                    document = await session.follow(workspace, location)
                elif not session.documents:  # some servers load a project only when a file is opened
                    server = session.server
                    sample = await run_blocking(context.signal, lambda: code.sample(workspace, server))
                    if (opened := await session.follow(workspace, sample)) is not None:
                        await session.report(opened, REPORT_SECONDS)
                else:
                    await session.follow(workspace)
                answer = await self._answer(params, context, document, Teller(workspace, session, location))
                notes, session.notes = list(session.notes), {}
                return ToolResult(llm_content="\n".join((answer, *notes)))
            finally:
                if location is not None and location.path in session.documents:
                    await session.follow(workspace)  # close a file that was opened only for this call

    async def _answer(self, params: LspParams, context: ToolContext, document: Document | None, teller: Teller) -> str:
        """Return the server's answer as text for the model."""
        from tools.lsp.code_locations import place_of, places_in, symbols_in  # noqa: PLC0415 - loaded on first use
        from tools.lsp.language_server_session import lines_of, uri_of  # noqa: PLC0415

        operation, session = params.operation, teller.session
        if operation == "workspaceSymbol":
            answer = await session.ask("workspace/symbol", {"query": params.query or ""})
            return await self._told(lambda: [*symbols_in(answer)], params, context, teller)
        if document is None or operation == "workspaceDiagnostics":
            return await self._all_diagnostics(params, context, teller)
        identity = {"uri": uri_of(document.location.path)}
        if operation == "documentSymbol":
            answer = await session.ask("textDocument/documentSymbol", {"textDocument": identity})
            return await self._told(lambda: [*symbols_in(answer, identity["uri"])], params, context, teller)
        if operation == "diagnostics":
            report = await session.report(document, REPORT_SECONDS)
            if report is None:
                return f"{session.program} has not reported on this file within {REPORT_SECONDS:g} s. Ask again later."
            found = [place_of(document.location.path, item) for item in report.items]
            return await self._told(lambda: found, params, context, teller, report.total)
        lines, line, character = lines_of(document.text), params.line or 1, params.character or 1
        if line > len(lines):
            raise InvalidToolParamsError(self.name, f"line is {line}, but the last line is {len(lines)}.")
        text = lines[line - 1]
        if character > len(text) + 1:
            raise InvalidToolParamsError(
                self.name, f"character is {character}, but line {line} has {len(text)} characters."
            )
        position = {"line": line - 1, "character": session.units(text, character - 1)}
        asked: dict[str, Any] = {"textDocument": identity, "position": position}
        if operation == "hover":
            return await self._hover(asked, context, teller)
        if operation == "findReferences":
            asked["context"] = {"includeDeclaration": params.includeDeclaration}
        answer = await session.ask(_AT_PLACE[operation], asked)
        return await self._told(lambda: places_in(answer), params, context, teller)

    async def _hover(self, asked: Mapping[str, Any], context: ToolContext, teller: Teller) -> str:
        from tools.lsp.code_locations import hover_text, places_in  # noqa: PLC0415 - loaded on first use

        session = teller.session
        text = hover_text(await session.ask(_AT_PLACE["hover"], asked))
        if text and (session.hidden.files.masked or session.hidden.problem):  # the text may come from a hidden file
            definition: Sequence[CodePlace] = ()
            with suppress(ToolError):
                definition = places_in(await session.ask(_AT_PLACE["goToDefinition"], asked))
            if session.sees_hidden and not definition:
                return "No definition was found; it may be in a file that is hidden from agents."
            reasons: list[str] = await run_blocking(context.signal, lambda: [*map(teller.hides, definition)])
            why = next(filter(None, reasons), "")
            text = f"Its definition is in a file that is hidden from agents by {why}." if why else text
        return text or f"{session.program} knows nothing about this position. Set character to a position on a name."

    async def _told(
        self,
        find: Callable[[], Sequence[CodePlace]],
        params: LspParams,
        context: ToolContext,
        teller: Teller,
        total: int | None = None,
    ) -> str:
        """Find places in a thread, because this may be slow, and format the requested number of them, one per line."""
        most = min(params.limit or DEFAULT_LIMIT, MAX_LIMIT)

        def tell() -> tuple[int, list[str]]:
            places = find()
            return len(places), [*map(teller.line, places[:most])]

        found, lines = await run_blocking(context.signal, tell)
        left = (found if total is None else total) - len(lines)
        hint = (
            "raise limit" if found > most and most < MAX_LIMIT
            else "ask about one file or a narrower name" if params.operation.startswith("workspace")
            else "fix these first"
        )  # fmt: skip
        more = [f"Not shown: {left} more; {hint}."] if left > 0 else []
        return "\n".join((*lines, *more)) or f"{teller.session.program} found nothing."

    async def _all_diagnostics(self, params: LspParams, context: ToolContext, teller: Teller) -> str:
        from tools.lsp.code_locations import place_of  # noqa: PLC0415 - loaded on first use

        session = teller.session
        if session.widen() or not session.reports:
            await session.settle(SETTLE_SECONDS, QUIET_SECONDS)
        if not session.reports:
            return f"{session.program} has not reported on any file yet. Ask about one file, or ask again later."
        reports = [*session.reports.items()]

        def find() -> list[CodePlace]:
            found = ((item.severity, path, item) for path, report in reports for item in report.items)
            return [place_of(path, item) for _, path, item in sorted(found)]

        diagnostics = await self._told(find, params, context, teller, sum(report.total for _, report in reports))
        more = ", and others whose reports are not kept" if session.forgets else ""
        return f"{diagnostics}\nFiles that {session.program} has reported on: {len(reports)}{more}."

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
            from tools.files.find.path_suggestions import not_there  # noqa: PLC0415 - loaded on first use
            from tools.files.ignore_files import refuse_hidden  # noqa: PLC0415

            location = workspace.locate(path, by_look=True)
            refuse_hidden(workspace, location, "read")
            if workspace.kind_of(location) is None:
                raise not_there(workspace, location, context.signal)
            if location.root not in workspace.roots:
                raise PathNotInWorkspaceError(path, workspace.roots)
            return location

        return await run_blocking(context.signal, locate)
