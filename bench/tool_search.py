"""Measure how well queries find tools, compared with plain BM25 over names and descriptions.

python bench/tool_search.py [SET.json ...]      by default, the set in this folder

A set has `tools`, `queries` with their right tools, and queries for which no tool is right (`unanswerable`).
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

MANY = 5_000  # number of tools when the time of a query is measured
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
    """Return a search with the usual BM25 formula over the words of names and descriptions."""

    def words(text: str) -> list[str]:
        return re.findall(r"[a-z0-9]+", text.lower())

    documents = [Counter(words(f"{text.own_name} {text.description}".replace("_", " "))) for text in texts]
    lengths = [document.total() for document in documents]
    average = sum(lengths) / len(lengths)
    document_counts = Counter(word for document in documents for word in document)

    def find(query: str) -> list[int]:
        scores: dict[int, float] = {}
        for word in set(words(query)):
            rarity = math.log(1 + (len(documents) - document_counts[word] + 0.5) / (document_counts[word] + 0.5))
            for number, document in enumerate(documents):
                if count := document[word]:
                    length = 1 - 0.75 + 0.75 * lengths[number] / average
                    scores[number] = scores.get(number, 0.0) + rarity * count * 2.2 / (count + 1.2 * length)
        return sorted(scores, key=lambda number: -scores[number])[:LIMIT]

    return find


def quality(name: str, find: Callable[[str], list[int]], names: Sequence[str], test_set: dict[str, Any]) -> None:
    recall = reciprocal = no_results = 0.0
    for item in test_set["queries"]:
        result_names, right = [names[number] for number in find(item["query"])], set(item["right"])
        recall += len(right.intersection(result_names)) / min(len(right), LIMIT)
        reciprocal += next((1 / place for place, name_ in enumerate(result_names, 1) if name_ in right), 0.0)
        no_results += not result_names
    count, false_hits = len(test_set["queries"]), sum(bool(find(query)) for query in test_set["unanswerable"])
    false_rate = f"{false_hits / len(test_set['unanswerable']):.3f}" if test_set["unanswerable"] else "-"
    print(
        f"{name:24} recall@5 {recall / count:.3f}  MRR {reciprocal / count:.3f}  "
        f"without an answer {no_results / count:.3f}  false hits {false_rate}"
    )


def main() -> None:
    for path in sys.argv[1:] or [str(Path(__file__).with_suffix(".json"))]:
        test_set = json.loads(Path(path).read_text("utf-8"))
        texts = texts_of(test_set["tools"])
        names, index, plain = [text.name for text in texts], ToolIndex(texts), plain_bm25(texts)
        queries, unanswerable = len(test_set["queries"]), len(test_set["unanswerable"])
        print(f"{path}: {len(texts)} tools, {queries} queries, {unanswerable} unanswerable")
        quality("ours", lambda query, index=index: index.find(query, LIMIT)[0], names, test_set)
        quality("BM25, name+description", plain, names, test_set)
        spelled_names = [(text.name, spell(text.name)) for text in texts for spell in SPELLINGS]
        exact = [[names[number] for number in index.find(query, 1)[0]] == [name] for name, query in spelled_names]
        print(f"exact names {sum(exact) / len(exact):.3f}")
        chooser = random.Random(1)
        many_texts = [
            SearchText(
                f"{original.name}{number}",
                f"{original.server}{number % 40}",
                original.own_name,
                description=original.description,
                parameters=original.parameters,
            )
            for number, original in enumerate(chooser.choices(texts, k=MANY))
        ]
        start = time.perf_counter()
        large_index = ToolIndex(many_texts)
        build_seconds = time.perf_counter() - start
        durations: list[float] = []
        for item in test_set["queries"]:
            start = time.perf_counter()
            large_index.find(item["query"], LIMIT)
            durations.append((time.perf_counter() - start) * 1000)
        durations.sort()
        print(
            f"{MANY} tools: built in {build_seconds * 1000:.0f} ms, a query {sum(durations) / len(durations):.2f} ms, "
            f"median {durations[len(durations) // 2]:.2f}, the slowest {durations[-1]:.2f}"
        )


if __name__ == "__main__":
    main()
