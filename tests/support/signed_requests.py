"""Requests signed by a user of a broker with access control."""

from __future__ import annotations

import json
from collections.abc import Mapping

from rmq_client import Credentials
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.framing import FrameDecoder, encode_frame
from tests.support.raw_client import RawClient

ROOT = Credentials("root", "roots-secret")
INNER = Credentials("inner", "inners-secret")
# Settings of a broker with these two super users.
AUTHENTICATION: Mapping[str, object] = {
    "authenticationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": "root", "password": "roots-secret"}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": "inners-secret"}),
}


def signed(command: RemotingCommand, keys: Credentials) -> RemotingCommand:
    """The command with the signature of a user, as a client would send it."""
    (decoded,) = FrameDecoder().feed(keys.signer().sign(encode_frame(command)))
    return decoded


async def ask_as(
    client: RawClient,
    code: int,
    fields: dict[str, str] | None = None,
    body: object = None,
    *,
    keys: Credentials = ROOT,
    serialization: Serialization = Serialization.JSON,
) -> RemotingCommand:
    """The answer to a signed request; `body` is sent as JSON."""
    content = b"" if body is None else json.dumps(body).encode()
    request = RemotingCommand.request(code, fields or {}, content, serialization=serialization)
    return await client.ask(signed(request, keys))
