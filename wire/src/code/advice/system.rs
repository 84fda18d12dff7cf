//! The errno values: what the daemon answers on its own account, what the kernel said about storage or the socket.

use super::Advice;
use crate::code;
use crate::command::Command;

const LOG: &str =
    "read the daemon's log (/var/log/sanlock.log, or 'sanlock client log_dump' for what is in memory)";
const START: &str =
    "start it ('sanlock daemon', or the service), or point SANLOCK_RUN_DIR at the directory of its socket";
const STORAGE: &str = "look at the storage: kernel log (dmesg), 'multipath -ll', the NFS mount";
const STATUS: &str = "'sanlock client status' lists what is registered, joined and held on this host";
const PATH: &str = "check the path and the offset: 'sanlock direct dump PATH:OFFSET' lists what is there";
const JOIN: &str =
    "join it: 'sanlock client add_lockspace -s LOCKSPACE'; 'sanlock client gets' lists those that are joined";
const JOIN_OR_FAILED: &str = "'sanlock client status' or 'sanlock top' shows whether it has failed; if it is not there, join it: \
     'sanlock client add_lockspace -s LOCKSPACE'";
const ROOM: &str = "compare the offset with the size of the device ('blockdev --getsize64 PATH'); of a file, 'df' shows whether there is room";
const ENTRIES: &str = "'sanlock direct dump PATH:OFFSET -f 1' lists the entries";

