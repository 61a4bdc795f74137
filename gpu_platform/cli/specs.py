"""`gpu-platform specs`: the catalogue."""

import typer

from gpu_platform.api_models.stock import SpecView
from gpu_platform.cli.options import AsJson, Url
from gpu_platform.cli.resources import Columns, add_show, connect, print_list

app = typer.Typer(help="The catalogue: which sizes of units there are.", no_args_is_help=True)

COLUMNS: Columns[SpecView] = {
    "NAME": lambda spec: spec.name,
    "GPU": lambda spec: spec.gpu,
    "PRODUCT": lambda spec: spec.gpu_product,
    "CPU": lambda spec: spec.cpu,
    "MEMORY": lambda spec: spec.memory,
    "PRICE PER HOUR": lambda spec: spec.price_per_hour,
}


@app.command("list")
def list_specs(as_json: AsJson = False, url: Url = None) -> None:
    """List the catalogue."""
    with connect(url) as client:
        answer = client.specs.list()
    print_list(answer, COLUMNS, empty="the catalogue is empty; an operator can fill it", as_json=as_json)


def _build_fields(spec: SpecView) -> dict[str, object]:
    tolerations = (" ".join(f"{field}={value}" for field, value in each.to_json().items()) for each in spec.tolerations)
    return {
        "name": spec.name,
        "gpu": spec.gpu,
        "product": spec.gpu_product,
        "cpu": spec.cpu,
        "memory": spec.memory,
        "price per hour": spec.price_per_hour,
        "nodes": "\n".join(f"{key}={value}" for key, value in spec.node_selector.items()),
        "tolerations": "\n".join(tolerations),
        "runtime class": spec.runtime_class_name,
        "user namespaces": "yes" if spec.user_namespaces else None,
    }


add_show(app, "get", "Show an entry of the catalogue.", lambda client: client.specs.get, _build_fields)
