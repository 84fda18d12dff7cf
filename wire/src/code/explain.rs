//! Plain words for people (command-line.md 5.4): the same number means different things to different commands.

use crate::code;
use crate::command::Command;

/// What a failed command's result usually means, as a phrase without full stop. `None` for 0, positive numbers and codes
/// without a known cause.
///
/// `command` is the command that was answered, or `None` when the failure came before one could be sent.
///
/// ```
/// use sanlock_wire::{Command, code};
/// assert_eq!(code::explain(-28, Some(Command::Acquire)), Some("the lockspace is not joined, or it has failed or is being left"));
/// ```
#[must_use]
pub fn explain(code: i32, command: Option<Command>) -> Option<&'static str> {
    command.and_then(|command| specific(code, command)).or_else(|| general(code))
}

/// Where the command decides.
fn specific(result: i32, command: Command) -> Option<&'static str> {
    use Command as C;
    Some(match (result, command) {
        (-1, C::AddLockspace) => "the daemon is being shut down",
        (-1, C::Release) => "a named lease is not held by this process",
        (-1, C::WriteLockspace | C::WriteResource | C::FormatRindex) => {
            "sector and align size must be given together and fit each other"
        }
        (code::ENOENT, C::InqLockspace | C::RemLockspace) => {
            "no lockspace with this name, host id, path and offset is joined"
        }
        (
            code::ENOENT,
            C::GetHosts
            | C::RegEvent
            | C::EndEvent
            | C::SetEvent
            | C::SetConfig
            | C::SetHost
            | C::RebuildRindex,
        ) => "the lockspace is not joined, or there is no such entry or file",
        (code::ENOENT, C::LookupRindex | C::UpdateRindex | C::DeleteResource) => {
            "there is no such entry, or no such file, or the lockspace is not joined"
        }
        (code::ENOENT, C::CreateResource) => {
            "the index is full, or there is no such file, or the lockspace is not joined"
        }
        (code::ENOENT, C::Convert) => "the process does not hold this lease",
        (code::ENOENT, C::SetLvb | C::GetLvb) => "no process of this host holds this lease",
        (code::ENOENT, C::Acquire) => "the lease file does not exist, or there is no orphan to adopt",
        (code::ENOENT, C::Request | C::WriteResource | C::ReadResource | C::ReadResourceOwners) => {
            "the lease file does not exist"
        }
        (code::ENOENT, C::FormatRindex) => "the file or device of the index does not exist",
        (code::EAGAIN, C::Acquire) => {
            "the lease is still being released by this host, or other hosts hold it shared"
        }
        (code::EAGAIN, C::Convert) => "others hold the lease shared",
        (code::EAGAIN, C::GetHosts) => "the host table is not filled yet; try again in a moment",
        (code::EAGAIN, C::AddLockspace) => "the lockspace is being removed; try again when that is done",
        (code::EBUSY, C::Acquire) => {
            "the target is not a registered process, is being killed, or is busy with another command, or another process of this host is \
             acquiring this lease at this moment"
        }
        (code::EBUSY, C::Release | C::Inquire | C::Convert | C::Killpath) => {
            "the target is not a registered process, is being killed, or is busy with another command"
        }
        (code::EBUSY, C::RemLockspace) => "leases of the lockspace are in use on this host",
        (code::EBUSY, C::Shutdown | C::ShutdownWait) => {
            "lockspaces are joined; force the shutdown or remove them"
        }
        (code::EBUSY, C::WriteLockspace | C::WriteResource | C::FormatRindex) => {
            "refused: something there is in use by this daemon; its log says what"
        }
        (code::EBUSY, C::SetEvent) => "another event is still being shown to the host",
        (code::EEXIST, C::AddLockspace) => "the lockspace is joined already",
        (code::EEXIST, C::Acquire) => "the lease is held on this host already",
        (code::EEXIST, C::CreateResource | C::UpdateRindex) => "the index has an entry of this name already",
        (code::EINVAL, C::AddLockspace) => {
            "name, host id or path is missing, the offset is not aligned, or a lockspace of this name or place is joined with other values"
        }
        (code::EINVAL, C::SetLvb | C::GetLvb) => "the lease was acquired without its lock value block",
        (code::EINVAL, C::ReadResourceOwners) => {
            "the sizes do not fit the lease, or nothing is initialised there"
        }
        (code::EINVAL, C::UpdateRindex) => {
            "the offset of the entry is missing, or its name, or the offset of the index is not aligned"
        }
        (code::EINVAL, C::SetConfig) => "not exactly one configuration command",
        (code::EINVAL, C::SetEvent) => "the name is missing, or the host id is out of range",
        (code::ENOSPC, C::Acquire | C::Request) => {
            "the lockspace is not joined, or it has failed or is being left"
        }
        (code::ENOSPC, C::WriteLockspace | C::WriteResource | C::FormatRindex) => "the storage is full",
        (code::ENOSPC, C::CreateResource) => {
            "the storage is full, or the lockspace has failed or is being left"
        }
        (code::ENOSPC, C::HostStatus | C::Renewal) => "no such lockspace",
        (code::ENOSPC, C::SetConfig) => "the lockspace is failing or being removed",
        (code::E2BIG, C::Acquire | C::Release) => "too many resources in one request",
        (code::E2BIG, C::SetLvb) => "more bytes than a lock value block can hold",
        (code::ENOTTY, C::Acquire) => {
            "the process ended while its lease was being acquired; the lease is released"
        }
        (code::EMSGSIZE, C::WriteLockspace | C::WriteResource | C::FormatRindex) => {
            "written beyond the end of the storage"
        }
        (code::SANLK_LEADER_MAGIC, C::AddLockspace | C::ReadLockspace) => "no lockspace is initialised there",
        (code::SANLK_LEADER_LOCKSPACE, C::AddLockspace | C::ReadLockspace) => {
            "the lockspace on disk has another name"
        }
        // An acquire reads the lease, and of a lease that has an owner his record in the lockspace.
        (code::SANLK_LEADER_MAGIC, C::Acquire) => {
            "no lease is initialised at the place of this lease, or of its owner's host id record"
        }
        (code::SANLK_LEADER_VERSION, C::Acquire) => {
            "the record of this lease, or its owner's host id record, has a format version that is not understood"
        }
        (code::SANLK_LEADER_LOCKSPACE, C::Acquire) => {
            "the record of this lease, or its owner's host id record, is of another lockspace"
        }
        (code::SANLK_LEADER_CHECKSUM, C::Acquire) => {
            "the record of this lease, or its owner's host id record, is damaged (checksum)"
        }
        (code::SANLK_ERROR, C::AddLockspace) => "joining was given up because the lockspace is being removed",
        _ => return None,
    })
}

