// Browsing, dynamic nodes, drain, sessions, the anonymous terminus, links that are refused.
'use strict';

const {
    Inbox, close, close_link, condition, connect, once, open_sender, remaining, send_all,
} = require('./support.js');

async function fill(connection, address, ...bodies) {
    const sender = await open_sender(connection, { target: address });
    await send_all(sender, bodies.map((body) => ({ body })));
}

// A browser sees what is there and what comes, and everything stays.
async function browse(params) {
    const connection = await connect(params);
    await fill(connection, params.address, 1, 2, 3);
    const browser = new Inbox(connection, {
        source: { address: params.address, distribution_mode: 'copy' },
    });
    const seen = await browser.take_many(3);
    await fill(connection, params.address, 4);
    seen.push(await browser.take());
    const mode = browser.receiver.source.distribution_mode;
    await browser.close();
    const left = await remaining(connection, params.address);
    await close(connection);
    return { mode, seen: seen.map((context) => context.message.body), left };
}

// A client with a dynamic reply address, and a server that answers over the anonymous terminus.
async function request_response(params) {
    const [client, server] = [await connect(params), await connect(params)];
    const requests = new Inbox(server, { source: params.address });
    await requests.opened;
    const answers = await open_sender(server, { target: {} });
    const replies = new Inbox(client, { source: { dynamic: true } });
    await replies.opened;
    const reply_to = replies.receiver.source.address;
    const sender = await open_sender(client, { target: params.address });
    const bodies = [];
    for (const word of ['one', 'two', 'three']) {
        const sent = send_all(sender, [{ body: word, reply_to, correlation_id: word }]);
        const { message } = await requests.take();
        await send_all(answers, [{
            to: message.reply_to, correlation_id: message.correlation_id,
            body: message.body.toUpperCase(),
        }]);
        const reply = (await replies.take()).message;
        bodies.push([reply.correlation_id, reply.body]);
        await sent;
        sender.removeAllListeners();
        answers.removeAllListeners();
    }
    const dynamic = replies.receiver.source.dynamic;
    await close(client);
    await close(server);
    return { dynamic, bodies };
}

// A dynamic node ends with the link that made it.
async function dynamic_ends(params) {
    const [owner, other] = [await connect(params), await connect(params)];
    const inbox = new Inbox(owner, { source: { dynamic: true } });
    await inbox.opened;
    const sender = await open_sender(other, { target: inbox.receiver.source.address });
    await send_all(sender, [{ body: 'hello' }]);
    const { message } = await inbox.take();
    const ended = once(sender, 'sender_error');
    await inbox.close();
    await ended;
    const error = condition(sender.error);
    await close(owner);
    await close(other);
    return { body: message.body, error };
}

// Credit is the limit, and drain gives it back.
async function drain(params) {
    const connection = await connect(params);
    const empty = await remaining(connection, params.address);
    await fill(connection, params.address, 1, 2, 3, 4, 5);
    const inbox = new Inbox(connection, { source: params.address, credit_window: 0 });
    await inbox.opened;
    inbox.receiver.add_credit(2);
    const limited = (await inbox.take_many(2)).map((context) => context.message.body);
    const waiting = inbox.contexts.length;
    await inbox.close();
    const left = await remaining(connection, params.address);
    await close(connection);
    return { empty, limited, waiting, left };
}

// As many sessions as asked for, with a sender and a receiver each.
async function sessions(params) {
    const connection = await connect(params);
    const bodies = [];
    for (let number = 0; number < params.count; number += 1) {
        const session = connection.create_session();
        session.begin();
        const address = params.address + number;
        const inbox = new Inbox(session, { source: address });
        const sender = session.open_sender({ target: address });
        await once(sender, 'sender_open');
        await send_all(sender, [{ body: number }]);
        bodies.push((await inbox.take()).message.body);
    }
    await close(connection);
    return bodies;
}

// Competing receivers on connections of their own.
async function compete(params) {
    const connections = [];
    const inboxes = [];
    for (let number = 0; number < 3; number += 1) {
        const connection = await connect(params);
        const inbox = new Inbox(connection, { source: params.address, credit_window: 4 });
        await inbox.opened;
        connections.push(connection);
        inboxes.push(inbox);
    }
    // The flows have been read when another link on the same connections has been answered.
    for (const connection of connections) {
        await remaining(connection, params.address + '-other');
    }
    await fill(connections[0], params.address, ...Array(12).keys());
    const shares = [];
    for (const inbox of inboxes) {
        const contexts = await inbox.take_many(4);
        shares.push(contexts.map((context) => context.message.body));
    }
    for (const connection of connections) {
        await close(connection);
    }
    return shares;
}

// Each message says where it goes; one that says nothing useful is rejected.
async function relay(params) {
    const connection = await connect(params);
    const sender = await open_sender(connection, { target: {} });
    const messages = params.to.map((to, body) => (to === null ? { body } : { to, body }));
    const outcomes = await send_all(sender, messages);
    const received = [];
    for (const address of params.to) {
        if (address !== null && !address.startsWith('$')) {
            received.push(await remaining(connection, address));
        }
    }
    const capabilities = connection.offered_capabilities;
    await close(connection);
    return { outcomes, received, capabilities };
}

// What a link that is refused is told.
async function refused(params) {
    const connection = await connect(params);
    const is_receiver = params.direction === 'receiver';
    const link = is_receiver
        ? connection.open_receiver({ source: params.terminus })
        : connection.open_sender({ target: params.terminus });
    const opened = once(link, is_receiver ? 'receiver_open' : 'sender_open');
    await once(link, is_receiver ? 'receiver_error' : 'sender_error');
    await opened;
    const error = condition(link.error);
    const terminus = is_receiver ? link.source : link.target;
    // The connection goes on.
    const inbox = new Inbox(connection, { source: { dynamic: true } });
    await inbox.opened;
    await close(connection);
    return { error, address: (terminus && terminus.address) || null };
}

// The bodies in a queue.
async function left(params) {
    const connection = await connect(params);
    const bodies = await remaining(connection, params.address);
    await close(connection);
    return bodies;
}

// The same link closed and opened again, many times.
async function reopen(params) {
    const connection = await connect(params);
    for (let number = 0; number < params.count; number += 1) {
        const sender = await open_sender(connection, { target: params.address, name: 'again' });
        await send_all(sender, [{ body: number }]);
        await close_link(sender);
    }
    const left = await remaining(connection, params.address);
    await close(connection);
    return left;
}

module.exports = {
    browse, compete, drain, dynamic_ends, left, refused, relay, reopen, request_response, sessions,
};
