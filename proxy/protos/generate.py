"""Generate the Python modules of the gRPC protocol: `python proxy/protos/generate.py`, with grpcio-tools.

The modules register their types in a pool of their own. The default pool of a process refuses a second
definition of a name, and Apache's Python client defines the same names.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
TARGET: Final = HERE.parent / "rmq_proxy" / "protocol"
_PROTOS: Final = "apache/rocketmq/v2"
_MODULES: Final = ("definition", "service")
_BUILDER: Final = "from google.protobuf.internal import builder as _builder\n"
_REPLACEMENTS: Final = (
    ("from apache.rocketmq.v2 import", "from rmq_proxy.protocol import"),
    ("from google.protobuf import descriptor_pool as _descriptor_pool\n", ""),
    ("_descriptor_pool.Default()", "POOL"),
    (_BUILDER, f"{_BUILDER}\nfrom rmq_proxy.protocol.pool import POOL\n"),
)


def generate(target: Path) -> list[Path]:
    """Write the modules and their stubs into `target`, and return them."""
    import grpc_tools  # noqa: PLC0415
    from grpc_tools import protoc  # noqa: PLC0415

    well_known = Path(grpc_tools.__file__).parent / "_proto"
    written: list[Path] = []
    with tempfile.TemporaryDirectory() as folder:
        arguments = [
            "protoc",
            f"-I{HERE}",
            f"-I{well_known}",
            f"--python_out={folder}",
            f"--pyi_out={folder}",
        ]
        if protoc.main([*arguments, *(f"{_PROTOS}/{module}.proto" for module in _MODULES)]) != 0:
            raise SystemExit("protoc failed, see above")
        for module in _MODULES:
            for suffix in (".py", ".pyi"):
                text = (Path(folder) / _PROTOS / f"{module}_pb2{suffix}").read_text()
                for old, new in _REPLACEMENTS:
                    text = text.replace(old, new)
                path = target / f"{module}_pb2{suffix}"
                path.write_text(text)
                written.append(path)
    return written


if __name__ == "__main__":
    for path in generate(TARGET):
        print(path, file=sys.stderr)
