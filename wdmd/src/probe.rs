//! `--probe` and `--trytimeout` (specification 4.8, 4.9): finding out what a device does, with no daemon running.

use crate::device::{self, Factor, Handle, errno};
use crate::marker::Marker;
use crate::next;
use crate::sysfs::Described;
use sanlock_sys::clock::civil_now;
use sanlock_wdmd::decide::{Timing, wanted_device_timeout};
use sanlock_wdmd::protocol::DEFAULT_FIRE_TIMEOUT;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

/// Nothing was found, or nothing may be tried.
const FAILURE: u8 = 1;
const NO_DEVICE: &str = "no watchdog device, load a watchdog driver";
/// How much longer than its timeout a device is waited for, seconds.
const OVERTIME: u32 = 4;

/// Prints the path of the first device that works with the default fire timeout.
pub(crate) fn probe(named: Option<&OsStr>) -> u8 {
    try_devices(named, probe_one)
}

/// Tries the first device that takes `timeout`, and reports every step; then waits for it to reset this host, if asked to.
pub(crate) fn try_timeout(named: Option<&OsStr>, timeout: u32, force_fire: bool) -> u8 {
    try_devices(named, |path| try_one(path, timeout, force_fire))
}

fn try_devices(named: Option<&OsStr>, mut works: impl FnMut(&Path) -> bool) -> u8 {
    let marker = match Marker::create() {
        Ok(marker) => marker,
        Err(error) => {
            let text = "cannot probe watchdog devices while wdmd is in use.";
            eprintln!("{text}");
            if error.kind() != io::ErrorKind::AlreadyExists {
                eprintln!("{}: {error}", Marker::PATH);
            }
            let ident = Some(c"wdmd-probe");
            let (flags, facility) = (
                nix::syslog::LogFlags::LOG_CONS | nix::syslog::LogFlags::LOG_PID,
                nix::syslog::Facility::LOG_DAEMON,
            );
            let _ = nix::syslog::openlog(ident, flags, facility);
            let _ = nix::syslog::syslog(nix::syslog::Severity::LOG_ERR, text);
            next::tell(match error.kind() {
                io::ErrorKind::AlreadyExists => next::IN_USE,
                _ => next::MARKER,
            });
            return FAILURE;
        }
    };
    let found = match device::candidates(named) {
        Ok(paths) => paths.iter().any(|path| works(path)),
        Err(text) => {
            eprintln!("{text}");
            false
        }
    };
    marker.remove();
    if found {
        return 0;
    }
    eprintln!("{NO_DEVICE}");
    next::tell(next::NO_DEVICE);
    FAILURE
}

/// Why a device is not even opened: it could not be closed again.
fn no_way_out(path: &Path) -> bool {
    let stuck = Described::of(path).no_way_out == Some(true);
    if stuck {
        eprintln!(
            "{} cannot be stopped once it is open (nowayout): trying it would reset this host, so it is left alone",
            path.display()
        );
    }
    stuck
}

fn probe_one(path: &Path) -> bool {
    let shown = path.display();
    let failed = |what: &str, error: &io::Error| {
        let (number, reason) = (errno(error), device::reason(error));
        eprintln!("error {number} {what} {shown}: {reason}{}", device::held_by(path, error));
    };
    if let Err(error) = fs::metadata(path) {
        failed("stat", &error);
        return false;
    }
    if no_way_out(path) {
        return false;
    }
    let mut file = match device::open(path) {
        Ok(file) => file,
        Err(error) => {
            failed("open", &error);
            return false;
        }
    };
    let works = match probe_open(&file) {
        Ok(()) => true,
        Err(Unusable::Call(what, error)) => {
            failed(what, &error);
            false
        }
        Err(Unusable::Timeout { asked, got }) => {
            eprintln!("error 0 invalid timeout {shown}: set {asked}, got {got}");
            false
        }
        Err(Unusable::Driver(reason)) => {
            eprintln!("error 0 {shown} cannot be used: {reason}");
            false
        }
    };
    if works {
        println!("{shown}");
    }
    if let Err(error) = file.magic() {
        failed("disarm", &error);
        return false;
    }
    works
}

