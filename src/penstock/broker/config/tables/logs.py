"""Settings of topics and of the logs on disk."""

TABLE = """
log.dir LIST H-* + ./penstock-data
    The directory of the data; log.dirs has precedence.
log.dirs LIST H-* + ./penstock-data
    The comma-separated directories of the data; each partition is in one of them.
cordoned.log.dirs LIST Mb- .
    Log directories that get no new partitions.
log.dir.failure.timeout.ms LONG L-- 1.. 30000
    The time within which the failure of a log directory must be reported.
log.initial.task.delay.ms LONG L--i 0.. 30000
    The time after the start at which background tasks of the logs begin.
num.recovery.threads.per.data.dir INT Hc- 1.. 2
    The number of threads per log directory for recovery and for the flush at shutdown.
num.partitions INT M-* 1.. 1
    The default number of partitions of a topic.
default.replication.factor INT M-* . 1
    The default replication factor of a topic.
auto.create.topics.enable BOOLEAN H-* . true
    Whether a topic is created when a client requests one that does not exist.
delete.topic.enable BOOLEAN H-* . true
    Whether topics can be deleted.
create.topic.policy.class.name CLASS L-- . null
    A Java class that checks new topics.
alter.config.policy.class.name CLASS L-- . null
    A Java class that checks changes of settings.
min.insync.replicas INT Hc* 1.. 1
    The number of in-sync replicas that a write with acks=all needs.
message.max.bytes INT Hc* 0.. 1048588
    The maximum size of a record batch, after compression.
message.max.decompressed.bytes INT M-*i 1024.. 134217728
    The maximum size of the records of a compressed batch, before compression.
compression.type STRING Hc* {uncompressed,zstd,lz4,snappy,gzip,producer} producer
    The compression type of stored batches; producer keeps the producer's compression.
compression.gzip.level INT Mc* 1..9|-1 -1
    The level with which the broker compresses with gzip; -1 is the default of gzip.
compression.lz4.level INT Mc* 1..17 9
    The level with which the broker compresses with lz4.
compression.zstd.level INT Mc* -131072..22 3
    The level with which the broker compresses with zstd.
log.segment.bytes INT Hc* 1048576.. 1073741824
    The size at which a segment is rolled.
log.segment.delete.delay.ms LONG Hc* 0.. 60000
    The time for which a deleted segment file stays on disk under another name.
log.roll.ms LONG Hc* . null
    The age at which a segment is rolled even if it is not full; overrides log.roll.hours.
log.roll.hours INT H-* 1.. 168
    The age in hours at which a segment is rolled even if it is not full.
log.roll.jitter.ms LONG Hc* . null
    The maximum random time by which a segment is rolled earlier; overrides log.roll.jitter.hours.
log.roll.jitter.hours INT H-* 0.. 0
    The maximum random number of hours by which a segment is rolled earlier.
log.preallocate BOOLEAN Mc* . false
    Whether a new segment file is created with its full size.
log.index.interval.bytes INT Mc* 0.. 4096
    The number of bytes of the log between two index entries.
log.index.size.max.bytes INT Mc* 24.. 10485760
    The size of an index; a segment is rolled when its index is full.
log.flush.interval.messages LONG Hc* 1.. 9223372036854775807
    The number of records after which a partition is flushed to disk.
log.flush.interval.ms LONG Hc* . null
    The longest time until a record is flushed; log.flush.scheduler.interval.ms if not set.
log.flush.scheduler.interval.ms LONG H-* . 9223372036854775807
    The interval at which logs are checked for records to flush.
log.flush.offset.checkpoint.interval.ms INT H-* 0.. 60000
    The interval at which recovery points are written to disk.
log.flush.start.offset.checkpoint.interval.ms INT H-- 0.. 60000
    The interval at which log start offsets are written to disk.
log.retention.ms LONG Hc* . null
    The retention time of records, -1 for no limit; overrides log.retention.minutes and .hours.
log.retention.minutes INT H-* . null
    The retention time of records in minutes; overrides log.retention.hours.
log.retention.hours INT H-* . 168
    The retention time of records in hours; -1 for no limit.
log.retention.bytes LONG Hc* . -1
    The size of a partition above which its oldest segments are deleted; -1 for no limit.
log.retention.check.interval.ms LONG M-* 1.. 300000
    The interval at which logs are checked for segments to delete.
log.cleanup.policy LIST Mc* {compact,delete} delete
    The cleanup policy of old records: delete, compact, both, or neither.
log.cleaner.enable BOOLEAN M-* . true
    Whether the log cleaner runs, which compacts topics.
log.cleaner.threads INT Mc- 0.. 1
    The number of threads of the log cleaner.
log.cleaner.backoff.ms LONG Mc* 0.. 15000
    The time that the log cleaner sleeps when there is nothing to clean.
log.cleaner.dedupe.buffer.size LONG Mc* . 134217728
    The memory of all cleaner threads for deduplicating keys.
log.cleaner.io.buffer.size INT Mc* 0.. 524288
    The memory of all cleaner threads for I/O buffers.
log.cleaner.io.buffer.load.factor DOUBLE Mc* . 0.9
    The fraction of the deduplication buffer that may be filled.
log.cleaner.io.max.bytes.per.second DOUBLE Mc* . 1.7976931348623157E308
    The rate limit in bytes per second for reads and writes of the log cleaner.
log.cleaner.delete.retention.ms LONG Mc* 0.. 86400000
    The time for which tombstones and transaction markers are retained after cleaning.
log.cleaner.min.cleanable.ratio DOUBLE Mc* 0..1 0.5
    The fraction of a log that must be dirty before it is cleaned.
log.cleaner.min.compaction.lag.ms LONG Mc* 0.. 0
    The minimum age of a record before it is compacted.
log.cleaner.max.compaction.lag.ms LONG Mc* 1.. 9223372036854775807
    The age at which a record becomes due for compaction.
log.message.timestamp.type STRING Mc* {CreateTime,LogAppendTime} CreateTime
    Whether a record keeps the producer's timestamp or gets the time of the append.
log.message.timestamp.before.max.ms LONG Mc* 0.. 9223372036854775807
    The maximum time by which a record's timestamp may be before the broker's clock.
log.message.timestamp.after.max.ms LONG Mc* 0.. 3600000
    The maximum time by which a record's timestamp may be after the broker's clock.
log.local.retention.bytes LONG Mc- -2.. -2
    The size of local segments of a partition that uses remote storage.
log.local.retention.ms LONG Mc- -2.. -2
    The time for which a partition that uses remote storage keeps segments locally.
producer.id.expiration.ms INT Lc* 1.. 86400000
    The time after which the state of an inactive producer id is removed.
producer.id.expiration.check.interval.ms INT L-*i 1.. 600000
    The interval at which expired producer ids are removed.
"""
