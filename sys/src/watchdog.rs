//! The ioctls of a watchdog device (`linux/watchdog.h`).
//!
//! What the kernel does with a watchdog file besides: opening starts the timer, any write restarts it, a write that contains
//! `V` lets the next close stop it, and every other close, also that of a dying process, restarts it once more.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The group of these ioctls. How a number is made of it is not the same on all processors.
const GROUP: u32 = b'W' as u32;
const WDIOC_GETSUPPORT: libc::Ioctl = libc::_IOR::<Info>(GROUP, 0);
const WDIOC_KEEPALIVE: libc::Ioctl = libc::_IOR::<libc::c_int>(GROUP, 5);
const WDIOC_SETTIMEOUT: libc::Ioctl = libc::_IOWR::<libc::c_int>(GROUP, 6);
const WDIOC_GETTIMEOUT: libc::Ioctl = libc::_IOR::<libc::c_int>(GROUP, 7);
const WDIOC_SETPRETIMEOUT: libc::Ioctl = libc::_IOWR::<libc::c_int>(GROUP, 8);
const WDIOC_GETPRETIMEOUT: libc::Ioctl = libc::_IOR::<libc::c_int>(GROUP, 9);

/// `struct watchdog_info`.
#[repr(C)]
struct Info {
    options: u32,
    firmware_version: u32,
    identity: [u8; 32],
}

const _: () = assert!(size_of::<Info>() == 40);

/// What a driver says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Support {
    options: u32,
    identity: String,
}

impl Support {
    /// A driver with this name and all features, for tests of what uses one.
    #[must_use]
    pub fn complete(identity: &str) -> Self {
        let options = Self::SETTIMEOUT | Self::MAGICCLOSE | Self::KEEPALIVEPING;
        Self { options, identity: identity.to_owned() }
    }

    /// A driver with this name that tells of no features, for tests.
    #[must_use]
    pub fn silent(identity: &str) -> Self {
        Self { options: 0, identity: identity.to_owned() }
    }

    /// Without magic close, for tests.
    #[must_use]
    pub fn without_magic_close(mut self) -> Self {
        self.options &= !Self::MAGICCLOSE;
        self
    }

    /// With a pretimeout, for tests.
    #[must_use]
    pub fn with_pretimeout(mut self) -> Self {
        self.options |= Self::PRETIMEOUT;
        self
    }

    const SETTIMEOUT: u32 = 0x0080;
    const MAGICCLOSE: u32 = 0x0100;
    const PRETIMEOUT: u32 = 0x0200;
    const KEEPALIVEPING: u32 = 0x8000;

    /// The driver's name for the device, e.g. `i6300ESB timer`.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// A close stops the device only after a `V`. Without this every close stops it, also that of a crashed process.
    #[must_use]
    pub fn magic_close(&self) -> bool {
        self.options & Self::MAGICCLOSE != 0
    }

    /// The timeout can be set.
    #[must_use]
    pub fn set_timeout(&self) -> bool {
        self.options & Self::SETTIMEOUT != 0
    }

    /// The device can warn some time before it fires: with an interrupt that makes most kernels panic.
    #[must_use]
    pub fn pretimeout(&self) -> bool {
        self.options & Self::PRETIMEOUT != 0
    }

    /// The device takes keepalives.
    #[must_use]
    pub fn keepalive(&self) -> bool {
        self.options & Self::KEEPALIVEPING != 0
    }
}

/// What the driver says of itself.
///
/// # Errors
///
/// ENOTTY: not a watchdog device.
pub fn support(fd: BorrowedFd<'_>) -> io::Result<Support> {
    let mut info = Info { options: 0, firmware_version: 0, identity: [0; 32] };
    // SAFETY: the request writes a `struct watchdog_info`, 40 bytes, to the pointer, which is valid for that during the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), WDIOC_GETSUPPORT, &raw mut info) })?;
    let end = info.identity.iter().position(|&byte| byte == 0).unwrap_or(info.identity.len());
    let identity = String::from_utf8_lossy(info.identity.get(..end).unwrap_or(&[])).into_owned();
    Ok(Support { options: info.options, identity })
}

