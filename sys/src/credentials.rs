//! Users and groups: who is at the other end of a socket, and whom this process runs as.

use crate::pidfd::PidFd;
use crate::process::start_time;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials, sockopt::PeerPidfd};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Gid, Group, Uid, User, initgroups, setgid, setuid};
use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;

/// Unit of start times in `/proc`, the same on every architecture we build for (`sysconf(_SC_CLK_TCK)`).
const TICKS_PER_SECOND: u64 = 100;

/// The pid of the process that connected a Unix socket (`SO_PEERCRED`): the process at the time of `connect`, which may
/// have ended since. 0 if it is not visible from this pid namespace.
///
/// # Errors
///
/// ENOTSOCK, ENOPROTOOPT: not a Unix socket.
pub fn peer_pid(socket: &impl AsFd) -> io::Result<i32> {
    Ok(getsockopt(socket, PeerCredentials)?.pid())
}

/// The process that connected a Unix socket, as a descriptor: never another process with a reused pid, where the kernel tells
/// (`SO_PEERPIDFD`, Linux 6.5). Older kernels are asked for the process that has the pid now; if that was started after the
/// connection was accepted, which was at `accepted_ms` after boot ([`crate::clock::boottime_ms`]), it is another one.
///
/// # Errors
///
/// ESRCH: it has ended. EINVAL: not visible from this pid namespace. EMFILE, ENFILE.
pub fn peer_process(socket: &impl AsFd, accepted_ms: u64) -> io::Result<PidFd> {
    match getsockopt(socket, PeerPidfd) {
        Ok(fd) => Ok(PidFd::from_fd(fd)),
        Err(nix::Error::ENOPROTOOPT) => process_since(peer_pid(socket)?, accepted_ms),
        Err(errno) => Err(refused(errno, peer_pid(socket)?)),
    }
}

/// What it means that the kernel gives no descriptor for the process with this pid.
fn refused(errno: nix::Error, pid: i32) -> io::Error {
    match errno {
        // What kernels have answered for a process that is gone.
        nix::Error::ESRCH | nix::Error::ENODATA => nix::Error::ESRCH.into(),
        // The same, from Linux 6.5 on for some time. It also means that the process is not visible; then it has no pid either.
        nix::Error::EINVAL if pid > 0 => nix::Error::ESRCH.into(),
        errno => errno.into(),
    }
}

/// The process that has this pid, if it had it at `ms` after boot already. A clock tick is 10 ms: a process started within the
/// tick in question counts as having had it.
fn process_since(pid: i32, ms: u64) -> io::Result<PidFd> {
    let process = PidFd::open(pid)?;
    let start = start_time(pid);
    started_by(process, start, ms)
}

/// Whether a process, whose start `/proc` was asked for after it was opened, is there since `ms` after boot.
fn started_by(process: PidFd, start: io::Result<u64>, ms: u64) -> io::Result<PidFd> {
    // The descriptor was opened first: if the pid has changed hands since, the process it stands for is gone.
    if process.is_gone()? {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    match start {
        Ok(ticks) if ticks > ms.saturating_mul(TICKS_PER_SECOND) / 1000 => {
            Err(io::Error::from_raw_os_error(libc::ESRCH))
        }
        Ok(_) => Ok(process),
        // It lives, and /proc does not show it to this user (hidepid). That its pid had another owner a moment ago is so unlikely that it must
        // not keep the process from being stopped.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
            Ok(process)
        }
        Err(error) => Err(error),
    }
}

/// A numeric user id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserId(pub u32);

/// A numeric group id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupId(pub u32);

/// Finds a user by name, else by number if the text is one; `None` if there is no such user. A number need not be in
/// the user database.
///
/// # Errors
///
/// The user database could not be read.
pub fn find_user(name_or_number: &str) -> io::Result<Option<UserId>> {
    let named = if name_or_number.contains('\0') { None } else { User::from_name(name_or_number)? };
    Ok(named.map(|user| user.uid.as_raw()).or_else(|| number(name_or_number)).map(UserId))
}

/// The name of a user, if the user database has one.
///
/// # Errors
///
/// The user database could not be read.
pub fn user_name(user: UserId) -> io::Result<Option<String>> {
    Ok(User::from_uid(Uid::from_raw(user.0))?.map(|found| found.name))
}

/// Finds a group by name, else by number; see [`find_user`].
///
/// # Errors
///
/// The group database could not be read.
pub fn find_group(name_or_number: &str) -> io::Result<Option<GroupId>> {
    let named = if name_or_number.contains('\0') { None } else { Group::from_name(name_or_number)? };
    Ok(named.map(|group| group.gid.as_raw()).or_else(|| number(name_or_number)).map(GroupId))
}

/// Digits only, and not -1, which the kernel takes as "do not change".
fn number(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|&id| digits && id != u32::MAX)
}

/// Gives the process the supplementary groups of a user, and `group` besides.
///
/// # Errors
///
/// EPERM: not privileged. EINVAL: a NUL byte in the name.
pub fn set_supplementary_groups(user: &str, group: GroupId) -> io::Result<()> {
    let user = CString::new(user).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    Ok(initgroups(&user, Gid::from_raw(group.0))?)
}

