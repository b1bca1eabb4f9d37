// Cases for amqplib: a function for each feature, by the name in features.py.
"use strict";

const assert = require("node:assert");
const fs = require("node:fs");
const { setTimeout: sleep } = require("node:timers/promises");
const amqp = require("amqplib");

// Milliseconds that a message that comes is waited for, and that a queue is watched.
const PATIENCE = 15000;
const WATCH = 200;

function urlOf(at, more = {}) {
  const host = { hostname: at.host, port: at.port, username: at.user, password: at.password };
  return { protocol: "amqp", vhost: "/", ...host, ...more };
}

// A connection with a channel; errors of either are what the case expects, or ends by.
async function withChannel(at, use, more = {}, options = {}) {
  const connection = await amqp.connect(urlOf(at, more), options);
  connection.on("error", () => {});
  try {
    const channel = await connection.createChannel();
    channel.on("error", () => {});
    return await use(channel, connection);
  } finally {
    await connection.close().catch(() => {});
  }
}

const declared = async (channel, name, args = {}) => {
  await channel.assertQueue(name, { exclusive: true, arguments: args });
  return name;
};

const put = (channel, queue, ...bodies) => {
  for (const body of bodies) channel.sendToQueue(queue, Buffer.from(body));
};

async function until(done, what) {
  const end = Date.now() + PATIENCE;
  while (!done()) {
    assert(Date.now() < end, `did not happen: ${what}`);
    await sleep(10);
  }
}

async function got(channel, queue) {
  const end = Date.now() + PATIENCE;
  for (;;) {
    const message = await channel.get(queue);
    if (message) return message;
    assert(Date.now() < end, "no message came");
    await sleep(10);
  }
}

async function take(channel, queue, count) {
  const came = [];
  const { consumerTag } = await channel.consume(queue, (message) => {
    came.push(message);
    channel.ack(message);
  });
  await until(() => came.length >= count, `${count} messages; ${came.length} came`);
  await channel.cancel(consumerTag);
  return came.map((each) => each.content.toString());
}

async function fails(promise, code) {
  let result;
  try {
    result = await promise;
  } catch (error) {
    assert(String(error.code) === String(code) || error.message.includes(code), error.message);
    return error;
  }
  assert.fail(`it was not refused: ${JSON.stringify(result)}`);
}

