"""The mutants: one small change each, at places that a seed chooses.

A place keeps its position in the order when code elsewhere changes, so that what a run has found stays comparable.
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
    choices: list[tuple[str, int]]


def sample(
    root: Path, modules: list[str], seed: int, most: int, known: Container[str]
) -> Iterator[tuple[str, Mutant | None]]:
    """As many mutants of these modules, in the order of the seed; of those that are known the order alone."""
    sources = {module: (root / module).read_text(encoding="utf-8") for module in modules}
    places = [place for module in modules for place in _places(root, module, sources[module], seed)]
    made = 0
    for place in sorted(places):
        mutant = _mutant(place, sources[place.module]) if place.order not in known else None
        if mutant is not None or place.order in known:
            yield place.order, mutant
            made += 1
        if made == most:
            return


def _places(root: Path, module: str, source: str, seed: int) -> list[_Place]:
    """Where something can be changed. It takes a second to find, so it is kept beside the checkout."""
    kept = root.with_name(f"places-{hashlib.sha256(f'{seed} {source}'.encode()).hexdigest()[:20]}.json")
    if not kept.exists():
        kept.write_text(json.dumps([*_found_places(module, source, seed)]), encoding="utf-8")
    return [_Place(*place) for place in json.loads(kept.read_text(encoding="utf-8"))]


def _found_places(module: str, source: str, seed: int) -> Iterator[_Place]:
    nodes: list[Any] = list(syntax.ast_nodes(syntax.get_ast(source)))
    choices: defaultdict[tuple[Position, Position], list[tuple[str, int]]] = defaultdict(list)
    for name in sorted(plugins.operator_names()):
        if plugins.get_operator(name).arguments():
            continue  # of which each place would need other ones
        operator = plugins.get_operator(name)()
        found = (position for node in nodes for position in operator.mutation_positions(node))
        for occurrence, position in enumerate(found):
            choices[position].append((name, occurrence))
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
    name, occurrence = place.choices[int(place.order, 16) % len(place.choices)]
    text: str = mutating.mutate_code(source, plugins.get_operator(name)(), occurrence)
    try:
        if ast.dump(ast.parse(text)) == _program(source):
            return None
        compile(text, place.module, "exec")
    except (SyntaxError, ValueError):
        return None
    changed = difflib.unified_diff(source.splitlines(), text.splitlines(), place.module, place.module, lineterm="", n=1)
    return Mutant(place.order, place.module, place.line, text, "\n".join(changed))
