// Sends texts to a node and receives them again with amqp10, and prints what came as JSON.
//
//     node run.js URL ADDRESS TEXT...
'use strict';

const { Client, Policy } = require('amqp10');

async function main(url, address, texts) {
  const client = new Client(Policy.merge({ senderLinkPolicy: { callback: 'settled' } }));
  await client.connect(url);
  const sender = await client.createSender(address);
  for (const text of texts) {
    // Ends when the broker has settled.
    await sender.send(text, {
      properties: { messageId: text },
      applicationProperties: { length: text.length },
    });
  }
  const receiver = await client.createReceiver(address);
  const received = await new Promise((resolve, reject) => {
    const found = [];
    receiver.on('errorReceived', reject);
    receiver.on('message', (message) => {
      found.push([message.body, message.properties.messageId, message.applicationProperties.length]);
      if (found.length === texts.length) resolve(found);
    });
  });
  await client.disconnect();
  console.log(JSON.stringify(received));
}

const [url, address, ...texts] = process.argv.slice(2);
main(url, address, texts).catch((error) => {
  console.error(error);
  process.exit(1);
});
