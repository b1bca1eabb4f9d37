from ferrymq_types_0_9_1.basic import BasicProperties
from ferrymq import Message
from ferrymq_broker.nodes.message import admit
def message_of(properties, body, exchange, routing_key, origin):
    p=BasicProperties.from_bytes(properties)
    from ferrymq_types.messaging import Header
    m=Message(body, durable=p.delivery_mode==2, message_annotations={"x-exchange":exchange,"x-routing-key":routing_key,"x-raw":properties}, application_properties={k:v for k,v in (p.headers or {}).items() if not isinstance(v,(dict,list))} or None, priority=p.priority if p.priority is not None else 4, **({"ttl":int(p.expiration)/1000} if p.expiration else {}))
    x=admit(bytes(m.encode() if hasattr(m,"encode") else m.to_bytes()),0); x.origin=origin
    return x
