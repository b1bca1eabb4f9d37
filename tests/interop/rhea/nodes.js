// Nodes of every kind: default outcomes, bounds, times, topics, streams, exchanges, lifetimes.
'use strict';

const rhea = require('rhea');
const { message: codec, types } = rhea;

const {
    Inbox, close, close_link, condition, connect, once, open_sender, remaining, send_all, tell,
} = require('./support.js');

function bodies_of(contexts) {
    return contexts.map((context) => context.message.body);
}

async function publish(connection, target, ...messages) {
    const sender = await open_sender(connection, { target });
    const outcomes = await send_all(sender, messages.map(
        (message) => (message !== null && typeof message === 'object' ? message : { body: message }),
    ));
    await close_link(sender);
    return outcomes;
}

// Detaches the link without closing it; done when the broker has answered.
async function detach(link) {
    const closed = once(link, link.is_receiver() ? 'receiver_close' : 'sender_close');
    link.detach();
    await closed;
}

// Resolves when no consumer holds anything of the queue any more, as management tells.
async function settled(connection, name) {
    const inbox = new Inbox(connection, { source: { dynamic: true } });
    await inbox.opened;
    const reply_to = inbox.receiver.source.address;
    const sender = await open_sender(connection, { target: '$management' });
    let held = 1;
    while (held) {
        sender.send({
            reply_to, application_properties: { operation: 'READ', type: 'queue', name },
        });
        const { message } = await inbox.take();
        held = message.body.messages - message.body.available;
    }
    await close_link(sender);
    await inbox.close();
}

// A link's own words about a delivery it never settled: what becomes of the message.
async function default_outcome(params) {
    const other = await connect(params);
    await publish(other, params.address, 'x');
    const connection = await connect({ ...params, port: params.relay || params.port });
    const source = { address: params.address };
    if (params.outcome) {
        source.default_outcome = codec[params.outcome](params.fields).described();
    }
    const inbox = new Inbox(connection, {
        source, autoaccept: false, autosettle: false, credit_window: 0,
    });
    await inbox.opened;
    inbox.receiver.add_credit(1);
    const { delivery } = await inbox.take();
    const told = inbox.receiver.source.default_outcome;
    if (params.end === 'settle') {
        delivery.update(true);
        await remaining(connection, params.address + '-fence');
    } else if (params.end === 'close') {
        await inbox.close();
    } else if (params.end === 'detach') {
        await detach(inbox.receiver);
    }
    if (params.end === 'lost') {
        const lost = once(connection, 'disconnected');
        tell('taken');
        await lost;
        await settled(other, params.address);
    } else {
        await close(connection);
    }
    const left = new Inbox(other, { source: params.address, credit_window: 0 });
    await left.opened;
    const drained = once(left.receiver, 'receiver_drained');
    left.receiver.add_credit(10);
    left.receiver.drain_credit();
    await drained;
    const dead = await remaining(other, params.dead);
    await close(other);
    return {
        told: told && told.descriptor ? Number(told.descriptor.value) : null,
        left: left.contexts.map(({ message }) => [
            message.body, message.delivery_count || 0, message.message_annotations || null,
        ]),
        dead,
    };
}

// Outcomes of what is sent, and what is in the queues afterwards.
async function publish_and_look(params) {
    const connection = await connect(params);
    const outcomes = await publish(connection, params.address, ...params.messages);
    const left = {};
    for (const address of params.queues) {
        left[address] = await remaining(connection, address);
    }
    await close(connection);
    return { outcomes, left };
}

// What comes to a queue, in order, with the annotations and the time it took from the start.
async function wait_for(params) {
    const connection = await connect(params);
    const inbox = new Inbox(connection, { source: params.queue });
    await inbox.opened;
    const begun = Date.now();
    await publish(connection, params.address, ...params.messages);
    const result = [];
    while (result.length < params.count) {
        const { message } = await inbox.take();
        result.push({
            body: message.body,
            after: Date.now() - begun,
            annotations: message.message_annotations || {},
        });
    }
    await close(connection);
    return result;
}

