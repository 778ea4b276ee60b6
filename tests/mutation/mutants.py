"""The mutants: one small change each, at places that a seed chooses.

A place keeps its position in the order when code elsewhere changes, so that what a run has found stays comparable.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
from collections import Counter, defaultdict
from collections.abc import Container, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

# Not typed, and installed by `make mutation` alone.
plugins: Any = import_module("cosmic_ray.plugins")
syntax: Any = import_module("cosmic_ray.ast")
mutating: Any = import_module("cosmic_ray.mutating")

Position = tuple[int, int]


class Mutant(NamedTuple):
    """A change of one module.

    Args:
        order: Comes from the seed and the place; those with the smallest are the sample.
        module: Path from the root.
        line: Its number.
        text: The whole changed module.
        diff: The change, for a person.
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
    choices: list[tuple[Any, int]]


def sample(
    root: Path, modules: list[str], seed: int, most: int, known: Container[str]
) -> Iterator[tuple[str, Mutant | None]]:
    """As many mutants of these modules, in the order of the seed; of those that are known the order alone."""
    operators = [plugins.get_operator(name) for name in sorted(plugins.operator_names())]
    operators = [operator() for operator in operators if not operator.arguments()]
    sources = {module: (root / module).read_text(encoding="utf-8") for module in modules}
    places = [place for module in modules for place in _places(operators, module, sources[module], seed)]
    made = 0
    for place in sorted(places):
        mutant = _mutant(place, sources[place.module]) if place.order not in known else None
        if mutant is not None or place.order in known:
            yield place.order, mutant
            made += 1
        if made == most:
            return


def _places(operators: list[Any], module: str, source: str, seed: int) -> Iterator[_Place]:
    """Where something can be changed."""
    nodes: list[Any] = list(syntax.ast_nodes(syntax.get_ast(source)))
    choices: defaultdict[tuple[Position, Position], list[tuple[Any, int]]] = defaultdict(list)
    for operator in operators:
        found = (position for node in nodes for position in operator.mutation_positions(node))
        for occurrence, position in enumerate(found):
            choices[position].append((operator, occurrence))
    unread = _unread(source)
    lines = source.splitlines()
    alike: Counter[str] = Counter()
    for (start, end), variants in sorted(choices.items(), key=lambda item: item[0]):
        if any(first <= start and end <= last for first, last in unread):
            continue
        text = lines[start[0] - 1]
        place = f"{seed} {module} {text.strip()} {start[1] - len(text) + len(text.lstrip())}"
        alike[place] += 1
        order = hashlib.sha256(f"{place} {alike[place]}".encode()).hexdigest()[:12]
        yield _Place(order, module, start[0], variants)


def _unread(source: str) -> list[tuple[Position, Position]]:
    """Where a change means nothing: annotations, how the fields of a dataclass are kept, what only checkers import."""
    nodes: list[ast.AST | None] = []
    for node in ast.walk(ast.parse(source)):
        nodes += [getattr(node, "annotation", None), getattr(node, "returns", None)]
        nodes += [node.test] if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" else []
        decorators = node.decorator_list if isinstance(node, ast.ClassDef) else []
        nodes += [each for each in decorators if isinstance(each, ast.Call) and ast.unparse(each.func) == "dataclass"]
    return [
        ((node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0))
        for node in nodes
        if isinstance(node, ast.expr)
    ]


@cache
def _program(source: str) -> str:
    return ast.dump(ast.parse(source))


def _mutant(place: _Place, source: str) -> Mutant | None:
    """The change that the place's hash chooses; nothing where it makes no other program."""
    operator, occurrence = place.choices[int(place.order, 16) % len(place.choices)]
    text: str = mutating.mutate_code(source, operator, occurrence)
    try:
        if ast.dump(ast.parse(text)) == _program(source):
            return None
        compile(text, place.module, "exec")
    except (SyntaxError, ValueError):
        return None
    changed = difflib.unified_diff(source.splitlines(), text.splitlines(), place.module, place.module, lineterm="", n=1)
    return Mutant(place.order, place.module, place.line, text, "\n".join(changed))
