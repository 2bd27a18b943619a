// KafkaJS as a program: a JSON job per line of stdin, a JSON reply per line of stdout.
// The jobs are described in tests/support/kafka_clients/program.py.
'use strict'

const readline = require('node:readline')
const {
  Kafka,
  CompressionTypes,
  CompressionCodecs,
  ConfigResourceTypes,
  Partitioners,
  logLevel,
} = require('kafkajs')
const Lz4 = require('kafkajs-lz4')
const snappy = require('kafkajs-snappy')
const zstd = require('@bokuweb/zstd-wasm')

const transactions = require('./transactions')
const { KafkaJSProtocolError } = require('kafkajs/src/errors')
const { createErrorFromCode } = require('kafkajs/src/protocol/error')

const TOPIC_ALREADY_EXISTS = 36
const LARGEST_BATCH = 4 << 20 // a zstd frame need not say how large its content is

CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = new Lz4().codec
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from(zstd.compress(encoder.buffer)),
  decompress: async buffer =>
    Buffer.from(zstd.decompress(buffer, { defaultHeapSize: LARGEST_BATCH })),
})

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}
const ACKS = { 0: 0, 1: 1, all: -1 }

const decode = text => (text === null ? null : Buffer.from(text, 'base64'))
const encode = bytes => (bytes === null ? null : bytes.toString('base64'))

const connect = job =>
  new Kafka({ brokers: [job.bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 3 } })

// KafkaJS keeps headers by name: a name that occurs twice has a list of values.
function headersOf(pairs) {
  const headers = {}
  for (const [name, value] of pairs) {
    if (headers[name] === undefined) headers[name] = [decode(value)]
    else headers[name].push(decode(value))
  }
  return headers
}

const pairsOf = headers =>
  Object.entries(headers).flatMap(([name, values]) =>
    (Array.isArray(values) ? values : [values]).map(value => [name, encode(value)])
  )

const recordOf = (partition, message) => ({
  partition,
  offset: Number(message.offset),
  timestamp: Number(message.timestamp),
  key: encode(message.key),
  value: encode(message.value),
  headers: pairsOf(message.headers),
})

async function produce(job) {
  const producer = connect(job).producer({
    idempotent: job.idempotent,
    allowAutoTopicCreation: job.auto_create,
    createPartitioner: Partitioners.DefaultPartitioner,
  })
  await producer.connect()
  try {
    const sent = await producer.send({
      topic: job.topic,
      acks: ACKS[job.acks],
      compression: CODECS[job.codec],
      messages: job.records.map(record => ({
        partition: record.partition,
        timestamp: String(record.timestamp),
        key: decode(record.key),
        value: decode(record.value),
        headers: headersOf(record.headers),
      })),
    })
    // It tells the first offset of each partition; the records of one batch follow it.
    const next = {}
    for (const one of sent) next[one.partition] = Number(one.baseOffset)
    return {
      offsets: job.records.map(record =>
        job.acks === '0' ? -1 : next[record.partition]++
      ),
    }
  } finally {
    await producer.disconnect()
  }
}

// There is no consumer without a group in KafkaJS.
async function consumeGroup(job) {
  const consumer = connect(job).consumer({
    groupId: job.group,
    maxWaitTimeInMs: 10,
    allowAutoTopicCreation: false,
  })
  const records = []
  await consumer.connect()
  try {
    await consumer.subscribe({ topics: [job.topic], fromBeginning: true })
    await new Promise((resolve, reject) => {
      const late = setTimeout(
        () => reject(new Error(`only ${records.length} records came`)),
        job.timeout_ms
      )
      consumer.on(consumer.events.CRASH, event => reject(event.payload.error))
      consumer
        .run({
          autoCommit: false,
          eachBatch: async ({ batch }) => {
            for (const message of batch.messages) records.push(recordOf(batch.partition, message))
            if (records.length >= job.count) {
              clearTimeout(late)
              resolve()
            }
          },
        })
        .catch(reject)
    })
    const reached = {}
    for (const record of records) reached[record.partition] = record.offset + 1
    await consumer.commitOffsets(
      Object.entries(reached).map(([partition, offset]) => ({
        topic: job.topic,
        partition: Number(partition),
        offset: String(offset),
      }))
    )
  } finally {
    await consumer.disconnect()
  }
  return { records, committed: await withAdmin(job, admin => committed(admin, job)) }
}

async function committed(admin, job) {
  const offsets = {}
  for (const topic of await admin.fetchOffsets({ groupId: job.group, topics: [job.topic] })) {
    for (const one of topic.partitions) {
      if (one.offset !== '-1') offsets[one.partition] = Number(one.offset)
    }
  }
  return offsets
}

let readers = 0
async function consume(job) {
  const group = `kafkajs-${process.pid}-${++readers}`
  return { records: (await consumeGroup({ ...job, group })).records }
}

async function withAdmin(job, work) {
  const admin = connect(job).admin()
  await admin.connect()
  try {
    return await work(admin)
  } finally {
    await admin.disconnect()
  }
}

const offsetForTime = job =>
  withAdmin(job, async admin => {
    // It puts the end of the partition where there is no record so late.
    const [found, ends] = [
      await admin.fetchTopicOffsetsByTimestamp(job.topic, job.timestamp),
      await admin.fetchTopicOffsets(job.topic),
    ]
    const of = list => Number(list.find(one => one.partition === job.partition).offset)
    return { offset: of(found) === of(ends) ? -1 : of(found) }
  })

const createTopic = job =>
  withAdmin(job, async admin => {
    const configEntries = Object.entries(job.configs).map(([name, value]) => ({ name, value }))
    const created = await admin.createTopics({
      topics: [{ topic: job.topic, numPartitions: job.partitions, configEntries }],
    })
    // The one error that it turns into a value.
    if (!created) throw new KafkaJSProtocolError(createErrorFromCode(TOPIC_ALREADY_EXISTS))
    return {}
  })

const deleteTopic = job =>
  withAdmin(job, async admin => {
    await admin.deleteTopics({ topics: [job.topic] })
    return {}
  })

const topicConfigs = job =>
  withAdmin(job, async admin => {
    const described = await admin.describeConfigs({
      includeSynonyms: false,
      resources: [{ type: ConfigResourceTypes.TOPIC, name: job.topic }],
    })
    const entries = described.resources[0].configEntries
    return {
      configs: Object.fromEntries(entries.map(entry => [entry.configName, entry.configValue])),
    }
  })

const JOBS = {
  produce,
  consume,
  consume_group: consumeGroup,
  offset_for_time: offsetForTime,
  create_topic: createTopic,
  delete_topic: deleteTopic,
  topic_configs: topicConfigs,
  ...transactions.JOBS(recordOf),
}

// The broker's error code where there is one, else -1: KafkaJS wraps it, once for each retry.
function describe(failure) {
  for (let cause = failure; cause; cause = cause.cause) {
    const known = [cause, ...(cause.errors || [])].find(one => Number.isInteger(one.code))
    if (known) return { code: known.code, message: `${known.type}: ${known.message}` }
  }
  return { code: -1, message: String(failure) }
}

async function main() {
  await zstd.init()
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const job = JSON.parse(line)
    let reply
    try {
      reply = (await JOBS[job.op](job)) || {}
    } catch (failure) {
      reply = { error: describe(failure) }
    }
    process.stdout.write(`${JSON.stringify(reply)}\n`)
  }
  process.exit(0) // whatever a client left open does not keep the program alive
}

main()