// A queue that is full gives no credit until a consumer takes a message.
async function blocked(params) {
    const connection = await connect(params);
    const sender = await open_sender(connection, { target: params.address });
    const outcomes = [];
    for (let number = 0; number < 2; number += 1) {
        if (!sender.sendable()) {
            await once(sender, 'sendable');
        }
        sender.send({ body: number });
        await once(sender, 'accepted');
    }
    await remaining(connection, params.address + '-fence');
    outcomes.push(sender.sendable());
    const sendable = once(sender, 'sendable');
    const inbox = new Inbox(connection, { source: params.address, credit_window: 0 });
    await inbox.opened;
    inbox.receiver.add_credit(1);
    outcomes.push((await inbox.take()).message.body);
    await sendable;
    outcomes.push(sender.sendable());
    await close(connection);
    return outcomes;
}

// Links with properties: who gets what, and what they are told that they have.
async function consumers(params) {
    const connection = await connect(params);
    const inboxes = [];
    const told = [];
    for (const properties of params.properties) {
        const inbox = new Inbox(connection, {
            source: params.address, properties, credit_window: 0,
        });
        await inbox.opened;
        inbox.receiver.add_credit(params.credit);
        inboxes.push(inbox);
        told.push(inbox.receiver.properties || null);
    }
    const count = params.credit * inboxes.length;
    await publish(connection, params.address, ...Array(count).keys());
    const shares = [];
    for (const inbox of inboxes) {
        shares.push(bodies_of(await inbox.take_many(params.credit)));
    }
    await close(connection);
    return { told, shares };
}

// A receiver on a durable subscription.
function subscriber(connection, address, name, more) {
    return new Inbox(connection, {
        name,
        source: { address, durable: 2, expiry_policy: 'never', capabilities: ['topic'] },
        ...more,
    });
}

// A durable subscription through detach, lost client, another connection, and close.
async function durable(params) {
    const id = { id: 'rhea-' + params.address };
    const seen = [];
    let mine = await connect_as(params, id);
    const other = await connect(params);
    let inbox = subscriber(mine, params.address, 'sub');
    await inbox.opened;
    await publish(other, params.address, 1);
    seen.push((await inbox.take()).message.body);
    // rhea answers to a detach, and closes nothing.
    await detach(inbox.receiver);
    await publish(other, params.address, 2);
    await close(mine);
    mine = await connect_as(params, id);
    inbox = subscriber(mine, params.address, 'sub');
    seen.push((await inbox.take()).message.body);
    await remaining(mine, params.fence);
    // Another connection of the same client takes it over, and rhea closes what was detached.
    const thief = await connect_as(params, id);
    const stolen = once(inbox.receiver, 'receiver_error');
    const taken = subscriber(thief, params.address, 'sub');
    await taken.opened;
    await stolen;
    const error = condition(inbox.receiver.error);
    await remaining(mine, params.fence);
    await publish(other, params.address, 3);
    seen.push((await taken.take()).message.body);
    // Closing it ends the subscription.
    await taken.close();
    await publish(other, params.address, 4);
    const again = subscriber(thief, params.address, 'sub');
    await again.opened;
    await publish(other, params.address, 5);
    seen.push((await again.take()).message.body);
    await again.close();
    await close(thief);
    await close(mine);
    await close(other);
    return { seen, error };
}

async function connect_as(params, { id }) {
    const container = rhea.create_container({ id });
    const connection = container.connect({ host: '127.0.0.1', port: params.port, reconnect: false });
    await once(connection, 'connection_open');
    return connection;
}

