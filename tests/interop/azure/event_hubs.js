// Cases for @azure/event-hubs: a function for each feature, by the name in cases.py.
"use strict";

const assert = require("node:assert");
const {
  EventHubBufferedProducerClient,
  EventHubConsumerClient,
  EventHubProducerClient,
  earliestEventPosition,
  latestEventPosition,
} = require("@azure/event-hubs");
const WebSocket = require("ws");

const GROUP = "$Default";

function settings(at, options) {
  const common = { retryOptions: { maxRetries: 0, timeoutInMs: 10000 }, ...options };
  return at.endpoint ? { ...common, customEndpointAddress: at.endpoint } : common;
}

const producer = (at, options = {}) =>
  new EventHubProducerClient(at.connection, at.entity, settings(at, options));

const consumer = (at, options = {}, group = GROUP, ...store) =>
  new EventHubConsumerClient(group, at.connection, at.entity, ...store, {
    loadBalancingOptions: { updateIntervalInMs: 500, partitionOwnershipExpirationIntervalInMs: 5000 },
    ...settings(at, options),
  });

async function put(at, partitionId, bodies, options = {}) {
  const client = producer(at, options);
  try {
    await client.sendBatch(
      bodies.map((body) => ({ body })),
      { partitionId },
    );
  } finally {
    await client.close();
  }
}

// Returns so many events as {partition, event}; `target` is a partition or null for all of them.
async function take(client, count, target, options = {}) {
  const found = [];
  let subscription;
  try {
    await new Promise((resolve, reject) => {
      const handlers = {
        processEvents: async (events, context) => {
          for (const event of events) found.push({ partition: context.partitionId, event });
          if (found.length >= count) resolve();
        },
        processError: async (error) => reject(error),
      };
      const all = { startPosition: earliestEventPosition, maxWaitTimeInSeconds: 1, ...options };
      subscription =
        target === null
          ? client.subscribe(handlers, all)
          : client.subscribe(target, handlers, all);
    });
  } finally {
    await subscription.close();
    await client.close();
  }
  return found;
}

const bodies = (found) => found.map(({ event }) => event.body);

// Sending.

async function event(at) {
  const client = producer(at);
  await client.sendBatch([{ body: "one" }]);
  await client.close();
  assert.deepEqual(bodies(await take(consumer(at), 1, null)), ["one"]);
}

async function eventBatch(at) {
  const client = producer(at);
  const batch = await client.createBatch();
  for (const body of ["a", "b", "c"]) assert(batch.tryAdd({ body }));
  await client.sendBatch(batch);
  const small = await client.createBatch({ maxSizeInBytes: 300 });
  assert(!small.tryAdd({ body: "x".repeat(300) }));
  await client.sendBatch([{ body: "d" }, { body: "e" }]);
  await client.close();
  const found = await take(consumer(at), 5, null);
  assert.deepEqual(bodies(found).sort(), ["a", "b", "c", "d", "e"]);
}

async function eventProperties(at) {
  const given = {
    properties: { text: "t", n: 1, flag: true },
    contentType: "text/plain",
    correlationId: "other",
    messageId: "id",
  };
  const client = producer(at);
  await client.sendBatch([{ body: { a: 1 }, ...given }]);
  await client.close();
  const [{ event: one }] = await take(consumer(at), 1, null);
  assert.deepEqual(one.body, { a: 1 });
  for (const name of Object.keys(given)) assert.deepEqual(one[name], given[name]);
  assert(one.enqueuedTimeUtc && one.offset !== undefined && one.sequenceNumber !== undefined);
}

async function partitionId(at) {
  await put(at, "0", ["a", "b"]);
  await put(at, "1", ["c"]);
  const found = await take(consumer(at), 3, null);
  const pairs = found.map(({ partition, event: one }) => partition + one.body).sort();
  assert.deepEqual(pairs, ["0a", "0b", "1c"]);
}

async function eventPartitionKey(at) {
  const client = producer(at);
  for (const body of ["a", "b", "c"]) await client.sendBatch([{ body }], { partitionKey: "k" });
  await client.close();
  const found = await take(consumer(at), 3, null);
  assert.equal(new Set(found.map(({ partition }) => partition)).size, 1);
  assert.deepEqual(found.map((each) => each.event.partitionKey), ["k", "k", "k"]);
  assert.deepEqual(bodies(found), ["a", "b", "c"]);
}

