// Jobs with transactional producers, and with readers, that stay open from one job to another.
'use strict'

const { Kafka, Partitioners, logLevel } = require('kafkajs')

const producers = new Map()
const readers = new Map()

const connect = job =>
  new Kafka({
    brokers: [job.bootstrap],
    logLevel: logLevel.NOTHING,
    retry: { retries: 8, initialRetryTime: 30 },
  })

async function openProducer(job) {
  const producer = connect(job).producer({
    transactionalId: job.transactional_id,
    transactionTimeout: job.transaction_timeout_ms,
    maxInFlightRequests: 1,
    idempotent: true,
    allowAutoTopicCreation: false,
    createPartitioner: Partitioners.DefaultPartitioner,
  })
  await producer.connect()
  return producer
}

const decode = text => (text === null ? null : Buffer.from(text, 'base64'))

const send = (transaction, topic, records) =>
  transaction.send({
    topic,
    acks: -1,
    messages: records.map(record => ({
      partition: record.partition,
      timestamp: String(record.timestamp),
      key: decode(record.key),
      value: decode(record.value),
    })),
  })

// Keeps what came until somebody reads it. There is no consumer without a group in KafkaJS.
async function openReader(job, group, take) {
  const consumer = connect(job).consumer({
    groupId: group,
    maxWaitTimeInMs: 10,
    readUncommitted: !job.committed,
    allowAutoTopicCreation: false,
  })
  const reader = { consumer, records: [], failure: null, wake: () => {} }
  consumer.on(consumer.events.CRASH, event => {
    if (event.payload.restart) return // it retries automatically
    reader.failure = event.payload.error
    reader.wake()
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [job.topic], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch }) => {
      for (const message of batch.messages) reader.records.push(take(batch.partition, message))
      reader.wake()
    },
  })
  return reader
}

async function read(reader, job) {
  const deadline = Date.now() + job.timeout_ms
  while (reader.records.length < job.count) {
    if (reader.failure) throw reader.failure
    const left = deadline - Date.now()
    if (left <= 0) throw new Error(`only ${reader.records.length} records came`)
    await new Promise(resolve => {
      const late = setTimeout(resolve, left)
      reader.wake = () => {
        clearTimeout(late)
        resolve()
      }
    })
  }
  return reader.records.splice(0)
}

async function transform(job) {
  const producer = await openProducer(job)
  const raw = (partition, message) => ({ ...message, partition })
  const reader = await openReader({ ...job, committed: true }, job.group, raw)
  try {
    const records = await read(reader, job)
    const transaction = await producer.transaction()
    await send(
      transaction,
      job.target,
      records.map(record => ({
        partition: record.partition,
        timestamp: record.timestamp,
        key: record.key && record.key.toString('base64'),
        value: Buffer.from(`copy of ${record.value}`).toString('base64'),
      }))
    )
    const reached = {}
    for (const record of records) reached[record.partition] = Number(record.offset) + 1
    await transaction.sendOffsets({
      consumerGroupId: job.group,
      topics: [
        {
          topic: job.topic,
          partitions: Object.entries(reached).map(([partition, offset]) => ({
            partition: Number(partition),
            offset: String(offset),
          })),
        },
      ],
    })
    await (job.commit ? transaction.commit() : transaction.abort())
  } finally {
    await reader.consumer.disconnect()
    await producer.disconnect()
  }
  return {}
}

const JOBS = take => ({
  producer_open: async job => {
    producers.set(job.handle, { producer: await openProducer(job), transaction: null })
  },
  producer_begin: async job => {
    const mine = producers.get(job.handle)
    mine.transaction = await mine.producer.transaction()
  },
  producer_send: async job => {
    await send(producers.get(job.handle).transaction, job.topic, job.records)
  },
  producer_commit: job => producers.get(job.handle).transaction.commit(),
  producer_abort: job => producers.get(job.handle).transaction.abort(),
  producer_close: async job => {
    await producers.get(job.handle).producer.disconnect()
    producers.delete(job.handle)
  },
  reader_open: async job => {
    const group = `kafkajs-${process.pid}-${job.handle}`
    readers.set(job.handle, await openReader(job, group, take))
  },
  reader_read: async job => ({ records: await read(readers.get(job.handle), job) }),
  reader_close: async job => {
    await readers.get(job.handle).consumer.disconnect()
    readers.delete(job.handle)
  },
  transform,
})

module.exports = { JOBS }
