"""Helm releases: shown in previews, and refused when one has to be installed. There is no Helm in here."""

from collections.abc import Iterator
from pathlib import Path

from gpu_platform.pulumi_protocol import properties as property_values
from gpu_platform.pulumi_protocol.properties import UNKNOWN, Json, Properties, without_nulls
from providers.protocol.resource import Failure

IDENTITY: tuple[property_values.Path, ...] = (("name",), ("namespace",))


def check_release(news: Properties, name: str) -> tuple[Properties, tuple[Failure, ...]]:
    tree: Json = {"name": name, **without_nulls(news.tree)}
    return Properties(tree, news.secrets), tuple(_find_failures(tree))


def _find_failures(tree: Json) -> Iterator[Failure]:
    """The official plugin loads the chart here, also in a preview, and so fails when it cannot be had. Of that, this
    looks at what needs no Helm: whether a local chart is there."""
    chart = tree.get("chart")
    if chart is None:
        yield Failure("chart", "a Helm release needs a chart")
    elif isinstance(chart, str) and chart.startswith((".", "/")) and not Path(chart, "Chart.yaml").is_file():
        yield Failure("chart", f"there is no chart in {chart}: it has no Chart.yaml")


def build_planned_release(inputs: Properties) -> Properties:
    return Properties({**inputs.tree, "status": UNKNOWN}, inputs.secrets)


def refusal(inputs: Json, version: str) -> str:
    chart = f"{inputs.get('chart', 'its chart')} {inputs.get('version', '')}".strip()
    return (
        f"the stand-in kubernetes plugin cannot install, change or remove the Helm release of {chart}: install the "
        f"official plugin with `pulumi plugin install resource kubernetes v{version}` and run this again"
    )
