"""Settings of a topic; the broker's settings are their defaults."""

TABLE = """
cleanup.policy LIST M-* {compact,delete} delete
    The cleanup policy of old records: delete, compact, both, or neither.
compression.gzip.level INT M-* 1..9|-1 -1
    The level with which the broker compresses with gzip; -1 is the default of gzip.
compression.lz4.level INT M-* 1..17 9
    The level with which the broker compresses with lz4.
compression.type STRING M-* {uncompressed,zstd,lz4,snappy,gzip,producer} producer
    The compression type of stored batches; producer keeps the producer's compression.
compression.zstd.level INT M-* -131072..22 3
    The level with which the broker compresses with zstd.
delete.retention.ms LONG M-* 0.. 86400000
    The time for which tombstones and transaction markers are retained after cleaning.
file.delete.delay.ms LONG M-* 0.. 60000
    The time for which a deleted segment file stays on disk under another name.
flush.messages LONG M-* 1.. 9223372036854775807
    The number of records after which the partition is flushed to disk.
flush.ms LONG M-* 0.. 9223372036854775807
    The longest time until a record is flushed to disk.
follower.replication.throttled.replicas LIST M-- replicas
    The replicas whose fetches are throttled, as partition:broker pairs or *.
index.interval.bytes INT M-* 0.. 4096
    The number of bytes of the log between two index entries.
internal.segment.bytes INT M-*i . null
    The size of a segment without a lower limit, for tests.
leader.replication.throttled.replicas LIST M-- replicas
    The replicas to which the leader throttles data, as partition:broker pairs or *.
local.retention.bytes LONG M-- -2.. -2
    The size of local segments of a partition that uses remote storage.
local.retention.ms LONG M-- -2.. -2
    The time for which a partition that uses remote storage keeps segments locally.
max.compaction.lag.ms LONG M-* 1.. 9223372036854775807
    The age at which a record becomes due for compaction.
max.message.bytes INT M-* 0.. 1048588
    The maximum size of a record batch, after compression.
message.timestamp.after.max.ms LONG M-* 0.. 3600000
    The maximum time by which a record's timestamp may be after the broker's clock.
message.timestamp.before.max.ms LONG M-* 0.. 9223372036854775807
    The maximum time by which a record's timestamp may be before the broker's clock.
message.timestamp.type STRING M-* {CreateTime,LogAppendTime} CreateTime
    Whether a record keeps the producer's timestamp or gets the time of the append.
min.cleanable.dirty.ratio DOUBLE M-* 0..1 0.5
    The fraction of the log that must be dirty before it is cleaned.
min.compaction.lag.ms LONG M-* 0.. 0
    The minimum age of a record before it is compacted.
min.insync.replicas INT M-* 1.. 1
    The number of in-sync replicas that a write with acks=all needs.
preallocate BOOLEAN M-* . false
    Whether a new segment file is created with its full size.
remote.log.copy.disable BOOLEAN M-- . false
    Whether copies to remote storage are stopped.
remote.log.delete.on.disable BOOLEAN M-- . false
    Whether remote data is deleted when remote storage is disabled.
remote.storage.enable BOOLEAN M-- . false
    Whether old segments are in remote storage; Penstock has none, so it must be false.
retention.bytes LONG M-* . -1
    The size of a partition above which its oldest segments are deleted; -1 for no limit.
retention.ms LONG M-* -1.. 604800000
    The retention time of records; -1 for no limit.
segment.bytes INT M-* 1048576.. 1073741824
    The size at which a segment is rolled.
segment.index.bytes INT M-* 24.. 10485760
    The size of an index; a segment is rolled when its index is full.
segment.jitter.ms LONG M-* 0.. 0
    The maximum random time by which a segment is rolled earlier.
segment.ms LONG M-* 1.. 604800000
    The age at which a segment is rolled even if it is not full.
unclean.leader.election.enable BOOLEAN M-* . false
    Whether a replica outside the ISR may become leader if no other can; this may lose records.
message.downconversion.enable BOOLEAN L-*o . true
    Whether batches are converted to older formats for clients that use Fetch below version 4.
message.format.version STRING M--o version 3.0-IV1
    The record format on disk; Penstock always uses the newest.
message.timestamp.difference.max.ms LONG M--o 0.. 9223372036854775807
    Replaced by message.timestamp.before.max.ms and .after.max.ms.
"""