// Two connections share a subscription, and both are told what they share.
async function shared(params) {
    const [one, two] = [await connect(params), await connect(params)];
    const options = (number) => ({
        name: params.group + '|' + number,
        source: { address: params.address, capabilities: ['topic', 'shared', 'global'] },
        desired_capabilities: ['SHARED-SUBS', 'example:nothing'],
        credit_window: 0,
    });
    const inboxes = [new Inbox(one, options(1)), new Inbox(two, options(2))];
    for (const inbox of inboxes) {
        await inbox.opened;
        inbox.receiver.add_credit(1);
    }
    await remaining(one, params.fence);
    await remaining(two, params.fence);
    await publish(one, params.address, 'a', 'b');
    const bodies = [];
    for (const inbox of inboxes) {
        bodies.push((await inbox.take()).message.body);
    }
    const { receiver } = inboxes[0];
    const result = {
        bodies: bodies.sort(),
        offered: receiver.offered_capabilities,
        capabilities: receiver.source.capabilities,
        connection: one.offered_capabilities,
    };
    await close(one);
    await close(two);
    return result;
}

// What a reader of a stream gets from a position, as pairs of offset and body.
async function read_stream(params) {
    const connection = await connect(params);
    await publish(connection, params.address, ...params.messages);
    const results = [];
    for (const position of params.positions) {
        const value = typeof position === 'number' ? types.wrap_ulong(position) : position;
        const inbox = new Inbox(connection, {
            source: {
                address: params.address,
                filter: { where: types.wrap_described(value, 'ferrymq:position') },
            },
            credit_window: 0,
        });
        await inbox.opened;
        const drained = once(inbox.receiver, 'receiver_drained');
        inbox.receiver.add_credit(100);
        inbox.receiver.drain_credit();
        await drained;
        results.push(inbox.contexts.map(({ message }) => [
            message.message_annotations['x-opt-offset'], message.body,
        ]));
        await inbox.close();
    }
    await close(connection);
    return results;
}

// A dynamic node of some lifetime: what is there when its owner is gone, and then its messages.
async function lifetime(params) {
    const [owner, other] = [await connect(params), await connect(params)];
    const policy = types.described(types.wrap_ulong(params.code), types.wrap_list([]));
    const inbox = new Inbox(owner, {
        source: { dynamic: true, dynamic_node_properties: { 'lifetime-policy': policy } },
        credit_window: 0,
    });
    await inbox.opened;
    const { source } = inbox.receiver;
    const kept = source.dynamic_node_properties['lifetime-policy'];
    const sender = await open_sender(other, { target: source.address });
    await send_all(sender, [{ body: 'x' }]);
    const ended = once(sender, 'sender_close');
    let error = null;
    sender.on('sender_error', () => { error = condition(sender.error).condition; });
    await inbox.close();
    if (params.ends) {
        await ended;
    } else {
        await remaining(other, params.fence);
        sender.close();
        await ended;
    }
    const looking = other.open_receiver({ source: source.address, credit_window: 0 });
    const there = await new Promise((resolve) => {
        looking.on('receiver_error', () => resolve(condition(looking.error).condition));
        looking.on('receiver_open', () => {
            // rhea has a source of nulls where there is none.
            if (looking.source && looking.source.address) {
                resolve('there');
            }
        });
    });
    await close(owner);
    await close(other);
    return { kept: Number(kept.descriptor ? kept.descriptor.value : NaN), error, there };
}

// An outcome that the link has not agreed to ends the link; the connection goes on.
async function not_agreed(params) {
    const connection = await connect(params);
    await publish(connection, params.address, 'x');
    const inbox = new Inbox(connection, {
        source: { address: params.address, outcomes: ['amqp:accepted:list'] },
        autoaccept: false,
    });
    const { delivery } = await inbox.take();
    const outcomes = inbox.receiver.source.outcomes;
    const failed = once(inbox.receiver, 'receiver_error');
    delivery.release();
    await failed;
    const error = condition(inbox.receiver.error);
    const { closed } = inbox.receiver.remote.detach;
    const left = await remaining(connection, params.address);
    await close(connection);
    return { outcomes, error, closed, left };
}

