<?php
// A program that tries features with php-amqplib. What it reads and writes is in features/trial.py.
// A case is a function of the feature's name with underscores, in the namespace Cases.
declare(strict_types=1);

namespace Cases;

require_once 'PhpAmqpLib/autoload.php';

use PhpAmqpLib\Channel\AMQPChannel;
use PhpAmqpLib\Connection\AMQPSSLConnection;
use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Exception\AMQPConnectionClosedException;
use PhpAmqpLib\Exception\AMQPProtocolChannelException;
use PhpAmqpLib\Message\AMQPMessage;
use PhpAmqpLib\Wire\AMQPTable;

// Seconds that a message that comes is waited for.
const PATIENCE = 15;

function connect(array $at, array $more = []): AMQPStreamConnection
{
    $settings = $more + $at + ['vhost' => '/', 'heartbeat' => 0];
    return new AMQPStreamConnection(
        $settings['host'],
        $settings['port'],
        $settings['user'],
        $settings['password'],
        $settings['vhost'],
        heartbeat: $settings['heartbeat'],
    );
}

function channel(array $at, array $more = []): AMQPChannel
{
    return connect($at, $more)->channel();
}

function expect(mixed $actual, mixed $wanted): void
{
    if ($actual != $wanted) {
        throw new \AssertionError(json_encode($actual) . ' instead of ' . json_encode($wanted));
    }
}

function refused(int $code, callable $call): void
{
    try {
        $call();
    } catch (AMQPProtocolChannelException | AMQPConnectionClosedException $error) {
        expect($error->getCode(), $code);
        return;
    }
    throw new \AssertionError('it was not refused');
}

function own(AMQPChannel $ch, string $name, array $arguments = []): string
{
    $ch->queue_declare($name, false, false, true, true, false, new AMQPTable($arguments));
    return $name;
}

function put(AMQPChannel $ch, string $queue, string ...$bodies): void
{
    foreach ($bodies as $body) {
        $ch->basic_publish(new AMQPMessage($body), '', $queue);
    }
}

function got(AMQPChannel $ch, string $queue): AMQPMessage
{
    $deadline = microtime(true) + PATIENCE;
    while (($message = $ch->basic_get($queue)) === null) {
        if (microtime(true) > $deadline) {
            throw new \AssertionError('no message came');
        }
        usleep(10000);
    }
    return $message;
}

function until(AMQPChannel $ch, callable $done): void
{
    while (!$done()) {
        $ch->wait(null, false, PATIENCE);
    }
}

function queue_declare(array $at): void
{
    $ch = channel($at);
    $ch->queue_declare($at['entity'], false, true, false, false);
    $ch->confirm_select();
    put($ch, $at['entity'], 'one', 'two');
    $ch->wait_for_pending_acks(PATIENCE);
    expect($ch->queue_declare($at['entity'], true)[1], 2);
    expect($ch->queue_purge($at['entity']), 2);
    $ch->queue_delete($at['entity']);
}

function server_named(array $at): void
{
    $ch = channel($at);
    [$name] = $ch->queue_declare('', false, false, true);
    put($ch, $name, 'one');
    expect(got($ch, $name)->getBody(), 'one');
}

function passive(array $at): void
{
    $ch = channel($at);
    refused(404, fn() => $ch->queue_declare($at['entity'], true));
}

function topic(array $at): void
{
    $ch = channel($at);
    $ch->exchange_declare($at['entity'], 'topic', false, false, true);
    $queue = own($ch, $at['entity'] . '.q');
    $ch->queue_bind($queue, $at['entity'], 'a.*');
    foreach (['a.b', 'b.b', 'a.c'] as $key) {
        $ch->basic_publish(new AMQPMessage($key), $at['entity'], $key);
    }
    expect([got($ch, $queue)->getBody(), got($ch, $queue)->getBody()], ['a.b', 'a.c']);
}

function headers(array $at): void
{
    $ch = channel($at);
    $ch->exchange_declare($at['entity'], 'headers', false, false, true);
    $queue = own($ch, $at['entity'] . '.q');
    $match = new AMQPTable(['x-match' => 'all', 'kind' => 'tea', 'size' => 3]);
    $ch->queue_bind($queue, $at['entity'], '', false, $match);
    foreach ([4, 3] as $size) {
        $table = new AMQPTable(['kind' => 'tea', 'size' => $size]);
        $ch->basic_publish(new AMQPMessage("$size", ['application_headers' => $table]), $at['entity']);
    }
    expect(got($ch, $queue)->getBody(), '3');
}

