// What @azure/service-bus administers, from the creation of entities to their end; the connection
// string comes as JSON, and so does the result.
"use strict";

const { ServiceBusAdministrationClient } = require("@azure/service-bus");

async function all(entities) {
  const found = [];
  for await (const each of entities) found.push(each);
  return found;
}

async function codeOf(promise) {
  try {
    await promise;
    return "no error";
  } catch (error) {
    return error.code;
  }
}

async function main() {
  let input = "";
  for await (const chunk of process.stdin) input += chunk;
  const { connection } = JSON.parse(input);
  const client = new ServiceBusAdministrationClient(connection, {
    retryOptions: { maxRetries: 0 },
  });
  const said = {};
  said.namespace = (await client.getNamespaceProperties()).name;
  const queue = await client.createQueue("orders", { lockDuration: "PT30S", userMetadata: "mine" });
  said.queue = [queue.name, queue.lockDuration, queue.userMetadata, queue.maxDeliveryCount];
  queue.maxDeliveryCount = 5;
  said.updated = (await client.updateQueue(queue)).maxDeliveryCount;
  said.there = [await client.queueExists("orders"), await client.queueExists("nothing")];
  const figures = await client.getQueueRuntimeProperties("orders");
  said.figures = [figures.name, figures.activeMessageCount, figures.deadLetterMessageCount];
  said.errors = [
    await codeOf(client.createQueue("orders")),
    await codeOf(client.getQueue("nothing")),
    await codeOf(client.deleteQueue("nothing")),
  ];
  for (let number = 0; number < 4; number++) await client.createQueue(`queue-${number}`);
  said.pages = [];
  for await (const page of client.listQueues().byPage({ maxPageSize: 2 })) {
    said.pages.push(page.map((each) => each.name));
  }
  const forwarding = await client.createQueue("forwarding", { forwardTo: "queue-0" });
  said.forwarding = forwarding.forwardTo;
  await client.createTopic("news");
  const subscription = await client.createSubscription("news", "audit", { maxDeliveryCount: 4 });
  said.subscription = [
    subscription.topicName,
    subscription.subscriptionName,
    subscription.maxDeliveryCount,
  ];
  await client.createRule("news", "audit", "equal", {
    subject: "label",
    applicationProperties: { number: 1, text: "x", time: new Date(0), flag: true },
  });
  await client.createRule(
    "news",
    "audit",
    "red",
    { sqlExpression: "color = 'red'" },
    { sqlExpression: "SET color = 'blue'" },
  );
  said.rules = await all(client.listRules("news", "audit"));
  said.lists = [
    (await all(client.listTopics())).map((each) => each.name),
    (await all(client.listSubscriptions("news"))).map((each) => each.subscriptionName),
  ];
  const counts = await client.getSubscriptionRuntimeProperties("news", "audit");
  said.counts = [counts.totalMessageCount, counts.activeMessageCount];
  await client.deleteRule("news", "audit", "red");
  await client.deleteSubscription("news", "audit");
  await client.deleteTopic("news");
  said.left = await all(client.listTopics());
  process.stdout.write(JSON.stringify(said));
}

main().then(
  () => process.exit(0),
  (error) => {
    process.stderr.write(`${error.code} ${error.message}\n${error.stack}\n`);
    process.exit(1);
  },
);
