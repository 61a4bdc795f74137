"""Rents one GPU unit that serves HTTP, and says where it answers."""

import pulumi

from gpu_platform.pulumi import GpuUnit

config = pulumi.Config()

unit = GpuUnit(
    "web",
    name=config.get("name") or "tenant-web",
    spec_name=config.get("specName") or "host.1",
    image=config.get("image") or "example/web",
    template={
        "command": ["python3", "-u", "-m", "http.server"],
        "args": ["--bind", "$(POD_IP)", "8000"],
        "ports": [{"name": "http", "port": 8000}],
        "probes": {"readiness": {"http": {"port": "http"}, "periodSeconds": 1}},
    },
    ready_within_seconds=config.get_int("readyWithinSeconds"),
)

pulumi.export("accessURL", unit.access_url)
pulumi.export("phase", unit.phase)
pulumi.export("stack", unit.stack)
