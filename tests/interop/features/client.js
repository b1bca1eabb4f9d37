// A program that tries features with clients for Node: `node client.js CASES`. CASES is a module with
// a function for each feature.
//
// It reads lines of JSON: {"case": NAME, ...}. For each it writes
// {"error": TEXT}, empty if the feature works, or {"absent": true} if the client has no such feature.
// In between a case may write a line that asks something of who reads it, such as {"advance": SECONDS}
// for the broker's clock; the answer is a line.
"use strict";

const assert = require("node:assert");
const path = require("node:path");
const readline = require("node:readline");

// Milliseconds for a case, however slow the machine is.
const LIMIT = 60000;

function say(line) {
  process.stdout.write(JSON.stringify(line) + "\n");
}

function textOf(error) {
  const kind = error instanceof assert.AssertionError ? "" : `${error.code || error.name}: `;
  const lines = error.message.split("\n").filter((line) => line.trim());
  return (kind + lines.slice(0, 6).join(" ")).slice(0, 300);
}

async function main() {
  const run = require(path.resolve(process.argv[2]));
  const input = readline.createInterface({ input: process.stdin });
  const lines = input[Symbol.asyncIterator]();
  const ask = async (request) => {
    say(request);
    await lines.next();
  };
  const advance = (seconds) => ask({ advance: seconds });
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
      await Promise.race([test({ ...asked, entity: asked.entity || asked.case, ask, advance }), late]);
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
