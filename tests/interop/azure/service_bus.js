// Cases for @azure/service-bus: a function for each feature, by the name in cases.py.
"use strict";

const assert = require("node:assert");
const { ServiceBusAdministrationClient, ServiceBusClient } = require("@azure/service-bus");
const WebSocket = require("ws");

// Milliseconds that a receiver waits for a message that comes, and for one that does not come.
const PATIENCE = 10000;
const WATCH = 500;

async function withClient(at, use, options = {}) {
  const settings = { retryOptions: { maxRetries: 0, timeoutInMs: PATIENCE }, ...options };
  if (at.endpoint) settings.customEndpointAddress = at.endpoint;
  const client = new ServiceBusClient(options.connection || at.connection, settings);
  try {
    return await use(client);
  } finally {
    await client.close();
  }
}

async function put(client, entity, ...messages) {
  const sender = client.createSender(entity);
  const list = messages.map((each) => (typeof each === "string" ? { body: each } : each));
  await sender.sendMessages(list);
  await sender.close();
}

async function take(receiver, count = 1) {
  const taken = [];
  while (taken.length < count) {
    const more = await receiver.receiveMessages(count - taken.length, {
      maxWaitTimeInMs: PATIENCE,
    });
    assert(more.length, `${taken.length} messages came instead of ${count}`);
    taken.push(...more);
  }
  return taken;
}

async function drained(receiver, count) {
  const taken = await take(receiver, count);
  for (const each of taken) await receiver.completeMessage(each);
  return bodies(taken);
}

async function nothing(receiver) {
  assert.deepEqual(bodies(await receiver.receiveMessages(1, { maxWaitTimeInMs: WATCH })), []);
}

const bodies = (messages) => messages.map((each) => each.body);

async function fails(promise, ...codes) {
  let result;
  try {
    result = await promise;
  } catch (error) {
    assert(codes.includes(error.code), `${error.code}: ${error.message}`);
    return error;
  }
  assert.fail(`it was not refused: ${JSON.stringify(result)}`);
}

const deadLetters = (client, ...names) =>
  client.createReceiver(...names, { subQueueType: "deadLetter" });

const later = (at, minutes) => new Date(at.now * 1000 + minutes * 60000);

async function all(items) {
  const found = [];
  for await (const each of items) found.push(each);
  return found;
}

// Sending and receiving.

async function send(at) {
  await withClient(at, async (client) => {
    const sender = client.createSender(at.entity);
    await sender.sendMessages({ body: "one" });
    const receiver = client.createReceiver(at.entity);
    assert.deepEqual(await drained(receiver, 1), ["one"]);
  });
}

async function sendList(at) {
  await withClient(at, async (client) => {
    await put(client, at.entity, "a", "b", "c", "d", "e");
    const receiver = client.createReceiver(at.entity);
    assert.deepEqual(await drained(receiver, 5), ["a", "b", "c", "d", "e"]);
  });
}

async function batch(at) {
  await withClient(at, async (client) => {
    const sender = client.createSender(at.entity);
    const several = await sender.createMessageBatch();
    for (const body of ["a", "b", "c"]) {
      assert(several.tryAddMessage({ body, messageId: body }));
    }
    await sender.sendMessages(several);
    const small = await sender.createMessageBatch({ maxSizeInBytes: 300 });
    assert(small.tryAddMessage({ body: "d" }));
    assert(!small.tryAddMessage({ body: "x".repeat(300) }));
    await sender.sendMessages(small);
    const taken = await take(client.createReceiver(at.entity), 4);
    assert.deepEqual(bodies(taken), ["a", "b", "c", "d"]);
    assert.deepEqual(taken.slice(0, 3).map((each) => each.messageId), ["a", "b", "c"]);
  });
}

async function largeMessage(at) {
  const body = Buffer.alloc(900 * 1024, "0123456789abcdef");
  await withClient(at, async (client) => {
    await put(client, at.entity, { body });
    const [one] = await take(client.createReceiver(at.entity, { skipParsingBodyAsJson: true }));
    assert(body.equals(one.body), "the body has changed");
  });
}

