//! The file system that a lease file lies on.

use super::finding::Findings;
use super::root::Root;
use sanlock_blockio::unescape_mount;
use sanlock_lease::timing::IoTimeout;
use std::path::Path;

/// A line of `/proc/self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// Where it is mounted.
    pub(super) point: String,
    /// `MAJOR:MINOR` of what it lies on.
    pub(super) device: String,
    /// `ext4`, `nfs4` …
    pub(super) kind: String,
    /// What is mounted.
    pub(super) source: String,
    /// Options of the mount and of the file system.
    options: Vec<String>,
}

/// Default number of tenths of a second that an NFS client waits for a reply, over TCP (nfs(5)).
const NFS_TIMEO: u64 = 600;
/// Default number of times that it asks again.
const NFS_RETRANS: u64 = 2;
/// Tenths of a second after which it gives up at the latest, over TCP.
const NFS_TCP_MAX: u64 = 6000;
/// The same over UDP.
const NFS_UDP_MAX: u64 = 600;

impl Mount {
    /// The file system that holds this path, which is absolute and has no links in it.
    pub(super) fn of(root: &Root, path: &Path) -> Option<Self> {
        let info = root.text("/proc/self/mountinfo")?;
        // Of two on one place the later one hides the earlier one.
        info.lines()
            .filter_map(Self::parse)
            .filter(|mount| path.starts_with(&mount.point))
            .max_by_key(|mount| Path::new(&mount.point).components().count())
    }

    fn parse(line: &str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let (mut before, mut after) = (before.split(' '), after.split(' '));
        let device = before.nth(2)?.to_owned();
        let point = unescaped(before.nth(1)?);
        let options = before.next()?;
        let (kind, source) = (after.next()?.to_owned(), unescaped(after.next()?));
        let all = options.split(',').chain(after.next().unwrap_or_default().split(','));
        Some(Self { point, device, kind, source, options: all.map(str::to_owned).collect() })
    }

    fn has(&self, option: &str) -> bool {
        self.options.iter().any(|o| o == option)
    }

    fn value(&self, key: &str) -> Option<&str> {
        self.options.iter().filter_map(|o| o.strip_prefix(key)?.strip_prefix('=')).next_back()
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.value(key)?.parse().ok()
    }

    pub(super) fn is_nfs(&self) -> bool {
        matches!(self.kind.as_str(), "nfs" | "nfs4")
    }

    /// What its kind and options mean for leases.
    pub(super) fn judge(&self, io_timeout: IoTimeout, found: &mut Findings) {
        let seen = |what: &str| format!("{} on {} ({}): {what}", self.kind, self.point, self.source);
        if self.has("ro") {
            found.problem(
                "mounted-read-only",
                seen("mounted read-only"),
                "every renewal writes",
                "mount it read-write, and find out why it is not: after errors some file systems make themselves read-only",
            );
        }
        match self.kind.as_str() {
            "tmpfs" | "ramfs" => found.problem(
                "in-memory",
                seen("a file system in memory"),
                "no other host sees it, and it is gone after a reset",
                "put the leases on storage that all hosts share",
            ),
            "overlay" | "aufs" | "squashfs" => found.problem(
                "layered",
                seen("a layered file system, as in containers"),
                "a lease file in it is a private copy of this container",
                "mount the shared storage into the container",
            ),
            _ if self.is_nfs() => self.judge_nfs(io_timeout, found),
            "ext2" | "ext3" | "ext4" | "xfs" | "btrfs" | "zfs" | "f2fs" | "vfat" => found.note(
                "one-host",
                seen("a file system for one host"),
                "mounted on two hosts at once it is destroyed, so only hosts and containers on this machine can share leases in it",
                "for several machines use a block device, an LV, NFS or a cluster file system",
            ),
            _ => {}
        }
    }

