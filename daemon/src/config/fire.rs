//! Whether the watchdog fire timeout that a host was given is the one it would go by.
//!
//! All hosts of a lockspace count on one number, in both directions: one that goes by a longer one stops its own processes too late, one that
//! goes by a shorter one takes over too early. So where the file says something about it that is not understood, no default stands in for it,
//! as for other settings: the daemon does not start.

use super::fire_timeout;
use crate::conf::{self, FILE_BYTES_MAX, excerpt};

/// The key of its line.
const KEY: &[u8] = b"watchdog_fire_timeout";

/// What the file says about it that is not understood, or not read: the first such line.
pub(super) fn doubt(file: &[u8]) -> Option<String> {
    if file.len() > FILE_BYTES_MAX {
        return Some(format!(
            "sanlock.conf has more than {FILE_BYTES_MAX} bytes, and what follows them is not read"
        ));
    }
    conf::lines_about(file, KEY).find_map(|(number, line)| {
        let why = match conf::parse_line(number, line) {
            Ok(Some(setting)) if setting.key == KEY => fire_timeout(&setting).err()?,
            Ok(_) => format!("{:?} is no setting, and may be meant for this one", excerpt(line)),
            Err(why) => why,
        };
        Some(format!("sanlock.conf line {number}: {why}"))
    })
}

#[cfg(test)]
mod tests {
    use super::{FILE_BYTES_MAX, doubt};

    #[test]
    fn a_line_that_is_not_understood_leaves_it_unknown() {
        for file in
            ["", "io_timeout = x\n", "watchdog_fire_timeout = 30 # s\n", "# watchdog_fire_timeout = x\n"]
        {
            assert_eq!(doubt(file.as_bytes()), None, "{file}");
        }
        // Of whatever comes later, nobody knows whether it was meant to replace it.
        for line in ["= 30s", "", "=", "= 3", "= 3601", "= -1", "30"] {
            let file = format!("io_timeout = 5\nwatchdog_fire_timeout {line}\nwatchdog_fire_timeout = 30\n");
            let told = doubt(file.as_bytes()).unwrap();
            assert!(told.starts_with("sanlock.conf line 2: "), "{line}: {told}");
        }
        for blank in [" ", "\t"] {
            let told = doubt(format!("{blank}watchdog_fire_timeout = 30\n").as_bytes()).unwrap();
            assert!(told.contains("begins with a blank"), "{told}");
        }
        for line in [
            "watchdog_fire_timeout: 30",
            "watchdog_fire_timeout\u{a0}= 30",
            "watchdog_fire_timeouts = 30",
            "\u{feff}watchdog_fire_timeout = 30",
        ] {
            let told = doubt(line.as_bytes()).unwrap();
            assert!(told.contains("may be meant for this one") || told.contains("no value"), "{told}");
        }
        assert!(doubt(&vec![b'#'; FILE_BYTES_MAX + 1]).is_some());
    }
}