async function properties(at) {
  const given = {
    messageId: "id",
    correlationId: "other",
    subject: "subject",
    to: "somebody",
    replyTo: "me",
    replyToSessionId: "my session",
    contentType: "text/plain",
  };
  await withClient(at, async (client) => {
    await put(client, at.entity, { body: "one", timeToLive: 3600000, ...given });
    const [one] = await take(client.createReceiver(at.entity));
    for (const name of Object.keys(given)) assert.equal(one[name], given[name]);
    assert(one.timeToLive > 3540000 && one.timeToLive <= 3600000, `${one.timeToLive}`);
    assert(one.sequenceNumber !== undefined && one.enqueuedSequenceNumber !== undefined);
    assert(one.enqueuedTimeUtc <= one.lockedUntilUtc && one.expiresAtUtc > one.enqueuedTimeUtc);
    assert.equal(one.deliveryCount, 0);
  });
}

async function propertyTypes(at) {
  const applicationProperties = {
    text: "t",
    whole: 7,
    large: 2 ** 40,
    real: 1.5,
    flag: true,
    time: new Date(1767323045000),
    none: null,
  };
  await withClient(at, async (client) => {
    await put(client, at.entity, { body: "one", applicationProperties });
    const [one] = await take(client.createReceiver(at.entity));
    // The SDK gives times as milliseconds.
    const found = one.applicationProperties;
    assert.deepEqual({ ...found, time: new Date(found.time) }, applicationProperties);
  });
}

async function bodyTypes(at) {
  await withClient(at, async (client) => {
    const sender = client.createSender(at.entity);
    await sender.sendMessages({ bodyType: "value", body: { a: 1 } });
    await sender.sendMessages({ bodyType: "sequence", body: [[1, "b"], [2]] });
    await sender.sendMessages({ bodyType: "data", body: Buffer.from("cd") });
    const receiver = client.createReceiver(at.entity, { skipParsingBodyAsJson: true });
    const [value, sequence, data] = await take(receiver, 3);
    assert.deepEqual(value.body, { a: 1 });
    assert.deepEqual(sequence.body, [[1, "b"], [2]]);
    assert.deepEqual(data.body.toString(), "cd");
  });
}

async function receiveAndDelete(at) {
  await withClient(at, async (client) => {
    await put(client, at.entity, "one", "two");
    const receiver = client.createReceiver(at.entity, { receiveMode: "receiveAndDelete" });
    assert.deepEqual(bodies(await take(receiver, 2)), ["one", "two"]);
    assert.deepEqual(await receiver.peekMessages(5), []);
  });
}

async function iterate(at) {
  await withClient(at, async (client) => {
    await put(client, at.entity, "a", "b", "c");
    const receiver = client.createReceiver(at.entity);
    const found = [];
    await new Promise((resolve, reject) => {
      receiver.subscribe({
        processMessage: async (message) => {
          found.push(message.body);
          if (found.length === 3) resolve();
        },
        processError: async (args) => reject(args.error),
      });
    });
    await receiver.close();
    assert.deepEqual(found, ["a", "b", "c"]);
    // The handler completes what it has returned from.
    assert.deepEqual(await client.createReceiver(at.entity).peekMessages(5), []);
  });
}

async function peek(at) {
  await withClient(at, async (client) => {
    await put(client, at.entity, "a", "b", "c");
    const receiver = client.createReceiver(at.entity);
    const first = await receiver.peekMessages(2);
    assert.deepEqual(bodies(first), ["a", "b"]);
    const from = { fromSequenceNumber: first[1].sequenceNumber };
    assert.deepEqual(bodies(await receiver.peekMessages(5, from)), ["b", "c"]);
    assert.deepEqual(await drained(receiver, 3), ["a", "b", "c"]);
    assert.deepEqual(await receiver.peekMessages(5, from), []);
  });
}

async function partitionKey(at) {
  await withClient(at, async (client) => {
    await put(client, at.entity, { body: "one", partitionKey: "k" });
    const [one] = await take(client.createReceiver(at.entity));
    assert.equal(one.partitionKey, "k");
  });
}

async function closeReleases(at) {
  await withClient(at, async (client) => {
    await put(client, at.entity, "a", "b", "c");
    const receiver = client.createReceiver(at.entity);
    const [one] = await take(receiver);
    await receiver.completeMessage(one);
    await receiver.close();
    const taken = await take(client.createReceiver(at.entity), 2);
    assert.deepEqual(taken.map((each) => [each.body, each.deliveryCount]), [["b", 0], ["c", 0]]);
  });
}

