"""What a refused call says, as grpcio-status reads it."""

from google.rpc import error_details_pb2
from grpc_status import rpc_status


def details(error):
    said = {"code": error.code().name}
    for packed in rpc_status.from_call(error).details:
        for kind in (
            error_details_pb2.RetryInfo,
            error_details_pb2.QuotaFailure,
            error_details_pb2.ErrorInfo,
        ):
            message = kind()
            if packed.Unpack(message):
                said[kind.__name__] = message
    return {
        "code": said["code"],
        "retry_delay_ms": said["RetryInfo"].retry_delay.ToMilliseconds(),
        "subjects": [one.subject for one in said["QuotaFailure"].violations],
        "reason": said["ErrorInfo"].reason,
    }