/// In the order of the numbers.
pub(super) const ADVICE: &[Advice] = &[
    Advice {
        code: -1,
        causes: &[
            "the daemon ended, or closed the connection, before it answered",
            "no lease is where one was expected, so its sizes are not known",
            "sizes that do not go together",
            "the kernel's EPERM: a security module, or missing capabilities",
        ],
        steps: &[LOG],
    },
    Advice {
        code: code::ENOENT,
        causes: &[
            "the daemon does not run",
            "the file or device does not exist on this host",
            "what was named is not joined or held",
        ],
        steps: &[
            "check the path; for a logical volume, that it is active on this host",
            "if no daemon runs, start it ('sanlock daemon', or the service)",
            STATUS,
        ],
    },
    Advice {
        code: code::ESRCH,
        causes: &[
            "the process has not registered, or has ended",
            "the pid is that of another pid namespace (container)",
        ],
        steps: &[STATUS],
    },
    Advice { code: -4, causes: &["a signal came while a system call waited"], steps: &["try again"] },
    Advice {
        code: code::EIO,
        causes: &["a failed path or disk", "all paths of a multipath device are gone and it does not queue"],
        steps: &[STORAGE, LOG],
    },
    Advice {
        code: code::ENXIO,
        causes: &["a resource string is cut off", "the device has gone"],
        steps: &["the form is LOCKSPACE:RESOURCE:PATH:OFFSET", STORAGE],
    },
    Advice {
        code: code::E2BIG,
        causes: &["more than 8 resources in one command, or more leases than a connection may hold"],
        steps: &["acquire or release in several steps"],
    },
    Advice {
        code: -9,
        causes: &["too few of the lease's disks can be opened"],
        steps: &["check the paths: each disk of the lease must be there on this host", LOG],
    },
    Advice {
        code: code::EAGAIN,
        causes: &[
            "something that is under way stands in the way: a release, a join, a removal",
            "other hosts hold the lease shared",
            "the daemon's queue of connections is full",
        ],
        steps: &[
            "try again in a moment",
            "'sanlock who RESOURCE' shows holders, 'sanlock client status' what is under way here",
        ],
    },
    Advice {
        code: code::ENOMEM,
        causes: &["the machine, or the limit of the service or container, is out of memory"],
        steps: &["free memory; look at 'ulimit -l' and MemoryMax of the service", LOG],
    },
    Advice {
        code: code::EACCES,
        causes: &[
            "the caller is neither root nor in the group of the socket (sanlock)",
            "the daemon's user may not read and write the lease file or device",
            "a security module (SELinux, AppArmor) refuses",
        ],
        steps: &[
            "add the user to the group sanlock, or give user sanlock the device: 'ls -lL PATH', a udev rule, 'chown'",
            "look at the audit log where a security module is on",
        ],
    },
    Advice {
        code: -14,
        causes: &["a buffer that the kernel or driver cannot use"],
        steps: &["this is a defect: please report it, with the log"],
    },
    Advice {
        code: code::EBUSY,
        causes: &[
            "the process is not registered: it must be one that holds a connection to the daemon",
            "the process is being killed, or another command works on its leases",
            "lockspaces or leases are in use",
            "of an acquire also: another process of this host is acquiring the same lease at this moment",
            "a command on a resource index and its lease, rindex_lease, are wanted on this host at once; the log says so",
        ],
        steps: &[STATUS],
    },
    Advice { code: code::EEXIST, causes: &["it is there already"], steps: &[STATUS] },
    Advice {
        code: code::ENODEV,
        causes: &[
            "the lockspace's path cannot be opened: it is missing, not readable, or empty",
            "the device has gone",
        ],
        steps: &[
            "check that the path exists on this host, and that the daemon's user (sanlock) may read and write it",
        ],
    },
    Advice {
        code: -20,
        causes: &["a part of the path is a file, not a directory"],
        steps: &["check the path"],
    },
    Advice {
        code: -21,
        causes: &["a directory was given instead of the file or device in it"],
        steps: &["name the file or device itself"],
    },
    Advice {
        code: code::EINVAL,
        causes: &[
            "a name, number or path is missing or out of range",
            "the offset is no multiple of the sector or align size",
            "the file system has no direct I/O (tmpfs before Linux 6.6, some FUSE and encrypted ones), or not with this sector size",
        ],
        steps: &[
            "compare with 'sanlock help'; offsets are multiples of the align size (1M with 512-byte sectors, 8M with 4096)",
            "try direct I/O: 'dd if=PATH of=/dev/null bs=4096 count=1 iflag=direct'",
            LOG,
        ],
    },
    Advice {
        code: -23,
        causes: &["the whole system is out of open files"],
        steps: &["'cat /proc/sys/fs/file-nr'; raise fs.file-max or close what leaks"],
    },
    Advice {
        code: -24,
        causes: &["the daemon or the command has reached its limit of open files"],
        steps: &["raise LimitNOFILE of the service (ulimit -n)"],
    },
    Advice {
        code: code::ENOTTY,
        causes: &["the process that the lease was for ended while it was acquired"],
        steps: &["nothing is held: start the process again"],
    },
    Advice {
        code: -27,
        causes: &["the file system or a limit (ulimit -f) does not allow files of this size"],
        steps: &["use a smaller offset, another file system, or a block device"],
    },
    Advice {
        code: code::ENOSPC,
        causes: &[
            "the lockspace is not joined, is still being joined, or has failed",
            "the file system or thin pool is full",
        ],
        steps: &[JOIN_OR_FAILED, "'df', 'lvs' show what is full"],
    },
    Advice {
        code: -30,
        causes: &[
            "the device or file system is read-only: mounted or exported so, or switched over after errors",
        ],
        steps: &[STORAGE, "mount or export it read-write"],
    },
    Advice {
        code: code::EPIPE,
        causes: &["the daemon ended, or took the client for one that does not speak its protocol"],
        steps: &["see whether it runs ('sanlock client version'), and read its log (/var/log/sanlock.log)"],
    },
    Advice {
        code: code::ERANGE,
        causes: &["a resource has 1 to 4 disks"],
        steps: &["the form is LOCKSPACE:RESOURCE:PATH:OFFSET[:PATH:OFFSET...]"],
    },
    Advice {
        code: -36,
        causes: &["a path or a part of it is longer than the system takes (a lease path: 1023 bytes)"],
        steps: &["use a shorter path or a symbolic link"],
    },
    Advice {
        code: -38,
        causes: &[
            "a kernel, or a seccomp filter (container), without a call that is needed, such as pidfd_open",
        ],
        steps: &["look into the daemon's log, and allow the call in the container's profile"],
    },
    Advice { code: -40, causes: &["symbolic links that lead in a circle"], steps: &["check the path"] },
    Advice {
        code: code::ENOCSI,
        causes: &["more event streams than a lockspace has places for"],
        steps: &["close streams that nobody reads"],
    },
    Advice {
        code: -52,
        causes: &["a SCSI reservation of another host keeps this one out"],
        steps: &["'sg_persist -r DEVICE' shows who holds it", STORAGE],
    },
    Advice {
        code: -61,
        causes: &["the disk reports a bad sector"],
        steps: &["look at the disk's health (smartctl, the array's console); replace it", STORAGE],
    },
    Advice { code: -62, causes: &["the device did not answer in time"], steps: &[STORAGE] },
    Advice {
        code: -67,
        causes: &["the link to the storage is lost: cable, switch, target"],
        steps: &[STORAGE],
    },
    Advice { code: -71, causes: &["the other side does not keep to its protocol"], steps: &[STORAGE, LOG] },
    Advice {
        code: -75,
        causes: &["an offset or a size that is larger than the system can express"],
        steps: &["check the offset"],
    },
    Advice {
        code: code::ELIBACC,
        causes: &["a daemon of the original holds a lease whose path or name has a blank or is very long"],
        steps: &["'sanlock client status' lists the leases all the same; use paths without blanks"],
    },
    Advice {
        code: code::ELIBBAD,
        causes: &["a daemon of the original holds a lease whose path or name has a blank or is very long"],
        steps: &["'sanlock client status' lists the leases all the same; use paths without blanks"],
    },
    Advice {
        code: code::ELIBSCN,
        causes: &["a daemon of the original holds a lease whose path or name has a blank or is very long"],
        steps: &["'sanlock client status' lists the leases all the same; use paths without blanks"],
    },
    Advice {
        code: -84,
        causes: &["the storage's own checksums do not fit (data integrity field)"],
        steps: &[STORAGE],
    },
    Advice {
        code: code::EMSGSIZE,
        causes: &[
            "the file or device ends before the lease does: a wrong offset, a file that was cut, sizes of another lease",
        ],
        steps: &[PATH, "a lease needs its whole area: 1 MiB with 512-byte sectors, 8 MiB with 4096"],
    },
    Advice {
        code: code::EOPNOTSUPP,
        causes: &[
            "the command belongs to a later release, or was removed from it",
            "the storage does not know the operation",
        ],
        steps: &["'sanlock client version' shows both releases", LOG],
    },
    Advice {
        code: -98,
        causes: &["another daemon has the socket"],
        steps: &["stop it, or use another directory (SANLOCK_RUN_DIR)"],
    },
    Advice {
        code: code::ECONNRESET,
        causes: &["the daemon ended, or took the client for one that does not speak its protocol"],
        steps: &["see whether it runs ('sanlock client version'), and read its log (/var/log/sanlock.log)"],
    },
    Advice {
        code: code::ENOTCONN,
        causes: &["the client ended or gave up in the middle of its request"],
        steps: &[LOG],
    },
    Advice { code: -110, causes: &["the storage or the network did not answer in time"], steps: &[STORAGE] },
    Advice {
        code: code::ECONNREFUSED,
        causes: &["the daemon was killed or crashed: its socket file is still there"],
        steps: &[START, "its log (/var/log/sanlock.log) and the system's say how it ended"],
    },
    Advice { code: -113, causes: &["the network to the storage or NFS server is down"], steps: &[STORAGE] },
    Advice {
        code: code::EALREADY,
        causes: &["the lease is in the wanted mode already"],
        steps: &["nothing needs to be done; 'sanlock client status' shows the mode"],
    },
    Advice {
        code: code::EINPROGRESS,
        causes: &["the lockspace is still being joined, or left"],
        steps: &["wait; 'sanlock client gets' marks it ADD or REM as long as it lasts"],
    },
    Advice {
        code: code::ESTALE,
        causes: &[
            "the process hung up",
            "an NFS file that was replaced or removed on the server (stale file handle)",
        ],
        steps: &[STATUS, "mount the NFS file system again"],
    },
    Advice {
        code: code::EUCLEAN,
        causes: &["a persistent lease (-P 1) was left behind by a process that has ended"],
        steps: &[
            "adopt it: acquire with -O 1; or, only if what it stands for is certainly not in use here, release it: 'sanlock client release -O 1 -r LOCKSPACE:RESOURCE'",
            "'sanlock client status' marks it ORPHAN",
        ],
    },
    Advice {
        code: -121,
        causes: &[
            "the device reported an error that has no better name: often a failed controller or target",
        ],
        steps: &[STORAGE],
    },
    Advice {
        code: -122,
        causes: &["the quota of the daemon's user on this file system is used up"],
        steps: &["raise the quota, or use another place"],
    },
    Advice { code: -123, causes: &["the drive is empty, or the device is gone"], steps: &[STORAGE] },
    Advice {
        code: -125,
        causes: &["the operation was taken back: its device or the daemon was going away"],
        steps: &[STORAGE, LOG],
    },
];