// Settling.

async function complete(at) {
  await withClient(at, async (client) => {
    await put(client, at.entity, "one");
    const receiver = client.createReceiver(at.entity);
    const [one] = await take(receiver);
    assert(one.lockToken);
    await receiver.completeMessage(one);
    assert.deepEqual(await receiver.peekMessages(5), []);
  });
}

async function abandon(at) {
  await withClient(at, async (client) => {
    await put(client, at.entity, "one");
    const receiver = client.createReceiver(at.entity);
    for (let count = 0; count < 3; count++) {
      const [one] = await take(receiver);
      assert.equal(one.deliveryCount, count);
      await receiver.abandonMessage(one);
    }
  });
}

async function abandonProperties(at) {
  await withClient(at, async (client) => {
    await put(client, at.entity, { body: "one", applicationProperties: { n: 1 } });
    const receiver = client.createReceiver(at.entity);
    const [one] = await take(receiver);
    await receiver.abandonMessage(one, { n: 2, why: "busy" });
    const [again] = await take(receiver);
    assert.deepEqual(again.applicationProperties, { n: 2, why: "busy" });
    await receiver.completeMessage(again);
  });
}

async function defer(at) {
  await withClient(at, async (client) => {
    await put(client, at.entity, "one", "two");
    const receiver = client.createReceiver(at.entity);
    const [one, two] = await take(receiver, 2);
    await receiver.deferMessage(one);
    await receiver.completeMessage(two);
    await nothing(receiver);
    const [again] = await receiver.receiveDeferredMessages(one.sequenceNumber);
    assert.equal(again.body, "one");
    await receiver.completeMessage(again);
    await fails(receiver.receiveDeferredMessages(one.sequenceNumber), "MessageNotFound");
  });
}

async function deadLetter(at) {
  await withClient(at, async (client) => {
    await put(client, at.entity, { body: "one", applicationProperties: { n: 1 } });
    const receiver = client.createReceiver(at.entity);
    const [one] = await take(receiver);
    const told = { deadLetterReason: "bad", deadLetterErrorDescription: "no good", own: "x" };
    await receiver.deadLetterMessage(one, told);
    const [letter] = await take(deadLetters(client, at.entity));
    assert.deepEqual([letter.body, letter.deadLetterSource], ["one", at.entity]);
    const found = [letter.deadLetterReason, letter.deadLetterErrorDescription];
    assert.deepEqual(found, ["bad", "no good"]);
    assert.equal(letter.applicationProperties.n, 1);
    assert.equal(letter.applicationProperties.own, "x");
  });
}

async function renewLock(at) {
  await withClient(at, async (client) => {
    await put(client, at.entity, "one");
    const receiver = client.createReceiver(at.entity);
    const [one] = await take(receiver);
    const before = one.lockedUntilUtc;
    await at.advance(20);
    const after = await receiver.renewMessageLock(one);
    assert(after - before >= 19000, `${before} to ${after}`);
    await at.advance(20);
    await receiver.completeMessage(one);
  });
}

async function autoRenew(at) {
  await withClient(at, async (client) => {
    await put(client, at.entity, "one");
    const receiver = client.createReceiver(at.entity);
    await new Promise((resolve, reject) => {
      receiver.subscribe(
        {
          processMessage: async (message) => {
            const before = message.lockedUntilUtc;
            await at.advance(2);
            // The SDK asks again by its own clock.
            while (message.lockedUntilUtc <= before) {
              await new Promise((wake) => setTimeout(wake, 100));
            }
            resolve();
          },
          processError: async (args) => reject(args.error),
        },
        { maxAutoLockRenewalDurationInMs: 60000 },
      );
    });
  });
}

async function lockLost(at) {
  await withClient(at, async (client) => {
    await put(client, at.entity, "one");
    const receiver = client.createReceiver(at.entity);
    const [one] = await take(receiver);
    await at.advance(31);
    await fails(receiver.completeMessage(one), "MessageLockLost");
    await fails(receiver.renewMessageLock(one), "MessageLockLost");
    const [again] = await take(receiver);
    assert.deepEqual([again.body, again.deliveryCount], ["one", 1]);
  });
}

