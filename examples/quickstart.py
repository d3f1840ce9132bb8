"""A first table: `python quickstart.py` with a server inside, `python quickstart.py 127.0.0.1:9123` with any other."""

import asyncio
import sys

import pyarrow as pa

import fluss


async def main(address: str) -> None:
    async with await fluss.FlussConnection.create(fluss.Config({"bootstrap.servers": address})) as connection:
        schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("score", pa.float64())])
        admin = connection.get_admin()
        path = fluss.TablePath("fluss", "players")
        await admin.create_table(path, fluss.TableDescriptor(fluss.Schema(schema)), ignore_if_exists=True)

        table = await connection.get_table(path)
        writer = table.new_append().create_writer()
        writer.append({"id": 1, "name": "Ada", "score": 4.5})
        writer.write_arrow(pa.table({"id": [2, 3], "name": ["Bob", "Cy"], "score": [1.5, 9.0]}))
        await writer.flush()  # on disk now

        scanner = await table.new_scan().project_by_name(["name", "score"]).create_record_batch_log_scanner()
        scanner.subscribe_all()
        print(scanner.to_arrow().to_pydict())


if len(sys.argv) > 1:
    asyncio.run(main(sys.argv[1]))
else:
    with fluss.embedded("my-data") as cluster:
        asyncio.run(main(cluster.bootstrap_servers))
