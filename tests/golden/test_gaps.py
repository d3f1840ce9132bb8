"""Logs in which an earlier version left offsets out are read, and go on behind all that readers may have seen."""

from __future__ import annotations

import pytest

import fluss
from tests.golden.archives import GAPS, restored
from tests.golden.contents import DATABASE, read_ends, read_records, read_rows
from tests.golden.tables import texts
from tests.golden.write_gaps import SURVIVORS, WRITTEN, count_fillers, logs


@pytest.mark.parametrize("name", GAPS)
def test_offsets_that_were_left_out_stay_so_and_none_is_given_again(name: str) -> None:
    with restored(name) as archive:
        assert [count_fillers(log) for log in logs(archive.data)] == [1, 1]
        with fluss.embedded(archive.data) as cluster, fluss.connect(cluster.bootstrap_servers) as db:
            for table, expected in archive.tables.items():
                records = read_records(db, table, len(expected["records"]))
                assert read_rows(db, table) == expected["rows"], table
                assert records == expected["records"], table
                offsets = [record[2] for record in records]
                assert offsets[SURVIVORS] > offsets[SURVIVORS - 1] + 1, "the gap"
                ((*place, first, end),) = read_ends(db, table)
                # This machine was restarted since: what was reserved may have been shown.
                assert [*place, first] == expected["ends"][0][:-1]
                assert end > archive.expected["reserved"][table] > offsets[-1]
                write = db.upsert if expected["primary_keys"] else db.append
                write(f"{DATABASE}.{table}", texts(WRITTEN, WRITTEN + 1))
                assert read_records(db, table, len(records) + 1)[-1][2] == end
                assert db.head(f"{DATABASE}.{table}", 5).num_rows == 5
            assert db.lookup(f"{DATABASE}.kv_gap", SURVIVORS) is None, "no disk had it"
            assert db.lookup(f"{DATABASE}.kv_gap", WRITTEN)
        assert [count_fillers(log) for log in logs(archive.data)] == [2, 2]