function properties(array $at): void
{
    $given = [
        'content_type' => 'application/json',
        'content_encoding' => 'utf-8',
        'delivery_mode' => 2,
        'priority' => 5,
        'correlation_id' => 'c-1',
        'reply_to' => 'replies',
        'expiration' => '600000',
        'message_id' => 'm-1',
        'timestamp' => 1700000000,
        'type' => 'order',
        'user_id' => $at['user'],
        'app_id' => 'shop',
    ];
    $ch = channel($at);
    $ch->basic_publish(new AMQPMessage('one', $given), '', own($ch, $at['entity']));
    $message = got($ch, $at['entity']);
    foreach ($given as $name => $value) {
        expect([$name, $message->get($name)], [$name, $value]);
    }
}

function header_types(array $at): void
{
    $given = [
        'yes' => true,
        'int' => 7,
        'long' => -(2 ** 40),
        'text' => 'žluťoučký',
        'none' => null,
        'list' => [1, 'two'],
        'table' => ['inner' => ['deep' => true]],
        'double' => 0.5,
    ];
    $ch = channel($at);
    $message = new AMQPMessage('one', ['application_headers' => new AMQPTable($given)]);
    $ch->basic_publish($message, '', own($ch, $at['entity']));
    $came = got($ch, $at['entity'])->get('application_headers')->getNativeData();
    foreach ($given as $name => $value) {
        expect([$name, $came[$name] ?? null], [$name, $value]);
    }
}

function large(array $at): void
{
    $body = str_repeat('0123456789abcdef', 65536);
    $ch = channel($at);
    put($ch, own($ch, $at['entity']), $body);
    if (got($ch, $at['entity'])->getBody() !== $body) {
        throw new \AssertionError('another body came');
    }
}

function mandatory(array $at): void
{
    $ch = channel($at);
    $returned = [];
    $ch->set_return_listener(function ($code) use (&$returned) {
        $returned[] = $code;
    });
    $ch->basic_publish(new AMQPMessage('one'), '', 'missing', true);
    until($ch, function () use (&$returned) {
        return count($returned) > 0;
    });
    expect($returned, [312]);
}

function confirms(array $at): void
{
    $ch = channel($at);
    $ch->confirm_select();
    $acks = 0;
    $ch->set_ack_handler(function () use (&$acks) {
        $acks++;
    });
    own($ch, $at['entity']);
    for ($number = 0; $number < 20; $number++) {
        put($ch, $at['entity'], 'one');
    }
    $ch->wait_for_pending_acks(PATIENCE);
    expect($acks, 20);
}

function confirm_nack(array $at): void
{
    $ch = channel($at);
    $ch->confirm_select();
    $nacks = 0;
    $ch->set_nack_handler(function () use (&$nacks) {
        $nacks++;
    });
    own($ch, $at['entity'], ['x-max-length' => 1, 'x-overflow' => 'reject-publish']);
    put($ch, $at['entity'], 'one', 'two');
    $ch->wait_for_pending_acks(PATIENCE);
    expect($nacks, 1);
}

function get(array $at): void
{
    $ch = channel($at);
    own($ch, $at['entity']);
    expect($ch->basic_get($at['entity']), null);
    put($ch, $at['entity'], 'one');
    got($ch, $at['entity'])->ack();
}

function consume(array $at): void
{
    $ch = channel($at);
    own($ch, $at['entity']);
    $came = [];
    $on = function (AMQPMessage $message) use (&$came) {
        $came[] = $message->getBody();
        $message->ack();
    };
    $tag = $ch->basic_consume($at['entity'], '', false, false, false, false, $on);
    put($ch, $at['entity'], 'one', 'two', 'three');
    until($ch, function () use (&$came) {
        return count($came) === 3;
    });
    expect($came, ['one', 'two', 'three']);
    $ch->basic_cancel($tag);
}

function prefetch(array $at): void
{
    $ch = channel($at);
    $ch->basic_qos(0, 2, false);
    put($ch, own($ch, $at['entity']), '1', '2', '3', '4');
    $came = [];
    $on = function (AMQPMessage $message) use (&$came) {
        $came[] = $message;
    };
    $ch->basic_consume($at['entity'], '', false, false, false, false, $on);
    until($ch, function () use (&$came) {
        return count($came) === 2;
    });
    $came[1]->ack(true);
    until($ch, function () use (&$came) {
        return count($came) === 4;
    });
}

function requeue(array $at): void
{
    $ch = channel($at);
    put($ch, own($ch, $at['entity']), 'one');
    got($ch, $at['entity'])->nack(true);
    $message = got($ch, $at['entity']);
    expect($message->isRedelivered(), true);
    $message->reject(false);
    expect($ch->basic_get($at['entity']), null);
}

function dead_letter(array $at): void
{
    $ch = channel($at);
    $dead = own($ch, $at['entity'] . '.dead');
    own($ch, $at['entity'], ['x-dead-letter-exchange' => '', 'x-dead-letter-routing-key' => $dead]);
    put($ch, $at['entity'], 'one');
    got($ch, $at['entity'])->reject(false);
    $death = got($ch, $dead)->get('application_headers')->getNativeData()['x-death'][0];
    expect([$death['count'], $death['reason']], [1, 'rejected']);
}

