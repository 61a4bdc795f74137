"""Helm releases: shown in previews, and refused when one has to be installed. There is no Helm in here."""

from providers.protocol.property_values import UNKNOWN, Json, Path, Properties, without_nulls
from providers.protocol.resource import Failure

IDENTITY: tuple[Path, ...] = (("name",), ("namespace",))


def check_release(news: Properties, name: str) -> tuple[Properties, tuple[Failure, ...]]:
    tree: Json = {"name": name, **without_nulls(news.tree)}
    failures = () if "chart" in tree else (Failure("chart", "a Helm release needs a chart"),)
    return Properties(tree, news.secrets), failures


def build_planned_release(inputs: Properties) -> Properties:
    return Properties({**inputs.tree, "status": UNKNOWN}, inputs.secrets)


def refusal(inputs: Json, version: str) -> str:
    chart = f"{inputs.get('chart', 'its chart')} {inputs.get('version', '')}".strip()
    return (
        f"the stand-in kubernetes plugin cannot install, change or remove the Helm release of {chart}: install the "
        f"official plugin with `pulumi plugin install resource kubernetes v{version}` and run this again"
    )
