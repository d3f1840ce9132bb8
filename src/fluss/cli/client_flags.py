"""The flags of commands that connect to a cluster, and the client configuration that follows from them."""

from __future__ import annotations

import argparse
import os

from fluss.errors import ErrorCode, FlussError

PASSWORD_VARIABLE = "FLUSS_PASSWORD"
DEFAULT_BOOTSTRAP = "127.0.0.1:9123"
DEFAULT_DATABASE = "fluss"


def add_client_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the address of the cluster and the login."""
    parser.add_argument("--bootstrap", metavar="HOST:PORT", default=DEFAULT_BOOTSTRAP, help="address of the server")
    parser.add_argument("--username", metavar="NAME", help=f"SASL login; the password is in {PASSWORD_VARIABLE}")
    parser.add_argument(
        "-o",
        "--option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="an option of the client, such as security.protocol=sasl; may be repeated",
    )


def add_lake_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flag for properties of the lake that the server does not send."""
    parser.add_argument(
        "--lake-option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a property of the lake's catalog that the server does not send, such as a secret; may be repeated",
    )


def client_settings(options: argparse.Namespace) -> dict[str, str]:
    """The configuration of the client from the flags."""
    chosen = {"bootstrap.servers": options.bootstrap, **name_value_pairs("--option", options.option)}
    if options.username is not None:
        password = os.environ.get(PASSWORD_VARIABLE)
        if password is None:
            raise FlussError(
                f"--username needs the password in the environment variable {PASSWORD_VARIABLE}",
                ErrorCode.INVALID_CONFIG_EXCEPTION,
            )
        chosen |= {
            "security.protocol": "sasl",
            "security.sasl.username": options.username,
            "security.sasl.password": password,
        }
    return chosen


def lake_settings(options: argparse.Namespace) -> dict[str, str]:
    """The properties of the lake's catalog, taken from the flags."""
    return name_value_pairs("--lake-option", options.lake_option)


def name_value_pairs(flag: str, texts: list[str]) -> dict[str, str]:
    """Parse the `NAME=VALUE` values of a flag that may be repeated."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise FlussError(f"{flag} must be NAME=VALUE, got {name!r}", ErrorCode.INVALID_CONFIG_EXCEPTION)
        found[name.strip()] = value.strip()
    return found


def table_name(name: str) -> tuple[str, str]:
    """Split `DB.TABLE`, or the name of a table in the default database, into database and table.

    >>> table_name("shop.orders"), table_name("orders")
    (('shop', 'orders'), ('fluss', 'orders'))
    """
    database, dot, table = name.rpartition(".")
    return (database if dot else DEFAULT_DATABASE, table)
