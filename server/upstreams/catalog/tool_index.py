"""Tool search: an index of names and descriptions, and a ranking.

BM25F (Robertson and Zaragoza, 2009) over weighted fields finds candidates. A query word also matches the words in the
same group of tool_search_words.txt. A candidate becomes a result only if it covers enough of the query. If the query's
first word is a known action, the candidate should perform this action. bench/tool_search.py measures how good the
constants are. This module knows nothing about clients or rules.
"""

from __future__ import annotations

import heapq
import itertools
import math
import re
import unicodedata
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

MAX_QUERY_CHARS = 1_000  # maximum length of a query; the caller must reject longer ones
MAX_WORDS = 24  # maximum number of query words that are used
MAX_FIELD_CHARS = 4_000  # maximum number of characters that are read per field
MAX_CANDIDATES = 100  # maximum number of candidates per rare query word; common words only affect the ranking
MAX_RANKED = 16  # maximum number of candidates whose coverage is computed
SELECT = "select:"  # prefix of a query for exact names (Qwen Code)

FLOOR = 0.62  # the fraction of the query that the best tool must cover
LOW_FLOOR = 0.35  # the fraction of the query that the best approximate match must cover
NEAR_BEST = 0.5  # the fraction of the best coverage that other results must reach
GROUP_SCORE, PREFIX_SCORE = 0.5, 0.6  # ranking weight of a related word, and of a word with the same prefix
GROUP_FIT, PREFIX_FIT = 0.8, 0.7  # coverage weight of a related word, and of a word with the same prefix
AGAIN = 0.6  # coverage weight of a tool's word that has already matched another query word
UNKNOWN_SHARE = 0.8  # weight of a query word that no tool contains
NAME_SHARE = 0.3  # weight of a capitalised query word that no tool contains, usually an argument's value
# How many words directly after the first query word must match a tool's name, keywords or title for a different action
# to be ignored
NAMED = 2
# If the shares of a query's words add up to more than the first number, the excess is multiplied by the second.
LONG, BEYOND = 2.5, 0.2
# Coverage factors if a tool lacks the query's action, and if no tool contains the query's first word
OTHER_ACTION, UNKNOWN_ACTION = 0.4, 0.9
LENGTH, SATURATION = 0.4, 1.2  # b and k1 of BM25F

_LIGHT = frozenset(
    ("bring", "get", "give", "hold", "keep", "know", "make", "put", "save", "set", "take", "tell", "write")
)
"""Verbs that say little about the action."""
_WORD = re.compile(r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_A-Za-z]+")
_PROPER = re.compile(r"(?<=[a-z,] )[A-Z][a-z]+")
_NOT_OF_NAME = re.compile(r"[\W_]+")
_SENTENCE_END = re.compile(r"[.!?](?:\s|$)|\n")
_ENDINGS = (("ing", 3), ("ied", 3), ("ed", 3), ("ion", 4))  # endings, with the minimum number of letters to keep


