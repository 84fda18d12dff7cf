//! The `SANLK_*` codes.

use super::Advice;
use crate::code;

const LOG: &str =
    "read the daemon's log (/var/log/sanlock.log, or 'sanlock client log_dump' for what is in memory)";
const STORAGE: &str = "look at the storage: kernel log (dmesg), 'multipath -ll', the NFS mount";
const LATENCY: &str =
    "'sanlock client renewal -s LOCKSPACE' shows how long the last renewals took to read and to write";
const READ_LEADER: &str = "'sanlock direct read_leader -r RESOURCE' (-s LOCKSPACE) shows what is on the disk";
const DUMP: &str =
    "'sanlock direct dump PATH:OFFSET' lists what is on the disk, with names, owners and offsets";
const FSCK: &str = "'sanlock fsck PATH' says what is wrong there, and whether it can be repaired; it writes nothing without --repair";
const WHO: &str = "'sanlock who RESOURCE' shows who holds the lease, on which host, and when it can be had";
const RETRY: &str = "try again: the race is over";
const UPGRADE: &str =
    "find out which host runs another release of sanlock: 'sanlock client version' on each of them";

/// In the order of the numbers.
pub(super) const ADVICE: &[Advice] = &[
    Advice {
        code: code::SANLK_ERROR,
        causes: &[
            "the operation was given up: the lockspace was removed, or the daemon was shut down, while it ran",
        ],
        steps: &[LOG],
    },
    Advice {
        code: code::SANLK_AIO_TIMEOUT,
        causes: &[
            "a path to the storage has failed, and multipath queues instead of failing over",
            "the storage is overloaded, or hangs in a controller failover",
            "the NFS server does not answer",
        ],
        steps: &[
            STORAGE,
            LATENCY,
            "if such pauses are normal there, a larger io timeout ('add_lockspace -o SECONDS') tolerates them; all times grow with it",
        ],
    },
    Advice {
        code: code::SANLK_WD_ERROR,
        causes: &[
            "wdmd does not run",
            "no watchdog device, or none that takes a timeout short enough",
            "a test script or another client of wdmd keeps it from renewing",
        ],
        steps: &[
            "start wdmd, and load a watchdog driver where there is no hardware ('modprobe softdog')",
            "'wdmd --probe' names the device that can be used, 'wdmd --dump' shows what wdmd does, its log why it refused",
            "'sanlock daemon -w 0' does without; then a process that cannot be killed may write while another host takes over",
        ],
    },
    Advice {
        code: code::SANLK_VERSION_INCOMPAT,
        causes: &["the lease was initialised by a release that does not know what was asked for"],
        steps: &[READ_LEADER, "initialise the lockspace anew with the newer release, when no host uses it"],
    },
    Advice {
        code: code::SANLK_DBLOCK_READ,
        causes: &["a read of the ballot records failed on a majority of the disks"],
        steps: &[STORAGE, LOG],
    },
    Advice {
        code: code::SANLK_DBLOCK_WRITE,
        causes: &[
            "a write of this host's ballot record failed: the storage is read-only, full (thin pool), or gone",
        ],
        steps: &[STORAGE, LOG],
    },
    Advice {
        code: code::SANLK_DBLOCK_LVER,
        causes: &[
            "another host acquired the lease while this one tried",
            "the lease on disk was rolled back (restored from a copy)",
        ],
        steps: &[RETRY, WHO, FSCK],
    },
    Advice {
        code: code::SANLK_DBLOCK_MBAL,
        causes: &["another host started a later ballot for the lease"],
        steps: &[RETRY, WHO],
    },
    Advice {
        code: code::SANLK_DBLOCK_CHECKSUM,
        causes: &[
            "the area was overwritten, by something that is no lock manager or by a lease at an overlapping offset",
        ],
        steps: &[
            FSCK,
            "'sanlock direct dump PATH:OFFSET -f 2' shows the ballot records; the log names the host whose record is damaged",
            "find out what wrote there before anything else; initialise the lease anew only when no host can hold it",
        ],
    },
    Advice {
        code: code::SANLK_LEADER_READ,
        causes: &["reading the lease failed on a majority of the disks"],
        steps: &[STORAGE, LOG],
    },
    Advice {
        code: code::SANLK_LEADER_WRITE,
        causes: &[
            "writing the lease failed on a majority of the disks: read-only, full (thin pool), or gone",
        ],
        steps: &[STORAGE, LOG],
    },
    Advice {
        code: code::SANLK_LEADER_DIFF,
        causes: &[
            "the disks of a lease on several disks contradict each other",
            "another host wrote between two reads",
        ],
        steps: &[
            "try again",
            "'sanlock direct read_leader' with each disk of the resource alone shows where they differ",
        ],
    },
    Advice {
        code: code::SANLK_LEADER_MAGIC,
        causes: &[
            "the offset or the path is not that of the lease",
            "the lease was never initialised, or was cleared",
            "the device was replaced or wiped",
            "of an acquire also: the lease is sound, and its owner's host id record in the lockspace was overwritten",
        ],
        steps: &[
            DUMP,
            FSCK,
            "'sanlock direct next_free PATH' finds the next unused place",
            "'sanlock direct init -s LOCKSPACE' or '-r RESOURCE' makes a new one, only where dump and fsck show none: it destroys a lease, whoever holds it",
        ],
    },
    Advice {
        code: code::SANLK_LEADER_VERSION,
        causes: &["the lease was initialised by a release with another disk format (5.x writes its own)"],
        steps: &[
            READ_LEADER,
            UPGRADE,
            "what 5.x has formatted is formatted anew while no host uses it: here, or by 5.x with create_old_delta_disk_version = 3.4 and create_old_paxos_disk_version = 6.4",
        ],
    },
    Advice {
        code: code::SANLK_LEADER_SECTORSIZE,
        causes: &["the lease was copied to a disk of another sector size", "the record is damaged"],
        steps: &[
            READ_LEADER,
            FSCK,
            "initialise the lease on the disk where it is used, with its sizes (-Z, -A), only when no host can hold it",
        ],
    },
    Advice {
        code: code::SANLK_LEADER_LOCKSPACE,
        causes: &[
            "a slip in the lockspace's name",
            "the offset or the path is that of another lockspace's lease",
        ],
        steps: &[READ_LEADER, DUMP],
    },
    Advice {
        code: code::SANLK_LEADER_RESOURCE,
        causes: &[
            "a slip in the resource's name",
            "the offset is that of another lease",
            "the lease was renamed",
        ],
        steps: &[READ_LEADER, DUMP],
    },
    Advice {
        code: code::SANLK_LEADER_NUMHOSTS,
        causes: &[
            "the lease was initialised for fewer hosts (-n) than this host's id",
            "the host id is larger than the sector and area size allow",
        ],
        steps: &[
            READ_LEADER,
            "have a host for whose id there is room acquire it with -n and the larger number, which makes room: 'sanlock client acquire -n'; or join with a smaller host id",
        ],
    },
    Advice {
        code: code::SANLK_LEADER_CHECKSUM,
        causes: &[
            "the record was overwritten or edited",
            "the storage returned old or mixed data",
            "two programs use overlapping offsets",
            "of an acquire also: the lease is sound, and its owner's host id record in the lockspace is damaged",
        ],
        steps: &[
            READ_LEADER,
            FSCK,
            "find out what wrote there before anything else; initialise the lease anew only when no host can hold it",
        ],
    },
    Advice {
        code: code::SANLK_ADDLS_SIZES,
        causes: &[
            "the lockspace's record has a pair of sizes that does not exist: it is damaged or from another release",
        ],
        steps: &[
            "'sanlock direct read_leader -s LOCKSPACE' shows sector size and flags",
            "pairs that exist: 512/1M, 4096/1M, 4096/2M, 4096/4M, 4096/8M",
        ],
    },
    Advice {
        code: code::SANLK_ADDLS_INVALID_HOSTID,
        causes: &[
            "host ids end at 2000, 250, 500, 1000 or 2000 with sizes 512/1M, 4096/1M, 4096/2M, 4096/4M, 4096/8M",
        ],
        steps: &[
            "join with a smaller host id, or initialise the lockspace with a larger align size (-A) when no host uses it",
        ],
    },
    Advice {
        code: code::SANLK_ACQUIRE_LVER,
        causes: &["the lease was acquired by somebody else since that version was noted"],
        steps: &[
            "what was protected may have changed: look at it, then acquire without a version, or with the one on disk",
            READ_LEADER,
        ],
    },
    Advice {
        code: code::SANLK_ACQUIRE_LOCKSPACE,
        causes: &[
            "the owner's record in the lockspace cannot be judged: it was never seen, or cannot be read",
            "'sanlock direct acquire' has no lockspace to ask whether the owner lives",
        ],
        steps: &[
            WHO,
            "'sanlock client gets -h 1' lists the hosts that this one sees; just after joining, try again in a moment",
        ],
    },
    Advice {
        code: code::SANLK_ACQUIRE_IDDISK,
        causes: &["the device or file of the lockspace has gone since it was joined"],
        steps: &[STORAGE, LOG],
    },
    Advice {
        code: code::SANLK_ACQUIRE_IDLIVE,
        causes: &[
            "another host uses it: that is what the lease is for",
            "its owner died a short time ago, and has not been silent for long enough (8 io timeouts and the watchdog's time)",
        ],
        steps: &[
            WHO,
            "stop what uses it on that host, or ask for it: 'sanlock client request -r RESOURCE:LVER -f MODE'",
            "if that host is dead, wait: the lease can be acquired when the time has run out",
        ],
    },
    Advice {
        code: code::SANLK_ACQUIRE_OWNED,
        causes: &["several hosts tried at once, and another one won"],
        steps: &[RETRY, WHO],
    },
    Advice {
        code: code::SANLK_ACQUIRE_OTHER,
        causes: &["several hosts tried at once, and another one won"],
        steps: &[RETRY, WHO],
    },
    Advice {
        code: code::SANLK_ACQUIRE_SHRETRY,
        causes: &[
            "many hosts take the lease shared at the same time, and this one lost each of its attempts",
        ],
        steps: &["try again", "'sh_retries' in /etc/sanlock/sanlock.conf allows more attempts"],
    },
    Advice {
        code: code::SANLK_ACQUIRE_OWNED_RETRY,
        causes: &[
            "the owner has stopped renewing, and the caller does not want to wait until it counts as dead",
        ],
        steps: &[WHO, "try again when the time has run out"],
    },
    Advice {
        code: code::SANLK_ACQUIRE_OWNER_GEN_REVERTED,
        causes: &[
            "the lockspace was initialised anew, or restored from a copy, while its resources were not",
        ],
        steps: &["find out which of the two is old", READ_LEADER],
    },
    Advice {
        code: code::SANLK_ACQUIRE_OWNED_NO_TIMEOUT,
        causes: &["the owner's host id lease was made with the NO_TIMEOUT flag of sanlock 5.x"],
        steps: &["the owner, or 'sanlock set_host' of that release, must give it up", WHO],
    },
    Advice {
        code: code::SANLK_RELEASE_LVER,
        causes: &[
            "another host took the lease over: this one was thought dead",
            "the lease was initialised anew while it was held",
        ],
        steps: &["what was protected may have been used by two: check it", LOG, WHO],
    },
    Advice {
        code: code::SANLK_RELEASE_OWNER,
        causes: &[
            "another host took the lease over: this one was thought dead",
            "the lease was initialised anew while it was held",
        ],
        steps: &["what was protected may have been used by two: check it", LOG, WHO],
    },
    Advice {
        code: code::SANLK_RENEW_OWNER,
        causes: &[
            "another host joined with the same host id",
            "somebody initialised the lockspace, or restored it from a copy, while it was in use",
        ],
        steps: &[
            "give every host a host id of its own; 'sanlock who LOCKSPACE' names the one that has this id now",
            "the lockspace has failed here and its users are stopped: add it again afterwards",
        ],
    },
    Advice {
        code: code::SANLK_RENEW_DIFF,
        causes: &[
            "another host, or a tool ('direct' actions), wrote this host's record",
            "the storage returned old data",
        ],
        steps: &["'sanlock who LOCKSPACE' names the host that has this id now", LOG],
    },
    Advice {
        code: code::SANLK_HOSTID_BUSY,
        causes: &[
            "two hosts are configured with the same host id",
            "this host has another name than when it joined last, so its own old record is taken for another host's",
        ],
        steps: &[
            "'sanlock who LOCKSPACE' shows which host has the id: give this host another one",
            "if that host is dead, its id can be had after 8 io timeouts and the watchdog's time",
            "set a host name that survives reboots ('our_host_name' in /etc/sanlock/sanlock.conf)",
        ],
    },
    Advice {
        code: code::SANLK_RENEW_DEAD_EXT,
        causes: &[
            "an administrator or a fencing program marked this host dead from another one (set_host of 5.x)",
        ],
        steps: &["ask there why; the lockspace has failed here and can be added again"],
    },
    Advice {
        code: code::SANLK_REQUEST_MAGIC,
        causes: &["the lease was initialised by a release without requests, or is damaged"],
        steps: &[FSCK, READ_LEADER],
    },
    Advice {
        code: code::SANLK_REQUEST_VERSION,
        causes: &["another release wrote the request", "the record is damaged"],
        steps: &[UPGRADE, FSCK],
    },
    Advice {
        code: code::SANLK_REQUEST_OLD,
        causes: &["the version that was asked for is that of the present owner, or an earlier one"],
        steps: &["ask for the version on disk plus one: 'sanlock who RESOURCE' shows it"],
    },
    Advice {
        code: code::SANLK_REQUEST_LVER,
        causes: &["another host has asked already, for this version or a later one"],
        steps: &["wait for the outcome of that request; 'sanlock who RESOURCE' shows it"],
    },
    Advice {
        code: code::SANLK_RINDEX_MAGIC,
        causes: &[
            "the offset or the path is not that of the index",
            "the index was never formatted, or was cut short doing so",
            "the index's first sector is damaged, and leases that it names may be in use",
        ],
        steps: &[
            FSCK,
            DUMP,
            "'sanlock client format -x RINDEX' makes a new one, which knows no lease: where some lie behind it, 'sanlock direct rebuild -x RINDEX' before anybody creates one in their place",
        ],
    },
    Advice {
        code: code::SANLK_RINDEX_VERSION,
        causes: &["another release formatted the index"],
        steps: &[UPGRADE],
    },
    Advice {
        code: code::SANLK_RINDEX_LOCKSPACE,
        causes: &["a slip in the lockspace's name, or the path of another index"],
        steps: &[DUMP],
    },
    Advice {
        code: code::SANLK_RINDEX_OFFSET,
        causes: &[
            "the offset of the index is not where it was formatted",
            "the entry's offset is no area of the index",
        ],
        steps: &[DUMP, "offsets of resources are multiples of the align size after the index"],
    },
    Advice {
        code: code::SANLK_RINDEX_DIFF,
        causes: &[
            "the entry was changed by another host",
            "name and offset that were given belong to different entries",
        ],
        steps: &["'sanlock client lookup -x RINDEX -e NAME' shows the entry", DUMP],
    },
    Advice {
        code: code::SANLK_WRONG_GENERATION,
        causes: &["the host has joined again since its generation was looked up"],
        steps: &["'sanlock who LOCKSPACE' shows the generation of each host"],
    },
    Advice {
        code: code::SANLK_WRONG_CAW,
        causes: &[
            "the hosts of the lockspace are not configured alike, or the lease was made the other way (5.x)",
        ],
        steps: &[READ_LEADER, UPGRADE],
    },
    Advice {
        code: code::SANLK_CAW_CONFIG,
        causes: &["compare-and-write (5.x) is switched off in the configuration"],
        steps: &["'use_compare_and_write' in the configuration of that release; this one has none"],
    },
    Advice {
        code: code::SANLK_CAW_OPEN,
        causes: &[
            "the lease was initialised by 5.x for compare-and-write, and this host or this device has none",
        ],
        steps: &["initialise it without ('init -C 0' of that release) when nobody uses it", READ_LEADER],
    },
    Advice {
        code: code::SANLK_CAW_IOCTL,
        causes: &["the device refused the SCSI command"],
        steps: &[STORAGE, "initialise the lease without compare-and-write when nobody uses it"],
    },
    Advice {
        code: code::SANLK_CAW_MISCOMPARE,
        causes: &["another host wrote the record first"],
        steps: &[RETRY, WHO],
    },
    Advice {
        code: code::SANLK_CAW_ERROR,
        causes: &["the device failed the SCSI command"],
        steps: &[STORAGE],
    },
    Advice {
        code: code::SANLK_IOTYPE,
        causes: &["a kind of I/O that the release does not know"],
        steps: &[UPGRADE, LOG],
    },
    Advice {
        code: code::SANLK_CAW_ILLEGAL,
        causes: &["the device does not know compare-and-write (SCSI command 89h)"],
        steps: &["initialise the lease without compare-and-write when nobody uses it", STORAGE],
    },
];
