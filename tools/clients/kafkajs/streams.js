// Jobs with a producer that sends numbers to every partition, and a group member that reads them,
// both in the background from stream_start to stream_end.
'use strict'

const { Kafka, Partitioners, logLevel } = require('kafkajs')

const RETRY = { initialRetryTime: 50, maxRetryTime: 500, retries: 200 }

const streams = new Map()
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))
const perPartition = (count, make) => Array.from({ length: count }, make)

class Stream {
  constructor(job) {
    const client = new Kafka({
      brokers: job.bootstrap.split(','),
      logLevel: logLevel.NOTHING,
      connectionTimeout: 1000,
      retry: RETRY,
    })
    this.topic = job.topic
    this.intervalMs = job.interval_ms
    this.sent = perPartition(job.count, () => [])
    this.read = perPartition(job.count, () => [])
    this.failure = null
    this.isSending = true
    this.producer = client.producer({
      idempotent: true,
      maxInFlightRequests: 1,
      metadataMaxAge: 5000,
      allowAutoTopicCreation: false,
      createPartitioner: Partitioners.DefaultPartitioner,
    })
    this.member = client.consumer({
      groupId: job.group,
      maxWaitTimeInMs: 100,
      metadataMaxAge: 5000,
      allowAutoTopicCreation: false,
      retry: RETRY,
    })
    this.member.on(this.member.events.CRASH, event => {
      if (!event.payload.restart) this.failure = event.payload.error // else it tries again
    })
  }

  async start() {
    await this.producer.connect()
    await this.member.connect()
    await this.member.subscribe({ topics: [this.topic], fromBeginning: true })
    await this.member.run({
      autoCommitInterval: 1000,
      eachBatch: async ({ batch }) => {
        for (const message of batch.messages) {
          this.read[batch.partition].push([Number(message.offset), Number(message.value)])
        }
      },
    })
    this.sending = this.send().catch(failure => {
      this.failure = failure
    })
  }

  // One partition per call: KafkaJS 2 repeats what failed by broker. A record whose partition has
  // moved to a broker that has already responded to the same call would be dropped.
  async send() {
    for (let number = 0; this.isSending; number++) {
      for (const [partition, offsets] of this.sent.entries()) {
        const messages = [{ partition, value: String(number) }]
        const [batch] = await this.producer.send({ topic: this.topic, acks: -1, messages })
        offsets.push(Number(batch.baseOffset))
      }
      await sleep(this.intervalMs)
    }
  }

  positions() {
    return this.read.map(records => (records.length ? records[records.length - 1][0] + 1 : 0))
  }

  progress() {
    if (this.failure) throw this.failure
    return { acknowledged: this.sent.map(offsets => offsets.length), positions: this.positions() }
  }

  async end(timeoutMs) {
    const deadline = Date.now() + timeoutMs
    this.isSending = false
    await this.sending
    while (!this.positions().every((position, index) => position >= this.sent[index].length)) {
      if (this.failure) throw this.failure
      if (Date.now() > deadline) throw new Error('not all records were read')
      await sleep(20)
    }
    await this.member.commitOffsets( // which a disconnect does not do
      this.positions().map((position, partition) => ({
        topic: this.topic,
        partition,
        offset: String(position),
      }))
    )
    await this.member.disconnect()
    await this.producer.disconnect()
    if (this.failure) throw this.failure
    return { sent: this.sent, read: this.read }
  }
}

exports.JOBS = {
  stream_start: async job => {
    const stream = new Stream(job)
    await stream.start()
    streams.set(job.handle, stream)
  },
  stream_progress: async job => streams.get(job.handle).progress(),
  stream_end: async job => {
    const stream = streams.get(job.handle)
    streams.delete(job.handle)
    return stream.end(job.timeout_ms)
  },
}
