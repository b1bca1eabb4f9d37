"""Cases for pika's blocking connection: a function for each feature."""

from __future__ import annotations

from tests.interop.amqp_0_9_1.pika_connections import (
    blocked as blocked,
)
from tests.interop.amqp_0_9_1.pika_connections import (
    channels as channels,
)
from tests.interop.amqp_0_9_1.pika_connections import (
    heartbeat as heartbeat,
)
from tests.interop.amqp_0_9_1.pika_connections import (
    restart as restart,
)
from tests.interop.amqp_0_9_1.pika_connections import (
    tls as tls,
)
from tests.interop.amqp_0_9_1.pika_connections import (
    virtual_host as virtual_host,
)
from tests.interop.amqp_0_9_1.pika_consuming import (
    ack_multiple as ack_multiple,
)
from tests.interop.amqp_0_9_1.pika_consuming import (
    cancel as cancel,
)
from tests.interop.amqp_0_9_1.pika_consuming import (
    cancel_notify as cancel_notify,
)
from tests.interop.amqp_0_9_1.pika_consuming import (
    close_requeues as close_requeues,
)
from tests.interop.amqp_0_9_1.pika_consuming import (
    consume as consume,
)
from tests.interop.amqp_0_9_1.pika_consuming import (
    consumer_priority as consumer_priority,
)
from tests.interop.amqp_0_9_1.pika_consuming import (
    exclusive_consumer as exclusive_consumer,
)
from tests.interop.amqp_0_9_1.pika_consuming import (
    get as get,
)
from tests.interop.amqp_0_9_1.pika_consuming import (
    no_ack as no_ack,
)
from tests.interop.amqp_0_9_1.pika_consuming import (
    prefetch as prefetch,
)
from tests.interop.amqp_0_9_1.pika_consuming import (
    recover as recover,
)
from tests.interop.amqp_0_9_1.pika_consuming import (
    requeue as requeue,
)
from tests.interop.amqp_0_9_1.pika_consuming import (
    single_active as single_active,
)
from tests.interop.amqp_0_9_1.pika_declaring import (
    alternate_exchange as alternate_exchange,
)
from tests.interop.amqp_0_9_1.pika_declaring import (
    auto_delete as auto_delete,
)
from tests.interop.amqp_0_9_1.pika_declaring import (
    default_exchange as default_exchange,
)
from tests.interop.amqp_0_9_1.pika_declaring import (
    delete_conditions as delete_conditions,
)
from tests.interop.amqp_0_9_1.pika_declaring import (
    direct as direct,
)
from tests.interop.amqp_0_9_1.pika_declaring import (
    exchange_bindings as exchange_bindings,
)
from tests.interop.amqp_0_9_1.pika_declaring import (
    exclusive as exclusive,
)
from tests.interop.amqp_0_9_1.pika_declaring import (
    fanout as fanout,
)
from tests.interop.amqp_0_9_1.pika_declaring import (
    headers as headers,
)
from tests.interop.amqp_0_9_1.pika_declaring import (
    passive as passive,
)
from tests.interop.amqp_0_9_1.pika_declaring import (
    queue_arguments as queue_arguments,
)
from tests.interop.amqp_0_9_1.pika_declaring import (
    queue_declare as queue_declare,
)
from tests.interop.amqp_0_9_1.pika_declaring import (
    server_named as server_named,
)
from tests.interop.amqp_0_9_1.pika_declaring import (
    topic as topic,
)
from tests.interop.amqp_0_9_1.pika_errors import (
    access_refused as access_refused,
)
from tests.interop.amqp_0_9_1.pika_errors import (
    not_found as not_found,
)
from tests.interop.amqp_0_9_1.pika_errors import (
    precondition as precondition,
)
from tests.interop.amqp_0_9_1.pika_errors import (
    unknown_tag as unknown_tag,
)
from tests.interop.amqp_0_9_1.pika_errors import (
    wrong_host as wrong_host,
)
from tests.interop.amqp_0_9_1.pika_errors import (
    wrong_password as wrong_password,
)
from tests.interop.amqp_0_9_1.pika_patterns import (
    direct_reply_to as direct_reply_to,
)
from tests.interop.amqp_0_9_1.pika_patterns import (
    rpc as rpc,
)
from tests.interop.amqp_0_9_1.pika_patterns import (
    two_protocols as two_protocols,
)
from tests.interop.amqp_0_9_1.pika_patterns import (
    tx_commit as tx_commit,
)
from tests.interop.amqp_0_9_1.pika_patterns import (
    tx_rollback as tx_rollback,
)
from tests.interop.amqp_0_9_1.pika_publishing import (
    confirm_nack as confirm_nack,
)
from tests.interop.amqp_0_9_1.pika_publishing import (
    confirms as confirms,
)
from tests.interop.amqp_0_9_1.pika_publishing import (
    empty as empty,
)
from tests.interop.amqp_0_9_1.pika_publishing import (
    header_types as header_types,
)
from tests.interop.amqp_0_9_1.pika_publishing import (
    large as large,
)
from tests.interop.amqp_0_9_1.pika_publishing import (
    mandatory as mandatory,
)
from tests.interop.amqp_0_9_1.pika_publishing import (
    properties as properties,
)
from tests.interop.amqp_0_9_1.pika_queue_features import (
    dead_letter as dead_letter,
)
from tests.interop.amqp_0_9_1.pika_queue_features import (
    delivery_limit as delivery_limit,
)
from tests.interop.amqp_0_9_1.pika_queue_features import (
    expires as expires,
)
from tests.interop.amqp_0_9_1.pika_queue_features import (
    max_length as max_length,
)
from tests.interop.amqp_0_9_1.pika_queue_features import (
    message_ttl as message_ttl,
)
from tests.interop.amqp_0_9_1.pika_queue_features import (
    priority as priority,
)
from tests.interop.amqp_0_9_1.pika_queue_features import (
    stream as stream,
)
