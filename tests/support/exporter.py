"""A small exporter of GPU figures, as NVIDIA's answers: Prometheus' text format over HTTP."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FIGURES = {
    "DCGM_FI_DEV_GPU_UTIL": (75, 0),
    "DCGM_FI_DEV_FB_USED": (61_440, 512),
    "DCGM_FI_DEV_FB_FREE": (20_480, 81_408),
    "DCGM_FI_DEV_SM_CLOCK": (1_980, 345),
}


def exporter_text(namespace: str = "runtime-instance", pod: str = "unit-demo-1") -> str:
    """Two GPUs of a node; the first one is this pod's."""
    lines = []
    for name, (first, second) in FIGURES.items():
        lines += [f"# HELP {name} Something (in something).", f"# TYPE {name} gauge"]
        lines.append(f"{name}{{{_labels(0, 'GPU-a', namespace, pod)}}} {first}")
        lines.append(f"{name}{{{_labels(1, 'GPU-b', '', '')}}} {second}")
    return "".join(f"{line}\n" for line in lines)


def _labels(gpu: int, uuid: str, namespace: str, pod: str) -> str:
    labels = {
        "gpu": str(gpu),
        "UUID": uuid,
        "device": f"nvidia{gpu}",
        "modelName": "NVIDIA H100",
        "Hostname": "node-a",
        "container": "runtime-worker" if pod else "",
        "namespace": namespace,
        "pod": pod,
    }
    return ",".join(f'{name}="{value}"' for name, value in labels.items())


class Exporter:
    """What it answers can be changed while it runs."""

    def __init__(self) -> None:
        self.text = exporter_text()
        self.status = 200
        self.is_silent = False
        self.url = ""
        self.asked = 0
        self._silence = threading.Event()

    def wait(self) -> None:
        if self.is_silent:
            self._silence.wait(timeout=60)

    def end(self) -> None:
        self._silence.set()


@contextmanager
def running_exporter() -> Iterator[Exporter]:
    exporter = Exporter()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            exporter.asked += 1
            exporter.wait()
            body = exporter.text.encode()
            self.send_response(exporter.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is called
            del format, args

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        exporter.url = f"http://127.0.0.1:{server.server_address[1]}/metrics"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield exporter
        finally:
            exporter.end()
            server.shutdown()
            thread.join()
