"""The command `rmq-broker`."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rmq_remoting.daemon.command_line import command_parser, load_from, print_config
from rmq_remoting.daemon.configuration import Override, Problem, ProblemKind, SettingsError
from rmq_remoting.daemon.lifecycle import run_command, run_daemon

from .settings.broker import BrokerSettings, known_keys

if TYPE_CHECKING:
    from rmq_remoting.daemon.configuration import Configuration
    from rmq_remoting.daemon.lifecycle import Daemon
    from rmq_remoting.daemon.tasks import TaskSupervisor

_DEFAULT_NAMESRV_PORT: Final = 9876
_THIS_MACHINE: Final = "127.0.0.1"


def main() -> int:
    """Run the command; return the exit code."""
    return run_command(_command)


def _command(arguments: Sequence[str]) -> int:
    options = argument_parser().parse_args(arguments)
    configuration = load_from(
        options,
        BrokerSettings,
        known_keys,
        {"-n": ("namesrvAddr", options.namesrv), "--store": ("storePathRootDir", options.store)},
        _this_machine_only if options.standalone else _no_defaults,
    )
    if options.print_config:
        print_config(configuration)
        return 0
    if options.print_processors:
        _print_processors(configuration)
        return 0
    if options.shards is not None:
        return _serve_shards(configuration, options)
    return _serve(configuration, options)


def argument_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser("rmq-broker", "RocketMQ broker: stores messages and delivers them to consumers.")
    parser.add_argument(
        "-n", "--namesrv", metavar="HOST:PORT[;...]", help="name servers to register with (namesrvAddr)"
    )
    parser.add_argument("--store", metavar="DIR", help="folder of the store (storePathRootDir)")
    parser.add_argument(
        "--standalone",
        action="store_true",
        help="also run a name server in this process, for tests and laptops; implies --grpc; all listen on "
        "127.0.0.1 unless bindAddress or brokerIP1 is set",
    )
    parser.add_argument(
        "--namesrv-port",
        metavar="PORT",
        type=int,
        default=_DEFAULT_NAMESRV_PORT,
        help="port of this name server (default 9876; 0: any free port)",
    )
    parser.add_argument(
        "--grpc",
        action="store_true",
        help="serve gRPC if its packages are installed, on port 8081 or, if that is taken, on any free port; "
        "grpcServerPort sets another one (0: none)",
    )
    parser.add_argument(
        "--shards",
        metavar="N",
        help="run N brokers on this machine, each in a process of its own; auto: one for each usable core",
    )
    parser.add_argument(
        "--print-processors", action="store_true", help="print the tier of each request code and exit"
    )
    return parser


def _no_defaults(given: Sequence[Override]) -> list[Override]:
    return []


def _this_machine_only(given: Sequence[Override]) -> list[Override]:
    """Return the addresses of `--standalone`, whose daemons are for tests and laptops only."""
    if any(override.key in ("bindAddress", "brokerIP1") for override in given):
        return []
    return [Override(key, _THIS_MACHINE, "--standalone") for key in ("bindAddress", "brokerIP1", "brokerIP2")]


def _print_processors(configuration: Configuration[BrokerSettings]) -> None:
    import asyncio  # noqa: PLC0415 (imported late: --help is fast)

    from rmq_remoting.daemon.processor_listing import processor_listing  # noqa: PLC0415

    from .build import build_dispatcher  # noqa: PLC0415

    print(processor_listing(asyncio.run(build_dispatcher(configuration))), end="")


def _serve(configuration: Configuration[BrokerSettings], options: argparse.Namespace) -> int:
    from rmq_remoting.daemon.process import prepare_process  # noqa: PLC0415

    from .build import build_broker  # noqa: PLC0415
    from .grpc_port import choose_grpc_port  # noqa: PLC0415

    if "RMQ_CRASH_POINT" in os.environ:
        from .store.crash_points import install  # noqa: PLC0415 (for crash tests only)

        install(os.environ)

    settings = configuration.settings
    namesrv_port = options.namesrv_port if options.standalone else None
    is_given = "grpc_server_port" in settings.model_fields_set
    by_default = not is_given and (options.grpc or namesrv_port is not None)
    if settings.grpc_server_port or by_default:
        _load_grpc()

    async def build(supervisor: TaskSupervisor) -> Daemon:
        if options.grpc:
            choose_grpc_port(settings)
        if settings.enable_controller_mode:
            return await _build_controlled(configuration, supervisor, namesrv_port)
        if namesrv_port is None:
            return await build_broker(configuration, supervisor)
        from .standalone import build_standalone  # noqa: PLC0415 (only this form imports the name server)

        return await build_standalone(configuration, supervisor, namesrv_port)

    prepare_process(configuration, "rmq.broker")
    return run_daemon(
        build, ready_file=options.ready_file, stop_timeout_seconds=settings.shutdown_wait_seconds
    )


def _load_grpc() -> None:
    """Import the gRPC face before `prepare_process`, which excludes all that is loaded from collections."""
    with contextlib.suppress(ModuleNotFoundError):  # the build of the broker reports a missing package
        import rmq_broker.local_proxy  # noqa: F401, PLC0415


async def _build_controlled(
    configuration: Configuration[BrokerSettings], supervisor: TaskSupervisor, namesrv_port: int | None
) -> Daemon:
    from rmq_remoting.daemon.lifecycle import StartError  # noqa: PLC0415 (as in _serve)

    from .controlled import build_controlled  # noqa: PLC0415 (only a broker with a controller imports this)

    if namesrv_port is not None:
        raise StartError(
            "--standalone cannot be combined with enableControllerMode=true: a group needs a name server "
            "that outlives each of its brokers; run rmq-namesrv, and give its address by -n"
        )
    return await build_controlled(configuration, supervisor)


def _serve_shards(configuration: Configuration[BrokerSettings], options: argparse.Namespace) -> int:
    from rmq_remoting.daemon.process import prepare_process  # noqa: PLC0415

    from .shards.plan import check_root, plan_shards, shard_count  # noqa: PLC0415 (only this form has shards)
    from .shards.supervisor import STOP_SECONDS_BEYOND_SHARDS, ShardSupervisor, shard_arguments  # noqa: PLC0415

    settings = configuration.settings
    if options.standalone:
        reason = "cannot be combined with --standalone; run rmq-namesrv, and give its address by -n"
        raise SettingsError([Problem(ProblemKind.CONFLICT, "--shards", options.shards, "", reason)])
    if settings.grpc_server_port or options.grpc:
        reason = "cannot be combined with grpcServerPort or --grpc; run rmq-proxy, which serves all shards"
        raise SettingsError([Problem(ProblemKind.CONFLICT, "--shards", options.shards, "", reason)])
    plans = plan_shards(settings, shard_count(options.shards))
    check_root(settings.store_path_root_dir, len(plans))
    assignments = dict(options.set)
    if options.namesrv is not None:
        assignments["namesrvAddr"] = options.namesrv
    arguments = shard_arguments(options.config, assignments)

    async def build(supervisor: TaskSupervisor) -> Daemon:
        return ShardSupervisor(settings, supervisor, plans, arguments)

    prepare_process(configuration, "rmq.broker")
    stop_seconds = settings.shutdown_wait_seconds + STOP_SECONDS_BEYOND_SHARDS
    return run_daemon(build, ready_file=options.ready_file, stop_timeout_seconds=stop_seconds)


if __name__ == "__main__":
    sys.exit(main())