async function maxDeliveryCount(at) {
  await withClient(at, async (client) => {
    await put(client, at.entity, "one");
    const receiver = client.createReceiver(at.entity);
    for (let count = 0; count < 2; count++) {
      const [one] = await take(receiver);
      await receiver.abandonMessage(one);
    }
    const [letter] = await take(deadLetters(client, at.entity));
    assert.equal(letter.deadLetterReason, "MaxDeliveryCountExceeded");
  });
}

// What queues do.

async function schedule(at) {
  await withClient(at, async (client) => {
    const sender = client.createSender(at.entity);
    const [number] = await sender.scheduleMessages({ body: "one" }, later(at, 10));
    await sender.sendMessages({ body: "two", scheduledEnqueueTimeUtc: later(at, 15) });
    const receiver = client.createReceiver(at.entity);
    const peeked = await receiver.peekMessages(5);
    assert.deepEqual(bodies(peeked), ["one", "two"]);
    assert.equal(peeked[0].state, "scheduled");
    assert(peeked[0].sequenceNumber.equals(number));
    await at.advance(660);
    assert.deepEqual(await drained(receiver, 1), ["one"]);
    await at.advance(300);
    assert.deepEqual(await drained(receiver, 1), ["two"]);
  });
}

async function cancelScheduled(at) {
  await withClient(at, async (client) => {
    const sender = client.createSender(at.entity);
    const messages = [{ body: "one" }, { body: "two" }];
    const [one, two] = await sender.scheduleMessages(messages, later(at, 60));
    await sender.cancelScheduledMessages(one);
    await sender.cancelScheduledMessages([two]);
    await fails(sender.cancelScheduledMessages(two), "MessageNotFound");
    assert.deepEqual(await client.createReceiver(at.entity).peekMessages(5), []);
  });
}

async function duplicates(at) {
  await withClient(at, async (client) => {
    const first = { body: "one", messageId: "1" };
    await put(client, at.entity, first, { body: "again", messageId: "1" });
    await put(client, at.entity, { body: "two", messageId: "2" });
    const receiver = client.createReceiver(at.entity);
    assert.deepEqual(await drained(receiver, 2), ["one", "two"]);
    assert.deepEqual(await receiver.peekMessages(5), []);
  });
}

async function expiry(at) {
  await withClient(at, async (client) => {
    await put(client, at.entity, { body: "one", timeToLive: 10000 }, "two");
    await at.advance(11);
    assert.deepEqual(await drained(client.createReceiver(at.entity), 1), ["two"]);
    const [letter] = await take(deadLetters(client, at.entity));
    assert.deepEqual([letter.body, letter.deadLetterReason], ["one", "TTLExpiredException"]);
  });
}

async function forward(at) {
  await withClient(at, async (client) => {
    await put(client, at.entity, "one");
    assert.deepEqual(await drained(client.createReceiver("forward-target"), 1), ["one"]);
  });
}

async function transferDeadLetter(at) {
  await withClient(at, async (client) => {
    // The target asks for sessions, and the message has none.
    await put(client, at.entity, "one");
    const receiver = client.createReceiver(at.entity, { subQueueType: "transferDeadLetter" });
    assert.deepEqual(await drained(receiver, 1), ["one"]);
  });
}

// Sessions.

const of = (sessionId, body) => ({ sessionId, body });

async function session(at) {
  await withClient(at, async (client) => {
    await put(client, at.entity, of("a", "1"), of("b", "2"));
    const receiver = await client.acceptSession(at.entity, "b");
    assert.equal(receiver.sessionId, "b");
    const [two] = await take(receiver);
    assert.deepEqual([two.body, two.sessionId], ["2", "b"]);
    await receiver.completeMessage(two);
    await nothing(receiver);
  });
}

async function sessionNext(at) {
  await withClient(at, async (client) => {
    await put(client, at.entity, of("a", "1"), of("b", "2"));
    const one = await client.acceptNextSession(at.entity);
    const two = await client.acceptNextSession(at.entity);
    assert.deepEqual([one.sessionId, two.sessionId].sort(), ["a", "b"]);
    for (const receiver of [one, two]) assert.equal((await drained(receiver, 1)).length, 1);
  });
}