// The filters that are in place, by their names.
async function filters(params) {
    const connection = await connect(params);
    const inbox = new Inbox(connection, {
        source: {
            address: params.address,
            filter: {
                ...rhea.filter.selector("colour = 'red'"),
                odd: types.wrap_described('x', 'example:unheard-of'),
            },
        },
    });
    await inbox.opened;
    await publish(
        connection, params.address,
        { body: 'blue', application_properties: { colour: 'blue' } },
        { body: 'red', application_properties: { colour: 'red' } },
    );
    const { message } = await inbox.take();
    const names = Object.keys(inbox.receiver.source.filter);
    await close(connection);
    return { names, body: message.body };
}

// Which of the capabilities that a link desires it is offered, for each address.
async function offered(params) {
    const connection = await connect(params);
    const result = {};
    for (const address of params.addresses) {
        const options = { desired_capabilities: params.desired };
        const inbox = new Inbox(connection, { source: address, ...options });
        await inbox.opened;
        const sender = await open_sender(connection, { target: address, ...options });
        result[address] = [inbox.receiver, sender].map(
            (link) => [].concat(link.offered_capabilities || []).map(String).sort(),
        );
    }
    await close(connection);
    return result;
}

// rhea reconnects by itself, and a durable subscription is there again with what had been held.
async function reconnecting_subscriber(params) {
    const container = rhea.create_container({ id: 'rhea-' + params.address });
    const connection = container.connect({
        host: '127.0.0.1', port: params.relay, initial_reconnect_delay: 10, max_reconnect_delay: 10,
    });
    await once(connection, 'connection_open');
    const inbox = subscriber(connection, params.address, 'sub', { autoaccept: false });
    await inbox.opened;
    const other = await connect(params);
    await publish(other, params.address, 1, 2);
    const first = await inbox.take();
    first.delivery.accept();
    await remaining(connection, params.fence);
    await inbox.take();
    const again = once(inbox.receiver, 'receiver_open');
    tell('taken');
    await again;
    await publish(other, params.address, 3);
    const seen = [];
    while (seen.length < 2) {
        const { message, delivery } = await inbox.take();
        delivery.accept();
        seen.push([message.body, message.delivery_count || 0]);
    }
    await inbox.close();
    await close(connection);
    await close(other);
    return seen;
}

// A request to the management node, over a dynamic queue or over a pair of links.
async function manage(params) {
    const connection = await connect(params);
    const paired = params.paired ? { name: 'pair', properties: { paired: true } } : {};
    const inbox = new Inbox(connection, {
        source: params.paired ? '$management' : { dynamic: true }, ...paired,
    });
    await inbox.opened;
    const sender = await open_sender(connection, { target: '$management', ...paired });
    const answers = [];
    for (const [operation, body] of params.requests) {
        const sent = send_all(sender, [{
            message_id: operation,
            reply_to: params.paired ? '$me' : inbox.receiver.source.address,
            application_properties: { operation, type: 'queue', name: params.entity },
            body,
        }]);
        const { message } = await inbox.take();
        await sent;
        sender.removeAllListeners();
        answers.push([message.correlation_id, message.application_properties.statusCode,
            message.body ? message.body['max-length'] || null : null]);
    }
    await close(connection);
    return answers;
}

// What the connection of a host finds in a queue.
async function host(params) {
    const connection = await connect(params, { hostname: params.hostname });
    const left = await remaining(connection, params.address);
    await publish(connection, params.address, params.hostname);
    await close(connection);
    return left;
}

// A connection to a host that is not there.
async function no_host(params) {
    const container = rhea.create_container();
    const connection = container.connect({
        host: '127.0.0.1', port: params.port, reconnect: false, hostname: params.hostname,
    });
    await once(connection, 'connection_error');
    return condition(connection.error);
}

// What a link that is redirected is told.
async function redirected(params) {
    const connection = await connect(params);
    const sender = connection.open_sender({ target: params.address });
    await once(sender, 'sender_error');
    const { error } = sender;
    const result = { condition: error.condition, info: error.info };
    await close(connection);
    return result;
}

module.exports = {
    blocked, consumers, default_outcome, durable, filters, host, lifetime, manage, no_host,
    not_agreed, offered, publish_and_look, read_stream, reconnecting_subscriber, redirected, shared, wait_for,
};
