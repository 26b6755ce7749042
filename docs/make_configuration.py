"""Write docs/configuration.md from the settings themselves: `python docs/make_configuration.py`."""

from __future__ import annotations

from pathlib import Path

from rmq_broker.settings.broker import BrokerSettings
from rmq_namesrv.config import NamesrvSettings
from rmq_proxy.daemon_settings import ProxyDaemonSettings
from rmq_remoting.daemon.reference import markdown_tables, unsupported_table
from rmq_remoting.daemon.settings import SettingsGroup, describe_settings

_PAGE = Path(__file__).with_name("configuration.md")
_HEAD = """\
# Settings

Settings are given in a properties file (`-c FILE`) or by `--set key=value`. Those that say so can be
changed at run time with `mqadmin updateBrokerConfig` or `updateNamesrvConfig`. Keys and defaults are those
of Apache RocketMQ 5.3.3 unless a row says otherwise. A key of Apache's that is not listed here is accepted
with a warning and has no effect. Values that ask for a missing feature are refused at start and at run
time: [broker](#values-that-the-broker-refuses), [name server](#values-that-the-name-server-refuses),
[proxy](#values-that-the-proxy-refuses). `rmq-proxy -pc FILE` also reads settings in the form of Apache's
`rmq-proxy.json`, and so does `proxyConfigPath` of a broker.

Two kinds of settings may come from elsewhere. The environment variable `NAMESRV_ADDR` is the default of
`namesrvAddr`. Settings of TLS are also looked for where Apache's servers read them: in the file
`tls.config.file`, and among Java options in the environment (`-Dtls.server.mode=enforcing` in `JAVA_OPT`,
`JAVA_OPT_EXT`, `JAVA_TOOL_OPTIONS`, `JDK_JAVA_OPTIONS` or `_JAVA_OPTIONS`). Of one key, the command line
counts first, then the daemon's own file, `tls.config.file`, and the Java options. All other Java options are
ignored.

Passwords are masked in the output of `--print-config` and `getBrokerConfig`.

This page is written by `python docs/make_configuration.py`.
"""


def page() -> str:
    """Return the whole page."""
    broker = markdown_tables(describe_settings(BrokerSettings))
    namesrv = markdown_tables(describe_settings(NamesrvSettings))
    proxy = markdown_tables(describe_settings(ProxyDaemonSettings))
    return (
        f"{_HEAD}\n# Broker\n\n{broker}\n{_refused('broker', BrokerSettings)}"
        f"\n# Name server\n\n{namesrv}\n{_refused('name server', NamesrvSettings)}"
        f"\n# Proxy\n\n{proxy}\n{_refused('proxy', ProxyDaemonSettings)}"
    )


def _refused(daemon: str, model: type[SettingsGroup]) -> str:
    return f"## Values that the {daemon} refuses\n\n{unsupported_table(model.unsupported)}"


if __name__ == "__main__":
    _PAGE.write_text(page())