async function sessionNone(at) {
  await withClient(at, async (client) => {
    let over = false;
    const failing = fails(
      client.acceptNextSession(at.entity).finally(() => {
        over = true;
      }),
      "SessionCannotBeLocked",
      "ServiceTimeout",
    );
    while (!over) {
      await new Promise((wake) => setTimeout(wake, 200));
      await at.advance(10);
    }
    await failing;
  });
}

async function sessionState(at) {
  await withClient(at, async (client) => {
    await put(client, at.entity, of("a", "1"));
    const receiver = await client.acceptSession(at.entity, "a");
    assert.equal(await receiver.getSessionState(), null);
    await receiver.setSessionState("half");
    assert.equal(await receiver.getSessionState(), "half");
    await receiver.close();
    const second = await client.acceptSession(at.entity, "a");
    assert.equal(await second.getSessionState(), "half");
    await second.setSessionState(null);
    assert.equal(await second.getSessionState(), null);
  });
}

async function sessionRenew(at) {
  await withClient(at, async (client) => {
    await put(client, at.entity, of("a", "1"));
    const receiver = await client.acceptSession(at.entity, "a", {
      maxAutoLockRenewalDurationInMs: 0,
    });
    const [one] = await take(receiver);
    const before = receiver.sessionLockedUntilUtc;
    await at.advance(20);
    const after = await receiver.renewSessionLock();
    assert(after - before >= 19000, `${before} to ${after}`);
    await at.advance(20);
    await receiver.completeMessage(one);
  });
}

async function sessionOrder(at) {
  await withClient(at, async (client) => {
    const names = ["a", "b", "a", "c", "b", "a"];
    const given = names.map((name, place) => of(name, `${name}${place}`));
    await put(client, at.entity, ...given);
    for (const name of ["a", "b", "c"]) {
      const wanted = bodies(given).filter((body) => body[0] === name);
      const receiver = await client.acceptSession(at.entity, name);
      assert.deepEqual(await drained(receiver, wanted.length), wanted);
      await receiver.close();
    }
  });
}

async function sessionLost(at) {
  await withClient(at, async (client) => {
    await put(client, at.entity, of("a", "1"));
    const receiver = await client.acceptSession(at.entity, "a", {
      maxAutoLockRenewalDurationInMs: 0,
    });
    const [one] = await take(receiver);
    await at.advance(31);
    await fails(receiver.completeMessage(one), "SessionLockLost");
    const second = await client.acceptSession(at.entity, "a");
    assert.deepEqual(await drained(second, 1), ["1"]);
  });
}

async function sessionLocked(at) {
  await withClient(at, async (client) => {
    await put(client, at.entity, of("a", "1"));
    await client.acceptSession(at.entity, "a");
    await fails(client.acceptSession(at.entity, "a"), "SessionCannotBeLocked");
  });
}

// Topics.

async function subscriptionHas(client, topicName, name, ...wanted) {
  const receiver = client.createReceiver(topicName, name);
  assert.deepEqual(bodies(await receiver.peekMessages(10)), wanted);
  if (wanted.length) assert.deepEqual(await drained(receiver, wanted.length), wanted);
}

async function topic(at) {
  await withClient(at, async (client) => {
    await put(client, at.entity, "one", "two");
    await subscriptionHas(client, at.entity, "a", "one", "two");
    await subscriptionHas(client, at.entity, "b", "one", "two");
  });
}

async function subscriptionDeadLetter(at) {
  await withClient(at, async (client) => {
    await put(client, at.entity, "one");
    const receiver = client.createReceiver(at.entity, "a");
    const [one] = await take(receiver);
    await receiver.deadLetterMessage(one, { deadLetterReason: "bad" });
    const [letter] = await take(deadLetters(client, at.entity, "a"));
    assert.equal(letter.deadLetterReason, "bad");
  });
}

const coloured = (body, color, size) => ({ body, applicationProperties: { color, size } });

async function ruleSql(at) {
  await withClient(at, async (client) => {
    const given = [coloured("1", "red", 1), coloured("2", "red", 3), coloured("3", "blue", 3)];
    await put(client, at.entity, ...given, "4");
    await subscriptionHas(client, at.entity, "a", "2");
  });
}

