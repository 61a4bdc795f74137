"""A plan's changes as Markdown, for a comment on a pull request. Nothing in a plan can leave its cell."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gpu_platform.cli.plans.changes import Change, Changes
from gpu_platform.cli.plans.digest import ABSENT, is_secret, is_unknown
from gpu_platform.cli.plans.rules import BrokenRule

MARK = "<!-- gpu-platform preview -->"
"""By which a workflow finds its own comment again."""

LONGEST = 60_000
"""Characters. GitHub refuses a comment of more than 65,536; the rest is for what a workflow adds."""

LONGEST_RULES = 20_000
"""Characters of the broken rules, so that the table keeps the larger part."""

MOST_PROPERTIES = 40

MOST_DECLARED = 6
"""Of a row; the second for what is new, where every property is."""

HEAD = ("| operation | kind | name | changes |", "|---|---|---|---|")
LOUD = frozenset({"delete", "replace"})
LONGEST_VALUE = 100

LONGEST_NAME = 200
"""Characters. Chosen by feel: two values and a path still fit into a few lines of a table's cell."""


def render_markdown(changes: Changes, broken: Sequence[BrokenRule]) -> str:
    rules = _fit([f"- **{rule.rule}**: {describe_rule(rule, code)}" for rule in broken], LONGEST_RULES, "broken rules")
    head = [MARK, f"### Preview: {build_heading(changes)}", ""]
    foot = ["", f"#### Broken rules: {len(broken)}", "", *rules] if broken else []
    if not changes.listed:
        return "\n".join([*head, "Nothing changes.", *foot]) + "\n"
    room = LONGEST - sum(len(line) + 1 for line in (*head, *HEAD, *foot))
    rows = _fit([_row(change) for change in changes.listed], room, "changed resources")
    return "\n".join([*head, *HEAD, *rows, *foot]) + "\n"


def build_heading(changes: Changes) -> str:
    return ", ".join(f"{count} {operation}" for operation, count in changes.counts.items())


def list_lines(change: Change, quote: Callable[[str], str], *, replaces: str) -> list[str]:
    """The properties that a row has place for, with their texts in these quotes, and how many more there are."""
    is_new = change.operation == "create"
    most = MOST_DECLARED if is_new else MOST_PROPERTIES
    lines = []
    for entry in change.properties[:most]:
        old, new = (
            build_value(value) if value is ABSENT else quote(build_value(value)) for value in (entry.old, entry.new)
        )
        told = f"{quote(build_path(entry.path))}: {new if is_new else f'{old} → {new}'}"
        lines.append(f"{told} {replaces}" if entry.replaces else told)
    more = len(change.properties) - most
    return [*lines, f"… and {more} more"] if more > 0 else lines


def _fit(lines: Sequence[str], room: int, what: str) -> list[str]:
    """As many lines as there is room for; if not all, the last one says how many are missing."""
    if sum(len(line) + 1 for line in lines) <= room:
        return list(lines)
    kept: list[str] = []
    # The empty line ends a table or list; without it, this sentence would be a row of it.
    left = room - len(_missing(len(lines), what)) - 2
    for line in lines:
        left -= len(line) + 1
        if left < 0:
            break
        kept.append(line)
    return [*kept, "", _missing(len(lines) - len(kept), what)]


def _missing(count: int, what: str) -> str:
    return f"… and {count} more {what}"


def _row(change: Change) -> str:
    operation = f"**{change.operation}**" if change.operation in LOUD else change.operation
    kind, lines = code(build_name(change.kind)), list_lines(change, code, replaces="**(replaces)**")
    return f"| {operation} | {kind} | {code(build_name(change.name))} | {'<br>'.join(lines) or '–'} |"


def describe_rule(rule: BrokenRule, quote: Callable[[str], str]) -> str:
    """Where it is broken, and why, with every text of the plan in these quotes."""
    found = "" if rule.found is ABSENT else f": {quote(build_value(rule.found))}"
    where = f"{quote(build_name(rule.kind))} {quote(build_name(rule.name))}, {quote(build_path(rule.path))}"
    return f"{where} {rule.reason}{found}"


def code(text: str) -> str:
    """A code span: no mention, link or markup inside has an effect. Its fence is longer than any inside.

    Texts come here with every backslash of their own doubled, so that the one before a pipe is ours.
    """
    fence = "`" * (1 + max((len(run) for run in _runs(text)), default=0))
    edge = " " if "`" in text or not text.strip() else ""
    return f"{fence}{edge}{text or ' '}{edge}{fence}".replace("|", "\\|")


def _runs(text: str) -> Iterable[str]:
    return re.findall("`+", text)


def build_value(value: Any) -> str:
    if value is ABSENT:
        return "–"
    if is_secret(value):
        return str(value)
    if is_unknown(value):
        return "known later"
    return cut(escape_invisible(json.dumps(value, ensure_ascii=False)), LONGEST_VALUE)


def build_name(text: str) -> str:
    """A name is a text without quotes, but nothing in it may break a line either."""
    return cut(escape_invisible(json.dumps(text, ensure_ascii=False)[1:-1]), LONGEST_NAME)


def build_path(text: str) -> str:
    """Already written with quotes where they are needed."""
    return cut(escape_invisible(text), LONGEST_NAME)


def cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def escape_invisible(text: str) -> str:
    """Characters that a reader does not see can make a line read as another one."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
