// Messages of every kind, type and size.
'use strict';

const crypto = require('crypto');
const rhea = require('rhea');
const { Inbox, close, connect, open_sender, send_all } = require('./support.js');
const { decode_sections, encode_sections } = require('./values.js');

// Sends `messages`, each a list of sections.
async function send_sections(params) {
    const connection = await connect(params);
    const sender = await open_sender(connection, { target: params.address });
    const outcomes = await send_all(sender, params.messages.map(encode_sections));
    await close(connection);
    return outcomes;
}

// Receives `count` messages as lists of sections.
async function receive_sections(params) {
    const connection = await connect(params);
    const inbox = new Inbox(connection, { source: params.address, credit_window: params.count });
    const contexts = await inbox.take_many(params.count);
    await inbox.close();
    await close(connection);
    return contexts.map((context) => decode_sections(context.message.encoded));
}

// Both, one after the other.
async function exchange_sections(params) {
    await send_sections(params);
    return receive_sections({ ...params, count: params.messages.length });
}

// Data of every one of `sizes`: how much came, and whether it is what was sent.
async function exchange_sizes(params) {
    const connection = await connect(params);
    const sender = await open_sender(connection, { target: params.address });
    const inbox = new Inbox(connection, { source: params.address });
    const results = [];
    for (const size of params.sizes) {
        const body = crypto.randomBytes(size);
        await send_all(sender, [{ body: rhea.message.data_section(body) }]);
        const { message } = await inbox.take();
        results.push([message.body.content.length, message.body.content.equals(body)]);
    }
    await close(connection);
    return results;
}

// What rhea's own message objects say, sent and received.
async function message_objects(params) {
    const section = rhea.message;
    const header = { durable: true, priority: 8, ttl: 3600000 };
    const properties = {
        message_id: 'id', user_id: Buffer.from('user'), to: 'to', subject: 'größer',
        reply_to: 'reply', correlation_id: 'correlation', content_type: 'text/plain',
        content_encoding: 'identity', absolute_expiry_time: 4102444800000,
        creation_time: 1735689600123, group_id: 'group', group_sequence: 4294967295,
        reply_to_group_id: 'reply-group',
    };
    const messages = [
        { body: 'text' },
        { body: 12345 },
        { body: -1.5 },
        { body: true },
        { body: null },
        { body: [1, 'two', null] },
        { body: { a: 1, b: { c: 'd' } } },
        { body: section.data_section(Buffer.from('some')) },
        { body: section.data_sections([Buffer.from('so'), Buffer.from('me')]) },
        { body: section.sequence_section([1, 2, 3]) },
        { body: section.sequence_sections([[1], [2, 3]]) },
        { body: 'header', ...header },
        { body: 'properties', ...properties },
        { body: 'maps', message_annotations: { 'x-opt-a': 'b', 'x-opt-n': 7 },
            application_properties: { text: 'text', number: 3, truth: false, nothing: null },
            footer: { 'x-opt-f': 'f' } },
        { body: 'annotated for the broker', delivery_annotations: { 'x-opt-hop': 1 } },
    ];
    const connection = await connect(params);
    const sender = await open_sender(connection, { target: params.address });
    const outcomes = await send_all(sender, messages);
    const inbox = new Inbox(connection, { source: params.address });
    const contexts = await inbox.take_many(messages.length);
    await close(connection);
    const plain = (message) => JSON.parse(JSON.stringify(message));
    return {
        outcomes,
        sent: messages.map(plain),
        received: contexts.map((context) => plain(context.message)),
    };
}

// A payload in a format that is not AMQP's own goes through untouched.
async function other_format(params) {
    const connection = await connect(params);
    const sender = await open_sender(connection, { target: params.address });
    const outcomes = await send_all(sender, [Buffer.from(params.payload, 'hex')], params.format);
    const inbox = new Inbox(connection, { source: params.address });
    const { message, format } = await inbox.take();
    await close(connection);
    return { outcomes, payload: message.toString('hex'), format };
}

// `count` numbers on one connection, received on another, all at once.
async function pipelined(params) {
    const [out, back] = [await connect(params), await connect(params)];
    const inbox = new Inbox(back, { source: params.address });
    const sender = await open_sender(out, { target: params.address });
    const bodies = Array.from({ length: params.count }, (_, number) => number);
    const sent = send_all(sender, bodies.map((body) => ({ body })));
    const contexts = await inbox.take_many(params.count);
    const outcomes = new Set(await sent);
    await close(out);
    await close(back);
    return {
        outcomes: [...outcomes],
        in_order: contexts.every((context, number) => context.message.body === number),
    };
}

module.exports = {
    exchange_sections, exchange_sizes, message_objects, other_format, pipelined, receive_sections,
    send_sections,
};