    fn judge_nfs(&self, io_timeout: IoTimeout, found: &mut Findings) {
        let seen = |what: String| format!("{} on {} ({}): {what}", self.kind, self.point, self.source);
        let (budget, timeout) = (io_timeout.renewal_fail_secs(), io_timeout.secs());
        let over_udp = self.value("proto").is_some_and(|proto| proto.starts_with("udp"));
        if over_udp {
            found.warning(
                "nfs-udp",
                seen("mounted over UDP".to_owned()),
                "a lost packet costs seconds, and damaged data can get through",
                "mount with proto=tcp",
            );
        }
        let tenths = self.number("timeo").unwrap_or(NFS_TIMEO);
        let retrans = self.number("retrans").unwrap_or(NFS_RETRANS);
        let seconds = gives_up_after(over_udp, tenths, retrans);
        if !self.has("soft") && !self.has("softerr") {
            found.note(
                "nfs-hard",
                seen("mounted hard, the default".to_owned()),
                "while the server is gone, I/O of programs that use the storage does not end; they can be killed, but take their time, and the watchdog has the last word",
                "nothing; soft mounts with a timeout are for those who know that their programs survive I/O errors",
            );
        } else if seconds < timeout {
            found.warning(
                "nfs-gives-up-early",
                seen(format!("soft, gives up after {seconds} s (timeo={tenths}, retrans={retrans})")),
                &format!(
                    "a server that is away for a moment gives I/O errors to every program on it, long before sanlock gives up ({budget} s)"
                ),
                &format!("raise timeo and retrans until the time is between {timeout} and {budget} s"),
            );
        } else if seconds > budget {
            found.note(
                "nfs-gives-up-late",
                seen(format!("soft, gives up after {seconds} s (timeo={tenths}, retrans={retrans})")),
                &format!(
                    "I/O of programs goes on for longer than their leases live ({budget} s without renewal)"
                ),
                "lower timeo or retrans",
            );
        }
    }
}

/// Seconds, rounded down, after which the client of a soft mount gives a request up, with `timeo` in tenths of a second.
///
/// That time is fixed when the request begins: over TCP `timeo` once, and once more for each retransmission; over UDP `timeo`, doubled for
/// each. The waits between the retransmissions become longer and do not add up to it.
fn gives_up_after(over_udp: bool, timeo: u64, retrans: u64) -> u64 {
    let (times, most) = if over_udp {
        let doubled = u32::try_from(retrans).ok().and_then(|times| 1_u64.checked_shl(times));
        (doubled.unwrap_or(u64::MAX), NFS_UDP_MAX)
    } else {
        (retrans.saturating_add(1), NFS_TCP_MAX)
    };
    timeo.saturating_mul(times).min(most) / 10
}

/// What it is without the octal numbers for blanks.
fn unescaped(text: &str) -> String {
    String::from_utf8_lossy(&unescape_mount(text.as_bytes())).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_mountinfo() {
        let line = "36 35 0:52 /export /mnt/a\\040b rw,relatime shared:1 - nfs4 srv:/x rw,vers=4.2,soft,timeo=100,retrans=3";
        let mount = Mount::parse(line).unwrap();
        assert_eq!(
            (mount.point.as_str(), mount.device.as_str(), mount.kind.as_str()),
            ("/mnt/a b", "0:52", "nfs4")
        );
        assert_eq!(
            (mount.number("timeo"), mount.value("vers"), mount.has("soft")),
            (Some(100), Some("4.2"), true)
        );
        assert_eq!(Mount::parse("36 35 0:52"), None);
        assert_eq!(Mount::parse(""), None);
    }

    /// The Linux client's major timeout (`nfs_init_timeout_values`, `xprt_calc_majortimeo`).
    #[test]
    fn a_soft_mount_gives_up_when_the_kernel_does() {
        const TCP: bool = false;
        const UDP: bool = true;
        for (over_udp, timeo, retrans, seconds) in [
            (TCP, 600, 2, 180),
            (TCP, 600, 0, 60),
            (TCP, 25, 2, 7),
            (TCP, 50, 2, 15),
            (TCP, 100, 1, 20),
            (TCP, 150, 3, 60),
            (TCP, 600, 9, 600),
            (TCP, 600, 10, 600),
            (TCP, 9000, 0, 600),
            (TCP, u64::MAX, u64::MAX, 600),
            (UDP, 11, 3, 8),
            (UDP, 7, 4, 11),
            (UDP, 7, 0, 0),
            (UDP, 600, 2, 60),
            (UDP, 1, 63, 60),
            (UDP, 1, 64, 60),
            (UDP, 1, u64::MAX, 60),
        ] {
            let found = gives_up_after(over_udp, timeo, retrans);
            assert_eq!(found, seconds, "UDP {over_udp}, timeo={timeo}, retrans={retrans}");
        }
    }
}
