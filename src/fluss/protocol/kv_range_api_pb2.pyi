from fluss.protocol import fluss_api_pb2 as _fluss_api_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SplitKvRequest(_message.Message):
    __slots__ = ("table_id", "buckets_req", "piece_bytes", "piece_rows")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_REQ_FIELD_NUMBER: _ClassVar[int]
    PIECE_BYTES_FIELD_NUMBER: _ClassVar[int]
    PIECE_ROWS_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    buckets_req: _containers.RepeatedCompositeFieldContainer[PbSplitKvReqForBucket]
    piece_bytes: int
    piece_rows: int
    def __init__(self, table_id: _Optional[int] = ..., buckets_req: _Optional[_Iterable[_Union[PbSplitKvReqForBucket, _Mapping]]] = ..., piece_bytes: _Optional[int] = ..., piece_rows: _Optional[int] = ...) -> None: ...

class PbSplitKvReqForBucket(_message.Message):
    __slots__ = ("partition_id", "bucket_id")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    bucket_id: int
    def __init__(self, partition_id: _Optional[int] = ..., bucket_id: _Optional[int] = ...) -> None: ...

class SplitKvResponse(_message.Message):
    __slots__ = ("buckets_resp",)
    BUCKETS_RESP_FIELD_NUMBER: _ClassVar[int]
    buckets_resp: _containers.RepeatedCompositeFieldContainer[PbSplitKvRespForBucket]
    def __init__(self, buckets_resp: _Optional[_Iterable[_Union[PbSplitKvRespForBucket, _Mapping]]] = ...) -> None: ...

class PbSplitKvRespForBucket(_message.Message):
    __slots__ = ("partition_id", "bucket_id", "error_code", "error_message", "log_offset", "first_keys")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LOG_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FIRST_KEYS_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    bucket_id: int
    error_code: int
    error_message: str
    log_offset: int
    first_keys: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, partition_id: _Optional[int] = ..., bucket_id: _Optional[int] = ..., error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., log_offset: _Optional[int] = ..., first_keys: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ScanKvRangeRequest(_message.Message):
    __slots__ = ("bucket_scan_req", "batch_size_bytes", "first_key", "end_key")
    BUCKET_SCAN_REQ_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    FIRST_KEY_FIELD_NUMBER: _ClassVar[int]
    END_KEY_FIELD_NUMBER: _ClassVar[int]
    bucket_scan_req: _fluss_api_pb2.PbScanReqForBucket
    batch_size_bytes: int
    first_key: bytes
    end_key: bytes
    def __init__(self, bucket_scan_req: _Optional[_Union[_fluss_api_pb2.PbScanReqForBucket, _Mapping]] = ..., batch_size_bytes: _Optional[int] = ..., first_key: _Optional[bytes] = ..., end_key: _Optional[bytes] = ...) -> None: ...

class ScanKvRangeResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "scanner_id", "has_more_results", "records", "log_offset")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SCANNER_ID_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_RESULTS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    LOG_OFFSET_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    scanner_id: bytes
    has_more_results: bool
    records: bytes
    log_offset: int
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., scanner_id: _Optional[bytes] = ..., has_more_results: bool = ..., records: _Optional[bytes] = ..., log_offset: _Optional[int] = ...) -> None: ...