/// The first step where the command decides, as in [`code::explain`].
pub(super) fn step_after(result: i32, command: Command) -> Option<&'static str> {
    use Command as C;
    Some(match (result, command) {
        (-1, C::AddLockspace) => "wait until it has ended, start it again, and join then",
        (-1, C::Release) => "'sanlock client inquire -p PID' lists what the process holds",
        (-1, C::WriteLockspace | C::WriteResource | C::FormatRindex) => {
            "give both or neither: -Z 512 -A 1M, or -Z 4096 with -A 1M, 2M, 4M or 8M"
        }
        (code::ENOENT, C::InqLockspace | C::RemLockspace) => {
            "'sanlock client gets' lists those that are joined"
        }
        (code::ENOENT, C::GetHosts | C::RegEvent | C::EndEvent | C::SetEvent | C::SetConfig | C::SetHost) => {
            JOIN
        }
        (code::ENOENT, C::Convert) => "'sanlock client inquire -p PID' lists what the process holds",
        (code::ENOENT, C::SetLvb | C::GetLvb) => STATUS,
        (code::ENOENT, C::LookupRindex | C::UpdateRindex | C::DeleteResource) => ENTRIES,
        (code::EAGAIN, C::Acquire | C::Convert) => {
            "'sanlock who RESOURCE' shows the holders; try again when they have released it"
        }
        (code::EBUSY, C::Acquire) => {
            "try again; if it stays so, name a process that is registered (-p PID): 'sanlock client status' lists them as 'p PID'"
        }
        (code::EBUSY, C::Release | C::Inquire | C::Convert | C::Killpath) => {
            "name a process that is registered (-p PID): 'sanlock client status' lists them as 'p PID'"
        }
        (code::EBUSY, C::RemLockspace) => "'sanlock client status' shows which; stop those processes first",
        (code::EBUSY, C::Shutdown | C::ShutdownWait) => {
            "remove the lockspaces ('sanlock client rem_lockspace'), or use -f 1, which kills their users"
        }
        (code::EBUSY, C::WriteLockspace | C::WriteResource | C::FormatRindex) => {
            "release that lease, or leave that lockspace, on this host first; check the place with 'sanlock direct dump PATH:OFFSET'"
        }
        (code::EBUSY, C::SetEvent) => "try again in a few seconds",
        (code::EEXIST, C::AddLockspace) => {
            "nothing needs to be done, unless acquires give -28: then it has failed, and must end before it can be added anew; \
             'sanlock client status' and 'sanlock top' show what keeps it"
        }
        (code::EEXIST, C::CreateResource | C::UpdateRindex) => {
            "'sanlock client lookup -x RINDEX -e NAME' shows where that is; take another name, or delete it first"
        }
        (code::EEXIST, C::Acquire) => "'sanlock client status' shows which process holds it",
        (code::EINVAL, C::AddLockspace) => {
            "the form is NAME:HOST_ID:PATH:OFFSET, the offset a multiple of the align size; 'sanlock client gets' lists what is joined; \
             the log says what did not fit"
        }
        (code::EINVAL, C::UpdateRindex) => "give both, -e NAME:OFFSET; with -z 1 the name may be missing",
        (code::EINVAL, C::SetConfig) => "give either -u 0|1 or -O 0|1",
        (code::EINVAL, C::SetEvent) => "give -s LOCKSPACE and -i HOST_ID (1 to 2000)",
        (code::EINVAL, C::ReadResourceOwners) => PATH,
        (code::EINVAL, C::SetLvb | C::GetLvb) => "acquire the lease with SANLK_ACQUIRE_LVB",
        (code::ENOSPC, C::WriteLockspace | C::WriteResource | C::FormatRindex | C::CreateResource) => ROOM,
        (code::ENOSPC, C::HostStatus | C::Renewal) => {
            "'sanlock client gets' lists the lockspaces that are joined"
        }
        (code::ENOSPC, C::SetConfig) => "wait until it is gone, then add it again",
        (
            code::SANLK_LEADER_MAGIC
            | code::SANLK_LEADER_VERSION
            | code::SANLK_LEADER_LOCKSPACE
            | code::SANLK_LEADER_CHECKSUM,
            C::Acquire,
        ) => {
            "'sanlock fsck PATH', of the lease and of its lockspace, says which of the two it is, as the daemon's log does; \
             do not initialise anything before"
        }
        (code::E2BIG, C::SetLvb) => "a value block has one sector: 512 or 4096 bytes",
        _ => return None,
    })
}

/// The first step where no daemon could be asked.
pub(super) fn step_without_daemon(result: i32) -> Option<&'static str> {
    match result {
        code::ENOENT | code::ECONNREFUSED => Some(START),
        code::EACCES => Some("run it as root, or as a user in the group of the socket (sanlock)"),
        _ => None,
    }
}
