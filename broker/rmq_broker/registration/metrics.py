"""Metrics of the registration with name servers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from rmq_remoting.daemon.exposition import Family

if TYPE_CHECKING:
    from .registrar import Registrar

_BY_NAME_SERVER: Final = ("name_server",)


class RegistrationCollector:
    """State of the broker's registration, by name server."""

    def __init__(self, registrar: Registrar) -> None:
        self._registrar = registrar

    def collect(self) -> Iterable[Family]:
        """All families of the registration."""
        links = self._registrar.links
        yield Family(
            "rmq_name_server_registered",
            "gauge",
            "1: the name server has taken this broker's registration over the present connection; 0: not.",
            [((link.address,), int(link.is_registered)) for link in links],
            _BY_NAME_SERVER,
        )
        yield Family(
            "rmq_name_server_route_conflict",
            "gauge",
            "1: the name server had another broker of this name at the last registration; 0: none.",
            [((link.address,), int(link.conflict.holder is not None)) for link in links],
            _BY_NAME_SERVER,
        )
