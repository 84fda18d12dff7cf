//! What the running kernel does differently from others.

use nix::sys::utsname::uname;

/// The first release of which this is known.
const FAULTS_WITHOUT_LOCK: (u32, u32) = (6, 12);

/// Whether a fault that makes memory is served under the lock of its mapping alone, the first one in a mapping too. Otherwise it may hold the lock on
/// all of the process's memory while it looks for pages, and whoever maps memory waits for it. `false` if it cannot be told.
#[must_use]
pub fn faults_hold_no_lock() -> bool {
    let release = uname().ok().and_then(|names| release(names.release().to_str()?));
    release.is_some_and(|release| release >= FAULTS_WITHOUT_LOCK)
}

/// The first two numbers of `6.1.0-18-amd64`.
fn release(text: &str) -> Option<(u32, u32)> {
    let (major, rest) = text.split_once('.')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Some((major.parse().ok()?, rest.get(..digits)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_its_first_two_numbers() {
        for (text, expected) in [
            ("6.1.0-18-amd64", Some((6, 1))),
            ("6.12", Some((6, 12))),
            ("6.18.5+rpt", Some((6, 18))),
            ("10.0-rc1", Some((10, 0))),
            ("6.x", None),
            ("6", None),
            ("", None),
        ] {
            assert_eq!(release(text), expected, "{text}");
        }
        assert!(
            (6, 12) >= FAULTS_WITHOUT_LOCK && (6, 9) < FAULTS_WITHOUT_LOCK && (10, 0) >= FAULTS_WITHOUT_LOCK
        );
    }

    #[test]
    fn the_running_kernel_has_a_release() {
        assert!(release(uname().unwrap().release().to_str().unwrap()).is_some());
    }
}