/// Where it does not.
fn general(result: i32) -> Option<&'static str> {
    Some(match result {
        -1 => "the daemon gave no complete answer, or refused without a reason",
        code::ENOENT => "no daemon socket (is the daemon running?), or no such file",
        code::ESRCH => "no registered process with this pid",
        -4 => "interrupted by a signal",
        code::EIO => "input/output error on the lease",
        code::ENXIO => "the resource string is too short",
        code::E2BIG => "too many resources or bytes",
        -9 => "a disk of the lease is not open",
        code::EAGAIN => "not possible right now; try again",
        code::ENOMEM => "out of memory",
        code::EACCES => "no permission on the daemon socket or on the lease file",
        -14 => "a buffer that the kernel cannot use",
        code::EBUSY => "busy with something else",
        code::EEXIST => "exists already",
        code::ENODEV => "the path cannot be opened, or is empty",
        -20 => "a part of the path is no directory",
        -21 => "the path is a directory",
        code::EINVAL => "wrong arguments, an offset that is not aligned, or storage without direct I/O",
        -23 => "too many open files in the system",
        -24 => "too many open files in this process",
        code::ENOTTY => "the process ended meanwhile",
        -27 => "the file would become too large",
        code::ENOSPC => "the lockspace is not joined, or there is no space",
        -30 => "the storage is read-only",
        code::EPIPE | code::ECONNRESET => "the daemon closed the connection",
        code::ERANGE => "a resource names no disk or more than 4",
        -36 => "the path is too long",
        -38 => "the kernel does not allow the system call",
        -40 => "too many symbolic links in the path",
        code::ENOCSI => "no place for another event stream in this lockspace",
        -52 => "the storage refuses this host: a SCSI reservation",
        -61 => "the disk reports a bad sector",
        -62 | -110 => "no answer in time",
        -67 => "the link to the storage is lost",
        -71 => "a violation of the protocol",
        -75 => "a number that is too large",
        code::ELIBACC | code::ELIBBAD | code::ELIBSCN => {
            "the daemon cannot show a path with blanks or of this length"
        }
        -84 => "the storage's checksums of the data do not fit",
        code::EMSGSIZE => "read beyond the end of the storage",
        code::EOPNOTSUPP => "the daemon does not support this command",
        -98 => "the address is in use",
        code::ENOTCONN => "the request was cut short",
        code::ECONNREFUSED => "the socket file exists, but no daemon listens (it is not running)",
        -113 => "the storage or server cannot be reached",
        code::EALREADY => "already so",
        code::EINPROGRESS => "the lockspace is being added or removed",
        code::ESTALE => "the process hung up meanwhile",
        code::EUCLEAN => "the lease is an orphan on this host; it can be adopted",
        -121 => "the storage reports an error",
        -122 => "the quota is used up",
        -123 => "there is no medium in the drive",
        -125 => "the operation was cancelled",
        _ => return sanlk(result),
    })
}

