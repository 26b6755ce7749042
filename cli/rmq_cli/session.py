"""What every command needs: the cluster, the form of output, and the user's consent."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Final, cast

import typer

from rmq_client import AlreadyExists, ClientError, ClientSettings, Credentials, TlsSettings, TopicNotFound
from rmq_client.blocking import Admin

from .exits import CommandFailed, Exit, exit_code
from .output import Format, Output
from .profiles import Profile, load_profiles


@dataclass(frozen=True, slots=True)
class Options:
    """Options that all commands have; None leaves a value to the environment and the profile."""

    namesrv: str | None = None
    profile: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    tls: bool | None = None
    tls_ca: str | None = None
    tls_verify: str | None = None
    namespace: str | None = None
    timeout: float | None = None
    output: Format | None = None
    dry_run: bool = False
    yes: bool = False


# Environment variables by the key of a profile. The first is that of Apache's clients.
_VARIABLES: Final = {
    "namesrv": "NAMESRV_ADDR",
    "access_key": "RMQ_ACCESS_KEY",
    "secret_key": "RMQ_SECRET_KEY",
}
_TIMEOUT_SECONDS: Final = 3.0
# Of the name servers' answer about a topic that they do not know.
_ADVICE_TO_CREATE: Final = ": create it, or"


class Session:
    """One run of a command. The connection is made by the first use of `admin`."""

    def __init__(self, options: Options, *, local: bool = False) -> None:
        """Read the profile, unless the command is `local`. Raises CommandFailed.

        An option counts before a profile that was chosen, that before an environment variable, and this
        before the default profile.
        """
        self._values: Profile = {} if local else _settings_around(options.profile)
        self._values |= {
            item.name: cast("str | bool | float", value)
            for item in fields(options)
            if (value := getattr(options, item.name)) is not None
        }
        self.dry_run = options.dry_run
        self._yes = options.yes
        self.out = Output(_format(self._values.get("output")))
        self._admin: Admin | None = None

    @property
    def namesrv(self) -> str:
        """The addresses of the name servers. Raises CommandFailed if there are none."""
        given = self._text("namesrv")
        if not given:
            raise CommandFailed(
                "no name server is known: pass --namesrv HOST:9876, set NAMESRV_ADDR, or create a profile "
                "(rmq config set PROFILE namesrv HOST:9876)",
                Exit.USAGE,
            )
        return given

    @property
    def settings(self) -> ClientSettings:
        """How the SDK connects. Raises CommandFailed."""
        access_key, secret_key = self._text("access_key"), self._text("secret_key")
        if bool(access_key) != bool(secret_key):
            raise CommandFailed("access key and secret key belong together: give both", Exit.USAGE)
        credentials = Credentials(access_key, secret_key) if access_key and secret_key else None
        ca_file, verify = self._text("tls_ca"), self._text("tls_verify")
        tls: bool | TlsSettings = bool(self._values.get("tls"))
        if ca_file or verify:
            tls = TlsSettings(ca_file=ca_file, verify=verify or "full")  # type: ignore[arg-type]  # checked there
        return ClientSettings(
            credentials=credentials,
            tls=tls,
            namespace=self._text("namespace") or "",
            request_timeout_seconds=float(self._values.get("timeout", _TIMEOUT_SECONDS)),
        )

    @property
    def admin(self) -> Admin:
        """The connection to the cluster."""
        if self._admin is None:
            admin = Admin(self.namesrv, settings=self.settings)
            admin.start()
            self._admin = admin
        return self._admin

    def close(self) -> None:
        """End the connection."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.stop()

    def may(self, change: str) -> bool:
        """Whether to make a change, such as `create topic orders`: not with --dry-run, which tells it."""
        if self.dry_run:
            self.out.note(f"would {change} (--dry-run: nothing was changed)")
        return not self.dry_run

    def may_destroy(self, change: str) -> bool:
        """As `may`, and ask the user unless --yes was given.

        Raises CommandFailed if the user declines, or cannot be asked.
        """
        if not self.may(change):
            return False
        if self._yes:
            return True
        if not sys.stdin.isatty():
            raise CommandFailed(
                f"{change}: not done without a confirmation: pass --yes, or --dry-run to try it",
                Exit.USAGE,
            )
        if not typer.confirm(f"{change[:1].upper()}{change[1:]}?", err=True):
            raise CommandFailed("nothing was changed")
        return True

    def ask(self, name: str, *, secret: bool = False, twice: bool = False) -> str:
        """Ask the user for a value, or take a line of standard input if that is no terminal.

        `secret`: do not show it. Raises CommandFailed without a value.
        """
        if sys.stdin.isatty():
            return str(typer.prompt(name, hide_input=secret, confirmation_prompt=twice, err=True))
        value = sys.stdin.readline().rstrip("\r\n")
        if not value:
            raise CommandFailed(f"{name} is missing: give it as a line of standard input", Exit.USAGE)
        return value

    def _text(self, key: str) -> str | None:
        value = self._values.get(key)
        return None if value is None else str(value)


def _settings_around(profile: str | None) -> Profile:
    """Return the values of profiles and environment."""
    chosen = profile or os.environ.get("RMQ_PROFILE")
    file = load_profiles()
    return {
        **file.find(None),
        **{key: value for key, name in _VARIABLES.items() if (value := os.environ.get(name))},
        **(file.find(chosen) if chosen else {}),
    }


@contextmanager
def running(options: Options, *, local: bool = False) -> Iterator[Session]:
    """Run a command with a session. Its errors become a message and an exit code."""
    session: Session | None = None
    try:
        session = Session(options, local=local)
        yield session
        sys.stdout.flush()
    except (ClientError, CommandFailed) as error:
        code = error.code if isinstance(error, CommandFailed) else exit_code(error)
        typer.echo(f"rmq: {_told(error)}", err=True)
        raise typer.Exit(code) from None
    except BrokenPipeError:
        # The reader of the output has seen enough. Python would complain again at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(Exit.DONE) from None
    except KeyboardInterrupt:
        raise typer.Exit(Exit.INTERRUPTED) from None
    finally:
        if session is not None:
            session.close()


def _told(error: ClientError | CommandFailed) -> str:
    """Return the text of an error. Some of the SDK's advice is about Python, or about sends."""
    text = str(error)
    if isinstance(error, AlreadyExists):
        return f"{text.partition(':')[0]}: it was left as it is; `update` changes it"
    if isinstance(error, TopicNotFound) and _ADVICE_TO_CREATE in text:
        return (
            f"{text.partition(_ADVICE_TO_CREATE)[0]}: `topic list` has the names, and `topic create` adds one"
        )
    return text


def _format(value: object) -> Format:
    if value is None:
        return Format.TABLE
    try:
        return Format(str(value))
    except ValueError as error:
        allowed = ", ".join(each.value for each in Format)
        raise CommandFailed(f"output={value!r}: must be one of {allowed}", Exit.USAGE) from error
