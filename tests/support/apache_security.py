"""Apache's servers with access control (ACL 2.0) and TLS: server settings, users and client settings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from rmq_client import Admin, ClientSettings, Credentials
from rmq_client.network.broker_api import BrokerApi
from rmq_client.network.instance import ClientInstance
from rmq_remoting.codes import RequestCode
from rmq_remoting.headers.access_control import CreateAclRequestHeader, CreateUserRequestHeader
from tests.support.apache import WITH_TLS
from tests.support.certificates import Certificate

# The user with all rights.
SUPER_USER: Final = Credentials("keeper", "keepers-secret")
_AUTH: Final = "org.apache.rocketmq.auth"
ACCESS_CONTROL: Final = {
    "authenticationEnabled": "true",
    "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": json.dumps(
        {"username": SUPER_USER.access_key, "password": SUPER_USER.secret_key}
    ),
    "innerClientAuthenticationCredentials": json.dumps(
        {"accessKey": "inner", "secretKey": "inner-servers-secret"}
    ),
    # Without credentials, because probe.register_again has none.
    "authenticationWhitelist": "25",
    "authorizationEnabled": "true",
    "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
}


def with_tls(certificate: Certificate, folder: Path) -> Sequence[str]:
    """JVM options of a server with this certificate that offers TLS to clients."""
    file = folder / "tls.properties"
    file.write_text(
        "tls.test.mode.enable=false\n"
        f"tls.server.certPath={certificate.cert_file}\n"
        f"tls.server.keyPath={certificate.key_file}\n"
    )
    return (*WITH_TLS, f"-Dtls.config.file={file}")


async def create_user(namesrv: str, keys: Credentials) -> None:
    """Create a user without any rights on all brokers."""
    user = {"username": keys.access_key, "password": keys.secret_key, "userType": "Normal"}
    await _tell_brokers(
        namesrv, RequestCode.AUTH_CREATE_USER, CreateUserRequestHeader(username=keys.access_key), user
    )


async def grant(namesrv: str, keys: Credentials, rights: dict[str, list[str]]) -> None:
    """Grant rights to a user without any: actions by resource, as `{"Topic:orders": ["Pub"]}`."""
    subject = f"User:{keys.access_key}"
    entries = [
        {"resource": resource, "actions": actions, "decision": "Allow"}
        for resource, actions in rights.items()
    ]
    acl = {"subject": subject, "policies": [{"policyType": "Custom", "entries": entries}]}
    await _tell_brokers(namesrv, RequestCode.AUTH_CREATE_ACL, CreateAclRequestHeader(subject=subject), acl)


async def _tell_brokers(
    namesrv: str,
    code: RequestCode,
    header: CreateUserRequestHeader | CreateAclRequestHeader,
    body: Mapping[str, object],
) -> None:
    settings = ClientSettings(credentials=SUPER_USER)
    async with Admin(namesrv, settings=settings) as admin:
        brokers = (await admin.cluster_info()).brokers.values()
        instance = await ClientInstance.acquire(namesrv, settings)
        try:
            for address in [address for broker in brokers for address in broker.addresses.values()]:
                api = BrokerApi(instance.bridge(), settings)
                await api.call(address, code, header, json.dumps(body).encode())
        finally:
            await instance.release()
