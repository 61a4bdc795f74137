"""`gpu-platform drift`: what is not as it was accepted, and what is being done about it."""

import json
import time
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import typer

from gpu_platform.cli.client import PlatformClient
from gpu_platform.cli.connection import connect
from gpu_platform.cli.errors import PlatformError
from gpu_platform.cli.options import AsJson, Url
from gpu_platform.cli.output import build_age, now, parse_instant, print_json, print_line, print_rows
from gpu_platform.cli.views import CorrectionView, DriftReport, DriftView, FieldDriftView

PAUSE_SECONDS = 1.0
MADE_AGAIN = "was deleted: made again"

Watch = Annotated[bool, typer.Option("--watch", "-w", help="Print a line whenever something changes. Ctrl-C ends it.")]


def drift(as_json: AsJson = False, watch: Watch = False, url: Url = None) -> None:
    """Show what is not as it was accepted, since when, and what is being done; needs an operator's key."""
    with connect(url) as client:
        if watch:
            _watch(client, as_json=as_json)
            return
        report = client.get_drift()
    if as_json:
        print_json(report)
        return
    _print_report(report)


def _print_report(report: DriftReport) -> None:
    print_rows(
        ("STACK", "SINCE", "DIFFERS", "DOING", "ERROR"),
        (
            (item["stack"], build_age(item["since"], now()), _differences_of(item), item["doing"], item.get("error"))
            for item in report["items"]
        ),
        empty="everything is as it was accepted",
    )
    if report["total"] > len(report["items"]):
        print_line(f"and {report['total'] - len(report['items'])} more")
    if report["corrected"]:
        print_line("")
        print_rows(
            ("CORRECTED", "AGO", "TOOK", "WHAT"),
            (
                (
                    item["stack"],
                    build_age(item["correctedAt"], now()),
                    f"{_seconds_of(item):.1f} s",
                    _corrections_of(item),
                )
                for item in report["corrected"]
            ),
            empty="",
        )


def _watch(client: PlatformClient, *, as_json: bool) -> None:
    known: DriftReport | None = None
    while True:
        try:
            report = client.get_drift()
        except PlatformError as error:
            if known is None or not error.is_passing:
                raise
        else:
            for event, item in find_news(known, report):
                _print_news(event, item, as_json=as_json)
            known = report
        time.sleep(PAUSE_SECONDS)


def find_news(known: DriftReport | None, report: DriftReport) -> Iterator[tuple[str, DriftView | CorrectionView]]:
    """What is new since the last look: something differs, is treated otherwise, was corrected, or settled by itself.

    What was corrected between two looks was never seen to differ, and is news all the same.
    """
    before = {item["stack"]: item for item in known["items"]} if known else {}
    for item in report["items"]:
        last = before.pop(item["stack"], None)
        if last is None or (last["action"], last.get("error")) != (item["action"], item.get("error")):
            yield "differs", item
    told = {_identity(item) for item in known["corrected"]} if known else None
    for correction in reversed(report["corrected"]):
        if told is not None and _identity(correction) not in told:
            before.pop(correction["stack"], None)
            yield "corrected", correction
    for gone in before.values():
        yield "settled", gone


def _identity(item: CorrectionView) -> tuple[str, str]:
    return item["stack"], item["correctedAt"]


def _print_news(event: str, item: DriftView | CorrectionView, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"event": event, "data": item}, ensure_ascii=False))
        return
    clock = now().astimezone().strftime("%H:%M:%S")
    colour = {"differs": "yellow", "corrected": "green"}.get(event, "")
    doing = str(item.get("doing") or "") if event == "differs" else ""
    what = _corrections_of(item) if event == "corrected" else _differences_of(item)
    parts = (item["stack"], what, doing, str(item.get("error") or ""))
    print_line(f"{clock}  ", (f"{event:<9}", colour), "  ", "  ".join(filter(None, parts)))


def _differences_of(item: DriftView | CorrectionView) -> str:
    """The fields that differ; empty where the object itself is missing."""
    return ", ".join(map(_describe_difference, item.get("differences") or ()))


def _describe_difference(change: FieldDriftView) -> str:
    return f"{change['field']}: accepted {_value(change, 'accepted')}, found {_value(change, 'found')}"


def _corrections_of(item: DriftView | CorrectionView) -> str:
    return ", ".join(map(_describe_correction, item.get("differences") or ())) or MADE_AGAIN


def _describe_correction(change: FieldDriftView) -> str:
    if change.get("accepted") is None:
        return f"{change['field']}: removed again (was {_value(change, 'found')})"
    return f"{change['field']}: put back to {_value(change, 'accepted')} (was {_value(change, 'found')})"


def _value(change: FieldDriftView, side: Literal["accepted", "found"]) -> str:
    """As JSON, so that a text with spaces or commas in it is one value."""
    value: Any = change.get(side)
    return "not set" if value is None else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _seconds_of(item: CorrectionView) -> float:
    return (parse_instant(item["correctedAt"]) - parse_instant(item["since"])).total_seconds()