function tx_commit(array $at): void
{
    $ch = channel($at);
    own($ch, $at['entity']);
    $ch->tx_select();
    put($ch, $at['entity'], 'one');
    expect($ch->queue_declare($at['entity'], true)[1], 0);
    $ch->tx_commit();
    expect($ch->queue_declare($at['entity'], true)[1], 1);
}

function tx_rollback(array $at): void
{
    $ch = channel($at);
    own($ch, $at['entity']);
    $ch->tx_select();
    put($ch, $at['entity'], 'one');
    $ch->tx_rollback();
    expect($ch->queue_declare($at['entity'], true)[1], 0);
}

function fanout(array $at): void
{
    $ch = channel($at);
    $ch->exchange_declare($at['entity'], 'fanout', false, false, true);
    foreach (['.a', '.b'] as $end) {
        $ch->queue_bind(own($ch, $at['entity'] . $end), $at['entity']);
    }
    $ch->basic_publish(new AMQPMessage('one'), $at['entity']);
    foreach (['.a', '.b'] as $end) {
        expect(got($ch, $at['entity'] . $end)->getBody(), 'one');
    }
}

function message_ttl(array $at): void
{
    $ch = channel($at);
    $dead = own($ch, $at['entity'] . '.dead');
    $to = ['x-dead-letter-exchange' => '', 'x-dead-letter-routing-key' => $dead];
    own($ch, $at['entity'], ['x-message-ttl' => 50] + $to);
    put($ch, $at['entity'], 'one');
    $death = got($ch, $dead)->get('application_headers')->getNativeData()['x-death'][0];
    expect($death['reason'], 'expired');
}

function priority(array $at): void
{
    $ch = channel($at);
    $ch->confirm_select();
    own($ch, $at['entity'], ['x-max-priority' => 10]);
    foreach ([1, 9, 5] as $level) {
        $ch->basic_publish(new AMQPMessage("$level", ['priority' => $level]), '', $at['entity']);
    }
    $ch->wait_for_pending_acks(PATIENCE);
    $came = array_map(fn() => got($ch, $at['entity'])->getBody(), [1, 2, 3]);
    expect($came, ['9', '5', '1']);
}

function rpc(array $at): void
{
    $ch = channel($at);
    own($ch, $at['entity']);
    [$inbox] = $ch->queue_declare('', false, false, true);
    $about = ['reply_to' => $inbox, 'correlation_id' => '1'];
    $ch->basic_publish(new AMQPMessage('one', $about), '', $at['entity']);
    $request = got($ch, $at['entity']);
    $answer = new AMQPMessage('answer', ['correlation_id' => $request->get('correlation_id')]);
    $ch->basic_publish($answer, '', $request->get('reply_to'));
    $came = got($ch, $inbox);
    expect([$came->get('correlation_id'), $came->getBody()], ['1', 'answer']);
}

function not_found(array $at): void
{
    $ch = channel($at);
    refused(404, fn() => $ch->basic_get('missing'));
}

function precondition(array $at): void
{
    $ch = channel($at);
    own($ch, $at['entity'], ['x-message-ttl' => 1000]);
    refused(406, fn() => own($ch, $at['entity'], ['x-message-ttl' => 2000]));
}

function access_refused(array $at): void
{
    $ch = channel($at, ['user' => $at['guest']]);
    refused(403, fn() => own($ch, $at['entity']));
}

function wrong_password(array $at): void
{
    refused(403, fn() => connect($at, ['password' => 'wrong']));
}

function wrong_host(array $at): void
{
    refused(530, fn() => connect($at, ['vhost' => 'missing']));
}

function tls(array $at): void
{
    $options = ['cafile' => $at['authority'], 'verify_peer' => true];
    $connection = new AMQPSSLConnection(
        'localhost',
        $at['tls_port'],
        $at['user'],
        $at['password'],
        '/',
        $options,
    );
    $ch = $connection->channel();
    put($ch, own($ch, $at['entity']), 'one');
    expect(got($ch, $at['entity'])->getBody(), 'one');
}

function virtual_host(array $at): void
{
    $ch = channel($at, ['vhost' => $at['other_host']]);
    put($ch, own($ch, $at['entity']), 'one');
    expect(got($ch, $at['entity'])->getBody(), 'one');
}

while (($line = fgets(STDIN)) !== false) {
    $asked = json_decode($line, true);
    $case = 'Cases\\' . str_replace('-', '_', $asked['case']);
    if (!function_exists($case)) {
        $answer = ['absent' => true];
    } else {
        try {
            $case($asked);
            $answer = ['error' => ''];
        } catch (\Throwable $error) {
            $kind = $error instanceof \AssertionError ? '' : get_class($error) . ': ';
            $answer = ['error' => substr($kind . strtok($error->getMessage(), "\n"), 0, 300)];
        }
    }
    echo json_encode($answer), "\n";
}
