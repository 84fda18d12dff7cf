//! What to do about a failure: the line that follows 3.8.5's own words on stderr, as `sanlock` has one (docs/decisions/0013-explanations.md).

use crate::say;

/// No device can be used.
const NO_DEVICE: &str = "as root load the driver of this machine's watchdog, or softdog where there is none ('modprobe softdog'), and \
     end other programs that have the device open; 'sanlock check' shows what each device can do";
/// The device given with `-w` cannot be used, and no other one is tried.
const NOT_THE_NAMED: &str = "give a watchdog device after -w that no other program has open, its path or its name in /sys/class/watchdog ('sanlock check' shows \
     what each can do), or leave -w out: then the usual ones are tried";
/// A device is not tried beside a daemon, nor after one that was killed.
pub(crate) const IN_USE: &str = "'wdmd -d' asks the daemon that runs; if none does, one ended without stopping its device, and this host will be \
     reset: reboot it";
/// The marker of a daemon that did not stop its device.
pub(crate) const UNCLEAN: &str =
    "reboot; only if the device is certainly not running, remove /dev/shm/wdmd and start wdmd again";
/// The marker cannot be made, for another reason than that it is there.
pub(crate) const MARKER: &str =
    "start it as root, with a /dev/shm that can be written, and nothing mounted on /dev/shm/wdmd";
/// Another daemon runs.
pub(crate) const RUNNING: &str =
    "'wdmd -d' asks the daemon that runs; one is enough for all programs of this host";
/// The run directory, the pid file or the socket cannot be made.
pub(crate) const FILES: &str =
    "start it as root; check what lies there, that /run can be written and has room";
/// Threads, descriptors or processes are lacking.
pub(crate) const LIMITS: &str =
    "check the limits of processes, memory and descriptors ('ulimit -a', TasksMax of the unit)";
/// A daemon that ran could not go on.
pub(crate) const ENDED: &str = "the device may be running and reset this host: end what uses it, and reboot; the system log tells what came before";

/// No device can be used; `named`: whether one was given with `-w`, beside which no other is tried.
pub(crate) fn no_device(named: bool) -> &'static str {
    if named { NOT_THE_NAMED } else { NO_DEVICE }
}

/// The line.
pub(crate) fn line(step: &str) -> String {
    format!("wdmd: next: {step}")
}

/// Prints the line.
pub(crate) fn tell(step: &str) {
    say::err(line(step));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_was_named_is_spoken_of() {
        assert!(no_device(true).contains("after -w") && !no_device(true).contains("modprobe"));
        assert!(no_device(false).contains("modprobe"));
    }
}