@lru_cache(20_000)
def stem(word: str) -> str:
    """Return the rough stem of an English word, without the most frequent endings."""
    if len(word) <= 3 or not word.isascii():
        return word
    if word.endswith("ies"):
        word = word[:-3] + "y"
    elif word.endswith(("sses", "shes", "ches", "xes", "zes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending, min_length in _ENDINGS:
        rest = word.removesuffix(ending)
        if rest != word and len(rest) >= min_length and not rest.isdigit():
            if ending == "ied":
                return rest + "y"
            if ending != "ion" and rest[-1] == rest[-2] and rest[-1] not in "lsz":
                return rest[:-1]
            # This gives "creation" the same stem as "create", and "translation" the same as "translate".
            word = rest
            break
    return word[:-1] if word.endswith("e") and len(word) > 4 else word


def words_of(text: str) -> Iterator[str]:
    """Yield the words of a string in any naming style, without stop words."""
    text = text[:MAX_FIELD_CHARS]
    if not text.isascii():
        text = "".join(
            character for character in unicodedata.normalize("NFKD", text) if not unicodedata.combining(character)
        )
    for match in _WORD.findall(text):
        word = match.lower()
        if word not in _IGNORED_WORDS and (len(word) > 1 or not word.isascii() or word.isdigit()):
            yield word


def name_key(name: str) -> str:
    """Return a key that is the same for all spellings of a name: case-folded, without word separators."""
    return _NOT_OF_NAME.sub("", name).casefold()


# The lines of tool_search_words.txt, by the heading of the part of the file that contains them.
_, *_parts = re.split(r"(?m)^# (\w+)\n", (Path(__file__).parent / "tool_search_words.txt").read_text("utf-8"))
_LINES = {
    heading: [line for line in part.splitlines() if line and not line.startswith("#")]
    for heading, part in zip(_parts[::2], _parts[1::2], strict=True)
}
_IGNORED_WORDS = frozenset(" ".join(_LINES["ignored"]).split())  # words that say nothing about the wanted tool
_PHRASES = {
    phrase: word
    for word, _, phrases in (line.partition(": ") for line in _LINES["phrases"])
    for phrase in phrases.split(", ")
}
_PHRASE = re.compile(rf"\b({'|'.join(_PHRASES)})(?=s?\b)", re.IGNORECASE)
_ACTION_GROUPS = [frozenset(map(stem, line.split())) for line in _LINES["actions"]]
_GROUPS = [*_ACTION_GROUPS, *(frozenset(map(stem, line.split())) for line in _LINES["things"])]
_DELETING = stem("delete")
_OF_WORD: dict[str, list[int]] = defaultdict(list)  # the indexes in `_GROUPS` of each word's groups
for _number, _group in enumerate(_GROUPS):
    for _word in _group:
        _OF_WORD[_word].append(_number)


@dataclass(frozen=True, slots=True)
class SearchText:
    name: str  # the tool's name for clients
    server: str  # the alias of the tool's server
    own_name: str  # the tool's name at its server
    title: str = ""
    hint: str = ""  # the search keywords that the tool declares
    description: str = ""
    parameters: Mapping[str, str] | None = None  # argument names with their descriptions

    def fields(self) -> Iterator[tuple[float, float, Iterable[str]]]:
        """Yield the words of each field, with the field's weights for ranking and coverage."""
        yield 3.0, 1.0, words_of(self.own_name)
        yield 1.0, 0.8, words_of(self.server)
        yield 2.0, 1.0, words_of(self.hint)
        yield 1.5, 1.0, words_of(self.title)
        end = _SENTENCE_END.search(self.description)
        first = end.start() if end is not None else len(self.description)
        yield 1.5, 0.9, words_of(self.description[:first])
        yield 0.7, 0.7, words_of(self.description[first:])
        if self.parameters:
            yield 0.5, 0.7, words_of(" ".join(self.parameters))
            yield 0.25, 0.6, words_of(" ".join(self.parameters.values()))


Postings = Mapping[int, float]  # the tools that contain a word, with the word's weight in each; best first


@dataclass(frozen=True, slots=True)
class _Concept:
    """One word of a query."""

    word: str
    related_words: Set[str]  # the words in all groups that contain the word
    similar_words: Set[str]  # words with the same prefix, if no tool contains the word itself
    is_name: bool  # whether the word is written like a proper name
    postings: Sequence[tuple[float, Postings]]  # for each kind of match, its weight and the tools that it finds
    weight: float  # the word's rarity


class ToolIndex:
    """Finds tools by queries. Building an index blocks for a tenth of a millisecond per tool."""

    def __init__(self, texts: Iterable[SearchText]) -> None:
        self.texts = tuple(texts)
        self._by_key: dict[str, list[int]] = defaultdict(list)
        self._fits: list[dict[str, float]] = []  # each tool's words with their coverage weights
        tool_weights: list[dict[str, float]] = []
        for number, text in enumerate(self.texts):
            for key in dict.fromkeys(map(name_key, (text.name, f"{text.server}__{text.own_name}", text.own_name))):
                self._by_key[key].append(number)
            weights: dict[str, float] = defaultdict(float)
            fits: dict[str, float] = {}
            for weight, fit, words in text.fields():
                for word, count in Counter(map(stem, words)).items():
                    weights[word] += weight * (1 + math.log(count))
                    fits[word] = max(fit, fits.get(word, 0.0))
            tool_weights.append(weights)
            self._fits.append(fits)
        average = sum(sum(weights.values()) for weights in tool_weights) / max(len(tool_weights), 1) or 1.0
        postings: dict[str, dict[int, float]] = defaultdict(dict)
        for number, weights in enumerate(tool_weights):
            norm = 1 - LENGTH + LENGTH * sum(weights.values()) / average
            for word, weight in weights.items():
                postings[word][number] = weight / (weight + SATURATION * norm)
        self._postings = {word: _best_first([word_postings]) for word, word_postings in postings.items()}
        self._of_group = [_best_first([postings[word] for word in group if word in postings]) for group in _GROUPS]
        self._vocabulary = sorted(self._postings)

    def named_tools(self, query: str) -> list[int]:
        """Return the tools that a query names or mentions, in any spelling."""
        keys = [name_key(query), *(name_key(word) for word in query.split() if not word.isalpha())]
        numbers = itertools.chain.from_iterable(self._by_key.get(key, ()) for key in keys if key)
        return list(dict.fromkeys(numbers))

    def find(
        self, query: str, limit: int, is_wanted: Callable[[int], bool] | None = None
    ) -> tuple[list[int], list[int]]:
        """Return the matching tools and the approximate matches, best first; at least one of the lists is empty.

        Tools are returned as their positions in `texts`, at most `limit`. In the query, a word after a plus sign is
        required. `is_wanted` returns whether a tool may be found, and is called only for candidates.
        """
        required_words = [stem(word) for term in query.split() if term.startswith("+") for word in words_of(term)]

        @cache
        def is_allowed(number: int) -> bool:
            return all(word in self._fits[number] for word in required_words) and (
                is_wanted is None or is_wanted(number)
            )

        if query.startswith(SELECT):
            names = query.removeprefix(SELECT).split(",")
            named_tools = dict.fromkeys(itertools.chain.from_iterable(map(self.named_tools, names)))
            return list(itertools.islice(filter(is_allowed, named_tools), limit)), []
        matches = list(itertools.islice(filter(is_allowed, self.named_tools(query)), limit))
        ranking = self._rank(query, is_allowed)
        best = max((fit for _, fit in ranking[:limit]), default=0.0)
        candidates = [number for number, fit in ranking if fit >= best * NEAR_BEST]
        if required_words or best >= FLOOR:
            matches = list(dict.fromkeys((*matches, *candidates)))
        return matches[:limit], candidates[:limit] if not matches and best >= LOW_FLOOR else []

    def _rank(self, query: str, is_allowed: Callable[[int], bool]) -> list[tuple[int, float]]:
        """Return the best allowed tools, best first, with the fraction of the query that each covers, from 0 to 1."""
        phrases = [_PHRASES[phrase.lower()] for phrase in _PHRASE.findall(query)]
        # Move to the front any phrases that name an action, wherever they are in the query.
        first = [word for word in phrases if min(_OF_WORD.get(stem(word), [len(_GROUPS)])) < len(_ACTION_GROUPS)]
        text = " ".join((*first, _PHRASE.sub(lambda match: _PHRASES[match[0].lower()], query)))
        words = list(dict.fromkeys(map(stem, itertools.islice(words_of(text), MAX_WORDS))))
        proper_names = {stem(name.lower()) for name in _PROPER.findall(text)}
        concepts = [self._concept(word, is_name=word in proper_names) for word in words]
        scores: dict[int, float] = {}
        for concept in sorted(concepts, key=lambda concept: -concept.weight):
            best: dict[int, float] = {}
            is_open = len(scores) < MAX_CANDIDATES
            for factor, postings in concept.postings:
                # Tools that are not allowed must neither take places in the ranking nor raise the best coverage.
                allowed = itertools.islice(filter(is_allowed, postings), MAX_CANDIDATES)
                for number in allowed if is_open else postings.keys() & scores.keys():
                    impact = postings[number] * factor
                    if impact > best.get(number, 0.0):
                        best[number] = impact
            for number, impact in best.items():
                scores[number] = scores.get(number, 0.0) + concept.weight * impact
        # The action in the first word, with its synonyms.
        actions = [group for group in _OF_WORD.get(words[0], ()) if group < len(_ACTION_GROUPS)] if words else []
        action_words = frozenset(words[:1]).union(*map(_GROUPS.__getitem__, actions)) if actions else frozenset[str]()
        candidates = heapq.nlargest(MAX_RANKED, ((score, -number) for number, score in scores.items()))
        fits = [(score, -number, self._fit(concepts, action_words, -number)) for score, number in candidates]
        fits.sort(key=lambda item: -item[0] * (1 + item[2]))
        return [(number, fit) for _, number, fit in fits]

    def _concept(self, word: str, *, is_name: bool) -> _Concept:
        groups = [number for number in _OF_WORD.get(word, ()) if self._of_group[number]]
        related_words = frozenset[str]().union(*(_GROUPS[number] for number in groups))
        similar_words = frozenset[str]()
        if word not in self._postings and len(word) >= 5:
            # No tool contains the word itself, so use the indexed words that share a prefix with it.
            prefix = word[: max(4, math.ceil(len(word) * 0.7))]
            start = bisect_left(self._vocabulary, prefix)
            candidates = itertools.takewhile(
                lambda candidate: candidate.startswith(prefix), self._vocabulary[start : start + 20]
            )
            similar_words = frozenset(candidate for candidate in candidates if len(candidate) <= len(word) + 4)
        matches = [(1.0, self._postings[word])] if word in self._postings else []
        matches += [(PREFIX_SCORE, self._postings[similar_word]) for similar_word in similar_words]
        matches += [(GROUP_SCORE, self._of_group[number]) for number in groups]
        count = min(sum(len(postings) * factor for factor, postings in matches), len(self.texts))
        weight = math.log(1 + (len(self.texts) - count + 0.5) / (count + 0.5))
        return _Concept(word, related_words, similar_words, is_name, matches, weight)

    def _fit(self, concepts: Sequence[_Concept], action_words: Set[str], number: int) -> float:
        """Return the fraction of a query that a tool covers, reduced if the tool's action differs from the query's."""
        fits, fit, total, head = self._fits[number], 0.0, 0.0, concepts[0]
        matched_words = {concept.word for concept in concepts if concept.word in fits}
        for concept in concepts:
            part = fits.get(concept.word, 0.0)
            if not part:
                # A tool's word matches one query word fully, and further query words only partly.
                partial_matches = [
                    (PREFIX_FIT * fits[tool_word], tool_word) for tool_word in concept.similar_words & fits.keys()
                ]
                partial_matches += [
                    (GROUP_FIT * fits[tool_word], tool_word) for tool_word in concept.related_words & fits.keys()
                ]
                if partial_matches:
                    part, matched_word = max(
                        (weight * (AGAIN if word in matched_words else 1), word) for weight, word in partial_matches
                    )
                    matched_words.add(matched_word)
            share = 1.0 if concept.postings else NAME_SHARE if concept.is_name else UNKNOWN_SHARE
            total += share
            fit += share * part
        if (
            action_words
            and head.word not in _LIGHT
            and not any(fits[word] >= 0.9 for word in action_words & fits.keys())
        ):
            # If a query names a tool's object completely, it means that tool regardless of the verb, unless the verb
            # asks for a deletion.
            full_matches = [fits.get(concept.word, 0.0) == 1.0 for concept in concepts[1:]]
            is_named = len(full_matches) >= NAMED and all(full_matches[:NAMED]) and _DELETING not in action_words
            fit *= 1.0 if is_named else OTHER_ACTION
        elif not head.postings:
            fit *= UNKNOWN_ACTION
        return min(1.0, fit / (total if total < LONG else LONG + (total - LONG) * BEYOND))


def _best_first(posting_lists: Iterable[Postings]) -> Postings:
    best: dict[int, float] = {}
    for postings in posting_lists:
        for number, impact in postings.items():
            if impact > best.get(number, 0.0):
                best[number] = impact
    return dict(sorted(best.items(), key=lambda item: -item[1]))
