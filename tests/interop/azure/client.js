// A program that tries features with Azure's SDKs for Node: `node client.js service-bus|event-hubs`.
//
// It reads lines of JSON: {"case": NAME, "connection": STRING, ...}. For each it writes
// {"error": TEXT}, empty if the feature works, or {"absent": true} if the client has no such feature.
// In between it may write {"advance": SECONDS}: who reads it advances the broker's clock and answers
// with a line.
"use strict";

const assert = require("node:assert");
const readline = require("node:readline");

// Milliseconds for a case, however slow the machine is.
const LIMIT = 60000;

const cases = { "service-bus": "./service_bus.js", "event-hubs": "./event_hubs.js" };

function say(line) {
  process.stdout.write(JSON.stringify(line) + "\n");
}

function textOf(error) {
  const kind = error instanceof assert.AssertionError ? "" : `${error.code || error.name}: `;
  const lines = error.message.split("\n").filter((line) => line.trim());
  return (kind + lines.slice(0, 6).join(" ")).slice(0, 300);
}

async function main() {
  const run = require(cases[process.argv[2]]);
  const input = readline.createInterface({ input: process.stdin });
  const lines = input[Symbol.asyncIterator]();
  const advance = async (seconds) => {
    say({ advance: seconds });
    await lines.next();
  };
  for (let line = await lines.next(); !line.done; line = await lines.next()) {
    const asked = JSON.parse(line.value);
    const test = run[asked.case];
    if (!test) {
      say({ absent: true });
      continue;
    }
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new assert.AssertionError({ message: "too late" })), LIMIT);
    });
    try {
      await Promise.race([test({ ...asked, entity: asked.case, advance }), late]);
      say({ error: "" });
    } catch (error) {
      say({ error: textOf(error) });
    } finally {
      clearTimeout(timer);
    }
  }
}

main().then(
  () => process.exit(0),
  (error) => {
    process.stderr.write(`${error.stack}\n`);
    process.exit(1);
  },
);
