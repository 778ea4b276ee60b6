"""Mutants: modules with one small change each, at places that a seed selects.

The order of the places does not depend on code elsewhere, so that the results of different runs stay comparable.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Container, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

# Not typed, and installed only by `make mutation`.
plugins: Any = import_module("cosmic_ray.plugins")
syntax: Any = import_module("cosmic_ray.ast")
mutating: Any = import_module("cosmic_ray.mutating")

Position = tuple[int, int]


class Mutant(NamedTuple):
    """A changed module.

    Args:
        order: A hash of the seed and the place. The sample consists of the mutants with the smallest values.
        module: Path from the root.
        line: Line number of the change.
        text: The whole text of the changed module.
        diff: The change as a diff, for people.
    """

    order: str
    module: str
    line: int
    text: str
    diff: str


class _Place(NamedTuple):
    order: str
    module: str
    line: int
    choices: list[tuple[str, int]]


def sample(
    root: Path, modules: list[str], seed: int, limit: int, known_orders: Container[str]
) -> Iterator[tuple[str, Mutant | None]]:
    """Yield up to `limit` mutants of these modules, in the order of the seed; for known ones, only the order."""
    sources = {module: (root / module).read_text(encoding="utf-8") for module in modules}
    places = [place for module in modules for place in _places(root, module, sources[module], seed)]
    count = 0
    for place in sorted(places):
        mutant = _mutant(place, sources[place.module]) if place.order not in known_orders else None
        if mutant is not None or place.order in known_orders:
            yield place.order, mutant
            count += 1
        if count == limit:
            return


def _places(root: Path, module: str, source: str, seed: int) -> list[_Place]:
    """Return the places that can be changed. The search is slow, so the result is cached next to the checkout."""
    cache_file = root.with_name(f"places-{hashlib.sha256(f'{seed} {source}'.encode()).hexdigest()[:20]}.json")
    if not cache_file.exists():
        cache_file.write_text(json.dumps([*_scan_places(module, source, seed)]), encoding="utf-8")
    return [_Place(*place) for place in json.loads(cache_file.read_text(encoding="utf-8"))]


def _scan_places(module: str, source: str, seed: int) -> Iterator[_Place]:
    nodes: list[Any] = list(syntax.ast_nodes(syntax.get_ast(source)))
    choices: defaultdict[tuple[Position, Position], list[tuple[str, int]]] = defaultdict(list)
    for name in sorted(plugins.operator_names()):
        if plugins.get_operator(name).arguments():
            continue  # it would need different arguments at each place
        operator = plugins.get_operator(name)()
        positions = (position for node in nodes for position in operator.mutation_positions(node))
        for occurrence, position in enumerate(positions):
            choices[position].append((name, occurrence))
    ignored_ranges = _ignored_ranges(source)
    lines = source.splitlines()
    counts: Counter[str] = Counter()
    for (start, end), place_choices in sorted(choices.items(), key=lambda item: item[0]):
        if any(first <= start and end <= last for first, last in ignored_ranges):
            continue
        text = lines[start[0] - 1]
        place = f"{seed} {module} {text.strip()} {start[1] - len(text) + len(text.lstrip())}"
        counts[place] += 1
        order = hashlib.sha256(f"{place} {counts[place]}".encode()).hexdigest()[:12]
        yield _Place(order, module, start[0], place_choices)


def _ignored_ranges(source: str) -> list[tuple[Position, Position]]:
    """Return ranges in which a change has no effect: annotations, options of dataclasses, tests for type checkers."""
    nodes: list[ast.AST | None] = []
    for node in ast.walk(ast.parse(source)):
        nodes += [getattr(node, "annotation", None), getattr(node, "returns", None)]
        nodes += [node.test] if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" else []
        decorators = node.decorator_list if isinstance(node, ast.ClassDef) else []
        nodes += [call for call in decorators if isinstance(call, ast.Call) and ast.unparse(call.func) == "dataclass"]
    return [
        ((node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0))
        for node in nodes
        if isinstance(node, ast.expr)
    ]


@cache
def _program(source: str) -> str:
    return ast.dump(ast.parse(source))


def _mutant(place: _Place, source: str) -> Mutant | None:
    """Return the change that the place's hash selects, or None if the program stays the same or becomes invalid."""
    name, occurrence = place.choices[int(place.order, 16) % len(place.choices)]
    text: str = mutating.mutate_code(source, plugins.get_operator(name)(), occurrence)
    try:
        if ast.dump(ast.parse(text)) == _program(source):
            return None
        compile(text, place.module, "exec")
    except (SyntaxError, ValueError):
        return None
    diff = difflib.unified_diff(source.splitlines(), text.splitlines(), place.module, place.module, lineterm="", n=1)
    return Mutant(place.order, place.module, place.line, text, "\n".join(diff))