module.exports = {
  "queue-declare": (at) =>
    withChannel(at, async (_, connection) => {
      const channel = await connection.createConfirmChannel();
      await channel.assertQueue(at.entity, { durable: true });
      put(channel, at.entity, "one", "two");
      await channel.waitForConfirms();
      const { messageCount } = await channel.checkQueue(at.entity);
      assert.equal(messageCount, 2);
      assert.equal((await channel.purgeQueue(at.entity)).messageCount, 2);
      await channel.deleteQueue(at.entity);
    }),

  "server-named": (at) =>
    withChannel(at, async (channel) => {
      const { queue } = await channel.assertQueue("", { exclusive: true });
      assert(queue.startsWith("amq.gen"), queue);
      put(channel, queue, "one");
      assert.deepEqual(await take(channel, queue, 1), ["one"]);
    }),

  passive: (at) => withChannel(at, (channel) => fails(channel.checkQueue(at.entity), 404)),

  exclusive: (at) =>
    withChannel(at, async (channel) => {
      await declared(channel, at.entity);
      await withChannel(at, (other) => fails(other.checkQueue(at.entity), 405));
    }),

  direct: (at) =>
    withChannel(at, async (channel) => {
      await channel.assertExchange(at.entity, "direct", { autoDelete: true });
      const queue = await declared(channel, `${at.entity}.q`);
      await channel.bindQueue(queue, at.entity, "red");
      for (const key of ["red", "blue", "red"]) channel.publish(at.entity, key, Buffer.from(key));
      assert.deepEqual(await take(channel, queue, 2), ["red", "red"]);
      assert.equal(await channel.get(queue), false);
    }),

  fanout: (at) =>
    withChannel(at, async (channel) => {
      await channel.assertExchange(at.entity, "fanout", { autoDelete: true });
      for (const end of ["a", "b"]) {
        await channel.bindQueue(await declared(channel, `${at.entity}.${end}`), at.entity, "");
      }
      channel.publish(at.entity, "any", Buffer.from("one"));
      for (const end of ["a", "b"]) {
        assert.deepEqual(await take(channel, `${at.entity}.${end}`, 1), ["one"]);
      }
    }),

  topic: (at) =>
    withChannel(at, async (channel) => {
      await channel.assertExchange(at.entity, "topic", { autoDelete: true });
      const queue = await declared(channel, `${at.entity}.q`);
      await channel.bindQueue(queue, at.entity, "*.b.#");
      for (const key of ["a.b", "b", "a.b.c.d"]) channel.publish(at.entity, key, Buffer.from(key));
      assert.deepEqual(await take(channel, queue, 2), ["a.b", "a.b.c.d"]);
    }),

  headers: (at) =>
    withChannel(at, async (channel) => {
      await channel.assertExchange(at.entity, "headers", { autoDelete: true });
      const queue = await declared(channel, `${at.entity}.q`);
      await channel.bindQueue(queue, at.entity, "", { "x-match": "all", kind: "tea", size: 3 });
      for (const size of [3, 4]) {
        const headers = { kind: "tea", size };
        channel.publish(at.entity, "", Buffer.from(String(size)), { headers });
      }
      assert.deepEqual(await take(channel, queue, 1), ["3"]);
    }),

  "exchange-bindings": (at) =>
    withChannel(at, async (channel) => {
      for (const end of ["first", "second"]) {
        await channel.assertExchange(`${at.entity}.${end}`, "fanout", { autoDelete: true });
      }
      await channel.bindExchange(`${at.entity}.second`, `${at.entity}.first`, "");
      await channel.bindQueue(await declared(channel, at.entity), `${at.entity}.second`, "");
      channel.publish(`${at.entity}.first`, "", Buffer.from("one"));
      assert.deepEqual(await take(channel, at.entity, 1), ["one"]);
    }),

  "alternate-exchange": (at) =>
    withChannel(at, async (channel) => {
      const other = `${at.entity}.other`;
      await channel.assertExchange(other, "fanout", { autoDelete: true });
      await channel.assertExchange(at.entity, "direct", { alternateExchange: other });
      await channel.bindQueue(await declared(channel, `${at.entity}.q`), other, "");
      channel.publish(at.entity, "unknown", Buffer.from("one"));
      assert.deepEqual(await take(channel, `${at.entity}.q`, 1), ["one"]);
      await channel.deleteExchange(at.entity);
    }),

  properties: (at) =>
    withChannel(at, async (channel) => {
      const given = {
        contentType: "application/json",
        contentEncoding: "utf-8",
        deliveryMode: 2,
        priority: 5,
        correlationId: "c-1",
        replyTo: "replies",
        expiration: "600000",
        messageId: "m-1",
        timestamp: 1700000000,
        type: "order",
        userId: at.user,
        appId: "shop",
      };
      await declared(channel, at.entity);
      channel.sendToQueue(at.entity, Buffer.from("one"), given);
      const { properties } = await got(channel, at.entity);
      for (const [name, value] of Object.entries(given)) {
        assert.equal(properties[name], value, name);
      }
    }),

  "header-types": (at) =>
    withChannel(at, async (channel) => {
      const headers = {
        yes: true,
        int: 7,
        long: -(2 ** 40),
        double: 0.5,
        text: "žluťoučký",
        none: null,
        list: [1, "two", [true]],
        table: { inner: { deep: 1 } },
      };
      const more = { time: { "!": "timestamp", value: 1700000000 } };
      const decimal = { price: { "!": "decimal", value: { digits: 125, places: 2 } } };
      await declared(channel, at.entity);
      channel.sendToQueue(at.entity, Buffer.from("one"), {
        headers: { ...headers, ...more, ...decimal, bytes: Buffer.from([0, 255]) },
      });
      const came = (await got(channel, at.entity)).properties.headers;
      for (const [name, value] of Object.entries({ ...headers, ...more, ...decimal })) {
        assert.deepEqual(came[name], value, name);
      }
      assert.deepEqual([...came.bytes], [0, 255]);
    }),

  empty: (at) =>
    withChannel(at, async (channel) => {
      put(channel, await declared(channel, at.entity), "", "one");
      assert.deepEqual(await take(channel, at.entity, 2), ["", "one"]);
    }),

  large: (at) =>
    withChannel(
      at,
      async (channel) => {
        const body = Buffer.alloc(1 << 20, "0123456789");
        await declared(channel, at.entity);
        channel.sendToQueue(at.entity, body);
        assert((await got(channel, at.entity)).content.equals(body), "another body came");
      },
      { frameMax: 8192 },
    ),

  mandatory: (at) =>
    withChannel(at, async (channel) => {
      const returned = [];
      channel.on("return", (message) => returned.push(message));
      channel.publish("", "missing", Buffer.from("one"), { mandatory: true });
      await until(() => returned.length === 1, "the message is returned");
      assert.equal(returned[0].fields.replyCode, 312);
    }),

  confirms: (at) =>
    withChannel(at, async (_, connection) => {
      const channel = await connection.createConfirmChannel();
      await declared(channel, at.entity);
      for (let number = 0; number < 100; number++) put(channel, at.entity, "one");
      await channel.waitForConfirms();
      assert.equal((await channel.checkQueue(at.entity)).messageCount, 100);
    }),

  "confirm-nack": (at) =>
    withChannel(at, async (_, connection) => {
      const channel = await connection.createConfirmChannel();
      const full = { "x-max-length": 1, "x-overflow": "reject-publish" };
      await declared(channel, at.entity, full);
      put(channel, at.entity, "one");
      await channel.waitForConfirms();
      const refused = new Promise((resolve) =>
        channel.sendToQueue(at.entity, Buffer.from("two"), {}, resolve),
      );
      assert((await refused) instanceof Error, "it was not refused");
    }),

  get: (at) =>
    withChannel(at, async (channel) => {
      await declared(channel, at.entity);
      assert.equal(await channel.get(at.entity), false);
      put(channel, at.entity, "one", "two");
      const message = await got(channel, at.entity);
      assert.equal(message.fields.redelivered, false);
      channel.ack(message);
      assert.equal((await got(channel, at.entity)).content.toString(), "two");
    }),

  consume: (at) =>
    withChannel(at, async (channel) => {
      await declared(channel, at.entity);
      const bodies = Array.from({ length: 100 }, (_, number) => String(number));
      put(channel, at.entity, ...bodies);
      assert.deepEqual(await take(channel, at.entity, 100), bodies);
    }),

  "no-ack": (at) =>
    withChannel(at, async (channel) => {
      put(channel, await declared(channel, at.entity), "one", "two");
      const came = [];
      await channel.consume(at.entity, (message) => came.push(message), { noAck: true });
      await until(() => came.length === 2, "two messages");
    }),

  prefetch: (at) =>
    withChannel(at, async (channel) => {
      await channel.prefetch(2);
      put(channel, await declared(channel, at.entity), "1", "2", "3", "4");
      const came = [];
      await channel.consume(at.entity, (message) => came.push(message));
      await until(() => came.length === 2, "two messages");
      await sleep(WATCH);
      assert.equal(came.length, 2);
      channel.ack(came[1], true);
      await until(() => came.length === 4, "four messages");
    }),

  "ack-multiple": (at) =>
    withChannel(at, async (channel) => {
      put(channel, await declared(channel, at.entity), "1", "2", "3");
      for (let number = 0; number < 3; number++) await got(channel, at.entity);
      channel.ackAll();
      assert.equal(await channel.get(at.entity), false);
    }),

  requeue: (at) =>
    withChannel(at, async (channel) => {
      put(channel, await declared(channel, at.entity), "one");
      channel.nack(await got(channel, at.entity));
      const again = await got(channel, at.entity);
      assert.equal(again.fields.redelivered, true);
      channel.reject(again, false);
      assert.equal(await channel.get(at.entity), false);
    }),

  recover: (at) =>
    withChannel(at, async (channel) => {
      put(channel, await declared(channel, at.entity), "one");
      const came = [];
      await channel.consume(at.entity, (message) => came.push(message));
      await until(() => came.length === 1, "a message");
      await channel.recover();
      await until(() => came.length === 2, "the message again");
    }),

  "cancel-notify": (at) =>
    withChannel(at, async (channel) => {
      await declared(channel, at.entity);
      let told = false;
      await channel.consume(at.entity, (message) => (told = message === null));
      await channel.deleteQueue(at.entity);
      await until(() => told, "the consumer is cancelled");
    }),

  "exclusive-consumer": (at) =>
    withChannel(at, async (channel, connection) => {
      await declared(channel, at.entity);
      await channel.consume(at.entity, () => {}, { exclusive: true });
      const other = await connection.createChannel();
      other.on("error", () => {});
      await fails(
        other.consume(at.entity, () => {}),
        403,
      );
    }),

  "consumer-priority": (at) =>
    withChannel(at, async (channel) => {
      await declared(channel, at.entity);
      const came = [];
      const into = (name) => () => came.push(name);
      await channel.consume(at.entity, into("low"), { noAck: true });
      await channel.consume(at.entity, into("high"), { noAck: true, priority: 5 });
      put(channel, at.entity, "one", "two");
      await until(() => came.length === 2, "two messages");
      assert.deepEqual(came, ["high", "high"]);
    }),

  "dead-letter": (at) =>
    withChannel(at, async (channel) => {
      const dead = await declared(channel, `${at.entity}.dead`);
      const options = { exclusive: true, deadLetterExchange: "", deadLetterRoutingKey: dead };
      await channel.assertQueue(at.entity, options);
      put(channel, at.entity, "one");
      channel.reject(await got(channel, at.entity), false);
      const [death] = (await got(channel, dead)).properties.headers["x-death"];
      assert.deepEqual([death.count, death.reason, death.queue], [1, "rejected", at.entity]);
      assert.equal(death.time["!"], "timestamp");
    }),

  "message-ttl": (at) =>
    withChannel(at, async (channel) => {
      const dead = await declared(channel, `${at.entity}.dead`);
      const to = { deadLetterExchange: "", deadLetterRoutingKey: dead };
      await channel.assertQueue(at.entity, { exclusive: true, messageTtl: 50, ...to });
      put(channel, at.entity, "one");
      const [death] = (await got(channel, dead)).properties.headers["x-death"];
      assert.equal(death.reason, "expired");
    }),

  "max-length": (at) =>
    withChannel(at, async (channel) => {
      await channel.assertQueue(at.entity, { exclusive: true, maxLength: 2 });
      put(channel, at.entity, "1", "2", "3");
      assert.deepEqual(await take(channel, at.entity, 2), ["2", "3"]);
    }),

  priority: (at) =>
    withChannel(at, async (channel) => {
      await channel.assertQueue(at.entity, { exclusive: true, maxPriority: 10 });
      for (const priority of [1, 9, 5]) {
        channel.sendToQueue(at.entity, Buffer.from(String(priority)), { priority });
      }
      await channel.checkQueue(at.entity);
      assert.deepEqual(await take(channel, at.entity, 3), ["9", "5", "1"]);
    }),

  stream: (at) =>
    withChannel(at, async (_, connection) => {
      const channel = await connection.createConfirmChannel();
      await channel.assertQueue(at.entity, { arguments: { "x-queue-type": "stream" } });
      put(channel, at.entity, "0", "1", "2");
      await channel.waitForConfirms();
      await channel.prefetch(10);
      const came = [];
      const options = { arguments: { "x-stream-offset": 1 } };
      await channel.consume(at.entity, (message) => came.push(message), options);
      await until(() => came.length === 2, "two messages");
      assert.deepEqual(
        came.map((each) => Number(each.properties.headers["x-stream-offset"])),
        [1, 2],
      );
      await channel.deleteQueue(at.entity);
    }),

  rpc: (at) =>
    withChannel(at, async (channel) => {
      await declared(channel, at.entity);
      const { queue } = await channel.assertQueue("", { exclusive: true });
      await channel.consume(at.entity, (message) => {
        const { replyTo, correlationId } = message.properties;
        channel.sendToQueue(replyTo, Buffer.from("answer"), { correlationId });
        channel.ack(message);
      });
      const came = [];
      await channel.consume(queue, (message) => came.push(message), { noAck: true });
      const about = { replyTo: queue, correlationId: "1" };
      channel.sendToQueue(at.entity, Buffer.from("one"), about);
      await until(() => came.length === 1, "the answer");
      assert.equal(came[0].properties.correlationId, "1");
    }),

  "direct-reply-to": (at) =>
    withChannel(at, async (channel) => {
      await declared(channel, at.entity);
      const came = [];
      const inbox = "amq.rabbitmq.reply-to";
      await channel.consume(inbox, (message) => came.push(message), { noAck: true });
      channel.sendToQueue(at.entity, Buffer.from("one"), { replyTo: inbox });
      const { replyTo } = (await got(channel, at.entity)).properties;
      put(channel, replyTo, "answer");
      await until(() => came.length === 1, "the answer");
    }),

  "not-found": (at) => withChannel(at, (channel) => fails(channel.get("missing"), 404)),

  precondition: (at) =>
    withChannel(at, async (channel) => {
      await declared(channel, at.entity, { "x-message-ttl": 1000 });
      await fails(declared(channel, at.entity, { "x-message-ttl": 2000 }), 406);
    }),

  "access-refused": (at) =>
    withChannel(at, (channel) => fails(channel.assertQueue(at.entity), 403), {
      username: at.guest,
    }),

  "wrong-password": (at) => fails(amqp.connect(urlOf(at, { password: "wrong" })), "403"),

  "wrong-host": (at) => fails(amqp.connect(urlOf(at, { vhost: "missing" })), "ConnectionClose"),

  tls: (at) =>
    withChannel(
      at,
      async (channel) => {
        put(channel, await declared(channel, at.entity), "one");
        assert.deepEqual(await take(channel, at.entity, 1), ["one"]);
      },
      { protocol: "amqps", hostname: "localhost", port: at.tls_port },
      { ca: [fs.readFileSync(at.authority)] },
    ),

  "virtual-host": (at) =>
    withChannel(
      at,
      async (channel) => {
        put(channel, await declared(channel, at.entity), "one");
        assert.deepEqual(await take(channel, at.entity, 1), ["one"]);
      },
      { vhost: at.other_host },
    ),

  heartbeat: (at) =>
    withChannel(
      at,
      async (channel) => {
        await sleep(3500);
        await declared(channel, at.entity);
      },
      { heartbeat: 1 },
    ),

  blocked: (at) =>
    withChannel(at, async (channel, connection) => {
      const told = [];
      connection.on("blocked", () => told.push("blocked"));
      connection.on("unblocked", () => told.push("unblocked"));
      await declared(channel, at.entity);
      await at.ask({ alarm: true });
      put(channel, at.entity, "one");
      await until(() => told.length === 1, "the client is told that it is blocked");
      await at.ask({ alarm: false });
      await until(() => told.length === 2, "the client may go on");
      assert.deepEqual(told, ["blocked", "unblocked"]);
    }),
};
