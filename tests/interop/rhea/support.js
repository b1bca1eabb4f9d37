// What the scenarios share: promises instead of events, inboxes, the encoded form of messages.
'use strict';

const rhea = require('rhea');
const codec = require('rhea/lib/message.js');

// rhea hands out decoded messages only; remember what each was decoded from.
const decode = codec.decode;
codec.decode = function (buffer) {
    const message = decode(buffer);
    Object.defineProperty(message, 'encoded', { value: buffer });
    return message;
};

// The next event of that name. The whole run is bounded in time, so this need not be.
function once(emitter, ...names) {
    return new Promise((resolve) => {
        const listeners = names.map((name) => [name, (context) => {
            listeners.forEach(([other, listener]) => emitter.removeListener(other, listener));
            resolve(context || {});
        }]);
        listeners.forEach(([name, listener]) => emitter.on(name, listener));
    });
}

// The condition of AMQP errors however rhea presents them.
function condition(error) {
    return error ? { condition: error.condition, description: error.description } : null;
}

// A promise for an open connection; `options` are rhea's.
async function connect(params, options) {
    const container = rhea.create_container();
    const connection = container.connect({
        host: '127.0.0.1', port: params.port, reconnect: false, ...params.options, ...options,
    });
    await once(connection, 'connection_open');
    return connection;
}

async function close(connection) {
    const closed = once(connection, 'connection_close');
    connection.close();
    await closed;
}

async function close_link(link) {
    const closed = once(link, link.is_receiver() ? 'receiver_close' : 'sender_close');
    link.close();
    await closed;
}

async function open_sender(parent, options) {
    const sender = parent.open_sender(options);
    await once(sender, 'sender_open');
    return sender;
}

// Sends all messages, as credit allows; resolves to their outcomes when all are settled.
// A message is what rhea's `send` takes, or a Buffer that holds an encoded one.
function send_all(sender, messages, format) {
    return new Promise((resolve) => {
        const outcomes = new Array(messages.length).fill(null);
        const numbers = new Map();
        let next = 0;
        let settled = 0;
        for (const name of ['accepted', 'rejected', 'released', 'modified']) {
            sender.on(name, (context) => {
                const error = name === 'rejected' ? context.delivery.remote_state.error : null;
                outcomes[numbers.get(context.delivery)] = error ? condition(error) : name;
            });
        }
        sender.on('settled', () => {
            settled += 1;
            if (settled === messages.length) {
                resolve(outcomes);
            }
        });
        const send = () => {
            while (next < messages.length && sender.sendable()) {
                const message = messages[next];
                const delivery = Buffer.isBuffer(message)
                    ? sender.send(message, undefined, format || 0) : sender.send(message);
                numbers.set(delivery, next);
                next += 1;
            }
        };
        sender.on('sendable', send);
        send();
    });
}

// A receiver and what has come over it.
class Inbox {
    constructor(parent, options) {
        this.contexts = [];
        this.waiting = [];
        this.receiver = parent.open_receiver(options);
        this.opened = once(this.receiver, 'receiver_open');
        this.receiver.on('message', (context) => {
            const next = this.waiting.shift();
            if (next) {
                next(context);
            } else {
                this.contexts.push(context);
            }
        });
    }

    // The next message's context: `message`, `delivery` and so on.
    async take() {
        if (this.contexts.length) {
            return this.contexts.shift();
        }
        return new Promise((resolve) => this.waiting.push(resolve));
    }

    async take_many(count) {
        const contexts = [];
        while (contexts.length < count) {
            contexts.push(await this.take());
        }
        return contexts;
    }

    close() {
        return close_link(this.receiver);
    }
}

// The bodies left in a queue, which is empty then.
async function remaining(connection, address) {
    const inbox = new Inbox(connection, { source: address, credit_window: 0 });
    await inbox.opened;
    const drained = once(inbox.receiver, 'receiver_drained');
    inbox.receiver.add_credit(10000);
    inbox.receiver.drain_credit();
    await drained;
    const bodies = inbox.contexts.map((context) => context.message.body);
    await inbox.close();
    return bodies;
}

// One line of JSON for the test that runs us, before the result.
function tell(event) {
    process.stdout.write(JSON.stringify({ event }) + '\n');
}

module.exports = {
    Inbox, close, close_link, condition, connect, once, open_sender, remaining, send_all, tell,
};
