"""`gpu-platform specs`: the catalogue."""

import typer

from gpu_platform.cli.connection import connect
from gpu_platform.cli.options import AsJson, Name, Url
from gpu_platform.cli.output import build_details, print_json, print_rows, print_table

app = typer.Typer(help="The catalogue: which sizes of units there are.", no_args_is_help=True)


@app.command("list")
def list_specs(as_json: AsJson = False, url: Url = None) -> None:
    """List the catalogue."""
    with connect(url) as client:
        specs = client.list_specs()
    if as_json:
        print_json(specs)
        return
    print_rows(
        ("NAME", "GPU", "PRODUCT", "CPU", "MEMORY", "PRICE PER HOUR"),
        (
            (
                spec["name"],
                spec["gpu"],
                spec.get("gpuProduct"),
                spec["cpu"],
                spec["memory"],
                spec.get("pricePerHour"),
            )
            for spec in specs
        ),
        empty="the catalogue is empty; an operator can fill it",
    )


@app.command()
def get(name: Name, as_json: AsJson = False, url: Url = None) -> None:
    """Show an entry of the catalogue."""
    with connect(url) as client:
        spec = client.get_spec(name)
    if as_json:
        print_json(spec)
        return
    tolerations = [
        " ".join(f"{field}={value}" for field, value in toleration.items())
        for toleration in spec.get("tolerations") or ()
    ]
    fields = {
        "name": spec["name"],
        "gpu": spec["gpu"],
        "product": spec.get("gpuProduct"),
        "cpu": spec["cpu"],
        "memory": spec["memory"],
        "price per hour": spec.get("pricePerHour"),
        "nodes": "\n".join(f"{key}={value}" for key, value in (spec.get("nodeSelector") or {}).items()),
        "tolerations": "\n".join(tolerations),
        "runtime class": spec.get("runtimeClassName"),
        "user namespaces": "yes" if spec.get("userNamespaces") else None,
    }
    print_table(build_details(fields))
