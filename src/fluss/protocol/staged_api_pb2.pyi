from fluss.protocol import fluss_api_pb2 as _fluss_api_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StageLogRequest(_message.Message):
    __slots__ = ("acks", "table_id", "timeout_ms", "buckets_req", "transaction", "batch_id", "writer_id")
    ACKS_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_REQ_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    WRITER_ID_FIELD_NUMBER: _ClassVar[int]
    acks: int
    table_id: int
    timeout_ms: int
    buckets_req: _containers.RepeatedCompositeFieldContainer[_fluss_api_pb2.PbProduceLogReqForBucket]
    transaction: str
    batch_id: int
    writer_id: int
    def __init__(self, acks: _Optional[int] = ..., table_id: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., buckets_req: _Optional[_Iterable[_Union[_fluss_api_pb2.PbProduceLogReqForBucket, _Mapping]]] = ..., transaction: _Optional[str] = ..., batch_id: _Optional[int] = ..., writer_id: _Optional[int] = ...) -> None: ...

class StageLogResponse(_message.Message):
    __slots__ = ("buckets_resp",)
    BUCKETS_RESP_FIELD_NUMBER: _ClassVar[int]
    buckets_resp: _containers.RepeatedCompositeFieldContainer[PbStageLogRespForBucket]
    def __init__(self, buckets_resp: _Optional[_Iterable[_Union[PbStageLogRespForBucket, _Mapping]]] = ...) -> None: ...

class PbStageLogRespForBucket(_message.Message):
    __slots__ = ("partition_id", "bucket_id", "error_code", "error_message", "staged_bytes")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    STAGED_BYTES_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    bucket_id: int
    error_code: int
    error_message: str
    staged_bytes: int
    def __init__(self, partition_id: _Optional[int] = ..., bucket_id: _Optional[int] = ..., error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., staged_bytes: _Optional[int] = ...) -> None: ...

class PbStagedFile(_message.Message):
    __slots__ = ("writer_id", "batch_count", "size_bytes")
    WRITER_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_COUNT_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    writer_id: int
    batch_count: int
    size_bytes: int
    def __init__(self, writer_id: _Optional[int] = ..., batch_count: _Optional[int] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class PbStagedBucket(_message.Message):
    __slots__ = ("partition_id", "bucket_id", "files")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    bucket_id: int
    files: _containers.RepeatedCompositeFieldContainer[PbStagedFile]
    def __init__(self, partition_id: _Optional[int] = ..., bucket_id: _Optional[int] = ..., files: _Optional[_Iterable[_Union[PbStagedFile, _Mapping]]] = ...) -> None: ...

class PrepareStagedRequest(_message.Message):
    __slots__ = ("table_id", "transaction", "batch_id", "buckets")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    transaction: str
    batch_id: int
    buckets: _containers.RepeatedCompositeFieldContainer[PbStagedBucket]
    def __init__(self, table_id: _Optional[int] = ..., transaction: _Optional[str] = ..., batch_id: _Optional[int] = ..., buckets: _Optional[_Iterable[_Union[PbStagedBucket, _Mapping]]] = ...) -> None: ...

class PrepareStagedResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DecideStagedRequest(_message.Message):
    __slots__ = ("table_id", "transaction", "batch_id", "token", "buckets")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    transaction: str
    batch_id: int
    token: str
    buckets: _containers.RepeatedCompositeFieldContainer[PbStagedBucket]
    def __init__(self, table_id: _Optional[int] = ..., transaction: _Optional[str] = ..., batch_id: _Optional[int] = ..., token: _Optional[str] = ..., buckets: _Optional[_Iterable[_Union[PbStagedBucket, _Mapping]]] = ...) -> None: ...

class DecideStagedResponse(_message.Message):
    __slots__ = ("accepted", "last_batch_id")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    LAST_BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    last_batch_id: int
    def __init__(self, accepted: bool = ..., last_batch_id: _Optional[int] = ...) -> None: ...

class ApplyStagedRequest(_message.Message):
    __slots__ = ("table_id", "transaction", "batch_id", "timeout_ms")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    transaction: str
    batch_id: int
    timeout_ms: int
    def __init__(self, table_id: _Optional[int] = ..., transaction: _Optional[str] = ..., batch_id: _Optional[int] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class ApplyStagedResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AbortStagedRequest(_message.Message):
    __slots__ = ("table_id", "transaction", "batch_id", "writer_ids")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    WRITER_IDS_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    transaction: str
    batch_id: int
    writer_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, table_id: _Optional[int] = ..., transaction: _Optional[str] = ..., batch_id: _Optional[int] = ..., writer_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class AbortStagedResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStagedCommitRequest(_message.Message):
    __slots__ = ("table_id", "transaction")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    transaction: str
    def __init__(self, table_id: _Optional[int] = ..., transaction: _Optional[str] = ...) -> None: ...

class GetStagedCommitResponse(_message.Message):
    __slots__ = ("last_batch_id", "unapplied_buckets")
    LAST_BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    UNAPPLIED_BUCKETS_FIELD_NUMBER: _ClassVar[int]
    last_batch_id: int
    unapplied_buckets: int
    def __init__(self, last_batch_id: _Optional[int] = ..., unapplied_buckets: _Optional[int] = ...) -> None: ...
