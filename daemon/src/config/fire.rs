//! Whether the watchdog fire timeout that a host was given is the one it would go by.
//!
//! All hosts of a lockspace count on one number, in both directions: one that goes by a longer one stops its own processes too late, one that
//! goes by a shorter one takes over too early. So where the file says something about it that is not understood, no default stands in for it,
//! as for other settings: the daemon does not start.

use super::fire_timeout;
use crate::conf;

/// The key of its line.
const KEY: &[u8] = b"watchdog_fire_timeout";

/// What the file says about it that is not understood: the first such line.
pub(super) fn doubt(file: &[u8]) -> Option<String> {
    conf::lines_about(file, KEY).find_map(|(number, line)| {
        let read =
            conf::parse_line(number, line).and_then(|setting| setting.map(|s| fire_timeout(&s)).transpose());
        read.err().map(|why| format!("sanlock.conf line {number}: {why}"))
    })
}

#[cfg(test)]
mod tests {
    use super::doubt;

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
    }
}