async function buffered(at) {
  const errors = [];
  const client = new EventHubBufferedProducerClient(at.connection, at.entity, {
    onSendEventsErrorHandler: async (context) => errors.push(context.error),
    maxWaitTimeInMs: 500,
    ...settings(at, {}),
  });
  const wanted = [...Array(20).keys()].map((number) => `e${number}`);
  for (const body of wanted) await client.enqueueEvent({ body });
  await client.close();
  assert.deepEqual(errors, []);
  assert.deepEqual(bodies(await take(consumer(at), 20, null)).sort(), wanted.sort());
}

// Properties.

async function hubProperties(at) {
  const client = producer(at);
  const found = await client.getEventHubProperties();
  assert.deepEqual([found.name, found.partitionIds], [at.entity, ["0", "1"]]);
  assert(found.createdOn instanceof Date);
  assert.deepEqual(await client.getPartitionIds(), ["0", "1"]);
  await client.close();
}

async function partitionProperties(at) {
  const client = producer(at);
  assert.equal((await client.getPartitionProperties("0")).isEmpty, true);
  await client.sendBatch([{ body: "a" }, { body: "b" }], { partitionId: "0" });
  const found = await client.getPartitionProperties("0");
  assert.deepEqual([found.eventHubName, found.partitionId], [at.entity, "0"]);
  assert.equal(found.lastEnqueuedSequenceNumber - found.beginningSequenceNumber, 1);
  assert(found.lastEnqueuedOnUtc instanceof Date && !found.isEmpty);
  await client.close();
}

// Positions.

async function fromStart(at) {
  await put(at, "0", ["a", "b", "c"]);
  assert.deepEqual(bodies(await take(consumer(at), 3, "0")), ["a", "b", "c"]);
}

async function fromLatest(at) {
  await put(at, "0", ["old"]);
  const client = consumer(at);
  const found = [];
  let sent = false;
  await new Promise((resolve, reject) => {
    client.subscribe(
      "0",
      {
        processEvents: async (events) => {
          found.push(...events.map((each) => each.body));
          if (found.length) resolve();
          // Without events the receiver has waited, so it is attached.
          if (!sent) {
            sent = true;
            await put(at, "0", ["new"]);
          }
        },
        processError: async (error) => reject(error),
      },
      { startPosition: latestEventPosition, maxWaitTimeInSeconds: 1 },
    );
  });
  await client.close();
  assert.deepEqual(found, ["new"]);
}

async function from(at, positionOf) {
  await put(at, "0", ["a", "b"]);
  await at.advance(10);
  await put(at, "0", ["c", "d"]);
  const found = await take(consumer(at), 4, "0");
  const startPosition = positionOf(found[1].event);
  assert.deepEqual(bodies(await take(consumer(at), 2, "0", { startPosition })), ["c", "d"]);
}

const fromOffset = (at) => from(at, ({ offset }) => ({ offset }));

const fromTime = (at) => from(at, ({ enqueuedTimeUtc }) => ({ enqueuedOn: enqueuedTimeUtc }));

async function fromSequenceNumber(at) {
  await from(at, ({ sequenceNumber }) => ({ sequenceNumber }));
  const startPosition = { sequenceNumber: 1, isInclusive: true };
  const found = await take(consumer(at), 3, "0", { startPosition });
  assert.deepEqual(bodies(found), ["b", "c", "d"]);
}

// Consumers.

function reader(client, target, options) {
  const seen = {};
  seen.got = new Promise((resolve, reject) => {
    seen.lost = new Promise((lost) => {
      seen.subscription = client.subscribe(
        target,
        {
          processEvents: async (events) => {
            if (events.length) resolve();
          },
          processError: async (error) => {
            lost(error);
            reject(error);
          },
        },
        { startPosition: earliestEventPosition, maxWaitTimeInSeconds: 1, ...options },
      );
    });
  });
  seen.got.catch(() => {});
  return seen;
}

async function epoch(at) {
  await put(at, "0", ["a"]);
  const clients = [consumer(at), consumer(at)];
  const first = reader(clients[0], "0", { ownerLevel: 1 });
  await first.got;
  const second = reader(clients[1], "0", { ownerLevel: 2 });
  await second.got;
  const error = await first.lost;
  assert.equal(error.code, "ReceiverDisconnectedError");
  for (const client of clients) await client.close();
}

async function consumerGroups(at) {
  await put(at, "0", ["a", "b"]);
  for (const group of [GROUP, "other"]) {
    assert.deepEqual(bodies(await take(consumer(at, {}, group), 2, null)), ["a", "b"]);
  }
}

async function metrics(at) {
  await put(at, "0", ["a", "b", "c"]);
  const client = consumer(at);
  const told = await new Promise((resolve, reject) => {
    client.subscribe(
      "0",
      {
        processEvents: async (events, context) => {
          if (events.length) resolve(context.lastEnqueuedEventProperties);
        },
        processError: async (error) => reject(error),
      },
      { startPosition: earliestEventPosition, trackLastEnqueuedEventProperties: true },
    );
  });
  await client.close();
  assert.equal(told && told.sequenceNumber, 2);
  assert(told.offset !== undefined && told.enqueuedOn instanceof Date);
}

