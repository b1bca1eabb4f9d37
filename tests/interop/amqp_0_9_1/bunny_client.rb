# A program that tries features with Bunny. What it reads and writes is in features/trial.py.
# A case is a method of the feature's name with underscores.
# frozen_string_literal: true

require "bunny"
require "json"
require "timeout"

# Seconds that a message that comes is waited for, and for a case.
PATIENCE = 15
LIMIT = 60

class Failure < StandardError; end

class Place
  attr_reader :asked

  def initialize(asked)
    @asked = asked
  end

  def name(suffix = nil)
    suffix ? "#{@asked["entity"]}.#{suffix}" : @asked["entity"]
  end

  def connect(**more)
    connection = Bunny.new(
      host: @asked["host"], port: @asked["port"], user: @asked["user"],
      password: @asked["password"], vhost: "/", logger: Logger.new(File::NULL),
      automatically_recover: false, **more
    )
    connection.start
    return connection unless block_given?
    begin
      yield connection
    ensure
      connection.close if connection.open?
    end
  end

  def channel(**more)
    connect(**more) { |connection| yield connection.create_channel }
  end

  def ask(request)
    puts JSON.generate(request)
    $stdout.flush
    $stdin.gets
  end
end

def expect(actual, wanted)
  raise Failure, "#{actual.inspect} instead of #{wanted.inspect}" unless actual == wanted
end

def eventually(what)
  deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + PATIENCE
  loop do
    result = yield
    return result if result
    raise Failure, "did not happen: #{what}" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
    sleep 0.01
  end
end

def refused(kind)
  yield
rescue kind => e
  e
else
  raise Failure, "it was not refused"
end

def own(channel, name, **arguments)
  channel.queue(name, exclusive: true, arguments: arguments.to_h { |k, v| [k.to_s.tr("_", "-"), v] })
end

# The delivery, the properties and the body of a message that comes soon.
def got(queue, **options)
  eventually("a message") do
    delivery, properties, body = queue.pop(manual_ack: true, **options)
    delivery && [delivery, properties, body]
  end
end

