"""The server options of directories and logs; collected by `options`."""

from __future__ import annotations

from fluss.server.config.option import Kind, Option

STRING, INTEGER, BOOLEAN, DURATION, SIZE, CHOICE = Kind

LOG_OPTIONS = [
    Option(
        "data.dir",
        STRING,
        None,
        "directory of all data; default `fluss-data` in the current directory",
        special=True,
    ),
    Option("data.dirs", STRING, None, "the first entry is used as `data.dir`", special=True),
    Option(
        "remote.data.dir",
        STRING,
        None,
        "directory or URI of remote segments; default `remote` below `data.dir`",
        special=True,
    ),
    Option("remote.data.dirs", STRING, None, "the first entry is used as `remote.data.dir`", special=True),
    Option("remote.data.dirs.strategy", STRING, None, "this server has one remote directory"),
    Option("remote.data.dirs.weights", STRING, None, "this server has one remote directory"),
    Option("remote.fs.write-buffer-size", SIZE, "4kb", "file systems size their own buffers"),
    Option(
        "log.flush",
        CHOICE,
        "always",
        "what `acks=all` waits for: `always` the disk, `interval` a write that is synced every `log.flush.interval`, "
        "`os` a write that the operating system syncs when it chooses",
        attribute="log_flush",
        choices=("always", "interval", "os"),
        own=True,
    ),
    Option(
        "log.flush.interval",
        DURATION,
        "100 ms",
        "interval of syncs when `log.flush` is `interval`",
        attribute="log_flush_interval_ms",
        minimum=1,
        own=True,
    ),
    Option(
        "log.validate",
        CHOICE,
        "headers",
        "how a batch is checked before it is stored: `headers` checks headers and counts; `full` also checks every "
        "value (times of day, UTF-8, digits of decimals), which takes about as long as reading the batch",
        attribute="log_validate",
        choices=("headers", "full"),
        own=True,
    ),
    Option("log.flush.interval-messages", INTEGER, None, "`log.flush` decides when to sync"),
    Option(
        "log.segment.file-size",
        SIZE,
        "1024mb",
        "a segment is closed at this size",
        attribute="log_segment_file_size",
        minimum=1,
    ),
    Option(
        "log.index.interval-size",
        SIZE,
        "4kb",
        "log bytes between two index entries",
        attribute="log_index_interval_size",
        minimum=1,
    ),
    Option("log.index.file-size", SIZE, "10mb", "index files grow as needed"),
    Option("log.file-preallocate", BOOLEAN, "false", "segments grow as needed"),
    Option(
        "log.retention.check-interval",
        DURATION,
        "5 min",
        "interval of checks for expired segments",
        attribute="log_retention_check_interval_ms",
        minimum=1,
    ),
    Option(
        "log.retention.roll-active-segment.enabled",
        BOOLEAN,
        "false",
        "whether the segment that is being written expires too",
        attribute="log_retention_roll_active_segment",
    ),
    Option(
        "remote.log.task-interval-duration",
        DURATION,
        "1 min",
        "interval of uploads of closed segments; `0 s` keeps all segments local",
        attribute="remote_log_task_interval_ms",
        minimum=0,
    ),
    Option(
        "remote.log.task-max-upload-segments",
        INTEGER,
        "5",
        "maximum number of segments of a bucket that one round uploads",
        attribute="remote_log_task_max_upload_segments",
        minimum=1,
    ),
    Option("remote.log.index-file-cache-size", SIZE, "1gb", "clients read the remote indexes"),
    Option("remote.log-manager.thread-pool-size", INTEGER, "4", "one thread uploads"),
    Option("remote.log.data-transfer-thread-num", INTEGER, "4", "one thread uploads"),
    Option(
        "server.writer-id.expiration-time",
        DURATION,
        "7 d",
        "the state of a writer is removed after this time without writes",
        attribute="writer_id_expiration_ms",
        minimum=1,
    ),
    Option(
        "server.writer-id.expiration-check-interval",
        DURATION,
        "10 min",
        "interval of checks for such writers",
        attribute="writer_id_check_interval_ms",
        minimum=1,
    ),
]