async function ruleCorrelation(at) {
  await withClient(at, async (client) => {
    await put(client, at.entity, { body: "1", subject: "x" }, { body: "2", subject: "y" });
    await subscriptionHas(client, at.entity, "a", "1");
  });
}

async function ruleConstant(at) {
  await withClient(at, async (client) => {
    await put(client, at.entity, "1");
    await subscriptionHas(client, at.entity, "a", "1");
    await subscriptionHas(client, at.entity, "b");
  });
}

async function ruleAction(at) {
  await withClient(at, async (client) => {
    await put(client, at.entity, { body: "1", subject: "x" });
    const [one] = await take(client.createReceiver(at.entity, "a"));
    assert.equal(one.subject, "marked");
  });
}

async function ruleManager(at) {
  await withClient(at, async (client) => {
    const rules = client.createRuleManager(at.entity, "a");
    assert.deepEqual((await rules.getRules()).map((each) => each.name), ["$Default"]);
    await rules.createRule(
      "red",
      { sqlExpression: "color = 'red'" },
      { sqlExpression: "SET sys.Label = 'was red'" },
    );
    await rules.createRule("x", { subject: "x" });
    await rules.deleteRule("$Default");
    const found = new Map((await rules.getRules()).map((each) => [each.name, each]));
    assert.deepEqual([...found.keys()].sort(), ["red", "x"]);
    assert.equal(found.get("red").filter.sqlExpression, "color = 'red'");
    assert.equal(found.get("x").filter.subject, "x");
    await put(client, at.entity, coloured("1", "red", 1), { body: "2", subject: "x" }, "3");
    await subscriptionHas(client, at.entity, "a", "1", "2");
  });
}

// Errors and connections.

async function notFound(at) {
  await withClient(at, async (client) => {
    const code = "MessagingEntityNotFound";
    await fails(put(client, "missing", "one"), code);
    await fails(take(client.createReceiver("missing")), code);
    await fails(take(client.createReceiver("topic", "missing")), code);
  });
}

async function tooLarge(at) {
  await withClient(at, async (client) => {
    await fails(put(client, at.entity, "x".repeat(2000000)), "MessageSizeExceeded");
  });
}

async function quota(at) {
  await withClient(at, async (client) => {
    const fill = async () => {
      const sender = client.createSender(at.entity);
      for (let n = 0; n < 8; n++) await sender.sendMessages({ body: "x".repeat(200000) });
    };
    await fails(fill(), "QuotaExceeded");
  });
}

async function disabled(at) {
  const admin = new ServiceBusAdministrationClient(at.connection);
  const described = await admin.getQueue(at.entity);
  described.status = "Disabled";
  await admin.updateQueue(described);
  await withClient(at, async (client) => {
    await fails(put(client, at.entity, "one"), "MessagingEntityDisabled");
  });
}

async function unauthorized(at) {
  await withClient(at, (client) => put(client, at.entity, "one"));
  await withClient(
    at,
    async (client) => {
      await fails(put(client, at.entity, "two"), "UnauthorizedAccess");
      assert.deepEqual(await drained(client.createReceiver(at.entity), 1), ["one"]);
    },
    { connection: at.listen_only },
  );
}

async function wrongKey(at) {
  const connection = at.connection.replace("SharedAccessKey=", "SharedAccessKey=b3Ro");
  await withClient(at, (client) => fails(put(client, at.entity, "one"), "UnauthorizedAccess"), {
    connection,
  });
}

async function everything(client, queue) {
  await put(client, queue, "one", "two");
  const receiver = client.createReceiver(queue);
  assert.deepEqual(bodies(await receiver.peekMessages(5)), ["one", "two"]);
  const [one, two] = await take(receiver, 2);
  await receiver.renewMessageLock(one);
  await receiver.completeMessage(one);
  await receiver.deadLetterMessage(two, { deadLetterReason: "bad" });
  assert.deepEqual(await drained(deadLetters(client, queue), 1), ["two"]);
}

async function tls(at) {
  await withClient(at, (client) => everything(client, at.entity));
}

async function websocket(at) {
  await withClient(at, (client) => everything(client, at.entity), {
    webSocketOptions: { webSocket: WebSocket },
  });
}

// Administration.

const names = async (items, name = "name") => (await all(items)).map((each) => each[name]);

const administration = (at) => new ServiceBusAdministrationClient(at.connection);

