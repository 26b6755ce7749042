"""A schema registry in memory, for the examples with Avro and Protobuf. It forgets everything at its end.

It has the two requests of Confluent's registry that producers and readers need:

    POST /subjects/{subject}/versions   {"schema": …, "schemaType": …}   -> {"id": 1}
    GET  /schemas/ids/{id}                                               -> {"schema": …, "schemaType": …}
"""

from __future__ import annotations

import json
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


class SmallRegistry:
    """`with SmallRegistry() as registry`: serves at `registry.url`."""

    def __init__(self) -> None:
        schemas: list[dict[str, str]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if given not in schemas:
                    schemas.append(given)
                self._answer({"id": schemas.index(given) + 1})

            def do_GET(self) -> None:
                number = int(self.path.partition("?")[0].rpartition("/")[2])
                if 0 < number <= len(schemas):
                    self._answer(schemas[number - 1])
                else:
                    self._answer({"error_code": 40403, "message": "Schema not found"}, status=404)

            def _answer(self, content: dict[str, Any], status: int = 200) -> None:
                body = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


def register(url: str, subject: str, schema: str, kind: str) -> int:
    """Register a schema; return its id."""
    request = urllib.request.Request(
        f"{url}/subjects/{subject}/versions",
        data=json.dumps({"schema": schema, "schemaType": kind}).encode(),
        headers={"Content-Type": "application/vnd.schemaregistry.v1+json"},
    )
    with urllib.request.urlopen(request) as answer:
        number: int = json.load(answer)["id"]
        return number
