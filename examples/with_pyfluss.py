"""The first table with the published client: `pip install pyfluss`, then `python with_pyfluss.py 127.0.0.1:9123`.

With `import fluss.aio as fluss` the same program runs on the client of this project.
"""

import asyncio
import sys

import pyarrow as pa

import fluss


async def main(address: str) -> None:
    async with await fluss.FlussConnection.create(fluss.Config({"bootstrap.servers": address})) as connection:
        schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("score", pa.float64())])
        path = fluss.TablePath("fluss", "players")
        descriptor = fluss.TableDescriptor(fluss.Schema(schema), bucket_count=1)
        await connection.get_admin().create_table(path, descriptor, ignore_if_exists=True)

        table = await connection.get_table(path)
        writer = table.new_append().create_writer()
        writer.append({"id": 1, "name": "Ada", "score": 4.5})
        writer.write_arrow_batch(pa.record_batch([[2, 3], ["Bob", "Cy"], [1.5, 9.0]], schema=schema))
        await writer.flush()  # on disk now

        scanner = await table.new_scan().project_by_name(["name", "score"]).create_record_batch_log_scanner()
        scanner.subscribe(bucket_id=0, start_offset=fluss.EARLIEST_OFFSET)
        print((await scanner.to_arrow()).to_pydict())


asyncio.run(main(sys.argv[1]))
