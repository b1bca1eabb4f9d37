// node run.js: reads `{"scenario": NAME, "port": PORT, ...}` from standard input, plays the
// scenario and prints `{"result": ...}`. Exits with 1 and a stack on standard error if it fails.
'use strict';

const scenarios = Object.assign(
    {},
    require('./messages.js'),
    require('./settlement.js'),
    require('./links.js'),
    require('./connections.js'),
    require('./nodes.js'),
);

function fail(reason) {
    process.stderr.write(String(reason && reason.stack ? reason.stack : reason) + '\n');
    process.exit(1);
}

process.on('uncaughtException', fail);
process.on('unhandledRejection', fail);

async function main() {
    let input = '';
    for await (const chunk of process.stdin) {
        input += chunk;
    }
    const params = JSON.parse(input);
    const scenario = scenarios[params.scenario];
    if (!scenario) {
        throw new Error('no such scenario: ' + params.scenario);
    }
    const limit = params.seconds;
    setTimeout(() => fail(params.scenario + ' did not end in ' + limit + ' s'), limit * 1000);
    const result = await scenario(params);
    process.stdout.write(JSON.stringify({ result: result === undefined ? null : result }) + '\n',
        () => process.exit(0));
}

main().catch(fail);