enum Unusable {
    Call(&'static str, io::Error),
    Driver(&'static str),
    Timeout { asked: u32, got: u32 },
}

/// Does with the device what the daemon would do for the default fire timeout, up to the first keepalive.
fn probe_open(file: &File) -> Result<(), Unusable> {
    let mut reported = file.timeout().map_err(|error| Unusable::Call("ioctl gettimeout", error))?;
    let support = file.support().map_err(|error| Unusable::Call("ioctl getsupport", error))?;
    if let Some(reason) = device::unfit(&support) {
        return Err(Unusable::Driver(reason));
    }
    let factor = Factor::of(support.identity());
    let asked = factor.to_driver(wanted_device_timeout(DEFAULT_FIRE_TIMEOUT).unwrap_or(1));
    if reported != asked {
        file.set_timeout(asked).map_err(|error| Unusable::Call("ioctl settimeout", error))?;
        reported = file.timeout().map_err(|error| Unusable::Call("ioctl gettimeout", error))?;
    }
    match Timing::new(DEFAULT_FIRE_TIMEOUT, factor.to_true(reported)) {
        Some(_) => Ok(()),
        None => Err(Unusable::Timeout { asked, got: reported }),
    }
}

/// A line of the report, with date.
fn say(text: std::fmt::Arguments<'_>) {
    println!("{}  {text}", civil_now(false));
    // The last line before the reset should be seen.
    let _ = io::stdout().flush();
}

fn try_one(path: &Path, timeout: u32, force_fire: bool) -> bool {
    let shown = path.display();
    if let Err(error) = fs::metadata(path) {
        eprintln!("{shown} stat error {}", device::told(&error));
        return false;
    }
    if no_way_out(path) {
        return false;
    }
    let mut file = match device::open(path) {
        Ok(file) => file,
        Err(error) => {
            eprintln!("{shown} open error {}{}", device::told(&error), device::held_by(path, &error));
            return false;
        }
    };
    let fd = file.as_raw_fd();
    say(format_args!("{shown} open fd {fd}"));
    let took = try_open(path, &file, timeout);
    if took && force_fire {
        wait_for_reset(path, timeout);
    }
    let verdict = if took { 0 } else { -1 };
    match file.magic() {
        Ok(()) => {
            say(format_args!("{shown} disarm write V fd {fd} result {verdict}"));
            drop(file);
            say(format_args!("{shown} close fd {fd} result 0"));
            took
        }
        Err(error) => {
            eprintln!("{shown} disarm error {}: this host will be reset", device::told(&error));
            false
        }
    }
}

fn try_open(path: &Path, file: &File, timeout: u32) -> bool {
    let shown = path.display();
    let identity = file.support().map(|support| support.identity().to_owned()).unwrap_or_default();
    let factor = Factor::of(&Described::of(path).identity.unwrap_or(identity));
    // A number as the driver counts, with the true one if that is another.
    let both = |driver: u32| {
        if factor.is_odd() {
            format!("real {} itco {driver}", factor.to_true(driver))
        } else {
            driver.to_string()
        }
    };
    let report = |result: io::Result<u32>| match result {
        Ok(seconds) => {
            say(format_args!("{shown} gettimeout {}", both(seconds)));
            Some(seconds)
        }
        Err(error) => {
            eprintln!("{shown} gettimeout error {}", device::told(&error));
            None
        }
    };
    if report(file.timeout()).is_none() {
        return false;
    }
    let asked = factor.to_driver(timeout);
    match file.set_timeout(asked) {
        Ok(result) => {
            let wanted =
                if factor.is_odd() { format!("real {timeout} itco {asked}") } else { asked.to_string() };
            say(format_args!("{shown} settimeout {wanted} result {}", both(result)));
        }
        Err(error) => {
            eprintln!("{shown} settimeout {timeout} error {}", device::told(&error));
            return false;
        }
    }
    let Some(got) = report(file.timeout()) else { return false };
    if factor.to_true(got) != timeout {
        eprintln!("{shown} settimeout {timeout} failed");
        return false;
    }
    match file.keepalive() {
        Ok(()) => {
            say(format_args!("{shown} keepalive fd {} result 0", file.as_raw_fd()));
            true
        }
        Err(error) => {
            eprintln!("{shown} keepalive error {}", device::told(&error));
            false
        }
    }
}

/// Counts the seconds until the device resets this host, which should end this process.
fn wait_for_reset(path: &Path, timeout: u32) {
    say(format_args!("waiting for watchdog to reset machine:"));
    for second in 1..=timeout.saturating_add(OVERTIME) {
        std::thread::sleep(Duration::from_secs(1));
        if second <= timeout {
            say(format_args!("{second}"));
        } else {
            say(format_args!("{second} {} failed to fire after timeout {timeout} seconds", path.display()));
        }
    }
}
