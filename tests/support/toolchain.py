"""Foreign programs: the places of their tools, and their builds, one per state of their sources.

`python -m tests.support.toolchain` builds all of them, so that no test has to.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
APACHE_SERVERS = ROOT / "tests" / "support" / "apache_servers"
APACHE_PROXY = ROOT / "tests" / "support" / "apache_proxy_server"
JAVA_CLIENT = ROOT / "tests" / "interop" / "java"
JAVA5_CLIENT = ROOT / "tests" / "interop" / "java5"
GO_CLIENT = ROOT / "tests" / "interop" / "go"
NODE_CLIENT = ROOT / "tests" / "interop" / "node"
NODE5_CLIENT = ROOT / "tests" / "interop" / "node5"
RUST5_CLIENT = ROOT / "tests" / "interop" / "rust5"
PYTHON_CLIENT = ROOT / "tests" / "interop" / "python" / "main.py"
BENCH_CLIENT = ROOT / "benchmarks" / "java"
BENCH5_CLIENT = ROOT / "benchmarks" / "java5"

OLDEST_JAVA = 17
_BUILD_TIMEOUT_SECONDS = 900
_OUTPUT_FOLDERS = {"target", "node_modules"}


class ToolMissing(Exception):
    """A tool that the build or the program needs is not on this machine."""


class BuildFailed(Exception):
    """The build failed although its tools are there; the text holds its output."""


@dataclass(frozen=True, slots=True)
class JavaProgram:
    """A built Maven project: the `java` to run it with and its class path."""

    java: Path
    class_path: str


@dataclass(frozen=True, slots=True)
class NodeProgram:
    node: Path
    script: Path


def apache_servers() -> JavaProgram:
    """Apache's name server and broker."""
    return _maven_project(APACHE_SERVERS, ["dependency:copy-dependencies"])


def apache_proxy() -> JavaProgram:
    """Apache's proxy, the gRPC server of the 5.x clients."""
    return libraries(APACHE_PROXY)


def java_client() -> JavaProgram:
    """The interop program over Apache's Java client, and mqadmin."""
    return _maven_project(JAVA_CLIENT, ["compile", "dependency:copy-dependencies"])


def java5_client() -> JavaProgram:
    """The interop program over Apache's Java client for 5.x, which speaks gRPC."""
    return _maven_project(JAVA5_CLIENT, ["compile", "dependency:copy-dependencies"])


def bench_client() -> JavaProgram:
    """The load program of the benchmarks."""
    return _maven_project(BENCH_CLIENT, ["compile", "dependency:copy-dependencies"])


def bench5_client() -> JavaProgram:
    """The load program of the proxy's benchmark."""
    return _maven_project(BENCH5_CLIENT, ["compile", "dependency:copy-dependencies"])


def libraries(project: Path) -> JavaProgram:
    """A Maven project that consists of its dependencies, in target/lib."""
    return _maven_project(project, ["dependency:copy-dependencies"])


def go_client() -> Path:
    """The interop program over Apache's Go client: an executable."""
    go = _tool("go", "a Go toolchain")
    executable = GO_CLIENT / "target" / "interop-go"
    with _build_needed(GO_CLIENT, GO_CLIENT / "target", [executable]) as needed:
        if needed:
            _run([str(go), "build", "-trimpath", "-o", str(executable), "."], GO_CLIENT)
    return executable


def node_client() -> NodeProgram:
    """The interop program over ali-ons."""
    return _node_project(NODE_CLIENT, "ali-ons")


def node5_client() -> NodeProgram:
    """The interop program over Apache's Node.js client for 5.x, which speaks gRPC."""
    return _node_project(NODE5_CLIENT, "rocketmq-client-nodejs")