/// The `SANLK_*` codes.
fn sanlk(result: i32) -> Option<&'static str> {
    Some(match result {
        code::SANLK_ERROR => "general error",
        code::SANLK_AIO_TIMEOUT => "the storage did not answer within the io timeout",
        code::SANLK_WD_ERROR => "the watchdog daemon is not usable",
        code::SANLK_VERSION_INCOMPAT => "the version on disk is too old for the operation",
        code::SANLK_DBLOCK_READ => "reading the ballot records failed",
        code::SANLK_DBLOCK_WRITE => "writing the ballot record failed",
        code::SANLK_DBLOCK_LVER
        | code::SANLK_DBLOCK_MBAL
        | code::SANLK_ACQUIRE_OWNED
        | code::SANLK_ACQUIRE_OTHER => "another host won the race for the lease",
        code::SANLK_DBLOCK_CHECKSUM => "a ballot record is damaged",
        code::SANLK_LEADER_READ => "reading the lease failed",
        code::SANLK_LEADER_WRITE => "writing the lease failed",
        code::SANLK_LEADER_DIFF => "two reads of the lease differ",
        code::SANLK_LEADER_MAGIC => "no lease is initialised there",
        code::SANLK_LEADER_VERSION => "the lease has a format version that is not understood",
        code::SANLK_LEADER_SECTORSIZE => "the lease has another sector size",
        code::SANLK_LEADER_LOCKSPACE => "the lease belongs to another lockspace",
        code::SANLK_LEADER_RESOURCE => "the lease has another resource name",
        code::SANLK_LEADER_NUMHOSTS => {
            "the lease was made for fewer hosts (-n) than this host's id, or its number of hosts is wrong"
        }
        code::SANLK_LEADER_CHECKSUM => "the lease is damaged (checksum)",
        code::SANLK_ADDLS_SIZES => "sector and align size of the lockspace do not fit each other",
        code::SANLK_ADDLS_INVALID_HOSTID => "the host id is larger than the lockspace allows",
        code::SANLK_ACQUIRE_LVER => "the lease version on disk differs from the requested one",
        code::SANLK_ACQUIRE_LOCKSPACE => "the state of the owner is unknown",
        code::SANLK_ACQUIRE_IDDISK => "the lockspace's disk cannot be opened",
        code::SANLK_ACQUIRE_IDLIVE => "the lease is held by another host, which is alive",
        code::SANLK_ACQUIRE_SHRETRY => "other hosts kept the lease busy during the shared acquire",
        code::SANLK_ACQUIRE_OWNED_RETRY => "the owner looks dead, but its time has not run out yet",
        code::SANLK_ACQUIRE_OWNER_GEN_REVERTED => "the owner's generation went backwards",
        code::SANLK_ACQUIRE_OWNED_NO_TIMEOUT => "the owner's lease never times out",
        code::SANLK_RELEASE_LVER | -252 => "the lease on disk has another version than this host acquired",
        code::SANLK_RELEASE_OWNER | -253 => "the lease on disk belongs to another owner",
        code::SANLK_RENEW_OWNER => "the host id on disk belongs to another owner",
        code::SANLK_RENEW_DIFF => "the host id record on disk was changed by someone else",
        code::SANLK_HOSTID_BUSY => "the host id is in use by another host",
        code::SANLK_RENEW_DEAD_EXT => "this host was marked dead by another one",
        code::SANLK_REQUEST_MAGIC => "no request record is initialised there",
        code::SANLK_REQUEST_VERSION => "the request record has a version that is not understood",
        code::SANLK_REQUEST_OLD => "the requested version is not greater than the one held",
        code::SANLK_REQUEST_LVER => "a request with a greater version is recorded already",
        code::SANLK_RINDEX_MAGIC => "no resource index is initialised there",
        code::SANLK_RINDEX_VERSION => "the resource index has a version that is not understood",
        code::SANLK_RINDEX_LOCKSPACE => "the resource index belongs to another lockspace",
        code::SANLK_RINDEX_OFFSET => "the offset is not that of the resource index, or is not aligned",
        code::SANLK_RINDEX_DIFF => "the entry on disk differs",
        code::SANLK_WRONG_GENERATION => "the given generation is older than the one on disk",
        code::SANLK_CAW_ILLEGAL..=code::SANLK_WRONG_CAW => {
            "compare-and-write failed or is not configured alike"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sanlk_code_is_explained() {
        for number in -299..=-201 {
            assert_eq!(explain(number, None).is_some(), code::name(number).is_some(), "{number}");
        }
    }

    #[test]
    fn the_command_decides() {
        assert_ne!(explain(-17, Some(Command::AddLockspace)), explain(-17, Some(Command::Acquire)));
        assert_eq!(explain(-243, Some(Command::Acquire)), general(-243));
        assert_eq!(explain(0, Some(Command::Acquire)), None);
        assert_eq!(explain(5, None), None);
    }

    #[test]
    fn renumbered_results_are_explained_alike() {
        assert_eq!(explain(-252, None), explain(code::SANLK_RELEASE_LVER, None));
        assert_eq!(explain(-253, None), explain(code::SANLK_RELEASE_OWNER, None));
        assert!(explain(-250, None).is_some() && explain(-250, None) != explain(-251, None));
    }
}
