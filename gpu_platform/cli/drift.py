"""`gpu-platform drift`: what is not as it was accepted, and what is being done about it."""

import json
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

import typer

from gpu_platform.api_models.stacks import CorrectionView, DriftReport, DriftView, FieldDrift
from gpu_platform.cli.options import AsJson, Url
from gpu_platform.cli.output import build_age, now, print_answer, print_json, print_line, print_rows
from gpu_platform.cli.resources import connect
from gpu_platform.client import Answer, PlatformError, RawClient
from gpu_platform.domain.json_text import Json

PAUSE_SECONDS = 1.0
MADE_AGAIN = "was deleted: made again"

Watch = Annotated[bool, typer.Option("--watch", "-w", help="Print a line whenever something changes. Ctrl-C ends it.")]


def drift(as_json: AsJson = False, watch: Watch = False, url: Url = None) -> None:
    """Show what is not as it was accepted, since when, and what is being done; needs an operator's key."""
    with connect(url) as client:
        if watch:
            _watch(client, as_json=as_json)
            return
        answer = client.drift.get()
    print_answer(answer, _print_report, as_json=as_json)


def _print_report(report: DriftReport) -> None:
    print_rows(
        ("STACK", "SINCE", "DIFFERS", "DOING", "ERROR"),
        (
            (item.stack, build_age(item.since, now()), _differences_of(item), item.doing, item.error)
            for item in report.items
        ),
        empty="everything is as it was accepted",
    )
    if report.total > len(report.items):
        print_line(f"and {report.total - len(report.items)} more")
    if report.corrected:
        print_line("")
        print_rows(
            ("CORRECTED", "AGO", "TOOK", "WHAT"),
            (
                (
                    item.stack,
                    build_age(item.corrected_at, now()),
                    f"{(item.corrected_at - item.since).total_seconds():.1f} s",
                    _corrections_of(item),
                )
                for item in report.corrected
            ),
            empty="",
        )


def _watch(client: RawClient, *, as_json: bool) -> None:
    known: Answer[DriftReport] | None = None
    while True:
        try:
            answer = client.drift.get()
        except PlatformError as error:
            if known is None or not error.is_passing:
                raise
        else:
            documents = (_find_documents(known) if known else {}) | _find_documents(answer)
            for event, item in find_news(known.value if known else None, answer.value):
                if as_json:
                    print_json({"event": event, "data": documents[id(item)]}, indent=None)
                else:
                    _print_news(event, item)
            known = answer
        time.sleep(PAUSE_SECONDS)


def _find_documents(answer: Answer[DriftReport]) -> dict[int, Json]:
    """What the API sent for each item, by the identity of the item."""
    pairs = [
        *zip(answer.value.items, answer.document["items"], strict=True),
        *zip(answer.value.corrected, answer.document["corrected"], strict=True),
    ]
    return {id(item): document for item, document in pairs}


def find_news(known: DriftReport | None, report: DriftReport) -> Iterator[tuple[str, DriftView | CorrectionView]]:
    """What is new since the last look: something differs, is treated otherwise, was corrected, or settled by itself.

    What was corrected between two looks was never seen to differ, and is news all the same.
    """
    before = {item.stack: item for item in known.items} if known else {}
    for item in report.items:
        last = before.pop(item.stack, None)
        if last is None or (last.action, last.error) != (item.action, item.error):
            yield "differs", item
    told = {_identity(item) for item in known.corrected} if known else None
    for correction in reversed(report.corrected):
        if told is not None and _identity(correction) not in told:
            before.pop(correction.stack, None)
            yield "corrected", correction
    for gone in before.values():
        yield "settled", gone


def _identity(item: CorrectionView) -> tuple[str, datetime]:
    return item.stack, item.corrected_at


def _print_news(event: str, item: DriftView | CorrectionView) -> None:
    clock = now().astimezone().strftime("%H:%M:%S")
    colour = {"differs": "yellow", "corrected": "green"}.get(event, "")
    what = _corrections_of(item) if isinstance(item, CorrectionView) else _differences_of(item)
    doing = item.doing if isinstance(item, DriftView) and event == "differs" else ""
    error = item.error if isinstance(item, DriftView) else None
    print_line(f"{clock}  ", (f"{event:<9}", colour), "  ", "  ".join(filter(None, (item.stack, what, doing, error))))


def _differences_of(item: DriftView) -> str:
    """The fields that differ; empty where the object itself is missing."""
    return ", ".join(
        f"{change.field}: accepted {_value(change.accepted)}, found {_value(change.found)}"
        for change in item.differences
    )


def _corrections_of(item: CorrectionView) -> str:
    return ", ".join(map(_describe_correction, item.differences)) or MADE_AGAIN


def _describe_correction(change: FieldDrift) -> str:
    if change.accepted is None:
        return f"{change.field}: removed again (was {_value(change.found)})"
    return f"{change.field}: put back to {_value(change.accepted)} (was {_value(change.found)})"


def _value(value: Any) -> str:
    """As JSON, so that a text with spaces or commas in it is one value."""
    return "not set" if value is None else json.dumps(value, ensure_ascii=False, sort_keys=True)