async function adminQueue(at) {
  const admin = administration(at);
  await admin.createQueue("made", { lockDuration: "PT20S", maxDeliveryCount: 7 });
  const found = await admin.getQueue("made");
  assert.deepEqual([found.lockDuration, found.maxDeliveryCount], ["PT20S", 7]);
  found.maxDeliveryCount = 5;
  await admin.updateQueue(found);
  assert.equal((await admin.getQueue("made")).maxDeliveryCount, 5);
  assert((await names(admin.listQueues())).includes("made"));
  await admin.deleteQueue("made");
  assert(!(await admin.queueExists("made")));
}

async function adminTopic(at) {
  const admin = administration(at);
  await admin.createTopic("made-topic", { requiresDuplicateDetection: true });
  const found = await admin.getTopic("made-topic");
  assert.equal(found.requiresDuplicateDetection, true);
  found.defaultMessageTimeToLive = "PT1H";
  await admin.updateTopic(found);
  assert.equal((await admin.getTopic("made-topic")).defaultMessageTimeToLive, "PT1H");
  assert((await names(admin.listTopics())).includes("made-topic"));
  await admin.deleteTopic("made-topic");
  assert(!(await admin.topicExists("made-topic")));
}

async function adminSubscription(at) {
  const admin = administration(at);
  await admin.createTopic("parent");
  await admin.createSubscription("parent", "sub", { requiresSession: true });
  const found = await admin.getSubscription("parent", "sub");
  assert.deepEqual([found.subscriptionName, found.requiresSession], ["sub", true]);
  found.maxDeliveryCount = 3;
  await admin.updateSubscription(found);
  assert.equal((await admin.getSubscription("parent", "sub")).maxDeliveryCount, 3);
  assert.deepEqual(await names(admin.listSubscriptions("parent"), "subscriptionName"), ["sub"]);
  await admin.deleteSubscription("parent", "sub");
  assert(!(await admin.subscriptionExists("parent", "sub")));
  await admin.deleteTopic("parent");
}

async function adminRule(at) {
  const admin = administration(at);
  await admin.createTopic("ruled");
  await admin.createSubscription("ruled", "sub");
  assert.deepEqual(await names(admin.listRules("ruled", "sub")), ["$Default"]);
  await admin.createRule(
    "ruled",
    "sub",
    "red",
    { sqlExpression: "color = 'red'" },
    { sqlExpression: "SET sys.Label = 'was red'" },
  );
  await admin.createRule("ruled", "sub", "x", { subject: "x" });
  await admin.deleteRule("ruled", "sub", "$Default");
  const found = await admin.getRule("ruled", "sub", "red");
  assert.equal(found.filter.sqlExpression, "color = 'red'");
  assert.equal(found.action.sqlExpression, "SET sys.Label = 'was red'");
  found.filter.sqlExpression = "color = 'blue'";
  await admin.updateRule("ruled", "sub", found);
  const again = await admin.getRule("ruled", "sub", "red");
  assert.equal(again.filter.sqlExpression, "color = 'blue'");
  assert.deepEqual((await names(admin.listRules("ruled", "sub"))).sort(), ["red", "x"]);
  await admin.deleteTopic("ruled");
}

async function adminRuntime(at) {
  const admin = administration(at);
  await admin.createQueue("counted");
  await withClient(at, async (client) => {
    await put(client, "counted", "one", "two");
    const receiver = client.createReceiver("counted");
    const [one] = await take(receiver);
    await receiver.deadLetterMessage(one);
  });
  const counted = await admin.getQueueRuntimeProperties("counted");
  assert.deepEqual([counted.activeMessageCount, counted.deadLetterMessageCount], [1, 1]);
  assert.equal(counted.totalMessageCount, 2);
  await admin.deleteQueue("counted");
  assert((await admin.getNamespaceProperties()).name);
}

async function adminErrors(at) {
  const admin = administration(at);
  await fails(admin.getQueue("missing"), "MessageEntityNotFoundError");
  await fails(admin.deleteQueue("missing"), "MessageEntityNotFoundError");
  await admin.createQueue("twice");
  await fails(admin.createQueue("twice"), "MessageEntityAlreadyExistsError");
  await fails(admin.createQueue("long", { lockDuration: "PT1H" }), "ServiceError");
  await admin.deleteQueue("twice");
  const limited = new ServiceBusAdministrationClient(at.listen_only);
  await fails(limited.createQueue("forbidden"), "UnauthorizedRequestError");
}

