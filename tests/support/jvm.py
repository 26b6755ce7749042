"""Command lines of Java programs with Apache RocketMQ's classes that write only below a given folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.toolchain import JavaProgram

# Netty and the store of Apache RocketMQ 5.3.3 use these packages; Java 9 and later need to be told.
_OPENED_MODULES = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
)
# For JVMs that live for seconds or minutes: optimizing compilation and the verification of classes cost more
# than they save. A Spark session needs half the CPU time with these options.
QUICK = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
    "-Xshare:auto",
)
SHORT_LIVED = (*QUICK, "-Xmx256m")


def java_command(
    program: JavaProgram,
    main_class: str,
    arguments: Sequence[str],
    *,
    home: Path,
    jvm_options: Sequence[str] = SHORT_LIVED,
    properties: Mapping[str, str] | None = None,
) -> list[str]:
    """The command that runs `main_class`; logs, offsets and unpacked libraries of the JVM go below `home`."""
    temporary = home / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    all_properties = {
        "user.home": str(home),
        "java.io.tmpdir": str(temporary),
        "rocketmq.home.dir": str(home),
        "rocketmq.log.root": str(home / "logs"),
        "rocketmq.log.level": "WARN",
        "rocketmq.client.logRoot": str(home / "logs"),
        "file.encoding": "UTF-8",
        **(properties or {}),
    }
    return [
        str(program.java),
        "-XX:-UsePerfData",
        *_OPENED_MODULES,
        *jvm_options,
        *(f"-D{name}={value}" for name, value in all_properties.items()),
        "-cp",
        program.class_path,
        main_class,
        *arguments,
    ]