def rust5_client() -> Path:
    """The interop program over Apache's Rust client for 5.x, which speaks gRPC: an executable."""
    cargo = _tool("cargo", "a Rust toolchain")
    target = RUST5_CLIENT / "target"
    executable = target / "debug" / "interop-rust5"
    with _build_needed(RUST5_CLIENT, target, [executable]) as needed:
        if needed:
            _run([str(cargo), "build", "--quiet", "--locked", "--target-dir", str(target)], RUST5_CLIENT)
    return executable


def _node_project(project: Path, package: str) -> NodeProgram:
    node = _tool("node", "Node.js")
    npm = _tool("npm", "npm")
    modules = project / "node_modules"
    with _build_needed(project, modules, [modules / package / "package.json"]) as needed:
        if needed:
            options = ["--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund"]
            _run([str(npm), "install", *options], project)
    return NodeProgram(node=node, script=project / "main.js")


def _maven_project(project: Path, goals: Sequence[str]) -> JavaProgram:
    java = _java()
    maven = _tool("mvn", "Maven")
    target = project / "target"
    libraries = target / "lib"
    with _build_needed(project, target, [libraries]) as needed:
        if needed:
            _run([str(maven), "-q", "-B", *goals], project)
    return JavaProgram(java=java, class_path=f"{target / 'classes'}:{libraries}/*")


def _java() -> Path:
    java = _tool("java", f"a JDK of version {OLDEST_JAVA} or later")
    _tool("javac", f"a JDK of version {OLDEST_JAVA} or later (there is only a run-time environment)")
    printed = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    version = int(printed.split('"')[1].split(".")[0])
    if version < OLDEST_JAVA:
        raise ToolMissing(f"{java} is of version {version}; {OLDEST_JAVA} or later is needed")
    return java


def _tool(name: str, what: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise ToolMissing(f"{what} is needed: there is no `{name}` on the PATH")
    return Path(found)


@contextmanager
def _build_needed(project: Path, output: Path, products: Sequence[Path]) -> Iterator[bool]:
    """Hold the project's build lock; yield whether to build; after a build, record the sources' state."""
    output.mkdir(exist_ok=True)
    with (output / ".build-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = output / ".built-from"
        state = _source_state(project)
        needed = (
            not all(product.exists() for product in products)
            or not stamp.exists()
            or stamp.read_text() != state
        )
        yield needed
        if needed:
            stamp.write_text(state)


def _source_state(project: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(project.rglob("*")):
        if path.is_file() and not _OUTPUT_FOLDERS & set(path.relative_to(project).parts):
            digest.update(f"{path.relative_to(project)}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _run(command: Sequence[str], cwd: Path) -> None:
    # Without standard input, because a build that asks a question would hang.
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_BUILD_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BuildFailed(f"{' '.join(command)} in {cwd} took over {_BUILD_TIMEOUT_SECONDS} s") from error
    if done.returncode != 0:
        raise BuildFailed(
            f"{' '.join(command)} in {cwd} ended with {done.returncode}:\n{done.stdout[-6000:]}"
        )


BUILDS: dict[str, Callable[[], object]] = {
    "apache-servers": apache_servers,
    "apache-proxy": apache_proxy,
    "java": java_client,
    "java5": java5_client,
    "go": go_client,
    "node": node_client,
    "node5": node5_client,
    "rust5": rust5_client,
    "bench": bench_client,
    "bench5": bench5_client,
}


def main(names: Sequence[str]) -> int:
    """Build the named programs, or all; a missing tool is an error only for a named program."""
    exit_code = 0
    for name in names or BUILDS:
        if name not in BUILDS:
            print(f"{name}: no such build; there are {', '.join(BUILDS)}", file=sys.stderr)
            return os.EX_USAGE
        try:
            BUILDS[name]()
            print(f"{name}: built")
        except ToolMissing as missing:
            print(f"{name}: left out: {missing}", file=sys.stderr)
            exit_code |= bool(names)
        except BuildFailed as failed:
            print(f"{name}: {failed}", file=sys.stderr)
            exit_code = 1
    return exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