// A store of checkpoints and of the ownership of partitions, in memory.
class Store {
  constructor() {
    this.owners = new Map();
    this.checkpoints = new Map();
    this.tag = 0;
  }

  async listOwnership() {
    return [...this.owners.values()].map((each) => ({ ...each }));
  }

  async claimOwnership(claims) {
    const claimed = [];
    for (const claim of claims) {
      const owner = this.owners.get(claim.partitionId);
      if (owner && owner.etag !== claim.etag) continue;
      this.tag += 1;
      const renewed = { ...claim, etag: String(this.tag), lastModifiedTimeInMs: Date.now() };
      this.owners.set(claim.partitionId, renewed);
      claimed.push({ ...renewed });
    }
    return claimed;
  }

  async updateCheckpoint(checkpoint) {
    this.checkpoints.set(checkpoint.partitionId, checkpoint);
  }

  async listCheckpoints() {
    return [...this.checkpoints.values()];
  }
}

async function checkpoint(at) {
  const store = new Store();
  await put(at, "0", ["a", "b"]);
  const client = consumer(at, {}, GROUP, store);
  await new Promise((resolve, reject) => {
    let count = 0;
    client.subscribe(
      {
        processEvents: async (events, context) => {
          if (events.length) await context.updateCheckpoint(events[events.length - 1]);
          count += events.length;
          if (count === 2) resolve();
        },
        processError: async (error) => reject(error),
      },
      { startPosition: earliestEventPosition, maxWaitTimeInSeconds: 1 },
    );
  });
  await client.close();
  await put(at, "0", ["c"]);
  assert.deepEqual(bodies(await take(consumer(at, {}, GROUP, store), 1, null)), ["c"]);
}

async function balance(at) {
  const store = new Store();
  const owned = [new Set(), new Set()];
  const clients = [consumer(at, {}, GROUP, store), consumer(at, {}, GROUP, store)];
  await new Promise((resolve, reject) => {
    const start = (place) =>
      clients[place].subscribe(
        {
          processInitialize: async (context) => {
            owned[1 - place].delete(context.partitionId);
            owned[place].add(context.partitionId);
            if (owned[0].size === 1 && owned[1].size === 1) resolve();
            else if (place === 0 && owned[0].size === 2) start(1);
          },
          processEvents: async () => {},
          // The first consumer is told that it has lost a partition.
          processError: async (error) => {
            if (error.code !== "ReceiverDisconnectedError") reject(error);
          },
        },
        { startPosition: earliestEventPosition, maxWaitTimeInSeconds: 1 },
      );
    start(0);
  });
  for (const client of clients) await client.close();
}

// Errors and connections.

async function hubNotFound(at) {
  const client = producer({ ...at, entity: "missing" });
  try {
    await assert.rejects(client.sendBatch([{ body: "one" }]), (error) => {
      assert.equal(error.code, "MessagingEntityNotFoundError");
      return true;
    });
  } finally {
    await client.close();
  }
}

async function hubTls(at, options = {}) {
  await put(at, "0", ["a", "b"], options);
  assert.deepEqual(bodies(await take(consumer(at, options), 2, null)), ["a", "b"]);
}

const hubWebsocket = (at) => hubTls(at, { webSocketOptions: { webSocket: WebSocket } });

async function flowHub(at) {
  const client = producer(at);
  const devices = ["door", "lamp", "oven"];
  for (let number = 0; number < 5; number++) {
    for (const partitionKey of devices) {
      const body = `${partitionKey} ${number}`;
      await client.sendBatch([{ body, properties: { number } }], { partitionKey });
    }
  }
  await client.close();
  const found = bodies(await take(consumer(at), 15, null));
  for (const device of devices) {
    const mine = found.filter((body) => body.startsWith(device));
    assert.deepEqual(mine, [0, 1, 2, 3, 4].map((number) => `${device} ${number}`));
  }
}

const dashed = (name) => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);

const list = [
  event, eventBatch, eventProperties, partitionId, eventPartitionKey, hubProperties,
  partitionProperties, fromStart, fromLatest, fromOffset, fromSequenceNumber, fromTime, epoch,
  consumerGroups, metrics, buffered, checkpoint, balance, hubNotFound, hubTls, hubWebsocket,
  flowHub,
];

module.exports = Object.fromEntries(list.map((each) => [dashed(each.name), each]));
