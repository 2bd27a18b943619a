"""Settings of a topic; what a topic does not set comes from the broker."""

TABLE = """
cleanup.policy LIST M-* {compact,delete} delete
    What becomes of old records: delete, compact, both, or neither.
compression.gzip.level INT M-* 1..9|-1 -1
    Level when the broker compresses with gzip; -1 is the codec's own.
compression.lz4.level INT M-* 1..17 9
    Level when the broker compresses with lz4.
compression.type STRING M-* {uncompressed,zstd,lz4,snappy,gzip,producer} producer
    Codec in which batches are stored; producer: as they came.
compression.zstd.level INT M-* -131072..22 3
    Level when the broker compresses with zstd.
delete.retention.ms LONG M-* 0.. 86400000
    How long tombstones and markers stay after a cleaning.
file.delete.delay.ms LONG M-* 0.. 60000
    How long a deleted file stays on disk under another name.
flush.messages LONG M-* 1.. 9223372036854775807
    Records after which the partition is synced to disk.
flush.ms LONG M-* 0.. 9223372036854775807
    How long a record may stay unsynced.
follower.replication.throttled.replicas LIST M-- replicas
    Replicas whose fetching is throttled, as partition:broker pairs or *.
index.interval.bytes INT M-* 0.. 4096
    Bytes of log between two entries of an index.
internal.segment.bytes INT M-*i . null
    Size of a segment, without a lower limit; for tests.
leader.replication.throttled.replicas LIST M-- replicas
    Replicas to which sending is throttled, as partition:broker pairs or *.
local.retention.bytes LONG M-- -2.. -2
    Bytes kept locally where older segments live in remote storage.
local.retention.ms LONG M-- -2.. -2
    How long segments stay locally where older ones live in remote storage.
max.compaction.lag.ms LONG M-* 1.. 9223372036854775807
    Age at which a record must become part of a cleaning.
max.message.bytes INT M-* 0.. 1048588
    Largest record batch that is stored, as it comes: after compression.
message.timestamp.after.max.ms LONG M-* 0.. 3600000
    How far ahead a record's timestamp may lie.
message.timestamp.before.max.ms LONG M-* 0.. 9223372036854775807
    How far back a record's timestamp may lie.
message.timestamp.type STRING M-* {CreateTime,LogAppendTime} CreateTime
    Whether a record keeps its own timestamp or gets the time of its arrival.
min.cleanable.dirty.ratio DOUBLE M-* 0..1 0.5
    Share of the log that must be uncleaned before it is worth a cleaning.
min.compaction.lag.ms LONG M-* 0.. 0
    Age a record must have before it is compacted.
min.insync.replicas INT M-* 1.. 1
    Replicas that must be in sync before a write with acks=all is taken.
preallocate BOOLEAN M-* . false
    Give a new segment its full size on disk at once.
remote.log.copy.disable BOOLEAN M-- . false
    Stop copying to remote storage.
remote.log.delete.on.disable BOOLEAN M-- . false
    Delete what is in remote storage when it is turned off.
remote.storage.enable BOOLEAN M-- . false
    Keep old segments in remote storage; there is none here, so only false will do.
retention.bytes LONG M-* . -1
    Bytes a partition may hold before its oldest segments go; -1: no limit.
retention.ms LONG M-* -1.. 604800000
    How long records are kept; -1: for ever.
segment.bytes INT M-* 1048576.. 1073741824
    Size at which a segment is full and the next begins.
segment.index.bytes INT M-* 24.. 10485760
    Size of an index; a full one ends its segment.
segment.jitter.ms LONG M-* 0.. 0
    Most that is taken off segment.ms at random.
segment.ms LONG M-* 1.. 604800000
    Age at which a segment ends although it is not full.
unclean.leader.election.enable BOOLEAN M-* . false
    Let a replica that was not in sync lead when no other is left; records may be lost.
message.downconversion.enable BOOLEAN L-*o . true
    Turn batches into older formats for clients whose Fetch is older than version 4.
message.format.version STRING M--o version 3.0-IV1
    Record format on disk; always the newest here.
message.timestamp.difference.max.ms LONG M--o 0.. 9223372036854775807
    Replaced by message.timestamp.before.max.ms and .after.max.ms.
"""
