// Settlement modes and outcomes.
'use strict';

const {
    Inbox, close, connect, once, open_sender, remaining, send_all, tell,
} = require('./support.js');

function bodies_of(contexts) {
    return contexts.map((context) => context.message.body);
}

async function fill(connection, address, ...bodies) {
    const sender = await open_sender(connection, { target: address });
    await send_all(sender, bodies.map((body) => ({ body })));
}

// Sender-settle-mode 1: nothing comes back, everything arrives.
async function sent_settled(params) {
    const connection = await connect(params);
    const sender = await open_sender(connection, { target: params.address, snd_settle_mode: 1 });
    if (!sender.sendable()) {
        await once(sender, 'sendable');
    }
    const deliveries = [1, 2, 3].map((body) => sender.send({ body }));
    const inbox = new Inbox(connection, { source: params.address });
    const received = bodies_of(await inbox.take_many(3));
    const states = deliveries.map((delivery) => delivery.remote_state || null);
    const mode = sender.snd_settle_mode;
    await inbox.close();
    await close(connection);
    return { received, states, mode };
}

// A receiver that wants settled deliveries gets them once.
async function received_settled(params) {
    const connection = await connect(params);
    await fill(connection, params.address, 1, 2, 3);
    const inbox = new Inbox(connection, {
        source: params.address, snd_settle_mode: 1, credit_window: 0, autoaccept: false,
    });
    await inbox.opened;
    inbox.receiver.add_credit(2);
    const contexts = await inbox.take_many(2);
    await inbox.close();
    const left = await remaining(connection, params.address);
    await close(connection);
    return {
        received: bodies_of(contexts),
        settled: contexts.map((context) => context.delivery.remote_settled),
        left,
    };
}

// Gives the first of two messages the outcome, and says what comes next and what is left.
async function outcome(params) {
    const connection = await connect(params);
    await fill(connection, params.address, 'first', 'second');
    const inbox = new Inbox(connection, {
        source: params.address, credit_window: 0, autoaccept: false,
    });
    await inbox.opened;
    inbox.receiver.add_credit(1);
    const { delivery } = await inbox.take();
    delivery[params.outcome](params.argument);
    inbox.receiver.add_credit(1);
    const next = await inbox.take();
    await inbox.close();
    const left = await remaining(connection, params.address);
    await close(connection);
    return {
        body: next.message.body,
        delivery_count: next.message.delivery_count || 0,
        annotations: next.message.message_annotations || null,
        left,
    };
}

// Receiver-settle-mode 1: the broker settles after the outcome, then rhea does.
async function settles_second(params) {
    const connection = await connect(params);
    await fill(connection, params.address, 1, 2, 3);
    const inbox = new Inbox(connection, {
        source: params.address, rcv_settle_mode: 1, credit_window: 3,
    });
    let settled = 0;
    const all = new Promise((resolve) => inbox.receiver.on('settled', () => {
        settled += 1;
        if (settled === 3) {
            resolve();
        }
    }));
    const received = bodies_of(await inbox.take_many(3));
    await all;
    const mode = inbox.receiver.rcv_settle_mode;
    await inbox.close();
    const left = await remaining(connection, params.address);
    await close(connection);
    return { received, mode, left };
}

// A sender that asks for receiver-settle-mode 1 gets the outcome before it settles.
async function sender_settles_first(params) {
    const connection = await connect(params);
    const sender = await open_sender(connection, {
        target: params.address, rcv_settle_mode: 1, autosettle: false,
    });
    if (!sender.sendable()) {
        await once(sender, 'sendable');
    }
    const accepted = once(sender, 'accepted');
    const delivery = sender.send({ body: 1 });
    await accepted;
    const settled_by_broker = delivery.remote_settled;
    delivery.update(true);
    const left = await remaining(connection, params.address);
    await close(connection);
    return { settled_by_broker, left };
}

// Outcomes of many messages in any order.
async function out_of_order(params) {
    const connection = await connect(params);
    await fill(connection, params.address, 0, 1, 2, 3, 4, 5);
    const inbox = new Inbox(connection, {
        source: params.address, credit_window: 6, autoaccept: false,
    });
    const contexts = await inbox.take_many(6);
    for (const [number, action] of params.actions) {
        contexts[number].delivery[action]();
    }
    await inbox.close();
    const left = await remaining(connection, params.address);
    await close(connection);
    return left;
}

// Takes `count` messages without an answer and waits until the connection is cut; then takes them
// again over `port`.
async function lost_connection(params) {
    const connection = await connect({ port: params.relay });
    await fill(connection, params.address, ...params.bodies);
    const inbox = new Inbox(connection, {
        source: params.address, credit_window: 0, autoaccept: false,
    });
    await inbox.opened;
    inbox.receiver.add_credit(params.count);
    const before = bodies_of(await inbox.take_many(params.count));
    const lost = once(connection, 'disconnected');
    tell('taken');
    await lost;
    const other = await connect(params);
    const again = new Inbox(other, { source: params.address });
    const contexts = await again.take_many(params.bodies.length);
    await again.close();
    await close(other);
    return {
        before,
        after: contexts.map(({ message }) => [message.body, message.delivery_count || 0]),
    };
}

module.exports = {
    lost_connection, out_of_order, outcome, received_settled, sender_settles_first, sent_settled,
    settles_second,
};
