"""How well tools are found by queries, beside BM25 over names and descriptions alone.

python bench/tool_search.py [SET.json ...]      the set of this folder where none is given

A set has `tools`, `queries` with the tools that are right, and queries to which no tool is right (`unanswerable`).
"""

from __future__ import annotations

import json
import math
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from server.upstreams.catalog.tool_index import SearchText, ToolIndex  # noqa: E402

MANY = 5_000  # tools, for the time that a query takes
LIMIT = 5
SPELLINGS: Sequence[Callable[[str], str]] = (
    str,
    lambda name: re.sub(r"[\W_]+", " ", name),
    lambda name: re.sub(r"[\W_]+", "-", name),
)


def texts_of(tools: Sequence[dict[str, Any]]) -> list[SearchText]:
    return [
        SearchText(
            f"{tool['server']}__{tool['name']}",
            tool["server"],
            tool["name"],
            description=tool["description"],
            parameters=tool.get("parameters", {}),
        )
        for tool in tools
    ]


def plain_bm25(texts: Sequence[SearchText]) -> Callable[[str], list[int]]:
    """The usual formula over the words of the name and the description."""

    def words(text: str) -> list[str]:
        return re.findall(r"[a-z0-9]+", text.lower())

    documents = [Counter(words(f"{text.own_name} {text.description}".replace("_", " "))) for text in texts]
    lengths = [document.total() for document in documents]
    average = sum(lengths) / len(lengths)
    seen = Counter(word for document in documents for word in document)

    def find(query: str) -> list[int]:
        scores: dict[int, float] = {}
        for word in set(words(query)):
            rarity = math.log(1 + (len(documents) - seen[word] + 0.5) / (seen[word] + 0.5))
            for number, document in enumerate(documents):
                if count := document[word]:
                    length = 1 - 0.75 + 0.75 * lengths[number] / average
                    scores[number] = scores.get(number, 0.0) + rarity * count * 2.2 / (count + 1.2 * length)
        return sorted(scores, key=lambda number: -scores[number])[:LIMIT]

    return find


def quality(name: str, find: Callable[[str], list[int]], names: Sequence[str], given: dict[str, Any]) -> None:
    recall = reciprocal = none = 0.0
    for asked in given["queries"]:
        found, right = [names[number] for number in find(asked["query"])], set(asked["right"])
        recall += len(right.intersection(found)) / min(len(right), LIMIT)
        reciprocal += next((1 / place for place, each in enumerate(found, 1) if each in right), 0.0)
        none += not found
    count, false = len(given["queries"]), sum(bool(find(query)) for query in given["unanswerable"])
    wrong = f"{false / len(given['unanswerable']):.3f}" if given["unanswerable"] else "-"
    print(
        f"{name:24} recall@5 {recall / count:.3f}  MRR {reciprocal / count:.3f}  "
        f"without an answer {none / count:.3f}  false hits {wrong}"
    )


def main() -> None:
    for path in sys.argv[1:] or [str(Path(__file__).with_suffix(".json"))]:
        given = json.loads(Path(path).read_text("utf-8"))
        texts = texts_of(given["tools"])
        names, index, plain = [text.name for text in texts], ToolIndex(texts), plain_bm25(texts)
        print(f"{path}: {len(texts)} tools, {len(given['queries'])} queries, {len(given['unanswerable'])} unanswerable")
        quality("ours", lambda query, index=index: index.find(query, LIMIT)[0], names, given)
        quality("BM25, name+description", plain, names, given)
        spelled = [(text.name, spell(text.name)) for text in texts for spell in SPELLINGS]
        exact = [[names[number] for number in index.find(query, 1)[0]] == [name] for name, query in spelled]
        print(f"exact names {sum(exact) / len(exact):.3f}")
        chosen = random.Random(1)
        many = [
            SearchText(
                f"{each.name}{number}",
                f"{each.server}{number % 40}",
                each.own_name,
                description=each.description,
                parameters=each.parameters,
            )
            for number, each in enumerate(chosen.choices(texts, k=MANY))
        ]
        began = time.perf_counter()
        large = ToolIndex(many)
        built = time.perf_counter() - began
        times: list[float] = []
        for asked in given["queries"]:
            began = time.perf_counter()
            large.find(asked["query"], LIMIT)
            times.append((time.perf_counter() - began) * 1000)
        times.sort()
        print(
            f"{MANY} tools: built in {built * 1000:.0f} ms, a query {sum(times) / len(times):.2f} ms, "
            f"median {times[len(times) // 2]:.2f}, the slowest {times[-1]:.2f}"
        )


if __name__ == "__main__":
    main()
