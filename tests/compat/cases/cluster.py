"""Connecting: server nodes, several bootstrap addresses, connections that come and go, SASL right and wrong."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa

from tests.compat.cases.kit import Context, case, fluss, raises

SASL = {"security_protocol": "sasl", "security_sasl_mechanism": "PLAIN"}


async def connect(address: str, **settings: Any) -> Any:
    """A connection to this address, or its error."""
    config = fluss.Config({"bootstrap.servers": address})
    for name, value in settings.items():
        setattr(config, name, value)
    return await fluss.FlussConnection.create(config)


@case(peer=True)
async def server_nodes(context: Context) -> None:
    """One coordinator and every tablet server, with addresses that can be connected to."""
    admin = (await context.connection()).get_admin()
    nodes = await admin.get_server_nodes()
    coordinators = [node for node in nodes if node.server_type == "CoordinatorServer"]
    tablets = [node for node in nodes if node.server_type == "TabletServer"]
    assert len(coordinators) == 1
    assert len(tablets) == context.settings["tablets"]
    assert sorted(node.id for node in tablets) == list(range(len(tablets)))
    assert sorted(node.uid for node in tablets) == [f"ts-{number}" for number in range(len(tablets))]
    assert coordinators[0].uid == "cs-0"
    assert len({node.port for node in nodes}) == len(nodes)
    for node in nodes:
        _, writer = await asyncio.open_connection(node.host, node.port)
        writer.close()


@case()
async def bootstrap_from_a_tablet(context: Context) -> None:
    """Any server introduces the whole cluster."""
    admin = (await context.connection()).get_admin()
    known = {(node.uid, node.port) for node in await admin.get_server_nodes()}
    (tablet, *_) = [node for node in await admin.get_server_nodes() if node.server_type == "TabletServer"]
    connection = await connect(f"{tablet.host}:{tablet.port}")
    assert {(node.uid, node.port) for node in await connection.get_admin().get_server_nodes()} == known
    assert "fluss" in await connection.get_admin().list_databases()
    await connection.close()


@case()
async def bootstrap_list_with_a_dead_address(context: Context) -> None:
    """The first address that answers is taken."""
    connection = await connect(f"127.0.0.1:1,{context.bootstrap}")
    assert "fluss" in await connection.get_admin().list_databases()
    await connection.close()


@case()
async def many_connections(context: Context) -> None:
    """Connections that come and go, forty at a time."""
    for _ in range(3):
        connections = await asyncio.gather(*(connect(context.bootstrap) for _ in range(40)))
        await asyncio.gather(*(connection.get_admin().list_databases() for connection in connections))
        await asyncio.gather(*(connection.close() for connection in connections))


@case(peer=True)
async def sasl_right(context: Context) -> None:
    """Both users get in, and do everything through the SASL listener: tablets too."""
    for user in ("admin", "alice"):
        address = context.settings["sasl_bootstrap"]
        login = {"security_sasl_username": user, "security_sasl_password": f"{user}-secret"}
        connection = await connect(address, **SASL, **login)
        admin = connection.get_admin()
        nodes = await admin.get_server_nodes()
        plain = await (await context.connection()).get_admin().get_server_nodes()
        assert sorted(node.uid for node in nodes) == sorted(node.uid for node in plain)
        assert {node.port for node in nodes}.isdisjoint(node.port for node in plain)
        path = await context.create({"id": pa.int32()}, user)
        writer = (await connection.get_table(path)).new_append().create_writer()
        writer.append({"id": 7})
        await writer.flush()
        scanner = await (await connection.get_table(path)).new_scan().create_record_batch_log_scanner()
        scanner.subscribe(0, fluss.EARLIEST_OFFSET)
        assert (await scanner.to_arrow()).column("id").to_pylist() == [7]
        await connection.close()


@case(peer=True)
async def sasl_wrong(context: Context) -> None:
    """Code 46 for each way of getting it wrong; none of them hurts the others."""
    address = context.settings["sasl_bootstrap"]
    wrong = {"security_sasl_username": "alice", "security_sasl_password": "guess"}
    await raises(46, connect(address, **SASL, **wrong), "uthentication failed")
    unknown = {"security_sasl_username": "nobody", "security_sasl_password": "alice-secret"}
    text = await raises(46, connect(address, **SASL, **unknown), "uthentication failed")
    assert "alice-secret" not in text
    right = {"security_sasl_username": "alice", "security_sasl_password": "alice-secret"}
    await raises(46, connect(context.bootstrap, **SASL, **right), "PLAINTEXT", "PLAIN")
    await raises(46, connect(address))
    connection = await connect(address, **SASL, **right)
    assert "fluss" in await connection.get_admin().list_databases()
    await connection.close()


@case()
async def nobody_there(context: Context) -> None:
    """A closed port is an error, not a hang."""
    await raises(1, connect("127.0.0.1:1"), "refused")
