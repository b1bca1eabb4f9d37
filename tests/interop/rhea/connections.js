// Authentication, heartbeats, orderly and sudden ends, reconnecting.
'use strict';

const rhea = require('rhea');
const WebSocket = require('ws');
const {
    Inbox, close, condition, connect, once, open_sender, send_all, tell,
} = require('./support.js');

async function exchange_one(connection, address) {
    const inbox = new Inbox(connection, { source: address });
    const sender = await open_sender(connection, { target: address });
    await send_all(sender, [{ body: 'hello' }]);
    const { message } = await inbox.take();
    await inbox.close();
    return message.body;
}

// Connects with `options` and exchanges a message.
async function come_in(params) {
    const connection = await connect(params);
    const used_sasl = connection.sasl_transport !== undefined;
    const body = await exchange_one(connection, params.address);
    const container = connection.container_id;
    await close(connection);
    return { used_sasl, body, container };
}

// Connects by WebSocket and exchanges messages of these sizes.
async function over_websocket(params) {
    const container = rhea.create_container();
    const details = container.websocket_connect(WebSocket)(params.url, ['amqp'], params.websocket);
    const connection = container.connect({
        connection_details: details, reconnect: false, ...params.options,
    });
    await once(connection, 'connection_open');
    const inbox = new Inbox(connection, { source: params.address });
    const sender = await open_sender(connection, { target: params.address });
    const received = [];
    for (const size of params.sizes) {
        await send_all(sender, [{ body: rhea.message.data_section(Buffer.alloc(size, 'x')) }]);
        const { message } = await inbox.take();
        received.push(message.body.content.length);
    }
    await inbox.close();
    await close(connection);
    return received;
}

// Connects with `options` and says how that failed.
async function stay_out(params) {
    const connection = rhea.create_container().connect({
        host: '127.0.0.1', port: params.port, reconnect: false, ...params.options,
    });
    const events = [];
    connection.on('connection_open', () => events.push('connection_open'));
    connection.on('connection_error', (context) => events.push(condition(context.error)));
    await once(connection, 'disconnected', 'connection_close');
    return events;
}

// rhea expects to hear from the broker every `idle_time_out`; `count` times it does.
async function broker_heartbeats(params) {
    const connection = await connect(params, { idle_time_out: params.idle_time_out });
    let reads = 0;
    await new Promise((resolve) => connection.socket.on('data', () => {
        reads += 1;
        if (reads === params.count) {
            resolve();
        }
    }));
    const body = await exchange_one(connection, params.address);
    await close(connection);
    return body;
}

// The broker expects to hear from rhea; with nothing to say, it sends 8 bytes again and again.
async function client_heartbeats(params) {
    const connection = await connect(params);
    await exchange_one(connection, params.address);
    const before = connection.socket.bytesWritten;
    await new Promise((resolve) => {
        const timer = setInterval(() => {
            if (connection.socket.bytesWritten >= before + 8 * params.count) {
                clearInterval(timer);
                resolve();
            }
        }, 20);
    });
    const body = await exchange_one(connection, params.address);
    const idle_time_out = connection.idle_time_out;
    await close(connection);
    return { idle_time_out, body };
}

// Waits for the broker to end.
async function forced(params) {
    const connection = await connect(params);
    const errors = [];
    connection.on('connection_error', (context) => errors.push(condition(context.error)));
    const ended = once(connection, 'disconnected');
    tell('ready');
    await ended;
    return errors;
}

// Exchanges a message, waits for the broker to come back after it went away, exchanges another.
async function reconnecting(params) {
    const connection = rhea.create_container().connect({
        host: '127.0.0.1', port: params.port, initial_reconnect_delay: 10, max_reconnect_delay: 200,
    });
    const inbox = new Inbox(connection, { source: params.address });
    const sender = connection.open_sender({ target: params.address });
    const disconnected = once(connection, 'disconnected');
    connection.on('connection_error', () => undefined);
    connection.on('disconnected', () => undefined);
    await once(sender, 'sendable');
    sender.send({ body: 'before' });
    const bodies = [(await inbox.take()).message.body];
    tell('exchanged');
    await disconnected;
    await once(sender, 'sendable');
    sender.send({ body: 'after' });
    bodies.push((await inbox.take()).message.body);
    await close(connection);
    return bodies;
}

// Sends `count` numbers, and again those that were not settled when the connection was cut.
async function resend(params) {
    const connection = rhea.create_container().connect({
        host: '127.0.0.1', port: params.relay, initial_reconnect_delay: 10, max_reconnect_delay: 200,
    });
    const sender = connection.open_sender({ target: params.address });
    const unsettled = new Set(Array(params.count).keys());
    let in_flight = new Map();
    let disconnections = 0;
    let told = false;
    const send = () => {
        for (const number of unsettled) {
            if (in_flight.size >= 20 || !sender.sendable()) {
                return;
            }
            if (![...in_flight.values()].includes(number)) {
                in_flight.set(sender.send({ body: number }), number);
            }
        }
    };
    connection.on('disconnected', () => {
        disconnections += 1;
        in_flight = new Map();
    });
    sender.on('sendable', send);
    await new Promise((resolve) => {
        sender.on('accepted', (context) => {
            unsettled.delete(in_flight.get(context.delivery));
            in_flight.delete(context.delivery);
            if (unsettled.size === 0) {
                resolve();
            } else if (unsettled.size < params.count / 2 && !told) {
                // Nothing more is sent until the cable has been cut.
                told = true;
                tell('half');
            } else if (!told || disconnections) {
                send();
            }
        });
    });
    await close(connection);
    return { disconnections };
}

module.exports = {
    broker_heartbeats, client_heartbeats, come_in, forced, over_websocket, reconnecting,
    resend, stay_out,
};