/// Changes the group of all threads, for good. Before [`set_user`], which gives up the right to.
///
/// # Errors
///
/// EPERM: not privileged.
pub fn set_group(group: GroupId) -> io::Result<()> {
    Ok(setgid(Gid::from_raw(group.0))?)
}

/// Changes the user of all threads, for good.
///
/// # Errors
///
/// EPERM: not privileged. EAGAIN: the user's limit of processes.
pub fn set_user(user: UserId) -> io::Result<()> {
    Ok(setuid(Uid::from_raw(user.0))?)
}

/// A file mode mask set for a while. The mask belongs to the process: other threads that make files meanwhile see it too.
#[derive(Debug)]
#[must_use = "the old mask comes back when this is dropped"]
pub struct UmaskGuard(Mode);

impl UmaskGuard {
    /// Sets the mask; bits beyond 0777 are ignored.
    pub fn set(mask: u32) -> Self {
        Self(umask(Mode::from_bits_truncate(mask)))
    }
}

impl Drop for UmaskGuard {
    fn drop(&mut self) {
        umask(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_peer_process_is_the_one_that_connected() {
        let (one, _other) = UnixStream::pair().unwrap();
        let process = peer_process(&one, u64::MAX).unwrap();
        assert!(!process.is_gone().unwrap());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let script =
            "import socket,sys,time; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); time.sleep(60)";
        let mut child =
            std::process::Command::new("python3").args(["-c", script]).arg(&path).spawn().unwrap();
        let (stream, _) = listener.accept().unwrap();
        let process = peer_process(&stream, u64::MAX).unwrap();
        assert!(!process.is_gone().unwrap());
        process.send_signal(nix::sys::signal::Signal::SIGKILL).unwrap();
        child.wait().unwrap();
        match peer_process(&stream, u64::MAX) {
            Ok(process) => assert!(process.is_gone().unwrap()),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ESRCH)),
        }
    }

    #[test]
    fn a_peer_that_is_gone_is_told_from_one_that_is_not_visible() {
        for errno in [nix::Error::ESRCH, nix::Error::ENODATA, nix::Error::EINVAL] {
            assert_eq!(refused(errno, 4711).raw_os_error(), Some(libc::ESRCH), "{errno}");
        }
        assert_eq!(refused(nix::Error::EINVAL, 0).raw_os_error(), Some(libc::EINVAL));
        assert_eq!(refused(nix::Error::EMFILE, 4711).raw_os_error(), Some(libc::EMFILE));
    }

    #[test]
    fn a_process_started_after_the_connection_is_another_one() {
        let accepted = crate::clock::boottime_ms();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert_eq!(process_since(pid, accepted).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        assert!(!process_since(pid, crate::clock::boottime_ms()).unwrap().is_gone().unwrap());
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(process_since(own, accepted).is_ok());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// With `hidepid`, who is not root sees no process of another user in `/proc`.
    #[test]
    fn a_process_that_proc_does_not_show_is_taken_as_it_is() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let open = || PidFd::open(pid).unwrap();
        let hidden = |errno| Err(io::Error::from_raw_os_error(errno));
        let held = open();
        for errno in [libc::ENOENT, libc::EPERM, libc::EACCES] {
            assert!(!started_by(open(), hidden(errno), 0).unwrap().is_gone().unwrap(), "{errno}");
        }
        assert_eq!(started_by(open(), hidden(libc::EIO), 0).unwrap_err().raw_os_error(), Some(libc::EIO));
        assert_eq!(started_by(open(), Ok(1), 0).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        child.kill().unwrap();
        child.wait().unwrap();
        let gone = started_by(held, hidden(libc::ENOENT), 0).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn the_peer_of_a_socket_pair_is_this_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(peer_pid(&one).unwrap(), i32::try_from(std::process::id()).unwrap());
        assert!(peer_pid(&std::fs::File::open("/dev/null").unwrap()).is_err());
    }

    #[test]
    fn users_and_groups_by_name_and_number() {
        assert_eq!(find_user("root").unwrap(), Some(UserId(0)));
        assert_eq!(find_group("root").unwrap(), Some(GroupId(0)));
        assert_eq!(find_user("4711").unwrap(), Some(UserId(4711)));
        for text in ["", "no-such-user", "-1", "+1", "4294967295", "4294967296", "1 ", "ro\0ot"] {
            assert_eq!(find_user(text).unwrap(), None, "{text}");
            assert_eq!(find_group(text).unwrap(), None, "{text}");
        }
    }

    #[test]
    fn own_ids_may_always_be_set() {
        set_group(GroupId(nix::unistd::getgid().as_raw())).unwrap();
        set_user(UserId(nix::unistd::getuid().as_raw())).unwrap();
    }

    #[test]
    fn the_mask_comes_back() {
        let before = umask(Mode::from_bits_truncate(0o022));
        {
            let _mask = UmaskGuard::set(0o057);
            assert_eq!(umask(Mode::from_bits_truncate(0o057)).bits(), 0o057);
        }
        assert_eq!(umask(before).bits(), 0o022);
    }
}
