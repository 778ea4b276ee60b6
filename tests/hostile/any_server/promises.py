"""The promises that the cases test, and where each known server makes them.

An unknown server must keep every promise that applies to its tools.
"""

from __future__ import annotations

from dataclasses import dataclass

PROMISES = {
    "contained": "No path leads out of the workspace.",
    "links": "No link leads out of the workspace.",
    "hard links": "A write leaves other names of a file alone.",
    "swaps": "A folder swapped for a link during a call does not lead out either.",
    "special": "A pipe, socket or device never blocks a call.",
    "names": "Unusual names are shown with escapes.",
    "roots": "A client's roots never widen the operator's folders.",
    "works": "The tools do what they say.",
    "edit bytes": "An edit keeps every byte outside the change.",
    "edit unique": "A text that occurs several times is not replaced by guess.",
    "edit fits": "An edit that does not match changes nothing, and says so.",
    "mode": "A file keeps its mode.",
    "stale": "A file that changed since it was read is not overwritten.",
    "together": "Concurrent edits keep each other's changes.",
    "whole": "A write is complete or does not happen.",
    "arguments": "A tool that changes something refuses unknown parameters.",
    "search ends": "A search ends, whatever the tree and the pattern.",
    "search literal": "No pattern becomes an option of a program.",
    "ignored": "Files named in agent-ignore files are neither read nor found.",
    "bounded": "Results are bounded.",
    "in time": "Costly calls are answered, and so are pings meanwhile.",
    "output kept": "A command's output comes back, even next to bytes that are not text.",
    "reading view": "Commands that run without a question change nothing and read nothing hidden.",
    "working view": "A yes to a command opens no more than the question says.",
    "environment": "Commands get no secrets from the server's environment.",
    "loopback": "Without a yes to the network, no server on this machine is reached.",
    "rules": "A forbidden command is not run.",
    "rules spelled": "A forbidden command is not run in another spelling either.",
    "leftovers": "Nothing that a command started outlives the server.",
    "private hosts": "Private addresses are not fetched, in any spelling.",
    "odd urls": "URLs that parsers read differently are refused.",
    "redirects": "Every redirect passes the same checks.",
    "page bounds": "Bytes, unpacking ratio and time of a page are bounded.",
    "asked": "A person is asked before a command that changes files.",
    "answers mean no": "Everything except a valid yes means no.",
    "counts once": "An answer counts once, for this call and this state of the file.",
    "shown": "What is shown to people and models is complete and hides nothing.",
    "always asked": "Files that make other programs run something are always asked about.",
    "not asked": "Reading needs no question.",
    "beside": "An upstream that fails does not affect the others.",
    "beside hung": "An upstream that hangs does not delay the others.",
    "questions": "Questions from upstreams arrive, and the answers come back.",
    "questions named": "Such a question names the upstream.",
    "not offered": "A client is asked only for what it declared.",
    "errors": "Unknown methods and tools are errors.",
    "answers": "Every request is answered, whatever came before.",
    "lists": "Lists of tools are valid.",
    "output": "Standard output carries only messages.",
    "handshake": "The server answers with a revision that it supports.",
    "end": "The server exits at end of input.",
    "origin": "HTTP servers check the origin.",
    "http": "HTTP servers refuse invalid messages and unknown sessions.",
}
"""Each promise by its id, in one sentence."""

SPECIFICATION = {
    "errors": "JSON-RPC 2.0, Error object; MCP, Tools, Error handling",
    "answers": "JSON-RPC 2.0, Response object; MCP, Ping",
    "lists": "MCP, Tools, Data types",
    "output": "MCP, Transports, stdio",
    "handshake": "MCP, Lifecycle, Version negotiation",
    "end": "MCP, Lifecycle, Shutdown",
    "origin": "MCP, Transports, Security warning",
    "http": "MCP, Transports, Session management",
    "not offered": "MCP, Lifecycle, Capability negotiation",
}
"""What every server promises by claiming to speak MCP, and the section of the specification that says so."""


@dataclass(frozen=True)
class Promiser:
    """A server whose promises are known.

    Args:
        label: Its name in a table.
        sources: The document that makes each promise, by the promise's id.
        engine: Text that a command's answer must contain; otherwise the promises `engine_promises` do not count.
        engine_promises: Promises that the server makes only with this engine.
    """

    label: str
    sources: dict[str, str]
    engine: str = ""
    engine_promises: frozenset[str] = frozenset()


def _at(places: dict[str, str]) -> dict[str, str]:
    return {promise: place for place, promises in places.items() for promise in promises.split(", ")}


OURS = _at(
    {
        "docs/security.md, Files": "contained, links, hard links, swaps, special, roots, stale, together, whole, mode, "
        "ignored, search literal",
        "docs/files.md": "names, edit bytes, edit fits, search ends",
        "docs/tools.md": "works, edit unique, arguments, bounded, output kept",
        "docs/permissions.md, Shell commands": "reading view, working view, rules, rules spelled",
        "docs/security.md, Commands": "environment, loopback, leftovers",
        "docs/security.md, The web": "private hosts, odd urls, redirects, page bounds",
        "docs/security.md, Consent": "answers mean no, counts once, shown, always asked",
        "README, When it asks": "asked, not asked",
        "README, Your other servers": "beside, beside hung, questions",
        "docs/security.md, Other servers": "questions named",
        "docs/security.md, Network": "in time",
    }
)

KNOWN: dict[str, Promiser] = {
    "coretools-mcp": Promiser(
        "coretools-mcp",
        OURS,
        engine='"engine": "bubblewrap"',
        engine_promises=frozenset({"reading view", "working view", "environment", "loopback", "leftovers"}),
    ),
    "secure-filesystem-server": Promiser(
        "server-filesystem",
        _at(
            {
                "README, How it works: operations are restricted to allowed directories": "contained, links",
                "README, Tools": "works, edit fits",
            }
        ),
    ),
    "desktop-commander": Promiser(
        "DesktopCommander",
        _at(
            {
                "README, Available tools: allowedDirectories": "contained",
                "README, Features: symlink traversal prevention (with limits, under Security Warnings)": "links",
                "README, Features: command blocklist for accidental execution": "rules",
                "README, Edit block: expected_replacements": "edit unique",
                "README, Available tools": "works, edit fits",
            }
        ),
    ),
    "FastMCP": Promiser(
        "FastMCP proxy",
        _at({"gofastmcp.com, Proxy provider: forwarding of sampling, elicitation": "questions"}),
    ),
}
"""Known servers, by the beginning of the name that they announce."""


def label_of(name: str) -> str:
    """Return a server's label in the table of results: the name that it announces, if the server is not known."""
    return next((promiser.label for prefix, promiser in KNOWN.items() if name.startswith(prefix)), name)


def promiser_for(name: str, probe: str) -> dict[str, str] | None:
    """Return the document in which a server makes each promise, or None if the server is not known.

    Args:
        name: The name that it announces.
        probe: Its answer to a command.
    """
    promiser = next((promiser for prefix, promiser in KNOWN.items() if name.startswith(prefix)), None)
    if promiser is None:
        return None
    sources = {**SPECIFICATION, **promiser.sources}
    if promiser.engine and promiser.engine not in probe:
        sources = {promise: source for promise, source in sources.items() if promise not in promiser.engine_promises}
    return sources