// Whole programs.

async function flowWork(at) {
  const orders = [...Array(20).keys()].map((number) => `order ${number}`);
  await withClient(at, async (client) => {
    const sender = client.createSender(at.entity);
    const waiting = await sender.createMessageBatch();
    for (const body of orders) assert(waiting.tryAddMessage({ body }));
    await sender.sendMessages(waiting);
    const done = [];
    const workers = [client.createReceiver(at.entity), client.createReceiver(at.entity)];
    while (done.length < orders.length) {
      for (const worker of workers) {
        for (const each of await worker.receiveMessages(5, { maxWaitTimeInMs: WATCH })) {
          await worker.completeMessage(each);
          done.push(each.body);
        }
      }
    }
    assert.deepEqual(done.sort(), orders.sort());
  });
}

async function flowSessions(at) {
  const steps = ["order", "pay", "ship"];
  await withClient(at, async (client) => {
    for (const step of steps) await put(client, at.entity, of("ann", step), of("bob", step));
    for (let count = 0; count < 2; count++) {
      const receiver = await client.acceptNextSession(at.entity);
      for (const step of steps) {
        assert.deepEqual(await drained(receiver, 1), [step]);
        await receiver.setSessionState(step);
      }
      assert.equal(await receiver.getSessionState(), "ship");
      await receiver.close();
    }
  });
}

async function flowDeadLetters(at) {
  await withClient(at, async (client) => {
    await put(client, at.entity, "good", "broken", "good too");
    const receiver = client.createReceiver(at.entity);
    for (const each of await take(receiver, 3)) {
      if (each.body === "broken") {
        await receiver.deadLetterMessage(each, { deadLetterReason: "unreadable" });
      } else {
        await receiver.completeMessage(each);
      }
    }
    const dead = deadLetters(client, at.entity);
    const [letter] = await take(dead);
    assert.equal(letter.deadLetterReason, "unreadable");
    await put(client, at.entity, "mended");
    await dead.completeMessage(letter);
    assert.deepEqual(await drained(receiver, 1), ["mended"]);
  });
}

async function flowSchedule(at) {
  await withClient(at, async (client) => {
    const sender = client.createSender(at.entity);
    await sender.scheduleMessages({ body: "1" }, later(at, 5));
    const [second] = await sender.scheduleMessages({ body: "2" }, later(at, 6));
    await sender.scheduleMessages({ body: "3" }, later(at, 7));
    await sender.cancelScheduledMessages(second);
    await at.advance(480);
    assert.deepEqual(await drained(client.createReceiver(at.entity), 2), ["1", "3"]);
  });
}

async function flowTopic(at) {
  await withClient(at, async (client) => {
    const given = [1, 9, 4, 5].map((priority) => ({
      body: String(priority),
      applicationProperties: { priority },
    }));
    await put(client, at.entity, ...given);
    await subscriptionHas(client, at.entity, "high", "9", "5");
    await subscriptionHas(client, at.entity, "low", "1", "4");
  });
}

const dashed = (name) => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);

const list = [
  send, sendList, batch, largeMessage, properties, propertyTypes, bodyTypes, receiveAndDelete,
  iterate, peek, partitionKey, closeReleases, complete, abandon, abandonProperties, defer,
  deadLetter, renewLock, autoRenew, lockLost, maxDeliveryCount, schedule, cancelScheduled,
  duplicates, expiry, forward, transferDeadLetter, session, sessionNext, sessionNone, sessionState,
  sessionRenew, sessionOrder, sessionLost, sessionLocked, topic, subscriptionDeadLetter, ruleSql,
  ruleCorrelation, ruleConstant, ruleAction, ruleManager, notFound, tooLarge, quota, disabled,
  unauthorized, wrongKey, tls, websocket, adminQueue, adminTopic, adminSubscription, adminRule,
  adminRuntime, adminErrors, flowWork, flowSessions, flowDeadLetters, flowSchedule, flowTopic,
];

module.exports = Object.fromEntries(list.map((each) => [dashed(each.name), each]));