/// Restarts the timer from its full timeout.
///
/// # Errors
///
/// ENOTTY: not a watchdog device. ENODEV: it is gone.
pub fn keepalive(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut ignored: libc::c_int = 0;
    // SAFETY: the request takes a pointer to an int, which it may write to and which is valid during the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), WDIOC_KEEPALIVE, &raw mut ignored) })
}

/// The timeout in force, seconds.
///
/// # Errors
///
/// ENOTTY: not a watchdog device. EOPNOTSUPP: the driver does not tell.
pub fn timeout(fd: BorrowedFd<'_>) -> io::Result<u32> {
    get(fd, WDIOC_GETTIMEOUT)
}

/// How long before it fires the device warns, seconds; 0: not at all.
///
/// # Errors
///
/// ENOTTY: not a watchdog device, or one that does not know of such.
pub fn pretimeout(fd: BorrowedFd<'_>) -> io::Result<u32> {
    get(fd, WDIOC_GETPRETIMEOUT)
}

/// Sets the timeout, seconds, and restarts the timer. Returns what the driver made of it.
///
/// # Errors
///
/// EINVAL: out of the device's range. EOPNOTSUPP: it has only one.
pub fn set_timeout(fd: BorrowedFd<'_>, seconds: u32) -> io::Result<u32> {
    set(fd, WDIOC_SETTIMEOUT, seconds)
}

/// Sets how long before it fires the device warns, seconds; 0: not at all. Returns what the driver made of it.
///
/// # Errors
///
/// EINVAL: not below the timeout. EOPNOTSUPP, ENOTTY: it has none.
pub fn set_pretimeout(fd: BorrowedFd<'_>, seconds: u32) -> io::Result<u32> {
    set(fd, WDIOC_SETPRETIMEOUT, seconds)
}

/// Asks for a number of seconds, with one of the requests above that tell one.
fn get(fd: BorrowedFd<'_>, request: libc::Ioctl) -> io::Result<u32> {
    let mut seconds: libc::c_int = 0;
    // SAFETY: these requests write an int to the pointer, which is valid for that during the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw mut seconds) })?;
    whole(seconds)
}

/// Sets a number of seconds, with one of the requests above that take one.
fn set(fd: BorrowedFd<'_>, request: libc::Ioctl, seconds: u32) -> io::Result<u32> {
    let invalid = |_| io::Error::from_raw_os_error(libc::EINVAL);
    let mut seconds = libc::c_int::try_from(seconds).map_err(invalid)?;
    // SAFETY: these requests read and write an int at the pointer, which is valid for that during the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw mut seconds) })?;
    whole(seconds)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn whole(seconds: libc::c_int) -> io::Result<u32> {
    u32::try_from(seconds)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("timeout of {seconds} s")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::os::fd::AsFd;

    #[test]
    fn what_is_no_watchdog_says_enotty() {
        let null = OpenOptions::new().write(true).open("/dev/null").unwrap();
        let errno = |error: io::Error| error.raw_os_error();
        assert_eq!(support(null.as_fd()).map_err(errno), Err(Some(libc::ENOTTY)));
        assert_eq!(keepalive(null.as_fd()).map_err(errno), Err(Some(libc::ENOTTY)));
        assert_eq!(timeout(null.as_fd()).map_err(errno), Err(Some(libc::ENOTTY)));
        assert_eq!(set_timeout(null.as_fd(), 10).map_err(errno), Err(Some(libc::ENOTTY)));
        assert_eq!(pretimeout(null.as_fd()).map_err(errno), Err(Some(libc::ENOTTY)));
        assert_eq!(set_pretimeout(null.as_fd(), 0).map_err(errno), Err(Some(libc::ENOTTY)));
        assert_eq!(set_timeout(null.as_fd(), u32::MAX).map_err(errno), Err(Some(libc::EINVAL)));
    }

    #[test]
    fn features() {
        let support = Support { options: 0x8180, identity: "x".into() };
        assert!(support.magic_close() && support.set_timeout() && support.keepalive());
        assert!(!support.pretimeout() && support.with_pretimeout().pretimeout());
        let support = Support { options: !0x8180, identity: "x".into() };
        assert!(!support.magic_close() && !support.set_timeout() && !support.keepalive());
    }
}
