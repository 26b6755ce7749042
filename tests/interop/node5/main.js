'use strict';

// Runs one scenario against a gRPC endpoint: node main.js HOST:PORT SCENARIO TOPIC GROUP
// Prints an event, one JSON object, a line; the last one is "result". The scenarios are those of
// java5/src/main/java/interop5/Main.java.

const { ConsumeResult, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');

const COMMIT = 1; // TransactionResolution
const INVISIBLE_MS = 15_000;
const HELD_MS = 2_000;
const PATIENCE_MS = 40_000;
const SHUTDOWN_MS = 2_000;
const REQUEST_MS = 15_000; // test machines are busy

const [endpoints, scenario, topic, consumerGroup] = process.argv.slice(2);

// Standard output is for events.
const logger = {
  debug() {},
  info() {},
  warn(...words) { console.error('warn', ...words); },
  error(...words) { console.error('error', ...words); },
};
const common = { endpoints, namespace: '', requestTimeout: REQUEST_MS, logger };

function emit(event, fields = {}) {
  process.stdout.write(JSON.stringify({ event, ...fields }) + '\n');
}

function fields(view) {
  return {
    body: view.body.toString(),
    id: view.messageId,
    tag: view.tag ?? '',
    keys: view.keys.join(' '),
    colour: view.properties.get('colour') ?? '',
    group: view.messageGroup ?? '',
    attempt: view.deliveryAttempt,
    at_ms: Date.now(),
  };
}

async function withClients(clients, work) {
  try {
    for (const client of clients) {
      await client.startup();
    }
    await work();
  } finally {
    for (const client of clients) {
      // A push consumer waits for its receives, which the proxy holds for up to 20 s.
      await Promise.race([client.shutdown(), new Promise(resolve => setTimeout(resolve, SHUTDOWN_MS))]);
    }
  }
}

function producer() {
  const checker = {
    async check(view) {
      emit('checked', { body: view.body.toString() });
      return COMMIT;
    },
  };
  return new Producer({ ...common, topic, checker });
}

function simpleConsumer() {
  const subscriptions = new Map([[topic, '*']]);
  return new SimpleConsumer({ ...common, consumerGroup, subscriptions, awaitDuration: HELD_MS });
}

// `refuses` decides about each delivery. The consumer has `accepted`, the number of accepted messages.
function pushConsumer(refuses) {
  const messageListener = {
    async consume(view) {
      const refused = refuses(view);
      emit('delivered', { ...fields(view), accepted: !refused });
      consumer.accepted += refused ? 0 : 1;
      return refused ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    },
  };
  const subscriptions = new Map([[topic, '*']]);
  const options = { ...common, consumerGroup, subscriptions, messageListener, longPollingTimeout: HELD_MS };
  const consumer = new PushConsumer(options);
  consumer.accepted = 0;
  return consumer;
}

function message(body, more = {}) {
  return { topic, body: Buffer.from(body), ...more };
}

async function receive(consumer, count) {
  const received = [];
  const end = Date.now() + PATIENCE_MS;
  while (received.length < count && Date.now() < end) {
    for (const view of await consumer.receive(16, INVISIBLE_MS)) {
      emit('received', fields(view));
      received.push(view);
    }
  }
  return received;
}

async function accepted(consumer, count) {
  const end = Date.now() + PATIENCE_MS;
  while (consumer.accepted < count && Date.now() < end) {
    await new Promise(resolve => setTimeout(resolve, 20));
  }
}

const SCENARIOS = {
  async normal() {
    const sender = producer(), consumer = simpleConsumer();
    await withClients([sender, consumer], async () => {
      for (const body of ['a', 'b']) {
        const properties = new Map([['colour', 'red']]);
        const receipt = await sender.send(message(body, { tag: `T${body}`, keys: [`key-${body}`], properties }));
        emit('sent', { body, id: receipt.messageId });
      }
      for (const view of await receive(consumer, 2)) {
        if (view.body.toString() === 'a') {
          await consumer.ack(view);
        } else {
          await consumer.changeInvisibleDuration(view, 1000);
        }
      }
      for (const view of await receive(consumer, 1)) {
        await consumer.ack(view);
      }
    });
  },

  async fifo() {
    let delivered = 0;
    const sender = producer(), consumer = pushConsumer(() => delivered++ === 0);
    await withClients([sender, consumer], async () => {
      for (let number = 0; number < 9; number++) {
        const messageGroup = `g${number % 3}`;
        await sender.send(message(`${messageGroup}:${Math.floor(number / 3)}`, { messageGroup }));
      }
      await accepted(consumer, 9);
    });
  },

  async retry() {
    const sender = producer(), consumer = pushConsumer(view => view.deliveryAttempt === 1);
    await withClients([sender, consumer], async () => {
      for (const body of ['a', 'b', 'c']) {
        await sender.send(message(body));
      }
      await accepted(consumer, 3);
    });
  },

  async delay() {
    const sender = producer(), consumer = simpleConsumer();
    await withClients([sender, consumer], async () => {
      const due = Date.now() + 2000;
      const deliveryTimestamp = new Date(due);
      const recalled = await sender.send(message('recalled', { deliveryTimestamp }));
      await sender.send(message('kept', { deliveryTimestamp }));
      await sender.recallMessage(topic, recalled.recallHandle);
      emit('due', { at_ms: due });
      for (const view of await receive(consumer, 1)) {
        await consumer.ack(view);
      }
    });
  },

  async transaction() {
    const sender = producer(), consumer = simpleConsumer();
    await withClients([sender, consumer], async () => {
      for (const body of ['rolled back', 'open', 'committed']) {
        const transaction = sender.beginTransaction();
        await sender.send(message(body), transaction);
        if (body === 'committed') {
          await transaction.commit();
        } else if (body !== 'open') {
          await transaction.rollback();
        }
      }
      for (const view of await receive(consumer, 2)) {
        await consumer.ack(view);
      }
    });
  },
};

SCENARIOS[scenario]().then(
  () => {
    emit('result', { ok: true });
    process.exit(0);
  },
  error => {
    console.error(error);
    process.exit(1);
  },
);
