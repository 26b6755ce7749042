"""Settings of the gRPC face in the broker's process."""

from __future__ import annotations

from rmq_remoting.daemon.settings import OptionalPath, Port, SettingsGroup, setting


class GrpcSettings(SettingsGroup):
    """gRPC

    The gRPC face for the 5.x clients; grpc.md describes it.
    """

    grpc_server_port: Port = setting(
        0,
        "grpcServerPort",
        "Port on which this process also serves the 5.x clients, which speak gRPC; 0: none. All brokers of "
        "the cluster need the same port.",
        ours=True,
    )
    proxy_config_path: OptionalPath = setting(
        None,
        "proxyConfigPath",
        "File with further settings of gRPC, in the form of Apache's rmq-proxy.json.",
        ours=True,
    )
