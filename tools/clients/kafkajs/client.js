// KafkaJS as a program: a JSON job per line of stdin, a JSON response per line of stdout.
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

const streams = require('./streams')
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
    // The result has the first offset of each partition; the records of the batch follow it.
    const next = {}
    for (const batch of sent) next[batch.partition] = Number(batch.baseOffset)
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
    for (const entry of topic.partitions) {
      if (entry.offset !== '-1') offsets[entry.partition] = Number(entry.offset)
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
    // KafkaJS returns the end of the partition if no record is that late.
    const [offsets, ends] = [
      await admin.fetchTopicOffsetsByTimestamp(job.topic, job.timestamp),
      await admin.fetchTopicOffsets(job.topic),
    ]
    const of = list => Number(list.find(item => item.partition === job.partition).offset)
    return { offset: of(offsets) === of(ends) ? -1 : of(offsets) }
  })

const createTopic = job =>
  withAdmin(job, async admin => {
    const configEntries = Object.entries(job.configs).map(([name, value]) => ({ name, value }))
    const created = await admin.createTopics({
      topics: [{ topic: job.topic, numPartitions: job.partitions, configEntries }],
    })
    // The only error that KafkaJS returns as a value.
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
  ...streams.JOBS,
}

// Returns the broker's error code, or -1: KafkaJS wraps it once for each retry.
function describe(failure) {
  for (let cause = failure; cause; cause = cause.cause) {
    const coded = [cause, ...(cause.errors || [])].find(item => Number.isInteger(item.code))
    if (coded) return { code: coded.code, message: `${coded.type}: ${coded.message}` }
  }
  return { code: -1, message: String(failure) }
}

async function main() {
  await zstd.init()
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const job = JSON.parse(line)
    let response
    try {
      response = (await JOBS[job.op](job)) || {}
    } catch (failure) {
      response = { error: describe(failure) }
    }
    process.stdout.write(`${JSON.stringify(response)}\n`)
  }
  process.exit(0) // connections that a client left open do not keep the program alive
}

main()
