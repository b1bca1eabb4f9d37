from ferrymq_broker.nodes.message_view import view_of
from ferrymq import Message
class Content:
    def __init__(s,p,b,e,k): s.properties=p;s.body=b;s.exchange=e;s.routing_key=k
def content_of(message,address,failures):
    v=view_of(message); a=v.message_annotations
    m=Message.from_bytes(message.payload) if hasattr(Message,'from_bytes') else Message.decode(message.payload)
    return Content(a.get("x-raw",b"\0\0"), bytes(m.body), a.get("x-exchange",""), a.get("x-routing-key",address))
