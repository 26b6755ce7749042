'use strict';

// ali-ons as a command: node main.js send|consume --option value …
// Every command writes JSON objects, one a line; the last has "event": "result" and says "ok".
// Exit code 0: a result was written (also one that is not ok); 2: the command is wrong in itself.

const crypto = require('crypto');
const readline = require('readline');
const { parseArgs } = require('util');
const { Consumer, Message, Producer } = require('ali-ons');

const FILL = 'abcdefghijklmnopqrstuvwxyz';
const FROM = { first: 'CONSUME_FROM_FIRST_OFFSET', last: 'CONSUME_FROM_LAST_OFFSET' };

// The command line makes no sense; nothing was done.
class UsageError extends Error {}

function emit(event, fields = {}) {
  process.stdout.write(JSON.stringify({ event, ...fields }) + '\n');
}

function describe(error) {
  return { class: error.name, code: error.code ?? null, message: error.message, remark: null, causes: [] };
}

// The same body as the Java and Go programs make: eight digits, a colon, the alphabet over and over.
function makeBody(index, size) {
  const prefix = String(index).padStart(8, '0') + ':';
  return (prefix + FILL.repeat(Math.ceil(size / FILL.length))).slice(0, size);
}

// ali-ons logs every heartbeat and route look-up: only what goes wrong is of interest.
const logger = {
  debug() {},
  info() {},
  warn(...words) { console.error('warn', ...words); },
  error(...words) { console.error('error', ...words); },
};

const common = {
  namesrv: { type: 'string' },
  topic: { type: 'string' },
  group: { type: 'string', default: 'interop-node' },
  'access-key': { type: 'string' },
  'secret-key': { type: 'string' },
  tag: { type: 'string' },
  count: { type: 'string', default: '1' },
};

function options(words, more) {
  const values = parse(words, { ...common, ...more });
  for (const name of ['namesrv', 'topic']) {
    if (values[name] === undefined) {
      throw new UsageError(`--${name} is missing`);
    }
  }
  return values;
}

function parse(words, known) {
  try {
    return parseArgs({ args: words, options: known }).values;
  } catch (error) {
    throw new UsageError(error.message);
  }
}

function clientOptions(values) {
  // ali-ons insists on an HTTP client, which it uses only where no name server is given.
  return {
    httpclient: {},
    nameSrv: values.namesrv.split(';'),
    logger,
    accessKey: values['access-key'],
    secretKey: values['secret-key'],
  };
}

async function send(words) {
  const values = options(words, {
    size: { type: 'string', default: '32' },
    body: { type: 'string' },
    keys: { type: 'string' },
    property: { type: 'string', multiple: true, default: [] },
    'sharding-key': { type: 'string' },
    'compress-over': { type: 'string', default: '4096' },
  });
  const producer = new Producer({
    ...clientOptions(values),
    producerGroup: values.group,
    compressMsgBodyOverHowmuch: Number(values['compress-over']),
    maxMessageSize: 4 * 1024 * 1024,
  });
  producer.on('error', error => console.error(error));
  await producer.ready();
  const results = [];
  const errors = [];
  for (let index = 0; index < Number(values.count); index++) {
    try {
      const sent = await producer.send(makeMessage(values, index));
      results.push({
        index,
        count: 1,
        status: sent.sendStatus,
        msgId: sent.msgId,
        broker: sent.messageQueue.brokerName,
        queueId: Number(sent.messageQueue.queueId),
        queueOffset: Number(sent.queueOffset),
      });
    } catch (error) {
      errors.push({ index, ...describe(error) });
    }
  }
  await producer.close();
  return { ok: errors.length === 0, mode: 'sync', count: Number(values.count), results, errors };
}

function makeMessage(values, index) {
  const body = values.body ?? makeBody(index, Number(values.size));
  const message = new Message(values.topic, values.tag, body);
  if (values.keys !== undefined) {
    message.keys = [values.keys.replace('{}', index)];
  }
  if (values['sharding-key'] !== undefined) {
    message.shardingKey = values['sharding-key'];
  }
  for (const pair of values.property) {
    const equals = pair.indexOf('=');
    message.properties[pair.slice(0, equals)] = pair.slice(equals + 1);
  }
  return message;
}

async function consume(words) {
  const values = options(words, {
    sql: { type: 'string' },
    from: { type: 'string', default: 'first' },
    'wait-s': { type: 'string', default: '30' },
    'refuse-first': { type: 'string', default: '0' },
    broadcast: { type: 'boolean', default: false },
  });
  const consumer = new Consumer({
    ...clientOptions(values),
    consumerGroup: values.group,
    consumeFromWhere: FROM[values.from],
    isBroadcast: values.broadcast,
    rebalanceInterval: 1000,
  });
  consumer.on('error', error => console.error(error));
  const end = endOf(values);
  let left = Number(values['refuse-first']);
  const seen = new Set();
  let deliveries = 0;
  const expression = values.sql === undefined
    ? values.tag ?? '*' : { expressionType: 'SQL92', subString: values.sql };
  consumer.subscribe(values.topic, expression, async message => {
    const accepted = left-- <= 0;
    deliveries += 1;
    emit('message', { accepted, ...received(message) });
    if (!accepted) {
      return Consumer.ACTION_RETRY;
    }
    seen.add(`${message.topic}/${message.reconsumeTimes}/${message.queueId}/${message.queueOffset}`);
    if (seen.size >= Number(values.count)) {
      end.finish(true);
    }
    return undefined;
  });
  await consumer.ready();
  emit('started', { clientId: consumer.clientId });
  const complete = await end.finished;
  await consumer.close();
  return { ok: complete, count: seen.size, deliveries };
}

// All messages came, the time is over, or somebody wrote "stop" to the standard input.
function endOf(values) {
  let finish;
  const finished = new Promise(resolve => { finish = resolve; });
  setTimeout(() => finish(false), Number(values['wait-s']) * 1000).unref();
  readline.createInterface({ input: process.stdin }).on('line', line => {
    if (line === 'stop') {
      finish(true);
    }
  });
  return { finish, finished };
}

function received(message) {
  const body = message.body ?? Buffer.alloc(0);
  return {
    topic: message.topic,
    msgId: message.msgId,
    queueId: message.queueId,
    queueOffset: Number(message.queueOffset),
    reconsumeTimes: message.reconsumeTimes,
    tags: message.tags ?? null,
    keys: message.keys ?? null,
    properties: message.properties,
    bodySize: body.length,
    bodySha256: crypto.createHash('sha256').update(body).digest('hex'),
    body: body.length > 256 ? null : body.toString(),
  };
}

async function main() {
  const [ command, ...words ] = process.argv.slice(2);
  const commands = { send, consume };
  if (!Object.hasOwn(commands, command)) {
    throw new UsageError(`no such command: ${command}; there are ${Object.keys(commands)}`);
  }
  return commands[command](words);
}

function exit(code) {
  // The pipe may still hold lines: leave only when they are written.
  process.stdout.write('', () => process.exit(code));
}

main().then(
  result => {
    emit('result', { ok: true, ...result });
    exit(0);
  },
  error => {
    const usage = error instanceof UsageError;
    emit('result', usage ? { ok: false, usage: error.message } : { ok: false, error: describe(error) });
    exit(usage ? 2 : 0);
  },
);
