'use strict';
// Plays scripts to rhea as a server, without a socket. In: {settings, plays: {name: [hex, ...]}};
// out: {name: {output: [hex, ...], ended}}, an output for everything sent.

const EventEmitter = require('events');
const rhea = require('rhea');

class Socket extends EventEmitter {
    constructor() {
        super();
        this.written = [];
        this.ended = false;
        this.writable = true;
    }
    write(data) {
        this.written.push(Buffer.from(data));
        return true;
    }
    end() {
        this.ended = true;
        this.writable = false;
    }
    destroy() {
        this.end();
    }
    setKeepAlive() {}
    setNoDelay() {}
    resume() {}
    pause() {}
    get_options() {
        return {};
    }
}

function idle() {
    return new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
}

async function play(settings, script) {
    const container = rhea.create_container({ id: 'server', autosettle: false, autoaccept: false });
    const socket = new Socket();
    const quiet = ['disconnected', 'error', 'connection_error', 'session_error', 'protocol_error',
        'receiver_error', 'sender_error', 'connection_close', 'session_close',
        'receiver_close', 'sender_close'];
    quiet.forEach((event) => container.on(event, () => {}));
    const connection = container.create_connection({
        max_frame_size: settings.maxFrameSize,
        channel_max: settings.channelMax,
        receiver_options: { credit_window: 0, autoaccept: false, autosettle: false },
    });
    container.on('receiver_open', (context) => context.receiver.add_credit(settings.credit));
    connection.accept(socket);
    const output = [];
    for (const hex of script) {
        if (!socket.ended) {
            try {
                socket.emit('data', Buffer.from(hex, 'hex'));
            } catch (error) {
                // What rhea throws into the socket's event ends a Node process, unless caught.
                socket.thrown = String(error);
            }
        }
        await idle();
        output.push(Buffer.concat(socket.written).toString('hex'));
        socket.written = [];
    }
    return { output, ended: socket.ended, thrown: socket.thrown };
}

async function main() {
    const chunks = [];
    for await (const chunk of process.stdin) {
        chunks.push(chunk);
    }
    const { settings, plays } = JSON.parse(Buffer.concat(chunks).toString());
    const answers = {};
    for (const [name, script] of Object.entries(plays)) {
        answers[name] = await play(settings, script);
    }
    process.stdout.write(JSON.stringify(answers), () => process.exit(0));
}

main();
