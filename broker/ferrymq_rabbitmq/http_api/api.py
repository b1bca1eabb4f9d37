"""The requests of the API: their paths, their statuses, and what is done for them.

A client logs in with each request. It sees what its rights allow, and every change goes through the
requests that clients of AMQP 1.0 make, so the same checks hold.

One module because it is one table of paths, with a line or two for each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, unquote

from ferrymq_broker import audit
from ferrymq_broker.access.access import ConnectionAccess
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.addresses.address_space import AddressSpace
from ferrymq_broker.management.operation import Call
from ferrymq_broker.management.sliced_query import Steps
from ferrymq_broker.management.users import UserEntities
from ferrymq_broker.nodes.link_terms import Party
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.server.http_handlers import (
    HttpHandler,
    HttpHost,
    HttpPart,
    HttpParts,
    HttpRequest,
    HttpResponse,
    HttpSteps,
    ServedElsewhereError,
)
from ferrymq_broker.values.names import DEFAULT_SPACE
from ferrymq_rabbitmq.address_v2 import DEFAULT_VHOST
from ferrymq_rabbitmq.definitions.access_rules import ADMINISTRATOR
from ferrymq_rabbitmq.definitions.document import parse_definitions
from ferrymq_rabbitmq.definitions.running_broker import import_definitions_into
from ferrymq_rabbitmq.host_policies import HostPolicies
from ferrymq_rabbitmq.http_api.broker_facts import BrokerFacts
from ferrymq_rabbitmq.http_api.error_bodies import error_body, failure_of
from ferrymq_rabbitmq.http_api.host_view import NODE, HostView, Json
from ferrymq_rabbitmq.http_api.json_messages import DEFAULT_EXCHANGE, get_messages, publish
from ferrymq_rabbitmq.http_api.listing import ROWS, arranged, chosen, encoded_list
from ferrymq_rabbitmq.http_api.permissions import NOTHING, permissions_of
from ferrymq_rabbitmq.http_api.user_changes import delete_user, delete_users, put_user
from ferrymq_rabbitmq.http_api.worker_parts import parts_of
from ferrymq_rabbitmq.management.host_requests import HostRequests
from ferrymq_rabbitmq.management.request_refused import RequestRefused, bad_request
from ferrymq_rabbitmq.pattern_policies import PatternPolicy, policies_of, policy_of
from ferrymq_rabbitmq.permission_rules import PermissionRules

Answer = tuple[HTTPStatus, object]

_CHANGES: Final = ("PUT", "POST", "DELETE")
_FLAGS: Final = ("durable", "auto_delete", "exclusive", "internal")
# Lists that are always empty here.
_EMPTY: Final = (
    "extensions",
    "feature-flags",
    "deprecated-features",
    "global-parameters",
    "parameters",
    "topic-permissions",
    "vhost-limits",
    "user-limits",
)
# What is told of a password, which the broker does not tell.
_NO_PASSWORD: Final = {
    "password_hash": "",
    "hashing_algorithm": "rabbit_password_hashing_sha256",
}
_OF_FILES: Final = {
    "topic-permissions": "permissions for routing keys are rules of the configuration",
    "vhosts": "virtual hosts are part of the configuration, and made when the broker starts",
    "parameters": "the broker has no parameters",
    "global-parameters": "the broker has no parameters",
    "vhost-limits": "limits are part of the configuration",
    "user-limits": "limits are part of the configuration",
}


def make_handler(host: HttpHost) -> HttpHandler:
    """Return the handler of the API. The paths name the virtual host, so it is for all of them."""
    return _HttpApi(host).handle


class _HttpApi:
    """The API of a broker."""

    def __init__(self, host: HttpHost) -> None:
        self._host = host

    def handle(self, request: HttpRequest) -> HttpResponse | HttpSteps | HttpParts:
        """Return the response to a request; steps for a list, which may be long; the parts of a
        request about all virtual hosts if other workers serve some."""
        identity = request.identity
        if identity is None:
            challenge = {"WWW-Authenticate": 'Basic realm="ferrymq", charset="UTF-8"'}
            return _response(HTTPStatus.UNAUTHORIZED, error_body(401, "login failed"), challenge)
        work = _Work(self._host, request, identity)
        steps = [unquote(step) for step in request.raw_path.rstrip("/").split("/")[2:]]
        if request.part is HttpPart.WHOLE and self._is_divided():
            parts = parts_of(request, steps)
            if parts is not None:
                return parts
        try:
            status, body = work.answer(steps)
        except Exception as error:
            return _refused(work, error)
        if isinstance(body, _Listing):
            return _listed(work, body)
        if isinstance(body, Generator):
            return _changed(work, body)
        work.record(status, "")
        headers = {"Location": work.location} if work.location else {}
        return _response(status, body, headers)

    def _is_divided(self) -> bool:
        return any(space.elsewhere >= 0 for space in self._host.broker.spaces.values())


class _Work:
    """The work for one request. `location` is the place of what was made, relative to the path."""

    def __init__(self, host: HttpHost, request: HttpRequest, identity: UserIdentity) -> None:
        self._host = host
        self._broker = host.broker
        self._facts = BrokerFacts(host)
        self._request = request
        self._identity = identity
        self._views: dict[str, HostView] = {}
        self.location = ""

    def answer(self, steps: Sequence[str]) -> Answer:
        """Return the status and the body. Raises the errors that `failure_of` knows."""
        method = self._request.method
        if method in ("GET", "HEAD"):
            return HTTPStatus.OK, self._get(steps)
        if method in _CHANGES:
            return self._change(method, steps)
        raise RequestRefused(HTTPStatus.METHOD_NOT_ALLOWED, f"{method[:20]} is not possible here")

    def record(self, status: int, reason: str) -> None:
        """Write changes and refused requests to the audit log."""
        request, user = self._request, self._identity.user
        if request.part is not HttpPart.WHOLE and status == HTTPStatus.NOT_FOUND:
            # Another worker may have it.
            return
        peer, path = request.client.peer, request.path[:200]
        if status == HTTPStatus.UNAUTHORIZED:
            audit.access_refused(peer, user, reason, DEFAULT_SPACE, via="http")
        elif request.method in _CHANGES:
            audit.changed(
                peer, user, DEFAULT_SPACE, request.method, "api", path, int(status), reason
            )

    # -- virtual hosts and rights --------------------------------------------------------

    def _view(self, vhost: str) -> HostView:
        """Return a virtual host that the client may see, and that this worker serves. Raises
        `RequestRefused`, or `ServedElsewhereError`."""
        view = self._seen(vhost)
        if view.space.elsewhere >= 0:
            raise ServedElsewhereError(view.space)
        return view

    def _seen(self, vhost: str) -> HostView:
        """Return a virtual host that the client may see. Raises `RequestRefused`."""
        space = self._broker.spaces.get(DEFAULT_SPACE if vhost == DEFAULT_VHOST else vhost)
        view = None if space is None or vhost == DEFAULT_SPACE else self._view_of(space)
        if view is None or not view.visible:
            # A client that may not use it must not learn whether it exists.
            if self._broker.guarded:
                raise _not_authorised(f"access to the virtual host {vhost[:200]!r}")
            raise RequestRefused.missing("virtual host", vhost)
        return view

    def _view_of(self, space: AddressSpace) -> HostView | None:
        view = self._views.get(space.name)
        if view is None:
            requests = getattr(space.personality, "requests", None)
            if space.elsewhere >= 0:
                # Only the rights in it are known here.
                requests = HostRequests(space)
            if not isinstance(requests, HostRequests):
                return None
            view = HostView(self._broker, space, requests, self._party(space))
            self._views[space.name] = view
        return view

    def _party(self, space: AddressSpace) -> Party:
        identity = self._identity
        rules = space.rules_for(identity) if self._broker.guarded else None
        access = ConnectionAccess(identity, rules)
        return Party(0, 0, "", identity.user, self._request.client.peer, access)

    def _all(self) -> list[HostView]:
        """Return all virtual hosts that the client may see."""
        views = [self._view_of(space) for space in self._broker.spaces.values()]
        return [view for view in views if view is not None and view.visible]

    def _served(self) -> list[HostView]:
        """Return those of them that this worker serves."""
        return [view for view in self._all() if view.space.elsewhere < 0]

    def _expect_managed(self, view: HostView | None = None) -> None:
        if not (self._seen(DEFAULT_VHOST) if view is None else view).managed:
            raise _not_authorised("to manage the broker")

    # -- reading -------------------------------------------------------------------------

    def _get(self, steps: Sequence[str]) -> object:
        match steps:
            case ["overview"]:
                return self._one(self._facts.overview(self._served()))
            case ["cluster-name"]:
                return {"name": NODE}
            case ["auth"]:
                return {"oauth_enabled": False}
            case ["whoami"]:
                return self._whoami()
            case ["nodes"]:
                return self._list([self._facts.node()])
            case ["nodes", name]:
                if name != NODE:
                    raise RequestRefused.missing("node", name)
                return self._one(self._facts.node())
            case ["health", "checks", *check]:
                return self._facts.check(check)
            case ["healthchecks", "node", *_]:
                return {"status": "ok"}
            case ["aliveness-test", vhost]:
                self._view(vhost)
                return {"status": "ok"}
            case ["definitions"]:
                self._expect_managed()
                return self._definitions(self._served(), self._request.part is not HttpPart.OTHER)
            case ["definitions", vhost]:
                view = self._view(vhost)
                self._expect_managed(view)
                return self._definitions([view], False)
            case ["users" | "permissions" | "vhosts", *_]:
                return self._get_of_host(steps)
            case ["policies" | "operator-policies" as kind, *rest]:
                return self._get_policies(kind == "operator-policies", rest)
            case ["connections" | "channels" | "consumers", *_]:
                return self._get_of_clients(steps)
            case [first, *_] if first in _EMPTY:
                return []
        return self._get_of_nodes(steps)

    def _get_of_host(self, steps: Sequence[str]) -> object:
        match steps:
            case ["vhosts"]:
                return self._list([view.described() for view in self._served()])
            case ["vhosts", vhost]:
                return self._one(self._view(vhost).described())
            case ["vhosts", vhost, "permissions"]:
                return self._list(self._permissions(vhost=self._seen(vhost).vhost))
            case ["vhosts", vhost, "connections"]:
                return self._list(self._view(vhost).connection_list())
            case ["vhosts", vhost, "channels"]:
                return self._list(self._view(vhost).channels())
            case ["users"]:
                self._expect_managed()
                return self._list(self._users())
            case ["users", name]:
                self._expect_managed()
                return self._one(_named(self._users(), "name", name, "user"))
            case ["users", name, "permissions"]:
                return self._list(self._permissions(user=name))
            case ["permissions"]:
                return self._list(self._permissions())
            case ["permissions", vhost, user]:
                found = self._permissions(vhost=self._seen(vhost).vhost, user=user)
                return self._one(_named(found, "user", user, "permission"))
        raise _no_path(steps)

    def _get_of_clients(self, steps: Sequence[str]) -> object:
        match steps:
            case ["connections"]:
                return self._list(self._from_all(lambda view: view.connection_list()))
            case ["connections", name]:
                found = self._from_all(lambda view: view.connection_list())
                return self._one(_named(found, "name", name, "connection"))
            case ["connections", name, "channels"]:
                found = self._from_all(lambda view: view.channels())
                return self._list([each for each in found if _of_connection(each, name)])
            case ["channels"]:
                return self._list(self._from_all(lambda view: view.channels()))
            case ["channels", name]:
                found = self._from_all(lambda view: view.channels())
                return self._one(_named(found, "name", name, "channel"))
            case ["consumers"]:
                return self._list(self._from_all(lambda view: view.consumers()))
            case ["consumers", vhost]:
                return self._list(self._view(vhost).consumers())
        raise _no_path(steps)

    def _get_of_nodes(self, steps: Sequence[str]) -> object:
        match steps:
            case ["queues"]:
                return self._list(self._from_all(lambda view: view.queues()))
            case ["queues", vhost]:
                return self._list(self._view(vhost).queues())
            case ["queues", vhost, name]:
                return self._one(self._view(vhost).queue(name))
            case ["queues", vhost, name, "bindings"]:
                view = self._view(vhost)
                view.queue(name)
                return self._list(_leading_to(view.bindings(), "queue", name))
            case ["exchanges"]:
                return self._list(self._from_all(lambda view: view.exchanges()))
            case ["exchanges", vhost]:
                return self._list(self._view(vhost).exchanges())
            case ["exchanges", vhost, name]:
                return self._one(self._view(vhost).exchange(_exchange(name)))
            case ["exchanges", vhost, name, "bindings", "source"]:
                view = self._view(vhost)
                return self._list(self._bindings_from(view, _exchange(name)))
            case ["exchanges", vhost, name, "bindings", "destination"]:
                view = self._view(vhost)
                view.exchange(_exchange(name))
                return self._list(_leading_to(view.bindings(), "exchange", name))
            case ["bindings"]:
                return self._list(self._from_all(lambda view: view.bindings()))
            case ["bindings", vhost]:
                return self._list(self._view(vhost).bindings())
            case ["bindings", vhost, "e", source, ("q" | "e") as kind, destination, *key]:
                found = self._bindings_between(self._view(vhost), source, kind, destination)
                if not key:
                    return self._list(found)
                return self._one(_named(found, "properties_key", key[0], "binding"))
        raise _no_path(steps)

    def _list(self, items: Iterable[Json]) -> object:
        return _Listing(items, self._request.query)

    def _one(self, item: Json) -> object:
        columns = [each for each in self._request.query.get("columns", "").split(",") if each]
        return chosen(item, columns)

    def _from_all(self, of: Callable[[HostView], Iterable[Json]]) -> Iterator[Json]:
        return (item for view in self._served() for item in of(view))

    def _bindings_from(self, view: HostView, exchange: str) -> list[Json]:
        if not exchange:
            return [each for each in view.bindings() if not each["source"]]
        return view.bindings_of(view.exchange_node(exchange))

    def _bindings_between(
        self, view: HostView, source: str, kind: str, destination: str
    ) -> list[Json]:
        word = "queue" if kind == "q" else "exchange"
        return _leading_to(self._bindings_from(view, _exchange(source)), word, destination)

    # -- users, permissions and policies -------------------------------------------------

    def _whoami(self) -> Json:
        groups = set(self._identity.groups)
        if any(view.managed for view in self._all()):
            groups.add(ADMINISTRATOR)
        return {"name": self._identity.user or "", "tags": sorted(groups)}

    def _users(self) -> list[Json]:
        return [
            {"name": name, "tags": sorted(groups), "limits": {}}
            for name, groups in sorted(self._host.users().items())
        ]

    def _permissions(self, vhost: str = "", user: str = "") -> list[Json]:
        """Return the permissions of users in virtual hosts; without the right to manage the broker
        only those of the client itself."""
        own = self._identity.user or ""
        known = dict(self._host.users())
        known.setdefault(own, frozenset(self._identity.groups))
        if user and user != own:
            self._expect_managed()
        managed = self._view_of(self._broker.default)
        everybody = managed is not None and managed.managed
        found: list[Json] = []
        for view in self._all():
            stated = self._permission_rules(view).stated()
            for name, groups in sorted(known.items()):
                if (user or (own if not everybody else name)) != name or not name:
                    continue
                if vhost and view.vhost != vhost:
                    continue
                identity = UserIdentity(name, groups)
                rules = view.space.rules_for(identity) if self._broker.guarded else None
                given = stated.get(name) or permissions_of(rules, identity)
                if set(given.values()) != {NOTHING}:
                    found.append({"user": name, "vhost": view.vhost, **given})
        return found

    def _get_policies(self, operator: bool, rest: Sequence[str]) -> object:
        match rest:
            case []:
                return self._list(self._from_all(lambda view: _policies(view, operator)))
            case [vhost]:
                return self._list(_policies(self._view(vhost), operator))
            case [vhost, name]:
                found = _policies(self._view(vhost), operator)
                return self._one(_named(found, "name", name, "policy"))
        raise _no_path(("policies", *rest))

    def _definitions(self, views: Sequence[HostView], whole: bool) -> Json:
        """Return the definitions. The users are without passwords, because the broker does not
        tell hashes; those of a single virtual host have no users and no permissions."""
        kept = ("name", "vhost", "type", "durable", "auto_delete", "internal", "arguments")
        queues = [
            {key: each[key] for key in kept if key in each}
            for view in views
            for each in view.queues()
            if each["durable"] and not each["exclusive"]
        ]
        exchanges = [
            {key: each[key] for key in kept}
            for view in views
            for each in view.exchanges()
            if each["durable"] and each["name"] and not str(each["name"]).startswith("amq.")
        ]
        bindings = [
            {key: value for key, value in each.items() if key != "properties_key"}
            for view in views
            for each in view.bindings()
            if each["source"]
        ]
        told = self._facts.version
        return {
            "rabbit_version": told,
            "rabbitmq_version": told,
            "product_name": "ferrymq",
            "users": [{**each, **_NO_PASSWORD} for each in self._users()] if whole else [],
            "vhosts": [{"name": view.vhost} for view in views],
            "permissions": self._permissions() if whole else [],
            "topic_permissions": [],
            "parameters": [_parameter(each) for view in views for each in _policies(view, True)],
            "global_parameters": [],
            "policies": [each for view in views for each in _policies(view, False)],
            "queues": queues,
            "exchanges": exchanges,
            "bindings": bindings,
        }

    # -- changes -------------------------------------------------------------------------

    def _change(self, method: str, steps: Sequence[str]) -> Answer:
        match (method, *steps):
            case ("PUT", "queues", vhost, name):
                view = self._view(vhost)
                body = {**self._body(), "exclusive": False}
                status, _ = view.requests.queues.declare(view.party, name, body)
                return _made(status == HTTPStatus.CREATED), None
            case ("DELETE", "queues", vhost, name):
                return self._delete_queue(self._view(vhost), name)
            case ("DELETE", "queues", vhost, name, "contents"):
                view = self._view(vhost)
                view.requests.queues.purge(view.party, name)
                return HTTPStatus.NO_CONTENT, None
            case ("POST", "queues", vhost, name, "get"):
                view = self._view(vhost)
                view.queue(name)
                node = view.queue_node(name)
                if not isinstance(node, Queue):
                    raise bad_request("messages of a stream cannot be taken one by one")
                return HTTPStatus.OK, get_messages(view.space, view.party, node, self._body())
            case ("PUT", "exchanges", vhost, name):
                view = self._view(vhost)
                before = len(view.space.nodes)
                view.requests.exchanges.declare(view.party, name, self._body())
                return _made(len(view.space.nodes) > before), None
            case ("DELETE", "exchanges", vhost, name):
                view = self._view(vhost)
                view.exchange_node(name)
                view.requests.exchanges.delete(view.party, name)
                return HTTPStatus.NO_CONTENT, None
            case ("POST", "exchanges", vhost, name, "publish"):
                view = self._view(vhost)
                return HTTPStatus.OK, publish(view.space, view.party, name, self._body())
            case ("POST", "bindings", vhost, "e", source, ("q" | "e") as kind, destination):
                return self._bind(self._view(vhost), source, kind, destination)
            case ("DELETE", "bindings", vhost, "e", source, ("q" | "e") as kind, destination, key):
                return self._unbind(self._view(vhost), source, kind, destination, key)
            case ("DELETE", "connections", name):
                return self._close(name)
            case ("POST", "definitions", *vhost):
                return HTTPStatus.OK, self._import(vhost[0] if vhost else "")
            case (_, "users" | "permissions" | "policies" | "operator-policies" | "vhosts", *_):
                return self._change_of_host(method, steps)
            case (_, first, *_) if first in _OF_FILES:
                raise RequestRefused(HTTPStatus.METHOD_NOT_ALLOWED, _OF_FILES[first])
        raise _no_path(steps)

    def _change_of_host(self, method: str, steps: Sequence[str]) -> Answer:
        match (method, *steps):
            case ("PUT", "users", name):
                self._expect_managed()
                return HTTPStatus.CREATED, put_user(self._users_type, name, self._body())
            case ("DELETE", "users", name):
                self._expect_managed()
                return HTTPStatus.NO_CONTENT, delete_user(self._users_type, name)
            case ("POST", "users", "bulk-delete"):
                self._expect_managed()
                return HTTPStatus.NO_CONTENT, delete_users(self._users_type, self._body())
            case ("PUT", "permissions", vhost, user):
                return _made(self._put_permission(self._managed_view(vhost), user)), None
            case ("DELETE", "permissions", vhost, user):
                if not self._permission_rules(self._managed_view(vhost)).delete(user):
                    raise RequestRefused.missing("permission", user)
                return HTTPStatus.NO_CONTENT, None
            case ("PUT", "policies" | "operator-policies" as kind, vhost, name):
                policies = self._host_policies(vhost)
                table = {"apply-to": "all", **self._body(), "name": name}
                try:
                    policy = policy_of(table, kind == "operator-policies")
                except ValueError as error:
                    raise bad_request(str(error)) from None
                return _made(policies.put(policy)), None
            case ("DELETE", "policies" | "operator-policies" as kind, vhost, name):
                self._host_policies(vhost).delete(name, kind == "operator-policies")
                return HTTPStatus.NO_CONTENT, None
            case ("PUT", "vhosts", vhost) if self._is_there(vhost):
                return HTTPStatus.NO_CONTENT, None
        if steps[0] in _OF_FILES:
            raise RequestRefused(HTTPStatus.METHOD_NOT_ALLOWED, _OF_FILES[steps[0]])
        raise _no_path(steps)

    def _is_there(self, vhost: str) -> bool:
        self._expect_managed()
        return any(view.vhost == vhost for view in self._all())

    @property
    def _users_type(self) -> UserEntities:
        return UserEntities(self._host.keepers.users)

    def _managed_view(self, vhost: str) -> HostView:
        """Return a virtual host whose rules and policies the client may change: with the right to
        manage it, or the broker. Raises `RequestRefused`."""
        if vhost != DEFAULT_VHOST:
            space = self._broker.spaces.get(vhost)
            view = None if space is None or vhost == DEFAULT_SPACE else self._view_of(space)
            if view is not None and view.managed:
                return view
            self._expect_managed()
            if view is None:
                raise RequestRefused.missing("virtual host", vhost)
            return view
        self._expect_managed()
        return self._seen(vhost)

    def _permission_rules(self, view: HostView) -> PermissionRules:
        return PermissionRules(view.space, self._host.keepers.rules, view.party)

    def _put_permission(self, view: HostView, user: str) -> bool:
        if user not in self._host.users():
            raise bad_request(f"there is no user {user[:200]!r}")
        body = self._body()
        if not self._broker.guarded and view.vhost != DEFAULT_VHOST:
            # The first rule closes the broker; administrators have to keep their rights.
            self._permission_rules(self._seen(DEFAULT_VHOST)).expect_managed()
        return self._permission_rules(view).put(user, body)

    def _host_policies(self, vhost: str) -> HostPolicies:
        space = self._managed_view(vhost).space
        if space.elsewhere >= 0:
            raise ServedElsewhereError(space)
        policies = getattr(space.personality, "host_policies", None)
        assert isinstance(policies, HostPolicies)
        return policies

    def _body(self) -> dict[str, object]:
        """Return the object in the body. Some tools send flags as text."""
        data = self._request.body
        try:
            found = json.loads(data) if data else {}
        except (ValueError, RecursionError):
            raise bad_request("the body is no JSON") from None
        if not isinstance(found, dict):
            raise bad_request("the body must be a JSON object")
        for flag in _FLAGS:
            if found.get(flag) in ("true", "false"):
                found[flag] = found[flag] == "true"
        if not found.get("arguments"):
            found.pop("arguments", None)
        return found

    def _delete_queue(self, view: HostView, name: str) -> Answer:
        node = view.queue_node(name)
        view.queue(name)
        query = self._request.query
        if query.get("if-empty") == "true" and node.message_count() > 0:
            raise bad_request(f"the queue {name[:200]!r} is not empty")
        if query.get("if-unused") == "true" and node.consumers_of():
            raise bad_request(f"the queue {name[:200]!r} is in use")
        view.requests.queues.delete(view.party, name)
        return HTTPStatus.NO_CONTENT, None

    def _bind(self, view: HostView, source: str, kind: str, destination: str) -> Answer:
        body = self._body()
        what = "destination_queue" if kind == "q" else "destination_exchange"
        asked: dict[str, object] = {
            "source": _exchange(source),
            what: destination,
            "binding_key": body.get("routing_key", ""),
            "arguments": body.get("arguments"),
        }
        view.requests.bindings.bind(view.party, asked)
        for each in self._bindings_between(view, source, kind, destination):
            same = each["routing_key"] == asked["binding_key"]
            if same and each["arguments"] == (asked["arguments"] or {}):
                self.location = f"{quote(destination, safe='')}/{each['properties_key']}"
        return HTTPStatus.CREATED, None

    def _unbind(self, view: HostView, source: str, kind: str, destination: str, key: str) -> Answer:
        between = self._bindings_between(view, source, kind, destination)
        binding = _named(between, "properties_key", key, "binding")
        bindings = view.requests.bindings
        asked = {"src": _exchange(source), f"dst{kind}": destination, "key": binding["routing_key"]}
        for each in bindings.list(view.party, asked):
            if each["arguments"] == binding["arguments"]:
                place = str(each["location"]).removeprefix("/bindings/")
                bindings.unbind(view.party, place)
        return HTTPStatus.NO_CONTENT, None

    def _close(self, name: str) -> Answer:
        reason = self._request.headers.get("x-reason", "closed by management")
        for view in self._served():
            number = view.connection_numbers().get(name)
            if number is not None:
                view.connections.delete(Call(view.party, number, {"reason": reason[:200]}))
                return HTTPStatus.NO_CONTENT, None
        raise RequestRefused.missing("connection", name)

    def _import(self, vhost: str) -> Steps[object]:
        self._expect_managed(self._view(vhost) if vhost else None)
        is_other = self._request.part is HttpPart.OTHER
        keepers = None if vhost or is_other else self._host.keepers
        try:
            definitions = parse_definitions(self._request.body, vhost)
            return (
                yield from import_definitions_into(
                    self._broker, definitions, self._party, keepers, only_nodes=is_other
                )
            )
        except ValueError as error:
            raise bad_request(str(error)) from None


def _exchange(name: str) -> str:
    """Return the name of an exchange by its name in a path."""
    return "" if name == DEFAULT_EXCHANGE else name


@dataclass(frozen=True, slots=True)
class _Listing:
    """A list to be made in steps, as the query asks for it."""

    items: Iterable[Json]
    query: Mapping[str, str]


def _listed(work: _Work, listing: _Listing) -> HttpSteps:
    """Make the response with a list."""
    items: list[Json] = []
    try:
        for item in listing.items:
            items.append(item)
            if len(items) % ROWS == 0:
                yield
        found = arranged(items, listing.query)
    except Exception as error:
        return _refused(work, error)
    return _encoded(HTTPStatus.OK, (yield from encoded_list(found)))


def _changed(work: _Work, steps: Steps[object]) -> HttpSteps:
    """Make the response to a change that takes long. The steps return the body; None for none, and
    True for a change of what was there before."""
    try:
        while True:
            try:
                next(steps)
            except StopIteration as end:
                body: object = end.value
                break
            yield
    except Exception as error:
        return _refused(work, error)
    status = HTTPStatus.OK
    if body is None or isinstance(body, bool):
        status = _made(body is False)
        body = None
    work.record(status, "")
    return _response(status, body)


def _refused(work: _Work, error: Exception) -> HttpResponse:
    status, reason = failure_of(error)
    work.record(status, reason)
    return _response(status, error_body(status, reason))


def _policies(view: HostView, operator: bool) -> list[Json]:
    return [_policy(view, policy) for policy in policies_of(view.space).all(operator)]


def _policy(view: HostView, policy: PatternPolicy) -> Json:
    return {
        "vhost": view.vhost,
        "name": policy.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "priority": policy.priority,
        "definition": dict(policy.definition),
    }


def _parameter(policy: Json) -> Json:
    """Return an operator policy as definitions have it."""
    value = {key: policy[key] for key in ("pattern", "apply-to", "priority", "definition")}
    name, vhost = policy["name"], policy["vhost"]
    return {"component": "operator_policy", "name": name, "vhost": vhost, "value": value}


def _named(items: Iterable[Json], key: str, value: str, kind: str) -> Json:
    for item in items:
        if item[key] == value:
            return item
    raise RequestRefused.missing(kind, value)


def _leading_to(bindings: Iterable[Json], kind: str, name: str) -> list[Json]:
    return [
        each
        for each in bindings
        if each["destination_type"] == kind and each["destination"] == name
    ]


def _of_connection(channel: Json, name: str) -> bool:
    return bool(channel["connection_details"]["name"] == name)


def _made(new: bool) -> HTTPStatus:
    return HTTPStatus.CREATED if new else HTTPStatus.NO_CONTENT


def _no_path(steps: Sequence[str]) -> RequestRefused:
    return RequestRefused(HTTPStatus.NOT_FOUND, f"there is no {'/'.join(steps)[:200]!r} here")


def _not_authorised(what: str) -> RequestRefused:
    return RequestRefused(HTTPStatus.FORBIDDEN, f"{what} is not allowed to you")


def _response(
    status: HTTPStatus, body: object, headers: Mapping[str, str] | None = None
) -> HttpResponse:
    return _encoded(status, b"" if body is None else json.dumps(body).encode(), headers)


def _encoded(
    status: HTTPStatus, body: bytes, headers: Mapping[str, str] | None = None
) -> HttpResponse:
    told = {**(headers or {}), "Cache-Control": "no-cache"}
    if body:
        told["Content-Type"] = "application/json"
    return HttpResponse(int(status), body, told)
