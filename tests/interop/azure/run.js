// Messages that @azure/service-bus sends, receives, completes and gives up; parameters and the result
// are JSON.
"use strict";

const { ServiceBusClient } = require("@azure/service-bus");

async function main() {
  let input = "";
  for await (const chunk of process.stdin) input += chunk;
  const { connection, queue, body, seconds } = JSON.parse(input);
  const milliseconds = seconds * 1000;
  const client = new ServiceBusClient(connection, {
    retryOptions: { maxRetries: 0, timeoutInMs: milliseconds },
  });
  const sender = client.createSender(queue);
  await sender.sendMessages({ body, messageId: "one" });
  const receiver = client.createReceiver(queue);
  const [message] = await receiver.receiveMessages(1, { maxWaitTimeInMs: milliseconds });
  await receiver.completeMessage(message);
  // The reason goes out in a map of strings, where AMQP asks for symbols.
  await sender.sendMessages({ body: "poison", messageId: "two" });
  const [poison] = await receiver.receiveMessages(1, { maxWaitTimeInMs: milliseconds });
  await receiver.deadLetterMessage(poison, { deadLetterReason: "why", own: "x" });
  const left = await receiver.receiveMessages(1, { maxWaitTimeInMs: 1000 });
  await client.close();
  process.stdout.write(JSON.stringify({ body: message.body, left: left.length }));
}

main().then(
  () => process.exit(0),
  (error) => {
    process.stderr.write(`${error.stack}\n`);
    process.exit(1);
  },
);
