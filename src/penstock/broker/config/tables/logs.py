"""Topics and the logs on disk."""

TABLE = """
log.dir LIST H-* + ./penstock-data
    The folder of the data; log.dirs is taken first.
log.dirs LIST H-* + ./penstock-data
    The folders of the data, with commas between; a partition lives in one of them.
cordoned.log.dirs LIST Mb- .
    Folders that get no new partitions.
log.dir.failure.timeout.ms LONG L-- 1.. 30000
    How long a failed folder may go unreported before the broker stops.
log.initial.task.delay.ms LONG L--i 0.. 30000
    How long after the start the chores of the logs begin.
num.recovery.threads.per.data.dir INT Hc- 1.. 2
    Threads per folder for recovery and flush at the end.
num.partitions INT M-* 1.. 1
    Partitions of a topic that is created without a count.
default.replication.factor INT M-* . 1
    Replicas of a topic that is created without a count.
auto.create.topics.enable BOOLEAN H-* . true
    Create a topic when a client asks for one that is not there.
delete.topic.enable BOOLEAN H-* . true
    Whether topics can be deleted at all.
create.topic.policy.class.name CLASS L-- . null
    A Java class that may refuse new topics.
alter.config.policy.class.name CLASS L-- . null
    A Java class that may refuse changes of settings.
min.insync.replicas INT Hc* 1.. 1
    Replicas that must be in sync before a write with acks=all is taken.
message.max.bytes INT Hc* 0.. 1048588
    Largest record batch that is stored, as it comes: after compression.
compression.type STRING Hc* {uncompressed,zstd,lz4,snappy,gzip,producer} producer
    Codec in which batches are stored; producer: as they came.
compression.gzip.level INT Mc* 1..9|-1 -1
    Level when the broker compresses with gzip; -1 is the codec's own.
compression.lz4.level INT Mc* 1..17 9
    Level when the broker compresses with lz4.
compression.zstd.level INT Mc* -131072..22 3
    Level when the broker compresses with zstd.
log.segment.bytes INT Hc* 1048576.. 1073741824
    Size at which a segment is full and the next begins.
log.segment.delete.delay.ms LONG Hc* 0.. 60000
    How long a deleted file stays on disk under another name.
log.roll.ms LONG Hc* . null
    Age at which a segment ends although it is not full; before log.roll.hours.
log.roll.hours INT H-* 1.. 168
    Age in hours at which a segment ends although it is not full.
log.roll.jitter.ms LONG Hc* . null
    Most that is taken off this age at random; before log.roll.jitter.hours.
log.roll.jitter.hours INT H-* 0.. 0
    Most hours taken off this age at random.
log.preallocate BOOLEAN Mc* . false
    Give a new segment its full size on disk at once.
log.index.interval.bytes INT Mc* 0.. 4096
    Bytes of log between two entries of an index.
log.index.size.max.bytes INT Mc* 24.. 10485760
    Size of an index; a full one ends its segment.
log.flush.interval.messages LONG Hc* 1.. 9223372036854775807
    Records after which a partition is synced to disk.
log.flush.interval.ms LONG Hc* . null
    How long a record may stay unsynced; log.flush.scheduler.interval.ms when not set.
log.flush.scheduler.interval.ms LONG H-* . 9223372036854775807
    How often the logs are looked over for what must be synced.
log.flush.offset.checkpoint.interval.ms INT H-* 0.. 60000
    How often the recovery points are written down.
log.flush.start.offset.checkpoint.interval.ms INT H-- 0.. 60000
    How often the start offsets of the logs are written down.
log.retention.ms LONG Hc* . null
    How long records are kept, -1: for ever; before log.retention.minutes and .hours.
log.retention.minutes INT H-* . null
    How many minutes records are kept; before log.retention.hours.
log.retention.hours INT H-* . 168
    How many hours records are kept; -1: for ever.
log.retention.bytes LONG Hc* . -1
    Bytes a partition may hold before its oldest segments go; -1: no limit.
log.retention.check.interval.ms LONG M-* 1.. 300000
    How often the logs are looked over for what can be deleted.
log.cleanup.policy LIST Mc* {compact,delete} delete
    What becomes of old records: delete, compact, both, or neither.
log.cleaner.enable BOOLEAN M-* . true
    Whether compacted topics are compacted.
log.cleaner.threads INT Mc- 0.. 1
    Threads that compact.
log.cleaner.backoff.ms LONG Mc* 0.. 15000
    How long the cleaner rests when there is nothing to clean.
log.cleaner.dedupe.buffer.size LONG Mc* . 134217728
    Memory for the keys seen in one cleaning, all threads together.
log.cleaner.io.buffer.size INT Mc* 0.. 524288
    Memory for reading and writing in a cleaning, all threads together.
log.cleaner.io.buffer.load.factor DOUBLE Mc* . 0.9
    How full the memory for keys may be, as a share of it.
log.cleaner.io.max.bytes.per.second DOUBLE Mc* . 1.7976931348623157E308
    Bytes per second that cleaning may read and write.
log.cleaner.delete.retention.ms LONG Mc* 0.. 86400000
    How long tombstones and markers stay after a cleaning.
log.cleaner.min.cleanable.ratio DOUBLE Mc* 0..1 0.5
    Share of a log that must be uncleaned before it is worth a cleaning.
log.cleaner.min.compaction.lag.ms LONG Mc* 0.. 0
    Age a record must have before it is compacted.
log.cleaner.max.compaction.lag.ms LONG Mc* 1.. 9223372036854775807
    Age at which a record must become part of a cleaning.
log.message.timestamp.type STRING Mc* {CreateTime,LogAppendTime} CreateTime
    Whether a record keeps its own timestamp or gets the time of its arrival.
log.message.timestamp.before.max.ms LONG Mc* 0.. 9223372036854775807
    How far back a record's timestamp may lie.
log.message.timestamp.after.max.ms LONG Mc* 0.. 3600000
    How far ahead a record's timestamp may lie.
log.local.retention.bytes LONG Mc- -2.. -2
    Bytes kept locally where older segments live in remote storage.
log.local.retention.ms LONG Mc- -2.. -2
    How long segments stay locally where older ones live in remote storage.
producer.id.expiration.ms INT Lc* 1.. 86400000
    How long the sequence of a producer that has gone quiet is remembered.
producer.id.expiration.check.interval.ms INT L-*i 1.. 600000
    How often producers are looked over for those gone quiet.
"""