module Cases
  module_function

  def queue_declare(at)
    at.channel do |ch|
      queue = ch.queue(at.name, durable: true)
      queue.publish("one")
      queue.publish("two")
      eventually("two messages") { queue.message_count == 2 }
      queue.purge
      expect(queue.message_count, 0)
      queue.delete
    end
  end

  def server_named(at)
    at.channel do |ch|
      queue = ch.queue("", exclusive: true)
      raise Failure, queue.name unless queue.name.start_with?("amq.gen")
      queue.publish("one")
      expect(got(queue)[2], "one")
    end
  end

  def passive(at)
    at.channel { |ch| refused(Bunny::NotFound) { ch.queue(at.name, passive: true) } }
  end

  def exclusive(at)
    at.channel do |ch|
      own(ch, at.name)
      at.channel { |other| refused(Bunny::ResourceLocked) { other.queue(at.name, passive: true) } }
    end
  end

  def topic(at)
    at.channel do |ch|
      exchange = ch.topic(at.name, auto_delete: true)
      queue = own(ch, at.name("q")).bind(exchange, routing_key: "a.*")
      %w[a.b b.b a.c].each { |key| exchange.publish(key, routing_key: key) }
      expect([got(queue)[2], got(queue)[2]], %w[a.b a.c])
    end
  end

  def headers(at)
    at.channel do |ch|
      exchange = ch.headers(at.name, auto_delete: true)
      queue = own(ch, at.name("q"))
      queue.bind(exchange, arguments: { "x-match" => "any", "kind" => "tea", "size" => 3 })
      [{ "kind" => "tea" }, { "kind" => "no" }, { "size" => 3 }].each_with_index do |table, number|
        exchange.publish(number.to_s, headers: table)
      end
      expect([got(queue)[2], got(queue)[2]], %w[0 2])
    end
  end

  def exchange_bindings(at)
    at.channel do |ch|
      first = ch.fanout(at.name("first"), auto_delete: true)
      second = ch.fanout(at.name("second"), auto_delete: true)
      second.bind(first)
      queue = own(ch, at.name).bind(second)
      first.publish("one")
      expect(got(queue)[2], "one")
    end
  end

  def properties(at)
    given = {
      content_type: "application/json", content_encoding: "utf-8", priority: 5,
      correlation_id: "c-1", reply_to: "replies", expiration: "600000", message_id: "m-1",
      type: "order", user_id: at.asked["user"], app_id: "shop"
    }
    at.channel do |ch|
      queue = own(ch, at.name)
      queue.publish("one", persistent: true, timestamp: 1_700_000_000, **given)
      properties = got(queue)[1]
      given.each { |name, value| expect([name, properties[name]], [name, value]) }
      expect([properties.delivery_mode, properties.timestamp.to_i], [2, 1_700_000_000])
    end
  end

  def header_types(at)
    given = {
      "yes" => true, "int" => 7, "long" => -(2**40), "double" => 0.5, "text" => "two words",
      "none" => nil, "list" => [1, "two"], "table" => { "inner" => { "deep" => true } }
    }
    at.channel do |ch|
      queue = own(ch, at.name)
      queue.publish("one", headers: given)
      came = got(queue)[1].headers
      given.each { |name, value| expect([name, came[name]], [name, value]) }
    end
  end

  def large(at)
    body = "0123456789abcdef" * 65_536
    at.channel do |ch|
      queue = own(ch, at.name)
      queue.publish(body)
      raise Failure, "another body came" unless got(queue)[2] == body
    end
  end

  def mandatory(at)
    at.channel do |ch|
      returned = ::Queue.new
      exchange = ch.direct("amq.direct", durable: true)
      exchange.on_return { |info, _, _| returned << info.reply_code }
      exchange.publish("one", routing_key: "missing", mandatory: true)
      expect(eventually("the message is returned") { returned.pop unless returned.empty? }, 312)
    end
  end

  def confirms(at)
    at.channel do |ch|
      ch.confirm_select
      queue = own(ch, at.name)
      50.times { queue.publish("one") }
      expect(ch.wait_for_confirms, true)
      expect(queue.message_count, 50)
    end
  end

  def confirm_nack(at)
    at.channel do |ch|
      ch.confirm_select
      queue = own(ch, at.name, x_max_length: 1, x_overflow: "reject-publish")
      2.times { queue.publish("one") }
      expect(ch.wait_for_confirms, false)
      expect(ch.nacked_set.size, 1)
    end
  end

  def get(at)
    at.channel do |ch|
      queue = own(ch, at.name)
      expect(queue.pop, [nil, nil, nil])
      queue.publish("one")
      delivery, _, body = got(queue)
      expect([body, delivery.redelivered?], ["one", false])
      ch.ack(delivery.delivery_tag)
    end
  end

  def consume(at)
    at.channel do |ch|
      queue = own(ch, at.name)
      came = ::Queue.new
      consumer = queue.subscribe(manual_ack: true) do |delivery, _, body|
        came << body
        ch.ack(delivery.delivery_tag)
      end
      20.times { |number| queue.publish(number.to_s) }
      eventually("20 messages") { came.size == 20 }
      expect(Array.new(20) { came.pop }, Array.new(20, &:to_s))
      consumer.cancel
    end
  end

  def prefetch(at)
    at.channel do |ch|
      ch.prefetch(2)
      queue = own(ch, at.name)
      came = ::Queue.new
      queue.subscribe(manual_ack: true) { |delivery, _, _| came << delivery.delivery_tag }
      4.times { queue.publish("one") }
      eventually("two messages") { came.size == 2 }
      sleep 0.2
      expect(came.size, 2)
      ch.ack(2, true)
      eventually("four messages") { came.size == 4 }
    end
  end

  def requeue(at)
    at.channel do |ch|
      queue = own(ch, at.name)
      queue.publish("one")
      ch.nack(got(queue)[0].delivery_tag, false, true)
      delivery, = got(queue)
      expect(delivery.redelivered?, true)
      ch.reject(delivery.delivery_tag, false)
      expect(queue.pop, [nil, nil, nil])
    end
  end

  def cancel_notify(at)
    at.connect do |connection|
      ch = connection.create_channel
      queue = own(ch, at.name)
      told = ::Queue.new
      consumer = Bunny::Consumer.new(ch, queue)
      consumer.on_cancellation { told << true }
      queue.subscribe_with(consumer)
      connection.create_channel.queue_delete(at.name)
      eventually("the consumer is cancelled") { told.size == 1 }
    end
  end

  def dead_letter(at)
    at.channel do |ch|
      dead = own(ch, at.name("dead"))
      queue = own(ch, at.name, x_dead_letter_exchange: "", x_dead_letter_routing_key: dead.name)
      queue.publish("one")
      ch.reject(got(queue)[0].delivery_tag, false)
      death = got(dead)[1].headers["x-death"].first
      expect(death.values_at("count", "reason", "queue"), [1, "rejected", at.name])
    end
  end

  def priority(at)
    at.channel do |ch|
      ch.confirm_select
      queue = own(ch, at.name, x_max_priority: 10)
      [1, 9, 5].each { |number| queue.publish(number.to_s, priority: number) }
      ch.wait_for_confirms
      expect(Array.new(3) { got(queue)[2] }, %w[9 5 1])
    end
  end

  def tx_commit(at)
    at.channel do |ch|
      queue = own(ch, at.name)
      ch.tx_select
      queue.publish("one")
      expect(queue.message_count, 0)
      ch.tx_commit
      expect(queue.message_count, 1)
    end
  end

  def tx_rollback(at)
    at.channel do |ch|
      queue = own(ch, at.name)
      ch.tx_select
      queue.publish("one")
      ch.tx_rollback
      expect(queue.message_count, 0)
    end
  end

  def rpc(at)
    at.connect do |connection|
      ch = connection.create_channel
      requests = own(ch, at.name)
      requests.subscribe do |_, properties, body|
        ch.default_exchange.publish(
          body.upcase, routing_key: properties.reply_to, correlation_id: properties.correlation_id
        )
      end
      client = connection.create_channel
      replies = client.queue("", exclusive: true)
      came = ::Queue.new
      replies.subscribe { |_, properties, body| came << [properties.correlation_id, body] }
      client.default_exchange.publish(
        "one", routing_key: at.name, reply_to: replies.name, correlation_id: "1"
      )
      eventually("the answer") { came.size == 1 }
      expect(came.pop, %w[1 ONE])
    end
  end

  def direct(at)
    at.channel do |ch|
      exchange = ch.direct(at.name, auto_delete: true)
      queue = own(ch, at.name("q")).bind(exchange, routing_key: "red")
      %w[blue red].each { |key| exchange.publish(key, routing_key: key) }
      expect(got(queue)[2], "red")
      expect(queue.pop, [nil, nil, nil])
    end
  end

  def message_ttl(at)
    at.channel do |ch|
      dead = own(ch, at.name("dead"))
      queue = own(ch, at.name, x_dead_letter_exchange: "", x_dead_letter_routing_key: dead.name)
      queue.publish("one", expiration: 50)
      expect(got(dead)[1].headers["x-death"].first["reason"], "expired")
    end
  end

  def direct_reply_to(at)
    at.connect do |connection|
      server = own(connection.create_channel, at.name)
      client = connection.create_channel
      came = ::Queue.new
      client.basic_consume("amq.rabbitmq.reply-to", "", true) { |_, _, body| came << body }
      client.default_exchange.publish(
        "one", routing_key: at.name, reply_to: "amq.rabbitmq.reply-to"
      )
      reply_to = got(server)[1].reply_to
      server.channel.default_exchange.publish("answer", routing_key: reply_to)
      eventually("the answer") { came.size == 1 }
      expect(came.pop, "answer")
    end
  end

  def not_found(at)
    at.channel { |ch| refused(Bunny::NotFound) { ch.queue_purge("missing") } }
  end

  def precondition(at)
    at.channel do |ch|
      own(ch, at.name, x_message_ttl: 1000)
      refused(Bunny::PreconditionFailed) { own(ch.connection.create_channel, at.name, x_message_ttl: 2000) }
    end
  end

  def access_refused(at)
    at.channel(user: at.asked["guest"]) { |ch| refused(Bunny::AccessRefused) { ch.queue(at.name) } }
  end

  def wrong_password(at)
    refused(Bunny::AuthenticationFailureError) { at.connect(password: "wrong") }
  end

  def wrong_host(at)
    refused(Bunny::NotAllowedError) { at.connect(vhost: "missing") }
  end

  def tls(at)
    secure = { tls: true, tls_ca_certificates: [at.asked["authority"]], verify_peer: true }
    at.channel(host: "localhost", port: at.asked["tls_port"], **secure) do |ch|
      queue = own(ch, at.name)
      queue.publish("one")
      expect(got(queue)[2], "one")
    end
  end

  def virtual_host(at)
    at.channel(vhost: at.asked["other_host"]) do |ch|
      queue = own(ch, at.name)
      queue.publish("one")
      expect(got(queue)[2], "one")
    end
  end

  def heartbeat(at)
    at.channel(heartbeat: 1) do |ch|
      sleep 3.5
      own(ch, at.name)
    end
  end

  def blocked(at)
    at.connect do |connection|
      told = ::Queue.new
      connection.on_blocked { told << "blocked" }
      connection.on_unblocked { told << "unblocked" }
      queue = own(connection.create_channel, at.name)
      at.ask({ alarm: true })
      queue.publish("one")
      eventually("the client is told that it is blocked") { told.size == 1 }
      at.ask({ alarm: false })
      eventually("the client may go on") { told.size == 2 }
      expect([told.pop, told.pop], %w[blocked unblocked])
    end
  end
end

while (line = $stdin.gets)
  asked = JSON.parse(line)
  name = asked["case"].tr("-", "_")
  answer =
    if !Cases.respond_to?(name)
      { absent: true }
    else
      begin
        Timeout.timeout(LIMIT) { Cases.public_send(name, Place.new(asked)) }
        { error: "" }
      rescue StandardError => e
        { error: "#{e.is_a?(Failure) ? "" : "#{e.class}: "}#{e.message.lines.first.to_s.strip}"[0, 300] }
      end
    end
  puts JSON.generate(answer)
  $stdout.flush
end
